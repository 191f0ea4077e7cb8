package codec

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
)

var errLost = errors.New("device lost")

// failing is a backend that is lost at one of its calls.
type failing struct {
	kernels.Backend
	calls *atomic.Int64
	at    int64
}

func (f failing) Nearest(ctx context.Context, codes []uint32, scores []float32, centroids, x []float32, dim int) error {
	if f.calls.Add(1) >= f.at {
		return errLost
	}
	return f.Backend.Nearest(ctx, codes, scores, centroids, x, dim)
}

// refusing is a backend that takes no centroids.
type refusing struct{ kernels.Backend }

func (refusing) Prepare(context.Context, []float32, int) (kernels.Backend, func(), error) {
	return nil, nil, errLost
}

// Wherever in training a backend fails, training ends with its error at once,
// and so does encoding.
func TestFailingBackendEndsTraining(t *testing.T) {
	const dim = 4
	ctx := context.Background()
	x := clustered(3*blockRows, dim, 9, 0.5, 1)
	all := iter.Seq2[[]float32, error](func(yield func([]float32, error) bool) {
		for part := range slices.Chunk(x, blockRows*dim) {
			if !yield(part, nil) {
				return
			}
		}
	})
	for _, threads := range []int{1, 4} {
		count := new(atomic.Int64)
		o := TrainOptions{K: 8, Iterations: 2, All: all, Threads: threads, Backend: failing{backend(t), count, 1 << 40}}
		c, _, err := Train(ctx, x, dim, o)
		require.NoError(t, err)
		total := count.Load()
		require.EqualValues(t, 8, total, "two rounds of a block, three blocks of the collection, three to tune")
		for at := int64(1); at <= total; at++ {
			count.Store(0)
			o.Backend = failing{backend(t), count, at}
			_, _, err := Train(ctx, x, dim, o)
			require.ErrorIs(t, err, errLost, "call %d", at)
			require.Less(t, count.Load()-at, int64(threads), "call %d: only blocks that were begun go on", at)
		}

		count.Store(0)
		b := encode(t, c, x[:5*dim], 1)
		err = c.Encode(ctx, b, x, threads, failing{backend(t), count, 2})
		require.ErrorIs(t, err, errLost)
		require.Equal(t, 5, b.Tokens, "as before")
		require.Len(t, b.Factors, 10)
		require.NoError(t, c.Encode(ctx, b, x, threads, backend(t)), "the error is forgotten")
		require.Equal(t, 5+3*blockRows, b.Tokens)
		require.ErrorIs(t, c.Encode(ctx, b, x, threads, refusing{backend(t)}), errLost)
		o.Backend = refusing{backend(t)}
		_, _, err = Train(ctx, x, dim, o)
		require.ErrorIs(t, err, errLost)
	}
}
