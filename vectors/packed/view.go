package packed

import (
	"encoding/binary"
	"unsafe"
)

// number is what sections are made of.
type number interface {
	~uint8 | ~int8 | ~uint16 | ~uint32 | ~float32 | ~uint64
}

// direct says that memory of a T is as in a file.
var direct = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// view is bytes as numbers: the same memory where that is possible, which it is of a file
// that is mapped on a little-endian processor, or a copy.
func view[T number](b []byte) []T {
	var v T
	size := int(unsafe.Sizeof(v))
	n := len(b) / size
	if n == 0 {
		return nil
	}
	if direct && uintptr(unsafe.Pointer(&b[0]))%uintptr(size) == 0 {
		return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
	}
	out := make([]T, n)
	if _, err := binary.Decode(b, binary.LittleEndian, out); err != nil {
		panic(err) // the sizes are right
	}
	return out
}

// bytesOf is numbers as in a file.
func bytesOf[T number](x []T) []byte {
	if len(x) == 0 {
		return nil
	}
	if direct {
		return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
	}
	b, err := binary.Append(nil, binary.LittleEndian, x)
	if err != nil {
		panic(err) // these types have sizes
	}
	return b
}
