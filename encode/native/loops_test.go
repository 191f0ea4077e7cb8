package native

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/native/internal/plain"
	"github.com/plaid-ir/plaid/internal/testing/fenced"
)

// TestLoops: the inner loops of every instruction set against plain Go, bit for bit, over
// odd shapes, unaligned addresses and arrays that end at an unmapped page.
func TestLoops(t *testing.T) {
	for _, l := range tiers[1:] {
		for name, test := range map[string]func(*testing.T, *loops, *rand.Rand){
			"Products": testProducts, "ByteProducts": testByteProducts, "Softmax": testSoftmax,
			"Activations": testActivations, "Gate": testGate, "Rotate": testRotate, "Norm": testNorm, "Quantize": testQuantize,
		} {
			t.Run(l.name+"/"+name, func(t *testing.T) { test(t, l, rand.New(rand.NewPCG(2, 9))) })
		}
	}
}

// floats are of all sizes that matter, zeros of both signs among them.
func randomFloats(t *testing.T, rng *rand.Rand, n int, scale float32) []float32 {
	x := fenced.Slice[float32](t, n)
	for i := range x {
		switch rng.IntN(20) {
		case 0:
			x[i] = float32(math.Copysign(0, rng.Float64()-0.5))
		case 1:
			x[i] = float32(rng.NormFloat64()) * scale * 20
		case 2:
			x[i] = float32(rng.NormFloat64()) * scale * 1e-4
		default:
			x[i] = float32(rng.NormFloat64()) * scale
		}
	}
	return x
}

// size of an array of m rows of n values, the last one not padded.
func size(m, n, stride int) int { return max(0, (m-1)*stride+n) }

func testProducts(t *testing.T, l *loops, rng *rand.Rand) {
	for vectors := 1; vectors <= l.vectors; vectors++ {
		for _, m := range []int{0, 8, 16, 40} {
			for _, k := range []int{16, 32, 80, 192} {
				n := vectors * l.columns
				lda, ldc := k+rng.IntN(20), n+rng.IntN(20)
				a, b := randomFloats(t, rng, size(m, k, lda), 1), randomFloats(t, rng, k*n, 1)
				bias := randomFloats(t, rng, n, 1)
				c := randomFloats(t, rng, size(m, n, ldc), 1)
				want := append([]float32{}, c...)
				for j := 0; j < n; j += plain.Columns { // a panel of the plain loop holds fewer
					panel := make([]float32, 0, k*plain.Columns)
					for i := range k {
						panel = append(panel, b[i*n+j:][:plain.Columns]...)
					}
					if m > 0 {
						plain.Products(want[j:], ldc, a, lda, m, k, panel, bias[j:], 1)
					}
				}
				l.products(c, ldc, a, lda, m, k, b, bias, vectors)
				requireSame(t, want, c, "%d rows, k %d, %d vectors", m, k, vectors)
			}
		}
	}
}

func testByteProducts(t *testing.T, l *loops, rng *rand.Rand) {
	for vectors := 1; vectors <= l.bytes.vectors; vectors++ {
		for _, m := range []int{0, 8, 24, 32, 88} {
			for _, k := range []int{16, 64, 208, 1536} {
				n := vectors * l.bytes.columns
				lda, ldc := k+rng.IntN(20), n+rng.IntN(20)
				a, b := fenced.Slice[byte](t, size(m, k, lda)), fenced.Slice[int8](t, k*n)
				extreme := rng.IntN(2) == 0 // sums as large as can be
				for i := range a {
					v := int32(rng.IntN(255) - 127)
					if extreme {
						v = 127 - 254*rng.Int32N(2)
					}
					a[i] = byte(v + l.bytes.offset)
				}
				for i := range b {
					b[i] = int8(rng.IntN(255) - 127)
					if extreme {
						b[i] = int8(127 - 254*(i/8%2))
					}
				}
				starts, scales, columns := fenced.Slice[int32](t, n), randomFloats(t, rng, m, 1), randomFloats(t, rng, 2*n, 1)
				plainA, plainStarts := make([]byte, len(a)), make([]int32, n)
				for i := range a {
					plainA[i] = a[i] - byte(l.bytes.offset)
				}
				for j := range n {
					plainStarts[j] = rng.Int32N(1000) - 500
					starts[j] = plainStarts[j]
					for i := range k {
						starts[j] -= l.bytes.offset * int32(b[i/4*4*n+4*j+i%4])
					}
				}
				c := randomFloats(t, rng, size(m, n, ldc), 1)
				want := append([]float32{}, c...)
				for j := 0; j < n; j += plain.Columns {
					panel := make([]int8, 0, k*plain.Columns)
					for i := 0; i < k; i += 4 {
						panel = append(panel, b[i*n+4*j:][:4*plain.Columns]...)
					}
					plainColumns := append(append([]float32{}, columns[j:][:plain.Columns]...), columns[n+j:][:plain.Columns]...)
					if m > 0 {
						plain.ByteProducts(want[j:], ldc, plainA, lda, scales, m, k, panel, plainStarts[j:], plainColumns, 1)
					}
				}
				l.bytes.products(c, ldc, a, lda, scales, m, k, b, starts, columns, vectors)
				requireSame(t, want, c, "%d rows, k %d, %d vectors", m, k, vectors)
			}
		}
	}
}

// rowShapes runs a test over rows, lengths and strides.
func rowShapes(rng *rand.Rand, test func(m, n, stride int)) {
	for _, m := range []int{0, 1, 2, 7} {
		for _, n := range []int{16, 32, 48, 192, 304} {
			test(m, n, n+rng.IntN(9))
		}
	}
}

func testSoftmax(t *testing.T, l *loops, rng *rand.Rand) {
	rowShapes(rng, func(m, n, stride int) {
		x := randomFloats(t, rng, size(m, n, stride), 3)
		for i := range x { // keys out of reach
			if rng.IntN(5) == 0 && i%stride > 0 {
				x[i] = float32(math.Inf(-1))
			}
		}
		want := append([]float32{}, x...)
		plain.Softmax(want, stride, m, n, 0.37)
		l.softmax(x, stride, m, n, 0.37)
		requireSame(t, want, x, "%d rows of %d", m, n)
	})
}

func testActivations(t *testing.T, l *loops, rng *rand.Rand) {
	for _, a := range []Activation{ReLU, GELU, SiLU, Tanh, GELUTanh} {
		rowShapes(rng, func(m, n, stride int) {
			x := randomFloats(t, rng, size(m, n, stride), 2)
			if m == 2 {
				inf := float32(math.Inf(1))
				copy(x, []float32{inf, -inf, math.MaxFloat32, -math.MaxFloat32, 88, -88, 1e-30, -1e-40, float32(math.NaN())})
			}
			want := append([]float32{}, x...)
			portable.activate(a, want, stride, m, n)
			l.activate(a, x, stride, m, n)
			if m == 2 {
				require.True(t, x[8] != x[8] && want[8] != want[8], "activation %d of what is not a number: %v", a, x[8])
				x[8], want[8] = 0, 0
			}
			requireSame(t, want, x, "activation %d, %d rows of %d", a, m, n)
		})
	}
}

func testGate(t *testing.T, l *loops, rng *rand.Rand) {
	rowShapes(rng, func(m, n, stride int) {
		x := randomFloats(t, rng, size(m, 2*n, 2*stride), 2)
		want := append([]float32{}, x...)
		plain.Gate(want, 2*stride, m, n)
		l.gate(x, 2*stride, m, n)
		requireSame(t, want, x, "%d rows of %d", m, n)
	})
}

func testRotate(t *testing.T, l *loops, rng *rand.Rand) {
	for _, m := range []int{0, 1, 5} {
		for _, heads := range []int{1, 3} {
			for _, half := range []int{16, 32, 48} {
				n := 2 * heads * half
				stride := n + rng.IntN(9)
				x := randomFloats(t, rng, size(m, n, stride), 1)
				cos, sin := randomFloats(t, rng, m*half, 1), randomFloats(t, rng, m*half, 1)
				want := append([]float32{}, x...)
				plain.Rotate(want, stride, m, heads, half, cos, sin)
				l.rotate(x, stride, m, heads, half, cos, sin)
				requireSame(t, want, x, "%d rows, %d heads of %d", m, heads, 2*half)
			}
		}
	}
}

func testNorm(t *testing.T, l *loops, rng *rand.Rand) {
	rowShapes(rng, func(m, n, stride int) {
		gamma, beta := randomFloats(t, rng, n, 1), randomFloats(t, rng, n, 1)
		x, r := randomFloats(t, rng, size(m, n, stride), 1), randomFloats(t, rng, size(m, n, stride), 1)
		dst := randomFloats(t, rng, len(x), 1)
		epsilon, inverse := float32(1e-5), 1/float32(n)
		wantX, want := append([]float32{}, x...), append([]float32{}, dst...)

		for _, f := range []struct{ want, got *loops }{{&portable, l}, {rmsOf(&portable), rmsOf(l)}} {
			f.want.norm(want, wantX, stride, m, n, gamma, beta, epsilon, inverse)
			f.got.norm(dst, x, stride, m, n, gamma, beta, epsilon, inverse)
			requireSame(t, want, dst, "%d rows of %d", m, n)
			requireSame(t, wantX, x, "%d rows of %d, source", m, n)

			f.want.addNorm(want, wantX, r, stride, m, n, gamma, beta, epsilon, inverse)
			f.got.addNorm(dst, x, r, stride, m, n, gamma, beta, epsilon, inverse)
			requireSame(t, want, dst, "sum, %d rows of %d", m, n)
			requireSame(t, wantX, x, "sum, %d rows of %d, source", m, n)

			f.want.addNorm(wantX, wantX, r, stride, m, n, gamma, beta, epsilon, inverse)
			f.got.addNorm(x, x, r, stride, m, n, gamma, beta, epsilon, inverse)
			requireSame(t, wantX, x, "sum in place, %d rows of %d", m, n)

			f.want.norm(wantX, wantX, stride, m, n, gamma, beta, epsilon, inverse)
			f.got.norm(x, x, stride, m, n, gamma, beta, epsilon, inverse)
			requireSame(t, wantX, x, "in place, %d rows of %d", m, n)
		}
	})
}

// rmsOf are loops with root mean squares for norms.
func rmsOf(l *loops) *loops { return &loops{norm: l.rms, addNorm: l.addRMS} }

func testQuantize(t *testing.T, l *loops, rng *rand.Rand) {
	rowShapes(rng, func(m, n, stride int) {
		x := randomFloats(t, rng, size(m, n, stride), 1)
		if m > 1 {
			clear(x[:n])
		}
		magic := plain.Magic + float32(l.bytes.offset)
		dstStride := n + rng.IntN(70)
		dst, scales := fenced.Slice[byte](t, size(m, n, dstStride)), randomFloats(t, rng, m, 1)
		want, wantScales := append([]byte{}, dst...), append([]float32{}, scales...)
		plain.Quantize(want, dstStride, wantScales, x, stride, m, n, magic)
		l.quantize(dst, dstStride, scales, x, stride, m, n, magic)
		require.Equal(t, want, append([]byte{}, dst...), "%d rows of %d", m, n)
		requireSame(t, wantScales, scales, "%d rows of %d, scales", m, n)
	})
}
