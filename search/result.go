package search

import (
	"time"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
)

// Hit is a document of a result.
type Hit struct {
	ID      string  `json:"id"`                // of the document
	Shard   int     `json:"shard,omitempty"`   // place of its index among those that are searched as one; 0: the first, or the only one
	Ordinal uint32  `json:"ordinal"`           // place in the order of insertion, in its index
	Score   float32 `json:"score"`             // MaxSim
	Payload Payload `json:"metadata,omitzero"` // nil unless asked for
	// Passages are the best ones of a document, where hits are grouped ([Options].Group);
	// a document without passages is one of itself. Ordinal is that of the first.
	Passages []Hit `json:"passages,omitempty"`
	// Passage says where a hit of Passages is in the text of its document; nil: it is all.
	Passage *vectors.Passage `json:"passage,omitempty"`
	// Matches has an entry for each query token, if asked for.
	Matches []Match `json:"matches,omitempty"`
	// Tokens is how many the document has, where there are Matches.
	Tokens int `json:"tokens,omitempty"`
}

// Result of one query.
type Result struct {
	Hits  []Hit `json:"hits"`  // best first
	Stats Stats `json:"stats"` // what the search did
	// K is how many documents were asked for.
	K int `json:"k,omitempty"`
	// Offset is how many better documents were passed over.
	Offset int `json:"offset,omitempty"`
	// Coverage says of how much of the collection this is the result.
	Coverage Coverage `json:"coverage,omitzero"`
}

// Floor is the score of the last of K hits of a search without Offset and MinScore: no document that
// was scored and is not among them scores more. ok is false where fewer than K match, so that there are no
// others. Whoever merges results of parts of a collection, each asked for fewer
// documents than are wanted in all, has to ask a part again whose floor is not below
// the last of the merged hits.
func (r *Result) Floor() (score float32, ok bool) {
	if r.K == 0 || len(r.Hits) < r.K {
		return 0, false
	}
	return r.Hits[len(r.Hits)-1].Score, true
}

// Coverage says of how much of a collection a result is.
type Coverage struct {
	// Docs is how many live documents there are in the parts that were searched, Of in
	// all.
	Docs int64 `json:"docs"`
	Of   int64 `json:"of"`
	// Parts is of how many the collection consists.
	Shards int `json:"shards"`
	// Missing are those that were not searched. A searcher of this package returns an
	// error instead; others may be asked for partial results.
	Missing []MissingShard `json:"missing,omitempty"`
}

// Complete says that the result is of the whole collection.
func (c *Coverage) Complete() bool { return len(c.Missing) == 0 && c.Docs == c.Of }

// MissingShard is a part of a collection that was not searched.
type MissingShard struct {
	Shard  int    `json:"shard"`  // as in [Hit]
	Name   string `json:"name"`   // of the part
	Docs   int64  `json:"docs"`   // live ones in it
	Reason string `json:"reason"` // why it was not searched
}

// Stats says what searches did; those of several searches add up with Add.
type Stats struct {
	Queries     int `json:"queries"`      // that were answered
	QueryTokens int `json:"query_tokens"` // that took part
	// Plans counts queries by plan; see [Plan]. A query that no document may
	// answer has none.
	Plans map[string]int `json:"plans,omitempty"`

	Allowed       int64 `json:"allowed_docs"`    // live, not empty, and through the filter
	FilterMissing int64 `json:"missing_ids"`     // ids of filters and candidate lists that name nothing
	Probed        int64 `json:"probed_lists"`    // distinct centroids
	Postings      int64 `json:"postings"`        // entries of their lists
	Candidates    int64 `json:"candidates"`      // documents in them that are allowed; without probing, all allowed ones
	Widened       int64 `json:"widened_queries"` // whose candidates were fewer than K, so that all allowed documents became candidates
	ApproxDocs    int64 `json:"approx_docs"`     // documents that got a score from centroids alone
	ApproxTokens  int64 `json:"approx_tokens"`   // of these documents
	ExactDocs     int64 `json:"exact_docs"`      // documents that got an exact score
	ExactTokens   int64 `json:"exact_tokens"`    // of these documents
	RefinedDocs   int64 `json:"refined_docs"`    // documents scored again in float precision
	// BoundShare is how much of the bound of their errors coarse scores have used
	// up, at most, of documents that have a fine one as well.
	BoundShare float64 `json:"bound_share"`
	// Worst counts queries that took the worst bound, since errors came near the
	// probable one.
	Worst int64 `json:"worst_bound_queries"`

	// FeedbackCut is how many tokens feedback would have added to queries that had no room for them.
	FeedbackCut int `json:"feedback_cut,omitempty"`

	// Parts has an entry for each index, where several are searched as one.
	Shards []ShardStats `json:"shards,omitempty"`

	Times Times `json:"times"` // of the stages
	// Device says what a device did, where one searched.
	Device *kernels.DeviceStats `json:"device,omitempty"`
}

// ShardStats says what searches did in one of several indexes.
type ShardStats struct {
	Shard      int   `json:"shard"`        // as in [Hit]
	Allowed    int64 `json:"allowed_docs"` // that the filter lets through
	Candidates int64 `json:"candidates"`   // that probing found
	ExactDocs  int64 `json:"exact_docs"`   // that got an exact score
	Hits       int64 `json:"hits"`         // among the best of all
}

// Times of the stages, in nanoseconds of elapsed time.
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
	s.Worst += o.Worst
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
