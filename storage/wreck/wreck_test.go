package wreck

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/internal/testing/countdown"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/internal/boltfile"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

var testIDs = []string{"alpha", "beta", "gamma"}

// writeTestIndex writes an index of three documents of one token each, with dimension 4,
// 2 bits and one centroid. All have their id as payload.
func writeTestIndex(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "test.plaid")
	f, err := storage.Open(context.Background(), path, storage.Options{Write: true, Create: true})
	require.NoError(t, err)
	require.NoError(t, f.Update(func(tx *storage.Tx) error {
		h := storage.Header{Dim: 4, Nbits: 2, Centroids: 1, CentroidType: "f32", Step: 0.25, FactorMax: 1.5, Build: storage.Build{Source: "vectors"}}
		n, err := tx.NewGeneration(h, &kernels.Codec{
			Centroids: kernels.Centroids{K: 1, Dim: 4, Type: kernels.F32, Data: make([]byte, 16)},
			Codebook:  kernels.Codebook{Nbits: 2, Step: 0.25}, FactorMax: 1.5,
		}, nil)
		require.NoError(t, err)
		g, err := tx.Generation(n)
		require.NoError(t, err)
		docs := uint32(len(testIDs))
		payload := roaring.New()
		for i, id := range testIDs {
			require.NoError(t, g.PutID(id, uint32(i)))
			require.NoError(t, g.PutPayload(uint32(i), []byte(id)))
			payload.Add(uint32(i))
		}
		table := storage.DocTable{IDs: testIDs, Lengths: []uint32{1, 1, 1}}
		require.NoError(t, g.PutChunk(storage.SealChunk(0, &table, make([]byte, 2*docs), make([]byte, 2*docs), []byte{1, 2, 3})))
		block, err := storage.AppendPostings(nil, [][]uint32{{0, 1, 2}})
		require.NoError(t, err)
		require.NoError(t, g.PutPostings(0, 0, block))
		state := storage.State{Docs: docs, Live: docs, Tokens: 3, LiveTokens: 3, NextChunk: 1, NextSegment: 1,
			Segments: []storage.Segment{{Docs: docs, Tokens: 3, Chunks: []uint32{0}, Blocks: 1}}}
		require.NoError(t, g.PutDocSets(&state, storage.DocSets{Deleted: roaring.New(), Payload: payload, Passages: roaring.New()}))
		require.NoError(t, g.PutState(state))
		return tx.MakeCurrent(n)
	}))
	require.NoError(t, f.Close())
	return path
}

// What a sound file has is found without a fault.
func TestReadsWhatIsThere(t *testing.T) {
	w, err := Open(context.Background(), writeTestIndex(t), 0)
	require.NoError(t, err)
	require.Equal(t, uint32(3), w.Docs())
	require.Equal(t, 1, w.Chunks())
	chunk, err := w.Chunk(0)
	require.NoError(t, err)
	require.Equal(t, testIDs, chunk.Table.IDs)
	require.Equal(t, []byte{1, 2, 3}, chunk.Arrays.Residuals)
	require.Empty(t, chunk.Damaged)
	for i, id := range testIDs {
		require.Equal(t, Alive, w.Liveness(uint32(i)))
		payload, err := w.Payload(uint32(i))
		require.NoError(t, err)
		require.Equal(t, id, string(payload))
	}
	require.Empty(t, w.Faults())
	require.NoError(t, w.Close())
}

// Wherever the context ends, nothing is said of what was not read.
func TestContextEndsReading(t *testing.T) {
	path := writeTestIndex(t)
	for looks := 0; ; looks++ {
		w, err := Open(countdown.New(looks), path, 0)
		if err != nil {
			require.ErrorIs(t, err, context.Canceled, "%d looks", looks)
			require.Nil(t, w)
			continue
		}
		require.Greater(t, looks, 20, "there are so many values")
		_, err = w.Payload(0) // no look is left
		require.ErrorIs(t, err, context.Canceled)
		_, err = w.Chunk(0)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, w.Close())
		return
	}
}

func TestNumberOfChecksum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Uint32().Draw(t, "number")
		key := rapid.SampledFrom(chunkKeys[:]).Draw(t, "key")
		value := rapid.SliceOf(rapid.Byte()).Draw(t, "value")
		require.Equal(t, number, numberFromChecksum(key, value, layout.Checksum(layout.ChecksumKey(number, key), value)))
	})
}

// The counts of a leaf page follow from where its keys are.
func TestCountByLayout(t *testing.T) {
	path := writeTestIndex(t)
	w, err := Open(context.Background(), path, 0)
	require.NoError(t, err)
	require.Empty(t, w.Faults())
	require.Equal(t, 1, w.Chunks())
	for _, l := range append(w.current.ids, w.current.payload...) {
		elements, err := w.readElements(l)
		require.NoError(t, err)
		page := make([]byte, l.end-l.offset)
		_, _ = w.file.ReadAt(page, l.offset)
		n := int64(len(elements))
		for _, wrong := range []int64{0, n - 1, n + 1, n + 256} {
			if n > 1 {
				require.Equal(t, n, countByLayout(page, wrong))
			}
		}
	}
	require.NoError(t, w.Close())
}

// What a meta page says of the size of the file is not believed.
func TestMoreClaimedThanIsThere(t *testing.T) {
	path := writeTestIndex(t)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	first, err := boltfile.ReadMeta(bytes.NewReader(b), 0)
	require.NoError(t, err)
	for page := range int64(2) {
		m := b[page*first.PageSize+boltfile.MetaOffset:]
		binary.NativeEndian.PutUint64(m[40:], 1<<50)
		sum := fnv.New64a()
		sum.Write(m[:56])
		binary.NativeEndian.PutUint64(m[56:], sum.Sum64())
	}
	require.NoError(t, os.WriteFile(path, b, 0o600))
	w, err := Open(context.Background(), path, 0)
	require.NoError(t, err)
	require.Contains(t, strings.Join(w.Faults(), "\n"), "cut short")
	payload, err := w.Payload(1)
	require.NoError(t, err)
	require.Equal(t, "beta", string(payload))
	require.NoError(t, w.Close())
}
