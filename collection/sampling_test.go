package collection

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/search/quality"
	"github.com/plaid-ir/plaid/storage"
)

// Parts of a collection are one by the questions that each has measured.
func TestSampledJoin(t *testing.T) {
	part := func(questions int, recall, worst, e, promised float64) *Sampled {
		return NewSampled(quality.Sampled{
			Classes: []quality.MeasuredRecall{{K: 10, Questions: questions, Recall: recall, Worst: worst, Error: e}},
			Offered: 50, Measured: int64(questions), Dropped: 1, Failed: 2, Waiting: 3, Time: 4,
		}, &storage.Defaults{Classes: []storage.DefaultClass{{K: 10, HeldOut: promised}}})
	}
	a, b := part(30, 1, .9, .01, .98), part(10, .8, .3, .02, .99)
	both := a.Join(b)
	require.Equal(t, []int64{100, 40, 2, 4, 6, 8},
		[]int64{both.Offered, both.Measured, both.Dropped, both.Failed, int64(both.Waiting), int64(both.Time)})
	c := both.Classes[0]
	require.Equal(t, 40, c.Questions)
	require.InDelta(t, .95, c.Recall, 1e-12)
	require.Equal(t, .3, c.Worst)
	require.InDelta(t, math.Hypot(.75*.01, .25*.02), c.Error, 1e-12)
	require.Equal(t, .98, *c.Promised)
	require.Equal(t, 30, a.Classes[0].Questions, "it is as it was")

	var none *Sampled
	require.Nil(t, none.Join(nil))
	require.Same(t, a, none.Join(a))
	require.Same(t, a, a.Join(nil))
	unasked := a.Join(part(0, 1, 1, 0, .97)).Classes[0]
	require.Equal(t, []float64{1, .9, .97}, []float64{unasked.Recall, unasked.Worst, *unasked.Promised})
	require.Nil(t, NewSampled(quality.Sampled{Classes: []quality.MeasuredRecall{{K: 10}}}, nil).Classes[0].Promised)
	require.Len(t, a.Join(&Sampled{Classes: []SampledClass{{MeasuredRecall: quality.MeasuredRecall{K: 100}}}}).Classes, 2)
}
