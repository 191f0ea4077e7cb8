// Package driver binds the part of the CUDA driver API (libcuda.so.1) that
// plaid uses, at run time and without cgo: building does not need CUDA, and on a
// machine without a driver [Load] returns [ErrNoDriver].
//
// [Load] finds the library and returns its functions as a table, [API]. Tests
// pass a table of their own (package drivertest). [Open] makes the [Context]
// of a device; it counts everything that it allocates, so that tests can check
// that nothing leaks.
//
// A CUDA context is current to an OS thread, not to a goroutine: all calls of
// one Context must come from the thread that opened it.
package driver

import (
	"fmt"
	"unsafe"
)

// Handles of the driver: opaque numbers.
type (
	DeviceHandle    int32   // CUdevice
	ContextHandle   uintptr // CUcontext
	ModuleHandle    uintptr // CUmodule
	FunctionHandle  uintptr // CUfunction
	StreamHandle    uintptr // CUstream
	EventHandle     uintptr // CUevent
	GraphHandle     uintptr // CUgraph
	GraphExecHandle uintptr // CUgraphExec
	Ptr             uint64  // an address in device memory
)

// Attribute is a CUdevice_attribute.
type Attribute int32

// The attributes that plaid reads.
const (
	AttrMaxSharedPerBlock Attribute = 97 // with opt-in
	AttrMultiprocessors   Attribute = 16
	AttrCapabilityMajor   Attribute = 75
	AttrCapabilityMinor   Attribute = 76
)

// FuncAttribute is a CUfunction_attribute.
type FuncAttribute int32

// FuncMaxDynamicShared allows a kernel more dynamic shared memory than 48 KiB.
const FuncMaxDynamicShared FuncAttribute = 8

// EventFlags is a set of CUevent_flags.
type EventFlags uint32

// The flags that plaid sets.
const (
	EventBlockingSync  EventFlags = 1
	EventDisableTiming EventFlags = 2
)

// Dim3 is a number of blocks or threads along three axes.
type Dim3 struct{ X, Y, Z uint32 }

// Launch describes one start of a kernel.
type Launch struct {
	Func        FunctionHandle
	Grid, Block Dim3
	Shared      uint32 // bytes of dynamic shared memory
	Stream      StreamHandle
	// Early lets the kernel begin before the previous kernel of the stream has ended
	// (programmatic stream serialization). The kernel itself waits for that one.
	Early bool
	// Args points to the kernel's parameters, laid out one after another as in C,
	// ArgBytes long. It must point into the heap.
	Args     unsafe.Pointer
	ArgBytes uintptr
}

// API is the table of driver functions. Those that write through a pointer do
// so only if they return [Success].
type API struct {
	Init              func() Result
	DriverVersion     func(version *int32) Result // 1000·major + 10·minor
	DeviceCount       func(n *int32) Result
	DeviceGet         func(dev *DeviceHandle, ordinal int32) Result
	DeviceName        func(name []byte, dev DeviceHandle) Result // ends at a zero byte
	DeviceTotalMem    func(bytes *uint64, dev DeviceHandle) Result
	DeviceAttribute   func(value *int32, a Attribute, dev DeviceHandle) Result
	DevicePCIBusID    func(id []byte, dev DeviceHandle) Result // ends at a zero byte
	PrimaryCtxRetain  func(ctx *ContextHandle, dev DeviceHandle) Result
	PrimaryCtxRelease func(dev DeviceHandle) Result
	CtxSetCurrent     func(ctx ContextHandle) Result
	CtxGetCurrent     func(ctx *ContextHandle) Result // 0 means that the thread has none
	MemInfo           func(free, total *uint64) Result

	// ModuleLoad takes a cubin, or PTX that ends in a zero byte. log receives the
	// messages of the PTX compiler.
	ModuleLoad    func(m *ModuleHandle, image, log []byte) Result
	ModuleUnload  func(m ModuleHandle) Result
	ModuleFunc    func(f *FunctionHandle, m ModuleHandle, name string) Result
	FuncSet       func(f FunctionHandle, a FuncAttribute, value int32) Result
	FuncOccupancy func(blocks *int32, f FunctionHandle, threads int32, shared uintptr) Result

	MemAlloc     func(p *Ptr, bytes uintptr) Result
	MemFree      func(p Ptr) Result
	HostAlloc    func(p *unsafe.Pointer, bytes uintptr) Result // page-locked
	HostFree     func(p unsafe.Pointer) Result
	CopyToDevice func(dst Ptr, src unsafe.Pointer, bytes uintptr, s StreamHandle) Result
	CopyToHost   func(dst unsafe.Pointer, src Ptr, bytes uintptr, s StreamHandle) Result
	CopyOnDevice func(dst, src Ptr, bytes uintptr, s StreamHandle) Result
	Set8         func(dst Ptr, value uint8, bytes uintptr, s StreamHandle) Result

	StreamCreate  func(s *StreamHandle) Result // without implicit order to stream 0
	StreamDestroy func(s StreamHandle) Result
	StreamSync    func(s StreamHandle) Result
	StreamWait    func(s StreamHandle, e EventHandle) Result
	EventCreate   func(e *EventHandle, flags EventFlags) Result
	EventDestroy  func(e EventHandle) Result
	EventRecord   func(e EventHandle, s StreamHandle) Result
	EventSync     func(e EventHandle) Result
	EventElapsed  func(ms *float32, start, end EventHandle) Result

	LaunchKernel func(l *Launch) Result

	// Between CaptureBegin and CaptureEnd the work that a stream receives is not executed
	// but recorded as a graph. Meanwhile only calls of the same thread are restricted.
	CaptureBegin func(s StreamHandle) Result
	CaptureEnd   func(g *GraphHandle, s StreamHandle) Result
	IsCapturing  func(status *int32, s StreamHandle) Result // not 0 while the stream is captured
	// CaptureMode sets the thread's CUstreamCaptureMode and returns the previous one in mode.
	CaptureMode      func(mode *int32) Result
	GraphInstantiate func(e *GraphExecHandle, g GraphHandle) Result
	GraphDestroy     func(g GraphHandle) Result
	GraphExecDestroy func(e GraphExecHandle) Result
	GraphLaunch      func(e GraphExecHandle, s StreamHandle) Result
}

// MinVersion is the oldest driver that runs the kernels, which are compiled by
// CUDA 13.0.
const MinVersion = 13000

// Version formats a driver version.
func Version(v int32) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// Add returns the address that is a number of bytes further on.
func (p Ptr) Add(bytes int64) Ptr { return p + Ptr(bytes) }
