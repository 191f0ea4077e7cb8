package interop

import (
	"context"
	"encoding/json"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
)

func TestMain(m *testing.M) {
	effort.Rapid(15, 100)
	os.Exit(m.Run())
}

// TestRoundTrip: what is written reads back the same, for any shape.
func TestRoundTrip(t *testing.T) {
	root := testenv.RAMDir(t)
	rapid.Check(t, func(t *rapid.T) {
		nbits := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "nbits")
		dim := 8 * rapid.IntRange(1, 5).Draw(t, "dim/8")
		k := rapid.IntRange(1, 40).Draw(t, "k")
		value := rapid.Float32Range(-1, 1)
		h := Header{
			Dim: dim, Nbits: nbits,
			Centroids: rapid.SliceOfN(value, k*dim, k*dim).Draw(t, "centroids"),
			Cutoffs:   make([]float32, 1<<nbits-1),
			Weights:   rapid.SliceOfN(value, 1<<nbits, 1<<nbits).Draw(t, "weights"),
			DocLens:   rapid.SliceOfN(rapid.Int32Range(0, 6), 0, 30).Draw(t, "lens"),
		}
		for i := range h.Cutoffs {
			h.Cutoffs[i] = float32(i)
		}
		var want collected
		for _, n := range h.DocLens {
			for range n {
				want.codes = append(want.codes, uint32(rapid.IntRange(0, k-1).Draw(t, "code")))
			}
		}
		tokens := len(want.codes)
		want.residuals = rapid.SliceOfN(rapid.Byte(), tokens*dim*nbits/8, tokens*dim*nbits/8).Draw(t, "residuals")

		dir, err := os.MkdirTemp(root, "x")
		require.NoError(t, err)
		w, err := Create(dir, h)
		require.NoError(t, err)
		defer w.Close()
		for at := 0; at < tokens; {
			n := rapid.IntRange(0, tokens-at).Draw(t, "block")
			require.NoError(t, w.WriteBlock(want.codes[at:at+n], want.residuals[at*w.stats.rowBytes:(at+n)*w.stats.rowBytes]))
			at += n
		}
		require.NoError(t, w.Commit(context.Background()))

		x, err := Open(dir)
		require.NoError(t, err)
		require.Equal(t, EngineNextPlaid, x.Engine)
		require.Equal(t, h.Centroids, x.Centroids)
		require.Equal(t, h.Cutoffs, x.Cutoffs)
		require.Equal(t, h.Weights, x.Weights)
		require.Equal(t, len(h.DocLens), len(x.DocLens))
		for i := range h.DocLens {
			require.Equal(t, h.DocLens[i], x.DocLens[i])
		}
		got := collect(t, x, rapid.IntRange(1, 50).Draw(t, "read"))
		require.Equal(t, want.codes, got.codes)
		if tokens > 0 {
			require.Equal(t, want.residuals, got.residuals)
		}
		differences, err := x.VerifyIVF(context.Background())
		require.NoError(t, err)
		require.Empty(t, differences)
	})
	entries, err := filepath.Glob(filepath.Join(root, "*.plaid-partial-*"))
	require.NoError(t, err)
	require.Empty(t, entries, "temporary folders left behind")
}

// header is that of the fixture, with its documents.
func header() Header {
	f := newFixture()
	return Header{Dim: 8, Nbits: 2, Centroids: f.centroids, Cutoffs: f.cutoffs, Weights: f.weights, DocLens: []int32{2, 0, 1, 3, 1}}
}

// TestWrittenFiles compares the files with those made by hand.
func TestWrittenFiles(t *testing.T) {
	f := newFixture()
	dir := filepath.Join(t.TempDir(), "index")
	h := header()
	w, err := Create(dir, h)
	require.NoError(t, err)
	want := f.want()
	require.NoError(t, w.WriteBlock(want.codes, want.residuals))
	require.NoDirExists(t, dir, "nothing may show before Commit")
	require.NoError(t, w.Commit(context.Background()))
	require.NoError(t, w.Close())
	require.ErrorIs(t, w.Commit(context.Background()), ErrClosed)
	require.ErrorIs(t, w.WriteBlock(nil, nil), ErrClosed)

	f.lens = [][]int32{h.DocLens}
	f.codes = [][]int64{{0, 1, 0, 3, 3, 0, 1}}
	repack(want.residuals)
	f.residuals = [][]byte{want.residuals}
	expect := f.nextPlaid()
	expect["avg_residual.npy"] = npy("<f4", "(8,)", 64, 0, raw("<f4", w.stats.meanAbsWeights()))
	expect["cluster_threshold.npy"] = npy("<f4", "(1,)", 64, 0, raw("<f4", []float32{w.stats.normQuantile(.75)}))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, len(expect)+1, "one more than the fixture: plan.json")
	for name, data := range expect {
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		if filepath.Ext(name) == ".npy" {
			require.Equal(t, data, got, name)
		}
	}
	var meta map[string]any
	text, err := os.ReadFile(filepath.Join(dir, "metadata.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &meta))
	require.Equal(t, map[string]any{
		"num_chunks": 1., "nbits": 2., "num_partitions": 4., "num_embeddings": 7., "num_documents": 5.,
		"avg_doclen": 1.4, "embedding_dim": 8., "compress_only": false, "next_plaid_compatible": true,
	}, meta)
	text, err = os.ReadFile(filepath.Join(dir, "0.metadata.json"))
	require.NoError(t, err)
	require.JSONEq(t, `{"num_documents": 5, "num_embeddings": 7, "embedding_offset": 0}`, string(text))
	text, err = os.ReadFile(filepath.Join(dir, "plan.json"))
	require.NoError(t, err)
	require.JSONEq(t, `{"nbits": 2, "num_chunks": 1}`, string(text))
}

// TestWriteChunks spans chunks, the second of which starts inside a block and
// the third of which is empty of tokens.
func TestWriteChunks(t *testing.T) {
	h := header()
	h.DocLens = make([]int32, 2*chunkDocs+1)
	for i := range 2 * chunkDocs {
		h.DocLens[i] = int32(i % 2)
	}
	codes := make([]uint32, chunkDocs)
	residuals := make([]byte, 2*len(codes))
	for i := range codes {
		codes[i] = uint32(i / 10000)
		residuals[2*i] = byte(i)
	}
	dir := filepath.Join(t.TempDir(), "index")
	w, err := Create(dir, h)
	require.NoError(t, err)
	require.NoError(t, w.WriteBlock(codes, residuals))
	require.NoError(t, w.Commit(context.Background()))
	x := reopen(t, dir)
	require.Len(t, x.files.chunks, 3)
	require.Equal(t, []int{12500, 12500, 0}, []int{x.files.chunks[0].rows, x.files.chunks[1].rows, x.files.chunks[2].rows})
	require.Equal(t, collected{codes, residuals}, collect(t, x, 9999))
	differences, err := x.VerifyIVF(context.Background())
	require.NoError(t, err)
	require.Empty(t, differences)
	text, err := os.ReadFile(filepath.Join(dir, "2.metadata.json"))
	require.NoError(t, err)
	require.JSONEq(t, `{"num_documents": 1, "num_embeddings": 0, "embedding_offset": 25000}`, string(text))
}

func TestCreateRefuses(t *testing.T) {
	root := t.TempDir()
	for name, c := range map[string]struct {
		edit    func(*Header)
		message string
	}{
		"bits":           {func(h *Header) { h.Nbits = 3 }, "3 bits"},
		"dimensions":     {func(h *Header) { h.Dim = 12 }, "multiple of 8"},
		"no dimensions":  {func(h *Header) { h.Dim = 0 }, "multiple of 8"},
		"no centroids":   {func(h *Header) { h.Centroids = nil }, "0 centroid values"},
		"part centroid":  {func(h *Header) { h.Centroids = h.Centroids[:9] }, "9 centroid values"},
		"weights":        {func(h *Header) { h.Weights = h.Weights[:3] }, "3 bucket weights"},
		"cutoffs":        {func(h *Header) { h.Cutoffs = []float32{0, 1, .5} }, "bucket cutoff 2"},
		"NaN":            {func(h *Header) { h.Centroids[9] = float32(math.NaN()) }, "centroid 1, dimension 1"},
		"length":         {func(h *Header) { h.DocLens[1] = -1 }, "document 1 has length -1"},
		"infinite level": {func(h *Header) { h.Weights[0] = float32(math.Inf(-1)) }, "bucket weight 0"},
	} {
		h := header()
		c.edit(&h)
		_, err := Create(filepath.Join(root, "x"), h)
		require.ErrorContains(t, err, c.message, name)
	}
	full := filepath.Join(root, "full")
	require.NoError(t, os.Mkdir(full, 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(full, "kept"), []byte("x"), 0o666))
	_, err := Create(full, header())
	require.ErrorIs(t, err, fs.ErrExist)
	_, err = Create(filepath.Join(full, "kept"), header())
	require.ErrorIs(t, err, fs.ErrExist)
	_, err = Create(filepath.Join(root, "no", "parent"), header())
	require.ErrorIs(t, err, fs.ErrNotExist)
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// TestWriteFails: a writer that went wrong leaves nothing behind.
func TestWriteFails(t *testing.T) {
	want := newFixture().want()
	for name, c := range map[string]struct {
		run     func(w *Writer) error
		message string
	}{
		"code":      {func(w *Writer) error { return w.WriteBlock([]uint32{0, 4}, make([]byte, 4)) }, "token 1 of the block has code 4"},
		"residuals": {func(w *Writer) error { return w.WriteBlock([]uint32{0}, make([]byte, 3)) }, "3 residual bytes"},
		"too many": {func(w *Writer) error {
			return w.WriteBlock(append(want.codes, 0, 0), append(want.residuals, 0, 0, 0, 0))
		}, "2 tokens too many"},
		"too few": {func(w *Writer) error { return w.Commit(context.Background()) }, "0 tokens written, the document lengths add to 7"},
		"cancelled": {func(w *Writer) error {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			require.NoError(t, w.WriteBlock(want.codes, want.residuals))
			return w.Commit(ctx)
		}, "canceled"},
		"target taken": {func(w *Writer) error {
			require.NoError(t, w.WriteBlock(want.codes, want.residuals))
			require.NoError(t, os.MkdirAll(filepath.Join(w.target, "sub"), 0o777))
			return w.Commit(context.Background())
		}, "not empty"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			w, err := Create(filepath.Join(root, "index"), header())
			require.NoError(t, err)
			err = c.run(w)
			require.ErrorContains(t, err, c.message)
			require.Equal(t, err, w.WriteBlock(nil, nil), "a failed writer stays failed")
			require.NoError(t, w.Close())
			require.NoError(t, w.Close())
			entries, err := filepath.Glob(filepath.Join(root, "*.plaid-partial-*"))
			require.NoError(t, err)
			require.Empty(t, entries)
			require.NoFileExists(t, filepath.Join(root, "index", "metadata.json"))
		})
	}
}

// TestEstimates compares the estimated statistics with the definition.
func TestEstimates(t *testing.T) {
	for _, nbits := range []int{1, 2, 4, 8} {
		h := Header{Dim: 16, Nbits: nbits, Weights: make([]float32, 1<<nbits)}
		for i := range h.Weights {
			h.Weights[i] = float32(i)/float32(len(h.Weights)) - .4
		}
		s := newResidualStats(&h)
		const rows = 1000
		data := make([]byte, rows*s.rowBytes)
		for i := range data {
			data[i] = byte(i * i >> 3)
		}
		s.add(data)
		average := make([]float64, h.Dim)
		var norms []float64
		for r := range rows {
			var sum float64
			for d := range h.Dim {
				bit := d * nbits
				w := float64(h.Weights[data[r*s.rowBytes+bit/8]>>(bit%8)&(1<<nbits-1)])
				average[d] += math.Abs(w) / rows
				sum += w * w
			}
			norms = append(norms, math.Sqrt(sum))
		}
		for d, v := range s.meanAbsWeights() {
			require.InDelta(t, average[d], v, 1e-5)
		}
		got, below := float64(s.normQuantile(.75)), 0
		for _, n := range norms {
			if n <= got {
				below++
			}
		}
		require.GreaterOrEqual(t, below, 750)
		below = 0
		for _, n := range norms {
			if n <= got-2*s.maxNorm/normBins {
				below++
			}
		}
		require.LessOrEqual(t, below, 750)
	}
	empty := newResidualStats(&Header{Dim: 8, Nbits: 1, Weights: []float32{0, 0}})
	require.Zero(t, empty.normQuantile(.75))
	require.Equal(t, make([]float32, 8), empty.meanAbsWeights())
}
