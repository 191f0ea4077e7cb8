package kernels

import (
	"context"

	"github.com/plaid-ir/plaid/internal/registry"
)

// Backend is one implementation of every stage. Its methods are safe for
// concurrent use.
type Backend interface {
	// Name is what the backend is asked for by, such as "generic".
	Name() string
	// Nearest writes, for each of the len(x)/dim rows of x, the number of the
	// centroid with the largest inner product (the lowest number on ties) and,
	// where scores is not nil, that product. centroids is K × dim. The result
	// of a row does not depend on the other rows of the call. The context ends
	// waiting for a device. An error says that a device failed, and codes and
	// scores mean nothing then; the processor's backends never return one.
	Nearest(ctx context.Context, codes []uint32, scores []float32, centroids, x []float32, dim int) error
	// Scorer prepares the backend for one codec.
	Scorer(c *Codec) (Scorer, error)
}

// Scorer is a backend prepared for one codec. It is safe for concurrent use.
type Scorer interface {
	// NewQuery returns an empty query to be filled by Reset, again and again.
	NewQuery() Query
}

// Query is a query that scores documents encoded with the codec of its Scorer:
// first Reset, then Screen where not all of S is needed, then CentroidScores over all
// centroids, then Seal; after that it is read-only, but for what Require adds, and may
// be used by many goroutines, until the next Reset.
type Query interface {
	// Reset takes the vectors [Lq, dim] and a weight for each (nil: all 1).
	// It keeps no reference to them.
	Reset(vectors, weights []float32) error
	// Screen says that of S only the rows will be needed that Require asks for and, if n is
	// above 0, Approx, MaxSim at level Fast, and Top with n at most. CentroidScores then
	// computes in bytes: Approx and level Fast are rounded a little more, and Top finds the
	// best but for near ties. It reports false where that is not possible or does not pay,
	// and has done nothing then. With n = 0, level Fast is level Fine.
	Screen(n int) bool
	// CentroidScores fills the rows lo to hi of S = C·Qᵀ. Disjoint ranges may
	// run at the same time.
	CentroidScores(lo, hi int)
	// Seal ends preparation.
	Seal()

	// Len is the number of query tokens.
	Len() int
	// Require notes the rows of S that listed documents of a chunk need (nil: all) for
	// MaxSim at level Fine, RequireTokens those that the tokens lo to hi do; Fill then computes
	// those of the centroids lo to hi that are not there. All three do nothing unless Screen
	// has been called. The first two may run at the same time, as may calls of Fill, with
	// bounds that are multiples of 64 and ranges that do not overlap.
	Require(c *Chunk, docs []uint32)
	RequireTokens(c *Chunk, lo, hi int)
	Fill(lo, hi int)
	// Scores returns S: entry (c, s) is at c·stride + s. Valid until Reset. After
	// Screen only rows that were required mean something.
	Scores() (s []float32, stride int)
	// Top writes the n best centroids of query token t to dst[t·n] on, best
	// first, the lowest number on ties; n is at most K. After Screen no other method
	// may run beside it.
	Top(dst []CentroidScore, n int)

	// Approx writes the centroid-only score of documents: the score of the
	// tokens as if each were its centroid, factor left out. docs lists
	// documents of the chunk; nil means all. dst has one entry a document.
	// Empty documents score 0. Scores of one query are comparable over chunks.
	Approx(dst []float32, c *Chunk, docs []uint32)
	// MaxSim writes the score of documents over their decoded tokens. Empty
	// documents score 0.
	MaxSim(dst []float32, c *Chunk, docs []uint32, level Level)
	// Maxima writes the largest product of each query token with the tokens lo to
	// hi of the chunk, in units that only Total knows: a document that is too long
	// for one core is scored in parts, whose maxima MergeMaxima puts together.
	// Total of them is the score that MaxSim gives the document, to the bit.
	Maxima(dst []float64, c *Chunk, lo, hi int, level Level)
	Total(maxima []float64, level Level) float32
	// ErrorBound is the largest difference to the oracle that MaxSim may show
	// at the level, for this query and any document.
	ErrorBound(level Level) float32
	// Shortfall is how far the score of a document at level Fast may be below
	// that at level Fine.
	Shortfall(b Bound) Shortfall
}

// Ender is a [Query] that can be given up. What it makes of a query as a whole, such as
// bounds and tables, takes time with the number of query tokens, and can end before its
// end when ended says so: from then on what the query says means nothing, until Reset.
// ended may be called by several goroutines.
type Ender interface{ EndWith(ended func() bool) }

// MergeMaxima raises dst to the maxima of another part of the document.
func MergeMaxima(dst, part []float64) {
	for i, v := range part {
		dst[i] = max(dst[i], v)
	}
}

// CentroidScore is an entry of S.
type CentroidScore struct {
	Centroid uint32
	Score    float32
}

// Level chooses between speed and precision of MaxSim.
type Level int

const (
	// Fast is exact enough to find the documents worth a second look.
	Fast Level = iota
	// Fine gives the scores of float32 arithmetic.
	Fine
)

// EnvCPU is the environment variable that names the backend which Select("")
// returns, in place of the best one.
const EnvCPU = "PLAID_CPU"

var backends = new(registry.Registry[Backend])

// Register makes a backend available under its name; of those that this machine
// can run, the one with the highest rank is the best. It is called from the init
// function of the backend's package, and panics on a name taken twice.
func Register(b Backend, rank int) {
	if !backends.Add(b, rank) {
		panic("kernels: backend registered twice: " + b.Name())
	}
}

// Backends lists the registered names, sorted.
func Backends() []string { return backends.Names() }

// Select returns the backend of that name. "" stands for the one that the
// environment variable [EnvCPU] names, or else for the best one. A name that
// is not there, the variable's included, is an error that wraps
// [ErrUnavailable]; there is no fallback. Backends are there where their package
// is imported: kernels/cpu has those of the processor.
func Select(name string) (Backend, error) {
	return backends.Select(name, EnvCPU, "kernels/cpu", ErrUnavailable)
}
