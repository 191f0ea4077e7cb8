package boltfile

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
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
