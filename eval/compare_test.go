package eval_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/eval"
)

// reciprocal evaluates a run that finds the relevant document of query i at rank
// ranks[i], or not if 0.
func reciprocal(t testing.TB, names []string, ranks ...int) *eval.Result {
	t.Helper()
	qrels, run := new(eval.Qrels), new(eval.Run)
	for i, rank := range ranks {
		query := fmt.Sprintf("q%d", i)
		require.NoError(t, qrels.Add(query, "relevant", 1))
		require.NoError(t, run.Add(query))
		for r := 1; r <= 4; r++ {
			doc := fmt.Sprintf("d%d", r)
			if r == rank {
				doc = "relevant"
			}
			require.NoError(t, run.Add(query, eval.ScoredDocument{Doc: doc, Score: float64(-r), Rank: r}))
		}
	}
	return evaluate(t, qrels, run, eval.Options{}, names...)
}

func TestCompareByHand(t *testing.T) {
	a := reciprocal(t, []string{"P@1", "RR"}, 1, 1, 2, 4, 0)
	b := reciprocal(t, []string{"RR"}, 2, 1, 4, 1, 0)
	c, err := eval.Compare(a, b, 1, eval.CompareOptions{Seed: 1})
	require.NoError(t, err)
	require.Equal(t, "RR", c.Measure.String())
	require.InDelta(t, 2.75/5, c.MeanA, 1e-15)
	require.InDelta(t, 2.75/5, c.MeanB, 1e-15)
	require.Zero(t, c.Difference)
	require.Equal(t, []int{2, 2, 1}, []int{c.Wins, c.Ties, c.Losses})
	require.Equal(t, eval.Randomisation{P: 1, Exact: true, Samples: 8}, c.Randomisation)
	require.Equal(t, 1.0, c.Holm)

	b = reciprocal(t, []string{"RR"}, 2, 3, 4, 0, 0)
	c, err = eval.Compare(a, b, 1, eval.CompareOptions{Seed: 4, Samples: 500})
	require.NoError(t, err)
	want, err := eval.RandomisationTest(a.Values(1, eval.AverageJudged), b.Values(0, eval.AverageJudged), 500, 4)
	require.NoError(t, err)
	require.Equal(t, want, c.Randomisation)
	require.Equal(t, []int{4, 1, 0}, []int{c.Wins, c.Ties, c.Losses})
}

// Judgements in another order still pair.
func TestComparePairsByID(t *testing.T) {
	const qrels, other = "x a 1\ny a 1\nz a 1\n", "z a 1\nx a 1\ny a 1\n"
	run := runOf(t, "x a 1 9\ny b 1 9\ny a 2 8\nz b 1 9\n")
	a := evaluate(t, qrelsOf(t, qrels), run, eval.Options{}, "RR")
	b := evaluate(t, qrelsOf(t, other), run, eval.Options{}, "RR")
	c, err := eval.Compare(a, b, 0, eval.CompareOptions{})
	require.NoError(t, err)
	require.Equal(t, []int{0, 3, 0}, []int{c.Wins, c.Ties, c.Losses})
}

func TestCompareOverAverages(t *testing.T) {
	const qrels = "x a 1\ny a 1\nz a 1\nnone a 0\n"
	whole := evaluate(t, qrelsOf(t, qrels), runOf(t, "x a 1 9\ny a 1 9\nz a 1 9\nnone b 1 9\n"), eval.Options{}, "RR")
	part := evaluate(t, qrelsOf(t, qrels), runOf(t, "x a 1 9\nz b 1 9\nnone b 1 9\n"), eval.Options{}, "RR")

	c, err := eval.Compare(whole, part, 0, eval.CompareOptions{})
	require.NoError(t, err)
	require.Equal(t, 4, c.Wins+c.Ties+c.Losses)
	require.Equal(t, 0.5, c.Difference)

	c, err = eval.Compare(whole, part, 0, eval.CompareOptions{Average: eval.AverageRelevant})
	require.NoError(t, err)
	require.Equal(t, 3, c.Wins+c.Ties+c.Losses)
	require.InDelta(t, 2.0/3, c.Difference, 1e-15)

	_, err = eval.Compare(whole, part, 0, eval.CompareOptions{Average: eval.AverageEvaluated})
	require.ErrorIs(t, err, eval.ErrUnpaired)
	require.ErrorContains(t, err, `"y"`)
	c, err = eval.Compare(part, part, 0, eval.CompareOptions{Average: eval.AverageEvaluated})
	require.NoError(t, err)
	require.Equal(t, 3, c.Wins+c.Ties+c.Losses)
}

func TestCompareErrors(t *testing.T) {
	run := runOf(t, "x a 1 9\ny a 1 9\n")
	result := func(qrels string, names ...string) *eval.Result {
		return evaluate(t, qrelsOf(t, qrels), run, eval.Options{}, names...)
	}
	const two = "x a 1\ny a 1\n"
	base := result(two, "RR", "AP")
	twice := *base
	twice.Queries = append(slices.Clone(base.Queries), base.Queries[0])
	hollow := *base
	hollow.Queries = slices.Clone(base.Queries)
	hollow.Queries[1].Values = nil
	notANumber := *base
	notANumber.Queries = slices.Clone(base.Queries)
	notANumber.Queries[1].Values = []float64{math.NaN(), 0}

	for name, tt := range map[string]struct {
		a, b    *eval.Result
		measure int
		opts    eval.CompareOptions
		want    error
		says    string
	}{
		"missing in the second":  {result("x a 1\ny a 1\nz a 1\n", "RR"), base, 0, eval.CompareOptions{}, eval.ErrUnpaired, `"z" is judged in the first result only`},
		"missing in the first":   {base, result("x a 1\ny a 1\nz a 1\n", "RR"), 0, eval.CompareOptions{}, eval.ErrUnpaired, `"z" is judged in the second result only`},
		"other judgements":       {base, result("x a 1\ny a 1\ny b 1\n", "RR"), 0, eval.CompareOptions{}, eval.ErrUnpaired, `"y" has 1 relevant documents`},
		"one query":              {result("x a 1\n", "RR"), result("x a 1\n", "RR"), 0, eval.CompareOptions{}, eval.ErrTooFewPairs, "RR"},
		"no such index":          {base, base, 2, eval.CompareOptions{}, eval.ErrMeasure, "2 of 2"},
		"negative index":         {base, base, -1, eval.CompareOptions{}, eval.ErrMeasure, "-1"},
		"no such measure":        {base, result(two, "RR"), 1, eval.CompareOptions{}, eval.ErrMeasure, "AP"},
		"nil":                    {base, nil, 0, eval.CompareOptions{}, eval.ErrParameter, "nil"},
		"twice in the first":     {&twice, base, 0, eval.CompareOptions{}, eval.ErrDuplicate, `"x"`},
		"twice in the second":    {base, &twice, 0, eval.CompareOptions{}, eval.ErrDuplicate, `"x"`},
		"without values":         {base, &hollow, 0, eval.CompareOptions{}, eval.ErrParameter, `"y"`},
		"not a number":           {base, &notANumber, 0, eval.CompareOptions{}, eval.ErrParameter, "NaN"},
		"negative sample number": {base, base, 0, eval.CompareOptions{Samples: -1}, eval.ErrParameter, "-1 samples"},
	} {
		_, err := eval.Compare(tt.a, tt.b, tt.measure, tt.opts)
		require.ErrorIs(t, err, tt.want, name)
		require.ErrorContains(t, err, tt.says, name)
	}
}

func TestCompareAll(t *testing.T) {
	names := []string{"RR", "P@1"}
	baseline := reciprocal(t, names, 2, 2, 2, 2, 2, 2, 2, 2)
	systems := []*eval.Result{
		reciprocal(t, []string{"P@1", "RR"}, 1, 1, 1, 1, 1, 1, 1, 1),
		reciprocal(t, names, 2, 2, 2, 2, 2, 2, 2, 2),
		reciprocal(t, names, 1, 1, 1, 1, 1, 1, 2, 3),
	}
	all, err := eval.CompareAll(t.Context(), baseline, systems, eval.CompareOptions{Samples: 500})
	require.NoError(t, err)
	require.Len(t, all, 3)
	var raw, got []float64
	for j, measures := range all {
		require.Len(t, measures, 2)
		for i, c := range measures {
			require.Equal(t, baseline.Measures[i], c.Measure)
			place := slices.Index(systems[j].Measures, c.Measure)
			alone, err := eval.Compare(systems[j], baseline, place, eval.CompareOptions{Samples: 500})
			require.NoError(t, err)
			raw, got = append(raw, c.P), append(got, c.Holm)
			alone.Holm = c.Holm
			require.Equal(t, *alone, c, "measure %d, system %d", i, j)
		}
	}
	want, err := eval.Holm(raw)
	require.NoError(t, err)
	require.Equal(t, want, got)
	rr := all[0][0]
	require.Equal(t, []int{8, 0, 0}, []int{rr.Wins, rr.Ties, rr.Losses})
	require.InDelta(t, 6*2.0/256, rr.Holm, 1e-15) // the smallest of six
	require.Equal(t, 1.0, all[1][0].Holm)
}

func TestCompareAllCancelled(t *testing.T) {
	base := reciprocal(t, []string{"RR"}, 1, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := eval.CompareAll(ctx, base, []*eval.Result{base}, eval.CompareOptions{})
	require.ErrorIs(t, err, context.Canceled)
}

func TestCompareAllErrors(t *testing.T) {
	base := reciprocal(t, []string{"RR", "P@1"}, 1, 2)
	_, err := eval.CompareAll(t.Context(), nil, []*eval.Result{base}, eval.CompareOptions{})
	require.ErrorIs(t, err, eval.ErrParameter)
	_, err = eval.CompareAll(t.Context(), base, nil, eval.CompareOptions{})
	require.ErrorIs(t, err, eval.ErrParameter)
	_, err = eval.CompareAll(t.Context(), base, []*eval.Result{base, nil}, eval.CompareOptions{})
	require.ErrorIs(t, err, eval.ErrParameter)
	_, err = eval.CompareAll(t.Context(), base, []*eval.Result{base, reciprocal(t, []string{"RR"}, 1, 2)}, eval.CompareOptions{})
	require.ErrorIs(t, err, eval.ErrMeasure)
	require.ErrorContains(t, err, "system 1")
	_, err = eval.CompareAll(t.Context(), base, []*eval.Result{reciprocal(t, []string{"RR", "P@1"}, 1, 2, 3)}, eval.CompareOptions{})
	require.ErrorIs(t, err, eval.ErrUnpaired)
	require.ErrorContains(t, err, "system 0")
}

func TestCompareIsAntisymmetric(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ranks := rapid.SliceOfN(rapid.IntRange(0, 4), 6, 6)
		a := reciprocal(t, []string{"RR"}, ranks.Draw(rt, "a")...)
		b := reciprocal(t, []string{"RR"}, ranks.Draw(rt, "b")...)
		opts := eval.CompareOptions{Samples: 99}
		ab, err := eval.Compare(a, b, 0, opts)
		require.NoError(rt, err)
		ba, err := eval.Compare(b, a, 0, opts)
		require.NoError(rt, err)
		require.Equal(rt, ab.Difference, -ba.Difference)
		require.Equal(rt, ab.MeanA, ba.MeanB)
		require.Equal(rt, []int{ab.Wins, ab.Ties, ab.Losses}, []int{ba.Losses, ba.Ties, ba.Wins})
		require.Equal(rt, ab.Randomisation, ba.Randomisation)
	})
}
