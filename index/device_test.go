package index

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
)

var errLost = errors.New("device lost")

// losing is a device that is lost after some calls of Nearest; it counts the
// tokens that it is asked for, and those that are asked for afterwards.
type losing struct {
	kernels.Device
	after         int64
	calls         atomic.Int64
	tokens, later atomic.Int64
}

func (l *losing) Info() kernels.DeviceInfo                    { return kernels.DeviceInfo{Name: "test:0"} }
func (l *losing) Builder(cpu kernels.Backend) kernels.Builder { return losingBuilder{cpu, l} }

type losingBuilder struct {
	kernels.Backend
	l *losing
}

func (b losingBuilder) Nearest(ctx context.Context, codes []uint32, scores []float32, centroids, x []float32, dim int) error {
	b.l.tokens.Add(int64(len(codes)))
	if n := b.l.calls.Add(1); n > b.l.after {
		b.l.later.Add(int64(len(codes)))
		return errLost
	}
	return b.Backend.Nearest(ctx, codes, scores, centroids, x, dim)
}

func (b losingBuilder) Prepare(context.Context, []float32, int) (kernels.Backend, func(), error) {
	return b, func() {}, nil
}

// A device that is lost ends the build at once, in training and in encoding,
// and leaves no index.
func TestBuildEndsWithTheDevice(t *testing.T) {
	const dim, threads = 4, 2
	docs := corpus(600, 60, dim, 1)
	o := BuildOptions{Centroids: 16, Threads: threads}
	whole := &losing{after: 1 << 40}
	o.Device = whole
	build(t, newPath(t), dim, docs, &o)
	calls := whole.calls.Load()
	for _, after := range []int64{0, 3, calls / 2, calls - 1} {
		l := &losing{after: after}
		o.Device = l
		path := newPath(t)
		_, err := Build(context.Background(), path, fromDocs(t, dim, docs), &o)
		require.ErrorIs(t, err, errLost, "after %d of %d calls", after, calls)
		require.LessOrEqual(t, l.later.Load(), int64(threads*2048), "blocks that were begun, and no more")
		if after < calls/2 {
			require.Less(t, l.tokens.Load(), whole.tokens.Load()/2, "after %d of %d calls", after, calls)
		}
		_, err = os.Stat(path)
		require.ErrorIs(t, err, os.ErrNotExist)
	}
}
