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

// Query is one query. Like documents, its vectors are scaled to unit length unless the index was
// built without; such an index treats a vector shorter than 1e-20 as zeros.
type Query struct {
	// Vectors is [Lq, dim], row-major. No vector may be longer than 1e12.
	Vectors []float32
	// Dim, where set, must equal the dimension of the index: from Vectors alone, one vector of
	// 256 looks like two of 128.
	Dim int
	// Mask, where set, has one entry a token. Tokens whose entry is false are ignored.
	Mask []bool
	// Weights, where set, has a factor for each token's maximum.
	Weights []float32
	// Model, where set, is the model that made the vectors. If the index names another, that
	// is an error ([storage.ErrModel]): scores between two models mean nothing.
	Model *storage.Model
	// Filter restricts the result of this query, in addition to the filter of the options; nil
	// means no further restriction.
	Filter *Filter
}

// Mode selects the documents that are scored exactly.
type Mode int

const (
	// Pruned scores documents that survive probing and pruning.
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
	// K is how many documents to return. 0 means 10. Fewer come back only when fewer match.
	K    int  `json:"k,omitempty"`
	Mode Mode `json:"mode,omitzero"`
	// Offset is how many of the best documents to skip: with an Offset of 20 and a K of 10 the
	// result is the third page of ten. See [Paged].
	Offset int `json:"offset,omitempty"`
	// MinScore, where set, drops hits with a lower score. A search that scores all documents then
	// returns every document with at least this score, up to K.
	MinScore *float64 `json:"min_score,omitempty"`
	// Block is the size of the first block of a ranking by pruned searches ([Paged]). 0 means K.
	// The JSON form leaves it out.
	Block int `json:"-"`
	// Probes is the number of centroids probed for each query token. Approx limits the documents
	// that get an approximate score, Exact is how many get an exact one (at least K). 0 means that
	// the number is derived for each query from K, the collection and the first scores of the
	// query; see [Plan]. [AllProbes] skips probing. On a device Approx, given with Probes, limits
	// the documents that get an exact score.
	Probes int `json:"probes,omitempty"`
	Approx int `json:"approx,omitempty"`
	Exact  int `json:"exact,omitempty"`
	// Effort multiplies the derived ones of these three: with 2 about twice as many documents get
	// an approximate score, and 1.5 times as many an exact one. 0 means 1. It is between
	// [MinEffort] and [MaxEffort]. The JSON form leaves it out, and devices ignore it.
	Effort float64 `json:"-"`
	// Derive ignores the defaults that are stored in the index. Without it, a search uses them if
	// it has no filter and sets none of the three.
	Derive bool `json:"derive,omitempty"`
	// Filter restricts the result. nil means no restriction.
	Filter *Filter `json:"filter,omitempty"`
	// Candidates names the documents that mode Candidates scores.
	Candidates []string `json:"candidates,omitzero"`
	// AllowMissing lets Candidates name documents that do not exist.
	AllowMissing bool `json:"allow_missing,omitempty"`
	// Payload makes hits include the metadata of their documents.
	Payload bool `json:"metadata,omitempty"`
	// Group, where set, groups passages by document: hits are documents, K counts documents, and
	// Group selects how they are scored. A document without passages counts as its own passage.
	// Passages is how many of its best passages a hit includes. 0 means 1.
	Group    Grouping `json:"group,omitempty"`
	Passages int      `json:"passages,omitempty"`
	// Matches adds to each hit, or to each passage in it, the document token that matched each
	// query token.
	Matches bool `json:"matches,omitempty"`
	// Feedback, where set, adds tokens of relevant documents to each query.
	Feedback *Feedback `json:"feedback,omitempty"`
	// Share, between 0 and 1, is the fraction of a larger collection that is searched here, if
	// the documents of that collection are spread at random and its K best are wanted. Then [KForShare]
	// documents come back, and budgets shrink with the share. A caller that merges the results of
	// shares must search a share again, with a Share of 0, if the share returned fewer than K hits
	// and its [Result.Floor] is not below the last merged hit.
	// 0 means that the whole collection is searched; so does a Group. The JSON form leaves it out.
	Share float64 `json:"-"`
}

// AllProbes is the value of Options.Probes that probes every centroid: documents are scanned
// ([PlanScan]).
const AllProbes = math.MaxInt32

// Limits of Options.Effort.
const (
	MinEffort = 1.0 / 8
	MaxEffort = 64
)

const defaultK = 10

// Check returns an [ErrOption] for options that are wrong for every index.
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
	if o.Effort != 0 && !(o.Effort >= MinEffort && o.Effort <= MaxEffort) {
		bad("effort %v; it is between %v and %v", o.Effort, MinEffort, MaxEffort)
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

// maxScoreBytes limits the table of centroid scores of one query. It is a variable so that tests
// can lower it.
var maxScoreBytes = 1 << 30

// maxQueryTokens returns the number of tokens a query may have: each needs a float32 a centroid.
func maxQueryTokens(c *collection) int { return maxScoreBytes / 4 / c.sharedCodec().Centroids.K }

const (
	// maxMagnitude bounds the length of a query vector, and a weight, so that no
	// product or sum leaves the range of float32.
	maxMagnitude = 1e12
	// minMagnitude is the length below which a vector counts as zeros: its scores, or their
	// units, would underflow float32, where errors exceed the stated bounds of the kernels.
	minMagnitude = 1e-20
)

// countTokens checks the shape of a query and returns its number of tokens, including masked ones.
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
		return 0, fmt.Errorf("%w: %d values are not a multiple of dimension %d", ErrQuery, len(q.Vectors), dim)
	}
	n = len(q.Vectors) / dim
	if q.Mask != nil && len(q.Mask) != n || q.Weights != nil && len(q.Weights) != n {
		return 0, fmt.Errorf("%w: %d tokens with a mask of %d and %d weights",
			ErrQuery, n, len(q.Mask), len(q.Weights))
	}
	if limit := maxQueryTokens(c); n > limit {
		return 0, fmt.Errorf("%w: %d tokens; with the %d centroids of this index at most %d are possible",
			ErrQuery, n, centroids, limit)
	}
	return n, nil
}

// Tokens checks a query as a search of the snapshot does ([ErrQuery]). It returns the vectors that
// are scored, without masked ones and scaled to unit length where the documents are, and their
// weights. nil weights mean that all are 1.
func (q *Query) Tokens(snap *index.Snapshot) (vectors, weights []float32, err error) {
	return q.tokens(newCollection(snap), nil)
}

// tokens is Tokens for all shards of a collection. It appends the vectors to dst[:0] if they fit.
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
		square := codec.SquaredNorm(row)
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
			return nil, nil, fmt.Errorf("%w: token %d has length %.3g; at most %g is possible",
				ErrQuery, t, length, maxMagnitude)
		}
		vectors = append(vectors, row...)
		if unit {
			codec.ScaleToUnit(vectors[len(vectors)-dim:], square)
		} else if length < minMagnitude {
			clear(vectors[len(vectors)-dim:])
		}
		if q.Weights != nil {
			if f := math.Abs(float64(q.Weights[t])); !(f <= maxMagnitude) {
				return nil, nil, fmt.Errorf("%w: weight of token %d is %v; at most ±%g is possible",
					ErrQuery, t, q.Weights[t], maxMagnitude)
			}
			weights = append(weights, q.Weights[t])
		}
	}
	if len(vectors) == 0 {
		return nil, nil, fmt.Errorf("%w: its mask leaves no token", ErrQuery)
	}
	return vectors, weights, nil
}
