package eval_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/eval"
)

func parse(t testing.TB, names ...string) []eval.Measure {
	t.Helper()
	ms, err := eval.ParseMeasures(names...)
	require.NoError(t, err)
	return ms
}

func evaluate(t testing.TB, qrels *eval.Qrels, run *eval.Run, opts eval.Options, names ...string) *eval.Result {
	t.Helper()
	res, err := eval.Evaluate(qrels, run, parse(t, names...), opts)
	require.NoError(t, err)
	return res
}

// one scores a single measure and returns the mean.
func one(t testing.TB, qrels, run, measure string, opts eval.Options) float64 {
	t.Helper()
	return evaluate(t, qrelsOf(t, qrels), runOf(t, run), opts, measure).Means[0]
}

// The expected values are worked out by hand from the definitions.
func TestMeasuresByHand(t *testing.T) {
	// Ranking: d (0), b (2), x (unjudged), a (3), y (unjudged); relevant: a b c.
	const qrels = "q a 3\nq b 2\nq c 1\nq d 0\nq e -1\n"
	const run = "q d 1 9\nq b 2 8\nq x 3 7\nq a 4 6\nq y 5 5\n"
	log3, log5 := math.Log2(3), math.Log2(5)
	for measure, want := range map[string]float64{
		"nDCG@3":                  (2 / log3) / (3 + 2/log3 + 1.0/2),
		"nDCG":                    (2/log3 + 3/log5) / (3 + 2/log3 + 1.0/2),
		"nDCG@1":                  0,
		"nDCG@2":                  (2 / log3) / (3 + 2/log3),
		"nDCG(dcg='exp-log2')@3":  (3 / log3) / (7 + 3/log3 + 1.0/2),
		"nDCG(dcg='exp-log2')@10": (3/log3 + 7/log5) / (7 + 3/log3 + 1.0/2),
		"AP":                      (1.0/2 + 2.0/4) / 3,
		"AP@3":                    (1.0 / 2) / 3,
		"AP(rel=2)":               (1.0/2 + 2.0/4) / 2,
		"AP(rel=3)":               1.0 / 4,
		"AP(rel=4)":               0,
		"RR":                      1.0 / 2,
		"RR@1":                    0,
		"RR@2":                    1.0 / 2,
		"RR(rel=3)":               1.0 / 4,
		"RR(rel=3)@3":             0,
		"R@3":                     1.0 / 3,
		"R@100":                   2.0 / 3,
		"R(rel=3)@4":              1,
		"R(rel=4)@4":              0,
		"P@2":                     1.0 / 2,
		"P@10":                    2.0 / 10,
		"P(rel=3)@5":              1.0 / 5,
		"Success@1":               0,
		"Success@2":               1,
		"Success(rel=3)@3":        0,
		"Rprec":                   1.0 / 3,
		"Rprec(rel=2)":            1.0 / 2,
		"Rprec(rel=4)":            0,
		"Judged@3":                2.0 / 3,
		"Judged@10":               3.0 / 5,
		"Hole@3":                  1.0 / 3,
		"Hole@10":                 2.0 / 5,
		"Bpref":                   0, // d, the only non-relevant one, is above all
		"Bpref(rel=3)":            0, // b and c count as non-relevant: 1 − min(2, 1)/min(3, 1)
	} {
		require.InDelta(t, want, one(t, qrels, run, measure, eval.Options{}), 1e-15, measure)
	}
}

func TestBprefByHand(t *testing.T) {
	// R = 3, N = 2, so the bound is 2; u is not judged and p was left unjudged.
	const run = "q r1 1 9\nq n1 2 8\nq u 3 7\nq p 4 6\nq r2 5 5\nq n2 6 4\nq r3 7 3\n"
	got := one(t, "q r1 1\nq r2 1\nq r3 2\nq n1 0\nq n2 0\nq p -1\n", run, "Bpref", eval.Options{})
	require.InDelta(t, (1+(1-1.0/2)+(1-2.0/2))/3, got, 1e-15)

	// R = 1, N = 2: the bound is 1, and more than that above costs no more.
	got = one(t, "q r3 1\nq n1 0\nq n2 0\n", run, "Bpref", eval.Options{})
	require.Zero(t, got)

	// Without judged non-relevant documents it is the share retrieved.
	got = one(t, "q r1 1\nq r2 1\nq zz 1\n", run, "Bpref", eval.Options{})
	require.InDelta(t, 2.0/3, got, 1e-15)
}

func TestTies(t *testing.T) {
	const qrels = "q a 1\n"
	tests := map[string]struct {
		run                string
		trec, trec10, rank float64
	}{
		"equal scores":        {"q a 1 5\nq b 2 5\nq c 3 5\n", 1.0 / 3, 1.0 / 3, 1},
		"byte order":          {"q a 1 5\nq B 2 5\nq é 3 5\n", 1.0 / 2, 1.0 / 2, 1},
		"equal as float32":    {"q a 1 30.000000002\nq b 2 30.000000001\n", 1.0 / 2, 1, 1},
		"differ as float32":   {"q a 1 30.00001\nq b 2 30\n", 1, 1, 1},
		"negative zero":       {"q a 1 0\nq b 2 -0\n", 1.0 / 2, 1.0 / 2, 1},
		"beyond float32":      {"q a 1 1e300\nq b 2 1e200\n", 1.0 / 2, 1, 1},
		"ranks against score": {"q a 2 9\nq b 1 5\n", 1, 1, 1.0 / 2},
		"no ranks":            {"q b 0 5\nq a 0 9\n", 1, 1, 1.0 / 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.trec, one(t, qrels, tt.run, "RR", eval.Options{}))
			require.Equal(t, tt.trec10, one(t, qrels, tt.run, "RR", eval.Options{Ties: eval.TiesTREC10}))
			require.Equal(t, tt.rank, one(t, qrels, tt.run, "RR", eval.Options{Ties: eval.TiesRank}))
		})
	}
	require.Equal(t, "trec trec10 rank", fmt.Sprint(eval.TiesTREC, " ", eval.TiesTREC10, " ", eval.TiesRank))
}

func TestSelfFirst(t *testing.T) {
	qrels := qrelsOf(t, "a b 1\nb a 1\nc a 1\nd a 1\n")
	run := runOf(t, "a a 2 9\na b 1 8\nb a 1 9\nb b 2 8\nc c 1 1\ne e 1 1\n")
	require.Equal(t, 2, evaluate(t, qrels, run, eval.Options{}, "RR").SelfFirst)
	require.Equal(t, 1, evaluate(t, qrels, run, eval.Options{Ties: eval.TiesRank}, "RR").SelfFirst)
	require.Zero(t, evaluate(t, qrels, run, eval.Options{ExcludeSelf: true}, "RR").SelfFirst)
}

func TestAverages(t *testing.T) {
	qrels := qrelsOf(t, "hit a 1\nmiss a 1\ngone a 1\nnone a 0\nnegative a -1\ngoneNone a 0\n")
	run := runOf(t, "other a 1 5\nhit a 1 5\nmiss b 1 5\nnone a 1 5\nnegative a 1 5\n")
	for average, want := range map[eval.Average]struct {
		mean  float64
		count int
		name  string
	}{
		eval.AverageJudged:    {1.0 / 6, 6, "judged"},
		eval.AverageEvaluated: {1.0 / 4, 4, "evaluated"},
		eval.AverageRelevant:  {1.0 / 3, 3, "relevant"},
	} {
		res := evaluate(t, qrels, run, eval.Options{Average: average}, "nDCG@10", "AP(rel=2)")
		require.InDelta(t, want.mean, res.Means[0], 1e-15)
		require.Zero(t, res.Means[1])
		require.Equal(t, want.count, res.Count(average))
		require.Len(t, res.Values(0, average), want.count)
		require.Equal(t, average, res.Average)
		require.Equal(t, want.name, average.String())
		require.Equal(t, 1, res.Unjudged)
		require.Equal(t, eval.QueryResult{
			Query: "gone", Values: []float64{0, 0}, Relevant: 1,
		}, res.Queries[2])
	}

	res := evaluate(t, qrels, nil, eval.Options{Average: eval.AverageEvaluated}, "AP")
	require.Zero(t, res.Means[0])
	require.Zero(t, res.Count(eval.AverageEvaluated))
}

func TestEmptyRankingHasNoHoles(t *testing.T) {
	res := evaluate(t, qrelsOf(t, "q a 1\n"), &eval.Run{}, eval.Options{}, "Hole@5", "Judged@5")
	require.Equal(t, []float64{0, 0}, res.Means)
}

func TestExcludeSelf(t *testing.T) {
	const qrels, run = "a b 1\nb a 1\n", "a a 1 9\na b 2 8\nb a 1 9\nb b 2 8\nb c 3 7\n"
	require.InDelta(t, (0.5+1)/2, one(t, qrels, run, "RR", eval.Options{}), 1e-15)
	require.InDelta(t, 1, one(t, qrels, run, "RR", eval.Options{ExcludeSelf: true}), 1e-15)

	res := evaluate(t, qrelsOf(t, qrels), runOf(t, run), eval.Options{ExcludeSelf: true}, "P@2")
	require.Equal(t, 1, res.Queries[0].Retrieved)
	require.Equal(t, 2, res.Queries[1].Retrieved)

	// A query whose only hit is itself was still evaluated.
	res = evaluate(t, qrelsOf(t, "a b 1\n"), runOf(t, "a a 1 9\n"), eval.Options{ExcludeSelf: true}, "RR")
	require.True(t, res.Queries[0].InRun)
	require.Equal(t, 1, res.Count(eval.AverageEvaluated))
}

func TestEvaluateLeavesRunAlone(t *testing.T) {
	run := runOf(t, "q a 2 1\nq q 1 2\nq b 3 3\n")
	evaluate(t, qrelsOf(t, "q a 1\n"), run, eval.Options{ExcludeSelf: true}, "RR")
	require.Equal(t, []eval.ScoredDocument{{"a", 1, 2}, {"q", 2, 1}, {"b", 3, 3}}, run.Hits("q"))
}

func TestEvaluateErrors(t *testing.T) {
	_, err := eval.Evaluate(&eval.Qrels{}, &eval.Run{}, parse(t, "AP"), eval.Options{})
	require.ErrorIs(t, err, eval.ErrNothingJudged)
	_, err = eval.Evaluate(nil, nil, nil, eval.Options{})
	require.ErrorIs(t, err, eval.ErrNothingJudged)
	_, err = eval.Evaluate(qrelsOf(t, "q a 1\n"), &eval.Run{}, make([]eval.Measure, 1), eval.Options{})
	require.ErrorIs(t, err, eval.ErrMeasure)
}

func TestHugeGrades(t *testing.T) {
	const qrels = "q a 2147483647\nq b 1100\nq c 1\n"
	for _, m := range []string{"nDCG", "nDCG(dcg='exp-log2')"} {
		require.Equal(t, 1.0, one(t, qrels, "q a 1 3\nq b 2 2\nq c 3 1\n", m, eval.Options{}))
		v := one(t, qrels, "q b 1 3\nq a 2 2\n", m, eval.Options{})
		require.InDelta(t, 1/math.Log2(3), v, 1e-6)
	}
}
