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

// This file has the checks that do not depend on the device: of numbers, and that pointers are
// set and aligned. Only calls on the processor read the memory that they point to.

// maxElements is more elements than memory has room for, so that products of sizes stay in range.
const maxElements = 1 << 44

// maxItems is the largest number of items, rows of an item and listed pairs: they are counted
// with int32.
const maxItems = 1<<31 - 1

// firstPage is the size of the page at NULL, which no process maps.
const firstPage = 4096

// elementBytes returns the bytes of an element of a type. 0 means that the type is unknown.
func elementBytes(kind C.int64_t) uintptr {
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

// checkedProduct multiplies two counts, which must not be negative.
func checkedProduct(field string, a, b int64) (int, error) {
	hi, n := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || n > maxElements {
		return 0, argumentErrorf("%s would have %d by %d elements, more than memory has", field, a, b)
	}
	return int(n), nil
}

// checkRange checks that a number of a call is in lo to hi.
func checkRange(field string, v C.int64_t, lo, hi int64) error {
	if int64(v) < lo || int64(v) > hi {
		return argumentErrorf("%s is %d; want %d to %d", field, v, lo, hi)
	}
	return nil
}

// checkRange checks that a number of a batch is in 0 to hi.
func (s *operand) checkRange(field string, v C.int64_t, hi int64) error {
	if v < 0 || int64(v) > hi {
		return checkRange(s.fieldName(field), v, 0, hi)
	}
	return nil
}

// checkProduct checks the product of two counts of a batch.
func (s *operand) checkProduct(field string, a, b C.int64_t) error {
	if _, err := checkedProduct(field, int64(a), int64(b)); err != nil {
		_, err = checkedProduct(s.fieldName(field), int64(a), int64(b))
		return err
	}
	return nil
}

// arrays checks the arrays of a call, and keeps the first fault.
type arrays struct {
	host    bool  // the arrays are in memory of the processor, and their ends are read
	operand byte  // the batch that they belong to, q or d. 0 means the call itself
	err     error // the first one
	sum     byte  // of the bytes that are read, so that the compiler keeps the reads
}

// setFault sets the error of an array, "FIELD is " and the formatted text.
func (a *arrays) setFault(field, format string, args ...any) {
	if a.operand != 0 {
		field = string(a.operand) + "." + field
	}
	a.err = argumentErrorf("%s is "+format, append([]any{field}, args...)...)
}

// requireArray checks an array of n elements, each of the given number of bytes.
func (a *arrays) requireArray(field string, p unsafe.Pointer, n int, bytes uintptr) {
	if p == nil && n > 0 && a.err == nil {
		a.setFault(field, "NULL; want %d elements", n)
	}
	a.checkArray(field, p, n, bytes)
}

// checkArray is requireArray for an array that may be NULL.
func (a *arrays) checkArray(field string, p unsafe.Pointer, n int, bytes uintptr) {
	start, length := uintptr(p), uintptr(n)*bytes
	switch {
	case a.err != nil || p == nil:
	case start < firstPage && n > 0:
		a.setFault(field, "%#x, which is no address", start)
	case start%bytes != 0:
		a.setFault(field, "%#x, which is not aligned to %d bytes", start, bytes)
	case start > math.MaxInt64-length:
		a.setFault(field, "%#x; %d elements there are beyond the end of memory", start, n)
	case a.host && n > 0:
		// Both ends are read before memory is allocated for results of that size.
		a.sum += *(*byte)(p) + *(*byte)(unsafe.Add(p, length-1))
	}
}

// firstError returns the first error that is not nil.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// operand is a batch of a call, with its name in the struct, q or d.
type operand struct {
	name byte
	*cBatch
}

// fieldName returns the name of a field of the batch as the caller writes it, such as q.dim.
func (s *operand) fieldName(name string) string { return string(s.name) + "." + name }

// checkNumbers checks the numbers of a batch, and which of its pointers are set.
func (s *operand) checkNumbers() error {
	if elementBytes(s._type) == 0 {
		return argumentErrorf("%s is %d, which is no type", s.fieldName("type"), s._type)
	}
	if s.dim < 1 {
		return argumentErrorf("%s is %d; want 1 to %d", s.fieldName("dim"), s.dim, kernels.MaxDim)
	}
	err := firstError(
		s.checkRange("dim", s.dim, kernels.MaxDim),
		s.checkRange("items", s.items, maxItems),
		s.checkRange("rows", s.rows, maxElements),
		s.checkRange("longest", s.longest, maxItems),
		s.checkRange("stride", s.stride, maxElements),
		s.checkRange("mask_stride", s.mask_stride, maxElements),
	)
	if err != nil {
		return err
	}
	if err := s.checkProduct("data", s.rows, s.dim); err != nil {
		return err
	}
	switch {
	case s.scales != nil && s._type != C.PLAID_I8 && s._type != C.PLAID_E4M3:
		return argumentErrorf("%s is for int8 and e4m3; %s is %d", s.fieldName("scales"), s.fieldName("type"), s._type)
	case s.zeros != nil && s._type != C.PLAID_I8:
		return argumentErrorf("%s is for int8; %s is %d", s.fieldName("zeros"), s.fieldName("type"), s._type)
	case s.lengths != nil && s.mask != nil:
		return argumentErrorf("both %s and %s are given", s.fieldName("lengths"), s.fieldName("mask"))
	case s.offsets != nil && (s.lengths != nil || s.mask != nil):
		return argumentErrorf("%s is given together with %s", s.fieldName("offsets"), s.fieldName("lengths or mask"))
	case s.offsets == nil && s.items > 0:
		return s.checkPadding()
	}
	return nil
}

// checkPadding checks that padded items lie within the rows.
func (s *operand) checkPadding() error {
	if s.items > 1 && s.stride < s.longest {
		return argumentErrorf("%s is %d, less than %s, %d",
			s.fieldName("stride"), s.stride, s.fieldName("longest"), s.longest)
	}
	if s.items > 1 && s.mask != nil && s.mask_stride < s.longest {
		return argumentErrorf("%s is %d, less than %s, %d",
			s.fieldName("mask_stride"), s.mask_stride, s.fieldName("longest"), s.longest)
	}
	rows, mask := s.checkProduct("stride", s.items, s.stride), s.checkProduct("mask_stride", s.items, s.mask_stride)
	if err := firstError(rows, mask); err != nil {
		return err
	}
	if need := (s.items-1)*s.stride + s.longest; need > s.rows {
		return argumentErrorf("%s is %d; %d items of %d rows, %d apart, have %d",
			s.fieldName("rows"), s.rows, s.items, s.longest, s.stride, need)
	}
	return nil
}

// checkArrays checks the arrays of a batch whose numbers were checked.
func (s *operand) checkArrays(a *arrays) {
	rows := int(s.rows)
	a.operand = s.name
	a.requireArray("data", s.data, rows*int(s.dim), elementBytes(s._type))
	a.checkArray("scales", unsafe.Pointer(s.scales), rows, 4)
	a.checkArray("zeros", unsafe.Pointer(s.zeros), rows, 1)
	a.checkArray("offsets", unsafe.Pointer(s.offsets), int(s.items)+1, 4)
	a.checkArray("lengths", unsafe.Pointer(s.lengths), int(s.items), 4)
	if s.items > 0 {
		a.checkArray("mask", unsafe.Pointer(s.mask), s.maskBytes(), 1)
	}
	a.operand = 0
}

// maskBytes returns the length of the mask of a batch that has items.
func (s *operand) maskBytes() int { return int((s.items-1)*s.mask_stride + s.longest) }

// work is a checked call: its batches, pairs and sizes.
type work struct {
	q, d           operand
	pairs          *cPairs
	place          *cPlace
	pairCount      int
	argmaxQ        int    // number of argmaxima of queries, [pairs][q.longest]
	argmaxD        int    // number of argmaxima of documents, [pairs][d.longest]
	workspaceBytes *int64 // see checkCall
}

// checkCall checks the numbers of the batches, the pairs and the place, which all calls have. If
// workspaceBytes is not nil, the call will not be executed: workspaceBytes receives the size of the
// workspace.
func checkCall(place *cPlace, q, d *cBatch, pairs *cPairs, workspaceBytes *int64) (w work, err error) {
	w = work{q: operand{'q', q}, d: operand{'d', d}, pairs: pairs, place: place, workspaceBytes: workspaceBytes}
	if err := firstError(w.q.checkNumbers(), w.d.checkNumbers()); err != nil {
		return w, err
	}
	if w.pairCount, err = w.countPairs(); err != nil {
		return w, err
	}
	if w.argmaxQ, err = checkedProduct("argmax", int64(w.pairCount), int64(q.longest)); err != nil {
		return w, err
	}
	if w.argmaxD, err = checkedProduct("argmax", int64(w.pairCount), int64(d.longest)); err != nil {
		return w, err
	}
	if err := checkRange("place.threads", place.threads, 0, maxItems); err != nil {
		return w, err
	}
	return w, nil
}

// checkCommon checks the arrays of batches and pairs. It reports whether the caller must check the
// arrays of its kind of call, too: for the size of a workspace, arrays may be NULL.
func (a *arrays) checkCommon(w *work) bool {
	if w.workspaceBytes != nil {
		return false
	}
	a.host = !w.onDevice()
	w.q.checkArrays(a)
	w.d.checkArrays(a)
	if w.pairs.kind == C.PLAID_LISTED {
		a.requireArray("pairs.queries", unsafe.Pointer(w.pairs.queries), w.pairCount, 4)
		a.requireArray("pairs.docs", unsafe.Pointer(w.pairs.docs), w.pairCount, 4)
	}
	return true
}

// checkSameDim checks that queries and documents have the same dimension.
func (w *work) checkSameDim() error {
	if w.q.dim != w.d.dim {
		return argumentErrorf("q.dim is %d and d.dim %d", w.q.dim, w.d.dim)
	}
	return nil
}

// countPairs checks the pairs and returns their number.
func (w *work) countPairs() (int, error) {
	p := w.pairs
	if p.kind != C.PLAID_LISTED && (p.queries != nil || p.docs != nil) {
		return 0, argumentErrorf("pairs.queries or pairs.docs is given, and pairs.kind is %d, not listed", p.kind)
	}
	switch p.kind {
	case C.PLAID_ALL:
		if p.count != 0 {
			return 0, argumentErrorf("pairs.count is %d; want 0 if pairs.kind is all", p.count)
		}
		return checkedProduct("scores", int64(w.q.items), int64(w.d.items))
	case C.PLAID_OWN:
		if err := checkRange("pairs.count", p.count, 0, maxItems); err != nil {
			return 0, err
		}
		n, err := checkedProduct("scores", int64(w.q.items), int64(p.count))
		if err == nil && n != int(w.d.items) {
			err = argumentErrorf("d.items is %d; %d queries with %d documents of their own have %d",
				w.d.items, w.q.items, p.count, n)
		}
		return n, err
	case C.PLAID_LISTED:
		return int(p.count), checkRange("pairs.count", p.count, 0, maxItems)
	}
	return 0, argumentErrorf("pairs.kind is %d, which is no kind", p.kind)
}

// checkGradientType checks the type of the gradient of a batch, unless that is NULL.
func checkGradientType(field string, p unsafe.Pointer, kind C.int64_t) error {
	if p != nil && (kind < C.PLAID_F32 || kind > C.PLAID_BF16) {
		return argumentErrorf("%s_type is %d; gradients are float32, float16 or bfloat16", field, kind)
	}
	return nil
}

// checkGradient checks the array of the gradient of a batch, unless that is NULL.
func (a *arrays) checkGradient(s *operand, field string, p unsafe.Pointer, kind C.int64_t) {
	if p != nil {
		a.checkArray(field, p, int(s.rows*s.dim), elementBytes(kind))
	}
}

// onDevice reports whether the call is for a GPU.
func (w *work) onDevice() bool { return w.place.device >= 0 }

// matrixType returns the type of a matrix: the numbers are those of the header.
func matrixType(kind C.int64_t) maxsim.Type { return maxsim.Type(kind) }
