package kerneltest

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/kernels"
)

var queryLengths = []int{1, 2, 7, 16, 31, 32, 33, 64, 128, 300}

// testShapes covers every dimension with every codebook; the other parameters
// change from case to case. A short test leaves most combinations out.
func testShapes(t *testing.T, b kernels.Backend) {
	i := 0
	for _, dim := range []int{1, 7, 16, 64, 96, 100, 128, 130, 256, 768} {
		for _, nbits := range []int{1, 2, 4, 8} {
			for _, table := range []bool{false, true} {
				cfg := Config{
					Dim: dim, Nbits: nbits, Table: table, K: 40 + i,
					Type:          kernels.FloatType(i%3 + 1),
					CodeBytes:     2 + i/2%2*2,
					DimScale:      i/3%2 == 1,
					CentroidScale: i/5%2 == 1,
					Aligned:       i%4 == 0,
					Lengths:       []int{0, 1, 3, 16, 17, 70},
					Seed:          uint64(i),
				}
				lq := queryLengths[i*7%10]
				if dim == 768 {
					lq = min(lq, 33)
				}
				// Leave most combinations out. The remainder shifts with dim, so that each codebook gets some
				// dimensions.
				every := 4
				if effort.Brief() {
					every = 11
				}
				if i++; !effort.Long() && i%every != dim%every {
					continue
				}
				t.Run(fmt.Sprintf("d=%d/n=%d/table=%v/Lq=%d", dim, nbits, table, lq), func(t *testing.T) {
					c := New(cfg)
					s := newScorer(t, b, c)
					checkScores(t, c, s, c.Query(lq), nil, nil)
					if lq := queryLengths[(i*3+1)%10]; dim < 256 {
						checkScores(t, c, s, c.Query(lq), c.Weights(lq, 0, 2), nil)
					}
				})
			}
		}
	}
}

// testLengths covers every document length over the tile sizes of any backend.
func testLengths(t *testing.T, b kernels.Backend) {
	var lengths []int
	for l := range 71 {
		lengths = append(lengths, l)
	}
	switch {
	case effort.Brief():
		lengths = []int{0, 1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 64, 65}
	case !effort.Long():
		lengths = append(lengths[:18], 23, 24, 25, 31, 32, 33, 47, 48, 49, 63, 64, 65)
	}
	lengths = append(lengths, 127, 128, 129, 200)
	for i, nbits := range []int{1, 2, 4, 8} {
		for _, lq := range []int{5, 32} {
			t.Run(fmt.Sprintf("n=%d/Lq=%d", nbits, lq), func(t *testing.T) {
				c := New(Config{
					Dim:       128 - 32*(i&1),
					Nbits:     nbits,
					K:         300,
					CodeBytes: 2 + 2*(i&1),
					Lengths:   lengths,
					Table:     i > 1,
				})
				checkScores(t, c, newScorer(t, b, c), c.Query(lq), nil, nil)
			})
		}
	}
	if !effort.Long() {
		return
	}
	t.Run("all", func(t *testing.T) {
		lengths := []int{5000}
		for l := 71; l <= 200; l++ {
			lengths = append(lengths, l)
		}
		c := New(Config{Dim: 64, K: 300, Lengths: lengths})
		checkScores(t, c, newScorer(t, b, c), c.Query(3), nil, nil)
	})
}

// testPrecision bounds the observed errors at the usual shape, which are far below the
// guaranteed bounds.
func testPrecision(t *testing.T, b kernels.Backend) {
	for _, nbits := range []int{1, 2, 4, 8} {
		c := New(Config{Nbits: nbits, K: 256, Lengths: repeat(40, 30)})
		s := newScorer(t, b, c)
		vectors := c.Query(32)
		q := Prepare(t, s.NewQuery(), c.K, vectors, nil)
		got := make([]float32, c.Chunk.Docs())
		for level, limit := range map[kernels.Level]float64{kernels.Fast: 0.02, kernels.Fine: 1e-4} {
			q.MaxSim(got, c.Chunk, nil, level)
			for doc, v := range got {
				want, _ := kernels.OracleMaxSim(c.Codec, vectors, nil, c.Chunk, doc)
				require.InDelta(t, want, v, limit, "%d bits, level %d, document %d", nbits, level, doc)
			}
		}
	}
}

// testAllNegative catches maxima that start at 0 and padding that wins.
func testAllNegative(t *testing.T, b kernels.Backend) {
	c := New(Config{Lengths: []int{1, 2, 7, 15, 16, 17, 31, 33, 60, 63, 64, 65}, K: 32})
	opposite := c.Vectors(1)
	data := make([]float32, 0, c.K*c.Dim)
	for range c.K {
		for _, v := range opposite {
			data = append(data, -v)
		}
	}
	c.Codec.Centroids.Data = EncodeCentroids(data, c.Type)
	c.Codec.Codebook.Step = 0.001
	for _, lq := range []int{1, 8, 31, 32, 33} {
		var vectors []float32
		for range lq {
			vectors = append(vectors, opposite...)
		}
		s := newScorer(t, b, c)
		checkScores(t, c, s, vectors, nil, nil)
		q := Prepare(t, s.NewQuery(), c.K, vectors, nil)
		got := make([]float32, c.Chunk.Docs())
		for _, level := range levels {
			q.MaxSim(got, c.Chunk, nil, level)
			for doc, v := range got {
				require.Negative(t, v, "level %d, document %d", level, doc)
			}
		}
	}
}

// testFactors has factors of 0 and negative ones, which only a damaged index may have.
func testFactors(t *testing.T, b kernels.Backend) {
	c := New(Config{ZeroFactors: true, Lengths: []int{1, 4, 5, 6, 40, 0, 9}})
	s := newScorer(t, b, c)
	checkScores(t, c, s, c.Query(33), nil, nil)
	for tok := range c.Chunk.Tokens() {
		SetFactor(c.Chunk, tok, 0)
	}
	checkScores(t, c, s, c.Vectors(10), nil, nil)
	for tok := range c.Chunk.Tokens() {
		SetFactor(c.Chunk, tok, int16(c.rng.IntN(1<<16)-1<<15))
	}
	SetFactor(c.Chunk, 2, math.MinInt16)
	SetFactor(c.Chunk, 3, math.MaxInt16)
	checkScores(t, c, s, c.Vectors(10), nil, nil)
}

// testWeights has weights of 0 and below 0.
func testWeights(t *testing.T, b kernels.Backend) {
	cfg, queryLengths := Config{Lengths: []int{0, 1, 5, 30, 64, 70}, K: 500}, []int{1, 7, 32, 40}
	if effort.Brief() {
		cfg.K, queryLengths = 100, []int{7, 40}
	}
	c := New(cfg)
	s := newScorer(t, b, c)
	for _, lq := range queryLengths {
		vectors := c.Query(lq)
		checkScores(t, c, s, vectors, c.Weights(lq, 0, 3), nil)
		checkScores(t, c, s, vectors, c.Weights(lq, -1, 1), nil)
		checkScores(t, c, s, vectors, c.Weights(lq, -2, -1), nil)
		checkScores(t, c, s, vectors, make([]float32, lq), nil)
	}
	// A token of weight 0 counts as absent.
	vectors := c.Query(9)
	w := []float32{1, 1, 1, 1, 1, 1, 1, 1, 0}
	q := Prepare(t, s.NewQuery(), c.K, vectors, w)
	q8 := Prepare(t, s.NewQuery(), c.K, vectors[:8*c.Dim], nil)
	x, y := make([]float32, c.Chunk.Docs()), make([]float32, c.Chunk.Docs())
	for _, level := range levels {
		q.MaxSim(x, c.Chunk, nil, level)
		q8.MaxSim(y, c.Chunk, nil, level)
		require.InDeltaSlice(t, y, x, float64(q.ErrorBound(level)+q8.ErrorBound(level)))
	}
}

// testScales has scales of 0 and below 0.
func testScales(t *testing.T, b kernels.Backend) {
	for _, negative := range []bool{false, true} {
		for _, table := range []bool{false, true} {
			c := New(Config{DimScale: true, CentroidScale: true, Table: table, Lengths: []int{0, 1, 20, 70}, Nbits: 4})
			clear(c.Codec.CentroidScale[:c.K/2])
			for j := range c.Codec.DimScale {
				c.Codec.DimScale[j] *= float32(j%3 - 1)
			}
			if negative {
				for k := range c.Codec.CentroidScale {
					c.Codec.CentroidScale[k] -= 0.5
				}
			}
			checkScores(t, c, newScorer(t, b, c), c.Query(34), nil, nil)
		}
	}
	c := New(Config{CentroidScale: true, Lengths: []int{3, 20}})
	clear(c.Codec.CentroidScale)
	checkScores(t, c, newScorer(t, b, c), c.Query(5), nil, nil)
}

// testExtremes has queries of zeros, of large and small values, a codebook of
// zeros, one centroid, and documents at the ends of the range of the products.
func testExtremes(t *testing.T, b kernels.Backend) {
	c := New(Config{Lengths: []int{0, 1, 20, 70}})
	s := newScorer(t, b, c)
	vectors := c.Query(12)
	clear(vectors[:3*c.Dim])
	checkScores(t, c, s, vectors, nil, nil)
	for i := range vectors {
		vectors[i] *= float32(math.Pow(10, float64(i/c.Dim%7-3)))
	}
	checkScores(t, c, s, vectors, nil, nil)
	checkScores(t, c, s, make([]float32, 3*c.Dim), nil, nil)

	// Every field at the end of its range that agrees with the query, or at
	// the other end: the sums of integer kernels are at their extremes.
	for _, nbits := range []int{1, 2, 4, 8} {
		c := New(Config{Nbits: nbits, Lengths: []int{1, 1, 40}, K: 3})
		v := c.Vectors(1)
		for tok := range 2 {
			for i := range c.Codec.RowBytes() {
				c.Chunk.Residuals[tok*c.Codec.RowBytes()+i] = 0
			}
			for j, x := range v {
				if (x > 0) == (tok == 0) {
					c.Chunk.Residuals[tok*c.Codec.RowBytes()+j*nbits/8] |= (1<<nbits - 1) << (j * nbits % 8)
				}
			}
			SetFactor(c.Chunk, tok, math.MaxInt16)
		}
		checkScores(t, c, newScorer(t, b, c), append(v, c.Vectors(6)...), nil, nil)
	}

	c = New(Config{Lengths: []int{2, 30}, K: 1, Table: true})
	clear(c.Codec.Codebook.Grid)
	checkScores(t, c, newScorer(t, b, c), c.Query(9), nil, nil)
}

// testOutlier has a dimension of 0.99 in queries, centroids or both, so that all other
// components are small compared to the largest, and residuals at the ends of their range in
// that dimension.
func testOutlier(t *testing.T, b kernels.Backend) {
	for _, nbits := range []int{1, 2, 4, 8} {
		c := New(Config{Nbits: nbits, Lengths: []int{0, 1, 17, 60}, K: 20, CodeBytes: 2})
		centroids, vectors := c.Vectors(c.K), c.Vectors(33)
		for i := range c.K {
			if i%3 > 0 {
				makeOutlier(centroids[i*c.Dim:(i+1)*c.Dim], 5, i%3 == 1)
			}
		}
		c.Codec.Centroids.Data = EncodeCentroids(centroids, c.Type)
		for i := range 33 {
			if i%4 > 0 {
				makeOutlier(vectors[i*c.Dim:(i+1)*c.Dim], 5+i%4/3, i%4 == 1)
			}
		}
		for tok := range c.Chunk.Tokens() {
			row := c.Chunk.Residuals[tok*c.Codec.RowBytes():]
			if mask := byte(1<<nbits-1) << (5 * nbits % 8); tok%2 == 0 {
				row[5*nbits/8] |= mask
			} else {
				row[5*nbits/8] &^= mask
			}
			if tok%5 == 0 {
				SetFactor(c.Chunk, tok, math.MaxInt16)
			}
		}
		s := newScorer(t, b, c)
		checkScores(t, c, s, vectors, nil, nil)
		checkScores(t, c, s, vectors[c.Dim:2*c.Dim], []float32{-1}, nil)
	}
}

// makeOutlier makes x a unit vector with ±0.99 in dimension j.
func makeOutlier(x []float32, j int, negative bool) {
	x[j] = 0
	normalise(x)
	for i := range x {
		x[i] *= 0.141
	}
	x[j] = 0.99
	if negative {
		x[j] = -0.99
	}
}

// testTies checks that documents of the same tokens in another order, or repeated, score the same to the bit.
func testTies(t *testing.T, b kernels.Backend) {
	c := New(Config{Lengths: []int{20, 20, 40}, K: 50})
	rowBytes, ch := c.Codec.RowBytes(), c.Chunk
	for tok := range 20 {
		for _, to := range []int{39 - tok, 40 + tok, 60 + tok} {
			c.SetCode(ch, to, int(ch.Code(tok)))
			SetFactor(ch, to, ch.Factor(tok))
			copy(ch.Residuals[to*rowBytes:(to+1)*rowBytes], ch.Residuals[tok*rowBytes:])
		}
	}
	s := newScorer(t, b, c)
	vectors := c.Query(32)
	checkScores(t, c, s, vectors, nil, nil)
	q := Prepare(t, s.NewQuery(), c.K, vectors, nil)
	got := make([]float32, 3)
	for _, level := range levels {
		q.MaxSim(got, ch, nil, level)
		require.Equal(t, []float32{got[0], got[0], got[0]}, got)
	}
	q.Approx(got, ch, nil)
	require.Equal(t, []float32{got[0], got[0], got[0]}, got)
}

// repeat returns a list of n, times long.
func repeat(n, times int) []int {
	var l []int
	for range times {
		l = append(l, n)
	}
	return l
}
