//go:build linux && (amd64 || arm64)

package driver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
)

// record is what the last call was given, as C saw it: the eleven words of the call, and the
// first six words behind its last pointer.
type record struct {
	name   [64]byte
	args   [11]uint64
	behind [6]uint64
}

// fakeLibrary builds a library that has every function of the driver that load_linux.go names.
// Each records its arguments and returns its place in the list.
func fakeLibrary(t *testing.T) (names []string, lib uintptr) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	code, err := os.ReadFile("load_linux.go")
	require.NoError(t, err)
	var c strings.Builder
	c.WriteString(`#include <stdint.h>
#include <string.h>
struct { char name[64]; uint64_t args[11], behind[6]; } last;
void read_last(void *to) { memcpy(to, &last, sizeof last); }
#define FUNCTION(n, at, pointer) int n(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, \
	uint64_t g, uint64_t h, uint64_t i, uint64_t j, uint64_t k) { \
	uint64_t args[11] = {a, b, c, d, e, f, g, h, i, j, k}; \
	memset(&last, 0, sizeof last); strcpy(last.name, #n); memcpy(last.args, args, sizeof args); \
	if (pointer >= 0) memcpy(last.behind, (void *)args[pointer], #n[2] == 'M' ? 8 : 48); \
	return at; }
`)
	pointers := map[string]int{"cuLaunchKernel": 10, "cuLaunchKernelEx": 0, "cuModuleGetFunction": 2}
	for i, m := range regexp.MustCompile(`lookUp\("(cu\w+)"\)`).FindAllSubmatch(code, -1) {
		name := string(m[1])
		pointer, ok := pointers[name]
		if !ok {
			pointer = -1
		}
		names = append(names, name)
		fmt.Fprintf(&c, "FUNCTION(%s, %d, %d)\n", name, i, pointer)
	}
	dir := t.TempDir()
	source, library := filepath.Join(dir, "cuda.c"), filepath.Join(dir, "cuda.so")
	require.NoError(t, os.WriteFile(source, []byte(c.String()), 0o600))
	out, err := exec.Command(cc, "-shared", "-fPIC", "-w", "-o", library, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	lib, err = purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	require.NoError(t, err)
	return names, lib
}

// Every function of the table calls the driver's function of its name with its arguments in order.
func TestCallsReachTheDriver(t *testing.T) {
	names, lib := fakeLibrary(t)
	s := symbolTable{lib: lib}
	api := s.loadTable()
	require.Empty(t, s.missing)
	readLast, err := purego.Dlsym(lib, "read_last")
	require.NoError(t, err)

	type words struct{ a, b, c uint64 }
	w := new(words) // on the heap, so that it stays where it is
	address := func(p unsafe.Pointer) uint64 { return uint64(uintptr(p)) }
	a, b := address(unsafe.Pointer(&w.a)), address(unsafe.Pointer(&w.b))
	bytes := make([]byte, 100)
	text := address(unsafe.Pointer(&bytes[0]))
	host := unsafe.Pointer(&w.c)
	args := unsafe.Pointer(&bytes[8])
	launch := &Launch{Func: 11, Grid: Dim3{1, 2, 3}, Block: Dim3{4, 5, 6}, Shared: 7, Stream: 8, Args: args, ArgBytes: 40}
	early := *launch
	early.Early = true

	called := map[string]bool{}
	check := func(name string, code Result, want ...uint64) record {
		t.Helper()
		last := new(record)
		purego.SyscallN(readLast, uintptr(unsafe.Pointer(last)))
		require.Equal(t, name, strings.TrimRight(string(last.name[:]), "\x00"))
		require.Equal(t, name, names[code])
		require.Equal(t, want, last.args[:len(want)], name)
		called[name] = true
		return *last
	}
	i32, u64 := (*int32)(unsafe.Pointer(&w.a)), &w.a
	check("cuInit", api.Init(), 0)
	check("cuDriverGetVersion", api.DriverVersion(i32), a)
	check("cuDeviceGetCount", api.DeviceCount(i32), a)
	check("cuDeviceGet", api.DeviceGet((*DeviceHandle)(i32), 3), a, 3)
	check("cuDeviceGetName", api.DeviceName(bytes, 3), text, 100, 3)
	check("cuDeviceTotalMem_v2", api.DeviceTotalMem(u64, 3), a, 3)
	check("cuDeviceGetAttribute", api.DeviceAttribute(i32, AttrMultiprocessors, 3), a, 16, 3)
	check("cuDeviceGetPCIBusId", api.DevicePCIBusID(bytes, 3), text, 100, 3)
	check("cuDevicePrimaryCtxRetain", api.PrimaryCtxRetain((*ContextHandle)(unsafe.Pointer(u64)), 3), a, 3)
	check("cuDevicePrimaryCtxRelease_v2", api.PrimaryCtxRelease(3), 3)
	check("cuCtxSetCurrent", api.CtxSetCurrent(4), 4)
	check("cuCtxGetCurrent", api.CtxGetCurrent((*ContextHandle)(unsafe.Pointer(u64))), a)
	check("cuMemGetInfo_v2", api.MemInfo(&w.a, &w.b), a, b)

	check("cuModuleLoadDataEx", api.ModuleLoad((*ModuleHandle)(unsafe.Pointer(u64)), bytes, bytes[10:]), a, text, 2)
	check("cuModuleUnload", api.ModuleUnload(5), 5)
	last := check("cuModuleGetFunction", api.ModuleFunc((*FunctionHandle)(unsafe.Pointer(u64)), 5, "kernels"), a, 5)
	require.Equal(t, "kernels\x00", string((*[8]byte)(unsafe.Pointer(&last.behind))[:]))
	check("cuFuncSetAttribute", api.FuncSet(11, FuncMaxDynamicShared, 1000), 11, 8, 1000)
	check("cuOccupancyMaxActiveBlocksPerMultiprocessor", api.FuncOccupancy(i32, 11, 256, 1000), a, 11, 256, 1000)
	last = check("cuLaunchKernel", api.LaunchKernel(launch), 11, 1, 2, 3, 4, 5, 6, 7, 8, 0)
	require.Equal(t, []uint64{launchBuffer, address(args), launchSize}, last.behind[:3])
	require.EqualValues(t, launchEnd, last.behind[4])
	last = check("cuLaunchKernelEx", api.LaunchKernel(&early), last.args[:0]...)
	require.EqualValues(t, []uint64{11, 0}, last.args[1:3])
	require.Equal(t, [3]uint64{1 | 2<<32, 3 | 4<<32, 5 | 6<<32}, [3]uint64(last.behind[:3]))
	require.Equal(t, []uint64{7, 8}, last.behind[3:5])

	check("cuMemAlloc_v2", api.MemAlloc((*Ptr)(u64), 99), a, 99)
	check("cuMemFree_v2", api.MemFree(1<<40), 1<<40)
	check("cuMemHostAlloc", api.HostAlloc((*unsafe.Pointer)(unsafe.Pointer(u64)), 99), a, 99, 0)
	check("cuMemFreeHost", api.HostFree(host), address(host))
	check("cuMemcpyHtoDAsync_v2", api.CopyToDevice(1<<40, host, 8, 6), 1<<40, address(host), 8, 6)
	check("cuMemcpyDtoHAsync_v2", api.CopyToHost(host, 1<<40, 8, 6), address(host), 1<<40, 8, 6)
	check("cuMemcpyDtoDAsync_v2", api.CopyOnDevice(1<<41, 1<<40, 8, 6), 1<<41, 1<<40, 8, 6)
	check("cuMemsetD8Async", api.Set8(1<<40, 9, 8, 6), 1<<40, 9, 8, 6)

	check("cuStreamCreate", api.StreamCreate((*StreamHandle)(unsafe.Pointer(u64))), a, streamNonBlocking)
	check("cuStreamDestroy_v2", api.StreamDestroy(6), 6)
	check("cuStreamSynchronize", api.StreamSync(6), 6)
	check("cuStreamWaitEvent", api.StreamWait(6, 7), 6, 7, 0)
	check("cuEventCreate", api.EventCreate((*EventHandle)(unsafe.Pointer(u64)), EventDisableTiming), a, uint64(EventDisableTiming))
	check("cuEventCreate", api.EventCreate((*EventHandle)(unsafe.Pointer(u64)), 0), a, 0)
	check("cuEventDestroy_v2", api.EventDestroy(7), 7)
	check("cuEventRecord", api.EventRecord(7, 6), 7, 6)
	check("cuEventSynchronize", api.EventSync(7), 7)
	check("cuEventElapsedTime", api.EventElapsed((*float32)(unsafe.Pointer(u64)), 7, 8), a, 7, 8)

	check("cuStreamBeginCapture_v2", api.CaptureBegin(6), 6, captureThreadLocal)
	check("cuStreamEndCapture", api.CaptureEnd((*GraphHandle)(unsafe.Pointer(u64)), 6), 6, a)
	check("cuStreamIsCapturing", api.IsCapturing(i32, 6), 6, a)
	check("cuThreadExchangeStreamCaptureMode", api.CaptureMode(i32), a)
	check("cuGraphInstantiateWithFlags", api.GraphInstantiate((*GraphExecHandle)(unsafe.Pointer(u64)), 9), a, 9, 0)
	check("cuGraphDestroy", api.GraphDestroy(9), 9)
	check("cuGraphExecDestroy", api.GraphExecDestroy(9), 9)
	check("cuGraphLaunch", api.GraphLaunch(9, 6), 9, 6)
	require.Len(t, called, len(names), "functions that nothing tests")

	// What each call on a device needs allocates nothing, the list of arguments is all that others do.
	if effort.RaceDetector { // which drops what sync.Pool keeps
		return
	}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		api.LaunchKernel(launch)
		api.CtxGetCurrent((*ContextHandle)(unsafe.Pointer(u64)))
		api.IsCapturing(i32, 6)
	}))
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { api.StreamWait(6, 7) }), 1.)
}
