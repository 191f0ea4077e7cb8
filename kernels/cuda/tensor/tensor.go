// Package tensor computes MaxSim, its gradients and Chamfer distances on the caller's memory and
// streams: tensors of another library that are on a GPU already.
//
// A call puts its work into a stream of the device's primary context, and does not wait for
// it. It allocates nothing in the stream and starts no goroutine: intermediate results are in the
// workspace that the caller passes. The stream may be captured into a graph meanwhile.
// Package [github.com/plaid-ir/plaid/kernels/maxsim] defines the computations.
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
	// Batch holds token vectors and how they are divided into items.
	Batch = dense.Batch
	// Pairs says which queries are scored with which documents.
	Pairs = dense.PairList
	// PairKind is All, Own or Listed.
	PairKind = dense.PairKind
	// Place is the stream and the workspace of a call.
	Place = dense.Place
	// ScoreCall is a computation of scores.
	ScoreCall = dense.ScoreCall
	// GradientCall is a computation of the gradients of scores.
	GradientCall = dense.GradientCall
	// HeadCall is a computation of the scores of hidden states.
	HeadCall = dense.HeadCall
	// ChamferCall is a computation of Chamfer distances.
	ChamferCall = dense.ChamferCall
	// ChamferGradientCall is a computation of the gradients of Chamfer distances.
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

// Errors of calls; test with errors.Is. Sizes that contradict each other are kernels.ErrShape.
var (
	// ErrWorkspace: the workspace of the call is too small, or not aligned to 256 bytes.
	ErrWorkspace = dense.ErrWorkspace
	// ErrUnsupported: no kernel supports the device or the call.
	ErrUnsupported = driver.ErrUnsupported
	// ErrNoDriver: there is no CUDA driver, or it has no device.
	ErrNoDriver = driver.ErrNoDriver
	// ErrDriverTooOld: the driver lacks functions, or cannot run the kernels.
	ErrDriverTooOld = driver.ErrDriverTooOld
	// ErrNoDevice: no device has the requested number.
	ErrNoDevice = driver.ErrNoDevice
	// ErrOutOfMemory: the device is full.
	ErrOutOfMemory = driver.ErrOutOfMemory
	// ErrDeviceLost: the device failed; this process cannot use it any more.
	ErrDeviceLost = driver.ErrDeviceLost
)

// opened holds the devices of this process, by number.
var opened struct {
	sync.Mutex
	devices map[int]*Device
}

// Open returns the device with the given number. It is opened once in a process, and stays open.
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
		return nil, fmt.Errorf("%w: number %d; the driver has %d devices, numbered from 0",
			ErrNoDevice, ordinal, len(found))
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
