package encoder

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// Matrices of half precision are stored as tiles of tile × tile values. A row of a tile has
// eight groups of groupValues values, whose order differs from row to row; src/encoder/encoder.cuh
// says why.
const (
	tile        = 64
	tileBytes   = 2 * tile * tile
	groupValues = 8
	// passRows is the unit that numbers of rows of activations are rounded up to.
	passRows = 128
)

// roundUp returns the smallest multiple of unit that is at least n.
func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// tiledOffset returns the byte offset of a value of a tiled matrix with the given number of columns, a
// multiple of tile.
func tiledOffset(row, column, columns int) int {
	block := row/tile*(columns/tile) + column/tile
	group := column%tile/groupValues ^ row%groupValues
	return block*tileBytes + row%tile*2*tile + group*2*groupValues + column%groupValues*2
}

// halfFromFloat converts a value to half precision, and reports whether the result is finite.
func halfFromFloat(v float32) (uint16, bool) {
	h := kernels.F16FromF32(v)
	return h, h&0x7FFF < 0x7C00
}

// rangeError is the error for a weight beyond the range of half precision.
func rangeError(name string, v float32) error {
	return fmt.Errorf("%w: %s has %g; the range of half precision ends at 65504", transformer.ErrWeights, name, v)
}

// putHalf writes two bytes of half precision.
func putHalf(b []byte, i int, h uint16) { b[i], b[i+1] = byte(h), byte(h>>8) }

// putFloat writes a float32.
func putFloat(b []byte, i int, v float32) {
	u := math.Float32bits(v)
	b[i], b[i+1], b[i+2], b[i+3] = byte(u), byte(u>>8), byte(u>>16), byte(u>>24)
}

// rowReader returns row i of a matrix on the device. A nil row means zeros.
type rowReader func(i int) []float32

// writeTiled writes a tiled matrix of n rows and k columns, a multiple of tile. in says which columns
// the values of a row get.
func writeTiled(dst []byte, name string, n, k int, in columns, row rowReader) error {
	for i := range n {
		for c, v := range row(i) {
			h, ok := halfFromFloat(v)
			if !ok {
				return rangeError(name, v)
			}
			putHalf(dst, tiledOffset(i, c/in.size*in.stride+c%in.size, k), h)
		}
	}
	return nil
}

// writeTable writes n rows of width values in half precision, one after another.
func writeTable(dst []byte, name string, n, width int, row rowReader) error {
	for i := range n {
		for c, v := range row(i) {
			h, ok := halfFromFloat(v)
			if !ok {
				return rangeError(name, v)
			}
			putHalf(dst, 2*(i*width+c), h)
		}
	}
	return nil
}

// writeFloats writes values as float32.
func writeFloats(dst []byte, x []float32) {
	for i, v := range x {
		putFloat(dst, 4*i, v)
	}
}

// interleaved returns the source of row i of a matrix that interleaves two others by eight rows:
// which of the two, and the row in it.
func interleaved(i int) (second bool, row int) {
	g, j := i/16, i%16
	return j >= 8, 8*g + j%8
}

// valuesAt returns n values of memory from a byte offset on.
func valuesAt[T any](b []byte, offset int64, n int) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b[offset:offset+int64(n)*int64(unsafe.Sizeof(zero))]))), n)
}
