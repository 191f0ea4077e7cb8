package interop

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/kernels"
)

// readBytes is the size of the pieces in which arrays are read.
const readBytes = 1 << 16

// rawArray is a tensor of a .pt file: an array of little-endian elements, one after another from byte
// base of what readAt reads.
type rawArray struct {
	kind   dtype
	dims   []int
	numel  int64
	base   int64
	readAt func(dst []byte, from int64) error
	buf    []byte
	done   func() error
}

func (a *rawArray) dtype() dtype { return a.kind }
func (a *rawArray) shape() []int { return a.dims }
func (a *rawArray) close() error { return a.done() }

// pieces calls decode with n elements from from on, in pieces of at most
// readBytes: raw holds those of the result's places at to at+count.
func (a *rawArray) pieces(from, n int, decode func(at, count int, raw []byte)) error {
	if from < 0 || int64(from) > a.numel || int64(n) > a.numel-int64(from) {
		return fmt.Errorf("%w: elements %d to %d of an array of %d", ErrBroken, from, from+n, a.numel)
	}
	size := a.kind.size()
	if a.buf == nil {
		a.buf = make([]byte, readBytes)
	}
	for at := 0; at < n; {
		count := min(n-at, len(a.buf)/size)
		raw := a.buf[:count*size]
		if err := a.readAt(raw, a.base+int64(from+at)*int64(size)); err != nil {
			return err
		}
		decode(at, count, raw)
		at += count
	}
	return nil
}

func (a *rawArray) floats(dst []float32, from int) error {
	return a.pieces(from, len(dst), func(at, count int, raw []byte) {
		decodeFloats(dst[at:at+count], raw, a.kind)
	})
}

func (a *rawArray) ints(dst []int64, from int) error {
	return a.pieces(from, len(dst), func(at, count int, raw []byte) {
		decodeInts(dst[at:at+count], raw, a.kind)
	})
}

func (a *rawArray) bytes(dst []byte, from int) error {
	if a.kind != dtU8 {
		return fmt.Errorf("%w: array of %v, want bytes", ErrBroken, a.kind)
	}
	return a.pieces(from, len(dst), func(at, count int, raw []byte) {
		copy(dst[at:at+count], raw)
	})
}

// decodeFloats widens or rounds little-endian elements of raw to float32.
func decodeFloats(dst []float32, raw []byte, d dtype) {
	for i := range dst {
		switch d {
		case dtF16:
			dst[i] = kernels.F16ToF32(binary.LittleEndian.Uint16(raw[2*i:]))
		case dtBF16:
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[2*i:])) << 16)
		case dtF32:
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		case dtF64:
			dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:])))
		}
	}
}

// decodeInts widens little-endian elements of raw to int64; torch's storages
// have no unsigned type but bytes.
func decodeInts(dst []int64, raw []byte, d dtype) {
	for i := range dst {
		switch d {
		case dtU8:
			dst[i] = int64(raw[i])
		case dtI8:
			dst[i] = int64(int8(raw[i]))
		case dtI16:
			dst[i] = int64(int16(binary.LittleEndian.Uint16(raw[2*i:])))
		case dtI32:
			dst[i] = int64(int32(binary.LittleEndian.Uint32(raw[4*i:])))
		case dtI64:
			dst[i] = int64(binary.LittleEndian.Uint64(raw[8*i:]))
		}
	}
}
