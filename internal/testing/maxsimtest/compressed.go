package maxsimtest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// randomChunk makes a codec and a chunk of random tokens, of documents of these lengths.
func randomChunk(
	rng *rand.Rand, dim, nbits int, kind kernels.FloatType, scales bool, lengths []int,
) (*kernels.Codec, *kernels.Chunk) {
	const k = 7
	c := &kernels.Codec{
		Centroids: kernels.Centroids{K: k, Dim: dim, Type: kind, Data: make([]byte, k*dim*kind.Size())},
		Codebook:  kernels.Codebook{Nbits: nbits, Step: 0.07},
		FactorMax: 1.5,
	}
	for i, v := range Normal(rng, k*dim) {
		switch kind {
		case kernels.F16:
			binary.LittleEndian.PutUint16(c.Centroids.Data[2*i:], kernels.F16FromF32(v))
		case kernels.BF16:
			binary.LittleEndian.PutUint16(c.Centroids.Data[2*i:], kernels.BF16FromF32(v))
		default:
			binary.LittleEndian.PutUint32(c.Centroids.Data[4*i:], math.Float32bits(v))
		}
	}
	if scales {
		c.DimScale, c.CentroidScale = Normal(rng, dim), Normal(rng, k)
		c.Codebook.Step, c.Codebook.Scale, c.Codebook.Grid = 0, 1e-3, make([]int16, 1<<nbits)
		for i := range c.Codebook.Grid {
			c.Codebook.Grid[i] = int16(rng.IntN(2000) - 1000)
		}
	}
	ch := &kernels.Chunk{Offsets: []uint32{0}, CodeBytes: 2 + 2*rng.IntN(2)}
	for _, n := range lengths {
		ch.Offsets = append(ch.Offsets, ch.Offsets[len(ch.Offsets)-1]+uint32(n))
	}
	n := ch.Tokens()
	ch.Codes, ch.Residuals, ch.Factors = make([]byte, n*ch.CodeBytes), make([]byte, n*c.RowBytes()), make([]byte, 2*n)
	for t := range n {
		ch.Codes[t*ch.CodeBytes] = byte(rng.IntN(k))
		binary.LittleEndian.PutUint16(ch.Factors[2*t:], uint16(1000+rng.IntN(30000)))
	}
	for i := range ch.Residuals {
		ch.Residuals[i] = byte(rng.Uint32())
	}
	return c, ch
}

// compressed checks that tokens of an index have the scores of package kernels' oracle, and that
// only the query has a gradient.
func (s *suite) compressed(t *testing.T) {
	for i, nbits := range []int{1, 2, 4, 8} {
		for j, kind := range []kernels.FloatType{kernels.BF16, kernels.F16, kernels.F32} {
			if s.isBrief() && (i+j)%3 > 0 {
				continue
			}
			t.Run(fmt.Sprintf("%d bits, %s", nbits, kind), func(t *testing.T) {
				rng := Rand(uint64(80 + 4*i + j))
				dim := []int{3, 32, 17, 64}[(i+j)%4]
				codec, ch := randomChunk(rng, dim, nbits, kind, (i+j)%2 == 0, []int{9, 0, 70, 1})
				d, q := maxsim.ChunkBatch(codec, ch), Side{Lengths: []int{33, 4}}.Batch(rng, dim)
				terms := maxsim.Terms{Normalize: i == 1, Weights: Normal(rng, q.Tokens.Rows())}
				c := NewCall(q, d, maxsim.All(), terms)
				s.checkScores(t, c, expect(c))
				if !terms.Normalize {
					for p := range c.Scores {
						lo, hi := q.Span(p / 4)
						query := q.Tokens.F32[lo*dim : hi*dim]
						want, _ := kernels.OracleMaxSim(codec, query, terms.Weights[lo:hi], ch, p%4)
						require.InDelta(t, want, c.Scores[p], 1e-4*(1+math.Abs(want)))
					}
				}
				h, err := s.b.Prepare(background(), d)
				require.NoError(t, err)
				defer h.Close()
				held := *c
				held.D = h
				s.checkScores(t, &held, expect(c))

				up := Normal(rng, len(c.Scores))
				g := &maxsim.GradCall{
					Q:        q,
					D:        d,
					Terms:    terms,
					Argmax:   c.Argmax,
					Upstream: up,
					DQ:       NewGradient(q, maxsim.F32),
				}
				require.NoError(t, s.b.Gradients(background(), g))
				dq, _ := g.Oracle()
				RequireGradient(t, "Q", dq, &g.DQ.Matrix, q, terms.Normalize)
				if dim < 20 {
					requireDifferences(t, func() (sum float64, argmax []int32) {
						scores, argmax := c.Oracle()
						for p, v := range scores {
							sum += v * float64(up[p])
						}
						return sum, argmax
					}, q.Tokens.F32, g.DQ.F32)
				}
				g.DD = &maxsim.Gradient{Matrix: maxsim.Float32(make([]float32, ch.Tokens()*dim), dim)}
				require.ErrorIs(t, s.b.Gradients(background(), g), kernels.ErrShape, "a gradient by constants")
				ch.Codes[0] = 7
				require.ErrorIs(t, s.b.Score(background(), c), kernels.ErrShape, "a centroid that is not there")
			})
		}
	}
}
