package search

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
)

// Devices have a share of the parts each, and find together what the processor finds.
func TestMultiOnDevices(t *testing.T) {
	ctx := context.Background()
	m := newMaker(47, 16, 20)
	docs := m.Docs("d", 300, 5)
	one := searchtest.Build(t, 16, docs, nil)
	set := sharded(t, one, docs, 5, false)
	var a, b kerneltest.Device
	dev, err := NewMulti(ctx, set, &MultiOptions{Threads: 2, Devices: []kernels.Device{&a, &b}})
	require.NoError(t, err)
	e := onDeviceOf(t, one, &a)
	var qs []Query
	for i := range 6 {
		q := m.query(2 + i)
		if i%2 == 1 {
			q.Filter = Where(bind(t, "n >= ?", 50*i))
		}
		qs = append(qs, q)
	}
	for _, o := range []Options{{K: 10, Payload: true}, {K: 500, Mode: Exhaustive}, {K: 5, Filter: &Filter{IDs: []string{"d1", "d299", "nobody"}, AllowMissing: true}}} {
		want, err := e.SearchBatch(ctx, qs, o)
		require.NoError(t, err)
		got, err := dev.SearchBatch(ctx, qs, o)
		require.NoError(t, err)
		for i := range qs {
			require.Equal(t, named(want[i].Hits), named(got[i].Hits))
			require.Equal(t, want[i].Stats.Allowed, got[i].Stats.Allowed)
			require.Equal(t, want[i].Stats.FilterMissing, got[i].Stats.FilterMissing)
			require.Equal(t, want[i].Stats.Plans, got[i].Stats.Plans)
			require.Equal(t, want[i].K, got[i].K)
			require.True(t, got[i].Coverage.Complete())
			inOrder(t, got[i].Hits)
		}
		for _, id := range []string{"d1", "d5", "d150", "d299"} {
			x, err := e.Explain(ctx, qs[1], id, o)
			require.NoError(t, err)
			y, err := dev.Explain(ctx, qs[1], id, o)
			require.NoError(t, err)
			require.Equal(t, []any{x.Stage, x.Rank, x.Score}, []any{y.Stage, y.Rank, y.Score})
		}
	}
	_, err = dev.SearchBatch(ctx, []Query{qs[0], {Vectors: []float32{1}}}, Options{})
	var failed *QueryError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 1, failed.Index)
	_, err = dev.Search(ctx, qs[0], Options{Filter: Only("nobody")})
	require.ErrorIs(t, err, ErrUnknownID)

	d, err := dev.Describe(ctx)
	require.NoError(t, err)
	require.Len(t, d.Parts, 5)
	for _, p := range d.Parts {
		require.Equal(t, a.Info().Name, p.Device)
		require.NotNil(t, p.Memory)
	}
	_, err = set.Add(ctx, searchtest.Source(t, 16, []vectors.Document{{ID: "new", Tokens: qs[0].Vectors}}), nil)
	require.NoError(t, err)
	r, err := dev.Search(ctx, qs[0], Options{K: 1})
	require.NoError(t, err)
	require.Equal(t, []string{"new"}, ids(r.Hits), "documents that are added follow")

	broken := errors.New("broken")
	b.Fail = func() error { return broken }
	_, err = dev.Search(ctx, qs[0], Options{})
	require.ErrorIs(t, err, broken, "no result without all parts")
	require.NoError(t, dev.Close())
	require.NoError(t, dev.Close())
	_, err = dev.Search(ctx, qs[0], Options{})
	require.ErrorIs(t, err, ErrClosed)
}
