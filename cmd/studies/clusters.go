package main

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
)

const (
	trainingRounds = 4   // of k-means, as codec.Train makes
	pointsEach     = 256 // vectors a centroid that k-means runs on at most, likewise
)

// clusters are those that k-means has made within groups of vectors, each by itself.
type clusters struct {
	x       []float32
	dim     int
	backend kernels.Backend

	codes    []uint32  // the cluster of each row of x
	scores   []float32 // and the product with its centroid
	owner    []int     // the group of each cluster
	products atomic.Int64
}

func newClusters(x []float32, dim int, backend kernels.Backend) *clusters {
	n := len(x) / dim
	return &clusters{x: x, dim: dim, backend: backend, codes: make([]uint32, n), scores: make([]float32, n)}
}

// within makes so many clusters of each group of rows.
func (c *clusters) within(ctx context.Context, groups [][]uint32, ks []int) error {
	first := make([]uint32, len(groups))
	for g, k := range ks {
		first[g] = uint32(len(c.owner))
		c.owner = append(c.owner, slices.Repeat([]int{g}, k)...)
	}
	order := make([]int, len(groups)) // the largest first, so that no processor waits long
	for g := range order {
		order[g] = g
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(len(groups[b])*ks[b], len(groups[a])*ks[a]) })
	var pool parallel.Pool
	x := make([][]float32, parallel.Threads(0, len(groups)))
	return pool.Run(ctx, len(groups), 0, parallel.Func(func(worker, i int) error {
		rows, k := groups[order[i]], ks[order[i]]
		x[worker] = c.gather(x[worker], rows)
		_, codes, scores, err := c.kmeans(ctx, x[worker], k, 1)
		for j, row := range rows {
			if err == nil {
				c.codes[row], c.scores[row] = first[order[i]]+codes[j], scores[j]
			}
		}
		return err
	}))
}

func (c *clusters) gather(x []float32, rows []uint32) []float32 {
	x = slices.Grow(x[:0], len(rows)*c.dim)
	for _, row := range rows {
		x = append(x, c.x[int(row)*c.dim:][:c.dim]...)
	}
	return x
}

// split parts ascending rows into k groups by k-means over some of them. middles are the centroids.
func (c *clusters) split(ctx context.Context, rows []uint32, k int) (middles []float32, groups [][]uint32, err error) {
	perm := rand.New(rand.NewPCG(1, 1)).Perm(len(rows))
	some := make([]uint32, min(pointsEach*k, len(rows)))
	for i := range some {
		some[i] = rows[perm[i]]
	}
	if middles, _, _, err = c.kmeans(ctx, c.gather(nil, some), k, 0); err != nil {
		return nil, nil, err
	}
	x := c.x // where rows are all
	if len(rows) < len(c.codes) {
		x = c.gather(nil, rows)
	}
	codes := make([]uint32, len(rows))
	if err := c.nearest(ctx, codes, nil, middles, x, 0); err != nil {
		return nil, nil, err
	}
	groups = make([][]uint32, k)
	for i, g := range codes {
		groups[g] = append(groups[g], rows[i])
	}
	return middles, groups, nil
}

// kmeans is that of codec.Train: spherical, from rows drawn at random.
func (c *clusters) kmeans(ctx context.Context, x []float32, k, threads int) (centroids []float32, codes []uint32, scores []float32, err error) {
	n := len(x) / c.dim
	for _, i := range rand.New(rand.NewPCG(2, uint64(n))).Perm(n)[:min(k, n)] {
		centroids = append(centroids, x[i*c.dim:][:c.dim]...)
	}
	codes, scores = make([]uint32, n), make([]float32, n)
	for range trainingRounds {
		if err := c.nearest(ctx, codes, scores, centroids, x, threads); err != nil {
			return nil, nil, nil, err
		}
		counts := make([]int, k)
		sums := make([]float32, len(centroids))
		for i, code := range codes {
			counts[code]++
			sum := sums[int(code)*c.dim:][:c.dim]
			for j, v := range x[i*c.dim:][:c.dim] {
				sum[j] += v
			}
		}
		codec.Normalize(sums, c.dim)
		for code := range len(centroids) / c.dim {
			if counts[code] == 0 { // those without rows take the row that is served worst
				worst := 0
				for i, s := range scores {
					if s < scores[worst] {
						worst = i
					}
				}
				codes[worst], scores[worst] = uint32(code), 1
				copy(sums[code*c.dim:][:c.dim], x[worst*c.dim:])
			}
		}
		centroids = sums
	}
	return centroids, codes, scores, nil
}

// round gives each row to the cluster whose mean is nearest, of whatever group.
func (c *clusters) round(ctx context.Context) error {
	means := make([]float32, len(c.owner)*c.dim)
	for i, code := range c.codes {
		mean := means[int(code)*c.dim:][:c.dim]
		for j, v := range c.x[i*c.dim:][:c.dim] {
			mean[j] += v
		}
	}
	codec.Normalize(means, c.dim)
	return c.nearest(ctx, c.codes, c.scores, means, c.x, 0)
}

func (c *clusters) nearest(ctx context.Context, codes []uint32, scores, centroids, x []float32, threads int) error {
	c.products.Add(int64(len(codes)) * int64(len(centroids)/c.dim))
	return nearestOf(ctx, c.backend, codes, scores, centroids, x, c.dim, threads)
}

func nearestOf(ctx context.Context, b kernels.Backend, codes []uint32, scores, centroids, x []float32, dim, threads int) error {
	return parallel.Do(ctx, parallel.Blocks(len(codes), encodeRows), threads, func(i int) error {
		lo, hi := parallel.Block(i, len(codes), encodeRows)
		var s []float32
		if scores != nil {
			s = scores[lo:hi]
		}
		return b.Nearest(ctx, codes[lo:hi], s, centroids, x[lo*dim:hi*dim], dim)
	})
}

// shares deals out k in proportion to weights, at least 1 to each.
func shares(weights []float64, k int) []int {
	order := make([]int, len(weights))
	var left float64
	for i, w := range weights {
		order[i] = i
		left += w
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(weights[a], weights[b]) })
	out := make([]int, len(weights))
	for _, i := range order {
		out[i] = max(int(math.Round(float64(k)*weights[i]/left)), 1)
		k, left = k-out[i], left-weights[i]
	}
	return out
}
