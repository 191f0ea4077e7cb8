// Package search finds the documents of an index that score highest for a
// query by MaxSim.
//
// An [Engine] answers queries from the newest snapshot of an index. A search
// goes through stages, of which the plan leaves out those that do not pay:
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
// batch.
package search

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

// Errors of this package; test with errors.Is.
var (
	// ErrQuery: a query without tokens, with too many, of another dimension, or
	// with a value that is not finite or beyond ±10¹².
	ErrQuery = errors.New("bad query")
	// ErrOption: an option out of range.
	ErrOption = errors.New("bad search option")
	// ErrUnknownID: a filter or candidate list names a document that is not there.
	ErrUnknownID = errors.New("no such document")
)

// Mode chooses which documents are scored exactly.
type Mode int

const (
	// Pruned scores those that survive probing and pruning.
	Pruned Mode = iota
	// Exhaustive scores every live document.
	Exhaustive
	// Candidates scores the documents of Options.Candidates.
	Candidates
)

var modeNames = map[Mode]string{Pruned: "pruned", Exhaustive: "exhaustive", Candidates: "candidates"}

func (m Mode) String() string { return modeNames[m] }

// ParseMode is the inverse of Mode.String.
func ParseMode(s string) (Mode, error) {
	for m, name := range modeNames {
		if name == s {
			return m, nil
		}
	}
	return 0, fmt.Errorf("%w: mode %q; there are pruned, exhaustive and candidates", ErrOption, s)
}

// Query is one query. Like documents, its vectors are scaled to unit length
// unless the index was built without.
type Query struct {
	// Vectors is [Lq, dim], row-major.
	Vectors []float32
	// Dim, where set, must be the dimension of the index. Vectors alone do not
	// tell one vector of 256 from two of 128.
	Dim int
	// Mask, where set, has an entry a token; a token whose entry is false takes
	// no part.
	Mask []bool
	// Weights, where set, has a factor for each token's maximum.
	Weights []float32
}

// Options of a search. The zero value returns the ten best documents.
type Options struct {
	// K is how many documents to return; 0: 10. Fewer come back only when fewer
	// match.
	K    int
	Mode Mode
	// Probes is the number of centroids probed for each query token. Approx
	// bounds the documents that get an approximate score, Exact is how many get
	// an exact one (at least K). 0: derived from K, the collection and what the
	// first scores of the query say, for each query anew; see [Plan].
	Probes, Approx, Exact int
	// Derive leaves aside what the index has stored as its defaults, which a
	// search without a filter that names none of the three uses otherwise.
	Derive bool
	// Filter restricts the result; nil: no restriction.
	Filter *Filter
	// Candidates names the documents that mode Candidates scores.
	Candidates []string
	// AllowMissing lets Candidates name documents that are not there.
	AllowMissing bool
	// Payload returns what was stored beside the documents.
	Payload bool

	filtered func() (filtered, error) // Filter resolved, once for a batch
}

// Hit is a document of a result.
type Hit struct {
	ID      string
	Ordinal uint32
	Score   float32
	Payload []byte // nil unless asked for
}

// Result of one query.
type Result struct {
	Hits  []Hit
	Stats Stats
}

// Engine answers queries. It is safe for concurrent use.
type Engine struct {
	ix      *index.Index
	pinned  *index.Snapshot
	threads int
	pool    sync.Pool // of *run
	device  *onDevice // nil: the processor searches
}

// New returns an engine for an index. Each search sees the index as it is when
// the search begins. threads bounds the goroutines of one call; 0: one a
// processor.
func New(ix *index.Index, threads int) *Engine {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	return &Engine{ix: ix, threads: threads}
}

// NewAt returns an engine for one snapshot, which the caller closes when done
// with the engine.
func NewAt(snap *index.Snapshot, threads int) *Engine {
	e := New(nil, threads)
	e.pinned = snap
	return e
}

func (e *Engine) snapshot() (snap *index.Snapshot, done func(), err error) {
	if e.pinned != nil {
		return e.pinned, func() {}, nil
	}
	if snap, err = e.ix.Snapshot(); err != nil {
		return nil, nil, err
	}
	return snap, func() { _ = snap.Close() }, nil
}

// Search answers one query.
//
// Errors: [ErrQuery], [ErrOption], [ErrUnknownID], [storage.ErrCorrupt], and
// those of the context.
func (e *Engine) Search(ctx context.Context, q Query, o Options) (*Result, error) {
	snap, done, err := e.snapshot()
	if err != nil {
		return nil, err
	}
	defer done()
	if e.device != nil {
		return e.device.one(ctx, snap, q, o)
	}
	return e.one(ctx, snap, q, o, e.threads, nil)
}

// QueryError says which query of a batch failed.
type QueryError struct {
	Index int // from 0
	Err   error
}

func (e *QueryError) Error() string { return fmt.Sprintf("query %d: %v", e.Index, e.Err) }

// Unwrap returns the cause.
func (e *QueryError) Unwrap() error { return e.Err }

// SearchBatch answers queries on one snapshot; results are in the order of the
// queries. The first error, a [*QueryError], ends the batch.
func (e *Engine) SearchBatch(ctx context.Context, qs []Query, o Options) ([]Result, error) {
	snap, done, err := e.snapshot()
	if err != nil {
		return nil, err
	}
	defer done()
	if e.device != nil {
		return e.device.answer(ctx, snap, qs, o)
	}
	o.resolveOnce(snap)
	inside := max(e.threads/max(len(qs), 1), 1) // threads left for each query
	results := make([]Result, len(qs))
	err = parallel(ctx, snap.Path(), e.threads, len(qs), func(i int) error {
		r, err := e.one(ctx, snap, qs[i], o, inside, nil)
		if err != nil {
			return &QueryError{Index: i, Err: err}
		}
		results[i] = *r
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// one runs a query on a pooled run.
func (e *Engine) one(ctx context.Context, snap *index.Snapshot, q Query, o Options, threads int, t *trace) (res *Result, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.K == 0 {
		o.K = defaultK
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := o.useStored(snap); err != nil {
		return nil, err
	}
	vectors, weights, err := q.tokens(snap)
	if err != nil {
		return nil, err
	}
	defer storage.Guard(snap.Path(), &err)()
	r, _ := e.pool.Get().(*run)
	if r == nil || r.scorer != snap.Scorer() {
		r = &run{scorer: snap.Scorer(), query: snap.Scorer().NewQuery()}
	}
	r.ctx, r.snap, r.o, r.threads, r.trace, r.stats = ctx, snap, o, threads, t, Stats{Queries: 1}
	res, err = r.do(vectors, weights)
	r.ctx, r.snap, r.trace, r.o = nil, nil, nil, Options{}
	e.pool.Put(r)
	return res, err
}

func (o *Options) validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s", ErrOption, fmt.Sprintf(format, args...)))
	}
	if o.K < 0 {
		bad("k = %d; at least 1 is needed", o.K)
	}
	if o.Probes < 0 || o.Approx < 0 || o.Exact < 0 {
		bad("probes %d, approximate budget %d, exact budget %d: none may be negative", o.Probes, o.Approx, o.Exact)
	}
	if _, ok := modeNames[o.Mode]; !ok {
		bad("mode %d", o.Mode)
	}
	if o.Mode == Candidates && o.Candidates == nil {
		bad("mode candidates without a list of candidates")
	}
	if o.Mode != Candidates && o.Candidates != nil {
		bad("a list of candidates in mode %v", o.Mode)
	}
	return errors.Join(errs...)
}

const (
	// maxScoreBytes bounds the table of centroid scores of one query.
	maxScoreBytes = 1 << 30
	// maxMagnitude bounds the length of a query vector, and a weight, so that no
	// product or sum leaves the range of float32.
	maxMagnitude = 1e12
)

// tokens checks a query and returns the vectors that take part, scaled to unit
// length where the documents are, and their weights.
func (q *Query) tokens(snap *index.Snapshot) (vectors, weights []float32, err error) {
	dim := snap.Dim()
	if q.Dim != 0 && q.Dim != dim {
		return nil, nil, fmt.Errorf("%w: dimension %d; the index has %d", ErrQuery, q.Dim, dim)
	}
	if len(q.Vectors) == 0 {
		return nil, nil, fmt.Errorf("%w: it has no tokens", ErrQuery)
	}
	if len(q.Vectors)%dim != 0 {
		return nil, nil, fmt.Errorf("%w: %d values are no whole vectors of dimension %d", ErrQuery, len(q.Vectors), dim)
	}
	n := len(q.Vectors) / dim
	if q.Mask != nil && len(q.Mask) != n || q.Weights != nil && len(q.Weights) != n {
		return nil, nil, fmt.Errorf("%w: %d tokens with a mask of %d and %d weights", ErrQuery, n, len(q.Mask), len(q.Weights))
	}
	if limit := maxScoreBytes / 4 / snap.Header().Centroids; n > limit {
		return nil, nil, fmt.Errorf("%w: %d tokens; with the %d centroids of this index at most %d are possible",
			ErrQuery, n, snap.Header().Centroids, limit)
	}
	vectors = make([]float32, 0, len(q.Vectors))
	if q.Weights != nil {
		weights = make([]float32, 0, n)
	}
	for t := range n {
		row := q.Vectors[t*dim : (t+1)*dim]
		var square float64
		for j, v := range row {
			f := float64(v)
			if math.IsNaN(f) || math.IsInf(f, 0) {
				return nil, nil, fmt.Errorf("%w: token %d, component %d is %v", ErrQuery, t, j, v)
			}
			square += f * f
		}
		if q.Mask != nil && !q.Mask[t] {
			continue
		}
		if length := math.Sqrt(square); length > maxMagnitude {
			return nil, nil, fmt.Errorf("%w: token %d has length %.3g; at most %g is possible", ErrQuery, t, length, maxMagnitude)
		}
		vectors = append(vectors, row...)
		if q.Weights != nil {
			if f := math.Abs(float64(q.Weights[t])); !(f <= maxMagnitude) {
				return nil, nil, fmt.Errorf("%w: weight of token %d is %v; at most ±%g is possible", ErrQuery, t, q.Weights[t], maxMagnitude)
			}
			weights = append(weights, q.Weights[t])
		}
	}
	if len(vectors) == 0 {
		return nil, nil, fmt.Errorf("%w: its mask leaves no token", ErrQuery)
	}
	if snap.Header().Normalize {
		codec.Normalize(vectors, dim)
	}
	return vectors, weights, nil
}
