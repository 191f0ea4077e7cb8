//go:build linux && (amd64 || arm64) && !nocuda

package main

// #include "plaid_maxsim.h"
import "C"

import (
	"errors"
	"math"
	"unsafe"

	"github.com/plaid-ir/plaid/kernels/cuda/tensor"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// deviceCodes maps errors of a device to codes of the header.
var deviceCodes = []struct {
	err  error
	code C.int
}{
	{tensor.ErrWorkspace, C.PLAID_ERR_MEMORY},
	{tensor.ErrOutOfMemory, C.PLAID_ERR_MEMORY},
	{tensor.ErrUnsupported, C.PLAID_ERR_UNSUPPORTED},
	{tensor.ErrNoDriver, C.PLAID_ERR_DEVICE},
	{tensor.ErrDriverTooOld, C.PLAID_ERR_DEVICE},
	{tensor.ErrNoDevice, C.PLAID_ERR_DEVICE},
	{tensor.ErrDeviceLost, C.PLAID_ERR_DEVICE},
}

// runOnDevice opens the device of a call, and runs the call there or sets the size of its workspace.
// The functions capture the call, so that it is not moved to the heap.
func runOnDevice(w *work, run func(d *tensor.Device) error, workspace func(d *tensor.Device) (int64, error)) error {
	if err := checkRange("place.device", w.place.device, 0, math.MaxInt32); err != nil {
		return err
	}
	d, err := tensor.Open(int(w.place.device))
	if err != nil {
		return deviceError(err)
	}
	if w.workspaceBytes == nil {
		return deviceError(run(d))
	}
	bytes, err := workspace(d)
	if err == nil {
		*w.workspaceBytes = bytes
	}
	return deviceError(err)
}

// deviceError adds the code of the header to an error of a device.
func deviceError(err error) error {
	if err == nil {
		return nil
	}
	for i := range deviceCodes {
		if x := &deviceCodes[i]; errors.Is(err, x.err) {
			return &codedError{x.code, err.Error()}
		}
	}
	if _, ok := errors.AsType[*tensor.DriverError](err); ok {
		return &codedError{C.PLAID_ERR_DEVICE, err.Error()}
	}
	return err
}

// The functions below run a checked call on its device, or set the size of its workspace.

func deviceScore(w *work, c *cScore) error {
	call := tensor.ScoreCall{
		Place: w.tensorPlace(), Q: w.q.tensorBatch(), D: w.d.tensorBatch(), Pairs: w.tensorPairs(),
		Weights: elementAddress(c.weights), Normalize: c.normalize != 0,
		Scores: elementAddress(c.scores), Argmax: elementAddress(c.argmax),
	}
	return runOnDevice(w,
		func(d *tensor.Device) error { return d.Score(&call) },
		func(d *tensor.Device) (int64, error) { return d.ScoreWorkspace(&call) })
}

func deviceGradients(w *work, c *cGradient) error {
	call := tensor.GradientCall{
		Place: w.tensorPlace(), Q: w.q.tensorBatch(), D: w.d.tensorBatch(), Pairs: w.tensorPairs(),
		Weights: elementAddress(c.weights), Normalize: c.normalize != 0,
		Argmax: elementAddress(c.argmax), Upstream: elementAddress(c.upstream),
		DQ: address(c.dq), DD: address(c.dd), DQType: matrixType(c.dq_type), DDType: matrixType(c.dd_type),
	}
	return runOnDevice(w,
		func(d *tensor.Device) error { return d.Gradients(&call) },
		func(d *tensor.Device) (int64, error) { return d.GradientsWorkspace(&call) })
}

func deviceChamfer(w *work, c *cChamfer) error {
	call := tensor.ChamferCall{
		Place: w.tensorPlace(), Q: w.q.tensorBatch(), D: w.d.tensorBatch(), Pairs: w.tensorPairs(),
		Metric: maxsim.Metric(c.metric), Mean: c.mean != 0, Distances: elementAddress(c.distances),
		NearestQ: elementAddress(c.nearest_q), NearestD: elementAddress(c.nearest_d),
	}
	return runOnDevice(w,
		func(d *tensor.Device) error { return d.Chamfer(&call) },
		func(d *tensor.Device) (int64, error) { return d.ChamferWorkspace(&call) })
}

func deviceChamferGradients(w *work, c *cChamferGradient) error {
	call := tensor.ChamferGradientCall{
		Place: w.tensorPlace(), Q: w.q.tensorBatch(), D: w.d.tensorBatch(), Pairs: w.tensorPairs(),
		Metric: maxsim.Metric(c.metric), Mean: c.mean != 0,
		NearestQ: elementAddress(c.nearest_q), NearestD: elementAddress(c.nearest_d),
		Upstream: elementAddress(c.upstream),
		DQ:       address(c.dq), DD: address(c.dd), DQType: matrixType(c.dq_type), DDType: matrixType(c.dd_type),
	}
	return runOnDevice(w,
		func(d *tensor.Device) error { return d.ChamferGradients(&call) },
		func(d *tensor.Device) (int64, error) { return d.ChamferGradientsWorkspace(&call) })
}

func deviceHead(w *work, c *cHead) error {
	call := tensor.HeadCall{
		Place: w.tensorPlace(), Q: w.q.tensorBatch(), D: w.d.tensorBatch(), Pairs: w.tensorPairs(),
		QueryWeights: elementAddress(c.query_weights), Normalize: c.normalize != 0,
		Head: address(c.head), HeadType: matrixType(c.head_type), Bias: elementAddress(c.bias),
		Scores: elementAddress(c.scores),
	}
	return runOnDevice(w,
		func(d *tensor.Device) error { return d.ScoreHead(&call) },
		func(d *tensor.Device) (int64, error) { return d.ScoreHeadWorkspace(&call) })
}

// tensorPlace returns the stream and the workspace of a call.
func (w *work) tensorPlace() tensor.Place {
	return tensor.Place{
		Stream:    address(w.place.stream),
		Workspace: address(w.place.workspace), WorkspaceBytes: int64(w.place.workspace_bytes),
	}
}

// tensorPairs returns the pairs of a call for the device.
func (w *work) tensorPairs() tensor.Pairs {
	p := tensor.Pairs{
		Count:   int(w.pairs.count),
		Queries: elementAddress(w.pairs.queries), Documents: elementAddress(w.pairs.docs),
	}
	switch w.pairs.kind {
	case C.PLAID_ALL:
		p.Kind = tensor.All
	case C.PLAID_OWN:
		p.Kind = tensor.Own
	case C.PLAID_LISTED:
		p.Kind = tensor.Listed
	}
	return p
}

// tensorBatch returns a batch in memory of the device.
func (s *operand) tensorBatch() tensor.Batch {
	return tensor.Batch{
		Data: address(s.data), Scales: elementAddress(s.scales), Zeros: elementAddress(s.zeros),
		Offsets: elementAddress(s.offsets), Lengths: elementAddress(s.lengths),
		Mask: elementAddress(s.mask), MaskStride: int(s.mask_stride),
		Type: matrixType(s._type), Dim: int(s.dim),
		Items: int(s.items), Rows: int(s.rows), Stride: int(s.stride), Longest: int(s.longest),
	}
}

// address returns an address as a number, 0 for NULL.
func address(p unsafe.Pointer) uint64 { return uint64(uintptr(p)) }

// elementAddress returns the address of a pointer to elements as a number.
func elementAddress[T any](p *T) uint64 { return address(unsafe.Pointer(p)) }
