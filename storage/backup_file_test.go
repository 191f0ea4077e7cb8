//go:build unix

package storage

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSuccessor(t *testing.T) {
	_, v := openView(t, writeTestIndex(t))
	want := digestOf(t, v)
	dir := t.TempDir()
	path := filepath.Join(dir, "a*b.plaid")
	dead := path + ".plaid-partial-0123456789abcdef"
	require.NoError(t, os.WriteFile(dead, []byte("x"), 0o600))
	live, err := NewSuccessor(path)
	require.NoError(t, err)
	var log bytes.Buffer
	RemoveAbandonedSuccessors(path, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoFileExists(t, dead)
	require.Contains(t, log.String(), dead)
	require.FileExists(t, live.Name())

	_, _, err = live.WriteSnapshot(context.Background(), v, nil)
	require.NoError(t, err)
	info, err := os.Stat(live.Name())
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm(), "for nobody else while it is written")
	RemoveAbandonedSuccessors(path, slog.New(slog.DiscardHandler))
	require.NoFileExists(t, path)
	require.NoError(t, live.Commit(0o640))
	require.NoError(t, live.Discard())
	info, err = os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, 0o640, info.Mode().Perm())
	require.Equal(t, want, digestAt(t, path))

	// When only the folder cannot be made durable the copy is there.
	unsure, err := NewSuccessor(path)
	require.NoError(t, err)
	_, _, err = unsure.WriteSnapshot(context.Background(), v, nil)
	require.NoError(t, err)
	failSyncs(t, func(string) bool { return true })
	err = unsure.Commit(0o640)
	require.ErrorIs(t, err, ErrOutcomeUnknown)
	require.ErrorIs(t, err, errDisk)
	failSyncs(t, func(string) bool { return false })
	require.NoFileExists(t, unsure.Name())
	require.Equal(t, want, digestAt(t, path))

	// Through a link the file is replaced, and a link to nowhere is an error.
	link := filepath.Join(t.TempDir(), "link.plaid")
	require.NoError(t, os.Symlink(path, link))
	s, err := NewSuccessor(link)
	require.NoError(t, err)
	require.Equal(t, dir, filepath.Dir(s.Name()))
	require.NoError(t, s.Discard())
	require.NoError(t, s.Discard())
	require.NoFileExists(t, s.Name())
	require.NoError(t, os.Remove(path))
	_, err = NewSuccessor(link)
	require.ErrorIs(t, err, os.ErrNotExist)

	s, err = NewSuccessor(filepath.Join(dir, strings.Repeat("é", 127)))
	require.NoError(t, err)
	require.NoError(t, s.Discard())
	_, err = NewSuccessor(filepath.Join(dir, "nosuch", "x"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "nosuch")
}

// A reader goes over to the file that has taken the place of its own, but not
// to one that it cannot open.
func TestRefresh(t *testing.T) {
	ctx := context.Background()
	path := writeTestIndex(t)
	f, v := openView(t, path)
	old := digestOf(t, v)
	var seen []*Snapshot
	refresh := func() (bool, error) {
		return f.Refresh(context.Background(), func(v *Snapshot) error {
			seen = append(seen, v)
			return nil
		})
	}
	changed, err := refresh()
	require.NoError(t, err)
	require.False(t, changed)

	put := func(b []byte) {
		require.NoError(t, os.WriteFile(path+".new", b, 0o600))
		require.NoError(t, os.Rename(path+".new", path))
	}
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	_, err = refresh()
	require.ErrorIs(t, err, os.ErrNotExist)
	put(good[:len(good)/2])
	_, err = refresh()
	require.ErrorIs(t, err, ErrCorrupt)
	put([]byte("something else, of a hundred bytes or so, which is no index at all, however one looks at it, not even a bit"))
	_, err = refresh()
	require.ErrorIs(t, err, ErrNotIndex)
	require.Empty(t, seen)
	require.Equal(t, old, digestOf(t, v))

	other := writeTestIndex(t)
	w := openWriting(t, other)
	addDocs(t, w, "new", 5, 10)
	require.NoError(t, os.Rename(other, path))
	_, err = refresh()
	require.ErrorIs(t, err, ErrLocked)
	again, err := f.Snapshot()
	require.NoError(t, err)
	require.Equal(t, old, digestOf(t, again))
	require.Equal(t, v.Lineage(), again.Lineage())
	require.NoError(t, again.Close())
	require.NoError(t, w.Close())

	refused := os.ErrInvalid
	_, err = f.Refresh(context.Background(), func(*Snapshot) error { return refused })
	require.ErrorIs(t, err, refused)
	changed, err = refresh()
	require.NoError(t, err)
	require.True(t, changed)
	changed, err = refresh()
	require.NoError(t, err)
	require.False(t, changed)
	again, err = f.Snapshot()
	require.NoError(t, err)
	require.Equal(t, digestOf(t, seen[0]), digestOf(t, again))
	require.NotEqual(t, old, digestOf(t, again))
	require.Equal(t, v.Generation(), again.Generation())
	require.NotEqual(t, v.Lineage(), again.Lineage(), "the same number, another file")
	require.Equal(t, seen[0].Lineage(), again.Lineage())
	require.NoError(t, v.Verify(ctx), "the old one is still there")
	require.NoError(t, again.Close())
	require.NoError(t, seen[0].Close())
	require.NoError(t, f.Close())
	_, err = refresh()
	require.ErrorIs(t, err, ErrClosed)

	w, err = Open(context.Background(), path, Options{Write: true})
	require.NoError(t, err, "no lock is left")
	_, err = w.Refresh(context.Background(), func(*Snapshot) error { return nil })
	require.Error(t, err)
	require.NoError(t, w.Close())
}

func TestLineage(t *testing.T) {
	var l, other, compacted lineage
	first := l.numberFor(1)
	require.Equal(t, first, l.numberFor(1))
	second := l.numberFor(2)
	require.NotEqual(t, first, second, "a build")
	require.NotEqual(t, second, other.numberFor(2), "another file")
	l.passTo(&compacted)
	require.Equal(t, second, compacted.numberFor(1))
	require.NotEqual(t, second, compacted.numberFor(2))
}
