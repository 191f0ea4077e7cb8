package vectors

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/internal/floats"
)

// kind is the type of an array's elements.
type kind uint8

const (
	kindBool kind = iota + 1
	kindI8
	kindI16
	kindI32
	kindI64
	kindU8
	kindU16
	kindU32
	kindU64
	kindF16
	kindF32
	kindF64
	kindBF16
)

// kindNames is the names of a kind in NumPy, without the byte order, and in safetensors, and the number
// of bytes of an element.
type kindNames struct {
	numpy, safetensors string
	size               int
}

// kinds describes the kinds. NumPy has no bfloat16.
var kinds = [...]kindNames{
	kindBool: {"b1", "BOOL", 1},
	kindI8:   {"i1", "I8", 1},
	kindI16:  {"i2", "I16", 2},
	kindI32:  {"i4", "I32", 4},
	kindI64:  {"i8", "I64", 8},
	kindU8:   {"u1", "U8", 1},
	kindU16:  {"u2", "U16", 2},
	kindU32:  {"u4", "U32", 4},
	kindU64:  {"u8", "U64", 8},
	kindF16:  {"f2", "F16", 2},
	kindF32:  {"f4", "F32", 4},
	kindF64:  {"f8", "F64", 8},
	kindBF16: {"", "BF16", 2},
}

// findKind returns the first kind whose names match, and false if none does.
func findKind(matches func(kindNames) bool) (kind, bool) {
	i := slices.IndexFunc(kinds[1:], matches) + 1
	return kind(i), i > 0
}

// safetensorsKind returns the kind with a name in safetensors.
func safetensorsKind(name string) (kind, bool) {
	return findKind(func(k kindNames) bool { return k.safetensors == name })
}

// size returns the number of bytes of an element.
func (k kind) size() int { return kinds[k].size }

func (k kind) isFloat() bool { return k >= kindF16 }

// dtypeName returns the normalised name: NumPy's, or bf16. big means big-endian.
func (k kind) dtypeName(big bool) string {
	switch {
	case k == kindBF16:
		return "bf16"
	case k.size() == 1:
		return "|" + kinds[k].numpy
	case big:
		return ">" + kinds[k].numpy
	}
	return "<" + kinds[k].numpy
}

// typeName returns the type as people write it, such as float32 or int64.
func (a *Array) typeName() string {
	switch k := a.kind; {
	case k == kindBool:
		return "booleans"
	case k == kindBF16:
		return "bfloat16"
	case k.isFloat():
		return fmt.Sprintf("float%d", 8*k.size())
	case k >= kindU8:
		return fmt.Sprintf("uint%d", 8*k.size())
	default:
		return fmt.Sprintf("int%d", 8*k.size())
	}
}

// parseDtype parses a NumPy type string such as <f2, >i8 or |u1. Types of one byte may have any byte
// order, since some writers write <u1.
func parseDtype(s string) (k kind, big bool, err error) {
	if len(s) < 2 {
		return 0, false, fmt.Errorf("type %.40q is not known", s)
	}
	order, code := s[0], s[1:]
	k, ok := findKind(func(k kindNames) bool { return k.numpy == code })
	switch {
	case order == '<' || order == '>' || order == '|':
	default:
		return 0, false, fmt.Errorf("type %.40q has no byte order", s)
	}
	if !ok {
		switch code[0] {
		case 'O':
			return 0, false, fmt.Errorf("type %.40q: object arrays hold Python pickles, which are never read", s)
		case 'U', 'S', 'a', 'T':
			return 0, false, fmt.Errorf("type %.40q: arrays of strings are not read", s)
		case 'V':
			return 0, false, fmt.Errorf("type %.40q: structured and raw types are not read", s)
		}
		return 0, false, fmt.Errorf("type %.40q is not read", s)
	}
	if order == '|' && k.size() > 1 {
		return 0, false, fmt.Errorf("type %.40q has no byte order", s)
	}
	return k, order == '>' && k.size() > 1, nil
}

// swapBytes converts big-endian elements to little-endian ones, in place.
func swapBytes(raw []byte, size int) {
	for i := 0; i+size <= len(raw); i += size {
		slices.Reverse(raw[i : i+size])
	}
}

// decodeFloats converts little-endian elements to float32. It rounds float64 and wide integers to the
// nearest float32.
func decodeFloats(dst []float32, raw []byte, k kind) {
	le := binary.LittleEndian
	switch k {
	case kindF16:
		floats.DecodeFloat16(dst, raw)
	case kindBF16:
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(le.Uint16(raw[2*i:])) << 16)
		}
	case kindF32:
		for i := range dst {
			dst[i] = math.Float32frombits(le.Uint32(raw[4*i:]))
		}
	case kindF64:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(le.Uint64(raw[8*i:])))
		}
	case kindU64:
		for i := range dst {
			dst[i] = float32(le.Uint64(raw[8*i:]))
		}
	default:
		for i := range dst {
			dst[i] = float32(intElement(raw, i, k))
		}
	}
}

// decodeInts converts little-endian integers to int64. bad is the index of the first element that does
// not fit, or −1.
func decodeInts(dst []int64, raw []byte, k kind) (bad int) {
	for i := range dst {
		dst[i] = intElement(raw, i, k)
		if k == kindU64 && dst[i] < 0 {
			return i
		}
	}
	return -1
}

// intElement returns element i of little-endian integers. An unsigned 64-bit value beyond int64 becomes
// negative.
func intElement(raw []byte, i int, k kind) int64 {
	le := binary.LittleEndian
	switch k {
	case kindBool, kindU8:
		return int64(raw[i])
	case kindI8:
		return int64(int8(raw[i]))
	case kindI16:
		return int64(int16(le.Uint16(raw[2*i:])))
	case kindU16:
		return int64(le.Uint16(raw[2*i:]))
	case kindI32:
		return int64(int32(le.Uint32(raw[4*i:])))
	case kindU32:
		return int64(le.Uint32(raw[4*i:]))
	}
	return int64(le.Uint64(raw[8*i:]))
}
