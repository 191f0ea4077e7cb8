package vectors

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
)

// Tensor describes a tensor of a file that is written.
type Tensor struct {
	Name  string
	Dtype string // as safetensors spells it: F32, I64, U8, …
	Shape []int
}

// SafetensorsHeader returns the beginning of a safetensors file. The bytes of the tensors follow it, in
// the given order and without gaps.
func SafetensorsHeader(tensors ...Tensor) ([]byte, error) {
	type described struct {
		Dtype   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header, end := make(map[string]described, len(tensors)), 0
	for _, t := range tensors {
		k, known := safetensorsKind(t.Dtype)
		if !known {
			return nil, fmt.Errorf("%w: no type %q of tensors", ErrFormat, t.Dtype)
		}
		n, ok := elementCount(t.Shape, k.size())
		if !ok {
			return nil, fmt.Errorf("%w: tensor %q of shape %s", ErrShape, t.Name, shapeString(t.Shape))
		}
		n *= k.size()
		header[t.Name] = described{Dtype: t.Dtype, Shape: t.Shape, Offsets: [2]int{end, end + n}}
		end += n
	}
	text, err := json.Marshal(header)
	if err != nil {
		return nil, err
	}
	for len(text)%8 != 0 { // to align the tensors
		text = append(text, ' ')
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), nil
}

// LittleEndianBytes returns the little-endian bytes of values, which share their memory if the machine has
// the same byte order.
func LittleEndianBytes(values []float32) []byte {
	if littleEndian {
		return memoryOf(values)
	}
	raw := make([]byte, 0, 4*len(values))
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return raw
}
