package weights

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Messages of ONNX, as far as they are needed (onnx.proto, IR version 8 and on).
type (
	graph struct {
		nodes           []*node
		tensors         map[string]*tensor
		inputs, outputs []string
		opset           int64
	}
	node struct {
		name, op, domain string
		inputs, outputs  []string
		attributes       map[string]attribute
	}
	attribute struct {
		f      float32
		i      int64
		ints   []int64
		tensor *tensor
		other  bool // of a kind that no known node has
	}
	tensor struct {
		name string
		dims []int
		kind int64
		raw  []byte // little-endian, whatever field it came in
	}
)

// Types of numbers of a tensor.
const (
	onnxFloat, onnxInt32, onnxInt64, onnxHalf, onnxBF16 = 1, 6, 7, 10, 16
)

var errCut = errors.New("is cut short, or no ONNX file")

// message calls f for each field: its number, the number it holds, or its bytes,
// which are not nil.
func message(b []byte, f func(field protowire.Number, n uint64, b []byte) error) error {
	for len(b) > 0 {
		field, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return errCut
		}
		b = b[size:]
		var n uint64
		var body []byte
		switch kind {
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			n, size = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			body, size = protowire.ConsumeBytes(b)
			body = body[:len(body):len(body)]
		case protowire.Fixed32Type:
			var half uint32
			half, size = protowire.ConsumeFixed32(b)
			n = uint64(half)
		default:
			return errCut
		}
		if size < 0 {
			return errCut
		}
		b = b[size:]
		if err := f(field, n, body); err != nil {
			return err
		}
	}
	return nil
}

// numbers appends a repeated number, packed or not.
func numbers(dst []int64, n uint64, b []byte) ([]int64, error) {
	if b == nil {
		return append(dst, int64(n)), nil
	}
	for len(b) > 0 {
		x, size := protowire.ConsumeVarint(b)
		if size < 0 {
			return dst, errCut
		}
		dst, b = append(dst, int64(x)), b[size:]
	}
	return dst, nil
}

// parseModel reads a ModelProto.
func parseModel(b []byte) (*graph, error) {
	var g *graph
	opset := int64(0)
	err := message(b, func(field protowire.Number, _ uint64, b []byte) (err error) {
		switch {
		case field == 7 && b != nil && g == nil:
			g, err = parseGraph(b)
		case field == 8 && b != nil:
			domain, version := "", int64(0)
			err = message(b, func(field protowire.Number, n uint64, b []byte) error {
				switch field {
				case 1:
					domain = string(b)
				case 2:
					version = int64(n)
				}
				return nil
			})
			if domain == "" || domain == "ai.onnx" {
				opset = version
			}
		}
		return err
	})
	if err == nil && g == nil {
		err = errCut
	}
	if err != nil {
		return nil, err
	}
	g.opset = opset
	return g, nil
}

func parseGraph(b []byte) (*graph, error) {
	g := &graph{tensors: map[string]*tensor{}}
	return g, message(b, func(field protowire.Number, _ uint64, b []byte) error {
		if b == nil {
			return nil
		}
		switch field {
		case 1:
			n, err := parseNode(b)
			g.nodes = append(g.nodes, n)
			return err
		case 5:
			t, err := parseTensor(b)
			if err == nil && g.tensors[t.name] != nil {
				err = fmt.Errorf("tensor %q is there twice", t.name)
			}
			if err == nil {
				g.tensors[t.name] = t
			}
			return err
		case 11, 12:
			return message(b, func(f protowire.Number, _ uint64, b []byte) error {
				if f == 1 && field == 11 {
					g.inputs = append(g.inputs, string(b))
				} else if f == 1 {
					g.outputs = append(g.outputs, string(b))
				}
				return nil
			})
		case 15:
			return errors.New("sparse tensors are not read")
		}
		return nil
	})
}

func parseNode(b []byte) (*node, error) {
	n := &node{attributes: map[string]attribute{}}
	return n, message(b, func(field protowire.Number, _ uint64, b []byte) error {
		switch field {
		case 1:
			n.inputs = append(n.inputs, string(b))
		case 2:
			n.outputs = append(n.outputs, string(b))
		case 3:
			n.name = string(b)
		case 4:
			n.op = string(b)
		case 5:
			name, a, err := parseAttribute(b)
			n.attributes[name] = a
			return err
		case 7:
			n.domain = string(b)
		}
		return nil
	})
}

func parseAttribute(b []byte) (name string, a attribute, err error) {
	err = message(b, func(field protowire.Number, n uint64, b []byte) (err error) {
		switch field {
		case 1:
			name = string(b)
		case 2:
			a.f = math.Float32frombits(uint32(n))
		case 3:
			a.i = int64(n)
		case 5:
			a.tensor, err = parseTensor(b)
		case 8:
			a.ints, err = numbers(a.ints, n, b)
		case 13, 20: // a comment, the kind
		default:
			a.other = true
		}
		return err
	})
	return name, a, err
}

func parseTensor(b []byte) (*tensor, error) {
	t := &tensor{}
	var ints, shorts, dims []int64
	var floats []byte
	err := message(b, func(field protowire.Number, n uint64, b []byte) (err error) {
		switch field {
		case 1:
			dims, err = numbers(dims, n, b)
		case 2:
			t.kind = int64(n)
		case 4:
			if b == nil {
				b = binary.LittleEndian.AppendUint32(nil, uint32(n))
			}
			floats = append(floats, b...)
		case 5:
			shorts, err = numbers(shorts, n, b)
		case 7:
			ints, err = numbers(ints, n, b)
		case 8:
			t.name = string(b)
		case 9:
			t.raw = b
		case 13:
			err = errors.New("tensors in other files are not read")
		case 14:
			if n != 0 {
				err = errors.New("tensors in other files are not read")
			}
		}
		return err
	})
	if err != nil {
		return t, fmt.Errorf("tensor %q: %w", t.name, err)
	}
	if t.raw == nil {
		t.raw = floats
		for _, x := range ints {
			t.raw = binary.LittleEndian.AppendUint64(t.raw, uint64(x))
		}
		for _, x := range shorts {
			if t.kind == onnxInt32 {
				t.raw = binary.LittleEndian.AppendUint32(t.raw, uint32(x))
			} else {
				t.raw = binary.LittleEndian.AppendUint16(t.raw, uint16(x))
			}
		}
	}
	width := map[int64]int{onnxFloat: 4, onnxInt32: 4, onnxInt64: 8, onnxHalf: 2, onnxBF16: 2}[t.kind]
	if width == 0 {
		return t, nil // such a tensor may be there, but cannot be used
	}
	count := len(t.raw) / width
	want := 1
	for _, d := range dims {
		if d < 0 || d > math.MaxInt32 || d > 0 && want > math.MaxInt32/int(d) {
			return t, fmt.Errorf("tensor %q has shape %v", t.name, dims)
		}
		t.dims = append(t.dims, int(d))
		want *= int(d)
	}
	if want != count || len(t.raw)%width != 0 {
		return t, fmt.Errorf("tensor %q has %d bytes for shape %v", t.name, len(t.raw), dims)
	}
	return t, nil
}
