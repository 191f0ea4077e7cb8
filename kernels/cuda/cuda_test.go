package cuda

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
)

func fakeKind(f *drivertest.Fake) kind {
	return kind{load: func() (*driver.API, error) { return f.API(), nil }, modules: runtimetest.Modules()}
}

func TestErrorsOfDevices(t *testing.T) {
	failing := func(name string, r driver.Result) func(string) driver.Result {
		return func(op string) driver.Result {
			if op == name {
				return r
			}
			return driver.Success
		}
	}
	for name, c := range map[string]struct {
		want    error
		ordinal int
		change  func(f *drivertest.Fake)
	}{
		"no device":            {ErrNoDriver, 0, func(f *drivertest.Fake) { f.Devices = nil }},
		"old driver":           {ErrDriverTooOld, 0, func(f *drivertest.Fake) { f.Version = 11040 }},
		"old device":           {ErrUnsupported, 0, func(f *drivertest.Fake) { f.Devices[0].Major, f.Devices[0].Minor = 7, 5 }},
		"number":               {ErrNoDevice, 4, func(*drivertest.Fake) {}},
		"no device to init":    {ErrNoDriver, 0, func(f *drivertest.Fake) { f.Fail = failing("cuInit", driver.NoDevice) }},
		"code is too new":      {ErrDriverTooOld, 0, func(f *drivertest.Fake) { f.Fail = failing("cuModuleLoadDataEx", driver.UnsupportedPTX) }},
		"no memory to load it": {ErrOutOfMemory, 0, func(f *drivertest.Fake) { f.Fail = failing("cuModuleLoadDataEx", driver.OutOfMemory) }},
	} {
		t.Run(name, func(t *testing.T) {
			f := runtimetest.Fake(nil)
			c.change(f)
			d, err := fakeKind(f).Open(context.Background(), c.ordinal)
			require.ErrorIs(t, err, c.want)
			require.Nil(t, d)
			n, _ := f.Outstanding()
			require.Zero(t, n)
		})
	}
}

// The code of this build is for all devices that it is said to be for.
func TestEmbeddedDeviceCode(t *testing.T) {
	for _, capability := range []int{80, 86, 89, 90, 100, 120, 130} {
		info := runtime.Describe(&driver.Info{Major: capability / 10, Minor: capability % 10}, moduleFiles)
		require.Empty(t, info.Unusable, capability)
	}
	require.NotEmpty(t, runtime.Describe(&driver.Info{Major: 7, Minor: 5}, moduleFiles).Unusable)
}

// What a device is asked for by its contract reaches the families of kernels.
func TestDeviceAsksTheFamilies(t *testing.T) {
	f := runtimetest.Fake(map[string]drivertest.Kernel{})
	infos, err := fakeKind(f).Devices()
	require.NoError(t, err)
	require.Equal(t, "cuda:0", infos[0].Name)
	require.Empty(t, infos[0].Unusable)
	ctx := context.Background()
	d, err := fakeKind(f).Open(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, infos[0], d.Info())
	cs := kerneltest.New(kerneltest.Config{Dim: 32, CodeBytes: 2, Lengths: []int{3}})
	a, err := d.Attach(ctx, oneChunk{cs}, kernels.AttachOptions{})
	require.ErrorContains(t, err, "pack", "the driver has no kernels")
	require.Nil(t, a)
	cpu, err := kernels.Select("")
	require.NoError(t, err)
	b := d.Builder(cpu)
	require.Equal(t, cpu.Name()+"+cuda:0", b.Name())
	require.ErrorContains(t, b.Nearest(ctx, make([]uint32, 1), nil, cs.Query(4), cs.Query(1), 32), "to_half")
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
	runtimetest.RequireNothingOut(t, f, nil)
}

// oneChunk is a corpus of the chunk of a case.
type oneChunk struct{ cs *kerneltest.Case }

func (c oneChunk) Codec() *kernels.Codec              { return c.cs.Codec }
func (c oneChunk) Lineage() uint64                    { return 1 }
func (c oneChunk) Chunks() int                        { return 1 }
func (c oneChunk) ChunkDocs(int) (uint32, []uint32)   { return 0, c.cs.Chunk.Offsets }
func (c oneChunk) Load(int) (*kernels.Chunk, error)   { return c.cs.Chunk, nil }
func (c oneChunk) LiveSet() (set []uint64, count int) { return []uint64{1}, 1 }
func (c oneChunk) Guard(read func() error) error      { return read() }

func TestDeviceCodeIsNamed(t *testing.T) {
	code := kernels.DeviceCode()["cuda"]
	require.Contains(t, code, "plaid_80.cubin")
	require.Contains(t, code, "plaid_80.ptx")
}
