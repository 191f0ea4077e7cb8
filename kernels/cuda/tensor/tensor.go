// Package tensor computes MaxSim, its gradients and Chamfer distances on memory and streams of
// the caller: tensors of another library that are on a GPU already.
//
// A call puts its work into a stream of the device's primary context, and does not wait for
// it. It allocates nothing in the stream and starts no goroutine: memory for the time of its
// work is the workspace of the call. The stream may be one that is being captured into a graph.
// The work itself is described at [github.com/plaid-ir/plaid/kernels/maxsim].
package tensor

import (
	"fmt"
	"sync"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/dense"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/module"
)

// Devices and their calls. Numbers of type uint64 are addresses in the device's memory.
type (
	// Device is one GPU. Any thread may use it.
	Device = dense.Device
	// Batch is token vectors and how they are cut into items.
	Batch = dense.Batch
	// Pairs is which query meets which document.
	Pairs = dense.PairList
	// PairKind is All, Own or Listed.
	PairKind = dense.PairKind
	// Place is where the work of a call is done.
	Place = dense.Place
	// ScoreCall asks for scores.
	ScoreCall = dense.ScoreCall
	// GradientCall asks for the gradients of scores.
	GradientCall = dense.GradientCall
	// HeadCall asks for scores of hidden states.
	HeadCall = dense.HeadCall
	// ChamferCall asks for Chamfer distances.
	ChamferCall = dense.ChamferCall
	// ChamferGradientCall asks for the gradients of Chamfer distances.
	ChamferGradientCall = dense.ChamferGradientCall
)

// DriverError is a call of the driver that failed; test with errors.As.
type DriverError = driver.Error

// The kinds of pairs.
const (
	All    = dense.PairsAll
	Own    = dense.PairsOwn
	Listed = dense.PairsListed
)

// Errors of calls; test with errors.Is. Sizes that do not fit are kernels.ErrShape.
var (
	// ErrWorkspace: the workspace of the call is too small, or not aligned to 256 bytes.
	ErrWorkspace = dense.ErrWorkspace
	// ErrUnsupported: the device, or the call, is not one that there are kernels for.
	ErrUnsupported = driver.ErrUnsupported
	// ErrNoDriver: there is no CUDA driver, or it has no device.
	ErrNoDriver = driver.ErrNoDriver
	// ErrDriverTooOld: the driver lacks functions, or cannot run the kernels.
	ErrDriverTooOld = driver.ErrDriverTooOld
	// ErrNoDevice: no device has the number asked for.
	ErrNoDevice = driver.ErrNoDevice
	// ErrOutOfMemory: the device is full.
	ErrOutOfMemory = driver.ErrOutOfMemory
	// ErrDeviceLost: the device failed, and is of no more use to the process.
	ErrDeviceLost = driver.ErrDeviceLost
)

var opened struct {
	sync.Mutex
	devices map[int]*Device
}

// Open returns the device with an ordinal number. It is opened once in a process, and stays open.
//
// Errors: [ErrNoDriver], [ErrDriverTooOld], [ErrNoDevice], [ErrUnsupported], [ErrOutOfMemory].
func Open(ordinal int) (*Device, error) {
	opened.Lock()
	defer opened.Unlock()
	if d := opened.devices[ordinal]; d != nil {
		return d, nil
	}
	api, err := driver.Load()
	if err != nil {
		return nil, err
	}
	found, err := driver.Devices(api)
	if err != nil {
		return nil, err
	}
	if ordinal < 0 || ordinal >= len(found) {
		return nil, fmt.Errorf("%w: number %d; there are %d", ErrNoDevice, ordinal, len(found))
	}
	d, err := dense.NewDevice(api, found[ordinal], module.Families{module.Dense})
	if err != nil {
		return nil, err
	}
	if opened.devices == nil {
		opened.devices = map[int]*Device{}
	}
	opened.devices[ordinal] = d
	return d, nil
}
