package cpu

import (
	"math"
	"math/rand/v2"

	"github.com/plaid-ir/plaid/kernels/internal/tier"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// Screening returns the best tier with loops that screen, with and without them, and
// with products of bfloat16 in plain Go, whose errors are as large as those of other
// orders may be; none where no tier screens. screened counts the blocks that were.
func Screening(screened *int) (with []maxsim.Backend, without maxsim.Backend) {
	best := tier.Available[len(tier.Available)-1]
	if best.Vectors.Screen == nil {
		return nil, nil
	}
	screening := func(screen tier.Screen) maxsim.Backend {
		t, products := *best, screen.Products
		screen.Products = func(dst [][32]float32, most *[32]float32, levels []byte, stride int,
			panel []byte, start *[32]int32, scales []float32) {
			*screened++
			products(dst, most, levels, stride, panel, start, scales)
		}
		t.Vectors.Screen = &screen
		return &backend{tier: &t}
	}
	halves := *best.Vectors.Screen
	halves.Halves, halves.Rows, halves.Round = true, 16, roundHalves
	halves.Products = halvesProducts(rand.New(rand.NewPCG(1, 2)))
	t := *best
	t.Vectors.Screen = nil
	return []maxsim.Backend{screening(*best.Vectors.Screen), screening(halves)}, &backend{tier: &t}
}

func half(x []byte, i int) float64 {
	return float64(math.Float32frombits(uint32(x[2*i])<<16 | uint32(x[2*i+1])<<24))
}

func roundHalves(levels []byte, stride int, rows []float32, dim int, units []float32, sums [][2]float32) {
	for r := range units {
		dst := levels[r*stride : (r+1)*stride]
		clear(dst)
		var err, length float64
		for j, v := range rows[r*dim : (r+1)*dim] {
			bits := math.Float32bits(v)
			bits += 0x7fff + bits>>16&1
			dst[2*j], dst[2*j+1] = byte(bits>>16), byte(bits>>24)
			d := float64(v) - half(dst, j)
			err, length = err+d*d, length+float64(v)*float64(v)
		}
		units[r], sums[r] = 1, [2]float32{float32(err), float32(length)}
	}
}

func halvesProducts(rng *rand.Rand) func([][32]float32, *[32]float32, []byte, int, []byte, *[32]int32, []float32) {
	return func(dst [][32]float32, most *[32]float32, levels []byte, stride int,
		panel []byte, _ *[32]int32, factors []float32) {
		dim := stride / 2
		columns, x := make([]float64, 32*dim), make([]float64, dim)
		for c := range 32 {
			for j := range dim {
				columns[c*dim+j] = half(panel, j/2*64+2*c+j%2)
			}
		}
		for r := range dst {
			for j := range x {
				x[j] = half(levels, r*dim+j)
			}
			for c := range 32 {
				var sum, size float64
				for j, y := range columns[c*dim : (c+1)*dim] {
					sum += x[j] * y
					size += math.Abs(x[j] * y)
				}
				sum += (rng.Float64()*2 - 1) * float64(dim) / (1 << 24) * size
				if factors != nil {
					sum *= float64(factors[r])
				}
				dst[r][c] = float32(sum)
				most[c] = max(most[c], dst[r][c])
			}
		}
	}
}
