package index_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/storage"
)

// Of a chunk, those documents are lost whose own bytes are damaged, and no others.
func TestSalvageLosesDocuments(t *testing.T) {
	s := newSalvager(t, 60)
	ix, err := index.Open(t.Context(), s.sp.path, nil)
	require.NoError(t, err)
	snap, err := ix.Snapshot()
	require.NoError(t, err)
	type place struct {
		ordinal uint32
		rows    []byte
	}
	var places []place
	for chunk := range snap.Chunks() {
		ch, err := snap.Chunk(chunk, storage.All)
		require.NoError(t, err)
		first, offsets := snap.ChunkDocs(chunk)
		n := snap.Codec().RowBytes()
		for doc := range len(offsets) - 1 {
			ordinal, rows := first+uint32(doc), ch.Residuals[n*int(offsets[doc]):n*int(offsets[doc+1])]
			if len(rows) > 16 && snap.Live(ordinal) {
				places = append(places, place{ordinal, bytes.Clone(rows)})
			}
		}
	}
	require.NoError(t, snap.Close())
	require.NoError(t, ix.Close())
	step := max(len(places)/effort.Cases(6, 60), 1)
	for i := 0; i+1 < len(places); i += step {
		data := slices.Clone(s.sp.data)
		for _, p := range places[i : i+2] {
			at := bytes.Index(data, p.rows)
			require.Positive(t, at)
			require.Equal(t, at, bytes.LastIndex(data, p.rows), "there once")
			data[at+len(p.rows)/2] ^= 0x10
		}
		r := s.try(t, data, "two documents")
		require.NotNil(t, r)
		require.EqualValues(t, 2, r.LostDocs, "%+v", r.Lost)
		require.LessOrEqual(t, len(r.Faults), 2, "a fault a chunk: %q", r.Faults)
		for _, l := range r.Lost {
			require.Contains(t, l.Why, "factors and residuals: checksum mismatch")
		}
	}
}
