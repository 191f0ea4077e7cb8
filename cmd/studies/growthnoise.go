package main

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/vectors"
)

// noisy is a collection of any size that is made from a real one. Each document is a real document,
// drawn at random, with Gaussian noise added to its vectors. The length of the noise is a fixed
// share of the vector's length, and the sum is scaled to unit length. Documents are made when they
// are read, and are the same each time.
type noisy struct {
	source vectors.Source
	noise  float64
	seed   uint64
	// origins are the real documents that the documents are made from.
	origins []int32
	// deviates are normal deviates; the noise of a token is a run of them.
	deviates []float32
}

// deviateCount is the number of deviates at which a run may begin. The noise of two tokens is the
// same only if their runs begin at the same deviate.
const deviateCount = 1 << 20

// newNoisy draws documents until they have at least the given number of tokens.
func newNoisy(real vectors.Source, tokens int64, noise float64, seed uint64) (*noisy, error) {
	total := int64(0)
	for i := range real.Len() {
		total += int64(real.Rows(i))
	}
	if total == 0 {
		return nil, fmt.Errorf("%w: a collection without tokens cannot grow", vectors.ErrShape)
	}
	g := &noisy{
		source:   real,
		noise:    noise,
		seed:     seed,
		deviates: make([]float32, deviateCount+real.Dim()),
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	for n := int64(0); n < tokens; {
		i := rng.IntN(real.Len())
		g.origins = append(g.origins, int32(i))
		n += int64(real.Rows(i))
	}
	for i := range g.deviates {
		g.deviates[i] = float32(rng.NormFloat64())
	}
	return g, nil
}

func (g *noisy) Dim() int        { return g.source.Dim() }
func (g *noisy) Len() int        { return len(g.origins) }
func (g *noisy) Rows(i int) int  { return g.source.Rows(int(g.origins[i])) }
func (g *noisy) ID(i int) string { return strconv.Itoa(i) }
func (g *noisy) Close() error    { return g.source.Close() }

// Docs adds the noise on all processors, since that takes longer than encoding the result.
func (g *noisy) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	if from < 0 || from > to || to > len(g.origins) {
		return func(yield func(vectors.Document, error) bool) {
			yield(vectors.Document{}, fmt.Errorf("%w: documents %d to %d asked of %d", vectors.ErrShape, from, to,
				len(g.origins)))
		}
	}
	size := func(d noiseless) int { return 4 * len(d.tokens) }
	return parallel.Map(ctx, g.readNoiseless(ctx, from, to), 0, size, func(d noiseless) (vectors.Document, error) {
		g.addNoise(d.tokens, uint64(d.number))
		return vectors.Document{ID: g.ID(d.number), Tokens: d.tokens}, nil
	})
}

// noiseless is the real document that a document is made from.
type noiseless struct {
	// number is the number of the document that is made.
	number int
	tokens []float32
}

// readNoiseless reads the real documents that the documents from to to-1 are made from.
func (g *noisy) readNoiseless(ctx context.Context, from, to int) iter.Seq2[noiseless, error] {
	return func(yield func(noiseless, error) bool) {
		for i := from; i < to; i++ {
			origin := int(g.origins[i])
			for d, err := range g.source.Docs(ctx, origin, origin+1) {
				if err != nil {
					yield(noiseless{}, err)
					return
				}
				if !yield(noiseless{i, slices.Clone(d.Tokens)}, nil) {
					return
				}
			}
		}
	}
}

// addNoise adds the noise of document i to its tokens.
func (g *noisy) addNoise(tokens []float32, i uint64) {
	rng := rand.New(rand.NewPCG(g.seed, i+1))
	dim := g.Dim()
	for ; len(tokens) > 0; tokens = tokens[dim:] {
		v := tokens[:dim]
		scale := norm(v) * g.noise / math.Sqrt(float64(dim)) // dim normal deviates have about the length √dim
		for j, x := range g.deviates[rng.IntN(deviateCount):][:dim] {
			v[j] += float32(scale) * x
		}
		if length := norm(v); length > 0 {
			for j := range v {
				v[j] /= float32(length)
			}
		}
	}
}

// norm returns the length of a vector.
func norm(v []float32) float64 {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return math.Sqrt(sum)
}
