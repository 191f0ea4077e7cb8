package codec

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/kernels"
)

// nearestLevel is the definition: least |x − w_b|, the lower b on ties. The
// difference of two float32 of like size is exact in float64.
func nearestLevel(x float32, w []float32) uint8 {
	best := 0
	for b := range w {
		if math.Abs(float64(x)-float64(w[b])) < math.Abs(float64(x)-float64(w[best])) {
			best = b
		}
	}
	return uint8(best)
}

func TestUniformBucketIsNearestLevel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		book := kernels.Codebook{
			Nbits: rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "nbits"),
			// Step 1 puts the cuts on floats: half-way values go down.
			Step: rapid.OneOf(rapid.Just(float32(1)), rapid.Float32Range(1e-6, 3)).Draw(t, "step"),
		}
		w := book.Weights()
		cuts, increasing := midpoints(w)
		if !increasing {
			t.Fatal("levels do not increase")
		}
		b := (&bucketer{cuts})
		span := float64(w[len(w)-1]) * 1.5
		var x []float32
		for range 50 {
			v := rapid.Float64Range(-span, span).Draw(t, "x")
			if math.Abs(v) < 1e-9*span {
				v = 0 // x − w_b would not be exact in float64
			}
			x = append(x, float32(v))
		}
		for i := range cuts { // ties, and the values on both sides of them
			c, least := cuts[i], float32(1e-9*span)
			x = append(x, c, max(math.Nextafter32(c, 9), c+least), min(math.Nextafter32(c, -9), c-least))
		}
		x = append(x, 0, w[0], w[len(w)-1], float32(1e3*span), float32(-1e3*span), float32(math.Inf(1)), float32(math.Inf(-1)))
		got := make([]uint8, len(x))
		b.bucketRow(got, x)
		for i, v := range x {
			want := nearestLevel(v, w)
			if math.IsInf(float64(v), 1) {
				want = uint8(len(w) - 1)
			}
			if got[i] != want {
				t.Fatalf("%d bits, step %g: bucket of %g is %d, want %d", book.Nbits, book.Step, v, got[i], want)
			}
		}
	})
}

func TestBucketOfNaNIsInRange(t *testing.T) {
	for _, nbits := range []int{1, 2, 4, 8} {
		cuts, _ := midpoints((&kernels.Codebook{Nbits: nbits, Step: 1}).Weights())
		got := make([]uint8, 1)
		(&bucketer{cuts}).bucketRow(got, []float32{float32(math.NaN())})
		require.Less(t, int(got[0]), 1<<nbits)
	}
}

func TestTableBucketCountsCutoffs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nbits := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "nbits")
		cuts := make([]float32, 1<<nbits-1)
		v := float32(-1)
		for i := range cuts {
			cuts[i] = v
			v += float32(rapid.IntRange(0, 3).Draw(t, "gap")) / 8 // equal cutoffs happen
		}
		x := rapid.SliceOfN(rapid.Float32Range(-2, v+1), 1, 20).Draw(t, "x")
		x = append(x, cuts...)
		got := make([]uint8, len(x))
		(&bucketer{cuts}).bucketRow(got, x)
		for i, v := range x {
			var want uint8
			for _, c := range cuts {
				if c < v {
					want++
				}
			}
			if got[i] != want {
				t.Fatalf("bucket of %g is %d, want %d", v, got[i], want)
			}
		}
	})
}

// The step found must not lose to any on a fine grid, measured without a
// histogram.
func TestStepHasLeastError(t *testing.T) {
	x := clustered(40, 128, 1, 1, 3)
	for i := range x {
		x[i] *= 1 + float32(i%7)/3 // heavier tails than a normal distribution
	}
	for _, nbits := range []int{1, 2, 4, 8} {
		h := newStepHistogram()
		for _, v := range x {
			h.addResidual(v, 1)
		}
		loss := func(step float32) (sum float64) {
			w := (&kernels.Codebook{Nbits: nbits, Step: step}).Weights()
			cuts, _ := midpoints(w)
			got := make([]uint8, len(x))
			(&bucketer{cuts}).bucketRow(got, x)
			for i, v := range x {
				d := float64(v - w[got[i]])
				sum += d * d
			}
			return sum
		}
		step := h.bestStep(nbits)
		least := loss(step)
		for i := range 400 {
			s := float32(math.Exp2(-float64(i) / 30))
			require.GreaterOrEqual(t, loss(s), least*0.995, "%d bits: step %g beats %g", nbits, s, step)
		}
	}
}

func TestStepOfNothing(t *testing.T) {
	h := newStepHistogram()
	require.Equal(t, float32(minStep), h.bestStep(2))
	h.addResidual(0, 1)
	require.Equal(t, float32(minStep), h.bestStep(2))
	h.addResidual(1e-20, 1)
	require.Equal(t, float32(minStep), h.bestStep(8))
}

// What was never trained keeps vectors of any kind within what its comment promises.
func TestFlat(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, dim := range []int{1, 2, 3, 48, 128, 300} {
		c, err := NewFlat(dim)
		require.NoError(t, err)
		for _, spread := range []float64{0, 1, 4} { // from equal components to one large one
			const n = 50
			x := make([]float32, n*dim)
			for i := range x {
				x[i] = float32(rng.NormFloat64() * math.Exp(spread*rng.NormFloat64()))
			}
			Normalize(x, dim)
			want, got := 0.0, 0.0
			for i := 0; i < len(x); i += dim {
				m := 1 / float64(inverseLargest(x[i:i+dim]))
				want += m * m * float64(dim) / 255 / 255
			}
			var b Block
			require.NoError(t, c.Encode(t.Context(), &b, x, 1, backend(t)))
			require.Zero(t, b.Clamped)
			got = b.SumSq
			require.LessOrEqual(t, math.Sqrt(got/n), math.Sqrt(want/n)+1e-4, "dim %d, spread %g", dim, spread)
		}
	}
	_, err := NewFlat(0)
	require.ErrorIs(t, err, ErrShape)
}
