package compressed

import (
	"math"
	"slices"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
)

// fakeEntry is an entry of topk_first, pick and collect that may be returned.
type fakeEntry struct {
	number       uint32
	score, error float32
}

// entries calls use for the entries [lo, hi) of a query.
func entries(f *drivertest.Fake, p *pickParams, idsStride uint64, q, lo, hi int, use func(fakeEntry)) (e, more float32) {
	from, to := uint32(q), uint32(q+1)
	if p.groupBegin != 0 {
		b := drivertest.Slice[uint32](f, p.groupBegin+driver.Ptr(4*q), 2)
		from, to = b[0], b[1]
	}
	if p.bound != 0 {
		var sum [4]float64
		for _, column := range drivertest.Slice[[4]float32](f, p.bound+driver.Ptr(16*columns*from), int(to-from)*columns) {
			for i, v := range column {
				sum[i] += float64(v)
			}
		}
		bound := sum[0]
		if p.deviations >= 0 {
			bound = min(bound, sum[1]+float64(p.deviations)*math.Sqrt(sum[2]))
		}
		e, more = float32(bound), p.error*float32(sum[3])
	}
	n := int(p.n)
	if p.nDev != 0 {
		n = min(n, int(drivertest.Slice[uint32](f, p.nDev, 1)[0]))
	}
	for i := lo; i < min(hi, n); i++ {
		number := uint32(i)
		if p.ids != 0 {
			number = drivertest.Slice[uint32](f, p.ids+driver.Ptr(4*(uint64(q)*idsStride+uint64(i))), 1)[0]
		}
		if p.allowed != 0 && drivertest.Slice[uint32](f, p.allowed+driver.Ptr(number/32*4), 1)[0]>>(number%32)&1 == 0 {
			continue
		}
		sum := float32(0)
		for g := from; g < to; g++ {
			sum += drivertest.Slice[float32](f, p.scores+driver.Ptr(4*(uint64(g)*p.stride+uint64(i))), 1)[0]
		}
		x := fakeEntry{number: number, score: sum}
		if p.docMax != 0 {
			at := number
			if p.maxByEntry == 1 {
				at = uint32(i)
			}
			x.error = e * drivertest.Slice[float32](f, p.docMax+driver.Ptr(4*at), 1)[0]
		}
		use(x)
	}
	return e, more
}

func (k *fakeKernels) topkFirst(f *drivertest.Fake, l *driver.Launch) {
	p := args[topkFirstParams](l)
	tick(f, p.clock, 3)
	for q := range int(l.Grid.Y) {
		for block := range int(l.Grid.X) {
			var keys []uint64
			as := &pickParams{
				scores: p.scores, groupBegin: p.groupBegin, ids: p.ids, nDev: p.nDev, allowed: p.allowed, docMax: p.docMax, bound: p.bound,
				stride: p.stride, n: p.n, maxByEntry: p.maxByEntry, deviations: p.deviations,
			}
			entries(f, as, p.idsStride, q, block*topkBlock, (block+1)*topkBlock, func(x fakeEntry) {
				keys = append(keys, key(x.score-p.slack*x.error, x.number))
			})
			putKeys(f, p.keys, (q*int(l.Grid.X)+block)*int(p.k), int(p.k), keys)
		}
	}
}

func (k *fakeKernels) pick(f *drivertest.Fake, l *driver.Launch) {
	p := args[pickParams](l)
	if p.n > topkBlock || l.Grid.X != 1 {
		panic("pick: more entries than a block takes")
	}
	tick(f, p.clock, 5)
	for q := range int(l.Grid.Y) {
		var low []float32
		entries(f, p, 0, q, 0, int(p.n), func(x fakeEntry) { low = append(low, x.score-p.slack*x.error) })
		limit := float32(math.Inf(-1))
		if slices.Sort(low); len(low) >= int(p.k) {
			limit = low[len(low)-int(p.k)]
		}
		k.listFrom(f, p, q, limit)
	}
}

func (k *fakeKernels) collect(f *drivertest.Fake, l *driver.Launch) {
	p := args[pickParams](l)
	for q := range int(l.Grid.Y) {
		k.listFrom(f, p, q, drivertest.Slice[float32](f, p.kth+driver.Ptr(4*q*int(p.k)), int(p.k))[p.k-1])
	}
}

// listFrom lists what reaches a limit, in a strange order.
func (k *fakeKernels) listFrom(f *drivertest.Fake, p *pickParams, q int, limit float32) {
	found := drivertest.Slice[uint32](f, p.found+driver.Ptr(16*q), 4)
	ids := drivertest.Slice[uint32](f, p.outIDs+driver.Ptr(4*q*int(p.capacity)), int(p.capacity))
	scores := drivertest.Slice[[2]float32](f, p.outScores+driver.Ptr(8*q*int(p.capacity)), int(p.capacity))
	_, more := entries(f, p, 0, q, 0, 0, nil)
	var list []fakeEntry
	e, _ := entries(f, p, 0, q, 0, int(p.n), func(x fakeEntry) {
		if x.score+x.error+more >= limit {
			list = append(list, x)
		}
	})
	slices.Reverse(list)
	for _, x := range list {
		if found[0] < p.capacity {
			ids[found[0]], scores[found[0]] = x.number, [2]float32{x.score, x.error}
		}
		found[0]++
	}
	found[1], found[2] = math.Float32bits(limit), math.Float32bits(e)
}

func putKeys(f *drivertest.Fake, at driver.Ptr, from, k int, keys []uint64) []uint64 {
	slices.SortFunc(keys, func(a, b uint64) int {
		if a > b {
			return -1
		}
		return 1
	})
	out := drivertest.Slice[uint64](f, at+driver.Ptr(8*from), k)
	clear(out)
	copy(out, keys)
	return out
}

func (k *fakeKernels) topkNext(f *drivertest.Fake, l *driver.Launch) {
	p := args[topkNextParams](l)
	for q := range int(l.Grid.Y) {
		in := drivertest.Slice[uint64](f, p.keys+driver.Ptr(8*q*int(p.n)), int(p.n))
		for block := range int(l.Grid.X) {
			var keys []uint64
			for _, v := range in[block*topkBlock : min((block+1)*topkBlock, int(p.n))] {
				if v != 0 {
					keys = append(keys, v)
				}
			}
			out := putKeys(f, p.out, (q*int(l.Grid.X)+block)*int(p.k), int(p.k), keys)
			if l.Grid.X > 1 {
				continue
			}
			ids := make([]uint32, p.k)
			if p.outIDs != 0 {
				ids = drivertest.Slice[uint32](f, p.outIDs+driver.Ptr(4*q*int(p.k)), int(p.k))
			}
			for i, v := range out {
				ids[i] = noDocument
				if v != 0 {
					ids[i] = ^uint32(v)
				}
				if p.outScores == 0 {
					continue
				}
				score := float32(math.Inf(-1))
				if v != 0 {
					b := uint32(v >> 32)
					if b>>31 == 1 {
						b &^= 1 << 31
					} else {
						b = ^b
					}
					score = math.Float32frombits(b)
				}
				drivertest.Slice[float32](f, p.outScores+driver.Ptr(4*(q*int(p.k)+i)), 1)[0] = score
			}
			if p.outN != 0 {
				drivertest.Slice[uint32](f, p.outN+driver.Ptr(4*q), 1)[0] = uint32(min(len(keys), int(p.k)))
			}
		}
	}
}
