package tensor_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels/cuda/tensor"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// BenchmarkHost times what the host needs for a call of a shape that was there before. Without
// a GPU a libcuda.so.1 that does nothing will do.
func BenchmarkHost(b *testing.B) {
	d, err := tensor.Open(0)
	if errors.Is(err, tensor.ErrNoDriver) {
		b.Skip(err)
	}
	require.NoError(b, err)
	batch := func(items, rows int) tensor.Batch {
		return tensor.Batch{Data: 1 << 40, Type: maxsim.F16, Dim: 128, Items: items, Rows: items * rows, Stride: rows,
			Longest: rows}
	}
	c := &tensor.ScoreCall{Q: batch(1, 32), D: batch(100, 300), Scores: 1 << 40}
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Score(c); err != nil {
			b.Fatal(err)
		}
	}
}
