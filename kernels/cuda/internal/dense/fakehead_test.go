package dense

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// fakeHead is a kernel of some columns, of what dense_head is given.
func fakeHead(kind format, columns int) drivertest.Kernel {
	return func(f *drivertest.Fake, l *driver.Launch) {
		p := (*denseHeadParams)(l.Args)
		h, s := &p.head, &p.score
		dim, chunks := int(h.dim), (int(h.rowBytes)+127)/128
		if want, ok := headShared(227<<10, columns, int(h.rowBytes), true); !ok || int(l.Shared) != want || dim > columns || format(h.hiddenFormat) != kind || format(s.queryFormat) != split {
			panic(fmt.Sprintf("%d columns for %d dimensions, %d bytes of shared memory", columns, dim, l.Shared))
		}
		weights := make([][]float32, dim)
		for c := range weights {
			var row []byte
			for i := range 8 * chunks {
				row = append(row, f.Bytes(h.weights+driver.Ptr((i*columns+c)*16), 16)...)
			}
			weights[c] = decode(row, h.weightFormat, int(h.hiddenDim))
		}
		for u := range int(l.Grid.X) * headTeams {
			unit := array[denseUnit](f, s.units, 32, u, 1)[0]
			g := array[denseGroup](f, s.groups, 32, int(unit.group), 1)[0]
			queries := fakeRows(f, s.queries, s.queryFormat, s.queryBytes, uint64(g.row), int(g.count), dim)
			if unit.group != array[denseUnit](f, s.units, 32, u/headTeams*headTeams, 1)[0].group || g.count > headTokens {
				panic("units of a block with several groups")
			}
			for i := unit.begin; i < unit.end; i++ {
				it := array[denseItem](f, s.items, 16, int(i), 1)[0]
				best := make([]float64, len(queries))
				for q := range best {
					best[q] = math.Inf(-1)
				}
				for r := it.begin; r < it.begin+uint64(it.len&^(1<<31)); r++ {
					if it.len>>31 > 0 && array[uint8](f, s.mask, 1, int(r), 1)[0] == 0 {
						continue
					}
					hidden := fakeRow(f, h.hidden, h.hiddenFormat, h.rowBytes, r, int(h.hiddenDim))
					token, square := make([]float32, dim), 0.0
					for c, w := range weights {
						v := dot(hidden, w) * float64(float(f, h.hiddenScale, int(r))) * float64(float(f, h.weightScale, c))
						if h.bias != 0 {
							v += float64(float(f, h.bias, c))
						}
						token[c] = float32(v)
						square += v * v
					}
					scale := 1.0
					if p.normalize != 0 {
						scale = 1 / math.Sqrt(max(square, 1e-60))
					}
					for q := range best {
						best[q] = max(best[q], dot(queries[q], token)*scale)
					}
				}
				sum := float32(0)
				for q, v := range best {
					if w := float(f, s.weights, int(g.row)+q); w != 0 && !math.IsInf(v, -1) {
						sum += float32(v) * w
					}
				}
				array[float32](f, s.out, 4, int(g.out)+int(it.pos), 1)[0] = sum
			}
		}
	}
}

// The host's part of heads that a kernel of sm_90a scores: one query, documents held or
// not, at once or in pieces.
func TestHeadsInOneKernel(t *testing.T) {
	kernels := fakeKernels()
	launched := 0
	for _, kind := range []format{f16, bf16, split} {
		for _, columns := range []int{64, 96, 128} {
			head := fakeHead(kind, columns)
			kernels[fmt.Sprintf("dense_head_%s_n%d", kind.kernelName(), columns)] = func(f *drivertest.Fake, l *driver.Launch) {
				launched++
				head(f, l)
			}
		}
	}
	for v := 1; v <= 4; v++ { // chosen first, and not launched
		kernels[fmt.Sprintf("dense_rows_split_n32_v%d", v)] = func(*drivertest.Fake, *driver.Launch) { panic("scores of token vectors in memory") }
	}
	b := New(runtimetest.OpenFakeHopper(t, runtimetest.Fake(kernels))).(*backend)
	for i, kind := range []maxsim.Type{maxsim.F16, maxsim.BF16, maxsim.F32, maxsim.I8} {
		for _, shape := range []struct{ hidden, dim, lq int }{{40, 24, 32}, {100, 70, 5}, {130, 128, 1}} {
			rng := maxsimtest.Rand(uint64(90 + i))
			q := maxsimtest.Side{Lengths: []int{shape.lq}}.Batch(rng, shape.dim)
			d := maxsimtest.Side{Type: kind, Lengths: []int{9, 0, 70, 1, 33}, Masked: float64(i%2) / 4}.Batch(rng, shape.hidden)
			w := maxsimtest.Side{Type: kind, Lengths: []int{shape.dim}}.Batch(rng, shape.hidden).Tokens
			h, err := b.Prepare(ctx, d)
			require.NoError(t, err)
			for j, docs := range []maxsim.Operand{d, h, d} {
				if kind == maxsim.I8 && docs == h {
					continue // not what the tensor cores take, and made float32 only on the way
				}
				b.limits = usualLimits
				if j == 2 {
					b.limits.docs = 8000
				}
				c := &maxsim.HeadCall{Q: q, D: docs, Head: maxsim.Head{Weights: w, Bias: maxsimtest.Normal(rng, shape.dim)}, Scores: make([]float32, d.Len())}
				c.Normalize = j == 1
				before := launched
				require.NoError(t, b.ScoreHead(ctx, c))
				require.Greater(t, launched, before)
				oracle := *c
				oracle.D = d
				for doc, want := range oracle.Oracle() {
					require.InDelta(t, want, c.Scores[doc], 1e-4*(1+math.Abs(want)), "%s, %v, document %d", kind, shape, doc)
				}
			}
			require.NoError(t, h.Close())
		}
	}
}
