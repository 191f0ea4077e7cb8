package codec

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/internal/floats"
	"github.com/plaid-ir/plaid/kernels"
)

// points is the vectors of a sample, by number.
type points interface {
	// read returns vectors, which must not be changed.
	read(ctx context.Context, numbers []uint32) ([][]float32, error)
	// copyToDevice copies vectors to the device of a backend. It returns nil if they stay in memory.
	copyToDevice(ctx context.Context, b kernels.Backend, numbers []uint32) (kernels.DeviceRows, error)
}

// matrixPoints is points that are the rows of a matrix in memory.
type matrixPoints struct {
	x   []float32
	dim int
}

func (m matrixPoints) row(i uint32) []float32 { return m.x[int(i)*m.dim : (int(i)+1)*m.dim] }

func (m matrixPoints) read(_ context.Context, numbers []uint32) ([][]float32, error) {
	rows := make([][]float32, len(numbers))
	for i, r := range numbers {
		rows[i] = m.row(r)
	}
	return rows, nil
}

// copyToDevice returns nil if the backend has no device, or too little memory on it.
func (m matrixPoints) copyToDevice(
	ctx context.Context, b kernels.Backend, numbers []uint32,
) (kernels.DeviceRows, error) {
	uploader, ok := b.(kernels.RowUploader)
	if !ok {
		return nil, nil
	}
	rows, err := uploader.UploadRows(ctx, m.x, m.dim, numbers)
	if errors.Is(err, kernels.ErrDeviceMemory) {
		return nil, nil
	}
	return rows, err
}

// gather returns rows as a contiguous matrix: a part of m if they are contiguous there, otherwise a copy in
// buf, which it allocates for blockRows rows.
func (m matrixPoints) gather(buf *[]float32, rows []uint32) []float32 {
	first, n := int(rows[0]), len(rows)
	if int(rows[n-1]) == first+n-1 { // ascending and distinct
		return m.x[first*m.dim : (first+n)*m.dim]
	}
	if *buf == nil {
		*buf = make([]float32, blockRows*m.dim)
	}
	out := (*buf)[:n*m.dim]
	for i, r := range rows {
		copy(out[i*m.dim:(i+1)*m.dim], m.row(r))
	}
	return out
}

// ResidentSample is a sample of vectors on the device of the backend.
type ResidentSample struct {
	Vectors kernels.ResidentVectors
	// Numbers are the numbers of the sampled vectors, ascending. All, if not nil, are those of the
	// vectors for a last round of k-means ([TrainOptions.All]).
	Numbers, All []uint32
	// Unit means that vectors are scaled to unit length first, as by [Normalize].
	Unit bool
}

// TrainResident is [Train] for a sample on the device of the backend, a [kernels.ResidentBuilder]. The codec
// has the same bits. The error wraps [kernels.ErrDeviceMemory] if the device has too little memory for the
// training in addition to the vectors.
func TrainResident(ctx context.Context, s *ResidentSample, opts TrainOptions) (*Quantizer, TrainReport, error) {
	t := &trainer{resident: s, dim: s.Vectors.Dim(), opts: opts}
	return t.run(ctx)
}

// devicePoints is points on a device.
type devicePoints struct {
	*ResidentSample
	threads int
}

func (p *devicePoints) read(ctx context.Context, numbers []uint32) ([][]float32, error) {
	dim, n := p.Vectors.Dim(), len(numbers)
	halves := make([]byte, 2*n*dim)
	if err := p.Vectors.Read(ctx, halves, p.vectorNumbers(numbers)); err != nil {
		return nil, err
	}
	x := make([]float32, n*dim)
	floats.DecodeFloat16(x, halves)
	if p.Unit {
		NormalizeParallel(x, dim, p.threads)
	}
	rows := make([][]float32, n)
	for i := range rows {
		rows[i] = x[i*dim : (i+1)*dim : (i+1)*dim]
	}
	return rows, nil
}

func (p *devicePoints) copyToDevice(
	ctx context.Context, b kernels.Backend, numbers []uint32,
) (kernels.DeviceRows, error) {
	return p.prepareOnDevice(ctx, b, p.vectorNumbers(numbers))
}

// vectorNumbers converts numbers in the sample to numbers of vectors on the device.
func (p *devicePoints) vectorNumbers(numbers []uint32) []uint32 {
	mapped := make([]uint32, len(numbers))
	for i, r := range numbers {
		mapped[i] = p.Numbers[r]
	}
	return mapped
}

// prepareOnDevice prepares vectors on the device, by their numbers there, for k-means.
func (p *devicePoints) prepareOnDevice(
	ctx context.Context, b kernels.Backend, numbers []uint32,
) (kernels.ResidentRows, error) {
	builder, ok := b.(kernels.ResidentBuilder)
	if !ok || !builder.HasVectors(p.Vectors) {
		return nil, fmt.Errorf("codec: %w: vectors that are not on the device of %s",
			kernels.ErrUnavailable, b.Name())
	}
	return builder.SelectRows(ctx, p.Vectors, numbers, p.Unit)
}

// runResident is runAll for vectors on a device.
func (km *kmeans) runResident(ctx context.Context, s *ResidentSample) error {
	// Assign the vectors, and sum those of each centroid, on the device.
	n := len(s.All)
	rows, err := km.points.(*devicePoints).prepareOnDevice(ctx, km.backend, s.All)
	if err != nil {
		return err
	}
	defer rows.Release()
	codes, scores, squares := make([]uint32, n), make([]float32, n), make([]float64, n)
	if err := rows.Nearest(ctx, codes, scores, km.centroids, km.progress); err != nil {
		return err
	}
	if err := rows.SquaredLengths(ctx, squares); err != nil {
		return err
	}
	starts, order := make([]int, km.k+1), make([]uint32, n)
	byCode(starts, order, codes)
	sums := make([]float32, km.k*km.dim)
	if err := rows.SumRows(ctx, sums, order, starts); err != nil {
		return err
	}
	// Count vectors and residuals, and move the centroids.
	km.clusters = clusters{make([]int, km.k), make([]float64, km.k)}
	return forBlocks(ctx, km.k, meansBlock, km.threads, func(_, _, lo, hi int) error {
		for c := lo; c < hi; c++ {
			for _, pos := range order[starts[c]:starts[c+1]] {
				if squares[pos] == 0 {
					continue
				}
				km.clusters.counts[c]++
				km.clusters.spread[c] += squaredResidual(scores[pos], squares[pos])
			}
			km.setDirection(c, sums[c*km.dim:(c+1)*km.dim], km.clusters.counts[c])
		}
		return nil
	})
}

// setDirection sets a centroid to the direction of the sum of n rows, unless they cancel out.
func (km *kmeans) setDirection(c int, sum []float32, n int) {
	if length := math.Sqrt(dot64(sum, sum)); length > 1e-6*float64(n) && n > 0 { // the sums are float32
		row := km.centroid(c)
		for j, v := range sum {
			row[j] = float32(float64(v) / length)
		}
	}
}
