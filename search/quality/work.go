package quality

import "github.com/plaid-ir/plaid/search"

// What the steps of a search cost, in tokens scored by centroids. They are of one
// processor (docs/lab/search-quality.md) and need not be exact: settings are compared that
// differ in how much they do of each step.
const (
	centroidWork = 60  // a centroid against the tokens of a query
	listWork     = 400 // a posting list that is read
	entryWork    = 10  // a document in it
	exactWork    = 20  // a token scored exactly
	refineWork   = 40  // and in float precision
)

// work is what a query took, on average, in tokens scored by centroids: counted, so
// that it is the same on a busy machine. On a device there is nothing to count, and
// it is the time in nanoseconds.
func work(s *search.Stats, centroids int) float64 {
	n := float64(max(s.Queries, 1))
	if s.Device != nil {
		return float64(s.Times.Total) / n
	}
	byCentroids := s.Plans[search.PlanProbe.String()] + s.Plans[search.PlanScan.String()]
	meanTokens := float64(s.ExactTokens) / float64(max(s.ExactDocs, 1))
	return (float64(byCentroids)*centroidWork*float64(centroids) + listWork*float64(s.Probed) + entryWork*float64(s.Postings) +
		float64(s.ApproxTokens) + exactWork*float64(s.ExactTokens) + refineWork*meanTokens*float64(s.RefinedDocs)) / n
}
