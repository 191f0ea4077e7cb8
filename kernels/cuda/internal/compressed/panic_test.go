package compressed

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/nearest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
)

// brittle is a corpus that panics where the device's goroutine reads it.
type brittle struct {
	*corpus
	broken bool
}

func (b *brittle) Load(i int) (*kernels.Chunk, error) {
	if b.broken {
		var none []int
		_ = none[i+3]
	}
	return b.corpus.Load(i)
}

// requireFault demands the error of a panic, with a stack that names where.
func requireFault(t *testing.T, err error, value, where string) {
	t.Helper()
	var fault *kernels.PanicError
	require.ErrorAs(t, err, &fault)
	require.ErrorContains(t, err, "internal error")
	require.ErrorContains(t, err, value)
	require.Contains(t, string(fault.Stack), where)
}

// A panic on the device's goroutine is the error of the requests in hand and of
// all that come later, none of which hangs, and closing gives everything back.
func TestPanicEndsTheDeviceAlone(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	cs := kerneltest.New(kerneltest.Config{Dim: 32, CodeBytes: 2, Lengths: lengths(rng, 40, 30)})
	q := []kernels.DeviceQuery{{Vectors: cs.Query(4), K: 3}}
	for name, act := range map[string]struct {
		value, where string
		fault        func(f *drivertest.Fake, d *runtime.Device, a kernels.Attachment, c *brittle) error
	}{
		"in a kernel launch": {"broken kernel", "TestPanicEndsTheDeviceAlone", func(f *drivertest.Fake, d *runtime.Device, a kernels.Attachment, c *brittle) error {
			f.Kernels["pick"] = func(*drivertest.Fake, *driver.Launch) { panic("broken kernel") }
			_, err := a.Search(ctx, c, q)
			return err
		}},
		"reading the index": {"index out of range", "Load", func(_ *drivertest.Fake, d *runtime.Device, _ kernels.Attachment, c *brittle) error {
			c.broken = true
			_, err := Attach(ctx, d, c, kernels.AttachOptions{})
			return err
		}},
		"on a goroutine that copies": {"slice bounds out of range", "fillStage", func(_ *drivertest.Fake, d *runtime.Device, _ kernels.Attachment, c *brittle) error {
			short := *cs.Chunk
			short.Residuals = short.Residuals[:10:10]
			_, err := Attach(ctx, d, newCorpus(cs.Codec, &short, cs.Chunk), kernels.AttachOptions{})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := newFake()
			d := runtimetest.OpenFake(t, f)
			c := &brittle{corpus: newCorpus(cs.Codec, cs.Chunk)}
			a, err := Attach(ctx, d, c, kernels.AttachOptions{})
			require.NoError(t, err)
			_, err = a.Search(ctx, c, q)
			require.NoError(t, err)
			requireFault(t, act.fault(f, d, a, c), act.value, act.where)

			cpu, err := kernels.Select("")
			require.NoError(t, err)
			centroids, x := cs.Query(3), cs.Query(2)
			limited, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			var wg sync.WaitGroup
			for _, later := range []func() error{
				func() error { _, err := a.Search(limited, c, q); return err },
				func() error { _, err := Attach(limited, d, c, kernels.AttachOptions{}); return err },
				func() error {
					return nearest.NewBuilder(d, cpu).Nearest(limited, make([]uint32, 2), nil, centroids, x, 32)
				},
			} {
				for range 4 {
					wg.Go(func() {
						var fault *kernels.PanicError
						if err := later(); !errors.As(err, &fault) {
							t.Errorf("later request: %v", err)
						}
					})
				}
			}
			wg.Wait()
			require.NoError(t, a.Close())
			require.NoError(t, d.Close())
			_, err = a.Search(ctx, c, q)
			require.ErrorIs(t, err, kernels.ErrDeviceClosed)
			f.Kernels = (&fakeKernels{queries: map[driver.Ptr]*fakeQuery{}}).table()
			again := runtimetest.OpenFake(t, f)
			c.broken = false
			a, err = Attach(ctx, again, c, kernels.AttachOptions{})
			require.NoError(t, err)
			got, err := a.Search(ctx, c, q)
			require.NoError(t, err, "opened anew it works")
			requireBest(t, c.corpus, &q[0], got[0], nil, 2e-4)
		})
	}
}
