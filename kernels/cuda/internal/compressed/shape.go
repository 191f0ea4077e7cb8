package compressed

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// shape has the numbers of a codec that kernels need in addition to its arrays.
type shape struct {
	dim, nbits, k              int
	lanes, rowBytes, codeBytes int
	mode, fragStride           int
	maxCentroidScale           float32 // 1 without scales
	scaled                     bool    // centroids have scales
	step                       float32 // prep_query's: step, or largest |weight|
	sMax, sLeast, factorMax    float32
	weights, dimScale          []float32
	tableScale                 float32 // a power of two: fine scores have weights of tables times this
	centroidUp                 float32 // a power of two: centroids are kept times this
}

// newShape returns the shape of a codec on a device. half allows the scans in half precision, which
// only devices of halfArch have.
func newShape(c *kernels.Codec, half bool) (*shape, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &shape{
		dim:              c.Dim(),
		nbits:            c.Codebook.Nbits,
		k:                c.Centroids.K,
		rowBytes:         c.RowBytes(),
		codeBytes:        2,
		maxCentroidScale: 1,
		factorMax:        c.FactorMax,
		weights:          c.Codebook.Weights(),
		mode:             c.Codebook.Nbits,
		step:             c.Codebook.Step,
		dimScale:         slices.Clone(c.DimScale),
	}
	if s.k > 1<<16 {
		s.codeBytes = 4
	}
	s.lanes = laneWords(s.dim, s.nbits)
	ratio, least := float32(1), float32(1)
	if c.CentroidScale != nil {
		s.scaled = true
		s.maxCentroidScale = 0
		lo := float32(math.Inf(1))
		for _, a := range c.CentroidScale {
			s.maxCentroidScale, lo = max(s.maxCentroidScale, a), min(lo, a)
		}
		if !(lo > 0) || math.IsInf(float64(s.maxCentroidScale), 0) {
			return nil, fmt.Errorf("%w: scales of centroids from %g to %g", kernels.ErrShape, lo, s.maxCentroidScale)
		}
		ratio, least = s.maxCentroidScale/lo, lo
	}
	if !c.Codebook.Uniform() || ratio > maxRatio {
		s.mode, s.step = tableMode, 0
		for _, w := range s.weights {
			s.step = max(s.step, float32(math.Abs(float64(w))))
		}
	}
	if s.mode != tableMode && half {
		switch [2]int{s.nbits, s.lanes} {
		case [2]int{1, 1}, [2]int{2, 1}, [2]int{2, 2}, [2]int{4, 2}, [2]int{4, 4}:
			s.mode = halfMode + s.nbits
		}
	}
	s.tableScale, s.centroidUp = 1, 1
	if s.mode == tableMode && s.step > 0 {
		s.tableScale = scaleBelow(9, float64(s.step))
	}
	s.factorMax *= s.maxCentroidScale
	s.fragStride = fragWords(s.mode, s.lanes, s.nbits)
	norm, err := largestNorm(&c.Centroids)
	if norm > 0 {
		s.centroidUp = scaleBelow(7, float64(norm))
	}
	s.sMax, s.sLeast = runtime.RoundUp(norm/least), runtime.RoundUp(norm/s.maxCentroidScale)
	return s, err
}

// laneDims returns how many dimensions one of the four lanes of a row has.
func (s *shape) laneDims() int { return s.lanes * 32 / s.nbits }

// partsBytes returns the bytes of the parts of a group of query tokens in lane order.
func (s *shape) partsBytes() int64 { return 4 * int64(s.laneDims()/4) * 128 * 8 }

// centroidStride returns how many values of half precision a centroid has in lane order.
func (s *shape) centroidStride() int { return (s.laneDims()/4 + 1) / 2 * 32 }

// centroidIndex returns the index of a dimension in that order.
func (s *shape) centroidIndex(d int) int {
	lane, e := d/s.laneDims(), d%s.laneDims()
	return e/8*32 + lane*8 + e%8
}

// scaleBelow returns the power of two whose product with x is below 2^exponent, and at least half
// of it.
func scaleBelow(exponent int, x float64) float32 {
	_, e := math.Frexp(x)
	return float32(math.Ldexp(1, max(min(exponent-e, 100), -100)))
}

// rowStride is the bytes of a row of packed fields on the device.
func (s *shape) rowStride() int64 { return 16 * int64(s.lanes) }

// largestNorm is the largest length of a centroid. The kernels have centroids
// as bfloat16, so that others are accepted only if that keeps their values.
func largestNorm(c *kernels.Centroids) (float32, error) {
	row := make([]float32, c.Dim)
	largest := 0.0
	for i := range c.K {
		c.Rows(row, i, i+1)
		sum := 0.0
		for j, v := range row {
			sum += float64(v) * float64(v)
			if c.Type != kernels.BF16 && math.Float32bits(v)&0xffff != 0 {
				return 0, fmt.Errorf(
					"%w: centroid %d, dimension %d: %g is not a bfloat16; search indexes with %v centroids on the CPU",
					driver.ErrUnsupported, i, j, v, c.Type)
			}
		}
		largest = max(largest, sum)
	}
	return float32(math.Sqrt(largest) * (1 + 1e-6)), nil
}

// codecArrays has the offsets of the arrays of a codec in device memory.
type codecArrays struct {
	centroids, fineTable, table, dimScale, ratio, invScale int64 // −1 means absent
	size                                                   int64
}

// layOutCodec lays out the arrays of a codec.
func (s *shape) layOutCodec(c *kernels.Codec) codecArrays {
	var a runtime.Arena
	out := codecArrays{
		fineTable: -1,
		table:     -1,
		dimScale:  -1,
		ratio:     -1,
		invScale:  -1,
	}
	out.centroids = a.Append(2 * int64(s.k) * int64(s.centroidStride()))
	if s.mode == tableMode {
		out.fineTable = a.Append(4 << s.nbits)
		out.table = a.Append(2 << s.nbits)
	}
	if c.DimScale != nil {
		out.dimScale = a.Append(4 * int64(s.dim))
	}
	if s.scaled {
		out.ratio = a.Append(4 * int64(s.k))
		out.invScale = a.Append(4 * int64(s.k))
	}
	out.size = a.Size
	return out
}

// writeCodec writes the arrays of a codec at their offsets in dst.
func (s *shape) writeCodec(dst []byte, offsets codecArrays, c *kernels.Codec) {
	le := binary.LittleEndian
	row := make([]float32, s.dim)
	for i := range s.k {
		c.Centroids.Rows(row, i, i+1)
		out := dst[offsets.centroids+2*int64(i)*int64(s.centroidStride()):]
		for j, v := range row {
			le.PutUint16(out[2*s.centroidIndex(j):], kernels.F16FromF32(v*s.centroidUp))
		}
	}
	floats := func(offset int64, n int, f func(i int) float32) {
		if offset < 0 {
			return
		}
		for i := range n {
			le.PutUint32(dst[offset+4*int64(i):], math.Float32bits(f(i)))
		}
	}
	if s.mode == tableMode {
		for i, w := range s.weights { // s.step is the largest
			fine := w * s.tableScale
			high := kernels.F16FromF32(fine)
			le.PutUint16(dst[offsets.fineTable+2*int64(i):], high)
			le.PutUint16(dst[offsets.fineTable+2*int64(len(s.weights)+i):],
				kernels.F16FromF32(fine-kernels.F16ToF32(high)))
			if s.step > 0 {
				w /= s.step
			}
			le.PutUint16(dst[offsets.table+2*int64(i):], kernels.F16FromF32(w))
		}
	}
	floats(offsets.dimScale, s.dim, func(i int) float32 { return c.DimScale[i] })
	floats(offsets.ratio, s.k, func(i int) float32 { return c.CentroidScale[i] / s.maxCentroidScale })
	floats(offsets.invScale, s.k, func(i int) float32 { return 1 / c.CentroidScale[i] })
}

// laneWords returns W of src/plaid.cuh: a row of packed fields has 16·W bytes.
func laneWords(dim, nbits int) int { return (((dim*nbits + 7) / 8) + 15) / 16 }

// fragWords returns the number of words of the operand of a group: 256 for each step of the product.
func fragWords(mode, lanes, nbits int) int {
	steps := 0
	switch mode {
	case 1:
		steps = 5 * lanes
	case 2:
		steps = 3 * lanes
	case 4:
		steps = 2 * lanes
	case 8:
		steps = 2 * ((lanes + 1) / 2)
	case halfMode + 1:
		steps = 4 * lanes
	case halfMode + 2:
		steps = 2 * lanes
	case halfMode + 4:
		steps = lanes
	default:
		steps = 8 * lanes / nbits
	}
	return steps * 256
}
