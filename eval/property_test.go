package eval_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/eval"
)

var someMeasures = []string{
	"nDCG", "nDCG@3", "nDCG(dcg='exp-log2')@5", "AP", "AP(rel=2)@4", "RR", "RR@2", "R@3", "R(rel=2)@5",
	"P@3", "P(rel=2)@10", "Success@2", "Rprec", "Rprec(rel=2)", "Bpref", "Bpref(rel=2)", "Judged@3", "Hole@3",
}

// drawQuery draws the judgements and the hits of query q. Scores are few, so that
// ties are common.
func drawQuery(t *rapid.T) (*eval.Qrels, []eval.ScoredDocument) {
	qrels := new(eval.Qrels)
	n := rapid.IntRange(1, 12).Draw(t, "pool")
	add := func(doc string, grade int) { require.NoError(t, qrels.Add("q", doc, grade)) }
	add("never retrieved", rapid.IntRange(-1, 3).Draw(t, "grade"))
	var hits []eval.ScoredDocument
	for i := range n {
		doc := fmt.Sprintf("d%02d", i)
		if rapid.Bool().Draw(t, "judged") {
			add(doc, rapid.IntRange(-1, 3).Draw(t, "grade"))
		}
		if rapid.Bool().Draw(t, "retrieved") {
			hits = append(hits, eval.ScoredDocument{Doc: doc, Score: float64(rapid.IntRange(-2, 2).Draw(t, "score"))})
		}
	}
	return qrels, hits
}

func values(t *rapid.T, qrels *eval.Qrels, hits []eval.ScoredDocument, ties eval.Ties, names ...string) []float64 {
	ms, err := eval.ParseMeasures(names...)
	require.NoError(t, err)
	run := new(eval.Run)
	require.NoError(t, run.Add("q", hits...))
	res, err := eval.Evaluate(qrels, run, ms, eval.Options{Ties: ties})
	require.NoError(t, err)
	return res.Queries[0].Values
}

func TestMeasuresAreShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		qrels, hits := drawQuery(t)
		for i, v := range values(t, qrels, hits, eval.TiesTREC, someMeasures...) {
			if !(v >= 0 && v <= 1+1e-15) {
				t.Fatalf("%s is %v", someMeasures[i], v)
			}
		}
	})
}

func TestFileOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		qrels, hits := drawQuery(t)
		shuffled := rapid.Permutation(hits).Draw(t, "order")
		require.Equal(t, values(t, qrels, hits, eval.TiesTREC, someMeasures...),
			values(t, qrels, shuffled, eval.TiesTREC, someMeasures...))
	})
}

// Which of the unjudged documents stands at a place must not matter.
func TestUnjudgedTiesDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		qrels, hits := drawQuery(t)
		want := values(t, qrels, hits, eval.TiesRank, someMeasures...)
		judged := maps.Collect(qrels.Judgements("q"))
		var places []int
		for i, h := range hits {
			if _, ok := judged[h.Doc]; !ok {
				places = append(places, i)
			}
		}
		swapped := slices.Clone(hits)
		for i, from := range rapid.Permutation(places).Draw(t, "places") {
			swapped[places[i]] = hits[from]
		}
		require.Equal(t, want, values(t, qrels, swapped, eval.TiesRank, someMeasures...))
	})
}

func TestHitsBelowTheCutoffDoNotMatter(t *testing.T) {
	cut := []string{"nDCG@3", "nDCG(dcg='exp-log2')@3", "AP@3", "AP(rel=2)@3", "RR@3", "R@3", "P@3", "Success@3", "Judged@3", "Hole@3"}
	rapid.Check(t, func(t *rapid.T) {
		qrels, hits := drawQuery(t)
		if len(hits) < 3 {
			t.Skip("too few hits")
		}
		want := values(t, qrels, hits, eval.TiesTREC, cut...)
		more := slices.Clone(hits)
		for i := range rapid.IntRange(1, 5).Draw(t, "more") {
			more = append(more, eval.ScoredDocument{Doc: fmt.Sprintf("below %d", i), Score: -10})
		}
		more = append(more, eval.ScoredDocument{Doc: "never retrieved", Score: -10})
		require.Equal(t, want, values(t, qrels, more, eval.TiesTREC, cut...))
	})
}

// What is appended without being relevant changes no measure that has no cutoff;
// Bpref counts it where it is judged.
func TestIrrelevantHitsAtTheEndDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := []string{"nDCG", "nDCG(dcg='exp-log2')", "AP", "AP(rel=2)", "RR", "R@100", "P@100", "Success@100", "Rprec"}
		qrels, hits := drawQuery(t)
		judged := rapid.Bool().Draw(t, "judged")
		if !judged {
			whole = append(whole, "Bpref")
		}
		want := values(t, qrels, hits, eval.TiesTREC, whole...)
		more := slices.Clone(hits)
		for i := range rapid.IntRange(1, 5).Draw(t, "more") {
			doc := fmt.Sprintf("below %d", i)
			if judged {
				require.NoError(t, qrels.Add("q", doc, 0))
			}
			more = append(more, eval.ScoredDocument{Doc: doc, Score: -10})
		}
		require.Equal(t, want, values(t, qrels, more, eval.TiesTREC, whole...))
	})
}

// Moving a document of higher grade up by one place never lowers a measure that
// rewards early relevant documents.
func TestBetterOrderIsNotWorse(t *testing.T) {
	names := []string{"nDCG", "nDCG@3", "nDCG(dcg='exp-log2')@5", "AP", "AP(rel=2)@4", "RR", "R@3", "P@3", "Success@2", "Rprec"}
	rapid.Check(t, func(t *rapid.T) {
		qrels, hits := drawQuery(t)
		if len(hits) < 2 {
			t.Skip("too few hits")
		}
		i := rapid.IntRange(1, len(hits)-1).Draw(t, "place")
		judged := maps.Collect(qrels.Judgements("q"))
		grade := func(h eval.ScoredDocument) int { return max(judged[h.Doc], 0) }
		if grade(hits[i]) < grade(hits[i-1]) {
			t.Skip("in order already")
		}
		before := values(t, qrels, hits, eval.TiesRank, names...)
		better := slices.Clone(hits)
		better[i], better[i-1] = better[i-1], better[i]
		after := values(t, qrels, better, eval.TiesRank, names...)
		for j := range names {
			if after[j] < before[j]-1e-15 {
				t.Fatalf("%s falls from %v to %v", names[j], before[j], after[j])
			}
		}
	})
}

// The best order of all judged documents scores 1, or 0 if none is relevant.
func TestIdealRankingScoresOne(t *testing.T) {
	names := []string{"nDCG", "nDCG@2", "nDCG(dcg='exp-log2')@5", "AP", "RR", "R@100", "Success@1", "Rprec", "Bpref"}
	rapid.Check(t, func(t *rapid.T) {
		qrels, _ := drawQuery(t)
		var hits []eval.ScoredDocument
		relevant := false
		for doc, grade := range qrels.Judgements("q") {
			hits = append(hits, eval.ScoredDocument{Doc: doc, Score: float64(grade)})
			relevant = relevant || grade > 0
		}
		want := 0.0
		if relevant {
			want = 1
		}
		for i, v := range values(t, qrels, hits, eval.TiesTREC, names...) {
			require.InDelta(t, want, v, 1e-15, names[i])
		}
	})
}
