package weights

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/encode/internal/modeltest"
)

// bytes of messages, for tests: the other way of parseModel.

func varint(b []byte, field int, x int64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(field<<3)), uint64(x))
}

func body(b []byte, field int, x []byte) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(field<<3|2)), uint64(len(x)))
	return append(b, x...)
}

func (t *tensor) bytes() (b []byte) {
	for _, d := range t.dims {
		b = varint(b, 1, int64(d))
	}
	b = varint(b, 2, t.kind)
	return body(body(b, 8, []byte(t.name)), 9, t.raw)
}

func (n *node) bytes() (b []byte) {
	for _, x := range n.inputs {
		b = body(b, 1, []byte(x))
	}
	for _, x := range n.outputs {
		b = body(b, 2, []byte(x))
	}
	b = body(body(b, 3, []byte(n.name)), 4, []byte(n.op))
	for name, a := range n.attributes {
		x := body(nil, 1, []byte(name))
		switch {
		case a.ints != nil:
			for _, v := range a.ints {
				x = varint(x, 8, v)
			}
		case a.f != 0:
			x = binary.LittleEndian.AppendUint32(append(x, 2<<3|5), math.Float32bits(a.f))
		default:
			x = varint(x, 3, a.i)
		}
		b = body(b, 5, x)
	}
	return b
}

func (g *graph) bytes() []byte {
	var b []byte
	for _, n := range g.nodes {
		b = body(b, 1, n.bytes())
	}
	for _, t := range g.tensors {
		b = body(b, 5, t.bytes())
	}
	for _, x := range g.inputs {
		b = body(b, 11, body(nil, 1, []byte(x)))
	}
	for _, x := range g.outputs {
		b = body(b, 12, body(nil, 1, []byte(x)))
	}
	return body(body(varint(nil, 1, 8), 8, varint(body(nil, 1, nil), 2, g.opset)), 7, b)
}

// builder makes the graph of a tiny BERT.
type builder struct {
	g *graph
	n int
	x map[string]modeltest.Tensor
}

func (b *builder) add(op string, attributes map[string]attribute, inputs ...string) string {
	b.n++
	out := fmt.Sprintf("%s_%d", op, b.n)
	b.g.nodes = append(b.g.nodes, &node{op: op, inputs: inputs, outputs: []string{out}, attributes: attributes})
	return out
}

func (b *builder) tensor(name string, kind int64, raw []byte, dims ...int) string {
	b.g.tensors[name] = &tensor{name, dims, kind, raw}
	return name
}

func (b *builder) floats(name string, shape []int, x ...float32) string {
	var raw []byte
	for _, v := range x {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return b.tensor(name, onnxFloat, raw, shape...)
}

func (b *builder) ints(name string, x ...int64) string {
	var raw []byte
	for _, v := range x {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(v))
	}
	return b.tensor(name, onnxInt64, raw, len(x))
}

func (b *builder) product(from, name string) string {
	w := b.x[name+".weight"]
	out, in := w.Shape[0], w.Shape[1]
	t := make([]float32, len(w.Data))
	for i := range out {
		for j := range in {
			t[j*out+i] = w.Data[i*in+j]
		}
	}
	return b.add("MatMul", nil, from, b.floats(name+".weight", []int{in, out}, t...))
}

func (b *builder) linear(from, name string) string {
	bias := b.x[name+".bias"]
	return b.add("Add", nil, b.floats(name+".bias", bias.Shape, bias.Data...), b.product(from, name))
}

func (b *builder) norm(from, name string) string {
	g, beta := b.x[name+".weight"], b.x[name+".bias"]
	return b.add("LayerNormalization", map[string]attribute{"axis": {i: -1}, "epsilon": {f: 1e-12}}, from,
		b.floats(name+".weight", g.Shape, g.Data...), b.floats(name+".bias", beta.Shape, beta.Data...))
}

// tinyGraph is the golden BERT with a head of 32 dimensions.
func tinyGraph() *graph {
	b := &builder{g: &graph{tensors: map[string]*tensor{}, inputs: []string{"input_ids", "attention_mask"}, opset: 17}, x: modeltest.Tensors("bert")}
	b.x["linear.weight"] = modeltest.Random("linear", 0.25, 0, 32, 64)
	perm := func(p ...int64) map[string]attribute { return map[string]attribute{"perm": {ints: p}} }
	words, positions := b.x["embeddings.word_embeddings.weight"], b.x["embeddings.position_embeddings.weight"]
	types := b.x["embeddings.token_type_embeddings.weight"].Data
	sum := make([]float32, len(positions.Data))
	for i, v := range positions.Data {
		sum[i] = v + types[i%64]
	}
	zero := b.ints("zero", 0)
	length := b.add("Gather", nil, b.add("Shape", nil, "input_ids"), b.ints("one", 1))
	x := b.add("Add", nil, b.add("Gather", nil, b.floats("word", words.Shape, words.Data...), "input_ids"),
		b.add("Slice", nil, b.floats("pos", positions.Shape, sum...), zero, length, zero))
	x = b.norm(x, "embeddings.LayerNorm")
	mask := b.add("Unsqueeze", nil, b.add("Cast", map[string]attribute{"to": {i: onnxFloat}}, "attention_mask"), b.ints("axes", 1, 2))
	mask = b.add("Mul", nil, b.add("Sub", nil, b.floats("onef", []int{1}, 1), mask), b.floats("far", nil, -10000))
	heads, join := b.ints("heads", 0, 0, 2, 32), b.ints("join", 0, 0, 64)
	scale, root := b.floats("scale", []int{1}, float32(math.Sqrt(32))), b.floats("root", []int{1}, math.Sqrt2)
	half := b.floats("half", []int{1}, 0.5)
	for i := range 4 {
		l := fmt.Sprintf("encoder.layer.%d.", i)
		split := func(name string, p ...int64) string {
			return b.add("Transpose", perm(p...), b.add("Reshape", nil, b.linear(x, l+"attention.self."+name), heads))
		}
		q, k, v := split("query", 0, 2, 1, 3), split("key", 0, 2, 3, 1), split("value", 0, 2, 1, 3)
		s := b.add("Add", nil, b.add("Div", nil, b.add("MatMul", nil, q, k), scale), mask)
		s = b.add("MatMul", nil, b.add("Softmax", map[string]attribute{"axis": {i: -1}}, s), v)
		s = b.linear(b.add("Reshape", nil, b.add("Transpose", perm(0, 2, 1, 3), s), join), l+"attention.output.dense")
		a := b.norm(b.add("Add", nil, s, x), l+"attention.output.LayerNorm")
		u := b.linear(a, l+"intermediate.dense")
		g := b.add("Mul", nil, u, b.add("Add", nil, b.add("Erf", nil, b.add("Div", nil, u, root)), "onef"))
		x = b.norm(b.add("Add", nil, a, b.linear(b.add("Mul", nil, g, half), l+"output.dense")), l+"output.LayerNorm")
	}
	y := b.product(x, "linear")
	n := b.add("ReduceL2", map[string]attribute{"axes": {ints: []int64{-1}}, "keepdims": {i: 1}}, y)
	b.g.outputs = []string{b.add("Div", nil, y, b.add("Clip", nil, n, b.floats("eps", []int{1}, 1e-12)))}
	return b.g
}
