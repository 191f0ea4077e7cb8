package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

func TestBackupAndRestore(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	c := declare(t, s, "docs", collection.Config{})
	var b bytes.Buffer
	_, err := c.Backup(t.Context(), &b)
	require.ErrorIs(t, err, collection.ErrEmpty)
	one, two := randomDoc("one", 1), randomDoc("two", 2)
	require.NoError(t, update(c, collection.UpdateOptions{}, one, randomDoc("x", 1), two)().err)
	_, err = c.Delete(t.Context(), collection.Selection{IDs: []string{"x"}})
	require.NoError(t, err)
	_, err = c.Backup(t.Context(), &b)
	require.NoError(t, err)

	d := declare(t, s, "restored", collection.Config{})
	empty := func() {
		t.Helper()
		_, err := d.Snapshot(t.Context())
		require.ErrorIs(t, err, collection.ErrEmpty)
		entries, err := os.ReadDir(d.dir)
		require.NoError(t, err)
		require.Len(t, entries, 1)
	}
	damaged := bytes.Clone(b.Bytes())
	damaged[bytes.Index(damaged, []byte("residuals"))+40] ^= 1
	boom := errors.New("boom")
	for want, in := range map[error]io.Reader{
		boom:                io.MultiReader(bytes.NewReader(b.Bytes()[:b.Len()/2]), iotest.ErrReader(boom)),
		storage.ErrNotIndex: strings.NewReader("no index"),
		storage.ErrCorrupt:  bytes.NewReader(damaged),
	} {
		require.ErrorIs(t, s.Restore(t.Context(), d.Name(), in), want)
		empty()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Restore(ctx, d.Name(), bytes.NewReader(b.Bytes())), context.Canceled)
	empty()

	require.NoError(t, s.Restore(t.Context(), d.Name(), iotest.HalfReader(bytes.NewReader(b.Bytes()))))
	require.True(t, finds(t, d, one))
	require.Equal(t, []uint32{0, 2}, all(t, view(t, d)), "ordinals as they were")
	a := update(d, collection.UpdateOptions{Replace: true}, one)()
	require.NoError(t, a.err)
	require.Equal(t, []uint64{3}, a.receipt.Numbers)
}

func TestImport(t *testing.T) {
	dir := t.TempDir()
	docs := []vectors.Document{{ID: "a", Tokens: randomDoc("a", 1).Vectors}, {ID: "b", Tokens: randomDoc("b", 1).Vectors}}
	src, err := vectors.FromDocuments(testDim, docs)
	require.NoError(t, err)
	path := filepath.Join(dir, "x.plaid")
	_, err = index.Build(t.Context(), path, src, &index.BuildOptions{Nbits: 4, NoDimScales: true, NoCentroidScales: true})
	require.NoError(t, err)
	ix, err := index.Open(t.Context(), path, nil)
	require.NoError(t, err)
	snap, err := ix.Snapshot()
	require.NoError(t, err)
	theirs := filepath.Join(dir, "theirs")
	_, err = snap.ExportEngine(t.Context(), theirs, nil)
	require.NoError(t, err)
	require.NoError(t, snap.Close())
	require.NoError(t, ix.Close())

	s := openStore(t, filepath.Join(dir, "data"), nil)
	c := declare(t, s, "docs", collection.Config{})
	_, err = s.Import(t.Context(), c.Name(), filepath.Join(dir, "nosuch"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(filepath.Join(theirs, "ids.txt"), []byte("first\nsecond\n"), 0o600))
	r, err := s.Import(t.Context(), c.Name(), theirs)
	require.NoError(t, err)
	require.Equal(t, 2, r.Docs)
	st, err := c.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, collection.StageFinal, st.Growth.Stage, "what another engine has trained is not trained again by itself")
	require.Equal(t, "second", view(t, c).snap.ID(1))
	require.NoError(t, update(c, collection.UpdateOptions{}, randomDoc("more", 1))().err)
	report, err := c.Retrain(t.Context())
	require.NoError(t, err)
	require.Equal(t, 4, report.After.Nbits, "as few bits as there were")
	require.Equal(t, "second", view(t, c).snap.ID(1))
}

// A damaged collection stops no other, can be dropped, and takes nothing.
func TestDamagedCollection(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, nil)
	for _, name := range []string{"good", "bad", "config", "lost"} {
		require.NoError(t, update(declare(t, s, name, collection.Config{}), collection.UpdateOptions{}, randomDoc("a", 1))().err)
	}
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, os.Truncate(filepath.Join(dir, "bad", indexFile), 5000))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config", configFile), []byte(`{"nbits":3}`), 0o666))
	require.NoError(t, os.Remove(filepath.Join(dir, "lost", configFile)))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "lost+found"), 0o777))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "other", "folder"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, droppedPrefix+"x", "y"), 0o777))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "good", receivedPrefix+"x", "y"), 0o777))

	s = openStore(t, dir, nil)
	require.Equal(t, []string{"bad", "config", "good", "lost"}, s.Names())
	require.NoDirExists(t, filepath.Join(dir, droppedPrefix+"x"))
	require.NoDirExists(t, filepath.Join(dir, "good", receivedPrefix+"x"))
	for name, why := range map[string]error{"bad": storage.ErrCorrupt, "config": storage.ErrCorrupt, "lost": os.ErrNotExist} {
		c, err := s.Get(name)
		require.NoError(t, err)
		require.ErrorIs(t, c.Err(), collection.ErrDamaged)
		require.ErrorIs(t, c.Err(), why)
		_, err = c.Snapshot(t.Context())
		require.ErrorIs(t, err, collection.ErrDamaged)
		require.ErrorIs(t, update(c, collection.UpdateOptions{}, randomDoc("b", 1))().err, collection.ErrDamaged)
		_, err = c.Delete(t.Context(), collection.Selection{IDs: []string{"a"}})
		require.ErrorIs(t, err, collection.ErrDamaged)
		_, err = c.Stats(t.Context())
		require.ErrorIs(t, err, collection.ErrDamaged)
		_, err = s.Create(t.Context(), name, collection.Config{})
		require.ErrorIs(t, err, collection.ErrExists)
	}
	existed, err := s.Remove(t.Context(), "bad")
	require.NoError(t, err)
	require.True(t, existed)
	existed, err = s.Remove(t.Context(), "bad")
	require.NoError(t, err)
	require.False(t, existed)
	good, err := s.Get("good")
	require.NoError(t, err)
	require.NoError(t, good.Err())
	require.NoError(t, update(declare(t, s, "bad", collection.Config{}), collection.UpdateOptions{}, randomDoc("a", 1))().err)
}

func TestOneProcessAFolder(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("index files are only read there")
	}
	dir := t.TempDir()
	s := openStore(t, dir, nil)
	_, err := Open(t.Context(), dir, nil)
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, s.Close(t.Context()))
	s, err = Open(t.Context(), dir, nil)
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))
}

func TestConfig(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	for _, cfg := range []collection.Config{{Nbits: 3}, {Nbits: -1}, {BatchSize: -1}, {StartFromScratch: -2}, {Tokenizer: "zzz"}} {
		_, err := s.Create(t.Context(), "x", cfg)
		require.ErrorIs(t, err, collection.ErrConfig)
	}
	require.Empty(t, s.Names())
	c := declare(t, s, "x", collection.Config{})
	require.Equal(t, collection.Config{Nbits: 4, BatchSize: 50000, StartFromScratch: 999, Tokenizer: collection.TokenizerUnicode}, c.Config())
	_, err := Open(t.Context(), t.TempDir(), &Options{Growth: collection.Growth{Factor: 1}})
	require.ErrorIs(t, err, collection.ErrConfig)
}
