// Package search finds the documents of an index that score highest for a
// query by MaxSim.
//
// A [Searcher] answers queries. Those of this package are [Engine], over the newest
// snapshot of an index, and [Multi], over several indexes that have the same codec; on
// the processor or on devices. A search of the
// processor goes through stages, of which the plan leaves out those that do not
// pay:
//
//	centroid scores   S = C·Qᵀ
//	probe             the best centroids of each query token; the documents in
//	                  their postings are the candidates, of which a budget of
//	                  tokens goes on, those that most query tokens found
//	prune             approximate scores from centroids alone; the best go on
//	rerank            exact MaxSim over decoded vectors
//	refine            the same in float precision where the order is in doubt
//
// (PLAID, arXiv 2205.09707, section 4.) Results are ordered by score, then by
// order of insertion, and do not depend on threads or on other queries of a
// batch. How good they are is measured by package quality.
//
// Query, Options, Result and Description have a JSON form, which docs/formats.md
// describes.
package search

import (
	"context"
	"errors"
	"fmt"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// Searcher answers queries: an engine in this process, or whatever puts itself in
// front of some. It is safe for concurrent use.
//
// Every call is answered from one state of what is searched. Results are ordered
// by score; among equal scores by the part of the collection that a document is
// in, where a searcher has several, and in it by ordinal. An error comes without
// results, and a result without an error is complete.
//
// Fields may be added to the structs of this package: name them in literals.
type Searcher interface {
	// Search answers one query.
	Search(ctx context.Context, q Query, o Options) (*Result, error)
	// SearchBatch answers queries with the same options; results are in the order
	// of the queries. The first error, a [*QueryError] unless the context or the
	// searcher has ended, ends the batch.
	SearchBatch(ctx context.Context, qs []Query, o Options) ([]Result, error)
	// Describe says what is searched, as it is now.
	Describe(ctx context.Context) (Description, error)
	// Close ends the searches that run, with [ErrClosed], waits for them, and frees
	// what the searcher holds. It may be called more than once.
	Close() error
}

// Description says what a [Searcher] searches.
type Description struct {
	Docs      int64  `json:"docs"`      // live
	Passages  int64  `json:"passages"`  // in which some of them are stored
	Tokens    uint64 `json:"tokens"`    // of live documents
	Dim       int    `json:"dim"`       // of every vector
	Centroids int    `json:"centroids"` // of the codec
	Nbits     int    `json:"nbits"`     // of a residual's component
	// Pool is how many tokens of a document one vector stands for, about; 0: each has its own.
	Pool int `json:"pool,omitempty"`
	// Model is what made the vectors; nil if nobody said.
	Model *storage.Model `json:"model,omitempty"`
	// Generation counts the times that documents were renumbered or coded anew.
	// Lineage is the same as long as ordinals mean the same documents; it says
	// nothing in another process.
	Generation uint64 `json:"generation"`
	Lineage    uint64 `json:"lineage,string"`
	// Backend names the kernels of the processor, Threads is how many goroutines a
	// call may have.
	Backend string `json:"backend"`
	Threads int    `json:"threads"`
	// Device names the device that searches, Memory is what it keeps there; "" and
	// nil: the processor searches.
	Device string              `json:"device,omitempty"`
	Memory *kernels.MemoryPlan `json:"device_memory,omitempty"`
	// Parts are the indexes, where several are searched as one.
	Shards []ShardDescription `json:"shards,omitempty"`
}

// Errors of this package; test with errors.Is.
var (
	// ErrQuery: a query without tokens, with too many, of another dimension, or
	// with a value that is not finite or beyond ±10¹².
	ErrQuery = errors.New("bad query")
	// ErrOption: an option out of range. It is an [index.ErrOption], too.
	ErrOption error = &sentinel{"bad search option", index.ErrOption}
	// ErrUnknownID: a filter or candidate list names a document that is not there. It is
	// an [index.ErrNotFound], too.
	ErrUnknownID error = &sentinel{"no such document", index.ErrNotFound}
	// ErrClosed: the searcher has been closed, before the search or during it. It is a
	// [storage.ErrClosed], too.
	ErrClosed error = &sentinel{"searcher is closed", storage.ErrClosed}
)

// sentinel is an error that is a kind of another.
type sentinel struct {
	text   string
	parent error
}

func (k *sentinel) Error() string { return k.text }
func (k *sentinel) Unwrap() error { return k.parent }

// QueryError says which query of a batch failed. What concerns all queries is the
// error of the first.
type QueryError struct {
	Index int // from 0
	Err   error
}

func (e *QueryError) Error() string { return fmt.Sprintf("query %d: %v", e.Index, e.Err) }

// Unwrap returns the cause.
func (e *QueryError) Unwrap() error { return e.Err }
