package files

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// One handle excludes another, also of the same process; readers share.
func TestLocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, []byte("content"), 0o666))
	open := func(flag int) *os.File {
		f, err := OpenFile(path, flag, 0)
		require.NoError(t, err)
		return f
	}
	writer, other := open(os.O_RDWR), open(os.O_RDONLY)
	require.NoError(t, LockExclusive(writer))
	require.ErrorIs(t, LockShared(other), ErrLocked)
	require.ErrorIs(t, LockExclusive(other), ErrLocked)
	require.ErrorIs(t, WaitLock(t.Context(), other, false, time.Now().Add(10*time.Millisecond), nil), ErrLocked)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, WaitLock(ended, other, false, time.Now().Add(time.Hour), nil), context.Canceled)
	b, err := os.ReadFile(path) // the lock keeps nobody from reading
	require.NoError(t, err)
	require.Equal(t, "content", string(b))

	// A duplicate has the same lock, and keeps it.
	var second *os.File
	require.NoError(t, Duplicate(writer, func(f *os.File) error { second = f; return nil }))
	require.NoError(t, writer.Close())
	require.ErrorIs(t, LockShared(other), ErrLocked)
	require.NoError(t, second.Close())

	third := open(os.O_RDONLY)
	require.NoError(t, WaitLock(t.Context(), other, false, time.Now(), nil))
	require.NoError(t, LockShared(third))
	Unlock(third)
	Unlock(other)
	require.NoError(t, LockExclusive(third))
	require.NoError(t, third.Close())
	require.NoError(t, LockExclusive(other))
	require.NoError(t, other.Close())
}

// An open file can be renamed, and then removed.
func TestOpenFilesMove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	f, err := OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	require.NoError(t, err)
	_, err = OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	require.ErrorIs(t, err, os.ErrExist)
	_, err = f.WriteString("x")
	require.NoError(t, err)
	require.NoError(t, os.Rename(path, path+"2"))
	require.NoError(t, os.WriteFile(path, []byte("y"), 0o666))
	require.NoError(t, os.Remove(path+"2"))
	_, err = f.WriteString("x")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoFileExists(t, path+"2")
	_, err = OpenFile(path+"2", os.O_RDONLY, 0)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestMap(t *testing.T) {
	for _, content := range []string{"", "x", "some bytes of a file"} {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o666))
		f, err := os.Open(path)
		require.NoError(t, err)
		m, err := Map(f, int64(len(content)))
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.Equal(t, content, string(m.Data))
		require.NoError(t, m.Close())
		require.NoError(t, m.Close())
	}
}

func TestMapFaults(t *testing.T) {
	f, err := os.Open(t.TempDir())
	require.NoError(t, err)
	defer f.Close()
	_, err = Map(f, 10)
	require.Error(t, err)
	_, err = Map(f, -1)
	require.Error(t, err)
}
