package runtime

import (
	"context"
	"math"
	"runtime/debug"
	"unsafe"

	"github.com/plaid-ir/plaid/internal/parallel"
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

// Bytes is the memory of s, numbers or structs of numbers, as the device wants it:
// both are little-endian.
func Bytes[T any](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), int(unsafe.Sizeof(zero))*len(s))
}

// CopyWide is copy by several goroutines, which one is too slow for. Where src is of a
// mapped file that was cut short it panics (debug.SetPanicOnFault).
func CopyWide(dst, src []byte) int64 {
	const block = 1 << 20
	n := parallel.Blocks(len(src), block)
	_ = parallel.Do(context.Background(), n, parallel.Threads(0, n/4), func(i int) error {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		lo, hi := parallel.Block(i, len(src), block)
		copy(dst[lo:hi], src[lo:hi])
		return nil
	})
	return int64(len(src))
}
