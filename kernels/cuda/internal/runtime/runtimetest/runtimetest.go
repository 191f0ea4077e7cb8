// Package runtimetest opens devices for the tests of families of kernels: fake devices, and GPUs.
package runtimetest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// Fake returns a driver with one device of compute capability 8.0, which has the given kernels.
func Fake(kernels map[string]drivertest.Kernel) *drivertest.Fake {
	info := driver.Info{
		Name:            "Fake",
		Major:           8,
		Minor:           0,
		Memory:          1 << 30,
		PCI:             "0000:00:00.0",
		Multiprocessors: 2,
		Shared:          100 << 10,
	}
	return &drivertest.Fake{Devices: []driver.Info{info}, Kernels: kernels}
}

// Modules returns placeholders of device code for compute capability 8.0. A fake driver accepts
// them as its kernels.
func Modules() fstest.MapFS { return modulesFor("80") }

func modulesFor(arch string) fstest.MapFS {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte("code"))
	_ = z.Close()
	files := fstest.MapFS{}
	for _, name := range []string{"plaid", "dense", "encoder"} {
		files[name+"_"+arch+".cubin.gz"] = &fstest.MapFile{Data: b.Bytes()}
	}
	return files
}

// Open opens the first device of a driver.
func Open(api *driver.API, modules fs.FS) (*runtime.Device, error) {
	infos, err := driver.Devices(api)
	if err != nil {
		return nil, err
	}
	return runtime.Open(context.Background(), api, infos[0], modules)
}

// OpenFake opens the device of a fake driver. At the end of the test it is closed, and must have
// freed everything.
func OpenFake(t testing.TB, f *drivertest.Fake) *runtime.Device {
	return openFake(t, f, Modules())
}

// OpenFakeHopper is OpenFake with a device of compute capability 9.0.
func OpenFakeHopper(t testing.TB, f *drivertest.Fake) *runtime.Device {
	return openFake(t, f, Hopper(f))
}

// Hopper gives the device of a fake driver the compute capability 9.0, and returns placeholders of
// device code for it.
func Hopper(f *drivertest.Fake) fstest.MapFS {
	d := &f.Devices[0]
	d.Major, d.Minor, d.Shared = 9, 0, 227<<10
	return modulesFor("90a")
}

func openFake(t testing.TB, f *drivertest.Fake, modules fs.FS) *runtime.Device {
	d, err := Open(f.API(), modules)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, d.Close())
		RequireNothingOut(t, f, d)
	})
	return d
}

// RequireNothingOut fails the test unless everything was freed and there were no faults. The
// device d is closed. nil means that only the driver is checked.
func RequireNothingOut(t testing.TB, f *drivertest.Fake, d *runtime.Device) {
	n, bytes := f.Outstanding()
	require.Zero(t, n, "handles and allocations")
	require.Zero(t, bytes)
	require.Empty(t, f.Faults())
	if d != nil {
		require.True(t, d.Live().IsZero(), "%+v", d.Live())
	}
}

// FailAt makes the next call of the driver's function op fail with out of memory. The function that
// it returns ends this and returns the names of the calls made after the failed one.
func FailAt(f *drivertest.Fake, op string) (after func() []string) {
	var mu sync.Mutex
	failed := false
	var calls []string
	f.Fail = func(call string) driver.Result {
		mu.Lock()
		defer mu.Unlock()
		if failed {
			calls = append(calls, call)
		} else if call == op {
			failed = true
			return driver.OutOfMemory
		}
		return driver.Success
	}
	return func() []string {
		f.Fail = nil
		mu.Lock()
		defer mu.Unlock()
		return calls
	}
}

// RequireGPU is an environment variable: if it is set, tests of GPUs fail instead of being skipped
// on a machine without one.
const RequireGPU = "PLAID_REQUIRE_GPU"

// NeedGPU checks the error of opening a GPU. If the machine has no GPU, the test is skipped, or fails
// if [RequireGPU] is set.
func NeedGPU(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, driver.ErrNoDriver) && os.Getenv(RequireGPU) == "" {
		t.Skipf("needs a GPU: %v", err)
	}
	require.NoError(t, err)
}

// OpenGPU opens the first GPU, and skips or fails as [NeedGPU] does. It reads the device code from
// ../../module, so that the test has to run in the folder of a family.
func OpenGPU(t testing.TB) *runtime.Device {
	api, err := driver.Load()
	if err == nil {
		_, err = driver.Devices(api)
	}
	NeedGPU(t, err)
	d, err := Open(api, os.DirFS("../../module"))
	require.NoError(t, err, "in the folder of the package, with the device code in ../../module")
	t.Cleanup(func() {
		require.NoError(t, d.Close())
		require.True(t, d.Live().IsZero(), "%+v", d.Live())
	})
	return d
}

// Env returns the number in an environment variable, or def if it has no number.
func Env(name string, def int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return def
}
