// Package codec turns token vectors into the bytes of an index and back.
//
// A vector v becomes a centroid number, one bucket of n bits a dimension, and a
// factor that restores unit length:
//
//	code = argmax_c ⟨v, C_c⟩                      lowest number on ties
//	b    ≈ argmax_b ⟨v, v̂⟩
//	v̂    = f · (C_code + a_code·(g ⊙ w[b]))       f = 1 / max(‖C_code + a·g⊙w‖, 1e-6)
//
// which is the residual compression of ColBERTv2 (arXiv 2112.01488, section
// 3.3) with changes that halve the error of scores in the same bytes
// (docs/lab/codec.md has the figures). The levels w of a codec that [Train] makes
// are equally spaced rather than quantiles; residuals are scaled by g, a number
// for each dimension, and a, one for each centroid, both optional and 1 if
// absent; levels are chosen for the direction of the decoded vector rather than
// one by one; and its length is settled when it is stored rather than each time
// it is read. Codecs of imported indexes keep the table of weights they came
// with ([FromTable]), and b is the bucket of (v − C_code) / (a·g).
//
// Data flows: sample → [Train] → [Quantizer.Encode] into a [Block] → storage; and
// back through [Quantizer.DecodeTokens]. Results depend on the seed and the
// backend's Nearest, never on the number of threads.
package codec

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/plaid-ir/plaid/internal/floats"
	"github.com/plaid-ir/plaid/kernels"
)

// Errors of this package; test with errors.Is.
var (
	// ErrNoVectors: there is nothing to train on.
	ErrNoVectors = errors.New("codec: no vectors to train on")
	// ErrValue: a component that is NaN, infinite or out of range.
	ErrValue = errors.New("codec: bad value")
	// ErrShape: lengths or options that do not fit each other.
	ErrShape = errors.New("codec: shapes do not match")
	// ErrCode: a centroid number that the codec does not have.
	ErrCode = errors.New("codec: no such centroid")
	// ErrNoCutoffs: the codec has a table of weights that do not increase, and no
	// cutoffs, so that it decodes but cannot encode.
	ErrNoCutoffs = errors.New("codec: table of weights without cutoffs cannot encode")
)

const (
	// minNorm is the norm below which a decoded vector is not stretched further.
	minNorm = 1e-6
	// Factors are 16-bit fractions of FactorMax, so a wide range costs precision.
	// Residuals shorten a unit centroid by little: real collections stay below 2.
	minFactorMax = 1.5
	maxFactorMax = 8
)

// Quantizer encodes and decodes token vectors. It is read-only and safe for
// concurrent use.
type Quantizer struct {
	Dim   int // components of a vector
	Nbits int // bits of a bucket number: 1, 2, 4 or 8
	K     int // centroids

	// Cutoffs are the 2ⁿ−1 boundaries of a table codebook: the bucket of a value
	// is the number of cutoffs strictly below it. Nil for uniform levels, which
	// are chosen for the direction of the decoded vector. Read-only.
	Cutoffs []float32

	kernel  kernels.Codec
	weights []float32 // 2ⁿ
	lut     []float32 // 256 rows: the weights of the 8/n fields of a byte
	buckets *bucketer // of a table codebook; nil: ErrNoCutoffs
	rows    *centroidRows
	flat    bool // see [Flat]
}

// centroidRows holds the centroids as float32, made when the first vector is
// encoded: a reader of an index never needs them.
type centroidRows struct {
	once sync.Once
	f32  []float32
}

// New wraps the arrays of a stored codec, which must stay valid and unchanged as
// long as the codec is used. A table codebook gets cutoffs half-way between
// neighbouring weights; see [Quantizer.WithCutoffs]. Errors wrap [kernels.ErrShape],
// or [ErrValue] for a scale that is not positive and finite.
func New(k kernels.Codec) (*Quantizer, error) {
	if err := k.Validate(); err != nil {
		return nil, fmt.Errorf("codec: %w", err)
	}
	if err := checkScales("dimension", k.DimScale); err != nil {
		return nil, err
	}
	if err := checkScales("centroid", k.CentroidScale); err != nil {
		return nil, err
	}
	c := &Quantizer{
		Dim:     k.Centroids.Dim,
		Nbits:   k.Codebook.Nbits,
		K:       k.Centroids.K,
		kernel:  k,
		weights: k.Codebook.Weights(),
		rows:    new(centroidRows),
		flat:    isFlat(&k),
	}
	c.lut = byteTable(c.weights, c.Nbits)
	if !k.Codebook.Uniform() {
		if mids, increasing := midpoints(c.weights); increasing {
			c.Cutoffs = mids
			c.buckets = &bucketer{mids}
		}
	}
	return c, nil
}

func checkScales(of string, scales []float32) error {
	for i, s := range scales {
		if !(s > 0) || math.IsInf(float64(s), 0) {
			return fmt.Errorf("%w: scale of %s %d is %g", ErrValue, of, i, s)
		}
	}
	return nil
}

// WithCutoffs returns the quantizer with other cutoffs for its table of weights:
// 2ⁿ−1 values, none smaller than the one before. For a uniform codec the error
// wraps [ErrShape].
func (c *Quantizer) WithCutoffs(cutoffs []float32) (*Quantizer, error) {
	if c.kernel.Codebook.Uniform() {
		return nil, fmt.Errorf("%w: cutoffs given for uniform levels", ErrShape)
	}
	if err := checkCutoffs(cutoffs, c.Nbits); err != nil {
		return nil, err
	}
	d := *c
	d.Cutoffs = cutoffs
	d.buckets = &bucketer{cutoffs}
	return &d, nil
}

// WithFactorMax returns the quantizer with another largest factor, f held within
// [1.5, 8]: see [Quantizer.MaxFactor]. Blocks encoded before do not fit it.
func (c *Quantizer) WithFactorMax(f float32) *Quantizer {
	d := *c
	d.kernel.FactorMax = clampFactorMax(f)
	return &d
}

// withStep returns the quantizer with another step of its uniform levels.
func (c *Quantizer) withStep(step float32) *Quantizer {
	d := *c
	d.kernel.Codebook.Step = max(step, minStep)
	d.weights = d.kernel.Codebook.Weights()
	d.lut = byteTable(d.weights, d.Nbits)
	return &d
}

func clampFactorMax(f float32) float32 {
	if !(f > minFactorMax) {
		return minFactorMax
	}
	return min(f, maxFactorMax)
}

// Kernel is the codec as kernels see it. Read-only.
func (c *Quantizer) Kernel() *kernels.Codec { return &c.kernel }

// RowBytes is the number of residual bytes of one token.
func (c *Quantizer) RowBytes() int { return c.kernel.RowBytes() }

// CodeBytes is the number of bytes of a stored code: 2 while K allows, else 4.
func (c *Quantizer) CodeBytes() int {
	if c.K <= 1<<16 {
		return 2
	}
	return 4
}

// Centroids returns the K × Dim centroids as float32, K·Dim·4 bytes that are
// made by the first call and kept. Read-only.
func (c *Quantizer) Centroids() []float32 {
	c.rows.once.Do(func() {
		c.rows.f32 = make([]float32, c.K*c.Dim)
		c.kernel.Centroids.Rows(c.rows.f32, 0, c.K)
	})
	return c.rows.f32
}

// scale returns the factor of the residuals of one centroid.
func (c *Quantizer) scale(code uint32) float32 {
	if c.kernel.CentroidScale == nil {
		return 1
	}
	return c.kernel.CentroidScale[code]
}

// Normalize scales each row of x to unit length, in place. Sums are float64; a
// zero row stays zero.
func Normalize(x []float32, dim int) {
	for ; len(x) >= dim && dim > 0; x = x[dim:] {
		Unit(x[:dim], Square(x[:dim]))
	}
}

// NormalizeWide is Normalize by several goroutines (below 1: one a processor).
func NormalizeWide(x []float32, dim, threads int) {
	_ = forBlocks(context.Background(), len(x)/dim, blockRows, threads, func(_, _, lo, hi int) error {
		Normalize(x[lo*dim:hi*dim], dim)
		return nil
	})
}

// Square is the square of the length of x, summed in float64.
func Square(x []float32) float64 { return floats.SquaredNorm(x) }

// Unit scales a row whose [Square] is known to unit length, in place, as [Normalize]
// does.
func Unit(x []float32, square float64) {
	if square > 0 {
		floats.Scale(x, 1/math.Sqrt(square))
	}
}

// dot64 sums in float64, in four lanes so that additions overlap. The products are
// exact: fused with the sums they give the same.
func dot64(x, y []float32) float64 {
	var s0, s1, s2, s3 float64
	y = y[:len(x)]
	j := 0
	for ; j+4 <= len(x); j += 4 {
		a, b := x[j:j+4:j+4], y[j:j+4:j+4]
		s0 += float64(a[0]) * float64(b[0])
		s1 += float64(a[1]) * float64(b[1])
		s2 += float64(a[2]) * float64(b[2])
		s3 += float64(a[3]) * float64(b[3])
	}
	for ; j < len(x); j++ {
		s0 += float64(x[j]) * float64(y[j])
	}
	return s0 + s1 + s2 + s3
}

// Flat returns a codec that needs no training: one centroid, which is zero, and 256
// equally spaced levels for each component. A vector is scaled until its largest
// component reaches the last level, and the factor undoes that, so that the error goes
// with the vector and not with those of a sample: at most m·√dim/255 of its length, m
// being the largest component of the vector at unit length. It is for collections that
// are too small to train on. The error wraps [ErrShape].
func Flat(dim int) (*Quantizer, error) {
	if dim < 1 || dim > kernels.MaxDim {
		return nil, fmt.Errorf("%w: dimension %d is not in 1..%d", ErrShape, dim, kernels.MaxDim)
	}
	return New(kernels.Codec{
		Centroids: kernels.Centroids{K: 1, Dim: dim, Type: kernels.BF16, Data: make([]byte, dim*kernels.BF16.Size())},
		Codebook:  kernels.Codebook{Nbits: 8, Step: 2. / 255},
		FactorMax: minFactorMax,
	})
}

// isFlat tells whether a codec is one that Flat makes.
func isFlat(k *kernels.Codec) bool {
	if k.Centroids.K != 1 || !k.Codebook.Uniform() {
		return false
	}
	for _, b := range k.Centroids.Data[:k.Centroids.Dim*k.Centroids.Type.Size()] {
		if b != 0 {
			return false
		}
	}
	return true
}

// inverseLargest is 1/max|x_j|, 0 for zeros.
func inverseLargest(x []float32) float32 {
	most := float32(0)
	for _, v := range x {
		most = max(most, float32(math.Abs(float64(v))))
	}
	if most == 0 {
		return 0
	}
	return 1 / most
}
