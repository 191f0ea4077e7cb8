package store

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/storage"
)

// An index in which a name is damaged is damaged. It was taken for one that was never
// built once, and the next document replaced it.
func TestDamagedNameIsNoEmptyCollection(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, nil)
	require.NoError(t, update(declare(t, s, "c", collection.Config{}), collection.UpdateOptions{}, randomDoc("a", 1), randomDoc("b", 2))().err)
	require.NoError(t, s.Close(t.Context()))
	path := filepath.Join(dir, "c", indexFile)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	names := 0
	for _, name := range []string{"current", "plaid", "header", "state", "chunks"} {
		for bit := range 8 * len(name) {
			data := bytes.Clone(whole)
			for at := 0; ; { // also where pages are free
				next := bytes.Index(data[at:], []byte(name))
				if next < 0 {
					break
				}
				at += next
				data[at+bit/8] ^= 1 << (bit % 8)
				at += len(name)
				names++
			}
			require.NoError(t, os.WriteFile(path, data, 0o600))
			s := openStore(t, dir, nil)
			c, err := s.Get("c")
			require.NoError(t, err)
			require.ErrorIs(t, c.Err(), collection.ErrDamaged, "%s, bit %d", name, bit)
			require.ErrorIs(t, c.Err(), storage.ErrCorrupt, "%s, bit %d", name, bit)
			require.ErrorIs(t, update(c, collection.UpdateOptions{}, randomDoc("x", 1))().err, collection.ErrDamaged)
			require.NoError(t, s.Close(t.Context()))
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.True(t, bytes.Equal(data, after), "%s, bit %d: the file was changed", name, bit)
		}
	}
	require.Positive(t, names)
}

// A collection whose configuration is lost is damaged, and is listed: it was passed over
// once, as if it had never been.
func TestLostConfiguration(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, nil)
	require.NoError(t, update(declare(t, s, "c", collection.Config{}), collection.UpdateOptions{}, randomDoc("a", 1))().err)
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, os.Remove(filepath.Join(dir, "c", configFile)))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "other", "folder"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	s = openStore(t, dir, nil)
	require.Equal(t, []string{"c"}, s.Names())
	c, err := s.Get("c")
	require.NoError(t, err)
	require.ErrorIs(t, c.Err(), collection.ErrDamaged)
	require.ErrorIs(t, update(c, collection.UpdateOptions{}, randomDoc("b", 1))().err, collection.ErrDamaged)
	_, err = s.Declare(t.Context(), "c", collection.Config{})
	require.ErrorIs(t, err, collection.ErrExists)
}
