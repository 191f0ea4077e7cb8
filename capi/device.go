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

// deviceCodes are the codes of errors of a device.
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

// onDevice opens the device of a call, and does the call there or sets the size of its workspace. The
// functions capture the call, so that it is not moved to the heap.
func onDevice(w *work, do func(d *tensor.Device) error, workspace func(d *tensor.Device) (int64, error)) error {
	if err := inRange("place.device", w.place.device, 0, math.MaxInt32); err != nil {
		return err
	}
	d, err := tensor.Open(int(w.place.device))
	if err != nil {
		return deviceFault(err)
	}
	if w.wanted == nil {
		return deviceFault(do(d))
	}
	bytes, err := workspace(d)
	if err == nil {
		*w.wanted = bytes
	}
	return deviceFault(err)
}

// deviceFault gives an error of a device its code.
func deviceFault(err error) error {
	if err == nil {
		return nil
	}
	for i := range deviceCodes {
		if x := &deviceCodes[i]; errors.Is(err, x.err) {
			return &fault{x.code, err.Error()}
		}
	}
	if _, ok := errors.AsType[*tensor.DriverError](err); ok {
		return &fault{C.PLAID_ERR_DEVICE, err.Error()}
	}
	return err
}

func deviceScore(w *work, c *cScore) error {
	call := tensor.ScoreCall{
		Place: w.tensorPlace(), Q: w.q.tensor(), D: w.d.tensor(), Pairs: w.tensorPairs(),
		Weights: addressOf(c.weights), Normalize: c.normalize != 0,
		Scores: addressOf(c.scores), Argmax: addressOf(c.argmax),
	}
	return onDevice(w,
		func(d *tensor.Device) error { return d.Score(&call) },
		func(d *tensor.Device) (int64, error) { return d.ScoreWorkspace(&call) })
}

func deviceGradients(w *work, c *cGradient) error {
	call := tensor.GradientCall{
		Place: w.tensorPlace(), Q: w.q.tensor(), D: w.d.tensor(), Pairs: w.tensorPairs(),
		Weights: addressOf(c.weights), Normalize: c.normalize != 0,
		Argmax: addressOf(c.argmax), Upstream: addressOf(c.upstream),
		DQ: address(c.dq), DD: address(c.dd), DQType: typeOf(c.dq_type), DDType: typeOf(c.dd_type),
	}
	return onDevice(w,
		func(d *tensor.Device) error { return d.Gradients(&call) },
		func(d *tensor.Device) (int64, error) { return d.GradientsWorkspace(&call) })
}

func deviceChamfer(w *work, c *cChamfer) error {
	call := tensor.ChamferCall{
		Place: w.tensorPlace(), Q: w.q.tensor(), D: w.d.tensor(), Pairs: w.tensorPairs(),
		Metric: maxsim.Metric(c.metric), Mean: c.mean != 0, Distances: addressOf(c.distances),
		NearestQ: addressOf(c.nearest_q), NearestD: addressOf(c.nearest_d),
	}
	return onDevice(w,
		func(d *tensor.Device) error { return d.Chamfer(&call) },
		func(d *tensor.Device) (int64, error) { return d.ChamferWorkspace(&call) })
}

func deviceChamferGradients(w *work, c *cChamferGradient) error {
	call := tensor.ChamferGradientCall{
		Place: w.tensorPlace(), Q: w.q.tensor(), D: w.d.tensor(), Pairs: w.tensorPairs(),
		Metric: maxsim.Metric(c.metric), Mean: c.mean != 0,
		NearestQ: addressOf(c.nearest_q), NearestD: addressOf(c.nearest_d),
		Upstream: addressOf(c.upstream),
		DQ:       address(c.dq), DD: address(c.dd), DQType: typeOf(c.dq_type), DDType: typeOf(c.dd_type),
	}
	return onDevice(w,
		func(d *tensor.Device) error { return d.ChamferGradients(&call) },
		func(d *tensor.Device) (int64, error) { return d.ChamferGradientsWorkspace(&call) })
}

func deviceHead(w *work, c *cHead) error {
	call := tensor.HeadCall{
		Place: w.tensorPlace(), Q: w.q.tensor(), D: w.d.tensor(), Pairs: w.tensorPairs(),
		QueryWeights: addressOf(c.query_weights), Normalize: c.normalize != 0,
		Head: address(c.head), HeadType: typeOf(c.head_type), Bias: addressOf(c.bias),
		Scores: addressOf(c.scores),
	}
	return onDevice(w,
		func(d *tensor.Device) error { return d.ScoreHead(&call) },
		func(d *tensor.Device) (int64, error) { return d.ScoreHeadWorkspace(&call) })
}

func (w *work) tensorPlace() tensor.Place {
	return tensor.Place{
		Stream:    address(w.place.stream),
		Workspace: address(w.place.workspace), WorkspaceBytes: int64(w.place.workspace_bytes),
	}
}

// tensorPairs are the pairs of a call: the kinds have the numbers of the header.
func (w *work) tensorPairs() tensor.Pairs {
	p := tensor.Pairs{
		Count:   int(w.pairs.count),
		Queries: addressOf(w.pairs.queries), Documents: addressOf(w.pairs.docs),
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

// tensor is a batch in memory of the device.
func (s *side) tensor() tensor.Batch {
	return tensor.Batch{
		Data: address(s.data), Scales: addressOf(s.scales), Zeros: addressOf(s.zeros),
		Offsets: addressOf(s.offsets), Lengths: addressOf(s.lengths),
		Mask: addressOf(s.mask), MaskStride: int(s.mask_stride),
		Type: typeOf(s._type), Dim: int(s.dim),
		Items: int(s.items), Rows: int(s.rows), Stride: int(s.stride), Longest: int(s.longest),
	}
}

// address returns the number of an address, 0 for NULL.
func address(p unsafe.Pointer) uint64 { return uint64(uintptr(p)) }

// addressOf is address of a pointer to elements.
func addressOf[T any](p *T) uint64 { return address(unsafe.Pointer(p)) }
