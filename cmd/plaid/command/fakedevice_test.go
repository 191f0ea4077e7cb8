package command

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/plaid-ir/plaid/encode/native"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/kerneltest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// Scripts that set PLAID_TEST_DEVICES have devices without hardware: oracle:0
// scores with the oracle, oracle:1 is lost at its second request.
func init() {
	if os.Getenv("PLAID_TEST_DEVICES") != "" {
		kernels.RegisterDevices(oracleDevices{})
	}
}

type oracleDevices struct{}

func (oracleDevices) Kind() string                           { return "oracle" }
func (oracleDevices) Devices() ([]kernels.DeviceInfo, error) { return nil, nil }
func (oracleDevices) Open(_ context.Context, ordinal int) (kernels.Device, error) {
	d := &kerneltest.Device{}
	switch ordinal {
	case 0:
	case 1:
		requests := make(chan struct{}, 1)
		d.Fail = func() error {
			select {
			case requests <- struct{}{}:
				return nil
			default:
				return errors.New("device lost")
			}
		}
	default:
		return nil, fmt.Errorf("no device %d", ordinal)
	}
	return scoringDevice{d}, nil
}

// scoringDevice scores plain vectors as well.
type scoringDevice struct{ *kerneltest.Device }

func (scoringDevice) MaxSim() (maxsim.Backend, error) { return maxsim.Select("") }

// Transformer runs models as the processor does, and says that it is in half precision.
func (d scoringDevice) Transformer(_ context.Context, c transformer.Config, w *transformer.Weights, o transformer.Options) (transformer.Model, error) {
	if o.Memory > 0 && o.Memory < 1<<20 {
		return nil, fmt.Errorf("%w: a model needs a MiB; there are %d", kernels.ErrDeviceMemory, o.Memory)
	}
	m, err := native.New(c, w, native.Options{})
	return oracleModel{m, d.Info()}, err
}

type oracleModel struct {
	*native.Model
	info kernels.DeviceInfo
}

func (m oracleModel) About() transformer.About {
	return transformer.About{Device: m.info, Precision: transformer.F16, Dim: m.Dim(), Tokens: 500, Weights: 1 << 19, Batches: 1 << 19}
}
