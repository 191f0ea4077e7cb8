package dense

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/internal/topk"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

func TestGPUSuite(t *testing.T) {
	maxsimtest.Run(t, New(runtimetest.OpenGPU(t)), maxsimtest.Options{})
}

// The same in pieces, and with documents cut into segments.
func TestGPUInPieces(t *testing.T) {
	b := New(runtimetest.OpenGPU(t)).(*backend)
	b.limits = callLimits{docs: 60_000, projected: 60_000, out: 20_000, part: 10_000, segment: 16}
	maxsimtest.Run(t, b, maxsimtest.Options{MaxDim: 300})
}

// Documents of 100,000 tokens are cut, and give what they give whole.
func TestGPULongDocuments(t *testing.T) {
	effort.SkipBrief(t, "the oracle takes minutes, on one goroutine")
	b := New(runtimetest.OpenGPU(t)).(*backend)
	for _, kind := range []maxsim.Type{maxsim.F32, maxsim.F16, maxsim.I8} {
		rng := maxsimtest.Rand(70)
		d := maxsimtest.Side{Type: kind, Lengths: []int{100_000, 0, 3000, 5}}.Batch(rng, 128)
		for _, queries := range [][]int{{32}, {100, 0, 7}} {
			q := maxsimtest.Side{Type: kind, Lengths: queries}.Batch(rng, 128)
			all := maxsimtest.NewCall(q, d, maxsim.All(), maxsim.Terms{})
			listed := maxsimtest.NewCall(q, d, maxsim.Listed([]int32{0, 0}, []int32{2, 0}), maxsim.Terms{})
			for _, c := range []*maxsim.Call{all, listed} {
				maxsimtest.Check(t, b, c, maxsimtest.Options{})
				c.Argmax = nil
				maxsimtest.Check(t, b, c, maxsimtest.Options{})
			}
			r := &maxsim.RankCall{Q: q, D: d, K: 4, Docs: make([]int32, 4*len(queries)), Scores: make([]float32, 4*len(queries))}
			require.NoError(t, b.Rank(ctx, r))
			for i := range queries {
				best := float32(math.Inf(-1))
				for doc := range 4 {
					if doc != 1 { // which has no tokens
						best = max(best, all.Scores[4*i+doc])
					}
				}
				require.InDelta(t, best, r.Scores[4*i], 1e-3)
				require.EqualValues(t, -1, r.Docs[4*i+3])
			}
		}
	}
}

// Ranks of many documents are those of their scores, held or streamed.
func TestGPURank(t *testing.T) {
	b := New(runtimetest.OpenGPU(t)).(*backend)
	q, d := randomBatch(maxsim.F16, 128, equal(5, 32)), randomBatch(maxsim.F16, 128, ragged(60_000, 0, 30))
	nd := d.Len()
	c := maxsimtest.NewCall(q, d, maxsim.All(), maxsim.Terms{})
	c.Argmax = nil
	require.NoError(t, b.Score(ctx, c))
	h, err := b.Prepare(ctx, d)
	require.NoError(t, err)
	defer h.Close()
	for _, k := range []int{1, 100, 7000} {
		for _, of := range []maxsim.Operand{d, h} {
			r := &maxsim.RankCall{Q: q, D: of, K: k, Docs: make([]int32, 5*k), Scores: make([]float32, 5*k)}
			require.NoError(t, b.Rank(ctx, r))
			for i := range 5 {
				order := make([]topk.Scored, 0, nd)
				for doc, s := range c.Scores[i*nd : (i+1)*nd] {
					if lo, hi := d.Span(doc); lo < hi {
						order = append(order, topk.Scored{Doc: uint32(doc), Score: s})
					}
				}
				slices.SortFunc(order, topk.Order)
				for j := range k {
					require.EqualValues(t, order[j].Doc, r.Docs[i*k+j], "query %d, place %d of %d", i, j, k)
					require.Equal(t, order[j].Score, r.Scores[i*k+j])
				}
			}
		}
	}
}

// Hidden states that are scored as they are read give what token vectors in memory do,
// which two queries make them; documents end anywhere in a tile.
func TestGPUHeads(t *testing.T) {
	b := New(runtimetest.OpenGPU(t)).(*backend)
	for i, shape := range []struct{ hidden, dim, lq int }{{768, 128, 32}, {1024, 128, 20}, {384, 96, 32}, {200, 64, 7}, {64, 40, 1}, {2048, 100, 32}} {
		for _, kind := range []maxsim.Type{maxsim.F16, maxsim.BF16, maxsim.F32} {
			rng := maxsimtest.Rand(uint64(80 + i))
			d := randomBatch(kind, shape.hidden, append(ragged(400, 0, 200), 1, 63, 64, 65, 5000))
			head := maxsim.Head{Weights: randomBatch(kind, shape.hidden, equal(1, shape.dim)).Tokens, Bias: maxsimtest.Normal(rng, shape.dim)}
			q := maxsimtest.Side{Lengths: []int{shape.lq}, Unit: true}.Batch(rng, shape.dim)
			two := maxsim.Packed(maxsim.Float32(append(slices.Clone(q.Tokens.F32), q.Tokens.F32...), shape.dim), []int{0, shape.lq, 2 * shape.lq})
			h, err := b.Prepare(ctx, d)
			require.NoError(t, err)
			for _, terms := range []maxsim.Terms{{}, {Normalize: true}} {
				want := &maxsim.HeadCall{Q: two, D: d, Head: head, Terms: terms, Scores: make([]float32, 2*d.Len())}
				require.NoError(t, b.ScoreHead(ctx, want))
				for _, of := range []maxsim.Operand{d, h} {
					got := &maxsim.HeadCall{Q: q, D: of, Head: head, Terms: terms, Scores: make([]float32, d.Len())}
					require.NoError(t, b.ScoreHead(ctx, got))
					for doc, v := range got.Scores {
						for _, w := range []float32{want.Scores[doc], want.Scores[d.Len()+doc]} {
							if !(math.Abs(float64(v-w)) <= 1e-5*float64(shape.lq)) {
								t.Fatalf("h %d, d %d, %s: document %d of %d tokens scores %g, alone %g", shape.hidden, shape.dim, kind, doc, h.(*heldBatch).tokens.rowCount(doc), w, v)
							}
						}
					}
				}
			}
			require.NoError(t, h.Close())
		}
	}
}

// Every kernel of sm_90a, by the shapes that it is chosen for, against the oracle;
// documents end before, at and after the end of a tile.
func TestGPUKernels(t *testing.T) {
	b := New(runtimetest.OpenGPU(t))
	docs := []int{0, 1, 63, 64, 65, 16, 17, 129, 5, 200}
	for _, kind := range []maxsim.Type{maxsim.F32, maxsim.F16, maxsim.BF16, maxsim.I8, maxsim.E4M3} {
		for _, dim := range []int{20, 32, 48, 64, 96, 128, 160, 192, 256, 384, 768, 1024} {
			if !effort.Long() && dim > 256 {
				continue
			}
			t.Run(fmt.Sprintf("%s/d=%d", kind, dim), func(t *testing.T) {
				t.Parallel()
				rng := maxsimtest.Rand(uint64(dim))
				for i, queries := range [][]int{{32}, {7}, {64, 1}, {33}, {128}, {32, 5, 0, 70, 16, 17}, {20, 20, 20, 20, 20, 20, 20, 20, 20, 20}} {
					q := maxsimtest.Side{Type: kind, Lengths: queries, Unit: dim == 128}.Batch(rng, dim)
					d := maxsimtest.Side{Type: kind, Lengths: docs, Unit: dim == 128}.Batch(rng, dim)
					c := maxsimtest.NewCall(q, d, maxsim.All(), maxsim.Terms{Normalize: i%2 == dim/32%2})
					maxsimtest.Check(t, b, c, maxsimtest.Options{})
					c.Argmax = nil
					maxsimtest.Check(t, b, c, maxsimtest.Options{})
					list := make([]int32, 4*len(queries))
					for i := range list {
						list[i] = int32(rng.IntN(len(docs)))
					}
					c = maxsimtest.NewCall(q, d, maxsim.Candidates(4, list), maxsim.Terms{})
					maxsimtest.Check(t, b, c, maxsimtest.Options{})
					if t.Failed() {
						t.Fatalf("queries %v", queries)
					}
				}
			})
		}
	}
}

// A batch of pages, where every block has many tiles and several rounds of the ring.
func TestGPUPages(t *testing.T) {
	b := New(runtimetest.OpenGPU(t))
	rng := maxsimtest.Rand(32)
	pages := func(n, tokens int) *maxsim.Batch {
		lengths := make([]int, n)
		for i := range lengths {
			lengths[i] = tokens
		}
		return maxsimtest.Side{Type: maxsim.F16, Lengths: lengths, Unit: true}.Batch(rng, 128)
	}
	q, d := pages(64, 1024), pages(64, 1024)
	all := maxsimtest.NewCall(q, d, maxsim.All(), maxsim.Terms{})
	require.NoError(t, b.Score(ctx, all))
	// Some pairs against the oracle, and all against scores by other blocks.
	for _, at := range []int{0, 65, 4095, 64 * 17} {
		qi, di := at/64, at%64
		one := maxsimtest.NewCall(
			maxsim.Single(q.Tokens.Slice(1024*qi, 1024*qi+1024)), maxsim.Single(d.Tokens.Slice(1024*di, 1024*di+1024)), maxsim.All(), maxsim.Terms{})
		maxsimtest.Check(t, b, one, maxsimtest.Options{})
		require.InDelta(t, one.Scores[0], all.Scores[at], 1e-3)
	}
	again := maxsimtest.NewCall(q, d, maxsim.All(), maxsim.Terms{})
	again.Argmax = nil
	require.NoError(t, b.Score(ctx, again))
	for i := range again.Scores {
		require.InDelta(t, all.Scores[i], again.Scores[i], 1e-3, "pair %d", i)
	}
}
