// Package testenv has helpers for tests of several packages: the test binary as a separate
// process, which can be killed, and folders in memory.
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

// Children holds the functions that the test binary runs as a separate process, by
// the value of ChildVariable.
var Children = map[string]func() error{}

// ChildVariable is the environment variable with the name of a child.
const ChildVariable = "PLAID_TEST_CHILD"

// Main is the TestMain of a package that has children, or changes index files.
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

// SetFilesAsOnWindows sets [files.EmulateWindows] if the variable PLAID_AS_ON_WINDOWS is set. Main
// calls it; another TestMain has to, before anything is open.
func SetFilesAsOnWindows() {
	files.EmulateWindows = files.EmulateWindows || os.Getenv("PLAID_AS_ON_WINDOWS") != ""
}

// RAMDir returns a folder for tests that commit often and do not depend on the disk: in memory,
// if the system has such a folder.
func RAMDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "plaid-test-")
	if err != nil || runtime.GOOS == "windows" { // where /dev/shm is an ordinary folder
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// WaitUnlocked waits until the files are not locked, after the process that held their locks
// was killed: some sandboxes release its locks a moment after Wait has returned. A file
// that does not exist counts as unlocked.
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

// ShellWords splits a command line, up to a redirection, into words as a shell does.
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
