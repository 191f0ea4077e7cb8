package main

// #include "plaid_maxsim.h"
import "C"

import (
	"context"
	"unsafe"

	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// execute runs a checked call by one of two functions. If the caller only wants the size of the
// workspace, it sets that instead, which is 0 on the processor.
func (w *work) execute(runOnDevice func() error, runOnProcessor func(h *host) error) error {
	switch {
	case w.onDevice():
		return runOnDevice()
	case w.workspaceBytes != nil:
		*w.workspaceBytes = 0
		return nil
	}
	h, err := newHost(w)
	defer h.release()
	if err != nil {
		return err
	}
	return runOnProcessor(h)
}

// scoreCall executes plaid_score, or sets the size of its workspace.
func scoreCall(c cScore, workspaceBytes *int64) error {
	w, err := checkCall(&c.place, &c.q, &c.d, &c.pairs, workspaceBytes)
	if err == nil {
		err = w.checkSameDim()
	}
	var a arrays
	if err == nil && a.checkCommon(&w) {
		a.checkArray("weights", unsafe.Pointer(c.weights), int(c.q.rows), 4)
		a.requireArray("scores", unsafe.Pointer(c.scores), w.pairCount, 4)
		a.checkArray("argmax", unsafe.Pointer(c.argmax), w.argmaxQ, 4)
		err = a.err
	}
	if err != nil {
		return err
	}
	return w.execute(func() error { return deviceScore(&w, &c) }, func(h *host) error {
		return h.backend.Score(context.Background(), &maxsim.Call{
			Q:      &h.q.batch,
			D:      &h.d.batch,
			Pairs:  h.pairs,
			Terms:  w.callTerms(c.weights, c.normalize),
			Scores: cSlice((*float32)(c.scores), w.pairCount),
			Argmax: cSlice((*int32)(c.argmax), w.argmaxQ),
		})
	})
}

// callTerms returns the terms of scores on the processor.
func (w *work) callTerms(weights *C.float, normalize C.int64_t) maxsim.Terms {
	return maxsim.Terms{
		Weights: cSlice((*float32)(weights), int(w.q.rows)), Normalize: normalize != 0, Threads: w.threads(),
	}
}

// gradientsCall executes plaid_gradients, or sets the size of its workspace.
func gradientsCall(c cGradient, workspaceBytes *int64) error {
	w, err := checkCall(&c.place, &c.q, &c.d, &c.pairs, workspaceBytes)
	if err == nil {
		err = firstError(w.checkSameDim(),
			checkGradientType("dq", c.dq, c.dq_type), checkGradientType("dd", c.dd, c.dd_type))
	}
	var a arrays
	if err == nil && a.checkCommon(&w) {
		a.checkArray("weights", unsafe.Pointer(c.weights), int(c.q.rows), 4)
		a.requireArray("argmax", unsafe.Pointer(c.argmax), w.argmaxQ, 4)
		a.checkArray("upstream", unsafe.Pointer(c.upstream), w.pairCount, 4)
		a.checkGradient(&w.q, "dq", c.dq, c.dq_type)
		a.checkGradient(&w.d, "dd", c.dd, c.dd_type)
		err = a.err
	}
	if err != nil {
		return err
	}
	return w.execute(func() error { return deviceGradients(&w, &c) }, func(h *host) error {
		return h.backend.Gradients(context.Background(), &maxsim.GradCall{
			Q:        &h.q.batch,
			D:        &h.d.batch,
			Pairs:    h.pairs,
			Terms:    w.callTerms(c.weights, c.normalize),
			Argmax:   cSlice((*int32)(c.argmax), w.argmaxQ),
			Upstream: cSlice((*float32)(c.upstream), w.pairCount),
			DQ:       w.q.gradientMatrix(&h.dq, c.dq, c.dq_type),
			DD:       w.d.gradientMatrix(&h.dd, c.dd, c.dd_type),
		})
	})
}

// gradientMatrix sets g to the memory for the gradient of a batch. nil means that it is not computed.
func (s *operand) gradientMatrix(g *maxsim.Gradient, p unsafe.Pointer, kind C.int64_t) *maxsim.Gradient {
	if p == nil {
		return nil
	}
	g.Matrix = matrix(p, kind, s.rows, s.dim)
	useLargePages(p, g.Rows()*g.Dim*g.Type.Size())
	return g
}

// chamferCall executes plaid_chamfer, or sets the size of its workspace.
func chamferCall(c cChamfer, workspaceBytes *int64) error {
	w, err := checkCall(&c.place, &c.q, &c.d, &c.pairs, workspaceBytes)
	if err == nil {
		err = firstError(w.checkSameDim(), checkRange("metric", c.metric, C.PLAID_L2_SQUARED, C.PLAID_L1))
	}
	var a arrays
	if err == nil && a.checkCommon(&w) {
		a.requireArray("distances", unsafe.Pointer(c.distances), w.pairCount, 4)
		a.checkArray("nearest_q", unsafe.Pointer(c.nearest_q), w.argmaxQ, 4)
		a.checkArray("nearest_d", unsafe.Pointer(c.nearest_d), w.argmaxD, 4)
		err = a.err
	}
	if err != nil {
		return err
	}
	return w.execute(func() error { return deviceChamfer(&w, &c) }, func(h *host) error {
		return maxsim.Chamfer(context.Background(), h.backend, &maxsim.ChamferCall{
			X:         &h.q.batch,
			Y:         &h.d.batch,
			Pairs:     h.pairs,
			Metric:    maxsim.Metric(c.metric),
			Mean:      c.mean != 0,
			Threads:   w.threads(),
			Distances: cSlice((*float32)(c.distances), w.pairCount),
			NearestX:  cSlice((*int32)(c.nearest_q), w.argmaxQ),
			NearestY:  cSlice((*int32)(c.nearest_d), w.argmaxD),
		})
	})
}

// chamferGradientsCall executes plaid_chamfer_gradients, or sets the size of its workspace.
func chamferGradientsCall(c cChamferGradient, workspaceBytes *int64) error {
	w, err := checkCall(&c.place, &c.q, &c.d, &c.pairs, workspaceBytes)
	if err == nil {
		err = firstError(w.checkSameDim(), checkRange("metric", c.metric, C.PLAID_L2_SQUARED, C.PLAID_L1),
			checkGradientType("dq", c.dq, c.dq_type), checkGradientType("dd", c.dd, c.dd_type))
	}
	var a arrays
	if err == nil && a.checkCommon(&w) {
		a.requireArray("nearest_q", unsafe.Pointer(c.nearest_q), w.argmaxQ, 4)
		a.requireArray("nearest_d", unsafe.Pointer(c.nearest_d), w.argmaxD, 4)
		a.checkArray("upstream", unsafe.Pointer(c.upstream), w.pairCount, 4)
		a.checkGradient(&w.q, "dq", c.dq, c.dq_type)
		a.checkGradient(&w.d, "dd", c.dd, c.dd_type)
		err = a.err
	}
	if err != nil {
		return err
	}
	return w.execute(func() error { return deviceChamferGradients(&w, &c) }, func(h *host) error {
		return maxsim.ChamferGradients(context.Background(), h.backend, &maxsim.ChamferGradCall{
			X:        &h.q.batch,
			Y:        &h.d.batch,
			Pairs:    h.pairs,
			Metric:   maxsim.Metric(c.metric),
			Mean:     c.mean != 0,
			Threads:  w.threads(),
			NearestX: cSlice((*int32)(c.nearest_q), w.argmaxQ),
			NearestY: cSlice((*int32)(c.nearest_d), w.argmaxD),
			Upstream: cSlice((*float32)(c.upstream), w.pairCount),
			DX:       w.q.gradientMatrix(&h.dq, c.dq, c.dq_type),
			DY:       w.d.gradientMatrix(&h.dd, c.dd, c.dd_type),
		})
	})
}

// headCall executes plaid_head, or sets the size of its workspace.
func headCall(c cHead, workspaceBytes *int64) error {
	w, err := checkCall(&c.place, &c.q, &c.d, &c.pairs, workspaceBytes)
	if err == nil && (c.head_type < C.PLAID_F32 || c.head_type > C.PLAID_BF16) {
		err = argumentErrorf("head_type is %d; heads are float32, float16 or bfloat16", c.head_type)
	}
	var a arrays
	if err == nil && a.checkCommon(&w) {
		a.checkArray("query_weights", unsafe.Pointer(c.query_weights), int(c.q.rows), 4)
		a.requireArray("head", c.head, int(c.q.dim*c.d.dim), elementBytes(c.head_type))
		a.checkArray("bias", unsafe.Pointer(c.bias), int(c.q.dim), 4)
		a.requireArray("scores", unsafe.Pointer(c.scores), w.pairCount, 4)
		err = a.err
	}
	if err != nil {
		return err
	}
	return w.execute(func() error { return deviceHead(&w, &c) }, func(h *host) error {
		return maxsim.ScoreHead(context.Background(), h.backend, &maxsim.HeadCall{
			Q: &h.q.batch, D: &h.d.batch, Pairs: h.pairs, Terms: w.callTerms(c.query_weights, c.normalize),
			Head: maxsim.Head{
				Weights: matrix(c.head, c.head_type, w.q.dim, w.d.dim), Bias: cSlice((*float32)(c.bias), int(w.q.dim)),
			},
			Scores: cSlice((*float32)(c.scores), w.pairCount),
		})
	})
}
