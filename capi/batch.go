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

// hostOperand is a batch in memory of the processor, with reusable memory for its layout.
type hostOperand struct {
	batch            maxsim.Batch
	offsets, lengths []int
	mask             []bool
}

// host has the operands of a call on the processor. The slices of its batches are the
// caller's memory; release drops them after the call.
type host struct {
	backend maxsim.Backend
	q, d    hostOperand
	pairs   maxsim.Pairs
	dq, dd  maxsim.Gradient
}

var hosts = sync.Pool{New: func() any { return new(host) }}

// newHost converts a checked call to Go's types. It also checks offsets, lengths and masks.
func newHost(w *work) (*host, error) {
	h := hosts.Get().(*host)
	var err error
	if h.backend, err = maxsim.Select(""); err != nil {
		return h, err
	}
	if w.pairCount == 0 { // items do not matter, and gradients are 0
		h.q.batch = maxsim.Batch{Tokens: w.q.tokens(), Layout: maxsim.Layout{Offsets: noItems}}
		h.d.batch = maxsim.Batch{Tokens: w.d.tokens(), Layout: maxsim.Layout{Offsets: noItems}}
		return h, nil
	}
	if err := firstError(h.q.setBatch(&w.q), h.d.setBatch(&w.d)); err != nil {
		return h, err
	}
	switch w.pairs.kind {
	case C.PLAID_OWN:
		h.pairs = maxsim.OwnDocuments(int(w.pairs.count))
	case C.PLAID_LISTED:
		queries := cSlice((*int32)(w.pairs.queries), w.pairCount)
		h.pairs = maxsim.Listed(queries, cSlice((*int32)(w.pairs.docs), w.pairCount))
	}
	return h, nil
}

// release drops the references to the caller's memory, and returns h to the pool.
func (h *host) release() {
	h.q.batch, h.d.batch, h.pairs = maxsim.Batch{}, maxsim.Batch{}, maxsim.Pairs{}
	h.dq, h.dd = maxsim.Gradient{}, maxsim.Gradient{}
	hosts.Put(h)
}

// threads returns the number of goroutines that a call may use. 0 means one for each processor.
func (w *work) threads() int { return int(min(w.place.threads, 1024)) }

// cSlice returns n elements of the caller's memory, or nil if p is nil.
func cSlice[T any](p *T, n int) []T {
	if p == nil {
		return nil
	}
	return unsafe.Slice(p, n)
}

// matrix returns rows of dim elements of the caller's memory.
func matrix(p unsafe.Pointer, kind C.int64_t, rows, dim C.int64_t) maxsim.Matrix {
	m, n := maxsim.Matrix{Type: matrixType(kind), Dim: int(dim)}, int(rows*dim)
	switch m.Type {
	case maxsim.F32:
		m.F32 = cSlice((*float32)(p), n)
	case maxsim.F16, maxsim.BF16:
		m.U16 = cSlice((*uint16)(p), n)
	case maxsim.I8:
		m.I8 = cSlice((*int8)(p), n)
	case maxsim.E4M3:
		m.U8 = cSlice((*uint8)(p), n)
	}
	return m
}

// noItems are the offsets of a batch without items.
var noItems = []int{0}

// tokens returns the matrix of an operand.
func (s *operand) tokens() maxsim.Matrix {
	m := matrix(s.data, s._type, s.rows, s.dim)
	if s.rows > 0 {
		m.Scales = cSlice((*float32)(s.scales), int(s.rows))
		m.Zeros = cSlice((*int8)(s.zeros), int(s.rows))
	}
	return m
}

// setBatch sets the batch to that of an operand, and checks its offsets or lengths.
func (h *hostOperand) setBatch(s *operand) error {
	h.batch = maxsim.Batch{Tokens: s.tokens()}
	l := &h.batch.Layout
	switch {
	case s.offsets != nil:
		l.MaxItemRows = int(s.longest)
		return h.setOffsets(s)
	case s.longest == 0: // items without rows
		h.offsets = slices.Grow(h.offsets[:0], int(s.items)+1)[:s.items+1]
		clear(h.offsets)
		l.Offsets = h.offsets
		return nil
	}
	l.Count, l.MaxItemRows, l.Stride = int(s.items), int(s.longest), int(s.stride)
	if s.items < 2 {
		l.Stride = max(l.Stride, l.MaxItemRows)
	}
	if s.items == 0 {
		return nil
	}
	if s.lengths != nil {
		return h.setLengths(s)
	}
	if s.mask != nil {
		h.setMask(s)
	}
	return nil
}

// setOffsets checks and copies the offsets of packed items.
func (h *hostOperand) setOffsets(s *operand) error {
	h.offsets = h.offsets[:0]
	last := int32(0)
	for i, o := range cSlice((*int32)(s.offsets), int(s.items)+1) {
		switch {
		case o < last:
			return argumentErrorf("%s[%d] is %d, less than the offset before it, %d",
				s.fieldName("offsets"), i, o, last)
		case i > 0 && int64(o-last) > int64(s.longest):
			return argumentErrorf("%s[%d] is %d: item %d has %d rows, more than %s, %d",
				s.fieldName("offsets"), i, o, i-1, o-last, s.fieldName("longest"), s.longest)
		case int64(o) > int64(s.rows):
			return argumentErrorf("%s[%d] is %d, more than %s, %d",
				s.fieldName("offsets"), i, o, s.fieldName("rows"), s.rows)
		}
		h.offsets = append(h.offsets, int(o))
		last = o
	}
	h.batch.Offsets = h.offsets
	return nil
}

// setLengths checks and copies the lengths of padded items.
func (h *hostOperand) setLengths(s *operand) error {
	h.lengths = h.lengths[:0]
	for i, n := range cSlice((*int32)(s.lengths), int(s.items)) {
		if n < 0 || int64(n) > int64(s.longest) {
			return argumentErrorf("%s[%d] is %d; want 0 to %s, %d",
				s.fieldName("lengths"), i, n, s.fieldName("longest"), s.longest)
		}
		h.lengths = append(h.lengths, int(n))
	}
	h.batch.Lengths = h.lengths
	return nil
}

// setMask copies a mask. A mask that only marks the ends of items becomes lengths, which are
// faster.
func (h *hostOperand) setMask(s *operand) {
	longest, maskStride := int(s.longest), int(s.mask_stride)
	mask := cSlice((*byte)(s.mask), s.maskBytes())
	h.lengths = h.lengths[:0]
	holes := false
	for i := range int(s.items) {
		m := mask[i*maskStride : i*maskStride+longest]
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
	h.mask = slices.Grow(h.mask[:0], int(s.rows))[:s.rows] // rows of no item are never read
	for i, n := range h.lengths {
		itemMask := h.mask[i*int(s.stride):]
		for j, v := range mask[i*maskStride : i*maskStride+n] {
			itemMask[j] = v != 0
		}
	}
	h.batch.Mask = h.mask
}
