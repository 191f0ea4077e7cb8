package maxsim_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels/maxsim"
	_ "github.com/plaid-ir/plaid/kernels/maxsim/cpu" // the backends
)

// Rerank documents whose token vectors are in memory.
func Example() {
	ctx := context.Background()
	backend, err := maxsim.Select("")
	if err != nil {
		panic(err)
	}
	// Three documents of 2, 1 and 2 tokens, one after another, and a query of 2.
	docs := maxsim.Packed(maxsim.Float32([]float32{
		1, 0, 0, 1,
		0.6, 0.8,
		0, -1, -1, 0,
	}, 2), []int{0, 2, 3, 5})
	query := maxsim.Single(maxsim.Float32([]float32{1, 0, 0.8, 0.6}, 2))

	// Documents that are scored again and again are handed over once.
	held, err := backend.Prepare(ctx, docs)
	if err != nil {
		panic(err)
	}
	defer held.Close()
	hits, err := maxsim.TopK(ctx, backend, query, held, 2, maxsim.Terms{})
	if err != nil {
		panic(err)
	}
	for _, h := range hits[0] {
		fmt.Printf("document %d: %.2f\n", h.Doc, h.Score)
	}
	// Output:
	// document 0: 1.80
	// document 1: 1.56
}

// A training step: each query is to prefer its own document to the others of the batch.
func ExampleBackend_gradients() {
	ctx := context.Background()
	backend, err := maxsim.Select("")
	if err != nil {
		panic(err)
	}
	s := newStep(8, 4, 12, 16)
	before, err := s.loss(ctx, backend)
	if err != nil {
		panic(err)
	}
	if err := s.backward(ctx, backend); err != nil {
		panic(err)
	}
	const rate = 1
	for i, g := range s.dq.F32 {
		s.q.Tokens.F32[i] -= rate * g
	}
	for i, g := range s.dd.F32 {
		s.d.Tokens.F32[i] -= rate * g
	}
	after, err := s.loss(ctx, backend)
	if err != nil {
		panic(err)
	}
	fmt.Println("the loss falls:", after < before)
	// Output: the loss falls: true
}

// step is a batch of queries and documents; document i belongs to query i.
type step struct {
	q, d   *maxsim.Batch
	terms  maxsim.Terms
	scores []float32 // [n, n]
	argmax []int32
	up     []float32 // the derivative of the loss by each score
	dq, dd *maxsim.Gradient
}

func newStep(n, queryTokens, docTokens, dim int) *step {
	rng := rand.New(rand.NewPCG(1, 2))
	normal := func(rows int) maxsim.Matrix {
		x := make([]float32, rows*dim)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return maxsim.Float32(x, dim)
	}
	s := &step{
		q: maxsim.Padded(normal(n*queryTokens), queryTokens), d: maxsim.Padded(normal(n*docTokens), docTokens),
		terms:  maxsim.Terms{Normalize: true},
		scores: make([]float32, n*n), up: make([]float32, n*n), argmax: make([]int32, n*n*queryTokens),
	}
	s.dq = &maxsim.Gradient{Matrix: normal(n * queryTokens)}
	s.dd = &maxsim.Gradient{Matrix: normal(n * docTokens)}
	return s
}

// loss is the mean cross entropy of the softmax of the scores of a query, of which its
// own document should have all.
func (s *step) loss(ctx context.Context, b maxsim.Backend) (loss float64, err error) {
	err = b.Score(ctx, &maxsim.Call{Q: s.q, D: s.d, Terms: s.terms, Scores: s.scores, Argmax: s.argmax})
	n := s.q.Len()
	for i := range n {
		row := s.scores[i*n : (i+1)*n]
		var sum float64
		for _, v := range row {
			sum += math.Exp(float64(v))
		}
		loss += (math.Log(sum) - float64(row[i])) / float64(n)
		for j, v := range row {
			p := math.Exp(float64(v)) / sum
			if j == i {
				p--
			}
			s.up[i*n+j] = float32(p / float64(n))
		}
	}
	return loss, err
}

func (s *step) backward(ctx context.Context, b maxsim.Backend) error {
	return b.Gradients(ctx, &maxsim.GradCall{Q: s.q, D: s.d, Terms: s.terms, Argmax: s.argmax, Upstream: s.up, DQ: s.dq, DD: s.dd})
}

// TestTrainingStep: the gradients of the example against differences of its loss.
func TestTrainingStep(t *testing.T) {
	ctx := context.Background()
	backend, err := maxsim.Select("")
	require.NoError(t, err)
	s := newStep(3, 2, 4, 5)
	_, err = s.loss(ctx, backend)
	require.NoError(t, err)
	require.NoError(t, s.backward(ctx, backend))
	for _, side := range []struct{ x, g []float32 }{{s.q.Tokens.F32, s.dq.F32}, {s.d.Tokens.F32, s.dd.F32}} {
		for i, v := range side.x {
			const h = 1.0 / 256
			side.x[i] = v + h
			above, err := s.loss(ctx, backend)
			require.NoError(t, err)
			side.x[i] = v - h
			below, err := s.loss(ctx, backend)
			require.NoError(t, err)
			side.x[i] = v
			require.InDelta(t, (above-below)/(2*h), side.g[i], 2e-3, "value %d", i)
		}
	}
}
