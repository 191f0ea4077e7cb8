package kernels

import (
	"fmt"
	"sort"
	"strings"
	"sync"
)

// Backend is one implementation of every stage. Its methods are safe for
// concurrent use.
type Backend interface {
	// Name is what the backend is asked for by, such as "generic".
	Name() string
	// Nearest writes, for each of the len(x)/dim rows of x, the number of the
	// centroid with the largest inner product (the lowest number on ties) and,
	// where scores is not nil, that product. centroids is K × dim. The result
	// of a row does not depend on the other rows of the call.
	Nearest(codes []uint32, scores []float32, centroids, x []float32, dim int)
	// Scorer prepares the backend for one codec.
	Scorer(c *Codec) (Scorer, error)
}

// Scorer scores documents that were encoded with one codec. It is safe for
// concurrent use.
type Scorer interface {
	// NewQuery returns an empty query to be filled by Reset, again and again.
	NewQuery() Query
	// Approx writes the centroid-only score of documents: the score of the
	// tokens as if each were its centroid, factor left out. docs lists
	// documents of the chunk; nil means all. dst has one entry a document.
	// Empty documents score 0. Scores of one query are comparable over chunks.
	Approx(dst []float32, q Query, c *Chunk, docs []uint32)
	// MaxSim writes the score of documents over their decoded tokens:
	// dst[i·n+j] is the score of query i and document j of n. Empty documents
	// score 0.
	MaxSim(dst []float32, qs []Query, c *Chunk, docs []uint32, level Level)
	// Maxima writes the largest product of each query token with the tokens lo to
	// hi of the chunk, in units that only Total knows: a document that is too long
	// for one core is scored in parts, whose maxima MergeMaxima puts together.
	// Total of them is the score that MaxSim gives the document, to the bit.
	Maxima(dst []float64, q Query, c *Chunk, lo, hi int, level Level)
	Total(q Query, maxima []float64, level Level) float32
	// ErrorBound is the largest difference to the oracle that MaxSim may show
	// at the level, for this query and any document.
	ErrorBound(q Query, level Level) float32
}

// Query is a query prepared for one Scorer: first Reset, then CentroidScores
// over all centroids, then Seal; after that it is read-only and may be used by
// many goroutines, until the next Reset.
type Query interface {
	// Reset takes the vectors [Lq, dim] and a weight for each (nil: all 1).
	// It keeps no reference to them.
	Reset(vectors, weights []float32) error
	// CentroidScores fills the rows lo to hi of S = C·Qᵀ. Disjoint ranges may
	// run at the same time.
	CentroidScores(lo, hi int)
	// Seal ends preparation.
	Seal()
	// Scores returns S: entry (c, s) is at c·stride + s. Valid until Reset.
	Scores() (s []float32, stride int)
	// Top writes the n best centroids of query token t to dst[t·n] on, best
	// first, the lowest number on ties; n is at most K.
	Top(dst []CentroidScore, n int)
	// Len is the number of query tokens.
	Len() int
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

var (
	registryMu sync.RWMutex
	registry   = map[string]Backend{}
)

// Register makes a backend available under its name. It is called from the
// init function of the backend's package, and panics on a name taken twice.
func Register(b Backend) {
	registryMu.Lock()
	defer registryMu.Unlock()
	if _, dup := registry[b.Name()]; dup {
		panic("kernels: backend registered twice: " + b.Name())
	}
	registry[b.Name()] = b
}

// Backends lists the registered names, sorted.
func Backends() []string {
	registryMu.RLock()
	defer registryMu.RUnlock()
	var names []string
	for n := range registry {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// Select returns the backend of that name. "" stands for the one that the
// environment variable [EnvCPU] names, or else for the best one. A name that
// is not there, the variable's included, is an error that wraps
// [ErrUnavailable]; there is no fallback.
func Select(name string) (Backend, error) {
	var from string
	if name == "" {
		name, from = defaultName()
	}
	registryMu.RLock()
	b, ok := registry[name]
	registryMu.RUnlock()
	if !ok {
		return nil, fmt.Errorf("%w: %q%s (there is: %s)", ErrUnavailable, name, from, strings.Join(Backends(), ", "))
	}
	return b, nil
}
