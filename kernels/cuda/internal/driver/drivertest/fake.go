// Package drivertest is a CUDA driver without a device, for tests: memory is
// the host's, kernels are Go functions, and any call can be made to fail.
package drivertest

import (
	"fmt"
	"sort"
	"sync"
	"unsafe"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
)

// Kernel is a kernel in Go. Launch.Args points to its parameters.
type Kernel func(f *Fake, l *driver.Launch)

// Fake is a driver in the process. Its zero value has no device.
type Fake struct {
	Devices []driver.Info
	Version int32 // CUDA version, 0 means driver.MinVersion
	Kernels map[string]Kernel
	Memory  int64 // bytes of a device, 0 means 1 GiB
	// Mapped makes device addresses those of the process, on Linux, for kernels that are not
	// written in Go. Guard pages behind each allocation end the process if a kernel leaves it.
	Mapped bool
	// Fail, if not nil, returns the result of each call before it is executed; anything
	// but driver.Success makes the call fail.
	Fail func(op string) driver.Result

	mu              sync.Mutex
	nextAddress     uintptr
	allocations     []allocation // by address
	used            int64
	hostMemory      map[unsafe.Pointer][]byte
	handles         map[uintptr]string
	functionNames   map[uintptr]string
	currentContexts map[int]driver.ContextHandle // of threads
	relaxedThreads  map[int]bool                 // threads that a capture does not restrict
	faults          []string
	captures        map[driver.StreamHandle]*[]func() driver.Result // streams that are captured
	graphs          map[uintptr][]func() driver.Result
	calls           map[string]int
}

type allocation struct {
	address uintptr
	data    []byte
	free    func()
}

// Faults lists the misuses on which a real driver would have crashed.
func (f *Fake) Faults() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.faults...)
}

// Outstanding counts the handles and allocations that were not freed, and their bytes.
func (f *Fake) Outstanding() (n int, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.allocations) + len(f.hostMemory) + len(f.handles), f.used
}

// reportFault records a misuse and returns the result of an invalid access. The caller holds mu.
func (f *Fake) reportFault(format string, args ...any) driver.Result {
	f.faults = append(f.faults, fmt.Sprintf(format, args...))
	return driver.IllegalAddress
}

// Bytes returns n bytes of device memory at an address. Memory that is not allocated is a
// fault, and other memory is returned.
func (f *Fake) Bytes(p driver.Ptr, n int64) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.findMemory(p, n)
	if b == nil && n > 0 {
		f.reportFault("kernel: %d bytes at %#x are not allocated", n, uint64(p))
		return make([]byte, n)
	}
	return b
}

// Slice returns device memory as n values, nil for the address 0.
func Slice[T any](f *Fake, p driver.Ptr, n int) []T {
	var zero T
	if n == 0 || p == 0 {
		return nil
	}
	size := int64(unsafe.Sizeof(zero))
	b := f.Bytes(p, size*int64(n))
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// findMemory returns n bytes at an address, nil if they are not within one allocation.
func (f *Fake) findMemory(p driver.Ptr, n int64) []byte {
	for address, b := range f.hostMemory { // page-locked memory has the same address on the device
		if lo := int64(uintptr(p)) - int64(uintptr(address)); lo >= 0 && lo+n <= int64(len(b)) {
			return b[lo : lo+n]
		}
	}
	i := sort.Search(len(f.allocations), func(i int) bool { return f.allocations[i].address > uintptr(p) }) - 1
	if i < 0 {
		return nil
	}
	b := f.allocations[i]
	lo := int64(uintptr(p) - b.address)
	if lo+n > int64(len(b.data)) {
		return nil
	}
	return b.data[lo : lo+n]
}

// enterCall begins a call and acquires mu. Calls that need a context must come from a thread
// that has one.
func (f *Fake) enterCall(op string, context bool) driver.Result {
	f.mu.Lock()
	if f.calls == nil {
		f.calls, f.currentContexts, f.handles = map[string]int{}, map[int]driver.ContextHandle{}, map[uintptr]string{}
		f.relaxedThreads = map[int]bool{}
		f.hostMemory, f.functionNames, f.nextAddress = map[unsafe.Pointer][]byte{}, map[uintptr]string{}, 1<<32
		f.captures, f.graphs = map[driver.StreamHandle]*[]func() driver.Result{}, map[uintptr][]func() driver.Result{}
	}
	f.calls[op]++
	if context && f.currentContexts[threadID()] == 0 {
		f.faults = append(f.faults, op+" without a context")
		return driver.InvalidContext
	}
	if f.Fail != nil {
		return f.Fail(op)
	}
	return driver.Success
}

// newHandle returns a handle of an object of a kind, such as "stream".
func (f *Fake) newHandle(kind string) uintptr {
	f.nextAddress += 256
	f.handles[f.nextAddress] = kind
	return f.nextAddress
}

// removeHandle destroys an object; it is a fault if the handle is not of this kind.
func (f *Fake) removeHandle(h uintptr, kind string) driver.Result {
	if f.handles[h] != kind {
		return f.reportFault("%s %#x does not exist", kind, h)
	}
	delete(f.handles, h)
	return driver.Success
}

// runCall executes the body of a call of the driver's function op, unless it fails before. A nil
// body does nothing.
func (f *Fake) runCall(op string, context bool, body func() driver.Result) driver.Result {
	r := f.enterCall(op, context)
	defer f.mu.Unlock()
	if r != driver.Success || body == nil {
		return r
	}
	return body()
}

// API returns the table of functions.
func (f *Fake) API() *driver.API {
	api := &driver.API{
		Init: func() driver.Result { return f.runCall("cuInit", false, nil) },
		DriverVersion: func(v *int32) driver.Result {
			return f.runCall("cuDriverGetVersion", false, func() driver.Result {
				if *v = f.Version; *v == 0 {
					*v = driver.MinVersion
				}
				return driver.Success
			})
		},
		DeviceCount: func(n *int32) driver.Result {
			return f.runCall("cuDeviceGetCount", false,
				func() driver.Result { *n = int32(len(f.Devices)); return driver.Success })
		},
		DeviceGet: func(dev *driver.DeviceHandle, ordinal int32) driver.Result {
			return f.runCall("cuDeviceGet", false, func() driver.Result {
				if int(ordinal) >= len(f.Devices) {
					return driver.InvalidDevice
				}
				*dev = driver.DeviceHandle(ordinal)
				return driver.Success
			})
		},
		DeviceName: func(b []byte, dev driver.DeviceHandle) driver.Result {
			return f.runCall("cuDeviceGetName", false,
				func() driver.Result { copy(b, f.Devices[dev].Name); return driver.Success })
		},
		DevicePCIBusID: func(b []byte, dev driver.DeviceHandle) driver.Result {
			return f.runCall("cuDeviceGetPCIBusId", false,
				func() driver.Result { copy(b, f.Devices[dev].PCI); return driver.Success })
		},
		DeviceTotalMem: func(n *uint64, dev driver.DeviceHandle) driver.Result {
			return f.runCall("cuDeviceTotalMem", false,
				func() driver.Result { *n = uint64(f.memoryLimit()); return driver.Success })
		},
		DeviceAttribute: func(v *int32, a driver.Attribute, dev driver.DeviceHandle) driver.Result {
			return f.runCall("cuDeviceGetAttribute", false, func() driver.Result {
				d := &f.Devices[dev]
				switch a {
				case driver.AttrCapabilityMajor:
					*v = int32(d.Major)
				case driver.AttrCapabilityMinor:
					*v = int32(d.Minor)
				case driver.AttrMultiprocessors:
					*v = int32(d.Multiprocessors)
				case driver.AttrMaxSharedPerBlock:
					*v = int32(d.Shared)
				default:
					*v = 1 << 20
				}
				return driver.Success
			})
		},
		PrimaryCtxRetain: func(ctx *driver.ContextHandle, dev driver.DeviceHandle) driver.Result {
			return f.runCall("cuDevicePrimaryCtxRetain", false, func() driver.Result {
				*ctx = driver.ContextHandle(f.newHandle("context"))
				return driver.Success
			})
		},
		PrimaryCtxRelease: func(dev driver.DeviceHandle) driver.Result {
			return f.runCall("cuDevicePrimaryCtxRelease", false, func() driver.Result {
				for h, kind := range f.handles {
					if kind == "context" {
						delete(f.handles, h)
						return driver.Success
					}
				}
				return f.reportFault("no context to release")
			})
		},
		CtxSetCurrent: func(ctx driver.ContextHandle) driver.Result {
			return f.runCall("cuCtxSetCurrent", false, func() driver.Result {
				f.currentContexts[threadID()] = ctx
				return driver.Success
			})
		},
		CtxGetCurrent: func(ctx *driver.ContextHandle) driver.Result {
			return f.runCall("cuCtxGetCurrent", false, func() driver.Result {
				*ctx = f.currentContexts[threadID()]
				return driver.Success
			})
		},
		MemInfo: func(free, total *uint64) driver.Result {
			return f.runCall("cuMemGetInfo", true, func() driver.Result {
				*free, *total = uint64(f.memoryLimit()-f.used), uint64(f.memoryLimit())
				return driver.Success
			})
		},
	}
	f.addModuleCalls(api)
	f.addMemoryCalls(api)
	f.addOrderCalls(api)
	f.addGraphCalls(api)
	return api
}

// memoryLimit returns the memory of a device in bytes.
func (f *Fake) memoryLimit() int64 {
	if f.Memory == 0 {
		return 1 << 30
	}
	return f.Memory
}
