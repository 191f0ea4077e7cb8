package codec

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/kernels"
)

// kmeans is spherical k-means (Dhillon and Modha, Machine Learning 42, 2001):
// assignment by largest inner product, centroids of unit length. Every sum runs
// in row order within one centroid, so threads do not change a bit of it.
type kmeans struct {
	x       []float32
	dim     int
	rows    []uint32 // rows of x taken part, ascending
	k       int
	threads int
	backend kernels.Backend
	tick    func(rows int)
	kept    kernels.KeptRows // nil: the backend gets the rows in every round

	centroids []float32
	codes     []uint32 // by position in rows
	previous  []uint32
	scores    []float32
	starts    []int    // k+1 offsets into order
	order     []uint32 // positions in rows, by code
	gather    [][]float32

	clusters   clusters // of the last assignment
	iterations int
	reseeded   int
	similarity float64 // mean over rows, last assignment
}

// init picks k rows of the shuffled candidates as first centroids, each content
// once while that is possible.
func (km *kmeans) init(candidates []uint32) {
	km.centroids = make([]float32, km.k*km.dim)
	n := len(km.rows)
	km.codes, km.previous = make([]uint32, n), make([]uint32, n)
	km.scores = make([]float32, n)
	km.starts, km.order = make([]int, km.k+1), make([]uint32, n)
	km.gather = make([][]float32, workers(n, blockRows, km.threads))

	set := newRowSet(km.x, km.dim)
	var again []uint32
	c := 0
	for _, i := range candidates {
		if c == km.k {
			break
		}
		if !set.insert(i) {
			again = append(again, i)
			continue
		}
		copy(km.centroid(c), set.row(i))
		c++
	}
	for _, i := range again[:min(km.k-c, len(again))] {
		copy(km.centroid(c), set.row(i))
		c++
	}
	for c := range km.k {
		row := km.centroid(c)
		if Normalize(row, len(row)); dot64(row, row) == 0 {
			row[c%km.dim] = 1 // only zero rows are left: any direction will do
		}
	}
}

func (km *kmeans) centroid(c int) []float32 {
	return km.centroids[c*km.dim : (c+1)*km.dim]
}

func (km *kmeans) row(pos uint32) []float32 {
	i := int(km.rows[pos])
	return km.x[i*km.dim : (i+1)*km.dim]
}

// run iterates at most that many times, and stops when assignments repeat.
func (km *kmeans) run(ctx context.Context, iterations int) error {
	if keeper, ok := km.backend.(kernels.RowKeeper); ok {
		kept, err := keeper.KeepRows(ctx, km.x, km.dim, km.rows)
		switch {
		case err == nil:
			km.kept = kept
			defer func() { km.kept = nil; kept.Release() }()
		case !errors.Is(err, kernels.ErrDeviceMemory):
			return err
		}
	}
	for it := range iterations {
		km.codes, km.previous = km.previous, km.codes
		if err := km.assign(ctx); err != nil {
			return err
		}
		km.iterations = it + 1
		if it > 0 && slices.Equal(km.codes, km.previous) {
			break
		}
		if err := km.update(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (km *kmeans) assign(ctx context.Context) error {
	if err := km.nearest(ctx); err != nil {
		return err
	}
	var sum float64
	for _, s := range km.scores {
		sum += float64(s)
	}
	km.similarity = sum / float64(len(km.scores))
	return nil
}

func (km *kmeans) nearest(ctx context.Context) error {
	if km.kept != nil {
		return km.kept.Nearest(ctx, km.codes, km.scores, km.centroids, km.tick)
	}
	backend, release, err := kernels.Prepare(ctx, km.backend, km.centroids, km.dim)
	if err != nil {
		return err
	}
	defer release()
	return forBlocks(ctx, len(km.rows), blockRows, km.threads, func(w, _, lo, hi int) error {
		x := gatherRows(&km.gather[w], km.x, km.rows[lo:hi], km.dim)
		if err := backend.Nearest(ctx, km.codes[lo:hi], km.scores[lo:hi], km.centroids, x, km.dim); err != nil {
			return err
		}
		km.tick(hi - lo)
		return nil
	})
}

// gatherRows returns the rows of x one after another: x itself where they lie
// so, otherwise a copy in buf.
func gatherRows(buf *[]float32, x []float32, rows []uint32, dim int) []float32 {
	first, n := int(rows[0]), len(rows)
	if int(rows[n-1]) == first+n-1 { // ascending and distinct
		return x[first*dim : (first+n)*dim]
	}
	if *buf == nil {
		*buf = make([]float32, blockRows*dim)
	}
	out := (*buf)[:n*dim]
	for i, r := range rows {
		copy(out[i*dim:(i+1)*dim], x[int(r)*dim:])
	}
	return out
}

// update moves each centroid to the direction of the mean of its rows.
func (km *kmeans) update(ctx context.Context) error {
	clear(km.starts)
	for _, c := range km.codes {
		km.starts[c+1]++
	}
	for c := range km.k {
		km.starts[c+1] += km.starts[c]
	}
	fill := slices.Clone(km.starts[:km.k])
	for pos, c := range km.codes {
		km.order[fill[c]] = uint32(pos)
		fill[c]++
	}
	if err := km.means(ctx); err != nil {
		return err
	}
	km.reseed()
	return nil
}

// meansBlock is how many centroids a goroutine takes at once.
const meansBlock = 64

func (km *kmeans) means(ctx context.Context) error {
	if km.kept != nil {
		return km.kept.Means(ctx, km.centroids, km.order, km.starts)
	}
	sums := make([][]float64, workers(km.k, meansBlock, km.threads))
	return forBlocks(ctx, km.k, meansBlock, km.threads, func(w, _, lo, hi int) error {
		if sums[w] == nil {
			sums[w] = make([]float64, km.dim)
		}
		for c := lo; c < hi; c++ {
			km.mean(c, sums[w])
		}
		return nil
	})
}

// mean leaves the centroid where its rows cancel out.
func (km *kmeans) mean(c int, sum []float64) {
	members := km.order[km.starts[c]:km.starts[c+1]]
	clear(sum)
	for _, pos := range members {
		for j, v := range km.row(pos) {
			sum[j] += float64(v)
		}
	}
	var n2 float64
	for _, s := range sum {
		n2 += float64(s * s)
	}
	if norm := math.Sqrt(n2); norm > 1e-12*float64(len(members)) {
		out := km.centroid(c)
		for j, s := range sum {
			out[j] = float32(s / norm)
		}
	}
}

// reseed moves centroids without rows to the rows that their own centroids
// represent worst, each content once. Where such rows run out (fewer distinct
// rows than centroids) the centroid stays: it costs space but does no harm.
func (km *kmeans) reseed() {
	var empty []int
	for c := range km.k {
		if km.starts[c] == km.starts[c+1] {
			empty = append(empty, c)
		}
	}
	if len(empty) == 0 {
		return
	}
	set := newRowSet(km.x, km.dim)
	for n, tried := 2*len(empty), 0; len(empty) > 0 && tried < len(km.rows); n *= 4 {
		worst := km.worst(n)
		for _, pos := range worst[tried:] {
			if len(empty) == 0 {
				return
			}
			if !set.insert(km.rows[pos]) {
				continue
			}
			row := km.centroid(empty[0])
			copy(row, km.row(pos))
			Normalize(row, len(row))
			empty = empty[1:]
			km.reseeded++
		}
		tried = len(worst)
	}
}

// worst are the n positions of the lowest scores, the lowest first, and of equals the first:
// centroids without rows are few, and sorting all rows takes longer than assigning them.
func (km *kmeans) worst(n int) []uint32 {
	n = min(n, len(km.rows))
	order := func(a, b uint32) int { return cmp.Or(cmp.Compare(km.scores[a], km.scores[b]), cmp.Compare(a, b)) }
	list := make([]uint32, 0, min(2*n, len(km.rows)))
	highest := float32(math.Inf(1)) // of those that may still be among them
	for pos, score := range km.scores[:len(km.rows)] {
		if score > highest {
			continue
		}
		if list = append(list, uint32(pos)); len(list) == 2*n {
			slices.SortFunc(list, order)
			list = list[:n]
			highest = km.scores[list[n-1]]
		}
	}
	slices.SortFunc(list, order)
	return list[:n]
}
