package quality

import (
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

// MeasuredRecall is the recall of searches for K documents: how much of the exhaustive results of some
// questions they return.
type MeasuredRecall struct {
	K         int `json:"k"`         // documents that each question asks for
	Questions int `json:"questions"` // number of questions
	// Recall is the mean share that was found, Worst the share of the worst question. Both are 1 if
	// there are no questions.
	Recall float64 `json:"recall"`
	Worst  float64 `json:"worst"`
	// Error is the standard error of Recall, at least the effect of a single document.
	Error float64 `json:"standard_error"`
}

// summarizeShares summarizes the shares of questions.
func summarizeShares(k int, shares []float64) MeasuredRecall {
	f := MeasuredRecall{K: k, Questions: len(shares), Recall: 1, Worst: 1}
	if len(shares) == 0 {
		return f
	}
	n, sum := float64(len(shares)), 0.0
	for _, s := range shares {
		sum += s
		f.Worst = min(f.Worst, s)
	}
	f.Recall = min(sum/n, 1)
	square := 0.0
	for _, s := range shares {
		square += float64((s - f.Recall) * (s - f.Recall))
	}
	if n > 1 {
		f.Error = math.Sqrt(square / (n - 1) / n)
	}
	f.Error = max(f.Error, 1/(n*float64(k)))
	return f
}

// sharesFound returns, for each query, the share of the first k documents of its reference that the
// result has.
func sharesFound(results []search.Result, reference [][]search.Hit, k int) []float64 {
	shares := make([]float64, len(results))
	for i := range results {
		shares[i] = shareFound(results[i].Hits, reference[i][:min(k, len(reference[i]))])
	}
	return shares
}

// DescribeClass describes the measured recall of a class of [storage.Defaults]. passages means that
// test questions were made from passages.
func DescribeClass(c storage.DefaultClass, passages bool) string {
	questions := "held-out queries"
	if passages {
		questions = "test questions"
	}
	text := fmt.Sprintf("finds %.2f %% (± %.2f) of the exhaustive result, %.0f %% for the worst of %d %s; "+
		"wanted %.4g and %.3g %%", 100*c.HeldOut, 100*c.Error, 100*c.Worst, c.Queries, questions,
		100*c.Target, 100*c.WorstTarget)
	if !c.Confirmed() {
		text += ", NOT REACHED"
	}
	return text
}
