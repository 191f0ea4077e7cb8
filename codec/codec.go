// Package codec encodes token vectors into the bytes of an index, and decodes them.
//
// A vector v becomes a centroid number (its code), one bucket of n bits per dimension (its
// residual), and a factor that restores unit length:
//
//	code = argmax_c ⟨v, C_c⟩                      lowest number on ties
//	b    ≈ argmax_b ⟨v, v̂⟩
//	v̂    = f · (C_code + a_code·(g ⊙ w[b]))       f = 1 / max(‖C_code + a·g⊙w‖, 1e-6)
//
// which is the residual compression of ColBERTv2 (arXiv 2112.01488, section
// 3.3) with changes that halve the error of scores in the same bytes
// (docs/lab/codec.md has the figures):
//
//   - The levels w of a codec of [Train] are equally spaced, not quantiles.
//   - Residuals are scaled by g, a number for each dimension, and a, one for each
//     centroid. Both are optional, and 1 if absent.
//   - Levels are selected for the direction of the decoded vector, not one by one.
//   - The length is restored by a stored factor, not computed by each reader.
//
// Codecs of imported indexes keep their table of weights ([FromTable]), and b is
// the bucket of (v − C_code) / (a·g).
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
	// ErrNoVectors means that the sample for training is empty.
	ErrNoVectors = errors.New("codec: no vectors to train on")
	// ErrValue means that a component is NaN, infinite or out of range.
	ErrValue = errors.New("codec: bad value")
	// ErrShape means that lengths or options do not match each other.
	ErrShape = errors.New("codec: shapes do not match")
	// ErrCode means a centroid number that the codec does not have.
	ErrCode = errors.New("codec: no such centroid")
	// ErrNoCutoffs means that the codec has a table of weights that do not increase, and no
	// cutoffs, so that it can decode but not encode.
	ErrNoCutoffs = errors.New("codec: table of weights without cutoffs cannot encode")
)

const (
	// minNorm is a lower bound of the norm in a factor, so that vectors near zero are not
	// scaled to unit length.
	minNorm = 1e-6
	// Bounds of FactorMax. Factors are 16-bit fractions of it, so that a wide range costs
	// precision. A residual shortens a unit centroid by little: in real collections factors
	// stay below 2.
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
	// is the number of cutoffs strictly below it. nil means uniform levels, which
	// are selected for the direction of the decoded vector. Read-only.
	Cutoffs []float32

	kernel  kernels.Codec
	weights []float32 // 2ⁿ
	lut     []float32 // 256 rows: the weights of the 8/n fields of a byte
	buckets *bucketer // of a table codebook; without it the codec cannot encode (ErrNoCutoffs)
	rows    *centroidRows
	flat    bool // a codec of [NewFlat]
}

// centroidRows is the centroids as float32. They are computed when the first vector is
// encoded, since readers of an index do not need them.
type centroidRows struct {
	once sync.Once
	f32  []float32
}

// New returns a quantizer that uses the arrays of a stored codec, which must stay valid and unchanged. A
// table codebook gets cutoffs half-way between neighbouring weights; see [Quantizer.WithCutoffs]. Errors
// wrap [kernels.ErrShape], or [ErrValue] for a scale that is not positive and finite.
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
		if mids, ascending := midpoints(c.weights); ascending {
			c.Cutoffs = mids
			c.buckets = &bucketer{mids}
		}
	}
	return c, nil
}

// checkScales checks that the scales of dimensions or centroids are positive and finite.
func checkScales(unit string, scales []float32) error {
	for i, s := range scales {
		if !(s > 0) || math.IsInf(float64(s), 0) {
			return fmt.Errorf("%w: scale of %s %d is %g", ErrValue, unit, i, s)
		}
	}
	return nil
}

// WithCutoffs returns a copy of the quantizer with other cutoffs for its table of weights: 2ⁿ−1 values that
// do not decrease. For a uniform codec the error wraps [ErrShape].
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

// WithFactorMax returns a copy of the quantizer with another maximum factor: f, limited to [1.5, 8]. See
// [Quantizer.MaxFactor]. It cannot decode blocks that were encoded before.
func (c *Quantizer) WithFactorMax(f float32) *Quantizer {
	d := *c
	d.kernel.FactorMax = clampFactorMax(f)
	return &d
}

// withStep returns a copy of the quantizer with another step of its uniform levels.
func (c *Quantizer) withStep(step float32) *Quantizer {
	d := *c
	d.kernel.Codebook.Step = max(step, minStep)
	d.weights = d.kernel.Codebook.Weights()
	d.lut = byteTable(d.weights, d.Nbits)
	return &d
}

// clampFactorMax limits a maximum factor. NaN becomes the minimum.
func clampFactorMax(f float32) float32 {
	if !(f > minFactorMax) {
		return minFactorMax
	}
	return min(f, maxFactorMax)
}

// Kernel returns the codec for kernels. Read-only.
func (c *Quantizer) Kernel() *kernels.Codec { return &c.kernel }

// RowBytes returns the number of bytes of the residual of a token.
func (c *Quantizer) RowBytes() int { return c.kernel.RowBytes() }

// CodeBytes returns the number of bytes of a stored code: 2 if K allows, otherwise 4.
func (c *Quantizer) CodeBytes() int {
	if c.K <= 1<<16 {
		return 2
	}
	return 4
}

// Centroids returns the K × Dim centroids as float32. The first call computes them, and keeps K·Dim·4
// bytes. Read-only.
func (c *Quantizer) Centroids() []float32 {
	c.rows.once.Do(func() {
		c.rows.f32 = make([]float32, c.K*c.Dim)
		c.kernel.Centroids.Rows(c.rows.f32, 0, c.K)
	})
	return c.rows.f32
}

// centroidScale returns a_code, the scale of the residuals of a centroid.
func (c *Quantizer) centroidScale(code uint32) float32 {
	if c.kernel.CentroidScale == nil {
		return 1
	}
	return c.kernel.CentroidScale[code]
}

// Normalize scales each row of x to unit length, in place. It sums in float64. A zero row stays zero.
func Normalize(x []float32, dim int) {
	for ; len(x) >= dim && dim > 0; x = x[dim:] {
		ScaleToUnit(x[:dim], SquaredNorm(x[:dim]))
	}
}

// NormalizeParallel is Normalize in several goroutines. A number of threads below 1 means one per processor.
func NormalizeParallel(x []float32, dim, threads int) {
	_ = forBlocks(context.Background(), len(x)/dim, blockRows, threads, func(_, _, lo, hi int) error {
		Normalize(x[lo*dim:hi*dim], dim)
		return nil
	})
}

// SquaredNorm returns the squared length of x, summed in float64.
func SquaredNorm(x []float32) float64 { return floats.SquaredNorm(x) }

// ScaleToUnit scales a row with a known [SquaredNorm] to unit length, in place, as [Normalize] does.
func ScaleToUnit(x []float32, square float64) {
	if square > 0 {
		floats.Scale(x, 1/math.Sqrt(square))
	}
}

// dot64 returns the inner product of x and y, summed in float64, in four lanes so that additions overlap.
// A product of two float32 is exact in float64, so that fused multiply-adds give the same bits.
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

// NewFlat returns a codec without training, for collections that are too small to train on: one zero centroid,
// and 256 equally spaced levels for each component. A vector is scaled so that its largest component is the
// last level, and the factor undoes that. So the error depends on the vector alone: it is at most
// m·√dim/255 of its length, where m is the largest component of the vector at unit length. The error wraps
// [ErrShape].
func NewFlat(dim int) (*Quantizer, error) {
	if dim < 1 || dim > kernels.MaxDim {
		return nil, fmt.Errorf("%w: dimension %d is not in 1..%d", ErrShape, dim, kernels.MaxDim)
	}
	return New(kernels.Codec{
		Centroids: kernels.Centroids{K: 1, Dim: dim, Type: kernels.BF16, Data: make([]byte, dim*kernels.BF16.Size())},
		Codebook:  kernels.Codebook{Nbits: 8, Step: 2. / 255}, // 256 levels from −1 to 1
		FactorMax: minFactorMax,
	})
}

// isFlat reports whether a codec is one of [NewFlat].
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

// inverseLargest returns 1/max|x_j|, or 0 for a zero vector.
func inverseLargest(x []float32) float32 {
	largest := float32(0)
	for _, v := range x {
		largest = max(largest, float32(math.Abs(float64(v))))
	}
	if largest == 0 {
		return 0
	}
	return 1 / largest
}
