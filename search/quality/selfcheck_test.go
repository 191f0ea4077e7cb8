package quality

import (
	"context"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

// TestSelfCheck: what is measured is stored and used; the same index gives the same.
func TestSelfCheck(t *testing.T) {
	e, snap, qs, docs := recallIndex(t)
	ix := searchtest.Build(t, 32, docs, &index.BuildOptions{Centroids: 128, Threads: 1}) // which is changed
	o := SelfCheckOptions{Questions: 20}
	d, err := SelfCheck(t.Context(), e, snap, o)
	require.NoError(t, err)
	require.True(t, d.Passages)
	require.Equal(t, snap.State().Live, d.Docs)
	require.Len(t, d.Classes, 2)
	for i, k := range []int{10, 100} {
		c := d.Classes[i]
		require.Equal(t, k, c.K)
		require.Equal(t, 20, c.Queries)
		require.Equal(t, c.Recall, c.HeldOut)
		require.InDelta(t, 0.7, c.WorstTarget, 1e-12)
		require.Positive(t, c.Error)
		require.True(t, c.Confirmed() || c.Effort == effortLadder[len(effortLadder)-1])
	}
	require.NoError(t, d.Validate())
	again, err := SelfCheck(t.Context(), e, snap, o)
	require.NoError(t, err)
	require.Equal(t, d.Classes, again.Classes)

	// A search that names nothing does as much as the stored effort says.
	d.Classes[0].Effort = 4
	require.NoError(t, ix.SetDefaults(d))
	stored := engine(t, ix, search.EngineOptions{Threads: 1})
	exact := func(o search.Options) (n int64) {
		o.K = 10
		for _, q := range qs {
			n += find(t, stored, q, o).Stats.ExactDocs
		}
		return n
	}
	require.Equal(t, exact(search.Options{Effort: 4}), exact(search.Options{}))
	require.Greater(t, exact(search.Options{}), exact(search.Options{Effort: 0.25}))
	require.Equal(t, exact(search.Options{Effort: 1}), exact(search.Options{Derive: true}))
}

// What searches miss is told within the error that is told beside it, and the least effort that
// is enough is chosen.
func TestSelfCheckFindsWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		miss    float64
		helps   bool
		efforts []float64 // of k = 10 and 100
	}{
		{0, false, []float64{1, 1}},
		{0.015, true, []float64{2, 2}}, // to 0.0075 with √2, 0.00375 with 2
		{0.2, true, []float64{4, 4}},   // to 0.0125, which is not enough
		{0.02, false, []float64{1, 1}}, // more effort finds no more, and is not spent
	} {
		check := &selfCheck{searcher: &planted{miss: c.miss, helps: c.helps}, options: &SelfCheckOptions{}, shares: make([][]float64, 2)}
		for block := range 8 {
			var qs []search.Query
			for i := range questionBlock {
				qs = append(qs, search.Query{Vectors: []float32{float32(block), float32(i)}})
			}
			require.NoError(t, check.addQuestions(t.Context(), qs))
		}
		require.Equal(t, c.miss == 0, check.isPrecise(), "10 documents a question tell little")
		for i, k := range defaultKs {
			f := summarizeShares(k, check.shares[i])
			require.InDelta(t, 1-c.miss, f.Recall, 4*f.Error)
			got, err := check.findEffort(t.Context(), i)
			require.NoError(t, err)
			miss := c.miss
			if c.helps {
				miss /= got.Effort * got.Effort
			}
			require.InDelta(t, 1-miss, got.Recall, 4*got.Error)
			require.LessOrEqual(t, got.Worst, got.Recall)
			require.Equal(t, c.efforts[i], got.Effort)
			require.Equal(t, 512, got.Queries)
			require.Equal(t, miss < 0.005, got.Confirmed())
		}
	}
}

// Questions depend on seed and number alone, are of unit vectors, and are more like each other
// inside than documents are.
func TestQuestions(t *testing.T) {
	e, snap, _, _ := recallIndex(t)
	a := &questionMaker{engine: e.At(snap), snap: snap, dim: snap.Dim(), seed: 3, threads: 2}
	qs, err := a.makeQuestions(t.Context(), 0, 20)
	require.NoError(t, err)
	require.Len(t, qs, 20)
	for _, threads := range []int{1, 3} {
		again := &questionMaker{engine: e.At(snap), snap: snap, dim: snap.Dim(), seed: 3, threads: threads}
		first, err := again.makeQuestions(t.Context(), 0, 7)
		require.NoError(t, err)
		rest, err := again.makeQuestions(t.Context(), 7, 20)
		require.NoError(t, err)
		require.Equal(t, qs, append(first, rest...))
	}
	other := &questionMaker{engine: e.At(snap), snap: snap, dim: snap.Dim(), seed: 4, threads: 1}
	different, err := other.makeQuestions(t.Context(), 0, 1)
	require.NoError(t, err)
	require.NotEqual(t, qs[0], different[0])
	for _, q := range qs {
		require.Len(t, q.Vectors, questionTokens*snap.Dim())
		for i := range questionTokens {
			v := q.Vectors[i*snap.Dim():][:snap.Dim()]
			require.InDelta(t, 1, dot(v, v), 1e-5)
		}
	}
}

func TestSelfCheckRefuses(t *testing.T) {
	e, snap, _, _ := recallIndex(t)
	_, err := SelfCheck(t.Context(), e, snap, SelfCheckOptions{Questions: -1})
	require.ErrorIs(t, err, search.ErrOption)
	d, err := SelfCheck(t.Context(), e, snap, SelfCheckOptions{})
	require.NoError(t, err)
	require.Nil(t, d, "so small an index is not worth a check")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = SelfCheck(ctx, e, snap, SelfCheckOptions{Questions: 20})
	require.ErrorIs(t, err, context.Canceled)
}

// What is measured is the device where the engine searches on one.
func TestMeasuringKeepsTheDevice(t *testing.T) {
	ctx := t.Context()
	ix, qs, docs := recallCollection(t)
	snap := searchtest.Snapshot(t, ix)
	qs = qs[:8]
	var d kerneltest.Device
	e := engine(t, ix, search.EngineOptions{Threads: 2, Device: &d})
	reference, err := Reference(ctx, e, qs, 20, nil)
	require.NoError(t, err)
	asked := func(atLeast int, what string) {
		t.Helper()
		require.GreaterOrEqual(t, d.Searched.Swap(0), int64(atLeast), what)
	}
	asked(len(qs), "reference")

	r, err := MeasureRecall(ctx, e, qs, search.Options{K: 20}, nil, nil)
	require.NoError(t, err)
	asked(2*len(qs), "recall and its reference")
	require.Equal(t, map[string]int{"device": len(qs)}, r.Stats.Plans)
	require.Equal(t, 1.0, r.Mean(), "a device scores everything")
	r, err = MeasureRecall(ctx, e, qs, search.Options{K: 20, Probes: 1}, reference, nil)
	require.NoError(t, err)
	asked(len(qs), "recall")
	require.Equal(t, map[string]int{"device probe": len(qs)}, r.Stats.Plans)
	require.Less(t, r.Mean(), 1.0)
	lost := r.Lost()
	require.Positive(t, lost[search.StageProbe])
	require.Equal(t, map[search.Stage]int{search.StageProbe: lost[search.StageProbe]}, lost, "what is probed is scored exactly")
	few := search.Options{K: 20, Mode: search.Candidates}
	for _, doc := range docs[:200] {
		few.Candidates = append(few.Candidates, doc.ID)
	}
	r, err = MeasureRecall(ctx, e, qs, few, reference, nil)
	require.NoError(t, err)
	lost = r.Lost()
	require.Equal(t, map[search.Stage]int{search.StageFiltered: lost[search.StageFiltered]}, lost)
	asked(len(qs), "recall")

	c, err := MeasureCompression(ctx, e, snap, qs, searchtest.Source(t, 32, docs), 5, nil, nil)
	require.NoError(t, err)
	asked(2*len(qs), "stored lists, and scores of the exact best")
	require.Less(t, c.RMSE, 0.5)

	points, err := Sweep(ctx, e, qs, SweepOptions{K: 20, Settings: []Setting{{}, {Probes: 1}}}, reference)
	require.NoError(t, err)
	asked(4*len(qs)+2*warmup, "two settings, one at a time and together")
	require.Equal(t, 1.0, points[0].Recall)
	require.Equal(t, map[string]int{"device probe": len(qs)}, points[1].Stats.Plans)

	_, err = Tune(ctx, e, snap, qs, TuneOptions{K: []int{5}})
	require.NoError(t, err)
	asked(2*len(qs), "tuning")
}

// Exact scores need ids, which are read from mapped pages, which may be gone.
func TestCompressionOfACutFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mapped file cannot be cut there")
	}
	m := searchtest.New(1, 16, 4)
	docs := m.Docs("d", 40, 5)
	ix := searchtest.Build(t, 16, docs, nil)
	e, snap, qs := engine(t, ix, search.EngineOptions{}), searchtest.Snapshot(t, ix), []search.Query{query(m, 3)}
	reference, err := Reference(t.Context(), e, qs, 5, nil)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(ix.Path(), 0))
	_, err = MeasureCompression(t.Context(), e, snap, qs, searchtest.Source(t, 16, docs), 5, reference, nil)
	require.ErrorIs(t, err, storage.ErrCorrupt)
}
