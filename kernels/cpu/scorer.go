package cpu

import (
	"math"
	"sync"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/internal/tier"
	"github.com/plaid-ir/plaid/kernels/internal/tiles"
)

// Scorer implements [kernels.Backend].
func (b backend) Scorer(c *kernels.Codec) (kernels.Scorer, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &scorer{
		loops:    &b.tier.Tokens,
		codec:    *c,
		dim:      c.Dim(),
		rowBytes: c.RowBytes(),
		weights:  c.Codebook.Weights(),
		scaleMin: 1,
		scaleMax: 1,
	}
	s.maxCentroidNorm = sync.OnceValue(s.computeMaxCentroidNorm)
	s.weightMin, s.weightMax = math.Inf(1), math.Inf(-1)
	for _, w := range s.weights {
		s.weightMin, s.weightMax = min(s.weightMin, float64(w)), max(s.weightMax, float64(w))
	}
	if c.Codebook.Nbits == 8 {
		s.step8 = float64(c.Codebook.Step) // 0 for a table
	}
	if c.CentroidScale != nil {
		s.scaleCentroids(c.CentroidScale)
	}
	s.tiles, s.fineLayout = newTileSet(s), newFineLayout(s)
	s.scratchPool.New = func() any { return new(scratch) }
	s.screenPool.New = func() any { return new(screenScratch) }
	s.byteCentroids = sync.OnceValue(s.newByteCentroids)
	return s, nil
}

// scorer implements [kernels.Scorer]. It is read-only once it is made.
type scorer struct {
	loops    *tier.Tokens
	codec    kernels.Codec
	dim      int
	rowBytes int

	weights              []float32
	weightMin, weightMax float64 // bounds of the weights
	// step8 is the step of a uniform codebook of 8 bits, in which weight b is
	// step8·(b − 127.5), so that the nibbles of b contribute separately. It is 0 for
	// a table of 8 bits.
	step8 float64

	scaleMin, scaleMax float64  // bounds of the scales of the centroids
	scales16           []uint32 // scales in units of scaleMax/2¹⁶. nil means that all are 1
	hasNegativeScale   bool     // tables and integers do not support negative scales

	tiles      *tileSet      // nil means that level Fast does not use tiles
	fineLayout *tiles.Layout // nil means that level Fine does not use tiles

	maxCentroidNorm func() float64        // computes the largest norm of a centroid once
	byteCentroids   func() *byteCentroids // rounds the centroids once
	scratchPool     sync.Pool             // of *scratch
	screenPool      sync.Pool             // of *screenScratch
}

// scratch is the work space of one call.
type scratch struct {
	floats  []float32
	lo, hi  []float32
	codes   []uint32  // numbers of rows of S to compute
	rows    []float32 // these rows
	fetched byte      // a sum that keeps the compiler from removing prefetches
	sums    [callDocs]float64

	ranges        [callDocs][2]uint32
	cutRange      [1][2]uint32
	fastMaxima    [callDocs][fastGroup]int32
	fineMaxima    [callDocs][fineGroup]float32
	levelMaxima   [callDocs][levelGroup]float32
	levels        []byte
	byteMaxima    [callDocs]byteRow
	tilesCall     *tiles.Call
	fineTilesCall *tiles.Fine
	maxima        []float64 // largest products of a group of query tokens
	paths         paths
}

// scaleCentroids computes the range of the scales, and the scales as fractions of 16 bits
// unless one of them is negative.
func (s *scorer) scaleCentroids(scales []float32) {
	s.scaleMin, s.scaleMax = math.Inf(1), 0
	for _, a := range scales {
		s.scaleMin, s.scaleMax = min(s.scaleMin, float64(a)), max(s.scaleMax, float64(a))
	}
	if !(s.scaleMin >= 0) { // also true for NaN
		s.hasNegativeScale = true
		return
	}
	unit := s.scaleMax / 65536
	s.scales16 = make([]uint32, len(scales))
	if unit > 0 {
		for c, a := range scales {
			s.scales16[c] = uint32(float64(a)/unit + 0.5)
		}
	}
}

// computeMaxCentroidNorm returns the largest Euclidean norm of a centroid.
func (s *scorer) computeMaxCentroidNorm() float64 {
	row := make([]float32, s.dim)
	var largest float64
	for c := range s.codec.Centroids.K {
		s.codec.Centroids.Rows(row, c, c+1)
		var sum float64
		for _, v := range row {
			sum += float64(v) * float64(v)
		}
		largest = max(largest, sum)
	}
	return math.Sqrt(largest)
}

// tokenRange returns the tokens lo to hi of the i-th listed document, or of document i if
// docs is nil.
func tokenRange(c *kernels.Chunk, docs []uint32, i int) (lo, hi int) {
	if docs != nil {
		i = int(docs[i])
	}
	return int(c.Offsets[i]), int(c.Offsets[i+1])
}

// countDocs returns the number of listed documents, or of all documents if docs is nil.
func countDocs(c *kernels.Chunk, docs []uint32) int {
	if docs != nil {
		return len(docs)
	}
	return c.Docs()
}
