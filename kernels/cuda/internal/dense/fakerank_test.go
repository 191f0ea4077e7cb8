package dense

import (
	"math"
	"slices"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
)

func fakeRankKey(score float32, doc uint32) uint64 {
	b := math.Float32bits(score + 0)
	if b>>31 != 0 {
		b = ^b
	} else {
		b |= 1 << 31
	}
	return uint64(b)<<32 | uint64(^doc)
}

func fakeRank(f *drivertest.Fake, l *driver.Launch) {
	p := (*denseRankParams)(l.Args)
	for q := range int(l.Grid.X) {
		best := array[uint64](f, p.best, 8, q*int(p.k), int(p.k))
		list := array[uint64](f, p.list, 8, q*int(p.k+p.n), int(p.k+p.n))[:0]
		list = append(list, best...)
		for _, it := range array[denseItem](f, p.items, 16, 0, int(p.nItems)) {
			list = append(list, fakeRankKey(array[float32](f, p.scores, 4, q*int(p.n)+int(it.pos), 1)[0], p.first+it.pos))
		}
		slices.Sort(list)
		copy(best, list[len(list)-int(p.k):])
		clear(list) // nobody counts on it
	}
}

func fakeJoin(f *drivertest.Fake, l *driver.Launch) {
	p := (*denseJoinParams)(l.Args)
	for i := range int(l.Grid.X) {
		j := array[denseJoin](f, p.joins, 32, i, 1)[0]
		sum := float32(0)
		for s := range int(j.count) {
			best, at, weight := float32(math.Inf(-1)), -1, array[float32](f, p.weights, 4, int(j.row)+s, 1)[0]
			for k := range int(j.segments) {
				from := (int(j.first)+k)*int(p.pitch) + s
				if v := array[float32](f, p.top, 4, from, 1)[0]; v > best {
					best, at = v, k*int(p.segment)+int(array[int32](f, p.arg, 4, from, 1)[0])
				}
			}
			if at >= 0 && weight != 0 {
				sum += best * weight
			}
			if math.Float32bits(weight) == 1<<31 {
				at = -1
			}
			if p.outArg != 0 {
				array[int32](f, p.outArg, 4, int(j.out)*int(p.pitch)+s, 1)[0] = int32(at)
			}
		}
		array[float32](f, p.out, 4, int(j.out), 1)[0] = sum
	}
}

func fakeProject(f *drivertest.Fake, l *driver.Launch) {
	p := (*denseProjectParams)(l.Args)
	if l.Grid.X*64 < p.rows || l.Grid.Y*32 < p.dim {
		panic("rows or dimensions that no block has")
	}
	weights := fakeRows(f, p.weights, p.weightFormat, p.weightBytes, 0, int(p.dim), int(p.hiddenDim))
	for r := range int(p.rows) {
		x := fakeRow(f, p.hidden, p.hiddenFormat, p.rowBytes, uint64(r), int(p.hiddenDim))
		for c, w := range weights {
			v := dot(x, w)
			v *= float64(float(f, p.hiddenScale, r)) * float64(float(f, p.weightScale, c))
			if p.bias != 0 {
				v += float64(float(f, p.bias, c))
			}
			array[float32](f, p.out, 4, r*int(p.dim)+c, 1)[0] = float32(v)
		}
	}
}
