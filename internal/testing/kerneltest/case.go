// Package kerneltest makes codecs, chunks and queries for tests of kernels,
// and has the tests that every backend must pass.
package kerneltest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/plaid-ir/plaid/kernels"
	_ "github.com/plaid-ir/plaid/kernels/cpu" // registers the backend "generic" for comparisons
)

// Config configures a [Case]. The zero value of a field means the default in its comment.
type Config struct {
	Dim, Nbits, K int               // 128, 2, 64
	Type          kernels.FloatType // BF16
	CodeBytes     int               // 4
	Table         bool              // weights from a table, not uniform
	DimScale      bool
	CentroidScale bool
	Lengths       []int // of the documents
	ZeroFactors   bool  // every fifth token has factor 0
	Aligned       bool  // arrays start at aligned addresses; else at odd ones
	Seed          uint64
}

// Case is a codec and a chunk of random documents. Codes and residuals are
// random, factors are the inverse norms of the decoded vectors.
type Case struct {
	Config
	Codec *kernels.Codec
	Chunk *kernels.Chunk
	rng   *rand.Rand
}

// New returns a case. The same configuration gives the same case.
func New(cfg Config) *Case {
	if cfg.Dim == 0 {
		cfg.Dim = 128
	}
	if cfg.Nbits == 0 {
		cfg.Nbits = 2
	}
	if cfg.K == 0 {
		cfg.K = 64
	}
	if cfg.Type == 0 {
		cfg.Type = kernels.BF16
	}
	if cfg.CodeBytes == 0 {
		cfg.CodeBytes = 4
	}
	c := &Case{Config: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 1))}
	c.Codec = c.randomCodec()
	c.Chunk = c.randomChunk()
	return c
}

// Vectors returns n random unit vectors.
func (c *Case) Vectors(n int) []float32 { return UnitVectors(c.rng, n, c.Dim) }

// Query returns n unit vectors near decoded tokens of the chunk, or random
// ones where it has none.
func (c *Case) Query(n int) []float32 {
	q := c.Vectors(n)
	if c.Chunk.Tokens() == 0 {
		return q
	}
	for s := range n {
		v := kernels.OracleDecode(c.Codec, c.Chunk, c.rng.IntN(c.Chunk.Tokens()))
		row := q[s*c.Dim : (s+1)*c.Dim]
		for j := range row {
			row[j] = row[j]*0.7 + float32(v[j])
		}
		normalise(row)
	}
	return q
}

// Weights returns n random weights between lo and hi.
func (c *Case) Weights(n int, lo, hi float32) []float32 {
	w := make([]float32, n)
	for i := range w {
		w[i] = lo + (hi-lo)*c.rng.Float32()
	}
	return w
}

// UnitVectors returns n random vectors of length 1.
func UnitVectors(rng *rand.Rand, n, dim int) []float32 {
	x := make([]float32, n*dim)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	for i := 0; i < len(x); i += dim {
		normalise(x[i : i+dim])
	}
	return x
}

// normalise divides x by its length.
func normalise(x []float32) {
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	for i := range x {
		x[i] = float32(float64(x[i]) / math.Sqrt(sum))
	}
}

// EncodeCentroids returns values as bytes of the given type.
func EncodeCentroids(x []float32, t kernels.FloatType) []byte {
	var b []byte
	for _, v := range x {
		switch t {
		case kernels.BF16:
			b = binary.LittleEndian.AppendUint16(b, kernels.BF16FromF32(v))
		case kernels.F16:
			b = binary.LittleEndian.AppendUint16(b, kernels.F16FromF32(v))
		default:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	return b
}

// randomCodec returns a codec of random centroids, with the options of the case.
func (c *Case) randomCodec() *kernels.Codec {
	k := &kernels.Codec{
		Centroids: kernels.Centroids{K: c.K, Dim: c.Dim, Type: c.Type,
			Data: c.atOddAddress(EncodeCentroids(c.Vectors(c.K), c.Type))},
		Codebook:  kernels.Codebook{Nbits: c.Nbits},
		FactorMax: 1.4,
	}
	levels := 1 << c.Nbits
	spread := 0.6 / float32(math.Sqrt(float64(c.Dim))) // of a component, for residuals of norm 0.6
	if c.Table {
		k.Codebook.Grid = make([]int16, levels)
		for b := range k.Codebook.Grid {
			x := (float64(b) + c.rng.Float64()*0.9) / float64(levels) // ascending, uneven
			k.Codebook.Grid[b] = int16(-32768 + 65535*x)
		}
		k.Codebook.Scale = spread / 70
	} else {
		k.Codebook.Step = 3.4 * spread / float32(levels)
	}
	if c.DimScale {
		k.DimScale = c.Weights(c.Dim, 0.4, 1.6)
	}
	if c.CentroidScale {
		k.CentroidScale = c.Weights(c.K, 0.4, 1.6)
	}
	return k
}

// randomChunk returns a chunk of random tokens, whose factors make decoded vectors unit
// vectors.
func (c *Case) randomChunk() *kernels.Chunk {
	ch := &kernels.Chunk{Offsets: []uint32{0}, CodeBytes: c.CodeBytes}
	n := 0
	for _, l := range c.Lengths {
		n += l
		ch.Offsets = append(ch.Offsets, uint32(n))
	}
	rowBytes := c.Codec.RowBytes()
	ch.Codes = c.atOddAddress(make([]byte, n*c.CodeBytes))
	ch.Residuals = c.atOddAddress(make([]byte, n*rowBytes))
	ch.Factors = c.atOddAddress(make([]byte, 2*n))
	for t := range n {
		c.SetCode(ch, t, c.rng.IntN(c.K))
		r := ch.Residuals[t*rowBytes : (t+1)*rowBytes]
		for i := range r {
			r[i] = byte(c.rng.Uint32())
		}
		if used := c.Dim * c.Nbits % 8; used != 0 {
			r[len(r)-1] &= 1<<used - 1
		}
		// The inverse norm, found by decoding with the largest factor.
		SetFactor(ch, t, 32767)
		var sum float64
		for _, v := range kernels.OracleDecode(c.Codec, ch, t) {
			sum += v * v
		}
		f := int16(min(32767/math.Sqrt(sum), 32767))
		if c.ZeroFactors && t%5 == 0 {
			f = 0
		}
		SetFactor(ch, t, f)
	}
	return ch
}

// SetCode sets the code of a token.
func (c *Case) SetCode(ch *kernels.Chunk, token, code int) {
	if ch.CodeBytes == 2 {
		binary.LittleEndian.PutUint16(ch.Codes[2*token:], uint16(code))
	} else {
		binary.LittleEndian.PutUint32(ch.Codes[4*token:], uint32(code))
	}
}

// SetFactor sets the stored factor of a token.
func SetFactor(ch *kernels.Chunk, token int, factor int16) {
	binary.LittleEndian.PutUint16(ch.Factors[2*token:], uint16(factor))
}

// atOddAddress returns a copy of b, with no spare capacity, at an odd address; or b itself if
// the case is aligned.
func (c *Case) atOddAddress(b []byte) []byte {
	if c.Aligned {
		return b
	}
	odd := make([]byte, len(b)+1)
	copy(odd[1:], b)
	return odd[1:len(odd):len(odd)]
}

// FatalHelper is the part of [testing.TB] that [Prepare] uses.
type FatalHelper interface {
	Helper()
	Fatal(args ...any)
}

// Prepare resets a query, computes its scores of all k centroids and seals it.
func Prepare(t FatalHelper, q kernels.Query, k int, vectors, weights []float32) kernels.Query {
	t.Helper()
	if err := q.Reset(vectors, weights); err != nil {
		t.Fatal(err)
	}
	q.CentroidScores(0, k)
	q.Seal()
	return q
}
