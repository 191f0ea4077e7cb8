package search

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// maker draws clustered documents and queries.
type maker struct{ *searchtest.Maker }

func newMaker(seed uint64, dim, topics int) maker { return maker{searchtest.New(seed, dim, topics)} }

func (m maker) query(tokens int) Query { return Query{Vectors: m.Tokens(tokens)} }

// on returns an engine of so many threads, which has as many workers.
func on(t testing.TB, ix *index.Index, threads int) *Engine {
	t.Helper()
	e, err := New(context.Background(), ix, &EngineOptions{Threads: threads, Scheduler: NewScheduler(threads, 0)})
	return untilEnd(t, e, err)
}

func at(t testing.TB, snap *index.Snapshot, threads int) *Engine {
	t.Helper()
	e, err := NewAt(context.Background(), snap, &EngineOptions{Threads: threads, Scheduler: NewScheduler(threads, 0)})
	return untilEnd(t, e, err)
}

// onDeviceOf returns an engine that searches on a device.
func onDeviceOf(t testing.TB, ix *index.Index, d kernels.Device) *Engine {
	t.Helper()
	e, err := New(context.Background(), ix, &EngineOptions{Threads: 2, Device: d})
	return untilEnd(t, e, err)
}

func untilEnd[S Searcher](t testing.TB, s S, err error) S {
	t.Helper()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
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
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.ordinal, b.ordinal))
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

// testRun is a run of nobody's, to call its stages.
func testRun(snap *index.Snapshot, threads int) *run {
	s, c := NewScheduler(threads, 0), newCollection(snap)
	return &run{
		ctx: context.Background(), group: c.groupFrom(0), scorer: snap.Scorer(), query: snap.Scorer().NewQuery(), threads: threads,
		call: &call{coll: c, slots: callSlots{scheduler: s, lifetime: context.Background()}},
	}
}

// sharded builds documents as n indexes with the codec of another one: by the order of
// documents, or by the hashes of their ids.
func sharded(t testing.TB, of *index.Index, docs []vectors.Document, n int, byHash bool) *index.Shards {
	t.Helper()
	parts := make([][]vectors.Document, n)
	for i, d := range docs {
		p := i * n / len(docs)
		if byHash {
			p = index.HashShard(d.ID, n)
		}
		parts[p] = append(parts[p], d)
	}
	snap := searchtest.Snapshot(t, of)
	var paths []string
	dir := testenv.RAMDir(t)
	for i, part := range parts {
		path := filepath.Join(dir, fmt.Sprintf("part%d.plaid", i))
		_, err := index.Build(context.Background(), path, searchtest.Source(t, snap.Dim(), part), &index.BuildOptions{Codec: snap.Quantizer()})
		require.NoError(t, err)
		paths = append(paths, path)
	}
	return openSet(t, paths)
}

func openSet(t testing.TB, paths []string) *index.Shards {
	t.Helper()
	set, err := index.OpenShards(context.Background(), paths, &index.Options{Write: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Close()) })
	return set
}

func multi(t testing.TB, set *index.Shards, threads int) *Multi {
	t.Helper()
	m, err := NewMulti(context.Background(), set, &MultiOptions{Threads: threads, Scheduler: NewScheduler(threads, 0)})
	return untilEnd(t, m, err)
}

// named leaves what two searchers of the same documents have in common: ids and the
// bits of scores.
func named(hits []Hit) []string {
	out := make([]string, len(hits))
	for i, h := range hits {
		out[i] = fmt.Sprintf("%s %08x %s", h.ID, math.Float32bits(h.Score), h.Payload)
	}
	return out
}

// inOrder makes sure that hits are by score, part and ordinal.
func inOrder(t testing.TB, hits []Hit) {
	t.Helper()
	require.True(t, slices.IsSortedFunc(hits, func(a, b Hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Ordinal, b.Ordinal))
	}), "%v", hits)
}

func scoresOf(hits []Hit) []float32 {
	out := make([]float32, len(hits))
	for i, h := range hits {
		out[i] = h.Score
	}
	return out
}

// sumParts makes sure that the figures of parts add up.
func sumParts(t testing.TB, n int, r *Result) {
	t.Helper()
	if n == 1 {
		require.Empty(t, r.Stats.Shards)
		return
	}
	require.Len(t, r.Stats.Shards, n)
	var sum ShardStats
	for i, p := range r.Stats.Shards {
		require.Equal(t, i, p.Shard)
		sum.Allowed += p.Allowed
		sum.Hits += p.Hits
		sum.ExactDocs += p.ExactDocs
	}
	require.Equal(t, []int64{r.Stats.Allowed, int64(len(r.Hits)), r.Stats.ExactDocs}, []int64{sum.Allowed, sum.Hits, sum.ExactDocs})
}

func overlap(a, b []Hit) int {
	n := 0
	for _, h := range a {
		if slices.Contains(ids(b), h.ID) {
			n++
		}
	}
	return n
}

func nonEmpty(docs []vectors.Document, id string) bool {
	return slices.ContainsFunc(docs, func(d vectors.Document) bool { return d.ID == id && len(d.Tokens) > 0 })
}
