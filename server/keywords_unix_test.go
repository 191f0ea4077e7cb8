//go:build unix

package server_test

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
)

const childVariable = "PLAID_TEST_CHILD"

// alone runs a test in a process of its own, since its limits would be those of all, and
// tells whether this is that process.
func alone(t *testing.T) bool {
	if os.Getenv(childVariable) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), childVariable+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "PASS")
	return false
}

// limited calls fn while a limit of this process is lower.
func limited(t *testing.T, resource int, most uint64, fn func()) {
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(resource, &before))
	require.NoError(t, syscall.Setrlimit(resource, &syscall.Rlimit{Cur: most, Max: before.Max}))
	defer func() { require.NoError(t, syscall.Setrlimit(resource, &before)) }()
	fn()
}

// A disk that takes no more, which a limit on the size of files stands in for, is an error
// of each search until there is room again.
func TestKeywordsOnAFullDisk(t *testing.T) {
	if !alone(t) {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	for _, most := range []uint64{0, 5000, 20000} { // within the first pages of the file, and after them
		s, file := petsAt(t, t.TempDir())
		limited(t, syscall.RLIMIT_FSIZE, most, func() {
			for range 3 {
				s.refused(t, 500, server.CodeInternal, "POST", "/indices/pets/search", birds)
			}
		})
		require.FileExists(t, file)
		s.findsBirds(t)
	}
}

func TestKeywordsWithoutDescriptors(t *testing.T) {
	if !alone(t) {
		return
	}
	dir := t.TempDir()
	s, file := petsAt(t, dir)
	s.findsBirds(t)
	require.NoError(t, s.store.Close(context.Background()))
	st := openStoreAt(t, dir, nil)
	s = startAt(t, st, words{}, nil)
	require.FileExists(t, file)
	var open []*os.File
	limited(t, syscall.RLIMIT_NOFILE, 100, func() {
		for {
			f, err := os.Open(os.DevNull)
			if err != nil {
				break
			}
			open = append(open, f)
		}
		for range 3 {
			s.refused(t, 500, server.CodeInternal, "POST", "/indices/pets/search", birds)
		}
		for _, f := range open {
			require.NoError(t, f.Close())
		}
	})
	s.findsBirds(t)
}
