//go:build unix

package files

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Nobody gets the lock of a file while a duplicate of it makes it a shared one.
func TestDuplicateKeepsTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, nil, 0o666))
	open := func() *os.File {
		f, err := OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	writer, other := open(), open()
	require.NoError(t, LockExclusive(writer))
	var done atomic.Bool
	var got int
	var asking sync.WaitGroup
	asking.Go(func() {
		for !done.Load() {
			if LockShared(other) == nil {
				got++
				Unlock(other)
			}
		}
	})
	for range 2000 {
		err := Duplicate(writer, func(f *os.File) error {
			defer f.Close()
			return unix.Flock(int(f.Fd()), unix.LOCK_SH)
		})
		if err != nil {
			done.Store(true)
			asking.Wait()
			require.NoError(t, err)
		}
	}
	done.Store(true)
	asking.Wait()
	require.Zero(t, got)
}
