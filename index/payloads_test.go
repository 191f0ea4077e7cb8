package index

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/vectors"
)

// pagesWritten is how many bytes of pages differ between two states of a file.
func pagesWritten(before, after []byte) (written int) {
	page := os.Getpagesize()
	for at := 0; at < len(after); at += page {
		end := min(at+page, len(after))
		if end > len(before) || !bytes.Equal(before[at:end], after[at:end]) {
			written += end - at
		}
	}
	return written
}

func TestFirstPayloadsWriteNoChunks(t *testing.T) {
	effort.SkipBrief(t, "one goroutine, many tokens")
	ctx := context.Background()
	const dim, tokens = 128, 100
	docs := effort.Cases(100, 1500)
	chunk := chunkBytes
	t.Cleanup(func() { chunkBytes = chunk })
	chunkBytes = effort.Cases(1<<20, chunk) // two of them at least: at 8 bits a component is a byte
	path := filepath.Join(testenv.RAMDir(t), "large.plaid")
	rng := rand.New(rand.NewPCG(1, 1))
	src := &fakeSource{dim: dim, docs: make([]vectors.Document, docs)}
	for i := range src.docs {
		src.docs[i] = vectors.Document{ID: fmt.Sprint(i), Tokens: make([]float32, tokens*dim)}
		for j := range src.docs[i].Tokens {
			src.docs[i].Tokens[j] = rng.Float32() - 0.5
		}
	}
	_, err := Build(ctx, path, src, &BuildOptions{Nbits: 8, Centroids: 4, SampleDocs: 10, Iterations: 1})
	require.NoError(t, err)
	ix := writing(t, path)
	step := func(payload []byte, every int) int {
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Greater(t, len(before), docs*tokens*dim)
		payloads := map[string][]byte{}
		for i := range 8 {
			payloads[fmt.Sprint(every*i)] = payload
		}
		n, _, err := ix.SetPayload(ctx, payloads)
		require.NoError(t, err)
		require.Equal(t, Affected{Documents: 8}, n)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		return pagesWritten(before, after)
	}
	first := step([]byte(`{"title":"first"}`), docs/8) // in all of its chunks
	gone := step(nil, docs/8)
	t.Logf("eight first payloads: %d bytes of pages, eight that go: %d", first, gone)
	require.Less(t, first, 200<<10)
	require.Less(t, gone, 200<<10)
	require.NoError(t, ix.Verify(ctx))
}

// firstPayloads gives each document of an index, of one token each, its first payload,
// or takes it away.
func firstPayloads(tb testing.TB, ix *Index, docs int, payload []byte) {
	payloads := make(map[string][]byte, docs)
	for i := range docs {
		payloads[fmt.Sprint(i)] = payload
	}
	n, _, err := ix.SetPayload(context.Background(), payloads)
	require.NoError(tb, err)
	require.Equal(tb, Affected{Documents: docs}, n)
}

func oneTokenDocuments(tb testing.TB, dir string, docs int) *Index {
	src := &fakeSource{dim: 4, docs: make([]vectors.Document, docs)}
	for i := range src.docs {
		src.docs[i] = vectors.Document{ID: fmt.Sprint(i), Tokens: []float32{1, float32(i % 7), 0, 1}}
	}
	path := filepath.Join(dir, fmt.Sprintf("%d.plaid", docs))
	_, err := Build(context.Background(), path, src, &BuildOptions{Nbits: 1, Centroids: 2, SampleDocs: 10, Iterations: 1, Force: true})
	require.NoError(tb, err)
	ix, err := Open(context.Background(), path, &Options{Write: true})
	require.NoError(tb, err)
	return ix
}

// Of the documents of one chunk; the work is counted by the bytes of memory that it
// takes. It was quadratic once, by a copy of the chunk's table a document.
func TestFirstPayloadsTakeLinearWork(t *testing.T) {
	dir := testenv.RAMDir(t)
	work := func(docs int) (came, went uint64) {

		ix := oneTokenDocuments(t, dir, docs)
		defer ix.Close()
		var m [3]runtime.MemStats
		runtime.ReadMemStats(&m[0])
		firstPayloads(t, ix, docs, []byte(`{"a":1}`))
		runtime.ReadMemStats(&m[1])
		firstPayloads(t, ix, docs, nil)
		runtime.ReadMemStats(&m[2])
		return m[1].TotalAlloc - m[0].TotalAlloc, m[2].TotalAlloc - m[1].TotalAlloc
	}
	few, fewGone := work(1000)
	many, manyGone := work(16000)
	t.Logf("bytes for 1,000 documents %d and %d, for 16,000 %d and %d", few, fewGone, many, manyGone)
	require.Less(t, many, 32*few)
	require.Less(t, manyGone, 32*fewGone)
}
