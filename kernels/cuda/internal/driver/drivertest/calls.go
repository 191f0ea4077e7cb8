package drivertest

import (
	"slices"
	"sort"
	"unsafe"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
)

// addModuleCalls sets the functions of modules and launches.
func (f *Fake) addModuleCalls(api *driver.API) {
	api.ModuleLoad = func(m *driver.ModuleHandle, image, log []byte) driver.Result {
		return f.runCall("cuModuleLoadDataEx", true, func() driver.Result {
			if f.captureRestricts() {
				return f.reportFault("code is loaded while a stream is captured")
			}
			*m = driver.ModuleHandle(f.newHandle("module"))
			return driver.Success
		})
	}
	api.ModuleUnload = func(m driver.ModuleHandle) driver.Result {
		return f.runCall("cuModuleUnload", true, func() driver.Result { return f.removeHandle(uintptr(m), "module") })
	}
	api.ModuleFunc = func(fn *driver.FunctionHandle, m driver.ModuleHandle, name string) driver.Result {
		return f.runCall("cuModuleGetFunction", true, func() driver.Result {
			if f.captureRestricts() {
				return f.reportFault("a function is loaded while a stream is captured")
			}
			if f.Kernels[name] == nil {
				return driver.NotFound
			}
			f.nextAddress += 256
			f.functionNames[f.nextAddress] = name
			*fn = driver.FunctionHandle(f.nextAddress)
			return driver.Success
		})
	}
	api.FuncSet = func(driver.FunctionHandle, driver.FuncAttribute, int32) driver.Result {
		return f.runCall("cuFuncSetAttribute", true, nil)
	}
	api.FuncOccupancy = func(n *int32, _ driver.FunctionHandle, _ int32, _ uintptr) driver.Result {
		return f.runCall("cuOccupancyMaxActiveBlocksPerMultiprocessor", true,
			func() driver.Result { *n = 2; return driver.Success })
	}
	api.LaunchKernel = func(l *driver.Launch) driver.Result {
		r := f.enterCall("cuLaunchKernel", true)
		k := f.Kernels[f.functionNames[uintptr(l.Func)]]
		if k == nil && r == driver.Success {
			r = f.reportFault("launch of an unknown function")
		}
		if l.Grid.Y > 65535 || l.Grid.Z > 65535 || l.Block.X > 1024 || l.Grid.X > 1<<31-1 {
			r = driver.InvalidValue
		}
		if drawing := f.captures[l.Stream]; drawing != nil && r == driver.Success {
			kept := *l
			args := make([]uint64, (l.ArgBytes+7)/8)
			kept.Args = unsafe.Pointer(unsafe.SliceData(args))
			copy(unsafe.Slice((*byte)(kept.Args), l.ArgBytes), unsafe.Slice((*byte)(l.Args), l.ArgBytes))
			*drawing = append(*drawing, func() driver.Result { k(f, &kept); return driver.Success })
			f.mu.Unlock()
			return r
		}
		f.mu.Unlock()
		if r == driver.Success {
			k(f, l)
		}
		return r
	}
}

// captureRestricts reports whether this thread may not allocate or load code, since a stream is captured.
func (f *Fake) captureRestricts() bool { return len(f.captures) > 0 && !f.relaxedThreads[threadID()] }

// addMemoryCalls sets the functions of memory and copies.
func (f *Fake) addMemoryCalls(api *driver.API) {
	api.MemAlloc = func(p *driver.Ptr, n uintptr) driver.Result {
		return f.runCall("cuMemAlloc", true, func() driver.Result {
			if f.captureRestricts() {
				return f.reportFault("memory is allocated while a stream is captured")
			}
			if f.used+int64(n) > f.memoryLimit() {
				return driver.OutOfMemory
			}
			address := (f.nextAddress + 511) &^ 255
			b, free := []byte(nil), func() {}
			if f.Mapped {
				var err error
				if b, free, err = mapGuarded(int(n)); err != nil {
					return driver.OutOfMemory
				}
				address = uintptr(unsafe.Pointer(unsafe.SliceData(b)))
			} else {
				b = make([]byte, n)
				f.nextAddress = address + n
			}
			for i := range b {
				b[i] = 0xA5 // device memory is not zeroed either
			}
			*p = driver.Ptr(address)
			i := sort.Search(len(f.allocations), func(i int) bool { return f.allocations[i].address > address })
			f.allocations = slices.Insert(f.allocations, i, allocation{address, b, free})
			f.used += int64(n)
			return driver.Success
		})
	}
	api.MemFree = func(p driver.Ptr) driver.Result {
		return f.runCall("cuMemFree", true, func() driver.Result {
			if f.captureRestricts() {
				return f.reportFault("memory is freed while a stream is captured")
			}
			i := sort.Search(len(f.allocations), func(i int) bool { return f.allocations[i].address >= uintptr(p) })
			if i == len(f.allocations) || f.allocations[i].address != uintptr(p) {
				return f.reportFault("free of %#x, which is not allocated", uint64(p))
			}
			f.used -= int64(len(f.allocations[i].data))
			f.allocations[i].free()
			f.allocations = append(f.allocations[:i], f.allocations[i+1:]...)
			return driver.Success
		})
	}
	api.HostAlloc = func(p *unsafe.Pointer, n uintptr) driver.Result {
		return f.runCall("cuMemHostAlloc", true, func() driver.Result {
			b := make([]byte, n)
			*p = unsafe.Pointer(unsafe.SliceData(b))
			f.hostMemory[*p] = b
			return driver.Success
		})
	}
	api.HostFree = func(p unsafe.Pointer) driver.Result {
		return f.runCall("cuMemFreeHost", true, func() driver.Result {
			if f.hostMemory[p] == nil {
				return f.reportFault("free of host memory that is not allocated")
			}
			delete(f.hostMemory, p)
			return driver.Success
		})
	}
	// A copy in a captured stream is executed when its graph is launched.
	runOrCapture := func(s driver.StreamHandle, do func() driver.Result) driver.Result {
		if drawing := f.captures[s]; drawing != nil {
			*drawing = append(*drawing, func() driver.Result {
				f.mu.Lock()
				defer f.mu.Unlock()
				return do()
			})
			return driver.Success
		}
		return do()
	}
	move := func(op string, dst, src []byte) driver.Result {
		if dst == nil || src == nil {
			return f.reportFault("%s beyond what is allocated", op)
		}
		copy(dst, src)
		return driver.Success
	}
	api.CopyToDevice = func(dst driver.Ptr, src unsafe.Pointer, n uintptr, s driver.StreamHandle) driver.Result {
		return f.runCall("cuMemcpyHtoDAsync", true, func() driver.Result {
			return runOrCapture(s, func() driver.Result {
				return move("copy to the device", f.findMemory(dst, int64(n)), unsafe.Slice((*byte)(src), n))
			})
		})
	}
	api.CopyToHost = func(dst unsafe.Pointer, src driver.Ptr, n uintptr, s driver.StreamHandle) driver.Result {
		return f.runCall("cuMemcpyDtoHAsync", true, func() driver.Result {
			return runOrCapture(s, func() driver.Result {
				return move("copy from the device", unsafe.Slice((*byte)(dst), n), f.findMemory(src, int64(n)))
			})
		})
	}
	api.CopyOnDevice = func(dst, src driver.Ptr, n uintptr, s driver.StreamHandle) driver.Result {
		return f.runCall("cuMemcpyDtoDAsync", true, func() driver.Result {
			return runOrCapture(s, func() driver.Result {
				return move("copy on the device", f.findMemory(dst, int64(n)), f.findMemory(src, int64(n)))
			})
		})
	}
	api.Set8 = func(dst driver.Ptr, v uint8, n uintptr, s driver.StreamHandle) driver.Result {
		return f.runCall("cuMemsetD8Async", true, func() driver.Result {
			return runOrCapture(s, func() driver.Result {
				b := f.findMemory(dst, int64(n))
				if b == nil {
					return f.reportFault("set of %d bytes beyond what is allocated", n)
				}
				for i := range b {
					b[i] = v
				}
				return driver.Success
			})
		})
	}
}

// addGraphCalls sets the functions of captures and graphs.
func (f *Fake) addGraphCalls(api *driver.API) {
	api.CaptureBegin = func(s driver.StreamHandle) driver.Result {
		return f.runCall("cuStreamBeginCapture", true, func() driver.Result {
			if f.captures[s] != nil {
				return f.reportFault("a stream is captured twice")
			}
			f.captures[s] = new([]func() driver.Result)
			return driver.Success
		})
	}
	api.CaptureEnd = func(g *driver.GraphHandle, s driver.StreamHandle) driver.Result {
		return f.runCall("cuStreamEndCapture", true, func() driver.Result {
			if f.captures[s] == nil {
				return f.reportFault("the end of a capture that did not begin")
			}
			*g = driver.GraphHandle(f.newHandle("graph"))
			f.graphs[uintptr(*g)] = *f.captures[s]
			delete(f.captures, s)
			return driver.Success
		})
	}
	api.IsCapturing = func(status *int32, s driver.StreamHandle) driver.Result {
		return f.runCall("cuStreamIsCapturing", true, func() driver.Result {
			if *status = 0; f.captures[s] != nil {
				*status = 1
			}
			return driver.Success
		})
	}
	api.CaptureMode = func(mode *int32) driver.Result {
		return f.runCall("cuThreadExchangeStreamCaptureMode", true, func() driver.Result {
			was := f.relaxedThreads[threadID()]
			f.relaxedThreads[threadID()] = *mode == 2
			if *mode = 0; was {
				*mode = 2
			}
			return driver.Success
		})
	}
	api.GraphInstantiate = func(e *driver.GraphExecHandle, g driver.GraphHandle) driver.Result {
		return f.runCall("cuGraphInstantiate", true, func() driver.Result {
			*e = driver.GraphExecHandle(f.newHandle("executable graph"))
			f.graphs[uintptr(*e)] = f.graphs[uintptr(g)]
			return driver.Success
		})
	}
	api.GraphDestroy = func(g driver.GraphHandle) driver.Result {
		return f.runCall("cuGraphDestroy", true, func() driver.Result { return f.removeHandle(uintptr(g), "graph") })
	}
	api.GraphExecDestroy = func(e driver.GraphExecHandle) driver.Result {
		return f.runCall("cuGraphExecDestroy", true,
			func() driver.Result { return f.removeHandle(uintptr(e), "executable graph") })
	}
	api.GraphLaunch = func(e driver.GraphExecHandle, s driver.StreamHandle) driver.Result {
		var steps []func() driver.Result
		r := f.runCall("cuGraphLaunch", true, func() driver.Result {
			if f.handles[uintptr(e)] != "executable graph" {
				return f.reportFault("launch of a graph that does not exist")
			}
			steps = f.graphs[uintptr(e)]
			return driver.Success
		})
		for _, do := range steps {
			if r == driver.Success {
				r = do()
			}
		}
		return r
	}
}

// addOrderCalls sets the functions of streams and events.
func (f *Fake) addOrderCalls(api *driver.API) {
	api.StreamCreate = func(s *driver.StreamHandle) driver.Result {
		return f.runCall("cuStreamCreate", true, func() driver.Result {
			*s = driver.StreamHandle(f.newHandle("stream"))
			return driver.Success
		})
	}
	api.StreamDestroy = func(s driver.StreamHandle) driver.Result {
		return f.runCall("cuStreamDestroy", true, func() driver.Result { return f.removeHandle(uintptr(s), "stream") })
	}
	api.StreamSync = func(driver.StreamHandle) driver.Result { return f.runCall("cuStreamSynchronize", true, nil) }
	api.StreamWait = func(driver.StreamHandle, driver.EventHandle) driver.Result {
		return f.runCall("cuStreamWaitEvent", true, nil)
	}
	api.EventCreate = func(e *driver.EventHandle, _ driver.EventFlags) driver.Result {
		return f.runCall("cuEventCreate", true, func() driver.Result {
			*e = driver.EventHandle(f.newHandle("event"))
			return driver.Success
		})
	}
	api.EventDestroy = func(e driver.EventHandle) driver.Result {
		return f.runCall("cuEventDestroy", true, func() driver.Result { return f.removeHandle(uintptr(e), "event") })
	}
	api.EventRecord = func(driver.EventHandle, driver.StreamHandle) driver.Result {
		return f.runCall("cuEventRecord", true, nil)
	}
	api.EventSync = func(driver.EventHandle) driver.Result { return f.runCall("cuEventSynchronize", true, nil) }
	api.EventElapsed = func(ms *float32, _, _ driver.EventHandle) driver.Result {
		return f.runCall("cuEventElapsedTime", true, func() driver.Result { *ms = 0.25; return driver.Success })
	}
}
