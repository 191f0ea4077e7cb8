package driver

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"
)

// Resources counts what a context has given out and not taken back.
type Resources struct {
	Allocations, HostAllocations int
	Bytes, HostBytes             int64
	Streams, Events, Modules     int
	Graphs                       int
}

// IsZero reports whether nothing is out.
func (r Resources) IsZero() bool { return r == Resources{} }

// Context is a device's primary context, current to the thread that opened it;
// only that thread may use it.
type Context struct {
	api    *API
	dev    DeviceHandle
	handle ContextHandle
	live   Resources
	// What the driver reads and writes in calls that take no memory.
	current   ContextHandle
	capturing int32
	launch    Launch
}

// Open makes the primary context of a device current to this thread. Call
// [Devices] before, and runtime.LockOSThread.
func Open(api *API, ordinal int) (*Context, error) {
	c := &Context{api: api}
	if err := resultError(api.DeviceGet(&c.dev, int32(ordinal)), "cuDeviceGet", "device %d", ordinal); err != nil {
		return nil, err
	}
	if err := resultError(api.PrimaryCtxRetain(&c.handle, c.dev), "cuDevicePrimaryCtxRetain", "device %d", ordinal); err != nil {
		return nil, err
	}
	if err := resultError(api.CtxSetCurrent(c.handle), "cuCtxSetCurrent", "device %d", ordinal); err != nil {
		api.PrimaryCtxRelease(c.dev)
		return nil, err
	}
	return c, nil
}

// Current is the context that is current to this thread; 0: none.
func Current(api *API) (h ContextHandle, err error) {
	return h, resultError(api.CtxGetCurrent(&h), "cuCtxGetCurrent", "")
}

// SetCurrent makes a context current to this thread.
func SetCurrent(api *API, h ContextHandle) error {
	return resultError(api.CtxSetCurrent(h), "cuCtxSetCurrent", "")
}

// Enter makes the context current to this thread, for a while: Leave, given what Enter
// returned, makes the one before current again.
func (c *Context) Enter() (previous ContextHandle, err error) {
	if r := c.api.CtxGetCurrent(&c.current); r != Success {
		return 0, resultError(r, "cuCtxGetCurrent", "")
	}
	if previous = c.current; previous == c.handle {
		return previous, nil
	}
	return previous, SetCurrent(c.api, c.handle)
}

// Leave ends the use that Enter began.
func (c *Context) Leave(previous ContextHandle) error {
	if previous == c.handle {
		return nil
	}
	return SetCurrent(c.api, previous)
}

// Close gives the context back. What it gave out must have been freed.
func (c *Context) Close() error {
	return errors.Join(
		resultError(c.api.CtxSetCurrent(0), "cuCtxSetCurrent", "none"),
		resultError(c.api.PrimaryCtxRelease(c.dev), "cuDevicePrimaryCtxRelease", ""))
}

// Live counts what is out.
func (c *Context) Live() Resources { return c.live }

// MemInfo returns the free and the whole memory of the device in bytes.
func (c *Context) MemInfo() (free, total uint64, err error) {
	err = resultError(c.api.MemInfo(&free, &total), "cuMemGetInfo", "")
	return free, total, err
}

// Mem is device memory.
type Mem struct {
	Ptr   Ptr
	Bytes int64
}

// At is the address of a byte.
func (m Mem) At(offset int64) Ptr { return m.Ptr + Ptr(offset) }

// Alloc reserves device memory; no bytes give the zero Mem. Errors:
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

// Free gives device memory back. The zero Mem is nothing to free.
func (c *Context) Free(m Mem) error {
	if m.Ptr == 0 {
		return nil
	}
	c.live.Allocations--
	c.live.Bytes -= m.Bytes
	return resultError(c.api.MemFree(m.Ptr), "cuMemFree", "%d bytes", m.Bytes)
}

// HostMem is page-locked host memory, which copies need in order to run beside
// other work.
type HostMem struct{ Data []byte }

// HostAlloc reserves page-locked host memory.
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

// HostFree gives page-locked memory back.
func (c *Context) HostFree(m HostMem) error {
	if m.Data == nil {
		return nil
	}
	c.live.HostAllocations--
	c.live.HostBytes -= int64(len(m.Data))
	return resultError(c.api.HostFree(unsafe.Pointer(unsafe.SliceData(m.Data))), "cuMemFreeHost", "")
}

// Stream is a queue of work of the device.
type Stream struct{ h StreamHandle }

// StreamFromHandle is a stream of the caller's.
func StreamFromHandle(h StreamHandle) Stream { return Stream{h} }

// Handle is the stream as the driver knows it.
func (s Stream) Handle() StreamHandle { return s.h }

// Capturing reports whether a stream is captured.
func (c *Context) Capturing(s Stream) (bool, error) {
	err := resultError(c.api.IsCapturing(&c.capturing, s.h), "cuStreamIsCapturing", "")
	return c.capturing != 0, err
}

// captureRelaxed is the CUstreamCaptureMode that forbids the thread nothing.
const captureRelaxed = 2

// Relaxed calls fn, which may allocate and wait for streams that are not captured, whatever
// others are.
func (c *Context) Relaxed(fn func() error) error {
	mode := int32(captureRelaxed)
	if err := resultError(c.api.CaptureMode(&mode), "cuThreadExchangeStreamCaptureMode", ""); err != nil {
		return err
	}
	return errors.Join(fn(), resultError(c.api.CaptureMode(&mode), "cuThreadExchangeStreamCaptureMode", ""))
}

// NewStream makes a stream.
func (c *Context) NewStream() (Stream, error) {
	var s Stream
	if err := resultError(c.api.StreamCreate(&s.h), "cuStreamCreate", ""); err != nil {
		return s, err
	}
	c.live.Streams++
	return s, nil
}

// FreeStream destroys a stream; the zero Stream is none.
func (c *Context) FreeStream(s Stream) error {
	if s.h == 0 {
		return nil
	}
	c.live.Streams--
	return resultError(c.api.StreamDestroy(s.h), "cuStreamDestroy", "")
}

// Sync waits until a stream has nothing more to do.
func (c *Context) Sync(s Stream) error {
	return resultError(c.api.StreamSync(s.h), "cuStreamSynchronize", "")
}

// Wait makes a stream wait for an event.
func (c *Context) Wait(s Stream, e Event) error {
	return resultError(c.api.StreamWait(s.h, e.h), "cuStreamWaitEvent", "")
}

// Event is a point in a stream.
type Event struct{ h EventHandle }

// NewEvent makes an event, with a time if asked for.
func (c *Context) NewEvent(timing bool) (Event, error) {
	if timing {
		return c.newEvent(0)
	}
	return c.newEvent(EventDisableTiming)
}

// NewSleepingEvent makes an event that SyncEvent sleeps for: that takes the processor's time from
// nothing else, and some microseconds longer.
func (c *Context) NewSleepingEvent() (Event, error) {
	return c.newEvent(EventDisableTiming | EventBlockingSync)
}

func (c *Context) newEvent(flags EventFlags) (Event, error) {
	var e Event
	if err := resultError(c.api.EventCreate(&e.h, flags), "cuEventCreate", ""); err != nil {
		return e, err
	}
	c.live.Events++
	return e, nil
}

// FreeEvent destroys an event; the zero Event is none.
func (c *Context) FreeEvent(e Event) error {
	if e.h == 0 {
		return nil
	}
	c.live.Events--
	return resultError(c.api.EventDestroy(e.h), "cuEventDestroy", "")
}

// Record puts an event after what a stream has been given so far.
func (c *Context) Record(e Event, s Stream) error {
	return resultError(c.api.EventRecord(e.h, s.h), "cuEventRecord", "")
}

// SyncEvent waits for an event that was recorded.
func (c *Context) SyncEvent(e Event) error {
	return resultError(c.api.EventSync(e.h), "cuEventSynchronize", "")
}

// Elapsed is the time between two events that have passed, in milliseconds.
func (c *Context) Elapsed(start, end Event) (float64, error) {
	var ms float32
	err := resultError(c.api.EventElapsed(&ms, start.h, end.h), "cuEventElapsedTime", "")
	return float64(ms), err
}

// ToDevice copies to device memory in the order of a stream. If src is not
// page-locked it has been read when the call returns.
func (c *Context) ToDevice(dst Ptr, src []byte, s Stream) error {
	if len(src) == 0 {
		return nil
	}
	return resultError(c.api.CopyToDevice(dst, unsafe.Pointer(unsafe.SliceData(src)), uintptr(len(src)), s.h), "cuMemcpyHtoDAsync", "%d bytes", len(src))
}

// ToHost copies from device memory in the order of a stream; dst is filled
// once the stream has come so far.
func (c *Context) ToHost(dst []byte, src Ptr, s Stream) error {
	if len(dst) == 0 {
		return nil
	}
	return resultError(c.api.CopyToHost(unsafe.Pointer(unsafe.SliceData(dst)), src, uintptr(len(dst)), s.h), "cuMemcpyDtoHAsync", "%d bytes", len(dst))
}

// OnDevice copies within device memory.
func (c *Context) OnDevice(dst, src Ptr, bytes int64, s Stream) error {
	if bytes == 0 {
		return nil
	}
	return resultError(c.api.CopyOnDevice(dst, src, uintptr(bytes), s.h), "cuMemcpyDtoDAsync", "%d bytes", bytes)
}

// Set fills device memory with a byte.
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

// FreeModule unloads a module; the zero Module is none.
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

// Function finds a kernel. shared is the most bytes of dynamic shared memory
// that it will be launched with.
func (c *Context) Function(m Module, name string, shared int) (Function, error) {
	f := Function{Name: name}
	if err := resultError(c.api.ModuleFunc(&f.h, m.h, name), "cuModuleGetFunction", "%s", name); err != nil {
		return f, err
	}
	if shared > 40<<10 { // 48 KiB is what needs no leave, a kernel's own arrays included
		if err := resultError(c.api.FuncSet(f.h, FuncMaxDynamicShared, int32(shared)), "cuFuncSetAttribute", "%s, %d bytes of shared memory", name, shared); err != nil {
			return f, err
		}
	}
	return f, nil
}

// Occupancy is how many blocks of a kernel a multiprocessor holds at once.
func (c *Context) Occupancy(f Function, threads, shared int) (int, error) {
	var n int32
	err := resultError(c.api.FuncOccupancy(&n, f.h, int32(threads), uintptr(shared)), "cuOccupancyMaxActiveBlocksPerMultiprocessor", "%s", f.Name)
	return int(n), err
}

// Launch starts a kernel with the parameters that args points to, a struct laid
// out as C lays out the parameter list, of size bytes and on the heap. See
// [Launch] for early.
func (c *Context) Launch(f Function, grid, block Dim3, shared int, s Stream, early bool, args unsafe.Pointer, size uintptr) error {
	c.launch = Launch{
		Func: f.h, Grid: grid, Block: block, Shared: uint32(shared), Stream: s.h, Early: early, Args: args, ArgBytes: size,
	}
	r := c.api.LaunchKernel(&c.launch)
	if c.launch.Args = nil; r != Success {
		return &Error{Op: "cuLaunchKernel", Code: r, Note: fmt.Sprintf("%s, grid %d×%d×%d, block %d", f.Name, grid.X, grid.Y, grid.Z, block.X)}
	}
	return nil
}

// Graph is work that a stream was given once, and can be given again in one call.
type Graph struct{ h GraphExecHandle }

// Capture makes a graph of what record gives a stream, which is not done meanwhile.
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

// FreeGraph destroys a graph; the zero Graph is none.
func (c *Context) FreeGraph(g Graph) error {
	if g.h == 0 {
		return nil
	}
	c.live.Graphs--
	return resultError(c.api.GraphExecDestroy(g.h), "cuGraphExecDestroy", "")
}

// LaunchGraph gives a stream the work of a graph.
func (c *Context) LaunchGraph(g Graph, s Stream) error {
	return resultError(c.api.GraphLaunch(g.h, s.h), "cuGraphLaunch", "")
}
