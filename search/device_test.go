package search

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/kernels"
)

// An attachment that answers with what it is told, and keeps what it is asked.
type scripted struct {
	kernels.Device
	asked  [][]kernels.DeviceQuery
	answer kernels.DeviceAnswer
	err    error
	open   int
	// hear, where set, is told of each attachment, without queries, and of each search.
	hear func(ctx context.Context, c kernels.Corpus, qs []kernels.DeviceQuery) error
}

func (s *scripted) Info() kernels.DeviceInfo { return kernels.DeviceInfo{Name: "test:0"} }

func (s *scripted) Attach(ctx context.Context, c kernels.Corpus, _ kernels.AttachOptions) (kernels.Attachment, error) {
	if s.err == nil {
		s.open++
	}
	if s.hear != nil {
		if err := s.hear(ctx, c, nil); err != nil {
			return nil, err
		}
	}
	return &scriptedIndex{s}, s.err
}

type scriptedIndex struct{ *scripted }

func (s *scriptedIndex) Search(ctx context.Context, c kernels.Corpus, qs []kernels.DeviceQuery) ([]kernels.DeviceAnswer, error) {
	s.asked = append(s.asked, qs)
	if s.hear != nil {
		if err := s.hear(ctx, c, qs); err != nil {
			return nil, err
		}
	}
	out := make([]kernels.DeviceAnswer, len(qs))
	for i := range out {
		out[i] = s.answer
	}
	return out, s.err
}

func (s *scriptedIndex) Score(context.Context, kernels.Corpus, []float32, []float32, []uint32, kernels.Level) ([]float32, error) {
	return nil, nil
}
func (s *scriptedIndex) Plan() kernels.MemoryPlan { return kernels.MemoryPlan{Resident: true} }
func (s *scriptedIndex) Close() error             { s.open--; return nil }

func TestDeviceSelection(t *testing.T) {
	ctx := context.Background()
	t.Setenv(kernels.EnvDevice, "")
	for _, name := range []string{"", "cpu"} {
		d, note, err := kernels.OpenDevice(ctx, name)
		require.NoError(t, err)
		require.Nil(t, d)
		require.Empty(t, note)
	}
	_, note, err := kernels.OpenDevice(ctx, "auto")
	require.NoError(t, err)
	require.Contains(t, note, "auto picked")
	for _, name := range []string{"gpu", "cuda", "cuda:x", "cuda:-1", "cuda:01", "nothing:0"} {
		_, _, err := kernels.OpenDevice(ctx, name)
		require.ErrorIs(t, err, kernels.ErrUnavailable, name)
	}
	t.Setenv(kernels.EnvDevice, "nothing:0")
	_, _, err = kernels.OpenDevice(ctx, "")
	require.ErrorIs(t, err, kernels.ErrUnavailable)
	require.ErrorContains(t, err, kernels.EnvDevice)
}

// What a search asks of a device follows from its options, and what the device
// answers becomes its result.
func TestEngineOnDevice(t *testing.T) {
	ctx := context.Background()
	m := newMaker(1, 16, 4)
	docs := m.Docs("d", 40, 5)
	ix := searchtest.Build(t, 16, docs, nil)
	d := &scripted{answer: kernels.DeviceAnswer{Docs: []uint32{7, 3}, Scores: []float32{2, 1}, Stats: kernels.DeviceStats{Device: "test:0", Searches: 1}}}
	e := onDeviceOf(t, ix, d)
	require.Equal(t, 1, d.open)
	about, err := e.Describe(ctx)
	require.NoError(t, err)
	require.Equal(t, "test:0", about.Device)
	require.True(t, about.Memory.Resident)

	last := func() kernels.DeviceQuery { return d.asked[len(d.asked)-1][0] }
	q := m.query(4)
	res := search(t, e, q, Options{K: 2})
	require.Equal(t, []string{docs[7].ID, docs[3].ID}, ids(res.Hits))
	require.Equal(t, float32(2), res.Hits[0].Score)
	require.Equal(t, "test:0", res.Stats.Device.Device)
	require.Equal(t, map[string]int{"device": 1}, res.Stats.Plans)
	require.Nil(t, last().Allowed)
	require.Nil(t, last().Docs)
	require.Len(t, last().Vectors, 4*16)

	search(t, e, q, Options{K: 2, Probes: 3})
	require.Equal(t, 3, last().Probes)
	require.Zero(t, last().MaxCandidates)
	search(t, e, q, Options{K: 2, Probes: 3, Approx: 50})
	require.Equal(t, 50, last().MaxCandidates)
	search(t, e, q, Options{Mode: Candidates, Candidates: []string{docs[9].ID, docs[2].ID}})
	require.Equal(t, []uint32{2, 9}, last().Docs)
	require.Equal(t, 2, last().K)
	some := Only()
	for _, doc := range docs[:20] {
		some.IDs = append(some.IDs, doc.ID)
	}
	search(t, e, q, Options{Mode: Exhaustive, Filter: some})
	live, _ := searchtest.Snapshot(t, ix).LiveSet()
	require.Equal(t, []uint64{live[0] & (1<<20 - 1)}, last().Allowed)

	batch, err := e.SearchBatch(ctx, []Query{q, q, q}, Options{K: 2})
	require.NoError(t, err)
	require.Len(t, d.asked[len(d.asked)-1], 3)
	var total Stats
	for i := range batch {
		total.Add(batch[i].Stats)
	}
	require.EqualValues(t, 3, total.Device.Searches)

	asked := len(d.asked)
	none := search(t, e, q, Options{Filter: Only()})
	require.Empty(t, none.Hits)
	_, err = e.SearchBatch(ctx, []Query{q, {Vectors: []float32{1}}}, Options{})
	var failed *QueryError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 1, failed.Index)
	require.ErrorIs(t, err, ErrQuery)
	_, err = e.Search(ctx, q, Options{K: -1})
	require.ErrorIs(t, err, ErrOption)
	_, err = e.Search(ctx, q, Options{Filter: Only("nobody")})
	require.ErrorIs(t, err, ErrUnknownID)
	require.Len(t, d.asked, asked, "none of these reaches the device")

	broken := errors.New("broken")
	d.err = broken
	_, err = e.Search(ctx, q, Options{})
	require.ErrorIs(t, err, broken, "no fallback")
	_, err = New(ctx, ix, &EngineOptions{Device: d})
	require.ErrorIs(t, err, broken)
	require.NoError(t, e.Close())
	require.NoError(t, e.Close(), "twice")
	require.Zero(t, d.open)
	_, err = e.Search(ctx, q, Options{})
	require.ErrorIs(t, err, ErrClosed)
}

// Queries are given to a device as they are scored, one call after the other in the
// same memory: long ones and short ones, and some with tokens that are left out.
func TestVectorsOfDeviceQueries(t *testing.T) {
	m := newMaker(1, 16, 4)
	ix := searchtest.Build(t, 16, m.Docs("d", 40, 5), nil)
	var got [][]float32
	e := onDeviceOf(t, ix, &scripted{hear: func(_ context.Context, _ kernels.Corpus, qs []kernels.DeviceQuery) error {
		for i := range qs {
			got = append(got, slices.Clone(qs[i].Vectors)) // which are the engine's
		}
		return nil
	}})
	snap := searchtest.Snapshot(t, ix)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 30 {
		qs := make([]Query, 1+rng.IntN(4))
		for i := range qs {
			qs[i] = m.query(1 + rng.IntN(40))
			for j := range qs[i].Vectors {
				qs[i].Vectors[j] *= 3
			}
			if n := len(qs[i].Vectors) / 16; rng.IntN(2) == 0 {
				qs[i].Mask = make([]bool, n)
				for j := range n {
					qs[i].Mask[j] = j == 0 || rng.IntN(2) == 0
				}
			}
		}
		got = nil
		_, err := e.SearchBatch(context.Background(), qs, Options{})
		require.NoError(t, err)
		require.Len(t, got, len(qs))
		for i := range qs {
			want, _, err := qs[i].Tokens(snap)
			require.NoError(t, err)
			require.Equal(t, want, got[i])
		}
	}
}

// Hits of a long result have the ids of their documents.
func TestHitsOfManyDocuments(t *testing.T) {
	m := newMaker(1, 16, 4)
	docs := m.Docs("a document with a long name ", 400, 2)
	docs[7].ID = "x"
	ix := searchtest.Build(t, 16, docs, nil)
	res := search(t, on(t, ix, 2), m.query(4), Options{K: 400, Mode: Exhaustive})
	require.True(t, len(res.Hits) > 2*idBlock, "some documents are empty")
	for _, h := range res.Hits {
		require.Equal(t, docs[h.Ordinal].ID, h.ID)
	}
}

// Errors of a batch say the same on the device and on the processor.
func TestErrorsOfBatches(t *testing.T) {
	ctx := context.Background()
	m := newMaker(1, 16, 4)
	ix := searchtest.Build(t, 16, m.Docs("d", 40, 5), nil)
	q := m.query(4)
	var d kerneltest.Device
	cpu, dev := on(t, ix, 2), onDeviceOf(t, ix, &d)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	for where, e := range map[string]*Engine{"cpu": cpu, "device": dev} {
		for _, c := range []struct {
			qs   []Query
			o    Options
			at   int
			want error
		}{
			{[]Query{q, q}, Options{K: -1}, 0, ErrOption},
			{[]Query{q, q}, Options{Filter: Only("nobody")}, 0, ErrUnknownID},
			{[]Query{q, q}, Options{Mode: Candidates, Candidates: []string{"nobody"}}, 0, ErrUnknownID},
			{[]Query{q, q, {Vectors: []float32{1}}}, Options{}, 2, ErrQuery},
		} {
			_, err := e.SearchBatch(ctx, c.qs, c.o)
			require.ErrorIs(t, err, c.want, where)
			var failed *QueryError
			require.ErrorAs(t, err, &failed, "%s: %v", where, err)
			require.Equal(t, c.at, failed.Index, where)
			_, err = e.Search(ctx, c.qs[c.at], c.o)
			require.ErrorIs(t, err, c.want, where)
			require.False(t, errors.As(err, &failed), "%s: one query needs no number: %v", where, err)
			none, err := e.SearchBatch(ctx, nil, c.o)
			require.NoError(t, err, "%s: no query has failed", where)
			require.Empty(t, none)
		}
		_, err := e.SearchBatch(canceled, []Query{q}, Options{})
		require.ErrorIs(t, err, context.Canceled, where)
	}
	broken := errors.New("broken")
	d.FailWith = func() error { return broken }
	_, err := dev.SearchBatch(ctx, []Query{q}, Options{})
	var failed *QueryError
	require.ErrorAs(t, err, &failed)
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "oracle:0")
}

// A device probes where that takes less time, which is for large collections.
func TestProbingPays(t *testing.T) {
	for _, c := range []struct {
		tokens, docs, lists, queryTokens float64
		probes                           int
		want                             bool
	}{
		{1.2e6, 5183, 16384, 32, 8, false},
		{10e6, 43e3, 32768, 32, 8, false},
		{50e6, 213e3, 65536, 32, 8, true},
		{600e6, 2.6e6, 262144, 32, 8, true},
		{600e6, 1000, 262144, 32, 8, false}, // all documents are found
		{600e6, 2.6e6, 8, 32, 8, false},
		{0, 0, 1, 32, 8, false},
	} {
		require.Equal(t, c.want, probingPays(c.tokens, c.docs, c.lists, c.queryTokens, float64(c.probes), 0), "%+v", c)
	}
}

// Trace and Explain tell where a device loses documents: they are not probed, by as
// many probes as the device has, or outranked.
func TestExplainOnDevice(t *testing.T) {
	ctx := t.Context()
	m := newMaker(11, 32, 60)
	docs := m.Docs("d", 400, 12)
	ix := searchtest.Build(t, 32, docs, &index.BuildOptions{Centroids: 128, Threads: 1})
	var d kerneltest.Device
	e := onDeviceOf(t, ix, &d)
	defer func(cost float64) { deviceCost.scan = cost }(deviceCost.scan)
	rng := rand.New(rand.NewPCG(1, 1))
	stages := map[string]int{}
	for i := range effort.Cases(6, 10) {
		q := Query{Vectors: kerneltest.UnitVectors(rng, 1, 32)} // whose best documents are in many lists
		for _, o := range []Options{{K: 10}, {K: 10, Probes: 1}, {K: 10, Mode: Exhaustive}} {
			deviceCost.scan = float64(1e9 * (i % 2))
			res := search(t, e, q, o)
			place := map[string]int{}
			for r, h := range res.Hits {
				place[h.ID] = r + 1
			}
			for _, doc := range docs[:60] {
				x := explain(t, e, q, doc.ID, o)
				require.Equal(t, res.Stats.Plans, map[string]int{x.Plan: 1})
				require.Equal(t, place[doc.ID], x.Rank)
				stage, err := e.Trace(ctx, q, doc.ID, o)
				require.NoError(t, err)
				require.Equal(t, x.Stage, stage)
				stages[fmt.Sprint(x.Plan, ": ", x.Stage)]++
			}
		}
	}
	for _, s := range []string{"device: empty", "device: outranked", "device: returned", "device probe: not probed", "device probe: outranked", "device probe: returned"} {
		require.Positive(t, stages[s], s)
	}
	require.Len(t, stages, 7, "%v", stages)
}

// A query is explained by the plan that answers it, which masked tokens do not change.
func TestExplainMaskedOnDevice(t *testing.T) {
	m := newMaker(12, 32, 60)
	docs := m.Docs("d", 200, 12)
	ix := searchtest.Build(t, 32, docs, &index.BuildOptions{Centroids: 64, Threads: 1})
	e := onDeviceOf(t, ix, &kerneltest.Device{})
	defer func(cost struct{ scan, scanFound, look, rank, probe float64 }) { deviceCost = cost }(deviceCost)
	// Probing costs as much as the tokens; that of ten is worth a scan.
	deviceCost.probe, deviceCost.look, deviceCost.scanFound, deviceCost.rank = 0, 0, 0, 1
	deviceCost.scan = probeGain * 64 * 10 / float64(searchtest.Snapshot(t, ix).State().LiveTokens)
	q := m.query(40)
	q.Mask = make([]bool, 40)
	for _, taking := range []int{2, 9, 11, 40} {
		for i := range q.Mask {
			q.Mask[i] = i < taking
		}
		want := PlanDeviceProbe
		if taking > 10 {
			want = PlanDevice
		}
		res := search(t, e, q, Options{K: 10})
		require.Equal(t, map[string]int{want.String(): 1}, res.Stats.Plans)
		require.Equal(t, want.String(), explain(t, e, q, res.Hits[0].ID, Options{K: 10}).Plan, "%d tokens take part", taking)
	}
}
