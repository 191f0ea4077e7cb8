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
	// CU_JIT_ERROR_LOG_BUFFER and its size.
	optErrorLogBuffer = 5
	optErrorLogSize   = 6

	// CU_LAUNCH_PARAM_END, _BUFFER_POINTER and _BUFFER_SIZE.
	launchEnd, launchBuffer, launchSize = 0, 1, 2

	streamNonBlocking = 1 // CU_STREAM_NON_BLOCKING

	captureThreadLocal = 1 // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL

	// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.
	launchProgrammaticSerialization = 6
)

// load opens the library and looks up its functions.
func load() (*API, error) {
	lib, err := purego.Dlopen("libcuda.so.1", purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDriver, err)
	}
	s := symbolTable{lib: lib}
	api := s.loadTable()
	if s.missing != "" {
		return nil, fmt.Errorf("%w: it lacks the function %s; update the driver", ErrDriverTooOld, s.missing)
	}
	return api, nil
}

// symbolTable looks up the functions of the library.
type symbolTable struct {
	lib     uintptr
	missing string // the first function that the library lacks
}

// lookUp returns the address of a function, 0 if the library lacks it.
func (s *symbolTable) lookUp(name string) uintptr {
	p, err := purego.Dlsym(s.lib, name)
	if err != nil && s.missing == "" {
		s.missing = name
	}
	return p
}

// callFunction calls a function of the library with addresses of Go memory as numbers. This is
// sound only if they are converted in the argument list of callFunction itself: uintptrescapes
// then keeps the memory alive, and on the heap, during the call.
//
//go:uintptrescapes
func callFunction(function uintptr, args ...uintptr) Result {
	r, _, _ := purego.SyscallN(function, args...)
	return Result(r)
}

// callWithPair is callFunction for the two-argument functions that every launch calls: it does not
// allocate memory for the arguments.
//
//go:uintptrescapes
func callWithPair(function, a, b uintptr) Result {
	args := argumentPairs.Get().(*[2]uintptr)
	args[0], args[1] = a, b
	r, _, _ := purego.SyscallN(function, args[:]...)
	argumentPairs.Put(args)
	return Result(r)
}

var argumentPairs = sync.Pool{New: func() any { return new([2]uintptr) }}

// loadTable returns the table of functions; s.missing is set if the library lacks one.
func (s *symbolTable) loadTable() *API {
	api := &API{}
	s.loadDevices(api)
	s.loadModules(api)
	s.loadMemory(api)
	s.loadOrdering(api)
	s.loadGraphs(api)
	return api
}

// loadDevices sets the functions of devices and contexts.
func (s *symbolTable) loadDevices(api *API) {
	initialise := s.lookUp("cuInit")
	api.Init = func() Result { return callFunction(initialise, 0) }
	version := s.lookUp("cuDriverGetVersion")
	api.DriverVersion = func(v *int32) Result { return callFunction(version, uintptr(unsafe.Pointer(v))) }
	count := s.lookUp("cuDeviceGetCount")
	api.DeviceCount = func(n *int32) Result { return callFunction(count, uintptr(unsafe.Pointer(n))) }
	get := s.lookUp("cuDeviceGet")
	api.DeviceGet = func(dev *DeviceHandle, ordinal int32) Result {
		return callFunction(get, uintptr(unsafe.Pointer(dev)), uintptr(ordinal))
	}
	name := s.lookUp("cuDeviceGetName")
	api.DeviceName = func(b []byte, dev DeviceHandle) Result {
		return callFunction(name, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), uintptr(dev))
	}
	total := s.lookUp("cuDeviceTotalMem_v2")
	api.DeviceTotalMem = func(n *uint64, dev DeviceHandle) Result {
		return callFunction(total, uintptr(unsafe.Pointer(n)), uintptr(dev))
	}
	attribute := s.lookUp("cuDeviceGetAttribute")
	api.DeviceAttribute = func(v *int32, a Attribute, dev DeviceHandle) Result {
		return callFunction(attribute, uintptr(unsafe.Pointer(v)), uintptr(a), uintptr(dev))
	}
	pci := s.lookUp("cuDeviceGetPCIBusId")
	api.DevicePCIBusID = func(b []byte, dev DeviceHandle) Result {
		return callFunction(pci, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), uintptr(dev))
	}
	retain := s.lookUp("cuDevicePrimaryCtxRetain")
	api.PrimaryCtxRetain = func(ctx *ContextHandle, dev DeviceHandle) Result {
		return callFunction(retain, uintptr(unsafe.Pointer(ctx)), uintptr(dev))
	}
	release := s.lookUp("cuDevicePrimaryCtxRelease_v2")
	api.PrimaryCtxRelease = func(dev DeviceHandle) Result { return callFunction(release, uintptr(dev)) }
	current := s.lookUp("cuCtxSetCurrent")
	api.CtxSetCurrent = func(ctx ContextHandle) Result { return callWithPair(current, uintptr(ctx), 0) }
	getCurrent := s.lookUp("cuCtxGetCurrent")
	api.CtxGetCurrent = func(ctx *ContextHandle) Result {
		return callWithPair(getCurrent,
			uintptr(unsafe.Pointer(ctx)), 0)
	}
	info := s.lookUp("cuMemGetInfo_v2")
	api.MemInfo = func(free, total *uint64) Result {
		return callFunction(info, uintptr(unsafe.Pointer(free)), uintptr(unsafe.Pointer(total)))
	}
}

// loadModules sets the functions of modules and launches.
func (s *symbolTable) loadModules(api *API) {
	load := s.lookUp("cuModuleLoadDataEx")
	api.ModuleLoad = func(m *ModuleHandle, image, log []byte) Result {
		// The driver reads the image and writes the log through pointers within
		// the two option arrays, so these are kept in place for the call.
		var pin runtime.Pinner
		defer pin.Unpin()
		pin.Pin(unsafe.SliceData(log))
		keys := []uint32{optErrorLogBuffer, optErrorLogSize}
		values := []uintptr{uintptr(unsafe.Pointer(unsafe.SliceData(log))), uintptr(len(log))}
		r := callFunction(load, uintptr(unsafe.Pointer(m)), uintptr(unsafe.Pointer(unsafe.SliceData(image))),
			uintptr(len(keys)), uintptr(unsafe.Pointer(unsafe.SliceData(keys))),
			uintptr(unsafe.Pointer(unsafe.SliceData(values))))
		runtime.KeepAlive(log)
		return r
	}
	unload := s.lookUp("cuModuleUnload")
	api.ModuleUnload = func(m ModuleHandle) Result { return callFunction(unload, uintptr(m)) }
	function := s.lookUp("cuModuleGetFunction")
	api.ModuleFunc = func(f *FunctionHandle, m ModuleHandle, name string) Result {
		c := append([]byte(name), 0)
		return callFunction(function, uintptr(unsafe.Pointer(f)), uintptr(m),
			uintptr(unsafe.Pointer(unsafe.SliceData(c))))
	}
	set := s.lookUp("cuFuncSetAttribute")
	api.FuncSet = func(f FunctionHandle, a FuncAttribute, v int32) Result {
		return callFunction(set, uintptr(f), uintptr(a), uintptr(v))
	}
	occupancy := s.lookUp("cuOccupancyMaxActiveBlocksPerMultiprocessor")
	api.FuncOccupancy = func(blocks *int32, f FunctionHandle, threads int32, shared uintptr) Result {
		return callFunction(occupancy, uintptr(unsafe.Pointer(blocks)), uintptr(f), uintptr(threads), shared)
	}
	plain, extended := s.lookUp("cuLaunchKernel"), s.lookUp("cuLaunchKernelEx")
	api.LaunchKernel = func(l *Launch) Result {
		if l.Early {
			return launchEarly(extended, l)
		}
		x := plainLaunches.Get().(*plainLaunch)
		x.params = newParameterList(l, &x.params.bytes)
		x.args = [11]uintptr{
			uintptr(l.Func),
			uintptr(l.Grid.X), uintptr(l.Grid.Y), uintptr(l.Grid.Z),
			uintptr(l.Block.X), uintptr(l.Block.Y), uintptr(l.Block.Z),
			uintptr(l.Shared), uintptr(l.Stream), 0, uintptr(unsafe.Pointer(&x.params)),
		}
		r, _, _ := purego.SyscallN(plain, x.args[:]...)
		x.params.buffer = nil
		plainLaunches.Put(x)
		return Result(r)
	}
}

// parameterList is the last argument of cuLaunchKernel: a list of keys and values that
// names the buffer of parameters. The driver copies the parameters before it returns.
type parameterList struct {
	bufferKey uintptr
	buffer    unsafe.Pointer
	sizeKey   uintptr
	size      unsafe.Pointer
	end       uintptr
	bytes     uintptr // size points here
}

// newParameterList returns the list for a launch; bytes is the field of the list itself, at its final address.
func newParameterList(l *Launch, bytes *uintptr) parameterList {
	return parameterList{
		bufferKey: launchBuffer,
		buffer:    l.Args,
		sizeKey:   launchSize,
		size:      unsafe.Pointer(bytes),
		end:       launchEnd,
		bytes:     l.ArgBytes,
	}
}

// plainLaunch holds the arguments of cuLaunchKernel, and the list that the last argument points to.
type plainLaunch struct {
	args   [11]uintptr
	params parameterList
}

var plainLaunches = sync.Pool{New: func() any { return new(plainLaunch) }}

// earlyLaunch holds the arguments of cuLaunchKernelEx and the structs that they point to: a
// CUlaunchConfig, its one CUlaunchAttribute, and the parameters.
type earlyLaunch struct {
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
	params parameterList
	args   [4]uintptr // of cuLaunchKernelEx
}

var earlyLaunches = sync.Pool{New: func() any { return new(earlyLaunch) }}

// launchEarly calls cuLaunchKernelEx, whose address is launchEx, so that the kernel may start early.
func launchEarly(launchEx uintptr, l *Launch) Result {
	e := earlyLaunches.Get().(*earlyLaunch)
	*e = earlyLaunch{
		grid:       l.Grid,
		block:      l.Block,
		shared:     l.Shared,
		stream:     l.Stream,
		attributes: unsafe.Pointer(&e.attribute),
		count:      1,
	}
	e.attribute.id, e.attribute.value[0] = launchProgrammaticSerialization, 1
	e.params = newParameterList(l, &e.params.bytes)
	e.args = [4]uintptr{uintptr(unsafe.Pointer(e)), uintptr(l.Func), 0, uintptr(unsafe.Pointer(&e.params))}
	r, _, _ := purego.SyscallN(launchEx, e.args[:]...)
	e.params.buffer = nil
	earlyLaunches.Put(e)
	return Result(r)
}

// loadMemory sets the functions of memory and copies.
func (s *symbolTable) loadMemory(api *API) {
	alloc := s.lookUp("cuMemAlloc_v2")
	api.MemAlloc = func(p *Ptr, n uintptr) Result { return callFunction(alloc, uintptr(unsafe.Pointer(p)), n) }
	free := s.lookUp("cuMemFree_v2")
	api.MemFree = func(p Ptr) Result { return callFunction(free, uintptr(p)) }
	hostAlloc := s.lookUp("cuMemHostAlloc")
	api.HostAlloc = func(p *unsafe.Pointer, n uintptr) Result {
		return callFunction(hostAlloc, uintptr(unsafe.Pointer(p)), n, 0)
	}
	hostFree := s.lookUp("cuMemFreeHost")
	api.HostFree = func(p unsafe.Pointer) Result { return callFunction(hostFree, uintptr(p)) }
	toDevice := s.lookUp("cuMemcpyHtoDAsync_v2")
	api.CopyToDevice = func(dst Ptr, src unsafe.Pointer, n uintptr, st StreamHandle) Result {
		return callFunction(toDevice, uintptr(dst), uintptr(src), n, uintptr(st))
	}
	toHost := s.lookUp("cuMemcpyDtoHAsync_v2")
	api.CopyToHost = func(dst unsafe.Pointer, src Ptr, n uintptr, st StreamHandle) Result {
		return callFunction(toHost, uintptr(dst), uintptr(src), n, uintptr(st))
	}
	onDevice := s.lookUp("cuMemcpyDtoDAsync_v2")
	api.CopyOnDevice = func(dst, src Ptr, n uintptr, st StreamHandle) Result {
		return callFunction(onDevice, uintptr(dst), uintptr(src), n, uintptr(st))
	}
	set := s.lookUp("cuMemsetD8Async")
	api.Set8 = func(dst Ptr, v uint8, n uintptr, st StreamHandle) Result {
		return callFunction(set, uintptr(dst), uintptr(v), n, uintptr(st))
	}
}

// loadOrdering sets the functions of streams and events.
func (s *symbolTable) loadOrdering(api *API) {
	create := s.lookUp("cuStreamCreate")
	api.StreamCreate = func(st *StreamHandle) Result {
		return callFunction(create, uintptr(unsafe.Pointer(st)), streamNonBlocking)
	}
	destroy := s.lookUp("cuStreamDestroy_v2")
	api.StreamDestroy = func(st StreamHandle) Result { return callFunction(destroy, uintptr(st)) }
	sync := s.lookUp("cuStreamSynchronize")
	api.StreamSync = func(st StreamHandle) Result { return callFunction(sync, uintptr(st)) }
	wait := s.lookUp("cuStreamWaitEvent")
	api.StreamWait = func(st StreamHandle, e EventHandle) Result {
		return callFunction(wait, uintptr(st),
			uintptr(e), 0)
	}
	eventCreate := s.lookUp("cuEventCreate")
	api.EventCreate = func(e *EventHandle, flags EventFlags) Result {
		return callFunction(eventCreate, uintptr(unsafe.Pointer(e)), uintptr(flags))
	}
	eventDestroy := s.lookUp("cuEventDestroy_v2")
	api.EventDestroy = func(e EventHandle) Result { return callFunction(eventDestroy, uintptr(e)) }
	record := s.lookUp("cuEventRecord")
	api.EventRecord = func(e EventHandle, st StreamHandle) Result {
		return callFunction(record, uintptr(e),
			uintptr(st))
	}
	eventSync := s.lookUp("cuEventSynchronize")
	api.EventSync = func(e EventHandle) Result { return callFunction(eventSync, uintptr(e)) }
	elapsed := s.lookUp("cuEventElapsedTime")
	api.EventElapsed = func(ms *float32, start, end EventHandle) Result {
		return callFunction(elapsed, uintptr(unsafe.Pointer(ms)), uintptr(start), uintptr(end))
	}
}

// loadGraphs sets the functions of captures and graphs.
func (s *symbolTable) loadGraphs(api *API) {
	begin := s.lookUp("cuStreamBeginCapture_v2")
	api.CaptureBegin = func(st StreamHandle) Result { return callFunction(begin, uintptr(st), captureThreadLocal) }
	end := s.lookUp("cuStreamEndCapture")
	api.CaptureEnd = func(g *GraphHandle, st StreamHandle) Result {
		return callFunction(end, uintptr(st), uintptr(unsafe.Pointer(g)))
	}
	capturing, mode := s.lookUp("cuStreamIsCapturing"), s.lookUp("cuThreadExchangeStreamCaptureMode")
	api.IsCapturing = func(status *int32, st StreamHandle) Result {
		return callWithPair(capturing, uintptr(st), uintptr(unsafe.Pointer(status)))
	}
	api.CaptureMode = func(m *int32) Result { return callFunction(mode, uintptr(unsafe.Pointer(m))) }
	instantiate := s.lookUp("cuGraphInstantiateWithFlags")
	api.GraphInstantiate = func(e *GraphExecHandle, g GraphHandle) Result {
		return callFunction(instantiate, uintptr(unsafe.Pointer(e)), uintptr(g), 0)
	}
	destroy := s.lookUp("cuGraphDestroy")
	api.GraphDestroy = func(g GraphHandle) Result { return callFunction(destroy, uintptr(g)) }
	execDestroy := s.lookUp("cuGraphExecDestroy")
	api.GraphExecDestroy = func(e GraphExecHandle) Result { return callFunction(execDestroy, uintptr(e)) }
	launch := s.lookUp("cuGraphLaunch")
	api.GraphLaunch = func(e GraphExecHandle, st StreamHandle) Result {
		return callFunction(launch, uintptr(e),
			uintptr(st))
	}
}
