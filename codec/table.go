package codec

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/kernels"
)

// GridReport describes the rounding of an imported table of weights to its 16-bit grid.
type GridReport struct {
	Scale  float32 // distance of grid points
	Worst  float32 // largest absolute change of a weight, at most Scale/2
	Bucket int     // the weight that changed most
	Before float32 // that weight before rounding
	After  float32 // and after it
}

// FromTable returns the codec of an imported index, of
//
//   - K × dim centroids, stored without rounding in the given type;
//   - 2ⁿ weights, rounded to a grid of −32767 … 32767 steps up to the largest absolute weight;
//   - 2ⁿ−1 cutoffs for documents that are added later. nil means half-way between neighbouring weights.
//
// FactorMax is the maximum. Fit it to the tokens with [Quantizer.MaxFactor] and [Quantizer.WithFactorMax].
// Errors wrap [ErrValue] (a value that is not finite, or a centroid that its type cannot represent),
// [ErrShape] or [kernels.ErrShape].
func FromTable(
	centroids []float32, typ kernels.FloatType, dim, nbits int, cutoffs, weights []float32,
) (*Quantizer, GridReport, error) {
	// Check the arguments.
	var report GridReport
	if dim < 1 || len(centroids) == 0 || len(centroids)%dim != 0 {
		return nil, report, fmt.Errorf("%w: %d centroid values of dimension %d", ErrShape, len(centroids), dim)
	}
	book := kernels.Codebook{Nbits: nbits, Step: 1}
	if err := book.Validate(); err != nil {
		return nil, report, fmt.Errorf("codec: %w", err)
	}
	if len(weights) != 1<<nbits {
		return nil, report, fmt.Errorf("%w: %d weights for %d bits", ErrShape, len(weights), nbits)
	}
	for b, w := range weights {
		if !(math.Abs(float64(w)) <= maxMagnitude) {
			return nil, report, fmt.Errorf("%w: weight %d is %g", ErrValue, b, w)
		}
	}
	// Convert centroids and weights to their stored form.
	data, err := encodeCentroids(centroids, typ, dim)
	if err != nil {
		return nil, report, err
	}
	book.Step = 0
	book.Grid, book.Scale = fitGrid(weights)
	c, err := New(kernels.Codec{
		Centroids: kernels.Centroids{K: len(centroids) / dim, Dim: dim, Type: typ, Data: data},
		Codebook:  book,
		FactorMax: maxFactorMax,
	})
	if err != nil {
		return nil, report, err
	}
	report = gridReport(weights, c.weights, book.Scale)
	if cutoffs != nil {
		if c, err = c.WithCutoffs(cutoffs); err != nil {
			return nil, report, err
		}
	}
	return c, report, nil
}

// checkCutoffs checks that cutoffs are 2ⁿ−1 finite values that do not decrease.
func checkCutoffs(cutoffs []float32, nbits int) error {
	if len(cutoffs) != 1<<nbits-1 {
		return fmt.Errorf("%w: %d cutoffs for %d bits", ErrShape, len(cutoffs), nbits)
	}
	for i, v := range cutoffs {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return fmt.Errorf("%w: cutoff %d is %g", ErrValue, i, v)
		}
		if i > 0 && v < cutoffs[i-1] {
			return fmt.Errorf("%w: cutoff %d is %g, below %g before it", ErrValue, i, v, cutoffs[i-1])
		}
	}
	return nil
}

// encodeCentroids returns the centroids as bytes of a type. A value that the type cannot hold exactly is an
// error.
func encodeCentroids(centroids []float32, typ kernels.FloatType, dim int) ([]byte, error) {
	if typ != kernels.BF16 && typ != kernels.F16 && typ != kernels.F32 {
		return nil, fmt.Errorf("%w: centroids of type %v", ErrShape, typ)
	}
	data := make([]byte, 0, len(centroids)*typ.Size())
	for i, v := range centroids {
		if !(math.Abs(float64(v)) <= maxMagnitude) {
			return nil, fmt.Errorf("%w: centroid %d, dimension %d is %g", ErrValue, i/dim, i%dim, v)
		}
		rounded := v
		switch typ {
		case kernels.BF16:
			h := kernels.BF16FromF32(v)
			rounded = math.Float32frombits(uint32(h) << 16)
			data = binary.LittleEndian.AppendUint16(data, h)
		case kernels.F16:
			h := kernels.F16FromF32(v)
			rounded = kernels.F16ToF32(h)
			data = binary.LittleEndian.AppendUint16(data, h)
		default:
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		if rounded != v {
			return nil, fmt.Errorf("%w: centroid %d, dimension %d: %g is not exact in %v",
				ErrValue, i/dim, i%dim, v, typ)
		}
	}
	return data, nil
}

// gridMax is the largest number of grid steps.
const gridMax = 1<<15 - 1

// fitGrid rounds weights to a grid whose last point is the largest absolute weight.
func fitGrid(weights []float32) (grid []int16, scale float32) {
	var largest float64
	for _, w := range weights {
		largest = max(largest, math.Abs(float64(w)))
	}
	grid = make([]int16, len(weights))
	if scale = float32(largest / gridMax); scale == 0 {
		return grid, 1
	}
	for b, w := range weights {
		q := math.RoundToEven(float64(w) / float64(scale))
		grid[b] = int16(max(min(q, gridMax), -gridMax))
	}
	return grid, scale
}

// gridReport compares the weights before and after rounding.
func gridReport(before, after []float32, scale float32) GridReport {
	r := GridReport{Scale: scale, Before: before[0], After: after[0]}
	for b := range before {
		if d := float32(math.Abs(float64(before[b]) - float64(after[b]))); d > r.Worst {
			r.Worst, r.Bucket, r.Before, r.After = d, b, before[b], after[b]
		}
	}
	return r
}
