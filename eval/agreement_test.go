package eval_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/eval"
)

// chars makes a ranking of single letters.
func chars(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, "")
}

func rbo(t require.TestingT, a, b []string, p float64) float64 {
	v, err := eval.RBO(a, b, p)
	require.NoError(t, err)
	return v
}

func TestRBOByHand(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		p    float64
		want float64
	}{
		// All agree but the first rank, whose weight is 1−p.
		{"abcdefg", "bacdefg", 0.9, 0.9},
		// Equation 23: agreement 0, 0, 2/3, 2/4, 2/5, 2/6, 2/7, and 2/7 from there on.
		{"abcdefg", "zcavwxy", 0.9, 0.1*(math.Pow(0.9, 2)*2/3+math.Pow(0.9, 3)*2/4+math.Pow(0.9, 4)*2/5+
			math.Pow(0.9, 5)*2/6+math.Pow(0.9, 6)*2/7) + math.Pow(0.9, 7)*2/7},
		// Equation 32, s = 2, l = 4, X = 0 1 2 2, (1−p)/p = 1: 0 + (1/2)/4 + (2/3)/8 + (2/4)/16,
		// 1·1/(2·3)/8 + 1·2/(2·4)/16, and ((2−1)/4 + 1/2)/16.
		{"ab", "bcad", 0.5, 31.0 / 96},
		// X is 1 at depth 6 only, so that nothing is extrapolated between s and l.
		{"a", "bcdefa", 0.7, 0.3/0.7*math.Pow(0.7, 6)/6 + math.Pow(0.7, 6)/6},
		// The beginning of a list is taken to go on like it.
		{"ab", "abcdef", 0.9, 1},
		{"abc", "xyz", 0.9, 0},
		{"", "", 0.9, 1},
		{"", "abc", 0.9, 0},
		{"aabab", "ba", 0.5, 0.5},
	} {
		require.InDelta(t, tt.want, rbo(t, chars(tt.a), chars(tt.b), tt.p), 1e-15, "%v", tt)
		require.InDelta(t, tt.want, rbo(t, chars(tt.b), chars(tt.a), tt.p), 1e-15, "%v", tt)
	}
}

// The values are those of the Python package rbo 0.1.3 (pip install rbo):
//
//	RankingSimilarity(list(a), list(b)).rbo_ext(p)
func TestRBOAgainstPackage(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		p    float64
		want float64
	}{
		{"abcdefg", "zcavwxy", 0.9, 0.28821728571428573},
		{"abcde", "edcba", 0.98, 0.9428887066666666},
		{"abcdefghij", "jdbxa", 0.8, 0.3530484394666667},
		{"a", "bcdefa", 0.7, 0.028011666666666657},
	} {
		require.InDelta(t, tt.want, rbo(t, chars(tt.a), chars(tt.b), tt.p), 1e-14, "%v", tt)
	}
}

func TestRBORefusesPersistence(t *testing.T) {
	for _, p := range []float64{0, 1, -0.5, 1.5, math.NaN(), math.Inf(1)} {
		_, err := eval.RBO(chars("a"), chars("a"), p)
		require.ErrorIs(t, err, eval.ErrParameter)
	}
}

func drawDocs(t *rapid.T, label string, most int) []string {
	n := rapid.IntRange(0, 12).Draw(t, label+" length")
	docs := make([]string, 12)
	for i := range docs {
		docs[i] = fmt.Sprintf("d%d", i)
	}
	return rapid.Permutation(docs).Draw(t, label)[:min(n, most)]
}

func overlapAt(a, b []string, d int) float64 {
	n := 0.0
	for _, x := range a[:min(d, len(a))] {
		for _, y := range b[:min(d, len(b))] {
			if x == y {
				n++
			}
		}
	}
	return n
}

func TestRBOIsEquation32(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		short, long := drawDocs(t, "a", 12), drawDocs(t, "b", 12)
		p := rapid.Float64Range(0.01, 0.99).Draw(t, "p")
		if len(short) > len(long) {
			short, long = long, short
		}
		if len(short) == 0 {
			t.Skip("an empty list")
		}
		s, l := float64(len(short)), float64(len(long))
		xs, xl := overlapAt(short, long, len(short)), overlapAt(short, long, len(long))
		sum := 0.0
		for d := 1.0; d <= l; d++ {
			sum += overlapAt(short, long, int(d)) / d * math.Pow(p, d)
			if d > s {
				sum += xs * (d - s) / (s * d) * math.Pow(p, d)
			}
		}
		want := (1-p)/p*sum + ((xl-xs)/l+xs/s)*math.Pow(p, l)
		require.InDelta(t, want, rbo(t, short, long, p), 1e-12)
	})
}

func TestRBOProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawDocs(t, "a", 12), drawDocs(t, "b", 12)
		p := rapid.Float64Range(1e-6, 1-1e-6).Draw(t, "p")
		v := rbo(t, a, b, p)
		if !(v >= 0 && v <= 1) {
			t.Fatalf("RBO is %v", v)
		}
		require.Equal(t, v, rbo(t, b, a, p), "symmetry")
		require.Equal(t, 1.0, rbo(t, a, a, p), "identity")
		require.Equal(t, v, rbo(t, append(a, a...), b, p), "repetition")
	})
}

// hitsOf gives documents a, b, c, … these scores.
func hitsOf(scores ...float64) []eval.Hit {
	hits := make([]eval.Hit, len(scores))
	for i, s := range scores {
		hits[i] = eval.Hit{Doc: string(rune('a' + i)), Score: s, Rank: i + 1}
	}
	return hits
}

func TestKendallTauByHand(t *testing.T) {
	for _, tt := range []struct {
		name string
		a, b []eval.Hit
		ties eval.Ties
		want float64
		ok   bool
	}{
		{"one of 10 pairs is discordant", hitsOf(9, 8, 7, 6, 5), hitsOf(9, 7, 8, 6, 5), eval.TiesTREC, 0.8, true},
		{"opposite", hitsOf(1, 2, 3, 4), hitsOf(4, 3, 2, 1), eval.TiesTREC, -1, true},
		// Pairs ab ac bc: tied in a, concordant, concordant: 2/√(2·3).
		{"a tie", hitsOf(2, 2, 1), hitsOf(3, 2, 1), eval.TiesTREC, 2 / math.Sqrt(6), true},
		{"equal as float32", hitsOf(30.000000002, 30.000000001, 1), hitsOf(3, 2, 1), eval.TiesTREC, 2 / math.Sqrt(6), true},
		{"as float64", hitsOf(30.000000002, 30.000000001, 1), hitsOf(3, 2, 1), eval.TiesTREC10, 1, true},
		{"by rank", hitsOf(2, 2, 1), hitsOf(1, 2, 3), eval.TiesRank, 1, true},
		{"all tied", hitsOf(5, 5, 5), hitsOf(3, 2, 1), eval.TiesTREC, 0, false},
		{"all tied in the second", hitsOf(3, 2, 1), hitsOf(5, 5, 5), eval.TiesTREC, 0, false},
		{"one common document", hitsOf(3), hitsOf(3, 2, 1), eval.TiesTREC, 0, false},
		{"nothing", nil, nil, eval.TiesTREC, 0, false},
		{"only common documents count", []eval.Hit{{"x", 9, 1}, {"a", 8, 2}, {"y", 7, 3}, {"b", 6, 4}},
			hitsOf(2, 1, 0), eval.TiesTREC, 1, true},
		{"the first of a repeated document counts", []eval.Hit{{"a", 9, 1}, {"b", 8, 2}, {"a", 1, 3}},
			hitsOf(2, 1), eval.TiesTREC, 1, true},
	} {
		tau, ok := eval.KendallTau(tt.a, tt.b, tt.ties)
		require.Equal(t, tt.ok, ok, tt.name)
		require.InDelta(t, tt.want, tau, 1e-15, tt.name)
	}
}

// scipy.stats.kendalltau(a, b).statistic of scipy 1.17.1.
func TestKendallTauAgainstSciPy(t *testing.T) {
	for _, tt := range []struct {
		a, b []eval.Hit
		want float64
	}{
		{hitsOf(3, 3, 2, 1, 1, 0), hitsOf(5, 4, 4, 2, 1, 1), 0.8461538461538463},
		{hitsOf(12, 2, 1, 12, 2), hitsOf(1, 4, 7, 1, 0), -0.4714045207910316},
		{hitsOf(5, 5, 4, 4, 3, 3, 2, 2), hitsOf(1, 2, 3, 4, 4, 3, 2, 2), -0.08512565307587489},
	} {
		tau, ok := eval.KendallTau(tt.a, tt.b, eval.TiesTREC)
		require.True(t, ok)
		require.InDelta(t, tt.want, tau, 1e-14)
	}
}

func TestKendallTauCountsPairs(t *testing.T) {
	scores := rapid.SliceOfN(rapid.Float64Range(-3, 3), 0, 20)
	coarse := rapid.Custom(func(t *rapid.T) []eval.Hit {
		values := scores.Draw(t, "scores")
		for i := range values {
			values[i] = math.Round(values[i])
		}
		return hitsOf(values...)
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := coarse.Draw(t, "a"), coarse.Draw(t, "b")
		n := min(len(a), len(b))
		var balance, untiedA, untiedB float64
		for i := range n {
			for j := range i {
				da, db := a[i].Score-a[j].Score, b[i].Score-b[j].Score
				if da != 0 {
					untiedA++
				}
				if db != 0 {
					untiedB++
				}
				if da*db > 0 {
					balance++
				} else if da*db < 0 {
					balance--
				}
			}
		}
		tau, ok := eval.KendallTau(a, b, eval.TiesTREC)
		require.Equal(t, untiedA > 0 && untiedB > 0, ok)
		if ok {
			require.InDelta(t, balance/math.Sqrt(untiedA*untiedB), tau, 1e-15)
		}
		back, _ := eval.KendallTau(b, a, eval.TiesTREC)
		require.Equal(t, tau, back, "symmetry")
		if self, ok := eval.KendallTau(a, a, eval.TiesTREC); ok {
			require.Equal(t, 1.0, self, "identity")
		}
	})
}

func TestAgree(t *testing.T) {
	reference := runOf(t, "q1 a 1 9\nq1 b 2 8\nq1 c 3 7\nq2 a 1 9\nq2 b 2 8\nq3 a 1 5\n")
	run := runOf(t, "q1 b 1 9\nq1 a 2 8\nq1 c 3 7\nother a 1 9\nq2 b 1 2\nq2 a 2 3\n")
	got, err := eval.Agree(run, reference, eval.AgreementOptions{K: 1, P: 0.5})
	require.NoError(t, err)
	// q1: agreement 0, 1, 1 with weights 1/2, 1/4, … ; q2: the same order by score.
	require.Equal(t, []eval.QueryAgreement{
		{Query: "q1", InRun: true, Overlap: 0, RBO: 0.5, Tau: 1.0 / 3, TauOK: true},
		{Query: "q2", InRun: true, Overlap: 1, RBO: 1, Tau: 1, TauOK: true},
		{Query: "q3"},
	}, got.Queries)
	require.InDelta(t, 1.0/3, got.Overlap, 1e-15)
	require.InDelta(t, 0.5, got.RBO, 1e-15)
	require.InDelta(t, 2.0/3, got.Tau, 1e-15)
	require.Equal(t, 2, got.TauQueries)
	require.Equal(t, 1, got.Unmatched)

	// By rank q2 is reversed.
	got, err = eval.Agree(run, reference, eval.AgreementOptions{Ties: eval.TiesRank})
	require.NoError(t, err)
	require.Equal(t, -1.0, got.Queries[1].Tau)
	require.Equal(t, 1.0, got.Queries[1].Overlap)
	require.InDelta(t, 0.9, got.Queries[1].RBO, 1e-15)
	require.Equal(t, 10, got.K)
	require.Equal(t, 0.9, got.P)

	got, err = eval.Agree(nil, reference, eval.AgreementOptions{})
	require.NoError(t, err)
	require.Zero(t, got.Overlap+got.RBO+got.Tau)
	require.Zero(t, got.TauQueries)
}

func TestAgreeExcludeSelf(t *testing.T) {
	reference := runOf(t, "q q 1 9\nq a 2 8\nq b 3 7\n")
	run := runOf(t, "q a 1 9\nq b 2 8\n")
	got, err := eval.Agree(run, reference, eval.AgreementOptions{K: 2})
	require.NoError(t, err)
	require.Equal(t, 0.5, got.Overlap)
	got, err = eval.Agree(run, reference, eval.AgreementOptions{K: 2, ExcludeSelf: true})
	require.NoError(t, err)
	require.Equal(t, []float64{1, 1, 1}, []float64{got.Overlap, got.RBO, got.Tau})
	require.Len(t, reference.Hits("q"), 3)
}

func TestAgreementLeast(t *testing.T) {
	reference := runOf(t, "same a 1 2\nsame b 2 1\nswapped a 1 2\nswapped b 2 1\ngone a 1 1\nhalf a 1 2\nhalf b 2 1\n")
	run := runOf(t, "same a 1 2\nsame b 2 1\nswapped b 1 2\nswapped a 2 1\nhalf a 1 2\nhalf c 2 1\n")
	got, err := eval.Agree(run, reference, eval.AgreementOptions{})
	require.NoError(t, err)
	require.Equal(t, 3, got.Shared())
	names := func(n int) (queries []string) {
		for _, q := range got.Least(n) {
			queries = append(queries, q.Query)
		}
		return queries
	}
	require.Equal(t, []string{"gone", "half", "swapped"}, names(10))
	require.Equal(t, []string{"gone", "half"}, names(2))
	require.Empty(t, names(0))
	require.Empty(t, names(-1))
	require.Equal(t, "same", got.Queries[0].Query) // in their order still
}

func TestAgreeErrors(t *testing.T) {
	reference := runOf(t, "q a 1 9\n")
	_, err := eval.Agree(reference, nil, eval.AgreementOptions{})
	require.ErrorIs(t, err, eval.ErrUnpaired)
	_, err = eval.Agree(reference, new(eval.Run), eval.AgreementOptions{})
	require.ErrorIs(t, err, eval.ErrUnpaired)
	_, err = eval.Agree(reference, reference, eval.AgreementOptions{K: -1})
	require.ErrorIs(t, err, eval.ErrParameter)
	_, err = eval.Agree(reference, reference, eval.AgreementOptions{P: 1})
	require.ErrorIs(t, err, eval.ErrParameter)
}
