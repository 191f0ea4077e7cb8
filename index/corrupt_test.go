package index

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/storage"
)

// livedIn makes an index that has seen everything: several segments, deleted
// documents, holes, scales, payloads.
func livedIn(t *testing.T) string {
	const dim = 16
	path := newPath(t)
	docs := corpus(200, 12, dim, 1)
	build(t, path, dim, docs[:120], &BuildOptions{Nbits: 4, Centroids: 300})
	ix := writing(t, path)
	add(t, ix, dim, docs[120:160]...)
	_, _, err := ix.Delete(context.Background(), []string{"d3", "d4", "d130"})
	require.NoError(t, err)
	require.NoError(t, ix.Compact(context.Background(), nil))
	add(t, ix, dim, docs[160:180]...)
	_, _, err = ix.Delete(context.Background(), []string{"d7", "d161"})
	require.NoError(t, err)
	add(t, ix, dim, docs[180:]...)
	require.NoError(t, ix.Close())
	return path
}

// RequireTyped fails a test unless an error is one of those that a damaged file has.
func RequireTyped(t *testing.T, err error, what string) {
	t.Helper()
	for _, target := range []error{storage.ErrCorrupt, storage.ErrNotIndex, storage.ErrUnfinished, storage.ErrVersion} {
		if errors.Is(err, target) {
			return
		}
	}
	require.Fail(t, "not one of the documented errors", "%s: %v", what, err)
}

// A file that is cut short while it is open gives errors, no crash.
func TestTruncatedWhileOpen(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it keeps who would do so from it")
	}
	path := livedIn(t)
	ix, err := Open(context.Background(), path, nil)
	require.NoError(t, err)
	s := taken(t, ix)
	require.NoError(t, os.Truncate(path, 8192))
	failed := 0
	for ordinal := range s.State().Docs {
		if _, err := s.Vectors(ordinal); err != nil && !errors.Is(err, ErrNotFound) {
			require.ErrorIs(t, err, storage.ErrCorrupt)
			failed++
		}
	}
	require.Positive(t, failed)
	require.ErrorIs(t, s.Verify(context.Background()), storage.ErrCorrupt)
	require.ErrorIs(t, second(s.Export(context.Background(), filepath.Join(t.TempDir(), "out"), nil)), storage.ErrCorrupt)
	require.ErrorIs(t, second(s.Info(context.Background())), storage.ErrCorrupt)
	require.NoError(t, s.Close())
	require.NoError(t, ix.Close())
}

// putFormat writes the format record as docs/formats.md has it.
func putFormat(t *testing.T, path string, format, feature uint16) {
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		v := []byte("plaidix\n")
		v = binary.LittleEndian.AppendUint16(v, format)
		v = binary.LittleEndian.AppendUint16(v, feature)
		sum := crc32.Checksum(append([]byte("format"), v...), crc32.MakeTable(crc32.Castagnoli))
		return tx.Bucket([]byte("plaid")).Put([]byte("format"), binary.LittleEndian.AppendUint32(v, sum))
	}))
	require.NoError(t, db.Close())
}

func TestVersions(t *testing.T) {
	path := newPath(t)
	docs := corpus(5, 5, 8, 1)
	build(t, path, 8, docs, nil)
	putFormat(t, path, storage.FormatVersion, storage.FeatureVersion+5)
	requireFile(t, path, docs)
	putFormat(t, path, storage.FormatVersion+1, storage.FeatureVersion)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, err := range []error{
		second(Open(context.Background(), path, nil)), second(Open(context.Background(), path, &Options{Write: true})),
		second(Build(context.Background(), path, fromDocs(t, 8, docs), nil)),
		second(Build(context.Background(), path, fromDocs(t, 8, docs), &BuildOptions{Force: true})),
	} {
		require.ErrorIs(t, err, storage.ErrVersion)
		require.ErrorContains(t, err, path)
	}
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// Values that may be absent are missed all the same when they are lost, as
// through a damaged count of a page.
func TestLostValues(t *testing.T) {
	path := livedIn(t)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	lost := filepath.Join(testenv.RAMDir(t), "lost.plaid")
	var generation uint64
	reading(t, path, func(s *Snapshot) { generation = s.Generation() })
	gen := binary.BigEndian.AppendUint64([]byte("g"), generation)
	zero := string(make([]byte, 4))
	for _, keys := range [][]string{
		{"tombstones"}, {"state"}, {"header"}, {"codec", "dim-scale"}, {"codec", "centroid-scale"}, {"codec", "centroids"},
		{"postings", zero, zero}, {"postings", zero, "\x00\x00\x00\x01"}, {"chunks", zero, "docs"}, {"chunks", zero, "residuals"},
	} {
		require.NoError(t, os.WriteFile(lost, data, 0o600))
		db, err := bolt.Open(lost, 0o600, nil)
		require.NoError(t, err)
		require.NoError(t, db.Update(func(tx *bolt.Tx) error {
			b := tx.Bucket(gen)
			last := len(keys) - 1
			for _, k := range keys[:last] {
				b = b.Bucket([]byte(k))
			}
			require.NotNil(t, b.Get([]byte(keys[last])), "%q", keys)
			return b.Delete([]byte(keys[last]))
		}))
		require.NoError(t, db.Close())
		_, err = Open(context.Background(), lost, nil)
		require.ErrorIs(t, err, storage.ErrCorrupt, "%q", keys)
	}
	// What only a look at everything can find.
	for _, keys := range [][2]string{{"ids", "d20"}, {"payload", "\x00\x00\x00\x14"}} {
		require.NoError(t, os.WriteFile(lost, data, 0o600))
		db, err := bolt.Open(lost, 0o600, nil)
		require.NoError(t, err)
		require.NoError(t, db.Update(func(tx *bolt.Tx) error {
			b := tx.Bucket(gen).Bucket([]byte(keys[0]))
			require.NotNil(t, b.Get([]byte(keys[1])))
			return b.Delete([]byte(keys[1]))
		}))
		require.NoError(t, db.Close())
		reading(t, lost, func(s *Snapshot) {
			require.ErrorIs(t, s.Verify(context.Background()), storage.ErrCorrupt, "%q", keys)
			if keys[0] == "ids" {
				_, _, err := s.Ordinal(keys[1])
				require.ErrorIs(t, err, storage.ErrCorrupt)
			}
		})
	}
}

// A value of the codec that cannot be, although its checksum is right.
func TestImpossibleScale(t *testing.T) {
	path := newPath(t)
	build(t, path, 8, corpus(5, 5, 8, 1), nil)
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		key := []byte("dim-scale")
		b := tx.Bucket(binary.BigEndian.AppendUint64([]byte("g"), 1)).Bucket([]byte("codec"))
		v := make([]byte, len(b.Get(key))-4) // zeros
		sum := crc32.Checksum(append(key, v...), crc32.MakeTable(crc32.Castagnoli))
		return b.Put([]byte("dim-scale"), binary.LittleEndian.AppendUint32(v, sum))
	}))
	require.NoError(t, db.Close())
	_, err = Open(context.Background(), path, nil)
	require.ErrorIs(t, err, storage.ErrCorrupt)
	require.ErrorContains(t, err, path+": index is corrupt: codec: ")
}
