package codec

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
)

// Block is encoded tokens in the layout of kernels.Chunk. Encode appends to it. Reuse it with Reset.
type Block struct {
	// Codes has CodeBytes bytes per token, little-endian.
	Codes []byte
	// Residuals has RowBytes bytes per token; see pack.
	Residuals []byte
	// Factors has an int16 per token, little-endian; see kernels.Codec.Factor.
	Factors []byte
	Tokens  int
	// Clamped is the number of factors above FactorMax, which were stored as FactorMax: the tokens
	// decode to less than unit length.
	Clamped int
	// Zero is the number of zero rows that Encode appended.
	Zero int
	// SumSq is the sum of ‖x − v̂‖² over the tokens that Encode appended.
	SumSq float64

	job encodeJob
}

// Reset empties the block, and keeps its memory.
func (b *Block) Reset() {
	b.Codes, b.Residuals, b.Factors = b.Codes[:0], b.Residuals[:0], b.Factors[:0]
	b.Tokens, b.Clamped, b.Zero, b.SumSq = 0, 0, 0, 0
}

// Chunk returns the block for kernels. offsets divides its tokens into documents (kernels.Chunk.Offsets).
// It shares the memory of the block.
func (b *Block) Chunk(c *Quantizer, offsets []uint32) kernels.Chunk {
	return kernels.Chunk{
		Offsets:   offsets,
		Codes:     b.Codes,
		CodeBytes: c.CodeBytes(),
		Residuals: b.Residuals,
		Factors:   b.Factors,
	}
}

// appendTokens extends the block by n tokens, and returns their uninitialized memory.
func (b *Block) appendTokens(c *Quantizer, n int) (codes, residuals, factors []byte) {
	extend := func(s *[]byte, n int) []byte {
		end := len(*s)
		*s = slices.Grow(*s, n)[:end+n]
		return (*s)[end:]
	}
	b.Tokens += n
	return extend(&b.Codes, n*c.CodeBytes()), extend(&b.Residuals, n*c.RowBytes()), extend(&b.Factors, 2*n)
}

// removeTokens removes the last n tokens, after a failure.
func (b *Block) removeTokens(c *Quantizer, n int) {
	b.Tokens -= n
	b.Codes = b.Codes[:len(b.Codes)-n*c.CodeBytes()]
	b.Residuals = b.Residuals[:len(b.Residuals)-n*c.RowBytes()]
	b.Factors = b.Factors[:len(b.Factors)-2*n]
}

// encodeJob is one call of Encode or EncodeFixed, which runs in blocks of rows.
type encodeJob struct {
	codec      *Quantizer
	backend    kernels.Backend
	x          []float32
	unit       bool     // scale x to unit length first, in place
	fixedCodes []uint32 // the given codes of EncodeFixed, or nil

	codes, residuals, factors []byte // of the new tokens

	ctx     context.Context
	pool    parallel.Pool
	workers []encodeScratch
	blocks  []blockTotal
}

// encodeScratch is the scratch memory of a worker.
type encodeScratch struct {
	codes   []uint32
	buckets []uint8
	values  []float32
	search  levelSearch
}

// blockTotal is the totals of a block of rows.
type blockTotal struct {
	clamped, zero int
	sumSq         float64
}

// addToBlock adds the totals to those of b.
func (t *blockTotal) addToBlock(b *Block) {
	b.Clamped += t.clamped
	b.Zero += t.zero
	b.SumSq += t.sumSq
}

// Encode appends the rows of x, len(x)/Dim vectors, to dst. A zero row gets factor 0. The caller must have
// checked that x has no NaN, whose bytes would have no meaning. The result does not depend on threads (below
// 1 means all processors), nor on be (nil means the default backend).
//
// After an error dst is unchanged. Errors are those of ctx and be, or wrap [ErrShape], [ErrNoCutoffs] or
// [kernels.ErrUnavailable].
func (c *Quantizer) Encode(ctx context.Context, dst *Block, x []float32, threads int, be kernels.Backend) error {
	e := Encoder{codec: c, threads: threads}
	if err := e.prepareBackend(ctx, be); err != nil {
		return err
	}
	defer e.Close()
	return e.Encode(ctx, dst, x)
}

// EncodeFixed appends tokens with given codes and packed buckets, such as those of an imported index. It
// computes only the factors. residuals has RowBytes bytes per token. After an error dst is unchanged. Errors
// are those of ctx, or wrap [ErrShape] or [ErrCode].
func (c *Quantizer) EncodeFixed(ctx context.Context, dst *Block, codes []uint32, residuals []byte, threads int) error {
	if err := c.checkFixed(codes, residuals); err != nil {
		return err
	}
	c.Centroids()
	dst.job.fixedCodes = codes
	dst.job.residuals = residuals // copied by runJob
	return c.runJob(ctx, dst, len(codes), threads)
}

// runJob encodes n tokens of the job of dst.
func (c *Quantizer) runJob(ctx context.Context, dst *Block, n, threads int) error {
	// Allocate the memory of the tokens.
	j := &dst.job
	fixedResiduals := j.residuals
	j.ctx, j.codec = ctx, c
	j.codes, j.residuals, j.factors = dst.appendTokens(c, n)
	if j.fixedCodes != nil {
		copy(j.residuals, fixedResiduals)
	}
	// Encode them in blocks.
	j.workers = resize(j.workers, workers(n, blockRows, threads))
	j.blocks = resize(j.blocks, (n+blockRows-1)/blockRows)
	err := j.pool.Run(ctx, len(j.blocks), threads, j)
	if err != nil {
		dst.removeTokens(c, n)
	} else {
		for _, t := range j.blocks {
			t.addToBlock(dst)
		}
	}
	// Keep the scratch memory, but no references to memory of the caller.
	j.ctx, j.codec, j.backend, j.x, j.unit, j.fixedCodes = nil, nil, nil, nil, false, nil
	j.codes, j.residuals, j.factors = nil, nil, nil
	return err
}

// resize returns a slice of n elements, in the memory of s if that is large enough.
func resize[T any](s []T, n int) []T {
	return slices.Grow(s[:0], n)[:n]
}

// Run encodes a block.
func (j *encodeJob) Run(worker, block int) error {
	lo, hi := parallel.Block(block, len(j.factors)/2, blockRows)
	c, s := j.codec, &j.workers[worker]
	s.allocate(c)
	total := &j.blocks[block]
	*total = blockTotal{}
	rowBytes := c.RowBytes()
	// With given codes and residuals, compute the factors.
	if j.fixedCodes != nil {
		for t := lo; t < hi; t++ {
			code := j.fixedCodes[t]
			packed := j.residuals[t*rowBytes : (t+1)*rowBytes]
			c.clearPadding(packed)
			y := c.reconstruct(s.values[:c.Dim], code, packed)
			f, clamped := c.storeFactor(dot64(y, y))
			j.storeToken(t, code, f, clamped, total)
		}
		return nil
	}
	// Otherwise find the nearest centroids, and encode the residuals.
	if j.unit {
		Normalize(j.x[lo*c.Dim:hi*c.Dim], c.Dim)
	}
	s.codes = resize(s.codes, hi-lo)
	if err := j.backend.Nearest(j.ctx, s.codes, nil, c.Centroids(), j.x[lo*c.Dim:hi*c.Dim], c.Dim); err != nil {
		return err
	}
	for t := lo; t < hi; t++ {
		code := s.codes[t-lo]
		r := c.encodeToken(j.residuals[t*rowBytes:(t+1)*rowBytes], s, j.x[t*c.Dim:(t+1)*c.Dim], code)
		j.storeToken(t, code, r.factor, r.clamped, total)
		total.sumSq += r.squaredError
		if r.zero {
			total.zero++
		}
	}
	return nil
}

// allocate allocates the memory that encodeToken needs.
func (s *encodeScratch) allocate(c *Quantizer) {
	s.values, s.buckets = resize(s.values, 2*c.Dim), resize(s.buckets, c.Dim)
}

// encodedToken is the result of encoding a token, in addition to its code and residual.
type encodedToken struct {
	factor        int16
	clamped, zero bool
	squaredError  float64
}

// encodeToken packs the residual of a token x with a given code.
func (c *Quantizer) encodeToken(packed []byte, s *encodeScratch, x []float32, code uint32) encodedToken {
	y := c.encodeRow(packed, s, x, code)
	xx := dot64(x, x)
	if xx == 0 {
		return encodedToken{zero: true}
	}
	yy := dot64(y, y)
	f, clamped := c.storeFactor(yy)
	squaredError := squaredErrorOf(xx, dot64(x, y), yy, float64(c.kernel.Factor(f)))
	return encodedToken{factor: f, clamped: clamped, squaredError: squaredError}
}

// squaredErrorOf returns ‖x − f·y‖², given ‖x‖², ⟨x, y⟩, ‖y‖² and f.
func squaredErrorOf(xx, xy, yy, f float64) float64 {
	return max(xx-float64(2*f*xy)+float64(f*f*yy), 0)
}

// storeToken stores the code and the factor of token t, and counts a clamped factor.
func (j *encodeJob) storeToken(t int, code uint32, factor int16, clamped bool, total *blockTotal) {
	if j.codec.CodeBytes() == 2 {
		binary.LittleEndian.PutUint16(j.codes[2*t:], uint16(code))
	} else {
		binary.LittleEndian.PutUint32(j.codes[4*t:], code)
	}
	binary.LittleEndian.PutUint16(j.factors[2*t:], uint16(factor))
	if clamped {
		total.clamped++
	}
}

// encodeRow packs the buckets of x for a given code, and returns the vector that they decode to before the
// factor is applied. The result is in the scratch memory: s needs 2·Dim values and Dim buckets.
func (c *Quantizer) encodeRow(packed []byte, s *encodeScratch, x []float32, code uint32) []float32 {
	if c.kernel.Codebook.Uniform() {
		c.searchLevels(s.buckets, &s.search, x, code)
	} else {
		r := s.values[c.Dim : 2*c.Dim]
		c.residual(r, x, code)
		c.buckets.bucketRow(s.buckets, r)
	}
	pack(packed, s.buckets, c.Nbits)
	return c.reconstruct(s.values[:c.Dim], code, packed)
}

// residual sets r to (x − C_code) / (a_code·g).
func (c *Quantizer) residual(r, x []float32, code uint32) {
	centroid := c.Centroids()[int(code)*c.Dim : (int(code)+1)*c.Dim]
	x = x[:len(r)]
	for j, v := range centroid[:len(r)] {
		r[j] = x[j] - v
	}
	c.divideByScales(r, code)
}

// searchResidual sets r to (u − C_code) / (a_code·g), where u is x, scaled so that ⟨u, C_code⟩ is 1. This is the
// residual with which searchLevels begins.
func (c *Quantizer) searchResidual(r, x []float32, code uint32) {
	centroid := c.Centroids()[int(code)*c.Dim : (int(code)+1)*c.Dim]
	inv := c.searchScale(x, centroid)
	for j, v := range centroid[:len(r)] {
		r[j] = float32(x[j]*inv) - v
	}
	c.divideByScales(r, code)
}

// searchScale returns the scale of x with which searchLevels begins: 1/⟨x, centroid⟩, limited if x is far from the
// centroid, and 0 for a zero vector. For a flat codec it scales the largest component to the last level.
func (c *Quantizer) searchScale(x, centroid []float32) float32 {
	if c.flat {
		return inverseLargest(x)
	}
	n2 := dot64(x, x)
	if n2 == 0 {
		return 0
	}
	return float32(1 / max(dot64(x, centroid), minCosine*math.Sqrt(n2)))
}

// divideByScales divides a residual by a_code·g.
func (c *Quantizer) divideByScales(r []float32, code uint32) {
	a, g := c.centroidScale(code), c.kernel.DimScale
	switch {
	case g != nil:
		for j := range r {
			r[j] /= a * g[j]
		}
	case a != 1:
		for j := range r {
			r[j] /= a
		}
	}
}

// reconstruct sets y to C_code + a_code·(g ⊙ w[b]), and returns it.
func (c *Quantizer) reconstruct(y []float32, code uint32, packed []byte) []float32 {
	copy(y, c.Centroids()[int(code)*c.Dim:(int(code)+1)*c.Dim])
	c.addResidual(y, code, packed)
	return y
}

// inverseNorm returns the factor of a decoded vector with a squared norm, before rounding.
func inverseNorm(n2 float64) float64 {
	return 1 / max(math.Sqrt(n2), minNorm)
}

// storeFactor rounds the factor of a vector with squared norm n2 to a multiple, 1 to 32767, of
// FactorMax/32767. clamped means that the factor is too large.
func (c *Quantizer) storeFactor(n2 float64) (f int16, clamped bool) {
	v := inverseNorm(n2) / float64(c.kernel.FactorMax) * 32767
	if v >= 32767.5 { // rounded, it would be beyond the largest
		return 32767, true
	}
	return int16(max(math.Round(v), 1)), false
}

// MaxFactor returns the largest factor that the given tokens need, 0 without tokens. An import calls it for
// all tokens first, and sets FactorMax with [Quantizer.WithFactorMax]. Arguments and errors are those of
// [Quantizer.EncodeFixed].
func (c *Quantizer) MaxFactor(ctx context.Context, codes []uint32, residuals []byte, threads int) (float32, error) {
	if err := c.checkFixed(codes, residuals); err != nil {
		return 0, err
	}
	c.Centroids()
	n, rowBytes := len(codes), c.RowBytes()
	largest := make([]float64, workers(n, blockRows, threads))
	err := forBlocks(ctx, n, blockRows, threads, func(w, _, lo, hi int) error {
		y := make([]float32, c.Dim)
		for t := lo; t < hi; t++ {
			c.reconstruct(y, codes[t], residuals[t*rowBytes:(t+1)*rowBytes])
			largest[w] = max(largest[w], inverseNorm(dot64(y, y)))
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return float32(slices.Max(largest)), nil
}

// checkFixed checks the arguments of EncodeFixed.
func (c *Quantizer) checkFixed(codes []uint32, residuals []byte) error {
	if len(residuals) != len(codes)*c.RowBytes() {
		return fmt.Errorf("%w: %d residual bytes for %d tokens of %d",
			ErrShape, len(residuals), len(codes), c.RowBytes())
	}
	for t, code := range codes {
		if int64(code) >= int64(c.K) {
			return fmt.Errorf("%w: token %d has code %d of %d centroids", ErrCode, t, code, c.K)
		}
	}
	return nil
}

// clearPadding clears the unused bits of the last byte.
func (c *Quantizer) clearPadding(packed []byte) {
	if used := c.Dim * c.Nbits % 8; used != 0 {
		packed[len(packed)-1] &= 1<<used - 1
	}
}
