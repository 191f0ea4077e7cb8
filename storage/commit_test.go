package storage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/files"
)

var errDisk = errors.New("the disk gives no answer")

// failSyncs lets the syncs that end a change fail, for the paths that match.
func failSyncs(t *testing.T, match func(path string) bool) {
	files.HookSynced = func(path string) error {
		if match(path) {
			return errDisk
		}
		return nil
	}
	t.Cleanup(func() { files.HookSynced = nil })
}

// seen is what a new snapshot shows.
func seen(t *testing.T, f *File) string {
	t.Helper()
	v, err := f.Snapshot()
	require.NoError(t, err)
	s, err := contents(v)
	require.NoError(t, err)
	require.NoError(t, v.Verify(context.Background()))
	require.NoError(t, v.Close())
	return s
}

// What the last sync of a commit does not confirm is not shown, and nothing is
// written after it: opening again finds it.
func TestUnknownOutcome(t *testing.T) {
	path := writeTestIndex(t)
	f := openWriting(t, path)
	require.NoError(t, addDoc(f, "delta"))
	older, err := f.Snapshot()
	require.NoError(t, err)
	olderText, err := contents(older)
	require.NoError(t, err)
	require.NoError(t, addDoc(f, "epsilon"))
	before := seen(t, f)
	held, err := f.Snapshot()
	require.NoError(t, err)

	failSyncs(t, func(path string) bool { return path == f.Path() })
	err = addDoc(f, "zeta")
	require.ErrorIs(t, err, ErrOutcomeUnknown)
	require.ErrorIs(t, err, errDisk)
	require.ErrorContains(t, err, "outcome unknown, open again")
	files.HookSynced = nil

	check := func() {
		require.Equal(t, before, seen(t, f), "a new view")
		for v, want := range map[*Snapshot]string{held: before, older: olderText} {
			s, err := contents(v)
			require.NoError(t, err)
			require.Equal(t, want, s, "a view from before")
		}
	}
	check()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for range 3 {
		require.ErrorIs(t, addDoc(f, "eta"), ErrOutcomeUnknown)
		require.ErrorIs(t, f.Discard(), ErrOutcomeUnknown)
		require.ErrorIs(t, f.Replace(fillTestIndex), ErrOutcomeUnknown)
	}
	check()
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, data, after, "something was written")

	last, err := f.Snapshot() // of what is known, and open beyond the file's Close
	require.NoError(t, err)
	require.NoError(t, f.Close())
	s, err := contents(last)
	require.NoError(t, err)
	require.Equal(t, before, s)
	for _, v := range []*Snapshot{last, held, older} {
		require.NoError(t, v.Close())
	}

	f = openWriting(t, path)
	require.Contains(t, seen(t, f), "zeta") // the disk had it
	require.NoError(t, addDoc(f, "eta"))
	require.NoError(t, f.Close())
}

// No snapshot shows a commit before its last sync.
func TestViewsWaitForTheLastSync(t *testing.T) {
	t.Cleanup(func() { files.HookSynced = nil })
	for _, fails := range []bool{false, true} {
		files.HookSynced = nil
		f := openWriting(t, writeTestIndex(t))
		before := seen(t, f)
		text := make(chan string, 1)
		files.HookSynced = func(string) error {
			go func() {
				v, err := f.Snapshot()
				if err != nil {
					text <- err.Error()
					return
				}
				s, err := contents(v)
				text <- s
				_ = errors.Join(err, v.Close())
			}()
			select {
			case s := <-text:
				return errors.New("not waited for: " + s)
			case <-time.After(20 * time.Millisecond):
			}
			if fails {
				return errDisk
			}
			return nil
		}
		err := addDoc(f, "delta")
		if fails {
			require.ErrorIs(t, err, errDisk)
			require.Equal(t, before, <-text)
		} else {
			require.NoError(t, err)
			require.Contains(t, <-text, "delta")
		}
		require.NoError(t, f.Close())
	}
}

// A commit that fails before it touches a meta page leaves a file that can be
// changed further.
func TestFailedWriteGoesOn(t *testing.T) {
	f := openWriting(t, writeTestIndex(t))
	before := seen(t, f)
	require.NoError(t, f.handle.file.Close()) // all writes fail
	err := addDoc(f, "delta")
	require.ErrorIs(t, err, os.ErrClosed)
	require.NotErrorIs(t, err, ErrOutcomeUnknown)
	require.Nil(t, f.broken)
	v, err := f.Snapshot()
	require.NoError(t, err)
	s, err := contents(v)
	require.NoError(t, err)
	require.Equal(t, before, s)
	require.NoError(t, v.Close())
	_ = f.Close()
}

// A rewrite whose rename may not be kept.
func TestUnknownOutcomeOfARewrite(t *testing.T) {
	path := writeTestIndex(t)
	f := openWriting(t, path)
	require.NoError(t, addDoc(f, "delta"))
	before := seen(t, f)
	failSyncs(t, func(p string) bool { return p == filepath.Dir(f.Path()) })
	err := f.Replace(fillTestIndex)
	require.ErrorIs(t, err, ErrOutcomeUnknown)
	require.ErrorIs(t, err, errDisk)
	files.HookSynced = nil
	require.Equal(t, before, seen(t, f))
	require.ErrorIs(t, addDoc(f, "epsilon"), ErrOutcomeUnknown)
	require.NoError(t, f.Close())

	f = openWriting(t, path)
	require.NotContains(t, seen(t, f), "delta") // the new file
	require.NoError(t, f.Close())
}
