package driver

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"
)

// Resources counts the allocations of a context that were not freed.
type Resources struct {
	Allocations, HostAllocations int
	Bytes, HostBytes             int64
	Streams, Events, Modules     int
	Graphs                       int
}

// IsZero reports whether nothing is allocated.
func (r Resources) IsZero() bool { return r == Resources{} }

// Context is a device's primary context, current to the thread that opened it;
// only that thread may use it.
type Context struct {
	api    *API
	dev    DeviceHandle
	handle ContextHandle
	live   Resources
	// Arguments that the driver reads and writes, kept here so that frequent calls do not allocate.
	current   ContextHandle
	capturing int32
	launch    Launch
}

// Open makes the primary context of a device current to this thread. Call
// [Devices] and runtime.LockOSThread first.
func Open(api *API, ordinal int) (*Context, error) {
	c := &Context{api: api}
	if err := resultError(api.DeviceGet(&c.dev, int32(ordinal)), "cuDeviceGet", "device %d", ordinal); err != nil {
		return nil, err
	}
	if err := resultError(api.PrimaryCtxRetain(&c.handle, c.dev), "cuDevicePrimaryCtxRetain", "device %d",
		ordinal); err != nil {
		return nil, err
	}
	if err := resultError(api.CtxSetCurrent(c.handle), "cuCtxSetCurrent", "device %d", ordinal); err != nil {
		api.PrimaryCtxRelease(c.dev)
		return nil, err
	}
	return c, nil
}

// Current returns the context that is current to this thread, or 0.
func Current(api *API) (h ContextHandle, err error) {
	return h, resultError(api.CtxGetCurrent(&h), "cuCtxGetCurrent", "")
}

// SetCurrent makes a context current to this thread.
func SetCurrent(api *API, h ContextHandle) error {
	return resultError(api.CtxSetCurrent(h), "cuCtxSetCurrent", "")
}

// Enter makes the context current to this thread and returns the previous one, which [Context.Leave]
// makes current again.
func (c *Context) Enter() (previous ContextHandle, err error) {
	if r := c.api.CtxGetCurrent(&c.current); r != Success {
		return 0, resultError(r, "cuCtxGetCurrent", "")
	}
	if previous = c.current; previous == c.handle {
		return previous, nil
	}
	return previous, SetCurrent(c.api, c.handle)
}

// Leave ends the use that Enter began, whose result is previous.
func (c *Context) Leave(previous ContextHandle) error {
	if previous == c.handle {
		return nil
	}
	return SetCurrent(c.api, previous)
}

// Close releases the primary context. Everything that was allocated in it must have been freed.
func (c *Context) Close() error {
	return errors.Join(
		resultError(c.api.CtxSetCurrent(0), "cuCtxSetCurrent", "none"),
		resultError(c.api.PrimaryCtxRelease(c.dev), "cuDevicePrimaryCtxRelease", ""))
}

// Live returns the counts of the allocations that were not freed.
func (c *Context) Live() Resources { return c.live }

// MemInfo returns the free and the total memory of the device in bytes.
func (c *Context) MemInfo() (free, total uint64, err error) {
	err = resultError(c.api.MemInfo(&free, &total), "cuMemGetInfo", "")
	return free, total, err
}

// Mem is an allocation of device memory.
type Mem struct {
	Ptr   Ptr
	Bytes int64
}

// At returns the address of the byte at an offset.
func (m Mem) At(offset int64) Ptr { return m.Ptr + Ptr(offset) }

// Alloc allocates device memory. For 0 bytes it returns the zero Mem. Errors:
// [ErrOutOfMemory].
func (c *Context) Alloc(bytes int64) (Mem, error) {
	if bytes <= 0 {
		return Mem{}, nil
	}
	var p Ptr
	if err := resultError(c.api.MemAlloc(&p, uintptr(bytes)), "cuMemAlloc", "%d bytes", bytes); err != nil {
		return Mem{}, err
	}
	c.live.Allocations++
	c.live.Bytes += bytes
	return Mem{p, bytes}, nil
}

// Free frees device memory. It does nothing for the zero Mem.
func (c *Context) Free(m Mem) error {
	if m.Ptr == 0 {
		return nil
	}
	c.live.Allocations--
	c.live.Bytes -= m.Bytes
	return resultError(c.api.MemFree(m.Ptr), "cuMemFree", "%d bytes", m.Bytes)
}

// HostMem is page-locked host memory. Only copies from and to such memory run while
// the host and the device do other work.
type HostMem struct{ Data []byte }

// HostAlloc allocates page-locked host memory.
func (c *Context) HostAlloc(bytes int64) (HostMem, error) {
	if bytes <= 0 {
		return HostMem{}, nil
	}
	var p unsafe.Pointer
	if err := resultError(c.api.HostAlloc(&p, uintptr(bytes)), "cuMemHostAlloc", "%d bytes", bytes); err != nil {
		return HostMem{}, err
	}
	c.live.HostAllocations++
	c.live.HostBytes += bytes
	return HostMem{unsafe.Slice((*byte)(p), bytes)}, nil
}

// HostFree frees page-locked memory.
func (c *Context) HostFree(m HostMem) error {
	if m.Data == nil {
		return nil
	}
	c.live.HostAllocations--
	c.live.HostBytes -= int64(len(m.Data))
	return resultError(c.api.HostFree(unsafe.Pointer(unsafe.SliceData(m.Data))), "cuMemFreeHost", "")
}

// Stream is a queue of work for the device.
type Stream struct{ h StreamHandle }

// StreamFromHandle returns a stream that the caller created.
func StreamFromHandle(h StreamHandle) Stream { return Stream{h} }

// Handle returns the handle of the stream.
func (s Stream) Handle() StreamHandle { return s.h }

// Capturing reports whether a stream is captured.
func (c *Context) Capturing(s Stream) (bool, error) {
	err := resultError(c.api.IsCapturing(&c.capturing, s.h), "cuStreamIsCapturing", "")
	return c.capturing != 0, err
}

// captureRelaxed is the CUstreamCaptureMode that does not restrict the thread.
const captureRelaxed = 2

// Relaxed calls fn, which may allocate, and may wait for streams that are not captured, even
// while other streams are captured.
func (c *Context) Relaxed(fn func() error) error {
	mode := int32(captureRelaxed)
	if err := resultError(c.api.CaptureMode(&mode), "cuThreadExchangeStreamCaptureMode", ""); err != nil {
		return err
	}
	return errors.Join(fn(), resultError(c.api.CaptureMode(&mode), "cuThreadExchangeStreamCaptureMode", ""))
}

// NewStream creates a stream.
func (c *Context) NewStream() (Stream, error) {
	var s Stream
	if err := resultError(c.api.StreamCreate(&s.h), "cuStreamCreate", ""); err != nil {
		return s, err
	}
	c.live.Streams++
	return s, nil
}

// FreeStream destroys a stream. It does nothing for the zero Stream.
func (c *Context) FreeStream(s Stream) error {
	if s.h == 0 {
		return nil
	}
	c.live.Streams--
	return resultError(c.api.StreamDestroy(s.h), "cuStreamDestroy", "")
}

// Sync waits until a stream has done all of its work.
func (c *Context) Sync(s Stream) error {
	return resultError(c.api.StreamSync(s.h), "cuStreamSynchronize", "")
}

// Wait makes a stream wait for an event.
func (c *Context) Wait(s Stream, e Event) error {
	return resultError(c.api.StreamWait(s.h, e.h), "cuStreamWaitEvent", "")
}

// Event is a point in a stream.
type Event struct{ h EventHandle }

// NewEvent creates an event without a time.
func (c *Context) NewEvent() (Event, error) { return c.newEvent(EventDisableTiming) }

// NewTimedEvent creates an event with a time, for [Context.Elapsed].
func (c *Context) NewTimedEvent() (Event, error) { return c.newEvent(0) }

// NewSleepingEvent creates an event for which SyncEvent sleeps instead of polling: it uses no
// processor time, and returns some microseconds later.
func (c *Context) NewSleepingEvent() (Event, error) {
	return c.newEvent(EventDisableTiming | EventBlockingSync)
}

// newEvent creates an event with flags, and counts it.
func (c *Context) newEvent(flags EventFlags) (Event, error) {
	var e Event
	if err := resultError(c.api.EventCreate(&e.h, flags), "cuEventCreate", ""); err != nil {
		return e, err
	}
	c.live.Events++
	return e, nil
}

// FreeEvent destroys an event. It does nothing for the zero Event.
func (c *Context) FreeEvent(e Event) error {
	if e.h == 0 {
		return nil
	}
	c.live.Events--
	return resultError(c.api.EventDestroy(e.h), "cuEventDestroy", "")
}

// Record puts an event behind the work that a stream has received so far.
func (c *Context) Record(e Event, s Stream) error {
	return resultError(c.api.EventRecord(e.h, s.h), "cuEventRecord", "")
}

// SyncEvent waits for an event that was recorded.
func (c *Context) SyncEvent(e Event) error {
	return resultError(c.api.EventSync(e.h), "cuEventSynchronize", "")
}

// Elapsed returns the time between two events that have passed, in milliseconds.
func (c *Context) Elapsed(start, end Event) (float64, error) {
	var ms float32
	err := resultError(c.api.EventElapsed(&ms, start.h, end.h), "cuEventElapsedTime", "")
	return float64(ms), err
}

// ToDevice copies host memory to the device in the order of a stream. If src is not
// page-locked, it has been read when the call returns.
func (c *Context) ToDevice(dst Ptr, src []byte, s Stream) error {
	if len(src) == 0 {
		return nil
	}
	return resultError(c.api.CopyToDevice(dst, unsafe.Pointer(unsafe.SliceData(src)), uintptr(len(src)), s.h),
		"cuMemcpyHtoDAsync", "%d bytes", len(src))
}

// ToHost copies device memory to the host in the order of a stream: dst is filled
// once the stream has done the copy.
func (c *Context) ToHost(dst []byte, src Ptr, s Stream) error {
	if len(dst) == 0 {
		return nil
	}
	return resultError(c.api.CopyToHost(unsafe.Pointer(unsafe.SliceData(dst)), src, uintptr(len(dst)), s.h),
		"cuMemcpyDtoHAsync", "%d bytes", len(dst))
}

// OnDevice copies within device memory in the order of a stream.
func (c *Context) OnDevice(dst, src Ptr, bytes int64, s Stream) error {
	if bytes == 0 {
		return nil
	}
	return resultError(c.api.CopyOnDevice(dst, src, uintptr(bytes), s.h), "cuMemcpyDtoDAsync", "%d bytes", bytes)
}

// Set fills device memory with a byte in the order of a stream.
func (c *Context) Set(dst Ptr, value uint8, bytes int64, s Stream) error {
	if bytes == 0 {
		return nil
	}
	return resultError(c.api.Set8(dst, value, uintptr(bytes), s.h), "cuMemsetD8Async", "%d bytes", bytes)
}

// Module is loaded device code.
type Module struct{ h ModuleHandle }

// LoadModule loads a cubin, or PTX (which is compiled).
func (c *Context) LoadModule(image []byte) (Module, error) {
	var m Module
	log := make([]byte, 8<<10)
	if len(image) > 0 && image[len(image)-1] != 0 {
		image = append(image[:len(image):len(image)], 0) // PTX is text for C
	}
	if r := c.api.ModuleLoad(&m.h, image, log); r != Success {
		return m, &Error{Op: "cuModuleLoadDataEx", Code: r, Note: strings.TrimSpace(stringFromC(log))}
	}
	c.live.Modules++
	return m, nil
}

// FreeModule unloads a module. It does nothing for the zero Module.
func (c *Context) FreeModule(m Module) error {
	if m.h == 0 {
		return nil
	}
	c.live.Modules--
	return resultError(c.api.ModuleUnload(m.h), "cuModuleUnload", "")
}

// Function is a kernel of a module.
type Function struct {
	Name string
	h    FunctionHandle
}

// Function finds a kernel. shared is the maximum of dynamic shared memory, in bytes,
// that it will be launched with.
func (c *Context) Function(m Module, name string, shared int) (Function, error) {
	f := Function{Name: name}
	if err := resultError(c.api.ModuleFunc(&f.h, m.h, name), "cuModuleGetFunction", "%s", name); err != nil {
		return f, err
	}
	// A kernel may have 48 KiB without this call, its static arrays included, which take less than 8 KiB.
	if shared > 40<<10 {
		if err := resultError(c.api.FuncSet(f.h, FuncMaxDynamicShared, int32(shared)), "cuFuncSetAttribute",
			"%s, %d bytes of shared memory", name, shared); err != nil {
			return f, err
		}
	}
	return f, nil
}

// Occupancy returns how many blocks of a kernel a multiprocessor runs at the same time.
func (c *Context) Occupancy(f Function, threads, shared int) (int, error) {
	var n int32
	err := resultError(c.api.FuncOccupancy(&n, f.h, int32(threads), uintptr(shared)),
		"cuOccupancyMaxActiveBlocksPerMultiprocessor", "%s", f.Name)
	return int(n), err
}

// Launch starts a kernel with the parameters that args points to: a struct of size bytes
// on the heap, laid out like the parameter list in C. See [Launch] for early.
func (c *Context) Launch(
	f Function, grid, block Dim3, shared int, s Stream, early bool, args unsafe.Pointer, size uintptr,
) error {
	c.launch = Launch{
		Func:     f.h,
		Grid:     grid,
		Block:    block,
		Shared:   uint32(shared),
		Stream:   s.h,
		Early:    early,
		Args:     args,
		ArgBytes: size,
	}
	r := c.api.LaunchKernel(&c.launch)
	if c.launch.Args = nil; r != Success {
		return &Error{
			Op:   "cuLaunchKernel",
			Code: r,
			Note: fmt.Sprintf("%s, grid %d×%d×%d, block %d", f.Name, grid.X, grid.Y, grid.Z, block.X),
		}
	}
	return nil
}

// Graph is recorded work, which a stream can receive again in one call.
type Graph struct{ h GraphExecHandle }

// Capture records the work that record puts into a stream as a graph, without executing it.
// record must not allocate or wait.
func (c *Context) Capture(s Stream, record func() error) (g Graph, err error) {
	if err := resultError(c.api.CaptureBegin(s.h), "cuStreamBeginCapture", ""); err != nil {
		return g, err
	}
	err = record()
	var captured GraphHandle
	if endErr := resultError(c.api.CaptureEnd(&captured, s.h), "cuStreamEndCapture", ""); err == nil {
		err = endErr
	}
	if captured != 0 {
		defer func() { err = errors.Join(err, resultError(c.api.GraphDestroy(captured), "cuGraphDestroy", "")) }()
	}
	if err != nil {
		return g, err
	}
	if err := resultError(c.api.GraphInstantiate(&g.h, captured), "cuGraphInstantiate", ""); err != nil {
		return Graph{}, err
	}
	c.live.Graphs++
	return g, nil
}

// FreeGraph destroys a graph. It does nothing for the zero Graph.
func (c *Context) FreeGraph(g Graph) error {
	if g.h == 0 {
		return nil
	}
	c.live.Graphs--
	return resultError(c.api.GraphExecDestroy(g.h), "cuGraphExecDestroy", "")
}

// LaunchGraph puts the work of a graph into a stream.
func (c *Context) LaunchGraph(g Graph, s Stream) error {
	return resultError(c.api.GraphLaunch(g.h, s.h), "cuGraphLaunch", "")
}
