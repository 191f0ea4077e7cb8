package driver_test

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
)

// On a machine without a driver that is said; with one, its devices are listed.
func TestLoad(t *testing.T) {
	api, err := driver.Load()
	if err != nil && os.Getenv(runtimetest.RequireGPU) == "" {
		require.True(t, errors.Is(err, driver.ErrNoDriver) || errors.Is(err, driver.ErrDriverTooOld), "%v", err)
		return
	}
	require.NoError(t, err)
	infos, err := driver.Devices(api)
	runtimetest.NeedGPU(t, err)
	for i, d := range infos {
		require.Equal(t, i, d.Ordinal)
		require.NotEmpty(t, d.Name)
		require.Positive(t, d.Multiprocessors)
	}
}

func TestErrorsSayWhatTheyAre(t *testing.T) {
	for code, want := range map[driver.Result]error{
		driver.OutOfMemory: driver.ErrOutOfMemory, driver.NoDevice: driver.ErrNoDriver, driver.UnsupportedPTX: driver.ErrDriverTooOld,
		driver.NoBinaryForGPU: driver.ErrUnsupported, driver.IllegalAddress: driver.ErrDeviceLost, driver.LaunchFailed: driver.ErrDeviceLost,
	} {
		err := error(&driver.Error{Op: "cuThing", Code: code, Note: "17 bytes"})
		for _, sentinel := range []error{driver.ErrNoDriver, driver.ErrDriverTooOld, driver.ErrNoDevice, driver.ErrUnsupported, driver.ErrOutOfMemory, driver.ErrDeviceLost} {
			require.Equal(t, sentinel == want, errors.Is(err, sentinel), "%v, %v", err, sentinel)
		}
		require.Contains(t, err.Error(), "cuThing")
		require.Contains(t, err.Error(), "17 bytes")
		require.NotContains(t, err.Error(), "unnamed")
	}
}

// What a context gives out is counted, and calls from another thread are
// noticed by the fake driver.
func TestContextCounts(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f := &drivertest.Fake{Devices: []driver.Info{{Name: "Fake", Major: 9}}, Memory: 1000}
	api := f.API()
	infos, err := driver.Devices(api)
	require.NoError(t, err)
	require.Equal(t, "9.0", infos[0].Capability())
	c, err := driver.Open(api, 0)
	require.NoError(t, err)
	m, err := c.Alloc(600)
	require.NoError(t, err)
	_, err = c.Alloc(600)
	require.ErrorIs(t, err, driver.ErrOutOfMemory)
	h, err := c.HostAlloc(100)
	require.NoError(t, err)
	s, err := c.NewStream()
	require.NoError(t, err)
	require.Equal(t, driver.Resources{Allocations: 1, HostAllocations: 1, Bytes: 600, HostBytes: 100, Streams: 1}, c.Live())
	copy(h.Data, "a hundred bytes")
	require.NoError(t, c.ToDevice(m.At(500), h.Data, s))
	back := make([]byte, 9)
	require.NoError(t, c.ToHost(back, m.At(500), s))
	require.Equal(t, "a hundred", string(back))
	require.ErrorIs(t, c.ToDevice(m.At(501), h.Data, s), driver.ErrDeviceLost)
	require.Len(t, f.Faults(), 1)
	require.NoError(t, errors.Join(c.FreeStream(s), c.HostFree(h), c.Free(m), c.Free(driver.Mem{})))
	require.True(t, c.Live().IsZero())
	require.NoError(t, c.Close())
	n, bytes := f.Outstanding()
	require.Zero(t, n)
	require.Zero(t, bytes)
	_, err = c.Alloc(1)
	require.Error(t, err, "closed")
}
