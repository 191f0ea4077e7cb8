package runtime

import (
	"math"
	"unsafe"
)

// Arena lays arrays out one after another, each at a multiple of [ArenaAlign].
type Arena struct{ Size int64 }

// ArenaAlign is what arrays on the device are aligned to, in bytes.
const ArenaAlign = 256

// Take gives the offset of the next array.
func (a *Arena) Take(bytes int64) (offset int64) {
	offset = a.Size
	a.Size += CeilDiv(bytes, ArenaAlign) * ArenaAlign
	return offset
}

// CeilDiv is a/b, rounded up.
func CeilDiv[T int | int64 | uint32 | uint64](a, b T) T { return (a + b - 1) / b }

// Above is a little more than v, for what rounding took from a bound.
func Above(v float32) float32 { return math.Nextafter32(v*(1+1e-5), float32(math.Inf(1))) }

// Bytes is the memory of s, as the device wants it: both are little-endian.
func Bytes[T uint32 | uint64 | float32](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), int(unsafe.Sizeof(zero))*len(s))
}
