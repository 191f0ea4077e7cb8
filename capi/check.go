package main

// #include "plaid_maxsim.h"
import "C"

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// This file has the checks for every device: of numbers, and that pointers are set and aligned.
// Memory that they point to is read on the processor alone.

// most is more elements than memory has room for.
const most = 1 << 44

// mostItems is how many items, rows of an item and listed pairs there may be: they are counted
// with int32.
const mostItems = 1<<31 - 1

// firstPage is the size of the memory at NULL, which no process has.
const firstPage = 4096

// size returns the bytes of an element of a type; 0 means that there is no such type.
func size(kind C.int64_t) uintptr {
	switch kind {
	case C.PLAID_F32:
		return 4
	case C.PLAID_F16, C.PLAID_BF16:
		return 2
	case C.PLAID_I8, C.PLAID_E4M3:
		return 1
	}
	return 0
}

// product multiplies two counts, which must not be negative.
func product(field string, a, b int64) (int, error) {
	hi, n := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || n > most {
		return 0, badf("%s would have %d by %d elements, more than memory has", field, a, b)
	}
	return int(n), nil
}

// inRange checks a number of a call.
func inRange(field string, v C.int64_t, lo, hi int64) error {
	if int64(v) < lo || int64(v) > hi {
		return badf("%s is %d; want %d to %d", field, v, lo, hi)
	}
	return nil
}

// inRange checks a number of a batch.
func (s *side) inRange(field string, v C.int64_t, hi int64) error {
	if v < 0 || int64(v) > hi {
		return inRange(s.field(field), v, 0, hi)
	}
	return nil
}

// product multiplies counts of a batch.
func (s *side) product(field string, a, b C.int64_t) error {
	if _, err := product(field, int64(a), int64(b)); err != nil {
		_, err = product(s.field(field), int64(a), int64(b))
		return err
	}
	return nil
}

// arrays checks the arrays of a call, and keeps the first fault.
type arrays struct {
	host bool // they are in memory of the processor, whose ends are looked at
	side byte // the batch that they belong to, q or d; 0 means the call itself
	err  error
	sum  byte
}

// badf is a fault of an array.
func (a *arrays) badf(field, format string, args ...any) {
	if a.side != 0 {
		field = string(a.side) + "." + field
	}
	a.err = badf("%s is "+format, append([]any{field}, args...)...)
}

// want checks an array of n elements, each of the given number of bytes.
func (a *arrays) want(field string, p unsafe.Pointer, n int, bytes uintptr) {
	if p == nil && n > 0 && a.err == nil {
		a.badf(field, "NULL; want %d elements", n)
	}
	a.take(field, p, n, bytes)
}

// take is want for an array that may be missing.
func (a *arrays) take(field string, p unsafe.Pointer, n int, bytes uintptr) {
	start, length := uintptr(p), uintptr(n)*bytes
	switch {
	case a.err != nil || p == nil:
	case start < firstPage && n > 0:
		a.badf(field, "%#x, which is no address", start)
	case start%bytes != 0:
		a.badf(field, "%#x, which is not aligned to %d bytes", start, bytes)
	case start > math.MaxInt64-length:
		a.badf(field, "%#x; %d elements there are beyond the end of memory", start, n)
	case a.host && n > 0:
		// Both ends are read before memory is allocated for results of that size.
		a.sum += *(*byte)(p) + *(*byte)(unsafe.Add(p, length-1))
	}
}

// first is the first error of several.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// side is one of the batches of a call with its name in the struct, q or d.
type side struct {
	name byte
	*cBatch
}

func (s *side) field(name string) string { return string(s.name) + "." + name }

// check checks the numbers of a batch, and which of its pointers are there.
func (s *side) check() error {
	if size(s._type) == 0 {
		return badf("%s is %d, which is no type", s.field("type"), s._type)
	}
	if s.dim < 1 {
		return badf("%s is %d; want 1 to %d", s.field("dim"), s.dim, kernels.MaxDim)
	}
	err := first(
		s.inRange("dim", s.dim, kernels.MaxDim),
		s.inRange("items", s.items, mostItems),
		s.inRange("rows", s.rows, most),
		s.inRange("longest", s.longest, mostItems),
		s.inRange("stride", s.stride, most),
		s.inRange("mask_stride", s.mask_stride, most),
	)
	if err != nil {
		return err
	}
	if err := s.product("data", s.rows, s.dim); err != nil {
		return err
	}
	switch {
	case s.scales != nil && s._type != C.PLAID_I8 && s._type != C.PLAID_E4M3:
		return badf("%s is for int8 and e4m3; %s is %d", s.field("scales"), s.field("type"), s._type)
	case s.zeros != nil && s._type != C.PLAID_I8:
		return badf("%s is for int8; %s is %d", s.field("zeros"), s.field("type"), s._type)
	case s.lengths != nil && s.mask != nil:
		return badf("both %s and %s are given", s.field("lengths"), s.field("mask"))
	case s.offsets != nil && (s.lengths != nil || s.mask != nil):
		return badf("%s is given beside %s", s.field("offsets"), s.field("lengths or mask"))
	case s.offsets == nil && s.items > 0:
		return s.checkPadding()
	}
	return nil
}

// checkPadding checks where padded items lie.
func (s *side) checkPadding() error {
	if s.items > 1 && s.stride < s.longest {
		return badf("%s is %d, less than %s, %d", s.field("stride"), s.stride, s.field("longest"), s.longest)
	}
	if s.items > 1 && s.mask != nil && s.mask_stride < s.longest {
		return badf("%s is %d, less than %s, %d", s.field("mask_stride"), s.mask_stride, s.field("longest"), s.longest)
	}
	rows, mask := s.product("stride", s.items, s.stride), s.product("mask_stride", s.items, s.mask_stride)
	if err := first(rows, mask); err != nil {
		return err
	}
	if need := (s.items-1)*s.stride + s.longest; need > s.rows {
		return badf("%s is %d; %d items of %d rows, %d apart, have %d",
			s.field("rows"), s.rows, s.items, s.longest, s.stride, need)
	}
	return nil
}

// arrays checks the arrays of a batch whose numbers were checked.
func (s *side) arrays(a *arrays) {
	rows := int(s.rows)
	a.side = s.name
	a.want("data", s.data, rows*int(s.dim), size(s._type))
	a.take("scales", unsafe.Pointer(s.scales), rows, 4)
	a.take("zeros", unsafe.Pointer(s.zeros), rows, 1)
	a.take("offsets", unsafe.Pointer(s.offsets), int(s.items)+1, 4)
	a.take("lengths", unsafe.Pointer(s.lengths), int(s.items), 4)
	if s.items > 0 {
		a.take("mask", unsafe.Pointer(s.mask), s.maskBytes(), 1)
	}
	a.side = 0
}

// maskBytes returns the length of the mask of at least one item.
func (s *side) maskBytes() int { return int((s.items-1)*s.mask_stride + s.longest) }

// work is a call's batches and pairs, checked.
type work struct {
	q, d   side
	pairs  *cPairs
	place  *cPlace
	n      int    // pairs
	rowsQ  int    // of argmaxima: [pairs][q.longest]
	rowsD  int    // of those of documents
	wanted *int64 // see check
}

// check checks the parts that all calls have. wanted is where the bytes of a workspace go; nil means
// that the call is to be done.
func check(place *cPlace, q, d *cBatch, pairs *cPairs, wanted *int64) (w work, err error) {
	w = work{q: side{'q', q}, d: side{'d', d}, pairs: pairs, place: place, wanted: wanted}
	if err := first(w.q.check(), w.d.check()); err != nil {
		return w, err
	}
	if w.n, err = w.countPairs(); err != nil {
		return w, err
	}
	if w.rowsQ, err = product("argmax", int64(w.n), int64(q.longest)); err != nil {
		return w, err
	}
	if w.rowsD, err = product("argmax", int64(w.n), int64(d.longest)); err != nil {
		return w, err
	}
	if err := inRange("place.threads", place.threads, 0, mostItems); err != nil {
		return w, err
	}
	return w, nil
}

// all checks the arrays that all calls have. It reports whether those that a call has by itself
// are to be checked, too: for the size of a workspace there may be none.
func (a *arrays) all(w *work) bool {
	if w.wanted != nil {
		return false
	}
	a.host = !w.onDevice()
	w.q.arrays(a)
	w.d.arrays(a)
	if w.pairs.kind == C.PLAID_LISTED {
		a.want("pairs.queries", unsafe.Pointer(w.pairs.queries), w.n, 4)
		a.want("pairs.docs", unsafe.Pointer(w.pairs.docs), w.n, 4)
	}
	return true
}

// sameDim checks that queries and documents have one dimension.
func (w *work) sameDim() error {
	if w.q.dim != w.d.dim {
		return badf("q.dim is %d and d.dim %d", w.q.dim, w.d.dim)
	}
	return nil
}

func (w *work) countPairs() (int, error) {
	p := w.pairs
	if p.kind != C.PLAID_LISTED && (p.queries != nil || p.docs != nil) {
		return 0, badf("pairs.queries or pairs.docs is given, and pairs.kind is %d, not listed", p.kind)
	}
	switch p.kind {
	case C.PLAID_ALL:
		if p.count != 0 {
			return 0, badf("pairs.count is %d; want 0 where all meet all", p.count)
		}
		return product("scores", int64(w.q.items), int64(w.d.items))
	case C.PLAID_OWN:
		if err := inRange("pairs.count", p.count, 0, mostItems); err != nil {
			return 0, err
		}
		n, err := product("scores", int64(w.q.items), int64(p.count))
		if err == nil && n != int(w.d.items) {
			err = badf("d.items is %d; %d queries with %d documents of their own have %d",
				w.d.items, w.q.items, p.count, n)
		}
		return n, err
	case C.PLAID_LISTED:
		return int(p.count), inRange("pairs.count", p.count, 0, mostItems)
	}
	return 0, badf("pairs.kind is %d, which is no kind", p.kind)
}

// gradient checks the type of the gradient of a batch, where it is wanted.
func gradient(field string, p unsafe.Pointer, kind C.int64_t) error {
	if p != nil && (kind < C.PLAID_F32 || kind > C.PLAID_BF16) {
		return badf("%s_type is %d; gradients are float32, float16 or bfloat16", field, kind)
	}
	return nil
}

// gradient checks the room for the gradient of a batch.
func (a *arrays) gradient(s *side, field string, p unsafe.Pointer, kind C.int64_t) {
	if p != nil {
		a.take(field, p, int(s.rows*s.dim), size(kind))
	}
}

// onDevice reports whether the call is for a GPU.
func (w *work) onDevice() bool { return w.place.device >= 0 }

// typeOf returns the type of a matrix: the numbers are those of the header.
func typeOf(kind C.int64_t) maxsim.Type { return maxsim.Type(kind) }
