package codec

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/kernels"
)

// kmeans is spherical k-means (Dhillon and Modha, Machine Learning 42, 2001): assignment by the largest
// inner product, centroids of unit length. Each sum is of the rows of one centroid, in their order, so that
// its bits do not depend on threads.
type kmeans struct {
	points     points
	dim        int
	rows       []uint32 // numbers of the points, ascending
	k          int
	threads    int
	backend    kernels.Backend
	progress   func(rows int)
	deviceRows kernels.DeviceRows // the rows on a device, or nil if the backend gets them in every round
	squares    []float64          // squared lengths of rows on a device, by position in rows

	centroids []float32
	codes     []uint32 // by position in rows
	previous  []uint32
	scores    []float32
	starts    []int       // k+1 offsets into order
	order     []uint32    // positions in rows, by code
	gather    [][]float32 // memory for the rows of a block, by worker

	clusters   clusters // of the last assignment
	iterations int
	reseeded   int
	similarity float64 // mean over rows, last assignment
}

// selectInitial selects k of the shuffled candidates as first centroids. It avoids equal rows as long as there are
// others.
func (km *kmeans) selectInitial(ctx context.Context, candidates []uint32) error {
	km.centroids = make([]float32, km.k*km.dim)
	n := len(km.rows)
	km.codes, km.previous = make([]uint32, n), make([]uint32, n)
	km.scores = make([]float32, n)
	km.starts, km.order = make([]int, km.k+1), make([]uint32, n)
	km.gather = make([][]float32, workers(n, blockRows, km.threads))

	// Select distinct rows.
	set := rowSet{}
	var duplicates [][]float32
	filled := 0
	for block := range slices.Chunk(candidates, max(km.k, minInitRows)) {
		rows, err := km.points.read(ctx, block)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if filled == km.k {
				break
			}
			if !set.insert(row) {
				if len(duplicates) < km.k {
					duplicates = append(duplicates, row)
				}
				continue
			}
			copy(km.centroid(filled), row)
			filled++
		}
		if filled == km.k {
			break
		}
	}
	// Fill up with duplicates, and scale all to unit length.
	for _, row := range duplicates[:min(km.k-filled, len(duplicates))] {
		copy(km.centroid(filled), row)
		filled++
	}
	for c := range km.k {
		row := km.centroid(c)
		if Normalize(row, len(row)); dot64(row, row) == 0 {
			row[c%km.dim] = 1 // only zero rows remain: use any direction
		}
	}
	return nil
}

// minInitRows is the minimum number of candidates that selectInitial reads at a time.
const minInitRows = 1024

// centroid returns centroid c.
func (km *kmeans) centroid(c int) []float32 {
	return km.centroids[c*km.dim : (c+1)*km.dim]
}

// rowAt returns the row at a position in rows, which must be in memory.
func (km *kmeans) rowAt(pos uint32) []float32 { return km.points.(matrixPoints).row(km.rows[pos]) }

// squaredLength returns the squared length of the row at a position in rows.
func (km *kmeans) squaredLength(pos uint32) float64 {
	if km.squares != nil {
		return km.squares[pos]
	}
	x := km.rowAt(pos)
	return dot64(x, x)
}

// run runs at most this number of iterations. It stops when assignments do not change.
func (km *kmeans) run(ctx context.Context, iterations int) error {
	deviceRows, err := km.points.copyToDevice(ctx, km.backend, km.rows)
	if err != nil {
		return err
	}
	if km.deviceRows = deviceRows; deviceRows != nil {
		defer func() { km.deviceRows = nil; deviceRows.Release() }()
	}
	for it := range iterations {
		km.codes, km.previous = km.previous, km.codes
		if err := km.assignRows(ctx); err != nil {
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
	if deviceRows, ok := km.deviceRows.(kernels.ResidentRows); ok {
		km.squares = make([]float64, len(km.rows))
		return deviceRows.SquaredLengths(ctx, km.squares)
	}
	return nil
}

// assignRows assigns rows to centroids, and computes the mean similarity.
func (km *kmeans) assignRows(ctx context.Context) error {
	if err := km.findNearest(ctx); err != nil {
		return err
	}
	var sum float64
	for _, s := range km.scores {
		sum += float64(s)
	}
	km.similarity = sum / float64(len(km.scores))
	return nil
}

// findNearest sets the codes and scores of all rows.
func (km *kmeans) findNearest(ctx context.Context) error {
	if km.deviceRows != nil {
		return km.deviceRows.Nearest(ctx, km.codes, km.scores, km.centroids, km.progress)
	}
	backend, release, err := kernels.Prepare(ctx, km.backend, km.centroids, km.dim)
	if err != nil {
		return err
	}
	defer release()
	return forBlocks(ctx, len(km.rows), blockRows, km.threads, func(w, _, lo, hi int) error {
		x := km.points.(matrixPoints).gather(&km.gather[w], km.rows[lo:hi])
		if err := backend.Nearest(ctx, km.codes[lo:hi], km.scores[lo:hi], km.centroids, x, km.dim); err != nil {
			return err
		}
		km.progress(hi - lo)
		return nil
	})
}

// update moves each centroid to the direction of the mean of its rows.
func (km *kmeans) update(ctx context.Context) error {
	byCode(km.starts, km.order, km.codes)
	if err := km.updateMeans(ctx); err != nil {
		return err
	}
	return km.reseed(ctx)
}

// byCode sorts positions by their codes: those with code c are order[starts[c]:starts[c+1]], ascending.
func byCode(starts []int, order, codes []uint32) {
	clear(starts)
	for _, c := range codes {
		starts[c+1]++
	}
	for c := range len(starts) - 1 {
		starts[c+1] += starts[c]
	}
	fill := slices.Clone(starts)
	for pos, c := range codes {
		order[fill[c]] = uint32(pos)
		fill[c]++
	}
}

// meansBlock is the number of centroids that a goroutine computes at a time.
const meansBlock = 64

// updateMeans computes the direction of the mean for each centroid.
func (km *kmeans) updateMeans(ctx context.Context) error {
	if km.deviceRows != nil {
		return km.deviceRows.UpdateCentroids(ctx, km.centroids, km.order, km.starts)
	}
	sums := make([][]float64, workers(km.k, meansBlock, km.threads))
	return forBlocks(ctx, km.k, meansBlock, km.threads, func(w, _, lo, hi int) error {
		if sums[w] == nil {
			sums[w] = make([]float64, km.dim)
		}
		for c := lo; c < hi; c++ {
			km.updateMean(c, sums[w])
		}
		return nil
	})
}

// updateMean sets a centroid to the direction of the mean of its rows, unless they cancel out. sum is scratch
// memory.
func (km *kmeans) updateMean(c int, sum []float64) {
	members := km.order[km.starts[c]:km.starts[c+1]]
	clear(sum)
	for _, pos := range members {
		for j, v := range km.rowAt(pos) {
			sum[j] += float64(v)
		}
	}
	var n2 float64
	for _, s := range sum {
		n2 += float64(s * s)
	}
	if norm := math.Sqrt(n2); norm > 1e-12*float64(len(members)) { // beyond the rounding errors of the sums
		out := km.centroid(c)
		for j, s := range sum {
			out[j] = float32(s / norm)
		}
	}
}

// reseed moves centroids without rows to the rows with the lowest similarity to their centroids, without
// duplicates. If there are fewer distinct rows than centroids, the others stay: they cost space but do no
// harm.
func (km *kmeans) reseed(ctx context.Context) error {
	var empty []int
	for c := range km.k {
		if km.starts[c] == km.starts[c+1] {
			empty = append(empty, c)
		}
	}
	if len(empty) == 0 {
		return nil
	}
	set := rowSet{}
	// Twice as many candidates as centroids, and then four times more: some may be duplicates.
	for n, tried := 2*len(empty), 0; len(empty) > 0 && tried < len(km.rows); n *= 4 {
		candidates := km.lowestScores(n)
		numbers := make([]uint32, 0, len(candidates)-tried)
		for _, pos := range candidates[tried:] {
			numbers = append(numbers, km.rows[pos])
		}
		rows, err := km.points.read(ctx, numbers)
		if err != nil {
			return err
		}
		for _, x := range rows {
			if len(empty) == 0 {
				return nil
			}
			if !set.insert(x) {
				continue
			}
			row := km.centroid(empty[0])
			copy(row, x)
			Normalize(row, len(row))
			empty = empty[1:]
			km.reseeded++
		}
		tried = len(candidates)
	}
	return nil
}

// lowestScores returns the n positions with the lowest scores, the lowest first, and the first position on ties. It
// does not sort all rows, which would take longer than assigning them: few centroids have no rows.
func (km *kmeans) lowestScores(n int) []uint32 {
	n = min(n, len(km.rows))
	order := func(a, b uint32) int { return cmp.Or(cmp.Compare(km.scores[a], km.scores[b]), cmp.Compare(a, b)) }
	list := make([]uint32, 0, min(2*n, len(km.rows)))
	highest := float32(math.Inf(1)) // a higher score cannot be among the lowest n
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
