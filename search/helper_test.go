package search

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// maker draws clustered documents and queries.
type maker struct {
	rng    *rand.Rand
	dim    int
	topics [][]float32
}

func newMaker(seed uint64, dim, topics int) *maker {
	m := &maker{rng: rand.New(rand.NewPCG(seed, uint64(dim))), dim: dim}
	for range topics {
		m.topics = append(m.topics, m.vector(nil, 1))
	}
	return m
}

// vector returns a unit vector near center, at random without one.
func (m *maker) vector(center []float32, noise float64) []float32 {
	v := make([]float32, m.dim)
	var sum float64
	for j := range v {
		x := noise * m.rng.NormFloat64() / math.Sqrt(float64(m.dim))
		if center != nil {
			x += float64(center[j])
		}
		v[j] = float32(x)
		sum += x * x
	}
	for j := range v {
		v[j] /= float32(math.Sqrt(sum))
	}
	return v
}

// tokens returns n vectors around a few topics.
func (m *maker) tokens(n int) []float32 {
	var out []float32
	a, b := m.rng.IntN(len(m.topics)), m.rng.IntN(len(m.topics))
	for range n {
		topic := a
		switch m.rng.IntN(4) {
		case 0:
			topic = b
		case 1:
			topic = m.rng.IntN(len(m.topics))
		}
		out = append(out, m.vector(m.topics[topic], 0.6)...)
	}
	return out
}

// docs returns n documents named prefix0 on: some empty, some of one token,
// some copies of the one before.
func (m *maker) docs(prefix string, n, tokens int) []vectors.Document {
	docs := make([]vectors.Document, n)
	for i := range docs {
		d := &docs[i]
		d.ID = fmt.Sprintf("%s%d", prefix, i)
		switch {
		case i%17 == 5:
		case i%13 == 3:
			d.Tokens = m.tokens(1)
		case i%11 == 7:
			d.Tokens = docs[i-1].Tokens
		default:
			d.Tokens = m.tokens(1 + m.rng.IntN(2*tokens))
		}
		d.Payload = []byte(`{"n":` + fmt.Sprint(i) + `}`)
	}
	return docs
}

func (m *maker) query(tokens int) Query { return Query{Vectors: m.tokens(tokens)} }

func source(t testing.TB, dim int, docs []vectors.Document) vectors.Source {
	t.Helper()
	src, err := vectors.FromDocuments(dim, docs)
	require.NoError(t, err)
	return src
}

// build makes an index that is open for changes.
func build(t testing.TB, dim int, docs []vectors.Document, o *index.BuildOptions) *index.Index {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.plaid")
	_, err := index.Build(context.Background(), path, source(t, dim, docs), o)
	require.NoError(t, err)
	return open(t, path)
}

func open(t testing.TB, path string) *index.Index {
	t.Helper()
	ix, err := index.Open(path, &index.Options{Write: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ix.Close()) })
	return ix
}

func snapshot(t testing.TB, ix *index.Index) *index.Snapshot {
	t.Helper()
	snap, err := ix.Snapshot()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, snap.Close()) })
	return snap
}

func search(t testing.TB, e *Engine, q Query, o Options) *Result {
	t.Helper()
	res, err := e.Search(context.Background(), q, o)
	require.NoError(t, err)
	return res
}

func ids(hits []Hit) []string {
	out := make([]string, len(hits))
	for i, h := range hits {
		out[i] = h.ID
	}
	return out
}

// oracle has the decoded vectors of the live documents that are not empty.
type oracle struct {
	dim     int
	unit    bool // queries are scaled to unit length
	ids     map[uint32]string
	decoded map[uint32][][]float64
}

func newOracle(t testing.TB, snap *index.Snapshot) *oracle {
	t.Helper()
	o := &oracle{dim: snap.Dim(), unit: snap.Header().Normalize, ids: map[uint32]string{}, decoded: map[uint32][][]float64{}}
	for i := range snap.Chunks() {
		ch, err := snap.Chunk(i, storage.All)
		require.NoError(t, err)
		first, offsets := snap.ChunkDocs(i)
		for d := range ch.Docs() {
			ordinal := first + uint32(d)
			if !snap.Live(ordinal) || offsets[d] == offsets[d+1] {
				continue
			}
			o.ids[ordinal] = snap.ID(ordinal)
			for token := offsets[d]; token < offsets[d+1]; token++ {
				o.decoded[ordinal] = append(o.decoded[ordinal], kernels.OracleDecode(snap.Codec(), ch, int(token)))
			}
		}
	}
	return o
}

// score is MaxSim by its definition.
func (o *oracle) score(q Query, ordinal uint32) float64 {
	var score float64
	vectors := slices.Clone(q.Vectors)
	if o.unit {
		codec.Normalize(vectors, o.dim)
	}
	for s := range len(q.Vectors) / o.dim {
		if q.Mask != nil && !q.Mask[s] {
			continue
		}
		row, largest := vectors[s*o.dim:(s+1)*o.dim], math.Inf(-1)
		for _, v := range o.decoded[ordinal] {
			var p float64
			for j, x := range v {
				p += float64(row[j]) * x
			}
			largest = max(largest, p)
		}
		weight := 1.0
		if q.Weights != nil {
			weight = float64(q.Weights[s])
		}
		score += weight * largest
	}
	return score
}

type truth struct {
	ordinal uint32
	score   float64
}

// rank orders the allowed documents (nil: all) as a search must.
func (o *oracle) rank(q Query, allowed map[string]bool) []truth {
	var out []truth
	for ordinal, id := range o.ids {
		if allowed == nil || allowed[id] {
			out = append(out, truth{ordinal, o.score(q, ordinal)})
		}
	}
	slices.SortFunc(out, func(a, b truth) int {
		if a.score != b.score {
			if a.score > b.score {
				return -1
			}
			return 1
		}
		return int(a.ordinal) - int(b.ordinal)
	})
	return out
}

func tolerance(q Query, dim int) float64 {
	n := float64(len(q.Vectors) / dim)
	if q.Weights == nil {
		return 1e-4 * n
	}
	var sum float64
	for _, w := range q.Weights {
		sum += math.Abs(float64(w))
	}
	return 1e-4 * max(sum, 1e-3)
}

// check demands that hits are the k best of the allowed documents: all of them
// if there are fewer, scores within 1e-4 a query token, and order and choice
// such as scores that differ by more than that leave no doubt about.
func (o *oracle) check(t testing.TB, q Query, hits []Hit, k int, allowed map[string]bool) {
	t.Helper()
	want, tol := o.rank(q, allowed), tolerance(q, o.dim)
	require.Equal(t, min(k, len(want)), len(hits), "number of hits")
	by := make(map[uint32]float64, len(want))
	for _, w := range want {
		by[w.ordinal] = w.score
	}
	seen := map[uint32]bool{}
	for i, h := range hits {
		score, ok := by[h.Ordinal]
		require.True(t, ok, "hit %d, document %q, is not among those allowed", i, h.ID)
		require.False(t, seen[h.Ordinal], "document %q twice", h.ID)
		seen[h.Ordinal] = true
		require.Equal(t, o.ids[h.Ordinal], h.ID)
		require.InDelta(t, score, h.Score, tol, "score of document %q", h.ID)
		// The place i belongs to a document of that score, within the tolerance.
		require.InDelta(t, want[i].score, score, tol, "document %q in place %d", h.ID, i)
		if i > 0 {
			before := hits[i-1]
			require.True(t, before.Score > h.Score || before.Score == h.Score && before.Ordinal < h.Ordinal,
				"hits %d and %d are out of order: %+v, %+v", i-1, i, before, h)
		}
	}
}

// wide opens every budget.
var wide = Options{K: 20, Probes: math.MaxInt, Approx: math.MaxInt, Exact: math.MaxInt}

func with(o Options, change func(*Options)) Options {
	change(&o)
	return o
}
