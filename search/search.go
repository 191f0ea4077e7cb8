// Package search finds the documents of an index that score highest for a query by MaxSim.
//
// A [Searcher] answers queries. This package has two: [Engine] searches the newest snapshot of an
// index, [Multi] searches several indexes with the same codec; both use the processor or devices. A
// search on the processor goes through these stages; the plan skips stages that do not pay:
//
//	centroid scores   S = C·Qᵀ
//	probe             selects the best centroids of each query token; the documents in
//	                  their postings are the candidates; those that most query tokens
//	                  found remain, up to a budget of tokens
//	prune             computes approximate scores from centroids alone; the best remain
//	rerank            computes exact MaxSim over decoded vectors
//	refine            computes it again in float precision where the order is in doubt
//
// (PLAID, arXiv 2205.09707, section 4.) Results are ordered by score, then by order of insertion.
// They do not depend on threads or on other queries of a batch. Package quality measures how good
// they are.
//
// Query, Options, Result and Description have a JSON form, which docs/formats.md describes.
package search

import (
	"context"
	"fmt"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/errkind"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// Searcher answers queries: an engine in this process, or a type that forwards to engines. It is
// safe for concurrent use.
//
// Every call is answered from one snapshot. Results are ordered by score; documents with equal
// scores are ordered by shard, where the searcher has several, and within a shard by ordinal. An
// error comes without results, and a result without an error is complete.
//
// Fields may be added to the structs of this package: name them in literals.
type Searcher interface {
	// Search answers one query.
	Search(ctx context.Context, q Query, o Options) (*Result, error)
	// SearchBatch answers queries with the same options; results are in the order
	// of the queries. The first error, a [*QueryError] unless the context or the
	// searcher has ended, ends the batch.
	SearchBatch(ctx context.Context, qs []Query, o Options) ([]Result, error)
	// Describe returns the sizes and settings of the index as it is now.
	Describe(ctx context.Context) (Description, error)
	// Close ends the searches that run, with [ErrClosed], waits for them, and frees
	// the memory of the searcher, on devices, too. It may be called more than once.
	Close() error
}

// Description holds the sizes and settings of the index that a [Searcher] searches.
type Description struct {
	Docs      int64  `json:"docs"`      // live
	Passages  int64  `json:"passages"`  // in which some of these documents are stored
	Tokens    uint64 `json:"tokens"`    // of live documents
	Dim       int    `json:"dim"`       // of every vector
	Centroids int    `json:"centroids"` // of the codec
	Nbits     int    `json:"nbits"`     // of a residual's component
	// Pool is about how many tokens of a document share one vector. 0 means one vector a token.
	Pool int `json:"pool,omitempty"`
	// Model is the model that made the vectors. nil means unknown.
	Model *storage.Model `json:"model,omitempty"`
	// Generation counts how often documents were renumbered or encoded again.
	// Lineage stays the same as long as ordinals name the same documents. It is valid in this
	// process only.
	Generation uint64 `json:"generation"`
	Lineage    uint64 `json:"lineage,string"`
	// Backend names the kernels of the processor. Threads limits the goroutines of a call.
	Backend string `json:"backend"`
	Threads int    `json:"threads"`
	// Device names the device that searches, and Memory describes its allocations. Both are
	// empty if the processor searches.
	Device string              `json:"device,omitempty"`
	Memory *kernels.MemoryPlan `json:"device_memory,omitempty"`
	// Shards describes the indexes, where several are searched as one.
	Shards []ShardDescription `json:"shards,omitempty"`
}

// Errors of this package; test with errors.Is.
var (
	// ErrQuery reports a query without tokens, with too many, of another dimension, or
	// with a value that is not finite or beyond ±10¹².
	ErrQuery = errkind.New(errkind.BadRequest, "bad query")
	// ErrOption reports an option that is out of range. It is also an [index.ErrOption].
	ErrOption error = &sentinel{"bad search option", index.ErrOption}
	// ErrUnknownID reports that a filter or candidate list names a document that does not
	// exist. It is also an [index.ErrNotFound].
	ErrUnknownID error = &sentinel{"no such document", index.ErrNotFound}
	// ErrClosed reports that the searcher was closed before or during the search. It is also a
	// [storage.ErrClosed].
	ErrClosed error = &sentinel{"searcher is closed", storage.ErrClosed}
)

// sentinel is an error value that wraps a more general one.
type sentinel struct {
	text   string
	parent error
}

func (s *sentinel) Error() string { return s.text }
func (s *sentinel) Unwrap() error { return s.parent }

// QueryError names the query of a batch that failed. An error that concerns all queries is reported
// for the first.
type QueryError struct {
	Index int // from 0
	Err   error
}

func (e *QueryError) Error() string { return fmt.Sprintf("query %d: %v", e.Index, e.Err) }

// Unwrap returns the cause.
func (e *QueryError) Unwrap() error { return e.Err }
