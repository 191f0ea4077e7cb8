package codec

import (
	"context"
	"fmt"
	"iter"
	"math"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
)

// streamRound is a round of k-means over vectors that are not in memory.
type streamRound struct {
	km      *kmeans
	backend kernels.Backend // prepared for the centroids of the round
	sums    []float32       // [k, dim]
	counts  []int
	spread  []float64 // sum of squared residuals of each cluster
	codes   []uint32
	scores  []float32
	norms   []float64 // squared
	done    int       // vectors of previous blocks
}

// runAll assigns every vector of the collection, and moves each centroid to the direction of the mean of its
// vectors. It sums in the order of the vectors.
func (km *kmeans) runAll(ctx context.Context, blocks iter.Seq2[[]float32, error]) error {
	backend, release, err := kernels.Prepare(ctx, km.backend, km.centroids, km.dim)
	if err != nil {
		return err
	}
	defer release()
	s := &streamRound{
		km:      km,
		backend: backend,
		sums:    make([]float32, km.k*km.dim),
		counts:  make([]int, km.k),
		spread:  make([]float64, km.k),
	}
	// Read the next block into one buffer while the block in the other is assigned.
	buffers := []*[]float32{new([]float32), new([]float32)}
	readBlocks := func(freeBuffer func() (*[]float32, error), send func(*[]float32)) error {
		for x, err := range blocks {
			if err == nil && len(x)%km.dim != 0 {
				err = fmt.Errorf("%w: %d values are no whole vectors of dimension %d", ErrShape, len(x), km.dim)
			}
			if err != nil {
				return err
			}
			b, err := freeBuffer()
			if err != nil {
				return err
			}
			*b = append((*b)[:0], x...)
			send(b)
		}
		return nil
	}
	err = parallel.Pipeline(ctx, buffers, readBlocks, func(b *[]float32) error { return s.assignBlock(ctx, *b) })
	if err != nil {
		return err
	}
	for c := range km.k {
		km.setDirection(c, s.sums[c*km.dim:(c+1)*km.dim], s.counts[c])
	}
	km.clusters = clusters{s.counts, s.spread}
	return nil
}

// assignBlock assigns the vectors of a block, and adds them to the sums of their centroids.
func (s *streamRound) assignBlock(ctx context.Context, x []float32) error {
	// Assign the vectors.
	km := s.km
	n := len(x) / km.dim
	s.codes, s.scores, s.norms = resize(s.codes, n), resize(s.scores, n), resize(s.norms, n)
	err := forBlocks(ctx, n, blockRows, km.threads, func(_, _, lo, hi int) error {
		for i := lo; i < hi; i++ {
			row := x[i*km.dim : (i+1)*km.dim]
			n2 := dot64(row, row)
			if !(n2 <= maxMagnitude*maxMagnitude*float64(km.dim)) {
				return fmt.Errorf("%w: vector %d of the collection has length %g", ErrValue, s.done+i, math.Sqrt(n2))
			}
			s.norms[i] = n2
		}
		err := s.backend.Nearest(ctx, s.codes[lo:hi], s.scores[lo:hi], km.centroids, x[lo*km.dim:hi*km.dim], km.dim)
		if err != nil {
			return err
		}
		km.progress(hi - lo)
		return nil
	})
	if err != nil {
		return err
	}
	s.done += n
	// Add them to the sums. Each worker has a range of centroids, and adds their rows in order, so that
	// sums do not depend on the number of workers.
	w := workers(n, blockRows, km.threads)
	size := (km.k + w - 1) / w
	return forBlocks(ctx, km.k, size, km.threads, func(_, _, lo, hi int) error {
		for i, c := range s.codes {
			if int(c) < lo || int(c) >= hi || s.norms[i] == 0 {
				continue
			}
			row := x[i*km.dim : (i+1)*km.dim]
			sum := s.sums[int(c)*km.dim:][:len(row)]
			for j, v := range row {
				sum[j] += v
			}
			s.counts[c]++
			s.spread[c] += squaredResidual(s.scores[i], s.norms[i])
		}
		return nil
	})
}
