package encoder

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// Matrices of half precision lie in tiles of tile × tile values, whose rows are eight
// pieces of eight values each, in another order in each row: src/encoder/encoder.cuh says
// why.
const (
	tile        = 64
	tileBytes   = 2 * tile * tile
	groupValues = 8
	// passRows is what rows of activations are rounded up to.
	passRows = 128
)

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// tiledOffset is the byte at which a value of a matrix lies that has so many columns, a
// multiple of tile.
func tiledOffset(row, column, columns int) int {
	block := row/tile*(columns/tile) + column/tile
	return block*tileBytes + row%tile*2*tile + (column%tile/groupValues^row%groupValues)*2*groupValues + column%groupValues*2
}

// halfFromFloat is a value in half precision, and whether it has one.
func halfFromFloat(v float32) (uint16, bool) {
	h := kernels.F16FromF32(v)
	return h, h&0x7FFF < 0x7C00
}

// rangeError is of a weight that half precision does not reach.
func rangeError(name string, v float32) error {
	return fmt.Errorf("%w: %s has %g, half precision ends at 65504", transformer.ErrWeights, name, v)
}

func putHalf(b []byte, i int, h uint16) { b[i], b[i+1] = byte(h), byte(h>>8) }

func putFloat(b []byte, i int, v float32) {
	u := math.Float32bits(v)
	b[i], b[i+1], b[i+2], b[i+3] = byte(u), byte(u>>8), byte(u>>16), byte(u>>24)
}

// rowReader says which row of a weight a row of the device's matrix is; nil: zeros.
type rowReader func(i int) []float32

// writeTiled writes n rows of k values, a multiple of tile, whose values lie in such columns.
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

// writeTable writes n rows of width values in half precision, one behind the other.
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

// writeFloats writes values of float32.
func writeFloats(dst []byte, x []float32) {
	for i, v := range x {
		putFloat(dst, 4*i, v)
	}
}

// interleaved is where a row comes from of two halves that lie interleaved by eight rows.
func interleaved(i int) (second bool, row int) {
	g, j := i/16, i%16
	return j >= 8, 8*g + j%8
}

// valuesAt are n values of memory, from a byte on.
func valuesAt[T any](b []byte, offset int64, n int) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b[offset:offset+int64(n)*int64(unsafe.Sizeof(zero))]))), n)
}
