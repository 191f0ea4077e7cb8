package main

// #include "plaid_maxsim.h"
import "C"

import (
	"bytes"
	"slices"
	"sync"
	"unsafe"

	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// hostSide is a batch in memory of the processor, with the room that its layout takes.
type hostSide struct {
	batch            maxsim.Batch
	offsets, lengths []int
	mask             []bool
}

// host holds the operands of a call on the processor. The slices of its batches are the
// caller's memory, and are let go after the call.
type host struct {
	backend maxsim.Backend
	q, d    hostSide
	pairs   maxsim.Pairs
	dq, dd  maxsim.Gradient
}

var hosts = sync.Pool{New: func() any { return new(host) }}

// newHost brings a checked call to Go's types. It looks at offsets, lengths and masks.
func newHost(w *work) (*host, error) {
	h := hosts.Get().(*host)
	var err error
	if h.backend, err = maxsim.Select(""); err != nil {
		return h, err
	}
	if w.n == 0 { // no item matters, and gradients are 0
		h.q.batch = maxsim.Batch{Tokens: w.q.tokens(), Layout: maxsim.Layout{Offsets: noItems}}
		h.d.batch = maxsim.Batch{Tokens: w.d.tokens(), Layout: maxsim.Layout{Offsets: noItems}}
		return h, nil
	}
	if err := first(h.q.set(&w.q), h.d.set(&w.d)); err != nil {
		return h, err
	}
	switch w.pairs.kind {
	case C.PLAID_OWN:
		h.pairs = maxsim.Own(int(w.pairs.count))
	case C.PLAID_LISTED:
		h.pairs = maxsim.Listed(list((*int32)(w.pairs.queries), w.n), list((*int32)(w.pairs.docs), w.n))
	}
	return h, nil
}

// free lets go of the caller's memory.
func (h *host) free() {
	h.q.batch, h.d.batch, h.pairs = maxsim.Batch{}, maxsim.Batch{}, maxsim.Pairs{}
	h.dq, h.dd = maxsim.Gradient{}, maxsim.Gradient{}
	hosts.Put(h)
}

// threads returns the number of goroutines that a call may have; 0 means one for each processor.
func (w *work) threads() int { return int(min(w.place.threads, 1024)) }

// list returns n elements of the caller's memory, nil for a nil p.
func list[T any](p *T, n int) []T {
	if p == nil {
		return nil
	}
	return unsafe.Slice(p, n)
}

// matrix returns rows of dim elements in the caller's memory.
func matrix(p unsafe.Pointer, kind C.int64_t, rows, dim C.int64_t) maxsim.Matrix {
	m, n := maxsim.Matrix{Type: typeOf(kind), Dim: int(dim)}, int(rows*dim)
	switch m.Type {
	case maxsim.F32:
		m.F32 = list((*float32)(p), n)
	case maxsim.F16, maxsim.BF16:
		m.U16 = list((*uint16)(p), n)
	case maxsim.I8:
		m.I8 = list((*int8)(p), n)
	case maxsim.E4M3:
		m.U8 = list((*uint8)(p), n)
	}
	return m
}

// noItems are the offsets of a batch without items.
var noItems = []int{0}

// tokens returns the matrix of a side.
func (s *side) tokens() maxsim.Matrix {
	m := matrix(s.data, s._type, s.rows, s.dim)
	if s.rows > 0 {
		m.Scales = list((*float32)(s.scales), int(s.rows))
		m.Zeros = list((*int8)(s.zeros), int(s.rows))
	}
	return m
}

// set makes the batch of a side.
func (h *hostSide) set(s *side) error {
	h.batch = maxsim.Batch{Tokens: s.tokens()}
	l := &h.batch.Layout
	switch {
	case s.offsets != nil:
		l.Longest = int(s.longest)
		return h.pack(s)
	case s.longest == 0: // items without rows
		h.offsets = slices.Grow(h.offsets[:0], int(s.items)+1)[:s.items+1]
		clear(h.offsets)
		l.Offsets = h.offsets
		return nil
	}
	l.Count, l.Longest, l.Stride = int(s.items), int(s.longest), int(s.stride)
	if s.items < 2 {
		l.Stride = max(l.Stride, l.Longest)
	}
	if s.items == 0 {
		return nil
	}
	if s.lengths != nil {
		return h.cut(s)
	}
	if s.mask != nil {
		h.cover(s)
	}
	return nil
}

// pack checks and takes over offsets.
func (h *hostSide) pack(s *side) error {
	h.offsets = h.offsets[:0]
	last := int32(0)
	for i, o := range list((*int32)(s.offsets), int(s.items)+1) {
		switch {
		case o < last:
			return badf("%s[%d] is %d, less than what is before, %d", s.field("offsets"), i, o, last)
		case i > 0 && int64(o-last) > int64(s.longest):
			return badf("%s[%d] is %d: item %d has %d rows, more than %s, %d",
				s.field("offsets"), i, o, i-1, o-last, s.field("longest"), s.longest)
		case int64(o) > int64(s.rows):
			return badf("%s[%d] is %d, more than %s, %d", s.field("offsets"), i, o, s.field("rows"), s.rows)
		}
		h.offsets = append(h.offsets, int(o))
		last = o
	}
	h.batch.Offsets = h.offsets
	return nil
}

// cut checks and takes over lengths.
func (h *hostSide) cut(s *side) error {
	h.lengths = h.lengths[:0]
	for i, n := range list((*int32)(s.lengths), int(s.items)) {
		if n < 0 || int64(n) > int64(s.longest) {
			return badf("%s[%d] is %d; want 0 to %s, %d", s.field("lengths"), i, n, s.field("longest"), s.longest)
		}
		h.lengths = append(h.lengths, int(n))
	}
	h.batch.Lengths = h.lengths
	return nil
}

// cover takes over a mask. One that only ends items is lengths, which cost less.
func (h *hostSide) cover(s *side) {
	longest, stride := int(s.longest), int(s.mask_stride)
	mask := list((*byte)(s.mask), s.maskBytes())
	h.lengths = h.lengths[:0]
	holes := false
	for i := range int(s.items) {
		m := mask[i*stride : i*stride+longest]
		n := longest
		for n > 0 && m[n-1] == 0 {
			n--
		}
		h.lengths = append(h.lengths, n)
		holes = holes || bytes.IndexByte(m[:n], 0) >= 0
	}
	h.batch.Lengths = h.lengths
	if !holes {
		return
	}
	h.mask = slices.Grow(h.mask[:0], int(s.rows))[:s.rows]
	for i, n := range h.lengths {
		to := h.mask[i*int(s.stride):]
		for j, v := range mask[i*stride : i*stride+n] {
			to[j] = v != 0
		}
	}
	h.batch.Mask = h.mask
}
