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

	streamNonBlocking = 1

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
// they are made in the argument list of call itself, which keeps what they
// point to alive, and on the heap, for the time of the call.
//
//go:uintptrescapes
func call(function uintptr, args ...uintptr) Result {
	r, _, _ := purego.SyscallN(function, args...)
	return Result(r)
}

// call2 is call for what every launch needs first: it takes no memory for the arguments.
//
//go:uintptrescapes
func call2(function, a, b uintptr) Result {
	args := pairs.Get().(*[2]uintptr)
	args[0], args[1] = a, b
	r, _, _ := purego.SyscallN(function, args[:]...)
	pairs.Put(args)
	return Result(r)
}

var pairs = sync.Pool{New: func() any { return new([2]uintptr) }}

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
	api.Init = func() Result { return call(initialise, 0) }
	version := s.get("cuDriverGetVersion")
	api.DriverVersion = func(v *int32) Result { return call(version, uintptr(unsafe.Pointer(v))) }
	count := s.get("cuDeviceGetCount")
	api.DeviceCount = func(n *int32) Result { return call(count, uintptr(unsafe.Pointer(n))) }
	get := s.get("cuDeviceGet")
	api.DeviceGet = func(dev *DeviceHandle, ordinal int32) Result {
		return call(get, uintptr(unsafe.Pointer(dev)), uintptr(ordinal))
	}
	name := s.get("cuDeviceGetName")
	api.DeviceName = func(b []byte, dev DeviceHandle) Result {
		return call(name, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), uintptr(dev))
	}
	total := s.get("cuDeviceTotalMem_v2")
	api.DeviceTotalMem = func(n *uint64, dev DeviceHandle) Result { return call(total, uintptr(unsafe.Pointer(n)), uintptr(dev)) }
	attribute := s.get("cuDeviceGetAttribute")
	api.DeviceAttribute = func(v *int32, a Attribute, dev DeviceHandle) Result {
		return call(attribute, uintptr(unsafe.Pointer(v)), uintptr(a), uintptr(dev))
	}
	pci := s.get("cuDeviceGetPCIBusId")
	api.DevicePCIBusID = func(b []byte, dev DeviceHandle) Result {
		return call(pci, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), uintptr(dev))
	}
	retain := s.get("cuDevicePrimaryCtxRetain")
	api.PrimaryCtxRetain = func(ctx *ContextHandle, dev DeviceHandle) Result {
		return call(retain, uintptr(unsafe.Pointer(ctx)), uintptr(dev))
	}
	release := s.get("cuDevicePrimaryCtxRelease_v2")
	api.PrimaryCtxRelease = func(dev DeviceHandle) Result { return call(release, uintptr(dev)) }
	current := s.get("cuCtxSetCurrent")
	api.CtxSetCurrent = func(ctx ContextHandle) Result { return call2(current, uintptr(ctx), 0) }
	getCurrent := s.get("cuCtxGetCurrent")
	api.CtxGetCurrent = func(ctx *ContextHandle) Result { return call2(getCurrent, uintptr(unsafe.Pointer(ctx)), 0) }
	info := s.get("cuMemGetInfo_v2")
	api.MemInfo = func(free, total *uint64) Result {
		return call(info, uintptr(unsafe.Pointer(free)), uintptr(unsafe.Pointer(total)))
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
		r := call(load, uintptr(unsafe.Pointer(m)), uintptr(unsafe.Pointer(unsafe.SliceData(image))),
			uintptr(len(keys)), uintptr(unsafe.Pointer(unsafe.SliceData(keys))), uintptr(unsafe.Pointer(unsafe.SliceData(values))))
		runtime.KeepAlive(log)
		return r
	}
	unload := s.get("cuModuleUnload")
	api.ModuleUnload = func(m ModuleHandle) Result { return call(unload, uintptr(m)) }
	function := s.get("cuModuleGetFunction")
	api.ModuleFunc = func(f *FunctionHandle, m ModuleHandle, name string) Result {
		c := append([]byte(name), 0)
		return call(function, uintptr(unsafe.Pointer(f)), uintptr(m), uintptr(unsafe.Pointer(unsafe.SliceData(c))))
	}
	set := s.get("cuFuncSetAttribute")
	api.FuncSet = func(f FunctionHandle, a FuncAttribute, v int32) Result {
		return call(set, uintptr(f), uintptr(a), uintptr(v))
	}
	occupancy := s.get("cuOccupancyMaxActiveBlocksPerMultiprocessor")
	api.FuncOccupancy = func(blocks *int32, f FunctionHandle, threads int32, shared uintptr) Result {
		return call(occupancy, uintptr(unsafe.Pointer(blocks)), uintptr(f), uintptr(threads), shared)
	}
	launch, launchEx := s.get("cuLaunchKernel"), s.get("cuLaunchKernelEx")
	api.LaunchKernel = func(l *Launch) Result {
		if l.Early {
			return launchEarly(launchEx, l)
		}
		x := launches.Get().(*plainLaunch)
		x.extra = extra{launchBuffer, l.Args, launchSize, unsafe.Pointer(&x.extra.bytes), launchEnd, l.ArgBytes}
		x.args = [11]uintptr{uintptr(l.Func),
			uintptr(l.Grid.X), uintptr(l.Grid.Y), uintptr(l.Grid.Z), uintptr(l.Block.X), uintptr(l.Block.Y), uintptr(l.Block.Z),
			uintptr(l.Shared), uintptr(l.Stream), 0, uintptr(unsafe.Pointer(&x.extra))}
		r, _, _ := purego.SyscallN(launch, x.args[:]...)
		x.extra.buffer = nil
		launches.Put(x)
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

// plainLaunch holds the arguments of cuLaunchKernel, and the list that the last one points to.
type plainLaunch struct {
	args  [11]uintptr
	extra extra
}

var launches = sync.Pool{New: func() any { return new(plainLaunch) }}

// early holds the arguments of cuLaunchKernelEx and the structs that they point to: a
// CUlaunchConfig, its one CUlaunchAttribute, and the parameters.
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
	args  [4]uintptr // of cuLaunchKernelEx
}

var earlies = sync.Pool{New: func() any { return new(early) }}

func launchEarly(launchEx uintptr, l *Launch) Result {
	e := earlies.Get().(*early)
	*e = early{grid: l.Grid, block: l.Block, shared: l.Shared, stream: l.Stream, attributes: unsafe.Pointer(&e.attribute), count: 1}
	e.attribute.id, e.attribute.value[0] = launchProgrammaticSerialization, 1
	e.extra = extra{launchBuffer, l.Args, launchSize, unsafe.Pointer(&e.extra.bytes), launchEnd, l.ArgBytes}
	e.args = [4]uintptr{uintptr(unsafe.Pointer(e)), uintptr(l.Func), 0, uintptr(unsafe.Pointer(&e.extra))}
	r, _, _ := purego.SyscallN(launchEx, e.args[:]...)
	e.extra.buffer = nil
	earlies.Put(e)
	return Result(r)
}

func (s *symbols) memory(api *API) {
	alloc := s.get("cuMemAlloc_v2")
	api.MemAlloc = func(p *Ptr, n uintptr) Result { return call(alloc, uintptr(unsafe.Pointer(p)), n) }
	free := s.get("cuMemFree_v2")
	api.MemFree = func(p Ptr) Result { return call(free, uintptr(p)) }
	hostAlloc := s.get("cuMemHostAlloc")
	api.HostAlloc = func(p *unsafe.Pointer, n uintptr) Result { return call(hostAlloc, uintptr(unsafe.Pointer(p)), n, 0) }
	hostFree := s.get("cuMemFreeHost")
	api.HostFree = func(p unsafe.Pointer) Result { return call(hostFree, uintptr(p)) }
	toDevice := s.get("cuMemcpyHtoDAsync_v2")
	api.CopyToDevice = func(dst Ptr, src unsafe.Pointer, n uintptr, st StreamHandle) Result {
		return call(toDevice, uintptr(dst), uintptr(src), n, uintptr(st))
	}
	toHost := s.get("cuMemcpyDtoHAsync_v2")
	api.CopyToHost = func(dst unsafe.Pointer, src Ptr, n uintptr, st StreamHandle) Result {
		return call(toHost, uintptr(dst), uintptr(src), n, uintptr(st))
	}
	onDevice := s.get("cuMemcpyDtoDAsync_v2")
	api.CopyOnDevice = func(dst, src Ptr, n uintptr, st StreamHandle) Result {
		return call(onDevice, uintptr(dst), uintptr(src), n, uintptr(st))
	}
	set := s.get("cuMemsetD8Async")
	api.Set8 = func(dst Ptr, v uint8, n uintptr, st StreamHandle) Result {
		return call(set, uintptr(dst), uintptr(v), n, uintptr(st))
	}
}

func (s *symbols) order(api *API) {
	create := s.get("cuStreamCreate")
	api.StreamCreate = func(st *StreamHandle) Result { return call(create, uintptr(unsafe.Pointer(st)), streamNonBlocking) }
	destroy := s.get("cuStreamDestroy_v2")
	api.StreamDestroy = func(st StreamHandle) Result { return call(destroy, uintptr(st)) }
	sync := s.get("cuStreamSynchronize")
	api.StreamSync = func(st StreamHandle) Result { return call(sync, uintptr(st)) }
	wait := s.get("cuStreamWaitEvent")
	api.StreamWait = func(st StreamHandle, e EventHandle) Result { return call(wait, uintptr(st), uintptr(e), 0) }
	eventCreate := s.get("cuEventCreate")
	api.EventCreate = func(e *EventHandle, flags EventFlags) Result {
		return call(eventCreate, uintptr(unsafe.Pointer(e)), uintptr(flags))
	}
	eventDestroy := s.get("cuEventDestroy_v2")
	api.EventDestroy = func(e EventHandle) Result { return call(eventDestroy, uintptr(e)) }
	record := s.get("cuEventRecord")
	api.EventRecord = func(e EventHandle, st StreamHandle) Result { return call(record, uintptr(e), uintptr(st)) }
	eventSync := s.get("cuEventSynchronize")
	api.EventSync = func(e EventHandle) Result { return call(eventSync, uintptr(e)) }
	elapsed := s.get("cuEventElapsedTime")
	api.EventElapsed = func(ms *float32, start, end EventHandle) Result {
		return call(elapsed, uintptr(unsafe.Pointer(ms)), uintptr(start), uintptr(end))
	}
}

func (s *symbols) graphs(api *API) {
	begin := s.get("cuStreamBeginCapture_v2")
	api.CaptureBegin = func(st StreamHandle) Result { return call(begin, uintptr(st), captureThreadLocal) }
	end := s.get("cuStreamEndCapture")
	api.CaptureEnd = func(g *GraphHandle, st StreamHandle) Result {
		return call(end, uintptr(st), uintptr(unsafe.Pointer(g)))
	}
	capturing, mode := s.get("cuStreamIsCapturing"), s.get("cuThreadExchangeStreamCaptureMode")
	api.IsCapturing = func(status *int32, st StreamHandle) Result {
		return call2(capturing, uintptr(st), uintptr(unsafe.Pointer(status)))
	}
	api.CaptureMode = func(m *int32) Result { return call(mode, uintptr(unsafe.Pointer(m))) }
	instantiate := s.get("cuGraphInstantiateWithFlags")
	api.GraphInstantiate = func(e *GraphExecHandle, g GraphHandle) Result {
		return call(instantiate, uintptr(unsafe.Pointer(e)), uintptr(g), 0)
	}
	destroy := s.get("cuGraphDestroy")
	api.GraphDestroy = func(g GraphHandle) Result { return call(destroy, uintptr(g)) }
	execDestroy := s.get("cuGraphExecDestroy")
	api.GraphExecDestroy = func(e GraphExecHandle) Result { return call(execDestroy, uintptr(e)) }
	launch := s.get("cuGraphLaunch")
	api.GraphLaunch = func(e GraphExecHandle, st StreamHandle) Result { return call(launch, uintptr(e), uintptr(st)) }
}
