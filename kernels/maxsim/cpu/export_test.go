package cpu

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/plaid-ir/plaid/kernels/internal/tier"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// Pack packs a batch on any tier, also on those that do not screen.
func Pack(ctx context.Context, b maxsim.Backend, batch *maxsim.Batch, threads int) (*packed, error) {
	return b.(*backend).pack(ctx, batch, threads)
}

// Screens says that a backend packs what it is to screen.
func Screens(b maxsim.Backend) bool { return b.(*backend).tier.Vectors.Screen != nil }

// HalvesBackend is the best tier with loops that screen, which multiplies bfloat16 in plain
// Go, with errors as large as those of other orders may be; nil where none screens.
func HalvesBackend() maxsim.Backend {
	best := tier.All[len(tier.All)-1]
	if best.Vectors.Screen == nil {
		return nil
	}
	t, screen := *best, *best.Vectors.Screen
	rng := rand.New(rand.NewPCG(1, 2))
	screen.HalvesRows, screen.HalvesDims = 16, 32
	screen.Halves = func(dst [][32]float32, most *[32]float32, rows []uint16, dim int, panel []uint16, factors []float32) {
		value := func(bits uint16) float64 { return float64(math.Float32frombits(uint32(bits) << 16)) }
		for r := range dst {
			for c := range 32 {
				var sum, x2, y2 float64
				for j := range dim {
					x, y := value(rows[r*dim+j]), value(panel[j/2*64+2*c+j%2])
					sum, x2, y2 = sum+x*y, x2+x*x, y2+y*y
				}
				sum += (rng.Float64()*2 - 1) * float64(dim) / (1 << 24) * math.Sqrt(x2*y2)
				if factors != nil {
					sum *= float64(factors[r])
				}
				dst[r][c] = float32(sum)
				most[c] = max(most[c], dst[r][c])
			}
		}
	}
	t.Vectors.Screen = &screen
	return &backend{tier: &t}
}
