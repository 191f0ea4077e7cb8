package search

import (
	"time"

	"github.com/plaid-ir/plaid/kernels"
)

// Hit is a document of a result.
type Hit struct {
	ID      string  `json:"id"`
	Ordinal uint32  `json:"ordinal"` // place in the order of insertion
	Score   float32 `json:"score"`
	Payload Payload `json:"payload,omitzero"` // nil unless asked for
}

// Result of one query.
type Result struct {
	Hits  []Hit `json:"hits"`
	Stats Stats `json:"stats"`
}

// Stats says what searches did; those of several searches add up with Add.
type Stats struct {
	Queries     int `json:"queries"`
	QueryTokens int `json:"query_tokens"`
	// Plans counts queries by plan; see [Plan]. A query that no document may
	// answer has none.
	Plans map[string]int `json:"plans,omitempty"`

	Allowed       int64 `json:"allowed_docs"`    // live, not empty, and through the filter
	FilterMissing int64 `json:"missing_ids"`     // ids of filters and candidate lists that name nothing
	Probed        int64 `json:"probed_lists"`    // distinct centroids
	Postings      int64 `json:"postings"`        // entries of their lists
	Candidates    int64 `json:"candidates"`      // documents in them that are allowed; without probing, all allowed ones
	Widened       int64 `json:"widened_queries"` // whose candidates were fewer than K, so that all allowed documents became candidates
	ApproxDocs    int64 `json:"approx_docs"`
	ApproxTokens  int64 `json:"approx_tokens"`
	ExactDocs     int64 `json:"exact_docs"`
	ExactTokens   int64 `json:"exact_tokens"`
	RefinedDocs   int64 `json:"refined_docs"`

	Times Times `json:"times"`
	// Device says what a device did, where one searched.
	Device *kernels.DeviceStats `json:"device,omitempty"`
}

// Times of the stages, in nanoseconds of elapsed time.
type Times struct {
	Wait      time.Duration `json:"wait_ns"` // for the scheduler; not part of the total
	Centroids time.Duration `json:"centroids_ns"`
	Probe     time.Duration `json:"probe_ns"`
	Approx    time.Duration `json:"approx_ns"`
	Exact     time.Duration `json:"exact_ns"`
	Refine    time.Duration `json:"refine_ns"`
	Total     time.Duration `json:"total_ns"`
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
	s.Times.Wait += o.Times.Wait
	s.Times.Centroids += o.Times.Centroids
	s.Times.Probe += o.Times.Probe
	s.Times.Approx += o.Times.Approx
	s.Times.Exact += o.Times.Exact
	s.Times.Refine += o.Times.Refine
	s.Times.Total += o.Times.Total
	if o.Device == nil {
		return
	}
	if s.Device == nil {
		s.Device = new(kernels.DeviceStats)
	}
	s.Device.Add(*o.Device)
}

// timed adds the time until the returned function is called.
func timed(d *time.Duration) func() {
	start := time.Now()
	return func() { *d += time.Since(start) }
}
