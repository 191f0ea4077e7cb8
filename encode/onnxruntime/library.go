//go:build !noonnxruntime && (linux || darwin) && (amd64 || arm64)

package onnxruntime

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/plaid-ir/plaid/encode/engine"
)

// handle is a pointer to an object of the library, in the library's memory.
type handle = unsafe.Pointer

// slots are the indexes of functions in the table that GetApi returns. They never
// change: later versions append functions.
const (
	slotGetErrorMessage                  = 2
	slotCreateEnv                        = 3
	slotCreateSession                    = 7
	slotRun                              = 9
	slotCreateSessionOptions             = 10
	slotDisableMemPattern                = 17
	slotSetSessionGraphOptimizationLevel = 23
	slotSetIntraOpNumThreads             = 24
	slotSetInterOpNumThreads             = 25
	slotSessionGetInputCount             = 30
	slotSessionGetOutputCount            = 31
	slotSessionGetInputTypeInfo          = 33
	slotSessionGetOutputTypeInfo         = 34
	slotSessionGetInputName              = 36
	slotSessionGetOutputName             = 37
	slotCreateRunOptions                 = 39
	slotRunOptionsSetTerminate           = 46
	slotCreateTensorWithData             = 49
	slotGetTensorMutableData             = 51
	slotCastTypeInfoToTensorInfo         = 55
	slotGetTensorElementType             = 60
	slotGetDimensionsCount               = 61
	slotGetDimensions                    = 62
	slotGetTensorTypeAndShape            = 65
	slotCreateCPUMemoryInfo              = 69
	slotAllocatorFree                    = 76
	slotGetAllocatorWithDefaultOptions   = 78
	slotReleaseStatus                    = 93
	slotReleaseMemoryInfo                = 94
	slotReleaseSession                   = 95
	slotReleaseValue                     = 96
	slotReleaseRunOptions                = 97
	slotReleaseTypeInfo                  = 98
	slotReleaseTensorInfo                = 99
	slotReleaseSessionOptions            = 100
	slotsOfVersion12                     = 219
)

// api holds the functions that are used. Functions that return a status return nil for
// success.
type api struct {
	path, version string
	env           handle
	allocator     handle // of the library, never released
	memory        handle // describes memory of the processor

	errorMessage  func(status handle) string
	createEnv     func(level int32, id string, out *handle) handle
	createSession func(env handle, path string, options handle, out *handle) handle
	run           func(session, options handle, names *handle, values *handle, n uintptr,
		outNames *handle, m uintptr, out *handle) handle
	createOptions     func(out *handle) handle
	disableMemPattern func(options handle) handle
	optimization      func(options handle, level int32) handle
	intraThreads      func(options handle, n int32) handle
	interThreads      func(options handle, n int32) handle
	count             [2]func(session handle, out *uintptr) handle           // of inputs, outputs
	typeInfo          [2]func(session handle, i uintptr, out *handle) handle // of an input, output
	name              [2]func(session handle, i uintptr, a handle, out *handle) handle
	createRunOptions  func(out *handle) handle
	terminate         func(options handle) handle
	createTensor      func(memory handle, data unsafe.Pointer, bytes uintptr, shape *int64, dims uintptr,
		kind int32, out *handle) handle
	data             func(value handle, out *unsafe.Pointer) handle
	tensorInfo       func(typeInfo handle, out *handle) handle
	elementType      func(info handle, out *int32) handle
	dimsCount        func(info handle, out *uintptr) handle
	dims             func(info handle, out *int64, n uintptr) handle
	shapeOf          func(value handle, out *handle) handle
	createMemory     func(allocator, kind int32, out *handle) handle
	free             func(allocator, p handle) handle
	defaultAllocator func(out *handle) handle

	releaseStatus, releaseMemory, releaseSession, releaseValue, releaseRunOptions func(handle)
	releaseTypeInfo, releaseTensorInfo, releaseOptions                            func(handle)
}

// base is the struct that OrtGetApiBase returns: two functions.
type base struct {
	getAPI, versionString uintptr
}

// loaded holds the libraries that were opened. They stay open.
var loaded struct {
	sync.Mutex
	byPath map[string]*api
}

// loadLibrary opens a library, or returns the one that was opened before.
func loadLibrary(path string) (*api, error) {
	loaded.Lock()
	defer loaded.Unlock()
	if a := loaded.byPath[path]; a != nil {
		return a, nil
	}
	a, err := open(path)
	if err != nil {
		return nil, err
	}
	if loaded.byPath == nil {
		loaded.byPath = map[string]*api{}
	}
	loaded.byPath[path] = a
	return a, nil
}

// open opens a library, checks its version, and registers its functions.
func open(path string) (*api, error) {
	fail := func(version string, err error) error {
		return &engine.LibraryError{Path: path, Found: version, Wanted: wanted, Err: err}
	}
	lib, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fail("", err)
	}
	entry, err := purego.Dlsym(lib, "OrtGetApiBase")
	if err != nil {
		purego.Dlclose(lib)
		return nil, fail("", errors.New("is not onnxruntime: there is no OrtGetApiBase"))
	}
	var getBase func() *base
	purego.RegisterFunc(&getBase, entry)
	b := getBase()
	if b == nil || b.getAPI == 0 || b.versionString == 0 {
		purego.Dlclose(lib)
		return nil, fail("", errors.New("returns no table of functions"))
	}
	var versionString func() string
	purego.RegisterFunc(&versionString, b.versionString)
	a := &api{path: path, version: versionString()}
	if !versionSupported(a.version) {
		purego.Dlclose(lib)
		return nil, fail(a.version, errors.New("is too old"))
	}
	var getAPI func(version uint32) *[slotsOfVersion12]uintptr
	purego.RegisterFunc(&getAPI, b.getAPI)
	table := getAPI(apiVersion)
	if table == nil {
		purego.Dlclose(lib)
		return nil, fail(a.version, fmt.Errorf("has no functions of API version %d", apiVersion))
	}
	a.register(table)
	// The level fatal keeps messages off the standard error: errors are returned as a status.
	const fatal, arena, defaultMemory = 4, 1, 0
	err = a.statusError(a.createEnv(fatal, "plaid", &a.env))
	if err == nil {
		err = a.statusError(a.defaultAllocator(&a.allocator))
	}
	if err == nil {
		err = a.statusError(a.createMemory(arena, defaultMemory, &a.memory))
	}
	if err != nil {
		return nil, fail("", err)
	}
	return a, nil
}

// versionSupported reports whether a version, like 1.31.1, is supported.
func versionSupported(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return err == nil && err2 == nil && major == 1 && minor >= apiVersion
}

// register sets the functions of a from the library's table.
func (a *api) register(table *[slotsOfVersion12]uintptr) {
	for slot, f := range map[int]any{
		slotGetErrorMessage: &a.errorMessage, slotCreateEnv: &a.createEnv,
		slotCreateSession: &a.createSession, slotRun: &a.run,
		slotCreateSessionOptions: &a.createOptions, slotDisableMemPattern: &a.disableMemPattern,
		slotSetSessionGraphOptimizationLevel: &a.optimization,
		slotSetIntraOpNumThreads:             &a.intraThreads, slotSetInterOpNumThreads: &a.interThreads,
		slotSessionGetInputCount: &a.count[0], slotSessionGetOutputCount: &a.count[1],
		slotSessionGetInputTypeInfo: &a.typeInfo[0], slotSessionGetOutputTypeInfo: &a.typeInfo[1],
		slotSessionGetInputName: &a.name[0], slotSessionGetOutputName: &a.name[1],
		slotCreateRunOptions: &a.createRunOptions, slotRunOptionsSetTerminate: &a.terminate,
		slotCreateTensorWithData: &a.createTensor, slotGetTensorMutableData: &a.data,
		slotCastTypeInfoToTensorInfo: &a.tensorInfo, slotGetTensorElementType: &a.elementType,
		slotGetDimensionsCount: &a.dimsCount, slotGetDimensions: &a.dims, slotGetTensorTypeAndShape: &a.shapeOf,
		slotCreateCPUMemoryInfo: &a.createMemory, slotAllocatorFree: &a.free,
		slotGetAllocatorWithDefaultOptions: &a.defaultAllocator,
		slotReleaseStatus:                  &a.releaseStatus, slotReleaseMemoryInfo: &a.releaseMemory,
		slotReleaseSession: &a.releaseSession, slotReleaseValue: &a.releaseValue,
		slotReleaseRunOptions: &a.releaseRunOptions, slotReleaseTypeInfo: &a.releaseTypeInfo,
		slotReleaseTensorInfo: &a.releaseTensorInfo, slotReleaseSessionOptions: &a.releaseOptions,
	} {
		purego.RegisterFunc(f, table[slot])
	}
}

// statusError converts a status to an error with its message, and releases it. nil means success.
func (a *api) statusError(status handle) error {
	if status == nil {
		return nil
	}
	defer a.releaseStatus(status)
	return errors.New(a.errorMessage(status))
}

// firstError returns the error of the first status that is one, and releases all.
func (a *api) firstError(statuses ...handle) (err error) {
	for _, s := range statuses {
		if e := a.statusError(s); err == nil {
			err = e
		}
	}
	return err
}
