//go:build unix

package files

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Pipes and devices are written in place and stay what they are.
func TestWriteInPlace(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o666))
	got := make(chan string)
	go func() {
		b, _ := os.ReadFile(pipe)
		got <- string(b)
	}()
	require.NoError(t, WriteAtomic(t.Context(), pipe, text("through")))
	require.Equal(t, "through", <-got)
	info, err := os.Lstat(pipe)
	require.NoError(t, err)
	require.Equal(t, os.ModeNamedPipe, info.Mode().Type())

	require.NoError(t, WriteAtomic(t.Context(), os.DevNull, text("x")))
	info, err = os.Stat(os.DevNull)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeDevice)
	if _, err := os.Stat("/dev/full"); err == nil {
		require.ErrorIs(t, WriteAtomic(t.Context(), "/dev/full", text("x")), syscall.ENOSPC)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// A pipe without a reader, or whose reader reads no more, ends with the context.
func TestCancelledPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o666))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	require.ErrorIs(t, WriteAtomic(ctx, pipe, text("x")), context.Canceled)

	r, err := os.OpenFile(pipe, os.O_RDWR, 0) // both ends
	require.NoError(t, err)
	defer r.Close()
	ctx, cancel = context.WithCancel(t.Context())
	err = WriteAtomic(ctx, pipe, func(w io.Writer) error {
		time.AfterFunc(10*time.Millisecond, cancel)
		_, err := w.Write(make([]byte, 1<<20)) // more than a pipe holds
		return err
	})
	require.ErrorIs(t, err, context.Canceled)
}

// A folder that takes no files is named, and no temporary file.
func TestFolderThatTakesNoFiles(t *testing.T) {
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Skip("needs a folder where nobody makes files")
	}
	path := "/proc/no.npy"
	_, created := CreateAtomic(t.Context(), path)
	_, folder := CreateAtomicFolder(path)
	for _, err := range []error{CanCreate(path), created, folder} {
		require.ErrorContains(t, err, "write /proc/no.npy: folder /proc: ")
		require.NotContains(t, err.Error(), ".plaid-")
	}
}

func TestPipes(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o666))
	_, _, err := OpenInput(pipe)
	require.ErrorIs(t, err, ErrNotRegular)
	require.ErrorContains(t, err, "is a pipe")
	_, _, err = openAndCheck(pipe) // which took the place of a file a moment ago
	require.ErrorIs(t, err, ErrNotRegular)
	_, _, err = OpenInput(os.DevNull)
	require.ErrorIs(t, err, ErrNotRegular)

	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	_, err = Stream(ctx, pipe) // nobody writes
	require.ErrorIs(t, err, context.Canceled)

	both, err := os.OpenFile(pipe, os.O_RDWR, 0)
	require.NoError(t, err)
	defer both.Close()
	ctx, cancel = context.WithCancel(t.Context())
	s, err := Stream(ctx, pipe)
	require.NoError(t, err)
	defer s.Close()
	_, err = both.WriteString("abc")
	require.NoError(t, err)
	b := make([]byte, 3)
	_, err = io.ReadFull(s, b)
	require.NoError(t, err)
	require.Equal(t, "abc", string(b))
	time.AfterFunc(10*time.Millisecond, cancel)
	_, err = s.Read(b) // nobody writes any more
	require.ErrorIs(t, err, context.Canceled)
}

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
