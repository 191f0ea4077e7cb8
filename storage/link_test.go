//go:build unix

package storage

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// A rewrite through a link replaces the file and leaves the link.
func TestReplaceThroughLink(t *testing.T) {
	path := writeTestIndex(t)
	link := filepath.Join(t.TempDir(), "link.plaid")
	require.NoError(t, os.Symlink(path, link))
	before, err := os.Stat(path)
	require.NoError(t, err)
	f, err := Open(context.Background(), link, Options{Write: true})
	require.NoError(t, err)
	require.NoError(t, f.Replace(fillTestIndex))
	require.NoError(t, f.Close())
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.False(t, os.SameFile(before, after))
	target, err := os.Readlink(link)
	require.NoError(t, err)
	require.Equal(t, path, target)
	_, v := openView(t, link)
	require.NoError(t, v.Verify(context.Background()))
}

func TestVerifyNamesWhatIsDamaged(t *testing.T) {
	path := writeTestIndex(t)
	db, err := bolt.Open(path, 0o644, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		if err := tx.Bucket(layout.RootBucket).Put([]byte("note-built"), []byte("{}0000")); err != nil {
			return err
		}
		chunk := tx.Bucket(layout.GenerationName(1)).Bucket(layout.BucketChunks).Bucket(layout.NumberKey(0))
		v := append([]byte{}, chunk.Get(layout.KeyResiduals)...)
		v[0] ^= 1
		return chunk.Put(layout.KeyResiduals, v)
	}))
	require.NoError(t, db.Close())
	_, v := openView(t, path)
	err = v.Verify(context.Background())
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, ": note-built: checksum mismatch")
	require.ErrorContains(t, err, ": chunks/0/residuals: checksum mismatch")
}
