package search

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

// Query is one query. Like documents, its vectors are scaled to unit length
// unless the index was built without; such an index takes a vector shorter than 1e-20
// for one of zeros.
type Query struct {
	// Vectors is [Lq, dim], row-major, no longer than 1e12 each.
	Vectors []float32
	// Dim, where set, must be the dimension of the index. Vectors alone do not
	// tell one vector of 256 from two of 128.
	Dim int
	// Mask, where set, has an entry a token; a token whose entry is false takes
	// no part.
	Mask []bool
	// Weights, where set, has a factor for each token's maximum.
	Weights []float32
	// Model, where set, is what made the vectors. If the index names another, that
	// is an error ([storage.ErrModel]): scores between two models mean nothing.
	Model *storage.Model
	// Filter restricts the result of this query, beside the one of the options; nil: no
	// further restriction.
	Filter *Filter
}

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

// Options of a search. The zero value returns the ten best documents.
type Options struct {
	// K is how many documents to return; 0: 10. Fewer come back only when fewer
	// match.
	K    int  `json:"k,omitempty"`
	Mode Mode `json:"mode,omitzero"`
	// Offset is how many of the best documents to pass over: with 20 and a K of 10 the result is
	// the third page of ten. See [Paged].
	Offset int `json:"offset,omitempty"`
	// MinScore, where set, leaves out documents whose score, that of the hit, is lower. A search
	// that scores all documents then returns all that have it, if they are no more than K.
	MinScore *float64 `json:"min_score,omitempty"`
	// Block is how many documents the first block of a ranking has that pruned searches make
	// ([Paged]); 0: K. It is no part of the JSON form.
	Block int `json:"-"`
	// Probes is the number of centroids probed for each query token. Approx
	// bounds the documents that get an approximate score, Exact is how many get
	// an exact one (at least K). 0: derived from K, the collection and what the
	// first scores of the query say, for each query anew; see [Plan]. Probes of
	// [AllProbes] leaves probing out. On a device Approx, given with Probes, bounds
	// the documents that get an exact score.
	Probes int `json:"probes,omitempty"`
	Approx int `json:"approx,omitempty"`
	Exact  int `json:"exact,omitempty"`
	// Effort multiplies what is derived of the three: with 2 about twice the documents get
	// an approximate score, and half as many again an exact one. 0: 1. It is between
	// [LeastEffort] and [MostEffort], no part of the JSON form, and nothing to a device.
	Effort float64 `json:"-"`
	// Derive leaves aside what the index has stored as its defaults, which a
	// search without a filter that names none of the three uses otherwise.
	Derive bool `json:"derive,omitempty"`
	// Filter restricts the result; nil: no restriction.
	Filter *Filter `json:"filter,omitempty"`
	// Candidates names the documents that mode Candidates scores.
	Candidates []string `json:"candidates,omitzero"`
	// AllowMissing lets Candidates name documents that are not there.
	AllowMissing bool `json:"allow_missing,omitempty"`
	// Payload returns what was stored beside the documents.
	Payload bool `json:"metadata,omitempty"`
	// Group, where set, puts passages together: hits are documents, K counts them, and
	// Group says what they score. A document that has no passages is one of itself.
	// Passages is how many of them a hit brings, the best ones; 0: 1.
	Group    Grouping `json:"group,omitempty"`
	Passages int      `json:"passages,omitempty"`
	// Matches tells for each hit, or for each passage that it brings, which of its
	// tokens matched which of the query.
	Matches bool `json:"matches,omitempty"`
	// Feedback, where set, adds to each query what good documents have.
	Feedback *Feedback `json:"feedback,omitempty"`
	// Share, between 0 and 1, says that what is searched is a share of a collection whose
	// documents are spread at random, and whose K best are wanted. Then [Keep] documents come
	// back, and budgets are the share's. Whoever merges the results of shares has to ask one
	// again, with a Share of 0, if it has fewer than K hits and its [Result.Floor] is not below
	// the last of the merged hits.
	// 0: all of it is searched, as with Group. It is no part of the JSON form.
	Share float64 `json:"-"`
}

// AllProbes for Options.Probes is all centroids, however many there are: documents are
// scanned ([PlanScan]).
const AllProbes = math.MaxInt32

// Limits of Options.Effort.
const (
	LeastEffort = 1.0 / 8
	MostEffort  = 64
)

const defaultK = 10

// Check refuses options ([ErrOption]) that are wrong whatever is searched.
func (o *Options) Check() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s", ErrOption, fmt.Sprintf(format, args...)))
	}
	if err := o.Page().Check(); err != nil {
		errs = append(errs, err)
	}
	if o.Probes < 0 || o.Approx < 0 || o.Exact < 0 {
		bad("probes %d, approximate budget %d, exact budget %d: none may be negative", o.Probes, o.Approx, o.Exact)
	}
	if o.Effort != 0 && !(o.Effort >= LeastEffort && o.Effort <= MostEffort) {
		bad("effort %v; it is between %v and %v", o.Effort, LeastEffort, MostEffort)
	}
	if !(o.Share >= 0 && o.Share <= 1) {
		bad("share %v; it is between 0 and 1", o.Share)
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
	if o.Group != "" && !slices.Contains(Groupings(), o.Group) {
		bad("group %q; there are %v", o.Group, Groupings())
	}
	if o.Passages < 0 || o.Passages > 0 && o.Group == "" {
		bad("%d passages: a number goes with a group", o.Passages)
	}
	return errors.Join(append(errs, o.Feedback.Check())...)
}

// maxScoreBytes bounds the table of centroid scores of one query. A variable, so that tests reach
// it.
var maxScoreBytes = 1 << 30

// maxQueryTokens is how many tokens a query may have.
func maxQueryTokens(c *collection) int { return maxScoreBytes / 4 / c.sharedCodec().Centroids.K }

const (
	// maxMagnitude bounds the length of a query vector, and a weight, so that no
	// product or sum leaves the range of float32.
	maxMagnitude = 1e12
	// minMagnitude is the length below which a vector counts as zeros: its scores, or
	// what they are counted in, would leave the range of float32 at the lower end,
	// where errors are larger than the bounds of the kernels say.
	minMagnitude = 1e-20
)

// countTokens checks the shape of a query and returns its number of tokens, those that
// the mask leaves out included.
func (q *Query) countTokens(c *collection) (n int, err error) {
	for i := range c.shards {
		if err := c.shards[i].snap.Header().Model.CheckQueries(q.Model); err != nil {
			return 0, fmt.Errorf("%w: %w", ErrQuery, err)
		}
	}
	dim, centroids := c.firstSnapshot().Dim(), c.sharedCodec().Centroids.K
	if q.Dim != 0 && q.Dim != dim {
		return 0, fmt.Errorf("%w: dimension %d; the index has %d", ErrQuery, q.Dim, dim)
	}
	if len(q.Vectors) == 0 {
		return 0, fmt.Errorf("%w: it has no tokens", ErrQuery)
	}
	if len(q.Vectors)%dim != 0 {
		return 0, fmt.Errorf("%w: %d values are no whole vectors of dimension %d", ErrQuery, len(q.Vectors), dim)
	}
	n = len(q.Vectors) / dim
	if q.Mask != nil && len(q.Mask) != n || q.Weights != nil && len(q.Weights) != n {
		return 0, fmt.Errorf("%w: %d tokens with a mask of %d and %d weights", ErrQuery, n, len(q.Mask), len(q.Weights))
	}
	if limit := maxQueryTokens(c); n > limit {
		return 0, fmt.Errorf("%w: %d tokens; with the %d centroids of this index at most %d are possible", ErrQuery, n, centroids, limit)
	}
	return n, nil
}

// Tokens checks a query as a search of the snapshot does ([ErrQuery]) and returns
// what is scored: the vectors that take part, scaled to unit length where the
// documents are, and their weights, nil where all are 1.
func (q *Query) Tokens(snap *index.Snapshot) (vectors, weights []float32, err error) {
	return q.tokens(newCollection(snap), nil)
}

// tokens is Tokens of all parts of a collection. The vectors are in the memory of dst,
// if there is room.
func (q *Query) tokens(c *collection, dst []float32) (vectors, weights []float32, err error) {
	n, err := q.countTokens(c)
	if err != nil {
		return nil, nil, err
	}
	dim := c.firstSnapshot().Dim()
	unit := c.firstSnapshot().Header().Normalize
	if vectors = dst[:0]; cap(dst) < len(q.Vectors) {
		vectors = make([]float32, 0, len(q.Vectors))
	}
	if q.Weights != nil {
		weights = make([]float32, 0, n)
	}
	for t := range n {
		row := q.Vectors[t*dim : (t+1)*dim]
		square := codec.Square(row)
		if math.IsNaN(square) || math.IsInf(square, 0) { // no square of a float32 overflows
			for j, v := range row {
				if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
					return nil, nil, fmt.Errorf("%w: token %d, component %d is %v", ErrQuery, t, j, v)
				}
			}
		}
		if q.Mask != nil && !q.Mask[t] {
			continue
		}
		length := math.Sqrt(square)
		if length > maxMagnitude {
			return nil, nil, fmt.Errorf("%w: token %d has length %.3g; at most %g is possible", ErrQuery, t, length, maxMagnitude)
		}
		vectors = append(vectors, row...)
		if unit {
			codec.Unit(vectors[len(vectors)-dim:], square)
		} else if length < minMagnitude {
			clear(vectors[len(vectors)-dim:])
		}
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
	return vectors, weights, nil
}
