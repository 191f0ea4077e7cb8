package kernels

import (
	"context"

	"github.com/plaid-ir/plaid/internal/registry"
)

// Backend implements every stage of scoring for one instruction set or device. Its
// methods are safe for concurrent use.
type Backend interface {
	// Name returns the name by which [Select] finds the backend, such as "generic".
	Name() string
	// Nearest writes, for each of the len(x)/dim rows of x, the number of the
	// centroid with the largest inner product (the lowest number on ties) and,
	// where scores is not nil, that product. centroids is [K, dim]. The result
	// of a row does not depend on the other rows of the call. Canceling the context
	// ends the wait for a device. Only backends of devices return errors; codes and
	// scores are undefined then.
	Nearest(ctx context.Context, codes []uint32, scores []float32, centroids, x []float32, dim int) error
	// Scorer prepares the backend for one codec.
	Scorer(c *Codec) (Scorer, error)
}

// Scorer is a backend prepared for one codec. It is safe for concurrent use.
type Scorer interface {
	// NewQuery returns an empty query, which Reset fills any number of times.
	NewQuery() Query
}

// Query is a query that scores documents encoded with the codec of its Scorer.
//
// Its methods are called in this order: Reset; Screen, where the search does not need
// all of S; CentroidScores over all centroids; Seal. Until the next Reset many
// goroutines may then use it: it is read-only, except for the rows of S that RequireRows,
// RequireRowsOfTokens and ComputeRequiredRows add.
type Query interface {
	// Reset sets the vectors [Lq, dim] and a weight for each of them. nil weights mean
	// that all are 1. It copies both. Errors wrap [ErrShape].
	Reset(vectors, weights []float32) error
	// Screen announces that the search needs only the rows of S that RequireRows lists and,
	// if n is above 0, also Approx, MaxSim at level Fast, and TopCentroids with at most n
	// centroids. CentroidScores then multiplies bytes: Approx and level Fast are rounded a
	// little more, and TopCentroids finds the best centroids except for near ties. With n = 0,
	// level Fast is level Fine. Screen reports false, and changes nothing, where
	// screening is impossible or does not pay.
	Screen(n int) bool
	// CentroidScores computes the rows lo to hi of S = C·Qᵀ. Disjoint ranges may
	// run at the same time.
	CentroidScores(lo, hi int)
	// Seal ends preparation.
	Seal()

	// Len returns the number of query tokens.
	Len() int
	// RequireRows notes the rows of S that the listed documents of a chunk need for MaxSim
	// at level Fine. nil docs mean all documents. It does nothing unless Screen has been
	// called, and neither do the next two methods. It and RequireRowsOfTokens may run at the
	// same time.
	RequireRows(c *Chunk, docs []uint32)
	// RequireRowsOfTokens is RequireRows for the tokens lo to hi of a chunk.
	RequireRowsOfTokens(c *Chunk, lo, hi int)
	// ComputeRequiredRows computes the noted rows of the centroids lo to hi that are not
	// computed yet. Calls whose ranges do not overlap and begin at multiples of 64 may run
	// at the same time.
	ComputeRequiredRows(lo, hi int)
	// Scores returns S, in which entry (c, s) is at c·stride + s. It is valid until
	// Reset. After Screen only rows that ComputeRequiredRows has computed are defined.
	Scores() (s []float32, stride int)
	// TopCentroids writes the n ≤ K best centroids of query token t to dst[t·n] on,
	// best first, the lowest number on ties. After Screen no other method may run at
	// the same time.
	TopCentroids(dst []CentroidScore, n int)

	// Approx writes the centroid-only scores of documents: the score of the
	// tokens as if each were its centroid, without its factor. docs lists
	// documents of the chunk. nil means all. dst has one entry a document.
	// Empty documents score 0. Scores of one query are comparable over chunks.
	Approx(dst []float32, c *Chunk, docs []uint32)
	// MaxSim writes the scores of documents over their decoded tokens. Empty
	// documents score 0.
	MaxSim(dst []float32, c *Chunk, docs []uint32, level Level)
	// Maxima writes the largest product of each query token with the tokens lo to
	// hi of the chunk, in units that only TotalScore knows. A document that is too long
	// for one core is scored in ranges of tokens, whose maxima MergeMaxima merges.
	Maxima(dst []float64, c *Chunk, lo, hi int, level Level)
	// TotalScore returns the score of merged maxima: that of MaxSim, to the bit.
	TotalScore(maxima []float64, level Level) float32
	// ErrorBound returns the largest possible difference between MaxSim at the level
	// and the oracle, for this query and any document.
	ErrorBound(level Level) float32
	// Shortfall returns how far the score of a document at level Fast may be below
	// its score at level Fine.
	Shortfall(b Bound) Shortfall
}

// EarlyEnder is a [Query] whose preparation can be stopped early. Tables and bounds of a
// query take time in proportion to its tokens; building them stops when ended returns
// true. All results of the query are undefined from then on until Reset. Several
// goroutines may call ended at once.
type EarlyEnder interface{ EndWith(ended func() bool) }

// MergeMaxima raises dst to the maxima of another range of the document's tokens.
func MergeMaxima(dst, maxima []float64) {
	for i, v := range maxima {
		dst[i] = max(dst[i], v)
	}
}

// CentroidScore is a centroid with its product with a query token.
type CentroidScore struct {
	Centroid uint32
	Score    float32
}

// Level chooses between speed and precision of MaxSim.
type Level int

const (
	// Fast is precise enough to find the documents that are scored again at level Fine.
	Fast Level = iota
	// Fine has the precision of float32 arithmetic.
	Fine
)

// EnvCPU is the environment variable that names the backend which Select("")
// returns instead of the best one.
const EnvCPU = "PLAID_CPU"

var backends = new(registry.Registry[Backend])

// Register makes a backend available under its name. The best backend is the one of
// the highest rank. Register is called from the init function of the backend's
// package, and panics if the name is registered already.
func Register(b Backend, rank int) {
	if !backends.Add(b, rank) {
		panic("kernels: backend registered twice: " + b.Name())
	}
}

// Backends lists the registered names, sorted.
func Backends() []string { return backends.Names() }

// Select returns the backend of that name. "" stands for the one that the
// environment variable [EnvCPU] names, or else for the best one. For an unknown
// name, also one from the variable, the error wraps [ErrUnavailable]; there is no
// fallback. A program has the backends whose packages it imports: kernels/cpu has
// those of the processor.
func Select(name string) (Backend, error) {
	return backends.Select(name, EnvCPU, "kernels/cpu", ErrUnavailable)
}
