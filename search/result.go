package search

import (
	"time"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
)

// Hit is a document of a result.
type Hit struct {
	ID      string  `json:"id"`                // id of the document
	Shard   int     `json:"shard,omitempty"`   // index of its shard, from 0
	Ordinal uint32  `json:"ordinal"`           // position in the order of insertion, in its index
	Score   float32 `json:"score"`             // MaxSim
	Payload Payload `json:"metadata,omitzero"` // nil unless requested
	// Passages are the best passages of the document, where hits are grouped ([Options].Group); a
	// document without passages has itself. Ordinal is that of the first.
	Passages []Hit `json:"passages,omitempty"`
	// Passage is the range of a hit of Passages in the text of its document. nil means all of it.
	Passage *vectors.Passage `json:"passage,omitempty"`
	// Matches has an entry for each query token, if requested.
	Matches []Match `json:"matches,omitempty"`
	// Tokens is the number of the document's tokens, where there are Matches.
	Tokens int `json:"tokens,omitempty"`
}

// Result is the result of one query.
type Result struct {
	Hits  []Hit `json:"hits"`  // best first
	Stats Stats `json:"stats"` // what the search did
	// K is the number of documents requested.
	K int `json:"k,omitempty"`
	// Offset is how many better documents were skipped.
	Offset int `json:"offset,omitempty"`
	// Coverage is the part of the collection that was searched.
	Coverage Coverage `json:"coverage,omitzero"`
}

// Floor returns the score of the last of K hits of a search without Offset and MinScore: no scored
// document that is missing from the hits scores more. ok is false if fewer than K documents match,
// so that none is missing. A caller that merges the results of shards, and requests fewer documents
// from each than it wants in all, must search a shard again if its floor is not below the last
// merged hit.
func (r *Result) Floor() (score float32, ok bool) {
	if r.K == 0 || len(r.Hits) < r.K {
		return 0, false
	}
	return r.Hits[len(r.Hits)-1].Score, true
}

// Coverage is the part of a collection that a result covers.
type Coverage struct {
	// Docs is the number of live documents in the shards that were searched, TotalDocs that in all
	// shards.
	Docs      int64 `json:"docs"`
	TotalDocs int64 `json:"of"`
	// Shards is how many the collection has.
	Shards int `json:"shards"`
	// Missing are the shards that were not searched. A searcher of this package returns an error
	// instead; others may offer partial results.
	Missing []MissingShard `json:"missing,omitempty"`
}

// Complete reports whether the result covers the whole collection.
func (c *Coverage) Complete() bool { return len(c.Missing) == 0 && c.Docs == c.TotalDocs }

// MissingShard is a shard that was not searched.
type MissingShard struct {
	Shard  int    `json:"shard"`  // as in [Hit]
	Name   string `json:"name"`   // of the shard
	Docs   int64  `json:"docs"`   // live ones in it
	Reason string `json:"reason"` // why it was not searched
}

// Stats counts the work of searches. Add sums up the counts of several.
type Stats struct {
	Queries     int `json:"queries"`      // that were answered
	QueryTokens int `json:"query_tokens"` // that took part
	// Plans counts queries by plan; see [Plan]. A query whose filter allows no document has no
	// plan.
	Plans map[string]int `json:"plans,omitempty"`

	Allowed       int64 `json:"allowed_docs"`    // live, not empty, and allowed by the filter
	FilterMissing int64 `json:"missing_ids"`     // ids of filters and candidate lists that name no document
	Probed        int64 `json:"probed_lists"`    // distinct centroids
	Postings      int64 `json:"postings"`        // entries of their lists
	Candidates    int64 `json:"candidates"`      // allowed documents in these lists, or all
	Widened       int64 `json:"widened_queries"` // found fewer than K and made all candidates
	ApproxDocs    int64 `json:"approx_docs"`     // documents that got a score from centroids alone
	ApproxTokens  int64 `json:"approx_tokens"`   // of these documents
	ExactDocs     int64 `json:"exact_docs"`      // documents that got an exact score
	ExactTokens   int64 `json:"exact_tokens"`    // of these documents
	RefinedDocs   int64 `json:"refined_docs"`    // documents scored again in float precision
	// BoundShare is the largest share of its error bound that a coarse score used up, among
	// documents that got a fine score, too.
	BoundShare float64 `json:"bound_share"`
	// WorstBound counts queries that used the worst bound because errors came near the probable one.
	WorstBound int64 `json:"worst_bound_queries"`

	// FeedbackCut is how many tokens of feedback did not fit their queries.
	FeedbackCut int `json:"feedback_cut,omitempty"`

	// Shards has an entry for each index, where several are searched as one.
	Shards []ShardStats `json:"shards,omitempty"`

	Times Times `json:"times"` // of the stages
	// Device has the statistics of the device, if one searched.
	Device *kernels.DeviceStats `json:"device,omitempty"`
}

// ShardStats counts the work of searches in one of several shards.
type ShardStats struct {
	Shard      int   `json:"shard"`        // as in [Hit]
	Allowed    int64 `json:"allowed_docs"` // allowed by the filter
	Candidates int64 `json:"candidates"`   // that probing found
	ExactDocs  int64 `json:"exact_docs"`   // that got an exact score
	Hits       int64 `json:"hits"`         // among the best of all
}

// Times are the elapsed times of the stages, in nanoseconds.
type Times struct {
	Wait      time.Duration `json:"wait_ns"`      // for the scheduler; not part of the total
	Centroids time.Duration `json:"centroids_ns"` // scores of all centroids
	Probe     time.Duration `json:"probe_ns"`     // reading posting lists
	Approx    time.Duration `json:"approx_ns"`    // scores from centroids alone
	Exact     time.Duration `json:"exact_ns"`     // exact scores
	Refine    time.Duration `json:"refine_ns"`    // scores in float precision
	Total     time.Duration `json:"total_ns"`     // from the beginning of the first stage
}

// Add adds the figures of another search.
func (s *Stats) Add(o Stats) {
	s.Queries += o.Queries
	s.QueryTokens += o.QueryTokens
	for name, n := range o.Plans {
		if s.Plans == nil {
			s.Plans = map[string]int{}
		}
		s.Plans[name] += n
	}
	s.Allowed += o.Allowed
	s.FilterMissing += o.FilterMissing
	s.Probed += o.Probed
	s.Postings += o.Postings
	s.Candidates += o.Candidates
	s.Widened += o.Widened
	s.ApproxDocs += o.ApproxDocs
	s.ApproxTokens += o.ApproxTokens
	s.ExactDocs += o.ExactDocs
	s.ExactTokens += o.ExactTokens
	s.RefinedDocs += o.RefinedDocs
	s.BoundShare = max(s.BoundShare, o.BoundShare)
	s.WorstBound += o.WorstBound
	s.FeedbackCut += o.FeedbackCut
	s.Times.Wait += o.Times.Wait
	s.Times.Centroids += o.Times.Centroids
	s.Times.Probe += o.Times.Probe
	s.Times.Approx += o.Times.Approx
	s.Times.Exact += o.Times.Exact
	s.Times.Refine += o.Times.Refine
	s.Times.Total += o.Times.Total
	for i, p := range o.Shards {
		if i == len(s.Shards) {
			s.Shards = append(s.Shards, ShardStats{Shard: p.Shard})
		}
		sum := &s.Shards[i]
		sum.Allowed += p.Allowed
		sum.Candidates += p.Candidates
		sum.ExactDocs += p.ExactDocs
		sum.Hits += p.Hits
	}
	if o.Device == nil {
		return
	}
	if s.Device == nil {
		s.Device = new(kernels.DeviceStats)
	}
	s.Device.Add(*o.Device)
}

// addElapsed adds the time until the returned function is called.
func addElapsed(d *time.Duration) func() {
	start := time.Now()
	return func() { *d += time.Since(start) }
}
