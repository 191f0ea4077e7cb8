package command

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/internal/testing/nativetest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// Scripts that set PLAID_TEST_DEVICES have devices without hardware: oracle:0
// scores with the oracle, oracle:1 is lost at its second request, oracle:2 makes vectors of
// ids alone, and its process interrupts or kills itself at the id of PLAID_TEST_INTERRUPT or
// PLAID_TEST_KILL.
func init() {
	if os.Getenv("PLAID_TEST_DEVICES") != "" {
		kernels.RegisterDevices(oracleDevices{})
	}
}

type oracleDevices struct{}

func (oracleDevices) Kind() string                           { return "oracle" }
func (oracleDevices) Devices() ([]kernels.DeviceInfo, error) { return nil, nil }
func (oracleDevices) Open(_ context.Context, ordinal int) (kernels.Device, error) {
	d := &nativetest.Device{Weights: 1 << 19, Batches: 1 << 19, Refuses: func(o transformer.Options) error {
		if o.Memory > 0 && o.Memory < 1<<20 {
			return fmt.Errorf("%w: a model needs a MiB; there are %d", kernels.ErrDeviceMemory, o.Memory)
		}
		return nil
	}}
	switch ordinal {
	case 0:
	case 1:
		requests := make(chan struct{}, 1)
		d.FailWith = func() error {
			select {
			case requests <- struct{}{}:
				return nil
			default:
				return errors.New("device lost")
			}
		}
	case 2:
		return quickDevice{scoringDevice{d}}, nil
	default:
		return nil, fmt.Errorf("no device %d", ordinal)
	}
	return scoringDevice{d}, nil
}

// scoringDevice scores plain vectors as well.
type scoringDevice struct{ *nativetest.Device }

func (scoringDevice) MaxSim() (maxsim.Backend, error) { return maxsim.Select("") }

type quickDevice struct{ scoringDevice }

func (d quickDevice) Transformer(_ context.Context, c transformer.Config, w *transformer.Weights, _ transformer.Options) (transformer.Model, error) {
	m := &quickModel{info: d.Info()}
	m.interrupt, _ = strconv.ParseInt(os.Getenv("PLAID_TEST_INTERRUPT"), 10, 64)
	m.kill, _ = strconv.ParseInt(os.Getenv("PLAID_TEST_KILL"), 10, 64)
	dim, words := w.Heads[len(w.Heads)-1].Out, len(w.Words)/c.Hidden
	m.vectors = kerneltest.UnitVectors(rand.New(rand.NewPCG(1, 2)), words, dim)
	m.dim = dim
	return m, nil
}

// quickModel has a vector for each word.
type quickModel struct {
	info            kernels.DeviceInfo
	dim             int
	vectors         []float32
	ids             atomic.Int64
	interrupt, kill int64 // how many of them; 0: never
}

func (m *quickModel) About() transformer.About {
	return transformer.About{Device: m.info, Precision: transformer.F16, Dim: m.dim, Tokens: 500}
}

func (m *quickModel) Encode(ctx context.Context, dst []float32, b transformer.Batch) error {
	ids := m.ids.Add(int64(len(b.IDs)))
	if (m.kill == 0 || ids < m.kill) && (m.interrupt == 0 || ids < m.interrupt) {
		for i, id := range b.IDs {
			copy(dst[i*m.dim:], m.vectors[int(id)*m.dim:][:m.dim])
		}
		return nil
	}
	self, err := os.FindProcess(os.Getpid())
	if err == nil && m.kill > 0 {
		err = self.Kill()
	} else if err == nil && ids-int64(len(b.IDs)) < m.interrupt { // once: two of them are a kill
		err = self.Signal(os.Interrupt)
	}
	<-ctx.Done()
	return errors.Join(err, ctx.Err())
}

func (m *quickModel) EncodeHalves(ctx context.Context, dst []byte, b transformer.Batch, kept []int32) error {
	return kerneltest.EncodeHalves(ctx, m.Encode, m.dim, dst, b, kept)
}

func (*quickModel) Close() error { return nil }
