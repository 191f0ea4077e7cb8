package quality

import (
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

// Found is how much of the exhaustive results of some questions searches for K documents return.
type Found struct {
	K         int `json:"k"`
	Questions int `json:"questions"`
	// Recall is the mean share that was found, Worst that of the worst question; 1 without any.
	Recall float64 `json:"recall"`
	Worst  float64 `json:"worst"`
	// Error is the standard error of Recall, and at least that of one document more or less.
	Error float64 `json:"standard_error"`
}

// summarizeShares sums up shares of questions.
func summarizeShares(k int, shares []float64) Found {
	f := Found{K: k, Questions: len(shares), Recall: 1, Worst: 1}
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

// sharesFound is what results have of the first k of each reference, query by query.
func sharesFound(results []search.Result, reference [][]search.Hit, k int) []float64 {
	shares := make([]float64, len(results))
	for i := range results {
		shares[i] = shareFound(results[i].Hits, reference[i][:min(k, len(reference[i]))])
	}
	return shares
}

// InWords says what searches of a class were seen to find; passages is that of its
// [storage.Defaults].
func InWords(c storage.DefaultClass, passages bool) string {
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
