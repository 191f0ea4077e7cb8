package cpu_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cpu"
)

// fuzzInput hands out the bytes of a fuzz test, zeros after the last.
type fuzzInput []byte

func (in *fuzzInput) next() int {
	if len(*in) == 0 {
		return 0
	}
	b := (*in)[0]
	*in = (*in)[1:]
	return int(b)
}

// below returns a number of 0 … n−1.
func (in *fuzzInput) below(n int) int { return (in.next()<<8 | in.next()) % n }

// fuzzTiers are the portable backend, those of this processor, and the matrix
// products of amx in plain Go.
func fuzzTiers(t testing.TB) []kernels.Backend {
	return append([]kernels.Backend{generic(t), anyDim{cpu.TilesInGo(1)}}, otherTiers(t)...)
}

// fuzzCase makes a case of the shape that the bytes describe; what is left of
// them goes to residuals, codes and factors.
func fuzzCase(in *fuzzInput, maxDim, maxLen int) *kerneltest.Case {
	flags := in.next()
	cfg := kerneltest.Config{
		Seed:          uint64(in.next()),
		Dim:           1 + in.below(maxDim),
		Nbits:         1 << (in.next() % 4),
		K:             1 + in.below(200),
		CodeBytes:     2 + flags&2,
		Table:         flags&4 != 0,
		DimScale:      flags&8 != 0,
		CentroidScale: flags&16 != 0,
		ZeroFactors:   flags&32 != 0,
		Aligned:       flags&64 != 0,
		Type:          kernels.FloatType(1 + flags>>7),
	}
	for range 2 + in.next()%6 {
		cfg.Lengths = append(cfg.Lengths, in.below(maxLen))
	}
	c := kerneltest.New(cfg)
	used := cfg.Dim * cfg.Nbits % 8
	for i := 0; i < len(c.Chunk.Residuals) && len(*in) > 0; i++ {
		c.Chunk.Residuals[i] = byte(in.next())
		if rowBytes := c.Codec.RowBytes(); i%rowBytes == rowBytes-1 && used != 0 {
			c.Chunk.Residuals[i] &= 1<<used - 1
		}
	}
	for tok := 0; tok < c.Chunk.Tokens() && len(*in) > 0; tok++ {
		c.SetCode(c.Chunk, tok, in.below(c.K))
		kerneltest.SetFactor(c.Chunk, tok, int16(in.next()<<8|in.next()))
	}
	return c
}

// fuzzQuery makes a query of up to n vectors, some scaled, with weights or not.
func fuzzQuery(in *fuzzInput, c *kerneltest.Case, n int) (vectors, weights []float32) {
	lq := 1 + in.below(n)
	vectors = c.Query(lq)
	switch in.next() % 3 {
	case 1:
		weights = c.Weights(lq, 0, 2)
	case 2:
		weights = c.Weights(lq, -1, 1)
	}
	for range in.next() % 8 { // outliers, zeros, changes of sign
		vectors[in.below(len(vectors))] *= float32(in.next()-128) / 8
	}
	return vectors, weights
}

// FuzzMaxSim compares every tier with the oracle, and with the portable backend.
func FuzzMaxSim(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 1, 0, 127, 1, 0, 60, 3, 0, 40, 0, 15, 0, 16, 0, 17, 0, 31})
	f.Add([]byte{16, 2, 0, 99, 2, 0, 9, 1, 0, 70, 0, 1, 0, 32, 2, 5, 0, 3, 200})
	f.Add([]byte{12, 3, 0, 63, 3, 0, 0, 0, 0, 33, 0, 40})
	f.Add([]byte{250, 4, 1, 3, 0, 0, 100, 2, 0, 5, 0, 0, 0, 64, 0, 3, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		in := fuzzInput(data)
		head := in[:min(len(in), 40)]
		c := fuzzCase(&in, 300, 70)
		vectors, weights := fuzzQuery(&head, c, 70)
		want := resultsOf(t, generic(t), c, vectors, weights)
		for _, b := range fuzzTiers(t) {
			kerneltest.Check(t, b, c, vectors, weights)
			requireAgree(t, want, resultsOf(t, b, c, vectors, weights))
		}
	})
}

// FuzzApprox has longer documents of few dimensions, whose centroid-only
// scores every tier has to agree on to the bit.
func FuzzApprox(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{2, 1, 0, 7, 1, 0, 99, 3, 1, 44, 0, 1, 0, 0, 0, 23})
	f.Add([]byte{0, 9, 0, 3, 0, 0, 0, 1, 0, 64, 0, 65})
	f.Fuzz(func(t *testing.T, data []byte) {
		in := fuzzInput(data)
		head := in[:min(len(in), 40)]
		c := fuzzCase(&in, 16, 500)
		vectors, weights := fuzzQuery(&head, c, 130)
		var want [2][]float32
		for i, b := range fuzzTiers(t) {
			s, err := b.Scorer(c.Codec)
			require.NoError(t, err)
			q := kerneltest.Prepare(t, s.NewQuery(), c.K, vectors, weights)
			all, some := make([]float32, c.Chunk.Docs()), make([]float32, 3)
			q.Approx(all, c.Chunk, nil)
			docs := []uint32{uint32(c.Chunk.Docs() - 1), 0, 0}
			q.Approx(some, c.Chunk, docs)
			for j, doc := range docs {
				require.Equal(t, all[doc], some[j], b.Name())
			}
			if i == 0 {
				want = [2][]float32{all, some}
				kerneltest.Check(t, b, c, vectors, weights)
			}
			requireSameBits(t, want[:], [][]float32{all, some})
		}
	})
}

// FuzzNearest has vectors of small integers, which makes ties, some scaled, all of
// them down to where squares and products are lost.
func FuzzNearest(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 3, 0, 130, 0, 40, 1, 2, 3, 4, 5, 6, 7, 250, 251, 9, 3})
	f.Add([]byte{0, 127, 0, 90, 0, 64, 9, 200, 31, 7})
	f.Add([]byte{0, 15, 1, 200, 0, 99, 128, 129, 3})
	f.Add([]byte{0, 63, 0, 99, 0, 63, 4, 81, 17, 60, 60}) // 2⁻⁶⁰ and 2⁻⁶⁰
	f.Add([]byte{0, 63, 0, 99, 0, 63, 4, 81, 17, 73, 66}) // 2⁻⁷³ and 2⁻⁶⁶
	f.Add([]byte{0, 7, 2, 87, 0, 63, 4, 81, 17, 0, 73})   // 1 and 2⁻⁷³
	f.Add([]byte{0, 63, 0, 99, 0, 63, 4, 81, 17, 120, 0}) // 2⁻¹²⁰ and 1
	f.Add([]byte{0, 7, 2, 87, 0, 63, 4, 81, 17, 120, 25}) // products that are lost
	f.Fuzz(func(t *testing.T, data []byte) {
		in := fuzzInput(data)
		dim, k, rows := 1+in.below(150), 1+in.below(700), 1+in.below(140)
		seed := in
		if len(seed) == 0 {
			seed = fuzzInput{1}
		}
		values := func(n int, salt uint32) []float32 {
			x, h := make([]float32, n), salt
			for i := range x { // the bytes over and over, stirred more and more
				h = (h+uint32(seed[i%len(seed)]))*2654435761 + uint32(i/len(seed))
				x[i] = float32(int8(h>>24)>>4) / 8
			}
			return x
		}
		centroids, x := values(k*dim, 1), values(rows*dim, 2)
		if flags := seed[0]; flags&1 != 0 {
			x[len(x)/2] *= 100
		} else if flags&2 != 0 {
			copy(centroids[k/2*dim:], centroids[:k/2*dim])
		}
		down := 0
		small := rows*k*dim < 1<<19 // numbers below the normal ones take their time
		if small && seed[0]&4 != 0 && len(seed) > 1 {
			for i, v := range [][]float32{x, centroids} {
				exp := int(seed[len(seed)-2+i]) % 140
				for j := range v {
					v[j] *= float32(math.Ldexp(1, -exp))
				}
				down += exp
			}
		}
		want, wantScores := make([]uint32, rows), make([]float32, rows)
		got, gotScores := make([]uint32, rows), make([]float32, rows)
		call := rows
		if small {
			call = 1 // so few rows that every product is computed
		}
		for i := 0; i < rows; i += call {
			require.NoError(t, generic(t).Nearest(context.Background(), want[i:i+call], wantScores[i:i+call], centroids, x[i*dim:(i+call)*dim], dim))
		}
		if down < 140 && rows*k*dim < 1<<20 {
			exact, products := kernels.OracleNearest(centroids, x, dim)
			for i, c := range want { // small integers, and their products, are exact in float32
				require.InDelta(t, products[i], wantScores[i], 1e-3)
				if seed[0]&1 == 0 {
					require.Equal(t, exact[i], c)
				}
			}
		}
		for _, b := range append(otherTiers(t), generic(t)) {
			require.NoError(t, b.Nearest(context.Background(), got, gotScores, centroids, x, dim))
			require.Equal(t, want, got, b.Name())
			require.Equal(t, wantScores, gotScores, b.Name())
		}
	})
}
