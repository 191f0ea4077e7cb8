// Package runtimetest opens devices for the tests of families of kernels: of a
// driver without a device, and GPUs.
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

// Fake is a driver with one device, which has the kernels.
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

// Modules has device code for compute capability 8.0, which a fake driver takes
// for what it has.
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

// OpenFake opens the device of a fake driver, and sees that nothing is left at
// the end.
func OpenFake(t testing.TB, f *drivertest.Fake) *runtime.Device {
	return openFake(t, f, Modules())
}

// OpenFakeHopper is OpenFake with a device of compute capability 9.0.
func OpenFakeHopper(t testing.TB, f *drivertest.Fake) *runtime.Device {
	return openFake(t, f, Hopper(f))
}

// Hopper makes the device of a fake driver one of compute capability 9.0, for which
// it returns device code.
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

// RequireNothingOut demands that all that was given out was taken back. The
// device, nil if there is none, is closed.
func RequireNothingOut(t testing.TB, f *drivertest.Fake, d *runtime.Device) {
	n, bytes := f.Outstanding()
	require.Zero(t, n, "handles and allocations")
	require.Zero(t, bytes)
	require.Empty(t, f.Faults())
	if d != nil {
		require.True(t, d.Live().IsZero(), "%+v", d.Live())
	}
}

// FailAt makes the next call of a function of the driver fail for want of memory,
// and returns what names the calls after it, and ends the watching.
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

// RequireGPU is the environment variable that, set, makes it a failure where tests of
// GPUs find none.
const RequireGPU = "PLAID_REQUIRE_GPU"

// NeedGPU looks at the error of opening a GPU. Where there is none the test is skipped, or
// fails if [RequireGPU] is set.
func NeedGPU(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, driver.ErrNoDriver) && os.Getenv(RequireGPU) == "" {
		t.Skipf("needs a GPU: %v", err)
	}
	require.NoError(t, err)
}

// OpenGPU opens the first GPU, as [NeedGPU] demands. The device code is read from
// the folder of package cuda, so that the test has to run in that of a family.
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

// Env is a number from the environment.
func Env(name string, def int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return def
}
