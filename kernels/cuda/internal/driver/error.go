package driver

import (
	"errors"
	"fmt"

	"github.com/plaid-ir/plaid/kernels"
)

// Errors of this package; test with errors.Is.
var (
	// ErrNoDriver: there is no CUDA driver, or it has no device.
	ErrNoDriver = errors.New("no CUDA driver")
	// ErrDriverTooOld: the driver lacks functions, or cannot run the kernels.
	ErrDriverTooOld = errors.New("CUDA driver too old")
	// ErrNoDevice: no device has the requested number.
	ErrNoDevice = errors.New("no such CUDA device")
	// ErrUnsupported: the device's compute capability is too low.
	ErrUnsupported = errors.New("CUDA device not supported")
	// ErrOutOfMemory: the device, or page-locked host memory, is full.
	ErrOutOfMemory = kernels.ErrDeviceMemory
	// ErrDeviceLost: the device failed; its context cannot be used any more.
	ErrDeviceLost = errors.New("CUDA device lost")
)

// Result is a CUresult.
type Result int32

// The results that this package distinguishes or names.
const (
	Success             Result = 0
	InvalidValue        Result = 1
	OutOfMemory         Result = 2
	NotInitialized      Result = 3
	NoDevice            Result = 100
	InvalidDevice       Result = 101
	InvalidContext      Result = 201
	NoBinaryForGPU      Result = 209
	ECCUncorrectable    Result = 214
	InvalidPTX          Result = 218
	UnsupportedPTX      Result = 222
	NotFound            Result = 500
	IllegalAddress      Result = 700
	LaunchTimeout       Result = 702
	Assert              Result = 710
	HardwareStackError  Result = 714
	IllegalInstruction  Result = 715
	MisalignedAddress   Result = 716
	InvalidAddressSpace Result = 717
	InvalidPC           Result = 718
	LaunchFailed        Result = 719
	SystemNotReady      Result = 802
	DriverMismatch      Result = 803
	Unknown             Result = 999
)

var resultNames = map[Result]string{
	InvalidValue:        "invalid value",
	OutOfMemory:         "out of memory",
	NotInitialized:      "not initialized",
	NoDevice:            "no device",
	InvalidDevice:       "invalid device",
	InvalidContext:      "invalid context",
	NoBinaryForGPU:      "no binary for GPU",
	ECCUncorrectable:    "uncorrectable ECC error",
	InvalidPTX:          "invalid PTX",
	UnsupportedPTX:      "PTX version not supported by the driver",
	NotFound:            "not found",
	IllegalAddress:      "illegal address",
	LaunchTimeout:       "launch timeout",
	Assert:              "assert",
	HardwareStackError:  "hardware stack error",
	IllegalInstruction:  "illegal instruction",
	MisalignedAddress:   "misaligned address",
	InvalidAddressSpace: "invalid address space",
	InvalidPC:           "invalid program counter",
	LaunchFailed:        "launch failed",
	SystemNotReady:      "system not ready",
	DriverMismatch:      "driver and library versions differ",
	Unknown:             "unknown",
}

func (r Result) String() string {
	if name, ok := resultNames[r]; ok {
		return name
	}
	return "unnamed"
}

// Error describes a call of the driver that failed.
type Error struct {
	Op   string // the function of the driver, such as cuMemAlloc
	Code Result
	Note string // sizes, names, the compiler's log
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: CUDA error %d (%s)", e.Op, e.Code, e.Code)
	if e.Note != "" {
		s += ": " + e.Note
	}
	return s
}

// Is makes errors.Is find the sentinel that the code stands for.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrNoDriver:
		return e.Code == NoDevice || e.Code == SystemNotReady
	case ErrDriverTooOld:
		return e.Code == UnsupportedPTX || e.Code == DriverMismatch
	case ErrUnsupported:
		return e.Code == NoBinaryForGPU
	case ErrOutOfMemory:
		return e.Code == OutOfMemory
	case ErrDeviceLost:
		return e.Code.endsContext()
	}
	return false
}

// endsContext reports whether the context cannot be used any more after this result.
func (r Result) endsContext() bool {
	switch r {
	case ECCUncorrectable, IllegalAddress, LaunchTimeout, Assert, HardwareStackError, IllegalInstruction,
		MisalignedAddress, InvalidAddressSpace, InvalidPC, LaunchFailed, Unknown:
		return true
	}
	return false
}

// resultError converts a result of the driver's function op: nil for Success, else an *Error with a note.
func resultError(r Result, op, format string, args ...any) error {
	if r == Success {
		return nil
	}
	return &Error{Op: op, Code: r, Note: fmt.Sprintf(format, args...)}
}
