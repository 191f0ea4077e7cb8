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

func fakeChamfer(metric maxsim.Metric) drivertest.Kernel {
	return func(f *drivertest.Fake, l *driver.Launch) {
		p := (*denseChamferParams)(l.Args)
		lower := func(at uint64, distance float64, row int) {
			key := array[uint64](f, p.keys, 8, int(at), 1)
			key[0] = min(key[0], uint64(math.Float32bits(float32(distance)))<<32|uint64(row))
		}
		for i := range int(l.Grid.X) {
			pair := array[denseChamferPair](f, p.pairs, 40, i, 1)[0]
			var ys [][]float32
			for t := range pair.yLen {
				ys = append(ys, scaledRow(f, p.y, p.yScale, p.yFormat, p.yBytes, pair.y+uint64(t), int(p.dim)))
			}
			for s := range int(pair.xLen) {
				x := scaledRow(f, p.x, p.xScale, p.xFormat, p.xBytes, pair.x+uint64(s), int(p.dim))
				for t, y := range ys {
					d := maxsim.Distance(metric, x, y)
					lower(pair.keyX+uint64(s), d, t)
					lower(pair.keyY+uint64(t), d, s)
				}
			}
		}
	}
}

func fakeChamferSum(f *drivertest.Fake, l *driver.Launch) {
	p := (*denseChamferSumParams)(l.Args)
	for i := range int(l.Grid.X) {
		pair := array[denseChamferPair](f, p.pairs, 40, i, 1)[0]
		out := array[float32](f, p.out, 4, i, 1)
		out[0] = 0
		if pair.xLen == 0 || pair.yLen == 0 {
			continue
		}
		side := func(keys uint64, near driver.Ptr, pitch, n uint32) (sum float64) {
			for s, key := range array[uint64](f, p.keys, 8, int(keys), int(n)) {
				sum += float64(math.Float32frombits(uint32(key >> 32)))
				if near != 0 {
					array[int32](f, near, 4, i*int(pitch)+s, 1)[0] = int32(uint32(key))
				}
			}
			if p.mean != 0 {
				sum /= float64(n)
			}
			return sum
		}
		out[0] = float32(side(pair.keyX, p.nearX, p.pitchX, pair.xLen) + side(pair.keyY, p.nearY, p.pitchY, pair.yLen))
	}
}

func fakeChamferGrad(metric maxsim.Metric) drivertest.Kernel {
	return func(f *drivertest.Fake, l *driver.Launch) {
		p := (*denseChamferGradParams)(l.Args)
		dim := int(p.dim)
		for r := range int(p.rows) {
			item := int(array[uint32](f, p.rowItem, 4, r, 1)[0])
			x := scaledRow(f, p.x, p.xScale, p.xFormat, p.xBytes, uint64(r), dim)
			out := array[float32](f, p.out, 4, r*dim, dim)
			clear(out)
			add := func(c float32, row uint64) {
				for d, v := range scaledRow(f, p.y, p.yScale, p.yFormat, p.yBytes, row, dim) {
					slope := float64(x[d]) - float64(v)
					switch {
					case metric == maxsim.SquaredL2:
						slope *= 2
					case slope != 0:
						slope = math.Copysign(1, slope)
					}
					out[d] += float32(float64(c) * slope)
				}
			}
			first := array[uint64](f, p.pairFirst, 8, item, 2)
			for i := first[0]; i < first[1]; i++ {
				at := int(array[uint32](f, p.pairList, 4, int(i), 1)[0])
				pair := array[denseChamferPair](f, p.pairs, 40, at, 1)[0]
				if own := array[int32](f, p.nearX, 4, int(pair.keyX)+r-int(pair.x), 1)[0]; own >= 0 {
					add(float(f, p.coefX, at), pair.y+uint64(own))
				}
			}
			won := array[uint64](f, p.wonFirst, 8, r, 2)
			for i := won[0]; i < won[1]; i++ {
				w := array[[2]uint32](f, p.won, 8, int(i), 1)[0]
				add(float(f, p.coefY, int(w[0])), array[denseChamferPair](f, p.pairs, 40, int(w[0]), 1)[0].y+uint64(w[1]))
			}
		}
	}
}
