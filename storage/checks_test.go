package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// writeManyDocs writes an index of two chunks of n documents each, of 2 to 4 tokens.
func writeManyDocs(t testing.TB, n int) string {
	path := writeTestIndex(t)
	f, err := Open(context.Background(), path, Options{Write: true})
	require.NoError(t, err)
	require.NoError(t, f.Update(func(tx *Tx) error {
		g, s, err := currentState(tx)
		require.NoError(t, err)
		for range 2 {
			docs := make([]testDoc, n)
			for i := range docs {
				docs[i] = testDoc{fmt.Sprint("d", int(s.Docs)+i), []uint16{uint16(i % 3), uint16(i / 3 % 3)}, ""}
				for range i % 3 {
					docs[i].codes = append(docs[i].codes, uint16(i%2))
				}
			}
			if err := putDocs(g, s, docs); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, f.Close())
	return path
}

// rewrite changes a value of a chunk as a damaged disk would.
func rewrite(t testing.TB, path string, chunk uint32, key []byte, change func(value []byte)) {
	db, err := bolt.Open(path, 0o644, &bolt.Options{Timeout: time.Minute})
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(layout.GenerationName(1)).Bucket(layout.BucketChunks).Bucket(layout.NumberKey(chunk))
		value := bytes.Clone(b.Get(key))
		change(value)
		return b.Put(key, value)
	}))
	require.NoError(t, db.Close())
}

// A changed byte is found when its document is read, and by what checks the whole; other documents of the
// chunk can be read.
func TestDamagedDocument(t *testing.T) {
	const docs = 130
	rng := rand.New(rand.NewPCG(1, 2))
	for range effort.Cases(12, 120) {
		path := writeManyDocs(t, docs)
		damaged, chunk := rng.IntN(docs), 1+rng.IntN(2)
		key := [][]byte{layout.KeyCodes, layout.KeyFactors, layout.KeyResiduals}[rng.IntN(3)]
		width := map[string]int{"codes": 2, "factors": 2, "residuals": 1}[string(key)]
		f, v := openViewNow(t, path)
		_, offsets := v.ChunkDocs(chunk)
		lo, hi := offsets[damaged], offsets[damaged+1]
		require.NoError(t, errors.Join(v.Close(), f.Close()))
		rewrite(t, path, uint32(chunk), key, func(value []byte) {
			value[int(lo)*width+rng.IntN(int(hi-lo)*width)] ^= 1 << rng.IntN(8)
		})
		f, v = openView(t, path)
		for doc := range uint32(docs) {
			_, codes := v.ChunkFor(chunk, Codes, doc)
			_, all := v.ChunkFor(chunk, All, doc)
			if int(doc) != damaged {
				require.NoError(t, codes)
				require.NoError(t, all)
				continue
			}
			require.Equal(t, string(key) == "codes", codes != nil)
			require.ErrorIs(t, all, ErrCorrupt)
			require.ErrorContains(t, all, fmt.Sprintf("of document %d, in chunk %d", v.chunks[chunk].Table.First+doc, chunk))
		}
		_, err := v.ChunkFor(chunk, All, 0, uint32(damaged))
		require.ErrorIs(t, err, ErrCorrupt)
		_, err = v.Chunk(chunk, All)
		require.ErrorIs(t, err, ErrCorrupt)
		_, err = v.Chunk(3-chunk, All)
		require.NoError(t, err)
		// What is remembered is that of the file, also for snapshots that share nothing.
		again, err := f.Snapshot()
		require.NoError(t, err)
		require.Same(t, v.chunks[chunk].checked, again.chunks[chunk].checked)
		_, err = again.Chunk(chunk, All)
		require.ErrorIs(t, err, ErrCorrupt)
		require.NoError(t, again.Close())
		for _, check := range []func(context.Context) error{v.Verify, v.VerifyChecksums, func(ctx context.Context) error {
			_, _, err := v.Inspect(ctx)
			return err
		}} {
			require.ErrorIs(t, check(context.Background()), ErrCorrupt)
		}
	}
}

// The bytes of a document do not pass in the place of another one, of the same chunk or of another.
func TestDocumentInAnotherPlace(t *testing.T) {
	for name, to := range map[string][2]int{"same chunk": {1, 3}, "other chunk": {2, 3}} {
		path := writeManyDocs(t, 12)
		var arrays [3][]byte
		keys := [][]byte{layout.KeyCodes, layout.KeyFactors, layout.KeyResiduals}
		f, v := openViewNow(t, path)
		from, place := v.chunks[1], v.chunks[to[0]]
		require.Equal(t, from.Offsets[1], place.Offsets[to[1]+1]-place.Offsets[to[1]], "as long")
		at := int(place.Offsets[to[1]])
		for i, a := range [][]byte{from.Codes, from.Factors, from.Residuals} {
			arrays[i] = bytes.Clone(a)
		}
		n := int(from.Offsets[1])
		require.NoError(t, errors.Join(v.Close(), f.Close()))
		for i, width := range []int{2, 2, 1} {
			rewrite(t, path, uint32(to[0]), keys[i], func(value []byte) { copy(value[at*width:], arrays[i][:n*width]) })
		}
		_, v = openView(t, path)
		require.Equal(t, arrays[0][:2*n], v.chunks[to[0]].Codes[2*at:2*(at+n)])
		_, err := v.ChunkFor(to[0], Codes, uint32(to[1]))
		require.ErrorIs(t, err, ErrCorrupt, name)
		require.ErrorIs(t, v.VerifyChecksums(context.Background()), ErrCorrupt, name)
		_, err = v.ChunkFor(1, All, 0)
		require.NoError(t, err)
	}
	// Of equal bytes too the sums differ.
	sums := map[uint32]bool{}
	for chunk := range uint32(20) {
		for doc := range 20 {
			s := layout.NewDocChecksummer(chunk)
			sums[s.Codes(doc, []byte{1, 2})], sums[s.Rows(doc, nil, []byte{1, 2})] = true, true
		}
	}
	require.Len(t, sums, 2*20*20)
	want := layout.Checksum(slices.Concat(layout.NumberKey(7), []byte("residuals"), layout.NumberKey(9)), []byte("abcd"))
	require.Equal(t, want, layout.NewDocChecksummer(7).Rows(9, []byte("ab"), []byte("cd")), "as docs/formats.md says")
}

// What follows an array is read by kernels and by nothing else: it is damage that only a check of all finds.
func TestDamagedTail(t *testing.T) {
	for _, key := range [][]byte{layout.KeyCodes, layout.KeyFactors, layout.KeyResiduals} {
		path := writeManyDocs(t, 5)
		rewrite(t, path, 1, key, func(value []byte) { value[len(value)-7] ^= 4 })
		_, v := openView(t, path)
		_, err := v.Chunk(1, All)
		require.NoError(t, err)
		require.ErrorIs(t, v.Verify(context.Background()), ErrCorrupt)
		require.ErrorIs(t, v.VerifyChecksums(context.Background()), ErrCorrupt)
	}
}

// Codes are in range before a kernel sees them, also those with a checksum that is right.
func TestCodeOutOfRange(t *testing.T) {
	path := writeTestIndex(t)
	f := openWriting(t, path)
	require.NoError(t, f.Update(func(tx *Tx) error {
		g, s, err := currentState(tx)
		require.NoError(t, err)
		table := DocTable{First: s.Docs, Lengths: []uint32{1, 1}, IDs: []string{"in", "out"}}
		require.NoError(t, g.PutChunk(SealChunk(s.NextChunk, &table, []byte{2, 0, 3, 0}, make([]byte, 4), make([]byte, 2))))
		seg := Segment{ID: s.NextSegment, FirstDoc: s.Docs, Docs: 2, Tokens: 2, Chunks: []uint32{s.NextChunk}}
		s.Segments = append(s.Segments, seg)
		s.Docs, s.Live, s.Tokens, s.LiveTokens = s.Docs+2, s.Live+2, s.Tokens+2, s.LiveTokens+2
		s.NextChunk, s.NextSegment = s.NextChunk+1, s.NextSegment+1
		return g.PutState(*s)
	}))
	require.NoError(t, f.Close())
	_, v := openView(t, path)
	_, err := v.ChunkFor(1, Codes, 0)
	require.NoError(t, err)
	_, err = v.ChunkFor(1, Codes, 1)
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, "code 3 of 3 centroids")
}

// Any number of readers check at once; what has passed is not read again, and costs no memory.
func TestChecksAtOnce(t *testing.T) {
	const docs = 200
	_, v := openView(t, writeManyDocs(t, docs))
	var readers sync.WaitGroup
	for g := range uint64(8) {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(g, 1))
			for range 300 {
				some := []uint32{rng.Uint32N(docs), rng.Uint32N(docs), rng.Uint32N(docs)}
				if _, err := v.ChunkFor(1+rng.IntN(2), Arrays(rng.IntN(2)), some...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	readers.Wait()
	_, err := v.Chunk(1, All)
	require.NoError(t, err)
	c := v.chunks[1]
	for doc := range uint32(docs) {
		require.True(t, hasBit(c.checked.codesOrBlocks, doc) && hasBit(c.checked.rows, doc))
	}
	list := []uint32{1, 5, 77, 199}
	require.Zero(t, testing.AllocsPerRun(50, func() { _, _ = v.ChunkFor(1, All, list...) }))
	fresh := v.chunks[2]
	require.Zero(t, testing.AllocsPerRun(50, func() { _, _ = fresh.CheckCodes(3), fresh.CheckRows(3) }))
}

func BenchmarkChecked(b *testing.B) {
	_, v := openView(b, writeManyDocs(b, 700))
	list := make([]uint32, 0, 350)
	for doc := uint32(0); doc < 700; doc += 2 {
		list = append(list, doc)
	}
	for b.Loop() {
		if _, err := v.ChunkFor(1, Codes, list...); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(list)), "ns/doc")
}
