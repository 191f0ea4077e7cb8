package search

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
)

// An attachment that answers with what it is told, and keeps what it is asked.
type scripted struct {
	kernels.Device
	asked  [][]kernels.DeviceQuery
	answer kernels.DeviceAnswer
	err    error
	open   int
}

func (s *scripted) Info() kernels.DeviceInfo { return kernels.DeviceInfo{Name: "test:0"} }

func (s *scripted) Attach(context.Context, kernels.Corpus, kernels.AttachOptions) (kernels.Attachment, error) {
	if s.err != nil {
		return nil, s.err
	}
	s.open++
	return &scriptedIndex{s}, nil
}

type scriptedIndex struct{ *scripted }

func (s *scriptedIndex) Search(_ context.Context, _ kernels.Corpus, qs []kernels.DeviceQuery) ([]kernels.DeviceAnswer, error) {
	s.asked = append(s.asked, qs)
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
	docs := m.docs("d", 40, 5)
	ix := build(t, 16, docs, nil)
	e := New(ix, 2)
	d := &scripted{answer: kernels.DeviceAnswer{Docs: []uint32{7, 3}, Scores: []float32{2, 1}, Stats: kernels.DeviceStats{Device: "test:0", Searches: 1}}}
	require.NoError(t, e.UseDevice(ctx, d, kernels.AttachOptions{}))
	require.NoError(t, e.UseDevice(ctx, d, kernels.AttachOptions{}), "instead of the first")
	require.Equal(t, 1, d.open)
	plan, ok := e.DevicePlan()
	require.True(t, ok && plan.Resident)

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
	search(t, e, q, Options{Mode: Candidates, Candidates: []string{docs[9].ID, docs[2].ID}})
	require.Equal(t, []uint32{2, 9}, last().Docs)
	require.Equal(t, 2, last().K)
	some := Only()
	for _, doc := range docs[:20] {
		some.IDs = append(some.IDs, doc.ID)
	}
	search(t, e, q, Options{Mode: Exhaustive, Filter: some})
	live, _ := snapshot(t, ix).LiveSet()
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
	require.ErrorIs(t, e.UseDevice(ctx, d, kernels.AttachOptions{}), broken)
	require.NoError(t, e.Close())
	require.NoError(t, e.Close(), "twice")
	require.Zero(t, d.open)
	require.NotEmpty(t, search(t, e, q, Options{}).Hits, "on the processor again")
}
