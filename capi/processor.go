package main

// #include "plaid_maxsim.h"
import "C"

import (
	"context"
	"unsafe"

	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// do runs a checked call on its device, or sets the size of its workspace, which is 0 on the processor.
func (w *work) do(onDevice func() error, onProcessor func(h *host) error) error {
	switch {
	case w.onDevice():
		return onDevice()
	case w.wanted != nil:
		*w.wanted = 0
		return nil
	}
	h, err := newHost(w)
	defer h.free()
	if err != nil {
		return err
	}
	return onProcessor(h)
}

// score does a call, or says how much workspace it needs.
func score(c cScore, wanted *int64) error {
	w, err := check(&c.place, &c.q, &c.d, &c.pairs, wanted)
	if err == nil {
		err = w.sameDim()
	}
	var a arrays
	if err == nil && a.all(&w) {
		a.take("weights", unsafe.Pointer(c.weights), int(c.q.rows), 4)
		a.want("scores", unsafe.Pointer(c.scores), w.n, 4)
		a.take("argmax", unsafe.Pointer(c.argmax), w.rowsQ, 4)
		err = a.err
	}
	if err != nil {
		return err
	}
	return w.do(func() error { return deviceScore(&w, &c) }, func(h *host) error {
		return h.backend.Score(context.Background(), &maxsim.Call{
			Q: &h.q.batch, D: &h.d.batch, Pairs: h.pairs, Terms: w.terms(c.weights, c.normalize),
			Scores: list((*float32)(c.scores), w.n), Argmax: list((*int32)(c.argmax), w.rowsQ),
		})
	})
}

// terms returns the terms of scores on the processor.
func (w *work) terms(weights *C.float, normalize C.int64_t) maxsim.Terms {
	return maxsim.Terms{
		Weights: list((*float32)(weights), int(w.q.rows)), Normalize: normalize != 0, Threads: w.threads(),
	}
}

// gradients does a call, or says how much workspace it needs.
func gradients(c cGradient, wanted *int64) error {
	w, err := check(&c.place, &c.q, &c.d, &c.pairs, wanted)
	if err == nil {
		err = first(w.sameDim(), gradient("dq", c.dq, c.dq_type), gradient("dd", c.dd, c.dd_type))
	}
	var a arrays
	if err == nil && a.all(&w) {
		a.take("weights", unsafe.Pointer(c.weights), int(c.q.rows), 4)
		a.want("argmax", unsafe.Pointer(c.argmax), w.rowsQ, 4)
		a.take("upstream", unsafe.Pointer(c.upstream), w.n, 4)
		a.gradient(&w.q, "dq", c.dq, c.dq_type)
		a.gradient(&w.d, "dd", c.dd, c.dd_type)
		err = a.err
	}
	if err != nil {
		return err
	}
	return w.do(func() error { return deviceGradients(&w, &c) }, func(h *host) error {
		return h.backend.Gradients(context.Background(), &maxsim.GradCall{
			Q: &h.q.batch, D: &h.d.batch, Pairs: h.pairs, Terms: w.terms(c.weights, c.normalize),
			Argmax: list((*int32)(c.argmax), w.rowsQ), Upstream: list((*float32)(c.upstream), w.n),
			DQ: w.q.room(&h.dq, c.dq, c.dq_type), DD: w.d.room(&h.dd, c.dd, c.dd_type),
		})
	})
}

// room returns where the gradient of a batch goes; nil means that it is not wanted.
func (s *side) room(g *maxsim.Gradient, p unsafe.Pointer, kind C.int64_t) *maxsim.Gradient {
	if p == nil {
		return nil
	}
	g.Matrix = matrix(p, kind, s.rows, s.dim)
	useLargePages(p, g.Rows()*g.Dim*g.Type.Size())
	return g
}

// chamfer does a call, or says how much workspace it needs.
func chamfer(c cChamfer, wanted *int64) error {
	w, err := check(&c.place, &c.q, &c.d, &c.pairs, wanted)
	if err == nil {
		err = first(w.sameDim(), inRange("metric", c.metric, C.PLAID_L2_SQUARED, C.PLAID_L1))
	}
	var a arrays
	if err == nil && a.all(&w) {
		a.want("distances", unsafe.Pointer(c.distances), w.n, 4)
		a.take("nearest_q", unsafe.Pointer(c.nearest_q), w.rowsQ, 4)
		a.take("nearest_d", unsafe.Pointer(c.nearest_d), w.rowsD, 4)
		err = a.err
	}
	if err != nil {
		return err
	}
	return w.do(func() error { return deviceChamfer(&w, &c) }, func(h *host) error {
		return maxsim.Chamfer(context.Background(), h.backend, &maxsim.ChamferCall{
			X: &h.q.batch, Y: &h.d.batch, Pairs: h.pairs, Threads: w.threads(),
			Metric: maxsim.Metric(c.metric), Mean: c.mean != 0,
			Distances: list((*float32)(c.distances), w.n),
			NearestX:  list((*int32)(c.nearest_q), w.rowsQ), NearestY: list((*int32)(c.nearest_d), w.rowsD),
		})
	})
}

// chamferGradients does a call, or says how much workspace it needs.
func chamferGradients(c cChamferGradient, wanted *int64) error {
	w, err := check(&c.place, &c.q, &c.d, &c.pairs, wanted)
	if err == nil {
		err = first(w.sameDim(), inRange("metric", c.metric, C.PLAID_L2_SQUARED, C.PLAID_L1),
			gradient("dq", c.dq, c.dq_type), gradient("dd", c.dd, c.dd_type))
	}
	var a arrays
	if err == nil && a.all(&w) {
		a.want("nearest_q", unsafe.Pointer(c.nearest_q), w.rowsQ, 4)
		a.want("nearest_d", unsafe.Pointer(c.nearest_d), w.rowsD, 4)
		a.take("upstream", unsafe.Pointer(c.upstream), w.n, 4)
		a.gradient(&w.q, "dq", c.dq, c.dq_type)
		a.gradient(&w.d, "dd", c.dd, c.dd_type)
		err = a.err
	}
	if err != nil {
		return err
	}
	return w.do(func() error { return deviceChamferGradients(&w, &c) }, func(h *host) error {
		return maxsim.ChamferGradients(context.Background(), h.backend, &maxsim.ChamferGradCall{
			X: &h.q.batch, Y: &h.d.batch, Pairs: h.pairs, Threads: w.threads(),
			Metric: maxsim.Metric(c.metric), Mean: c.mean != 0,
			NearestX: list((*int32)(c.nearest_q), w.rowsQ), NearestY: list((*int32)(c.nearest_d), w.rowsD),
			Upstream: list((*float32)(c.upstream), w.n),
			DX:       w.q.room(&h.dq, c.dq, c.dq_type), DY: w.d.room(&h.dd, c.dd, c.dd_type),
		})
	})
}

// head does a call, or says how much workspace it needs.
func head(c cHead, wanted *int64) error {
	w, err := check(&c.place, &c.q, &c.d, &c.pairs, wanted)
	if err == nil && (c.head_type < C.PLAID_F32 || c.head_type > C.PLAID_BF16) {
		err = badf("head_type is %d; heads are float32, float16 or bfloat16", c.head_type)
	}
	var a arrays
	if err == nil && a.all(&w) {
		a.take("query_weights", unsafe.Pointer(c.query_weights), int(c.q.rows), 4)
		a.want("head", c.head, int(c.q.dim*c.d.dim), size(c.head_type))
		a.take("bias", unsafe.Pointer(c.bias), int(c.q.dim), 4)
		a.want("scores", unsafe.Pointer(c.scores), w.n, 4)
		err = a.err
	}
	if err != nil {
		return err
	}
	return w.do(func() error { return deviceHead(&w, &c) }, func(h *host) error {
		return maxsim.ScoreHead(context.Background(), h.backend, &maxsim.HeadCall{
			Q: &h.q.batch, D: &h.d.batch, Pairs: h.pairs, Terms: w.terms(c.query_weights, c.normalize),
			Head: maxsim.Head{
				Weights: matrix(c.head, c.head_type, w.q.dim, w.d.dim), Bias: list((*float32)(c.bias), int(w.q.dim)),
			},
			Scores: list((*float32)(c.scores), w.n),
		})
	})
}
