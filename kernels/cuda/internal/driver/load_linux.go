//go:build linux && (amd64 || arm64)

package driver

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Load returns the functions of the CUDA driver. The library is opened once
// and stays open.
//
// Errors: [ErrNoDriver], [ErrDriverTooOld].
func Load() (*API, error) { return loadOnce() }

var loadOnce = sync.OnceValues(load)

const (
	optErrorLogBuffer = 5
	optErrorLogSize   = 6

	launchEnd, launchBuffer, launchSize = 0, 1, 2

	streamNonBlocking  = 1
	eventDisableTiming = 2

	captureThreadLocal = 1

	launchProgrammaticSerialization = 6
)

func load() (*API, error) {
	lib, err := purego.Dlopen("libcuda.so.1", purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDriver, err)
	}
	s := symbols{lib: lib}
	api := s.table()
	if s.missing != "" {
		return nil, fmt.Errorf("%w: it lacks %s", ErrDriverTooOld, s.missing)
	}
	return api, nil
}

type symbols struct {
	lib     uintptr
	missing string
}

func (s *symbols) get(name string) uintptr {
	p, err := purego.Dlsym(s.lib, name)
	if err != nil && s.missing == "" {
		s.missing = name
	}
	return p
}

// call hands addresses of Go memory on as numbers. That is sound as long as
// they are made in the argument list of SyscallN itself, which keeps what they
// point to alive, and on the heap, for the time of the call.

func (s *symbols) table() *API {
	api := &API{}
	s.devices(api)
	s.modules(api)
	s.memory(api)
	s.order(api)
	s.graphs(api)
	return api
}

func (s *symbols) devices(api *API) {
	initialise := s.get("cuInit")
	api.Init = func() Result {
		r, _, _ := purego.SyscallN(initialise, 0)
		return Result(r)
	}
	version := s.get("cuDriverGetVersion")
	api.DriverVersion = func(v *int32) Result {
		r, _, _ := purego.SyscallN(version, uintptr(unsafe.Pointer(v)))
		return Result(r)
	}
	count := s.get("cuDeviceGetCount")
	api.DeviceCount = func(n *int32) Result {
		r, _, _ := purego.SyscallN(count, uintptr(unsafe.Pointer(n)))
		return Result(r)
	}
	get := s.get("cuDeviceGet")
	api.DeviceGet = func(dev *DeviceHandle, ordinal int32) Result {
		r, _, _ := purego.SyscallN(get, uintptr(unsafe.Pointer(dev)), uintptr(ordinal))
		return Result(r)
	}
	name := s.get("cuDeviceGetName")
	api.DeviceName = func(b []byte, dev DeviceHandle) Result {
		r, _, _ := purego.SyscallN(name, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), uintptr(dev))
		return Result(r)
	}
	total := s.get("cuDeviceTotalMem_v2")
	api.DeviceTotalMem = func(n *uint64, dev DeviceHandle) Result {
		r, _, _ := purego.SyscallN(total, uintptr(unsafe.Pointer(n)), uintptr(dev))
		return Result(r)
	}
	attribute := s.get("cuDeviceGetAttribute")
	api.DeviceAttribute = func(v *int32, a Attribute, dev DeviceHandle) Result {
		r, _, _ := purego.SyscallN(attribute, uintptr(unsafe.Pointer(v)), uintptr(a), uintptr(dev))
		return Result(r)
	}
	pci := s.get("cuDeviceGetPCIBusId")
	api.DevicePCIBusID = func(b []byte, dev DeviceHandle) Result {
		r, _, _ := purego.SyscallN(pci, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), uintptr(dev))
		return Result(r)
	}
	retain := s.get("cuDevicePrimaryCtxRetain")
	api.PrimaryCtxRetain = func(ctx *ContextHandle, dev DeviceHandle) Result {
		r, _, _ := purego.SyscallN(retain, uintptr(unsafe.Pointer(ctx)), uintptr(dev))
		return Result(r)
	}
	release := s.get("cuDevicePrimaryCtxRelease_v2")
	api.PrimaryCtxRelease = func(dev DeviceHandle) Result {
		r, _, _ := purego.SyscallN(release, uintptr(dev))
		return Result(r)
	}
	current := s.get("cuCtxSetCurrent")
	api.CtxSetCurrent = func(ctx ContextHandle) Result {
		r, _, _ := purego.SyscallN(current, uintptr(ctx))
		return Result(r)
	}
	info := s.get("cuMemGetInfo_v2")
	api.MemInfo = func(free, total *uint64) Result {
		r, _, _ := purego.SyscallN(info, uintptr(unsafe.Pointer(free)), uintptr(unsafe.Pointer(total)))
		return Result(r)
	}
}

func (s *symbols) modules(api *API) {
	load := s.get("cuModuleLoadDataEx")
	api.ModuleLoad = func(m *ModuleHandle, image, log []byte) Result {
		// The driver reads the image and writes the log through pointers within
		// the two option arrays, so these are kept in place for the call.
		var pin runtime.Pinner
		defer pin.Unpin()
		pin.Pin(unsafe.SliceData(log))
		keys := []uint32{optErrorLogBuffer, optErrorLogSize}
		values := []uintptr{uintptr(unsafe.Pointer(unsafe.SliceData(log))), uintptr(len(log))}
		r, _, _ := purego.SyscallN(load, uintptr(unsafe.Pointer(m)), uintptr(unsafe.Pointer(unsafe.SliceData(image))),
			uintptr(len(keys)), uintptr(unsafe.Pointer(unsafe.SliceData(keys))), uintptr(unsafe.Pointer(unsafe.SliceData(values))))
		runtime.KeepAlive(log)
		return Result(r)
	}
	unload := s.get("cuModuleUnload")
	api.ModuleUnload = func(m ModuleHandle) Result {
		r, _, _ := purego.SyscallN(unload, uintptr(m))
		return Result(r)
	}
	function := s.get("cuModuleGetFunction")
	api.ModuleFunc = func(f *FunctionHandle, m ModuleHandle, name string) Result {
		c := append([]byte(name), 0)
		r, _, _ := purego.SyscallN(function, uintptr(unsafe.Pointer(f)), uintptr(m), uintptr(unsafe.Pointer(unsafe.SliceData(c))))
		return Result(r)
	}
	set := s.get("cuFuncSetAttribute")
	api.FuncSet = func(f FunctionHandle, a FuncAttribute, v int32) Result {
		r, _, _ := purego.SyscallN(set, uintptr(f), uintptr(a), uintptr(v))
		return Result(r)
	}
	occupancy := s.get("cuOccupancyMaxActiveBlocksPerMultiprocessor")
	api.FuncOccupancy = func(blocks *int32, f FunctionHandle, threads int32, shared uintptr) Result {
		r, _, _ := purego.SyscallN(occupancy, uintptr(unsafe.Pointer(blocks)), uintptr(f), uintptr(threads), shared)
		return Result(r)
	}
	launch, launchEx := s.get("cuLaunchKernel"), s.get("cuLaunchKernelEx")
	api.LaunchKernel = func(l *Launch) Result {
		if l.Early {
			return launchEarly(launchEx, l)
		}
		e := extras.Get().(*extra)
		*e = extra{launchBuffer, l.Args, launchSize, unsafe.Pointer(&e.bytes), launchEnd, l.ArgBytes}
		r, _, _ := purego.SyscallN(launch, uintptr(l.Func),
			uintptr(l.Grid.X), uintptr(l.Grid.Y), uintptr(l.Grid.Z), uintptr(l.Block.X), uintptr(l.Block.Y), uintptr(l.Block.Z),
			uintptr(l.Shared), uintptr(l.Stream), 0, uintptr(unsafe.Pointer(e)))
		extras.Put(e)
		return Result(r)
	}
}

// extra is the last argument of cuLaunchKernel: a list of keys and pointers
// that names the buffer of parameters. The driver has copied them on return.
type extra struct {
	bufferKey uintptr
	buffer    unsafe.Pointer
	sizeKey   uintptr
	size      unsafe.Pointer
	end       uintptr
	bytes     uintptr // what size points to
}

var extras = sync.Pool{New: func() any { return new(extra) }}

// early is what cuLaunchKernelEx reads: a CUlaunchConfig, its one CUlaunchAttribute,
// and the parameters.
type early struct {
	grid, block Dim3
	shared, _   uint32
	stream      StreamHandle
	attributes  unsafe.Pointer
	count, _    uint32

	attribute struct {
		id    uint32
		_     uint32
		value [16]uint32 // a union of 64 bytes
	}
	extra extra
}

var earlies = sync.Pool{New: func() any { return new(early) }}

func launchEarly(launchEx uintptr, l *Launch) Result {
	e := earlies.Get().(*early)
	*e = early{grid: l.Grid, block: l.Block, shared: l.Shared, stream: l.Stream, attributes: unsafe.Pointer(&e.attribute), count: 1}
	e.attribute.id, e.attribute.value[0] = launchProgrammaticSerialization, 1
	e.extra = extra{launchBuffer, l.Args, launchSize, unsafe.Pointer(&e.extra.bytes), launchEnd, l.ArgBytes}
	r, _, _ := purego.SyscallN(launchEx, uintptr(unsafe.Pointer(e)), uintptr(l.Func), 0, uintptr(unsafe.Pointer(&e.extra)))
	earlies.Put(e)
	return Result(r)
}

func (s *symbols) memory(api *API) {
	alloc := s.get("cuMemAlloc_v2")
	api.MemAlloc = func(p *Ptr, n uintptr) Result {
		r, _, _ := purego.SyscallN(alloc, uintptr(unsafe.Pointer(p)), n)
		return Result(r)
	}
	free := s.get("cuMemFree_v2")
	api.MemFree = func(p Ptr) Result {
		r, _, _ := purego.SyscallN(free, uintptr(p))
		return Result(r)
	}
	hostAlloc := s.get("cuMemHostAlloc")
	api.HostAlloc = func(p *unsafe.Pointer, n uintptr) Result {
		r, _, _ := purego.SyscallN(hostAlloc, uintptr(unsafe.Pointer(p)), n, 0)
		return Result(r)
	}
	hostFree := s.get("cuMemFreeHost")
	api.HostFree = func(p unsafe.Pointer) Result {
		r, _, _ := purego.SyscallN(hostFree, uintptr(p))
		return Result(r)
	}
	toDevice := s.get("cuMemcpyHtoDAsync_v2")
	api.CopyToDevice = func(dst Ptr, src unsafe.Pointer, n uintptr, st StreamHandle) Result {
		r, _, _ := purego.SyscallN(toDevice, uintptr(dst), uintptr(src), n, uintptr(st))
		return Result(r)
	}
	toHost := s.get("cuMemcpyDtoHAsync_v2")
	api.CopyToHost = func(dst unsafe.Pointer, src Ptr, n uintptr, st StreamHandle) Result {
		r, _, _ := purego.SyscallN(toHost, uintptr(dst), uintptr(src), n, uintptr(st))
		return Result(r)
	}
	onDevice := s.get("cuMemcpyDtoDAsync_v2")
	api.CopyOnDevice = func(dst, src Ptr, n uintptr, st StreamHandle) Result {
		r, _, _ := purego.SyscallN(onDevice, uintptr(dst), uintptr(src), n, uintptr(st))
		return Result(r)
	}
	set := s.get("cuMemsetD8Async")
	api.Set8 = func(dst Ptr, v uint8, n uintptr, st StreamHandle) Result {
		r, _, _ := purego.SyscallN(set, uintptr(dst), uintptr(v), n, uintptr(st))
		return Result(r)
	}
}

func (s *symbols) order(api *API) {
	create := s.get("cuStreamCreate")
	api.StreamCreate = func(st *StreamHandle) Result {
		r, _, _ := purego.SyscallN(create, uintptr(unsafe.Pointer(st)), streamNonBlocking)
		return Result(r)
	}
	destroy := s.get("cuStreamDestroy_v2")
	api.StreamDestroy = func(st StreamHandle) Result {
		r, _, _ := purego.SyscallN(destroy, uintptr(st))
		return Result(r)
	}
	sync := s.get("cuStreamSynchronize")
	api.StreamSync = func(st StreamHandle) Result {
		r, _, _ := purego.SyscallN(sync, uintptr(st))
		return Result(r)
	}
	wait := s.get("cuStreamWaitEvent")
	api.StreamWait = func(st StreamHandle, e EventHandle) Result {
		r, _, _ := purego.SyscallN(wait, uintptr(st), uintptr(e), 0)
		return Result(r)
	}
	eventCreate := s.get("cuEventCreate")
	api.EventCreate = func(e *EventHandle, timing bool) Result {
		flags := uintptr(eventDisableTiming)
		if timing {
			flags = 0
		}
		r, _, _ := purego.SyscallN(eventCreate, uintptr(unsafe.Pointer(e)), flags)
		return Result(r)
	}
	eventDestroy := s.get("cuEventDestroy_v2")
	api.EventDestroy = func(e EventHandle) Result {
		r, _, _ := purego.SyscallN(eventDestroy, uintptr(e))
		return Result(r)
	}
	record := s.get("cuEventRecord")
	api.EventRecord = func(e EventHandle, st StreamHandle) Result {
		r, _, _ := purego.SyscallN(record, uintptr(e), uintptr(st))
		return Result(r)
	}
	eventSync := s.get("cuEventSynchronize")
	api.EventSync = func(e EventHandle) Result {
		r, _, _ := purego.SyscallN(eventSync, uintptr(e))
		return Result(r)
	}
	elapsed := s.get("cuEventElapsedTime")
	api.EventElapsed = func(ms *float32, start, end EventHandle) Result {
		r, _, _ := purego.SyscallN(elapsed, uintptr(unsafe.Pointer(ms)), uintptr(start), uintptr(end))
		return Result(r)
	}
}

func (s *symbols) graphs(api *API) {
	begin := s.get("cuStreamBeginCapture_v2")
	api.CaptureBegin = func(st StreamHandle) Result {
		r, _, _ := purego.SyscallN(begin, uintptr(st), captureThreadLocal)
		return Result(r)
	}
	end := s.get("cuStreamEndCapture")
	api.CaptureEnd = func(g *GraphHandle, st StreamHandle) Result {
		r, _, _ := purego.SyscallN(end, uintptr(st), uintptr(unsafe.Pointer(g)))
		return Result(r)
	}
	instantiate := s.get("cuGraphInstantiateWithFlags")
	api.GraphInstantiate = func(e *GraphExecHandle, g GraphHandle) Result {
		r, _, _ := purego.SyscallN(instantiate, uintptr(unsafe.Pointer(e)), uintptr(g), 0)
		return Result(r)
	}
	destroy := s.get("cuGraphDestroy")
	api.GraphDestroy = func(g GraphHandle) Result {
		r, _, _ := purego.SyscallN(destroy, uintptr(g))
		return Result(r)
	}
	execDestroy := s.get("cuGraphExecDestroy")
	api.GraphExecDestroy = func(e GraphExecHandle) Result {
		r, _, _ := purego.SyscallN(execDestroy, uintptr(e))
		return Result(r)
	}
	launch := s.get("cuGraphLaunch")
	api.GraphLaunch = func(e GraphExecHandle, st StreamHandle) Result {
		r, _, _ := purego.SyscallN(launch, uintptr(e), uintptr(st))
		return Result(r)
	}
}
