// Package kernels defines the scores of plaid by a float64 oracle, and the
// interface of the backends that compute them fast.
//
// A backend sees an index as flat arrays (centroids, a codebook, and chunks of
// codes, packed residuals and factors); it knows nothing about files. Backends and
// devices register themselves when their package is imported, as database drivers
// do: kernels/cpu registers those of the processor, kernels/cuda the GPUs.
//
// # Score
//
// A stored token t with centroid code c, bucket numbers b and factor f decodes to
//
//	v̂ = f · (C_c + a_c · (g ⊙ w[b]))
//
// where w are the codebook's weights, g the optional scale per dimension and a
// the optional scale per centroid. A document D scores
//
//	MaxSim(q, D) = Σ_s weight_s · max_{t∈D} ⟨q_s, v̂_t⟩
//
// with maxima that start at −∞; an empty document scores 0. Every fast kernel
// uses ⟨q, v̂⟩ = f · (S[c][q] + a_c·⟨g ⊙ q, w[b]⟩) with S = C·Qᵀ, so that the
// centroid part of the product is computed once a query and not once a token
// (PLAID, arXiv 2205.09707, section 4; WARP, arXiv 2501.17788, section 4.3).
package kernels

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// MaxDim is the largest supported vector dimension.
const MaxDim = 4096

// Errors of this package.
var (
	// ErrUnavailable is returned where a backend or device is selected by a name
	// that does not exist or that cannot run on this machine.
	ErrUnavailable = errors.New("kernels: backend unavailable")
	// ErrShape is returned where the lengths of the caller's arrays contradict each
	// other.
	ErrShape = errors.New("kernels: shapes do not match")
)

// Codec holds those parts of an index's codec that kernels compute with. Kernels
// only read the slices, which may be mapped file pages of any alignment.
type Codec struct {
	Centroids Centroids
	Codebook  Codebook
	// DimScale multiplies the residual of each dimension. It has Dim values; nil
	// means that all are 1.
	DimScale []float32
	// CentroidScale multiplies the residuals of each centroid. It has K values; nil
	// means that all are 1.
	CentroidScale []float32
	// FactorMax is the value of the largest stored factor: a stored int16 f
	// stands for f·FactorMax/32767.
	FactorMax float32
}

// Dim returns the vector dimension.
func (c *Codec) Dim() int { return c.Centroids.Dim }

// RowBytes returns the number of residual bytes of one token.
func (c *Codec) RowBytes() int { return RowBytes(c.Centroids.Dim, c.Codebook.Nbits) }

// RowBytes returns the number of bytes that hold dim fields of nbits. Rows start on
// whole bytes, and the unused high bits of the last byte are 0.
func RowBytes(dim, nbits int) int { return (dim*nbits + 7) / 8 }

// Factor returns the value of a stored factor.
func (c *Codec) Factor(stored int16) float32 {
	return float32(stored) * (c.FactorMax / 32767)
}

// LargestFactor returns the largest |factor| of a document's tokens, or 0 for an empty
// document.
func (c *Codec) LargestFactor(ch *Chunk, doc uint32) float32 {
	var largest int32
	for t := int(ch.Offsets[doc]); t < int(ch.Offsets[doc+1]); t++ {
		f := int32(ch.Factor(t))
		largest = max(largest, f, -f)
	}
	return float32(largest) * (c.FactorMax / 32767)
}

// Validate checks that the lengths of the arrays agree and that all values are in
// range. Errors wrap [ErrShape].
func (c *Codec) Validate() error {
	ct := &c.Centroids
	if ct.Dim < 1 || ct.Dim > MaxDim {
		return fmt.Errorf("%w: dimension %d is not in 1..%d", ErrShape, ct.Dim, MaxDim)
	}
	if ct.Type < BF16 || ct.Type > F32 {
		return fmt.Errorf("%w: centroids of type %d", ErrShape, ct.Type)
	}
	if ct.K < 1 || ct.K > len(ct.Data) || len(ct.Data) < ct.K*ct.Dim*ct.Type.Size() {
		return fmt.Errorf("%w: %d centroids of dimension %d in %d bytes", ErrShape, ct.K, ct.Dim, len(ct.Data))
	}
	if c.DimScale != nil && len(c.DimScale) != ct.Dim {
		return fmt.Errorf("%w: %d scales for %d dimensions", ErrShape, len(c.DimScale), ct.Dim)
	}
	if c.CentroidScale != nil && len(c.CentroidScale) != ct.K {
		return fmt.Errorf("%w: %d scales for %d centroids", ErrShape, len(c.CentroidScale), ct.K)
	}
	if !(c.FactorMax > 0) || c.FactorMax > 1e6 {
		return fmt.Errorf("%w: largest factor %g", ErrShape, c.FactorMax)
	}
	return c.Codebook.Validate()
}

// Codebook maps a bucket number to a weight. It is either uniform (Step > 0):
//
//	w[b] = Step · (b − (2ⁿ−1)/2)
//
// or a table on a 16-bit grid (Step == 0): w[b] = Scale · Grid[b]. The grid keeps
// the weights of imported indexes to six digits, and kernels that multiply bytes
// can split an entry into two 8-bit parts without loss.
type Codebook struct {
	Nbits int // 1, 2, 4 or 8
	Step  float32
	Grid  []int16 // 2ⁿ values
	Scale float32
}

// Validate checks the number of bits and the weights. Errors wrap [ErrShape].
func (b *Codebook) Validate() error {
	switch b.Nbits {
	case 1, 2, 4, 8:
	default:
		return fmt.Errorf("%w: %d bits a component; 1, 2, 4 and 8 are supported", ErrShape, b.Nbits)
	}
	if b.Step > 0 && b.Step < 1e6 {
		return nil
	}
	if b.Step != 0 || len(b.Grid) != 1<<b.Nbits || !(b.Scale >= 0 && b.Scale < 1e6) {
		return fmt.Errorf("%w: codebook with step %g, %d table entries, scale %g",
			ErrShape, b.Step, len(b.Grid), b.Scale)
	}
	return nil
}

// Uniform reports whether the weights are equally spaced levels.
func (b *Codebook) Uniform() bool { return b.Step > 0 }

// Weights returns the 2ⁿ weights by bucket number.
func (b *Codebook) Weights() []float32 {
	w := make([]float32, 1<<b.Nbits)
	for i := range w {
		if b.Uniform() {
			w[i] = b.Step * (float32(i) - float32(float32(len(w)-1)/2))
		} else {
			w[i] = b.Scale * float32(b.Grid[i])
		}
	}
	return w
}

// Chunk is a run of whole documents. All multi-byte values are little-endian.
type Chunk struct {
	// Offsets has one more entry than the chunk has documents: document i owns
	// tokens Offsets[i] to Offsets[i+1] (the cu_seqlens of varlen kernels).
	Offsets []uint32
	// Codes holds one centroid number a token, CodeBytes (2 or 4) bytes each.
	Codes     []byte
	CodeBytes int
	// Residuals holds RowBytes bytes a token; field j of a row is at bit
	// j·nbits, least significant first.
	Residuals []byte
	// Factors holds one int16 a token.
	Factors []byte
}

// Docs returns the number of documents, empty ones included.
func (c *Chunk) Docs() int { return max(len(c.Offsets)-1, 0) }

// Tokens returns the number of tokens.
func (c *Chunk) Tokens() int {
	if len(c.Offsets) == 0 {
		return 0
	}
	return int(c.Offsets[len(c.Offsets)-1])
}

// Code returns the centroid number of token t.
func (c *Chunk) Code(t int) uint32 {
	if c.CodeBytes == 2 {
		return uint32(binary.LittleEndian.Uint16(c.Codes[2*t:]))
	}
	return binary.LittleEndian.Uint32(c.Codes[4*t:])
}

// Factor returns the stored factor of token t.
func (c *Chunk) Factor(t int) int16 {
	return int16(binary.LittleEndian.Uint16(c.Factors[2*t:]))
}

// Validate checks the lengths of the arrays and that every code is below the number
// of centroids. It is called once, when a chunk is opened: kernels do not check again.
// Errors wrap [ErrShape].
func (c *Chunk) Validate(codec *Codec) error {
	n := c.Tokens()
	for i := 1; i < len(c.Offsets); i++ {
		if c.Offsets[i] < c.Offsets[i-1] {
			return fmt.Errorf("%w: offsets decrease at document %d", ErrShape, i-1)
		}
	}
	if c.CodeBytes != 2 && c.CodeBytes != 4 {
		return fmt.Errorf("%w: codes of %d bytes", ErrShape, c.CodeBytes)
	}
	if len(c.Codes) < n*c.CodeBytes || len(c.Factors) < 2*n || len(c.Residuals) < n*codec.RowBytes() {
		return fmt.Errorf("%w: %d tokens with %d code, %d factor, %d residual bytes",
			ErrShape, n, len(c.Codes), len(c.Factors), len(c.Residuals))
	}
	return c.ValidateCodes(codec, 0, n)
}

// ValidateCodes checks the codes of tokens lo to hi as [Chunk.Validate] does.
func (c *Chunk) ValidateCodes(codec *Codec, lo, hi int) error {
	if c.CodeBytes == 2 && codec.Centroids.K >= 1<<16 { // every code of 2 bytes is valid
		return nil
	}
	for t := lo; t < hi; t++ {
		if int(c.Code(t)) >= codec.Centroids.K {
			return fmt.Errorf("%w: token %d has code %d of %d centroids", ErrShape, t, c.Code(t), codec.Centroids.K)
		}
	}
	return nil
}

// codeLister is a [DeviceKind] that lists the device code built into the program.
type codeLister interface{ Code() []string }

// DeviceCode lists the device code that is built into this program, by kind of device,
// whether or not the machine has such a device.
func DeviceCode() map[string][]string {
	code := map[string][]string{}
	for _, k := range deviceKinds() {
		code[k.Kind()] = []string{}
		if c, ok := k.(codeLister); ok {
			code[k.Kind()] = c.Code()
		}
	}
	return code
}

// Bound selects the error bound of level Fast by which a search decides which
// documents to score again at level Fine. Scores that are returned are of level Fine
// with either bound.
type Bound int

const (
	// Probable treats the roundings of a query as independent, each as likely up as
	// down (Higham and Mary, "A new approach to probabilistic rounding error
	// analysis", SIAM Journal on Scientific Computing 41(5), 2019). The probability
	// that a search misses a document is then at most 1e-9 a query. Each search
	// compares the bound with the errors that it observes, and continues with Worst
	// where they come near.
	Probable Bound = iota
	// Worst adds up the largest error of each rounding: no document is missed.
	Worst
)

var boundNames = []string{Probable: "probable", Worst: "worst"}

func (b Bound) String() string {
	if b < 0 || int(b) >= len(boundNames) {
		return fmt.Sprintf("Bound(%d)", int(b))
	}
	return boundNames[b]
}

// Deviations is λ of [Probable]. The sum of independent errors within ±h_i, each of
// mean 0, is below −λ·√Σh_i² with a probability of at most exp(−λ²/2) (Hoeffding,
// "Probability inequalities for sums of bounded random variables", 1963, theorem 2).
// For 1e-9 over the 2³² documents that ordinals can number, λ = √(2·ln(2³²·10⁹)).
const Deviations = 9.27

// NearBound is the share of a Probable bound that an observed error must not exceed.
// Where one does, the roundings are not independent as [Probable] assumes, and the
// search continues with Worst.
const NearBound = 0.5

// Shortfall bounds how far the score of a document at level Fast may be below its
// score at level Fine.
//
// Only this direction can hide a document. Let m be the lowest of k fine scores: a
// document whose score at level Fast is below m by more than the bound cannot be among the
// k best. It is enough to bound the errors of the tokens that give the fine score: the
// maxima of level Fast over all tokens can only be larger than the values of these.
type Shortfall struct {
	Fixed  float64 // for any document
	Factor float64 // times the largest |factor| of the document's tokens
}

// ForFactor returns the bound for a document whose largest |factor| is given.
func (s Shortfall) ForFactor(factor float32) float64 {
	return s.Fixed + float64(s.Factor*float64(factor))
}
