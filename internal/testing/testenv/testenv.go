// Package testenv is what tests of several rooms stand on: the test binary as a program of
// its own, which can be killed, and folders in memory.
package testenv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/files"
)

// Children are what the test binary does when a test runs it as a process of its own, by
// the name that ChildVariable has.
var Children = map[string]func() error{}

// ChildVariable is that of the environment.
const ChildVariable = "PLAID_TEST_CHILD"

// Main is TestMain of a package that has children, or changes index files.
func Main(m *testing.M) {
	SetFilesAsOnWindows()
	if name := os.Getenv(ChildVariable); name != "" {
		if err := Children[name](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// SetFilesAsOnWindows sets [files.AsOnWindows] if the variable PLAID_AS_ON_WINDOWS is set. Main
// calls it; another TestMain has to, before anything is open.
func SetFilesAsOnWindows() {
	files.AsOnWindows = files.AsOnWindows || os.Getenv("PLAID_AS_ON_WINDOWS") != ""
}

// RAMDir is a folder for tests that commit often and do not depend on the disk: in memory,
// where there is such a place.
func RAMDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "plaid-test-")
	if err != nil || runtime.GOOS == "windows" { // where it may be something else
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// WaitUnlocked waits until nothing holds a lock of these files, after a process that held
// them was killed: some sandboxes free its locks a moment after Wait has returned. A file
// that does not exist has no lock.
func WaitUnlocked(t testing.TB, paths ...string) {
	t.Helper()
	for _, path := range paths {
		f, err := files.OpenFile(path, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		require.NoError(t, err)
		require.NoError(t, files.WaitLock(context.Background(), f, true, time.Now().Add(time.Minute), nil), path)
		require.NoError(t, f.Close())
	}
}

var (
	shellWord   = regexp.MustCompile(`(?:[^\s'"]|'[^']*'|"[^"]*")+`)
	shellQuoted = regexp.MustCompile(`'[^']*'|"[^"]*"`)
)

// ShellWords are the words of a command line up to a redirection, as a shell finds them.
func ShellWords(line string) []string {
	words := shellWord.FindAllString(line, -1)
	for i, word := range words {
		if word[0] == '>' {
			return words[:i]
		}
		words[i] = shellQuoted.ReplaceAllStringFunc(word, func(q string) string { return q[1 : len(q)-1] })
	}
	return words
}
