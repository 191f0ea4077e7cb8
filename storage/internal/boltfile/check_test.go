package boltfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/internal/testing/effort"
)

// A page without elements is one of the tree all the same.
func TestKindOfAnEmptyPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	size := int64(db.Info().PageSize)
	require.NoError(t, db.Close())
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, CheckNewest(t.Context(), f))
	const root = 3 // of a new file
	for _, kind := range []uint16{0, PageBranch, PageFreeList, PageLeaf | PageBranch} {
		_, err := f.WriteAt(binary.NativeEndian.AppendUint16(nil, kind), root*size+8)
		require.NoError(t, err)
		require.ErrorContains(t, CheckNewest(t.Context(), f), "page 3 is of kind")
		require.Error(t, CheckBranches(t.Context(), f))
	}
}

// After any writes a page begins with the key that leads to it. A flipped bit of a branch is
// found; else a writer would free pages that stay in the tree.
func TestBitsOfBranches(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	db, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: MinPageSize, NoSync: true})
	require.NoError(t, err)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	rng := rand.New(rand.NewPCG(1, 1))
	for step := range effort.Cases(60, 400) {
		require.NoError(t, db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			from := rng.IntN(2000)
			for i := range rng.IntN(300) {
				key := fmt.Appendf(nil, "%0*d", 4+(from+i)%40, from+i)
				if step%3 == 2 {
					err = errors.Join(err, b.Delete(key))
				} else {
					err = errors.Join(err, b.Put(key, make([]byte, rng.IntN(50))))
				}
			}
			return err
		}))
		require.NoError(t, CheckNewest(t.Context(), f), "step %d", step)
		require.NoError(t, CheckBranches(t.Context(), f), "step %d", step)
	}
	require.NoError(t, db.Close())

	data, err := os.ReadFile(path)
	require.NoError(t, err)
	ne := binary.NativeEndian
	m, err := ReadMeta(f, MinPageSize)
	require.NoError(t, err)
	if other, err := ReadMeta(f, 0); err == nil && other.TxID > m.TxID {
		m = other
	}
	free, err := m.ReadFreeList(f)
	require.NoError(t, err)
	bits := 0
	for page := range uint64(m.Pages) {
		at := int(page) * MinPageSize
		if free.Has(page) || ne.Uint64(data[at:]) != page || ne.Uint16(data[at+8:]) != PageBranch {
			continue
		}
		count := int(ne.Uint16(data[at+10:]))
		last := at + PageHeaderSize + (count-1)*ElementSize
		for bit := range 8 * (last + int(ne.Uint32(data[last:])+ne.Uint32(data[last+4:])) - at) {
			bits++
			if bits%effort.Cases(61, 7) != 0 {
				continue
			}
			flip := func() error {
				data[at+bit/8] ^= 1 << (bit % 8)
				_, err := f.WriteAt(data[at+bit/8:][:1], int64(at+bit/8))
				return err
			}
			require.NoError(t, flip())
			require.Error(t, CheckNewest(t.Context(), f), "bit %d of byte %d of page %d", bit%8, bit/8, page)
			require.NoError(t, flip())
		}
	}
	require.NoError(t, CheckNewest(t.Context(), f))
	require.Greater(t, bits, 10_000)
}
