package maxsim_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// failingScores is a backend that ranks nothing by itself, and of whose calls some fail.
type failingScores struct {
	maxsim.Backend
	calls int
	fails func(call int) bool
}

var errScores = errors.New("the device is gone")

func (f *failingScores) Score(ctx context.Context, c *maxsim.Call) error {
	if f.calls++; f.fails(f.calls) {
		return errScores
	}
	return f.Backend.Score(ctx, c)
}

// What a failed call had found before it failed is not counted, whether it is made
// again or not.
func TestTopAddFailsMidway(t *testing.T) {
	defer maxsim.SetTopScores(20)()
	ctx := t.Context()
	cpu, err := maxsim.Select("")
	require.NoError(t, err)
	rng := maxsimtest.Rand(5)
	lengths := make([]int, 60)
	for i := range lengths {
		lengths[i] = 1 + rng.IntN(4)
	}
	q, d := maxsimtest.Side{Lengths: []int{3, 5}}.Batch(rng, 8), maxsimtest.Side{Lengths: lengths}.Batch(rng, 8)
	part := func(lo, hi int) *maxsim.Batch {
		return &maxsim.Batch{Tokens: d.Tokens, Layout: maxsim.Layout{Offsets: d.Offsets[lo : hi+1]}}
	}
	for _, k := range []int{1, 7, 100} {
		want, err := maxsim.TopK(ctx, cpu, q, d, k, maxsim.Terms{})
		require.NoError(t, err)
		for failing := 1; failing <= 6; failing++ { // of the six calls that score 10 documents each
			b := &failingScores{Backend: cpu, fails: func(call int) bool { return call == failing }}
			top := maxsim.NewTop(k)
			for _, docs := range []*maxsim.Batch{part(0, 30), part(30, 60)} {
				before := top.Hits()
				err := top.Add(ctx, b, q, docs, maxsim.Terms{})
				if b.calls == failing {
					require.ErrorIs(t, err, errScores)
					require.Equal(t, before, top.Hits())
					err = top.Add(ctx, b, q, docs, maxsim.Terms{})
				}
				require.NoError(t, err)
			}
			require.Equal(t, want, top.Hits(), "call %d failed", failing)
		}
	}
	top := maxsim.NewTop(3)
	require.ErrorIs(t, top.Add(ctx, &failingScores{cpu, 0, func(int) bool { return true }}, q, d, maxsim.Terms{}), errScores)
	require.NoError(t, top.Add(ctx, cpu, part(0, 2), d, maxsim.Terms{}), "nothing is known of queries before")
	require.NoError(t, top.Add(ctx, cpu, part(0, 2), part(0, 1), maxsim.Terms{}))
}
