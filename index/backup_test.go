package index

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// What is written is little, and the copy is the same as one made anew.
func TestBackupIncremental(t *testing.T) {
	dir := testenv.RAMDir(t)
	path, to := filepath.Join(dir, "x.plaid"), filepath.Join(dir, "copy.plaid")
	ctx := context.Background()
	docs := corpus(400, 8, 8, 1)
	for i := range docs {
		docs[i].Payload = bytes.Repeat([]byte{'a' + byte(i%26)}, 2000)
	}
	build(t, path, 8, docs, nil)
	ix := writing(t, path)
	backup := func() *BackupReport {
		t.Helper()
		r, err := ix.BackupTo(ctx, to, &BackupOptions{Incremental: true})
		require.NoError(t, err)
		s := taken(t, ix)
		want := snapshotDigest(t, s)
		require.NoError(t, s.Close())
		require.Equal(t, want, digestOf(t, to))
		requireFiles(t, dir, 2)
		return r
	}
	r := backup()
	require.False(t, r.Incremental)
	require.Equal(t, "there is no copy yet", r.WholeReason)
	require.Equal(t, 400, r.Docs)
	r = backup()
	require.True(t, r.Incremental)
	require.Zero(t, r.Written)

	same := func(change func()) {
		t.Helper()
		before, err := os.Stat(to)
		require.NoError(t, err)
		change()
		r := backup()
		require.True(t, r.Incremental, r.WholeReason)
		require.NotZero(t, r.Written)
		require.Less(t, r.Written, r.Size/3)
		after, err := os.Stat(to)
		require.NoError(t, err)
		require.True(t, os.SameFile(before, after))
	}
	for i := range 5 { // segments are merged, and their chunks and postings go
		same(func() { add(t, ix, 8, corpus(410+i, 8, 8, 9)[409+i:]...) })
	}
	same(func() {
		_, _, err := ix.Delete(ctx, []string{"d3", "d77"})
		require.NoError(t, err)
	})
	same(func() {
		require.NoError(t, ix.SetDefaults(&storage.Defaults{Classes: []storage.DefaultClass{{K: 10, Probes: 3}}}))
	})
	reading(t, to, func(s *Snapshot) {
		d, err := s.Defaults()
		require.NoError(t, err)
		require.Equal(t, 3, d.Classes[0].Probes)
	})

	whole := func(why string) {
		t.Helper()
		r := backup()
		require.False(t, r.Incremental)
		require.Contains(t, r.WholeReason, why)
	}
	add(t, ix, 8, corpus(421, 8, 8, 9)[420:]...)
	reader, err := Open(context.Background(), to, nil)
	require.NoError(t, err)
	whole("the copy is open elsewhere")
	require.NoError(t, reader.Close())
	require.NoError(t, os.Link(to, filepath.Join(testenv.RAMDir(t), "other name")))
	whole("other names")
	much := corpus(2000, 8, 8, 4)[500:]
	for i := range much {
		much[i].Payload = docs[0].Payload
	}
	add(t, ix, 8, much...)
	whole("too much of it has changed")
	require.NoError(t, os.Truncate(to, 20_000))
	r = backup()
	require.False(t, r.Incremental)
	require.NoError(t, ix.Close())
	build(t, path, 8, docs[:50], &BuildOptions{Force: true, Seed: 9})
	ix = writing(t, path)
	whole("no copy of this index")
}

func TestBackupToRefuses(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("symbolic links are not for everybody there")
	}
	dir := testenv.RAMDir(t)
	path := filepath.Join(dir, "x.plaid")
	ctx := context.Background()
	docs := corpus(9, 6, 8, 1)
	build(t, path, 8, docs, nil)
	require.NoError(t, os.Chmod(path, 0o640))
	ix, err := Open(context.Background(), path, nil)
	require.NoError(t, err)
	defer ix.Close()
	at := func(name string) string { return filepath.Join(dir, name) }
	backup := func(to string, force bool) error {
		_, err := ix.BackupTo(ctx, to, &BackupOptions{Force: force, Incremental: force})
		return err
	}
	require.NoError(t, os.Symlink(path, at("link")))
	require.NoError(t, os.Link(path, at("hard")))
	for _, name := range []string{"x.plaid", "link", "hard"} {
		require.ErrorIs(t, backup(at(name), true), ErrSameFile)
	}
	require.NoError(t, os.WriteFile(at("text"), []byte("precious"), 0o600))
	require.ErrorIs(t, backup(at("text"), false), storage.ErrNotIndex)
	text, err := os.ReadFile(at("text"))
	require.NoError(t, err)
	require.Equal(t, "precious", string(text))
	require.NoError(t, os.Mkdir(at("folder"), 0o700))
	require.ErrorContains(t, backup(at("folder"), true), "folder: is a folder: a copy is a file")
	require.ErrorIs(t, backup(at("nosuch/x"), false), os.ErrNotExist)

	build(t, at("busy"), 8, docs[:3], nil)
	busy := writing(t, at("busy"))
	require.ErrorIs(t, backup(at("busy"), true), storage.ErrLocked)
	require.NoError(t, busy.Close())

	require.NoError(t, os.WriteFile(at("empty"), nil, 0o600))
	for _, name := range []string{"busy", "empty", "fresh"} {
		require.NoError(t, backup(at(name), false), name)
	}
	require.NoError(t, backup(at("text"), true))
	for _, name := range []string{"busy", "empty", "fresh", "text"} {
		requireFile(t, at(name), docs)
		info, err := os.Stat(at(name))
		require.NoError(t, err)
		require.EqualValues(t, 0o640, info.Mode().Perm())
	}

	canceled, cancel := context.WithCancel(ctx)
	_, err = ix.BackupTo(canceled, at("late"), &BackupOptions{Progress: func(Progress) { cancel() }})
	require.ErrorIs(t, err, context.Canceled)
	require.NoFileExists(t, at("late"))
	left, err := filepath.Glob(at("*.tmp"))
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, ix.Close())
	_, err = ix.Backup(ctx, &bytes.Buffer{}, nil)
	require.ErrorIs(t, err, storage.ErrClosed)
}

// A damaged index is not put in the place of the good copy.
func TestBackupOfDamage(t *testing.T) {
	dir := testenv.RAMDir(t)
	path, to := filepath.Join(dir, "x.plaid"), filepath.Join(dir, "copy.plaid")
	docs := corpus(30, 6, 8, 1)
	marked := append(docs, vectors.Document{ID: "marked", Tokens: docs[1].Tokens, Payload: []byte(`"mark of the payload"`)})
	build(t, path, 8, marked, nil)
	ctx := context.Background()
	backup := func(o *BackupOptions) error {
		ix, err := Open(context.Background(), path, nil)
		require.NoError(t, err)
		_, err = ix.BackupTo(ctx, to, o)
		return errors.Join(err, ix.Close())
	}
	require.NoError(t, backup(nil))
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	at := bytes.Index(raw, []byte("mark of the payload"))
	require.Positive(t, at)
	raw[at] ^= 1
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	for _, o := range []BackupOptions{{}, {Check: CheckChecksums}, {Incremental: true}} {
		err := backup(&o)
		require.ErrorIs(t, err, storage.ErrCorrupt)
		require.ErrorContains(t, err, "payload/30")
		requireFile(t, to, marked)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*.tmp"))
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, backup(&BackupOptions{Check: CheckNothing}), "as asked for")
}
