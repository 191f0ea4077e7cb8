package cpu_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	"github.com/plaid-ir/plaid/kernels/maxsim/cpu"
)

// TestTiersSameBits: scores, argmaxima and gradients of every tier are those of plain Go,
// bit for bit, with any number of threads.
func TestTiersSameBits(t *testing.T) {
	ctx := context.Background()
	generic, err := maxsim.Select("generic")
	require.NoError(t, err)
	for i, kind := range []maxsim.Type{maxsim.F32, maxsim.F16, maxsim.BF16, maxsim.I8, maxsim.E4M3} {
		for _, normalize := range []bool{false, true} {
			if !effort.Long() && normalize == (i%2 == 0) {
				continue
			}
			rng := maxsimtest.Rand(uint64(i))
			q := maxsimtest.Side{Type: kind, Lengths: []int{32, 0, 7, 50}, Masked: 0.1}.Batch(rng, 31+33*i)
			d := maxsimtest.Side{Type: kind, Lengths: []int{5, 0, 300, 64, 1, 12, 13}, Masked: float64(i%2) / 3}.Batch(rng, 31+33*i)
			terms := maxsim.Terms{Normalize: normalize, Weights: maxsimtest.Normal(rng, q.Tokens.Rows()), Threads: 1}
			pairs := maxsim.All()
			if i%2 == 1 {
				pairs = maxsim.Candidates(3, []int32{6, 2, 3, 1, 1, 0, 2, 4, 5, 2, 2, 3})
			}
			want, dq, dd := compute(t, ctx, generic, q, d, pairs, terms)
			for _, name := range maxsim.Backends() {
				b, err := maxsim.Select(name)
				require.NoError(t, err)
				terms.Threads++
				got, gotQ, gotD := compute(t, ctx, b, q, d, pairs, terms)
				for p := range want.Scores {
					require.Equal(t, math.Float32bits(want.Scores[p]), math.Float32bits(got.Scores[p]), "%s, %s, pair %d", name, kind, p)
				}
				require.Equal(t, want.Argmax, got.Argmax)
				require.Equal(t, dq.F32, gotQ.F32)
				require.Equal(t, dd.F32, gotD.F32)
			}
		}
	}
}

// TestScreenedManyDimensions: the sums that screening needs hold those of long rows.
func TestScreenedManyDimensions(t *testing.T) {
	generic, err := maxsim.Select("generic")
	require.NoError(t, err)
	for _, dim := range []int{1024, 2048, 4096} {
		rng := maxsimtest.Rand(uint64(dim))
		q := maxsimtest.Side{Type: maxsim.F16, Lengths: []int{64}}.Batch(rng, dim)
		d := maxsimtest.Side{Type: maxsim.F16, Lengths: []int{64, 64}}.Batch(rng, dim)
		want, _, _ := compute(t, t.Context(), generic, q, d, maxsim.All(), maxsim.Terms{})
		for _, name := range maxsim.Backends() {
			b, err := maxsim.Select(name)
			require.NoError(t, err)
			got, _, _ := compute(t, t.Context(), b, q, d, maxsim.All(), maxsim.Terms{})
			require.Equal(t, want.Scores, got.Scores, "%s, %d dimensions", name, dim)
			require.Equal(t, want.Argmax, got.Argmax)
		}
	}
}

// TestScreenedSameBits: screening changes no bit, on vectors that are close to each
// other in many ways.
func TestScreenedSameBits(t *testing.T) {
	near := func(scale float32) func(x, base []float32, i int) {
		return func(x, base []float32, i int) {
			for j := range x {
				x[j] = base[j] + scale*x[j]
			}
		}
	}
	for i, change := range []func(x, base []float32, i int){
		near(0), near(1e-6), near(1e-4), near(1e-2), near(1),
		func(x, base []float32, i int) { clear(x[:len(x)*(i%3)/3]) },                              // sparse
		func(x, base []float32, i int) { x[0] = 100 },                                             // an outlier
		func(x, base []float32, i int) { near(float32(math.Pow(10, float64(-i%9))))(x, base, i) }, // all at once
	} {
		for j, kind := range []maxsim.Type{maxsim.F32, maxsim.BF16, maxsim.I8, maxsim.E4M3, maxsim.F16} {
			rng := maxsimtest.Rand(uint64(i))
			if !effort.Long() && (i+j)%4 > 0 && j < 4 {
				continue
			}
			dim := []int{128, 31, 96, 1000, 64}[j]
			lengths := []int{50, 3, 40}
			if i%2 == 1 { // few columns
				lengths = lengths[:1]
			}
			q := maxsimtest.Side{Lengths: lengths}.Batch(rng, dim)
			d := maxsimtest.Side{Lengths: []int{700, 0, 5, 12, 13, 90, 241}, Masked: float64(j%2) / 3}.Batch(rng, dim)
			base := maxsimtest.Normal(rng, dim)
			for r := range d.Tokens.Rows() {
				change(d.Tokens.F32[r*dim:(r+1)*dim], base, r)
			}
			d.Tokens = maxsimtest.RoundedTo(kind, d.Tokens.F32, dim, false)
			requireScreened(t, q, d, func(bool) bool { return dim > 31 })
		}
	}
}

// TestScreenedWide: the levels of a column add up to more than 16 bits hold, with many
// dimensions, and sooner where values have one sign.
func TestScreenedWide(t *testing.T) {
	for i, dim := range []int{1100, 2048, 4096} {
		rng := maxsimtest.Rand(uint64(i))
		q := maxsimtest.Side{Lengths: []int{60}}.Batch(rng, dim)
		d := maxsimtest.Side{Lengths: []int{90}}.Batch(rng, dim)
		for _, x := range [][]float32{q.Tokens.F32, d.Tokens.F32} {
			for j := range x {
				if dim < 2048 {
					x[j] = 1 + x[j]/20
				}
			}
		}
		requireScreened(t, q, d, func(bool) bool { return true })
	}
}

// TestScreenedWorst: the bound holds, and with little to spare, where all errors of rounding are
// as large as they can be and point the same way: the best token is rounded down in all of its
// dimensions, and the next best up.
func TestScreenedWorst(t *testing.T) {
	const dim, tokens = 128, 60
	for _, middle := range []float32{0.5, 1.0 / 32} { // between two bytes, and two of bfloat16
		q := maxsim.Single(maxsim.Float32(make([]float32, 50*dim), dim))
		d := maxsim.Single(maxsim.Float32(make([]float32, tokens*dim), dim))
		for i := range q.Tokens.F32 {
			q.Tokens.F32[i] = float32(1 + i/dim)
			if i%dim == 0 {
				q.Tokens.F32[i] /= 100
			}
		}
		for i, sign := range map[int]float32{40: 1, 3: -1} { // the best one comes later
			row := d.Tokens.F32[i*dim : (i+1)*dim]
			for j := range row {
				row[j] = 10 + middle - sign*1e-4
			}
			row[0] = 127 * sign
		}
		requireScreened(t, q, d, func(bool) bool { return true })
		generic, err := maxsim.Select("generic")
		require.NoError(t, err)
		c := maxsimtest.NewCall(q, d, maxsim.All(), maxsim.Terms{})
		require.NoError(t, generic.Score(context.Background(), c))
		require.Equal(t, slices.Repeat([]int32{40}, 50), c.Argmax)
	}
}

// requireScreened checks that screening changes no bit, and that it is done if it is wanted.
func requireScreened(t *testing.T, q, d *maxsim.Batch, want func(normalize bool) bool) {
	t.Helper()
	screened := 0
	screening, plain := cpu.Screening(&screened)
	for _, normalize := range []bool{false, true} {
		c := maxsimtest.NewCall(q, d, maxsim.All(), maxsim.Terms{Normalize: normalize, Threads: 1})
		if plain != nil {
			require.NoError(t, plain.Score(context.Background(), c))
		}
		for _, b := range screening {
			held, err := b.Prepare(context.Background(), d)
			require.NoError(t, err)
			for _, docs := range []maxsim.Operand{d, held} {
				got := maxsimtest.NewCall(q, d, maxsim.All(), c.Terms)
				got.D, screened = docs, 0
				require.NoError(t, b.Score(context.Background(), got))
				requireSame(t, c, got)
				require.True(t, docs == held || want(normalize) == (screened > 0))
			}
		}
	}
}

func requireSame(t *testing.T, want, got *maxsim.Call) {
	t.Helper()
	for p, v := range want.Scores {
		require.Equal(t, math.Float32bits(v), math.Float32bits(got.Scores[p]), "pair %d", p)
	}
	require.Equal(t, want.Argmax, got.Argmax)
}

func compute(t *testing.T, ctx context.Context, b maxsim.Backend, q, d *maxsim.Batch, p maxsim.Pairs, terms maxsim.Terms) (*maxsim.Call, *maxsim.Gradient, *maxsim.Gradient) {
	c := maxsimtest.NewCall(q, d, p, terms)
	require.NoError(t, b.Score(ctx, c))
	g := &maxsim.GradCall{Q: q, D: d, Pairs: p, Terms: terms, Argmax: c.Argmax, Upstream: c.Scores,
		DQ: maxsimtest.NewGradient(q, maxsim.F32), DD: maxsimtest.NewGradient(d, maxsim.F32)}
	require.NoError(t, b.Gradients(ctx, g))
	return c, g.DQ, g.DD
}

// FuzzScore: any shape, on every tier, against the oracle; with the same bits on all, of which
// some screen.
func FuzzScore(f *testing.F) {
	f.Add(uint64(1), 5, 3, 7, byte(0), byte(0), false)
	f.Add(uint64(2), 130, 33, 70, byte(3), byte(7), true)
	f.Add(uint64(3), 1, 1, 0, byte(4), byte(3), true)
	f.Add(uint64(4), 128, 33, 140, byte(1), byte(8), false)
	f.Add(uint64(5), 100, 30, 140, byte(3), byte(9), false)
	// Some rows are of extreme lengths.
	f.Add(uint64(168), 160, 75, 150, byte(0), byte(24), true)
	f.Add(uint64(5), 150, 9, 140, byte(2), byte(28), true)
	f.Add(uint64(13), 64, 70, 90, byte(3), byte(24), false)
	f.Add(uint64(13), 64, 70, 90, byte(4), byte(24), false)
	f.Fuzz(func(t *testing.T, seed uint64, dim, lq, ld int, kind, layout byte, normalize bool) {
		if dim < 1 || dim > 200 || lq < 0 || lq > 80 || ld < 0 || ld > 150 {
			return
		}
		rng := maxsimtest.Rand(seed)
		side := maxsimtest.Side{Type: maxsim.Type(kind%5 + 1), Affine: kind&8 > 0, Padded: layout&1 > 0, Masked: float64(layout>>1&3) / 4}
		side.Lengths = []int{lq, rng.IntN(lq + 1)}
		q := side.Batch(rng, dim)
		side.Lengths = []int{ld, 0, rng.IntN(ld + 1), rng.IntN(ld + 1)}
		d := side.Batch(rng, dim)
		if layout&16 > 0 {
			maxsimtest.Stretch(rng, d, 0.02)
			for r := range q.Tokens.Rows() {
				maxsimtest.Scale(q, r, 1e-4) // so that no score is beyond float32
			}
			if normalize {
				maxsimtest.Stretch(rng, q, 0.02)
			}
		}
		var first *maxsim.Call
		for _, name := range maxsim.Backends() {
			b, err := maxsim.Select(name)
			require.NoError(t, err)
			c := maxsimtest.NewCall(q, d, maxsim.All(), maxsim.Terms{Normalize: normalize, Threads: rng.IntN(4)})
			maxsimtest.Check(t, b, c, maxsimtest.Options{})
			if first == nil {
				first = c
			}
			requireSame(t, first, c)
			if layout&8 > 0 {
				held := maxsimtest.NewCall(q, d, maxsim.All(), c.Terms)
				held.D, err = b.Prepare(context.Background(), d)
				require.NoError(t, err)
				require.NoError(t, b.Score(context.Background(), held))
				requireSame(t, c, held)
			}
		}
	})
}

// TestSegmentsSameBits: a document that several goroutines share scores the same bits,
// argmaxima included, whatever kind the pairs are of.
func TestSegmentsSameBits(t *testing.T) {
	ctx := context.Background()
	b, err := maxsim.Select("")
	require.NoError(t, err)
	generic, err := maxsim.Select("generic")
	require.NoError(t, err)
	const dim = 48 // as screening begins
	rng := maxsimtest.Rand(3)
	for name, side := range map[string]maxsimtest.Side{
		"one":    {Lengths: []int{3000}},
		"some":   {Lengths: []int{3, 3000, 0, 40, 2000, 9}},
		"masked": {Lengths: []int{20, 3000, 30}, Masked: 0.4},
		"few":    {Type: maxsim.BF16, Lengths: []int{3000, 2500}, Masked: 0.9985},
		"none":   {Lengths: []int{3000}, Masked: 1.1},
	} {
		if !effort.Long() && name != "some" && name != "few" {
			continue
		}
		q := maxsimtest.Side{Lengths: []int{70, 40, 0, 33}}.SmallBatch(rng, dim) // small: there are ties
		d := side.SmallBatch(rng, dim)
		var lists [2][]int32
		for i := range q.Len() {
			for j := range d.Len() {
				lists[0], lists[1] = append(lists[0], int32(i)), append(lists[1], int32(j))
			}
		}
		for kind, pairs := range map[string]maxsim.Pairs{"all": maxsim.All(), "listed": maxsim.Listed(lists[0], lists[1]), "first": maxsim.Range(0, 1)} {
			want := maxsimtest.NewCall(q, d, pairs, maxsim.Terms{Threads: 1})
			require.NoError(t, generic.Score(ctx, want))
			h, err := b.Prepare(ctx, d)
			require.NoError(t, err)
			head := headCall(rng, q, d, pairs)
			require.NoError(t, generic.(maxsim.HeadScorer).ScoreHead(ctx, head))
			wantHead := append([]float32(nil), head.Scores...)
			for _, threads := range []int{2, 7} {
				if !effort.Long() && (threads == 7) == (kind == "all") {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d", name, kind, threads), func(t *testing.T) {
					for _, o := range []maxsim.Operand{d, h} {
						got := maxsimtest.NewCall(q, d, pairs, maxsim.Terms{Threads: threads})
						got.D = o
						require.NoError(t, b.Score(ctx, got))
						requireSame(t, want, got)
					}
					head.Threads = threads
					require.NoError(t, b.(maxsim.HeadScorer).ScoreHead(ctx, head))
					require.Equal(t, wantHead, head.Scores)
				})
			}
		}
	}
}

// headCall is a call with the documents as hidden states.
func headCall(rng *rand.Rand, q, d *maxsim.Batch, p maxsim.Pairs) *maxsim.HeadCall {
	c := maxsimtest.NewCall(q, d, p, maxsim.Terms{Threads: 1, Normalize: true})
	hidden := d.Tokens.Dim
	return &maxsim.HeadCall{
		Q: q, D: d, Pairs: p, Terms: c.Terms, Scores: c.Scores,
		Head: maxsim.Head{Weights: maxsim.Float32(maxsimtest.Normal(rng, q.Tokens.Dim*hidden), hidden), Bias: maxsimtest.Normal(rng, q.Tokens.Dim)},
	}
}

// TestHeadSameBits: heads give the same bits on every tier.
func TestHeadSameBits(t *testing.T) {
	ctx := context.Background()
	generic, err := maxsim.Select("generic")
	require.NoError(t, err)
	for i, kind := range []maxsim.Type{maxsim.F32, maxsim.BF16, maxsim.I8} {
		rng := maxsimtest.Rand(uint64(i))
		q := maxsimtest.Side{Type: kind, Lengths: []int{45, 7}}.Batch(rng, 50+i)
		d := maxsimtest.Side{Type: kind, Lengths: []int{70, 0, 5}, Masked: float64(i) / 5}.Batch(rng, 65+i)
		c := headCall(rng, q, d, maxsim.All())
		require.NoError(t, generic.(maxsim.HeadScorer).ScoreHead(ctx, c))
		want := append([]float32(nil), c.Scores...)
		for _, name := range maxsim.Backends() {
			b, err := maxsim.Select(name)
			require.NoError(t, err)
			require.NoError(t, b.(maxsim.HeadScorer).ScoreHead(ctx, c))
			require.Equal(t, want, c.Scores, name)
		}
	}
}

// TestGradientPiecesSameBits: gradients of long documents are pulled in pieces, with the
// same bits on any number of threads, into any buffer.
func TestGradientPiecesSameBits(t *testing.T) {
	ctx := context.Background()
	b, err := maxsim.Select("")
	require.NoError(t, err)
	const dim = 12
	rng := maxsimtest.Rand(9)
	q := maxsimtest.Side{Lengths: []int{70, 3, 0, 20}}.SmallBatch(rng, dim)
	d := maxsimtest.Side{Type: maxsim.BF16, Lengths: []int{9000, 0, 8500, 70}, Masked: 0.1}.SmallBatch(rng, dim)
	for _, normalize := range []bool{false, true} {
		for _, kind := range []maxsim.Type{maxsim.F32, maxsim.BF16} {
			if !effort.Long() && normalize == (kind == maxsim.F32) {
				continue
			}
			terms := maxsim.Terms{Normalize: normalize, Threads: 1, Weights: maxsimtest.Normal(rng, q.Tokens.Rows())}
			c := maxsimtest.NewCall(q, d, maxsim.All(), terms)
			require.NoError(t, b.Score(ctx, c))
			gradients := func(threads int, add bool) (dq, dd *maxsim.Gradient) {
				g := &maxsim.GradCall{Q: q, D: d, Terms: terms, Argmax: c.Argmax, Upstream: c.Scores,
					DQ: maxsimtest.NewGradient(q, kind), DD: maxsimtest.NewGradient(d, kind)}
				g.Threads, g.DQ.Add, g.DD.Add = threads, add, add
				require.NoError(t, b.Gradients(ctx, g))
				return g.DQ, g.DD
			}
			for _, add := range []bool{false, true} {
				wantQ, wantD := gradients(1, add)
				for _, threads := range []int{2, 5} {
					gotQ, gotD := gradients(threads, add)
					require.Equal(t, wantQ, gotQ)
					require.Equal(t, wantD, gotD)
				}
			}
		}
	}
}
