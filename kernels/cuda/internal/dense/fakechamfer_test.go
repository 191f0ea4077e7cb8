package dense

import (
	"math"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// scaledRow is a row with its scale.
func scaledRow(f *drivertest.Fake, p, scale driver.Ptr, form, rowBytes uint32, row uint64, dim int) []float32 {
	x := fakeRow(f, p, form, rowBytes, row, dim)
	for i := range x {
		x[i] *= float(f, scale, int(row))
	}
	return x
}

// fakeChamfers are the kernels for distances. Keys have the numbers of rows at once, so that
// there is nothing to find and nothing in doubt.
func fakeChamfers() map[string]drivertest.Kernel {
	all := map[string]drivertest.Kernel{
		"dense_chamfer_pairs": fakeChamferPairs,
		"dense_chamfer_rows":  fakeChamferRows, "dense_chamfer_sum": fakeChamferSum, "dense_chamfer_list": fakeChamferList,
		"dense_chamfer_product":          fakeChamfer(maxsim.SquaredL2, chamferStreamed),
		"dense_chamfer_product_resident": fakeChamfer(maxsim.SquaredL2, chamferResident),
		"dense_chamfer_l1":               fakeChamfer(maxsim.L1, 0),
	}
	all["dense_chamfer_wide"] = all["dense_chamfer_product"]
	all["dense_chamfer_wide_resident"] = all["dense_chamfer_product_resident"]
	for _, d := range []string{"3", "4", "8"} {
		all["dense_chamfer_few_l2_d"+d] = fakeChamfer(maxsim.SquaredL2, 0)
		all["dense_chamfer_few_l1_d"+d] = fakeChamfer(maxsim.L1, 0)
	}
	for _, few := range []string{"", "_few"} {
		all["dense_chamfer_grad_l2"+few] = fakeChamferGrad(maxsim.SquaredL2)
		all["dense_chamfer_grad_l1"+few] = fakeChamferGrad(maxsim.L1)
	}
	for _, name := range []string{"find", "resolve", "l2", "grad_long_l2", "grad_long_l1"} {
		all["dense_chamfer_"+name] = func(*drivertest.Fake, *driver.Launch) {}
	}
	return all
}

func fakeChamferPairs(f *drivertest.Fake, l *driver.Launch) {
	p := (*denseChamferPairsParams)(l.Args)
	for i := range int(p.n) {
		item := [2]int{i / max(int(p.count), 1), i}
		switch PairKind(p.kind) {
		case PairsAll:
			item = [2]int{i / int(p.side[1].items), i % int(p.side[1].items)}
		case PairsListed:
			for k := range item {
				item[k] = int(array[int32](f, p.side[k].list, 4, i, 1)[0])
			}
		}
		var first, n [2]int
		for k, s := range p.side {
			if item[k] < 0 || item[k] >= int(s.items) {
				continue
			}
			first[k], n[k] = item[k]*int(s.stride), int(s.longest)
			if s.offsets != 0 {
				span := array[int32](f, s.offsets, 4, item[k], 2)
				first[k] = min(int(uint32(span[0])), int(s.rows))
				n[k] = max(min(n[k], min(int(uint32(span[1])), int(s.rows))-first[k]), 0)
			} else if s.lengths != 0 {
				n[k] = min(n[k], int(array[int32](f, s.lengths, 4, item[k], 1)[0]))
			}
		}
		array[denseChamferPair](f, p.pairs, 40, i, 1)[0] = denseChamferPair{
			x: uint64(first[0]), y: uint64(first[1]), keyX: uint64(i) * uint64(p.side[0].longest),
			keyY: uint64(p.n)*uint64(p.side[0].longest) + uint64(i)*uint64(p.side[1].longest), xLen: uint32(n[0]), yLen: uint32(n[1]),
		}
	}
}

// fakePoint reports whether a row is a token.
func fakePoint(f *drivertest.Fake, s *denseChamferSide, row uint64) bool {
	if s.mask == 0 {
		return true
	}
	item, place := int(row)/int(s.stride), int(row)%int(s.stride)
	return place < int(s.pitch) && array[uint8](f, s.mask, 1, item*int(s.maskStride)+place, 1)[0] != 0
}

func fakeChamferRows(f *drivertest.Fake, l *driver.Launch) {
	p := (*denseChamferParams)(l.Args)
	for i := range int(p.nKeys) {
		array[uint64](f, p.keys, 8, i, 1)[0] = math.MaxUint64
		if p.products != 0 {
			array[uint32](f, p.seconds, 4, i, 1)[0], array[uint32](f, p.doubt, 4, i, 1)[0] = math.MaxUint32, 0
		}
	}
	for i, s := range p.side {
		for r := range uint64(s.n) {
			_ = fakePoint(f, &s, r) // of all rows
		}
		if s.points != 0 { // there is room for all
			clear(f.Bytes(s.points, int64(s.n)*int64(p.pointBytes)))
		}
		if s.norms != 0 {
			clear(f.Bytes(s.norms, 8*int64(s.n)))
			array[uint32](f, p.counts, 4, 2*int(p.nPairs)+i, 1)[0] = 0
		}
	}
}

func fakeChamfer(metric maxsim.Metric, shared int) drivertest.Kernel {
	return func(f *drivertest.Fake, l *driver.Launch) {
		p := (*denseChamferParams)(l.Args)
		want := shared
		if shared == chamferResident {
			want += chamferTileWide * int(p.pointBytes)
		}
		if int(l.Shared) != want || l.Grid.X != p.nPairs {
			panic("the shared memory or the grid of another kernel")
		}
		token := func(s *denseChamferSide, row uint64) bool { return fakePoint(f, s, row) }
		lower := func(at uint64, distance float64, row int) {
			key := array[uint64](f, p.keys, 8, int(at), 1)
			key[0] = min(key[0], uint64(math.Float32bits(float32(distance)))<<32|uint64(row))
		}
		rows := func(s *denseChamferSide, first uint64, n uint32) (all [][]float32) {
			for t := range n {
				all = append(all, scaledRow(f, s.rows, s.scale, s.format, s.bytes, first+uint64(t), int(p.dim)))
			}
			return all
		}
		for i := range int(p.nPairs) {
			pair := array[denseChamferPair](f, p.pairs, 40, i, 1)[0]
			ys := rows(&p.side[1], pair.y, pair.yLen)
			for s, x := range rows(&p.side[0], pair.x, pair.xLen) {
				for t, y := range ys {
					if !token(&p.side[0], pair.x+uint64(s)) || !token(&p.side[1], pair.y+uint64(t)) {
						continue
					}
					d := maxsim.Distance(metric, x, y)
					lower(pair.keyX+uint64(s), d, t)
					lower(pair.keyY+uint64(t), d, s)
				}
			}
		}
	}
}

func fakeChamferSum(f *drivertest.Fake, l *driver.Launch) {
	p := (*denseChamferParams)(l.Args)
	for i := range int(p.nPairs) {
		pair := array[denseChamferPair](f, p.pairs, 40, i, 1)[0]
		side := func(s *denseChamferSide, keys uint64, n uint32) (sum float64) {
			count := 0.0
			for r := range s.pitch {
				near := int32(-1)
				if r < n {
					if key := array[uint64](f, p.keys, 8, int(keys)+int(r), 1)[0]; key != math.MaxUint64 {
						sum += float64(math.Float32frombits(uint32(key >> 32)))
						near = int32(uint32(key))
						count++
					}
				}
				if s.near != 0 {
					array[int32](f, s.near, 4, i*int(s.pitch)+int(r), 1)[0] = near
				}
			}
			if p.mean != 0 {
				sum /= max(count, 1)
			}
			return sum
		}
		x, y := side(&p.side[0], pair.keyX, pair.xLen), side(&p.side[1], pair.keyY, pair.yLen)
		array[float32](f, p.out, 4, i, 1)[0] = float32(x + y)
	}
}

func fakeChamferList(f *drivertest.Fake, l *driver.Launch) {
	p := (*denseChamferGradParams)(l.Args)
	for i := range int(p.nPairs) {
		pair := array[denseChamferPair](f, p.pairs, 40, i, 1)[0]
		for k, n := range []uint32{pair.xLen, pair.yLen} {
			s, o := &p.side[k], &p.side[1-k]
			for t := range int(n) {
				near := array[int32](f, s.near, 4, i*int(s.pitch)+t, 1)[0]
				if near < 0 {
					continue
				}
				array[uint32](f, p.counts, 4, 2*i+k, 1)[0]++
				head := array[uint32](f, o.head, 4, i*int(o.pitch)+int(near), 1)
				array[uint32](f, s.next, 4, i*int(s.pitch)+t, 1)[0] = head[0]
				head[0] = uint32(t) + 1
			}
		}
	}
}

// fakePairs are the pairs of an item of a side.
func fakePairs(f *drivertest.Fake, p *denseChamferGradParams, side, item int) (pairs []int) {
	nx, ny := int(p.side[0].items), int(p.side[1].items)
	switch {
	case PairKind(p.kind) == PairsAll && side == 0:
		for k := range ny {
			pairs = append(pairs, item*ny+k)
		}
	case PairKind(p.kind) == PairsAll:
		for k := range nx {
			pairs = append(pairs, k*ny+item)
		}
	case PairKind(p.kind) == PairsOwn && side == 0:
		for k := range int(p.count) {
			pairs = append(pairs, item*int(p.count)+k)
		}
	case PairKind(p.kind) == PairsOwn:
		pairs = append(pairs, item)
	default:
		first := array[uint32](f, p.side[side].pairFirst, 4, item, 2)
		for i := first[0]; i < first[1]; i++ {
			pairs = append(pairs, int(array[uint32](f, p.side[side].pairList, 4, int(i), 1)[0]))
		}
	}
	return pairs
}

func fakeChamferGrad(metric maxsim.Metric) drivertest.Kernel {
	return func(f *drivertest.Fake, l *driver.Launch) {
		p := (*denseChamferGradParams)(l.Args)
		dim := int(p.dim)
		for side := range p.side {
			s, o := &p.side[side], &p.side[1-side]
			for item := range int(s.items) {
				span := []int32{int32(item * int(s.stride)), int32((item + 1) * int(s.stride))}
				if s.offsets != 0 {
					span = array[int32](f, s.offsets, 4, item, 2)
				}
				for r := max(int(span[0]), 0); r < min(int(span[1]), int(s.n)) && s.out != 0; r++ {
					x := scaledRow(f, s.rows, s.scale, s.format, s.bytes, uint64(r), dim)
					out := array[float32](f, s.out, 4, r*dim, dim)
					clear(out)
					for _, i := range fakePairs(f, p, side, item) {
						pair := array[denseChamferPair](f, p.pairs, 40, i, 1)[0]
						if side == 1 {
							pair = denseChamferPair{x: pair.y, y: pair.x, xLen: pair.yLen, yLen: pair.xLen}
						}
						add := func(which int, row uint32) {
							c := float64(float(f, p.upstream, i))
							if p.mean != 0 {
								c /= float64(max(array[uint32](f, p.counts, 4, 2*i+which, 1)[0], 1))
							}
							for d, v := range scaledRow(f, o.rows, o.scale, o.format, o.bytes, pair.y+uint64(row), dim) {
								slope := float64(x[d]) - float64(v)
								switch {
								case metric == maxsim.SquaredL2:
									slope *= 2
								case slope != 0:
									slope = math.Copysign(1, slope)
								}
								out[d] += float32(c * slope)
							}
						}
						place := r - int(pair.x)
						if place < 0 || place >= int(pair.xLen) {
							continue
						}
						if own := array[int32](f, s.near, 4, i*int(s.pitch)+place, 1)[0]; own >= 0 {
							add(side, uint32(own))
						}
						t := array[uint32](f, s.head, 4, i*int(s.pitch)+place, 1)[0]
						for t > 0 {
							add(1-side, t-1)
							t = array[uint32](f, o.next, 4, i*int(o.pitch)+int(t)-1, 1)[0]
						}
					}
				}
			}
		}
	}
}
