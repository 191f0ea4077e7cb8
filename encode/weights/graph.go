package weights

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/native"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels"
)

// maxGraph is the size above which an ONNX file is not read: that of protobuf.
const maxGraph = 2 << 30

// loadONNX reads the tensors of a graph. The graph must be a BERT, node for
// node, with the sizes of the config.
func loadONNX(c *modeldir.Config) (*native.Weights, error) {
	path := filepath.Clean(c.Weights[0])
	f, info, err := files.OpenInput(path)
	if err != nil {
		return nil, &modeldir.ModelError{Path: path, Err: err}
	}
	defer f.Close()
	if info.Size() > maxGraph {
		return nil, modeldir.Faultf(path, "", modeldir.ErrGraph, "has %d bytes, at most %d are read", info.Size(), maxGraph)
	}
	b := make([]byte, info.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, &modeldir.ModelError{Path: path, Err: err}
	}
	return recognize(path, b, c)
}

// matcher follows a graph from its output to its inputs. The first node that is
// not what it should be ends that.
type matcher struct {
	path   string
	config *modeldir.Config
	graph  *graph
	by     map[string]*node // value → the node that gives it
	used   map[*node]bool
	mask   string // the bias of attention scores, the same in every layer
}

// stop is the panic that recognize turns into an error.
type stop struct{ err error }

// recognize reads a BERT of Stanford's ColBERT: embeddings, layers, one product
// without a bias, unit vectors.
func recognize(path string, b []byte, c *modeldir.Config) (w *native.Weights, err error) {
	g, err := parseModel(b)
	if err != nil {
		return nil, modeldir.Faultf(path, "", modeldir.ErrGraph, "%w", err)
	}
	m := &matcher{path: path, config: c, graph: g, by: map[string]*node{}, used: map[*node]bool{}}
	defer func() {
		if s := recover(); s != nil {
			stopped, ok := s.(stop)
			if !ok {
				panic(s)
			}
			w, err = nil, stopped.err
		}
	}()
	return m.model(), nil
}

// label is how a node is named: many have no name but that of what they give.
func label(n *node) string {
	if n.name != "" {
		return n.name
	}
	if len(n.outputs) > 0 {
		return n.outputs[0]
	}
	return "a node without name"
}

func (m *matcher) fail(n *node, format string, args ...any) {
	field := ""
	if n != nil {
		field = fmt.Sprintf("node %s (%s)", label(n), n.op)
	}
	panic(stop{modeldir.Faultf(m.path, field, modeldir.ErrGraph, format, args...)})
}

// node is the one that gives a value. It must have the operation and so many
// inputs, and no attributes but those named.
func (m *matcher) node(value, op string, inputs int, attributes ...string) *node {
	n := m.by[value]
	if n == nil {
		m.fail(nil, "no node gives %q: want %s", value, op)
	}
	if n.op != op || n.domain != "" {
		m.fail(n, "want %s there", op)
	}
	if len(n.inputs) != inputs {
		m.fail(n, "has %d inputs, want %d", len(n.inputs), inputs)
	}
	for name, a := range n.attributes {
		if !slices.Contains(attributes, name) || a.other {
			m.fail(n, "attribute %s is not known", name)
		}
	}
	m.used[n] = true
	return n
}

// int checks an attribute, whose default may be the value wanted.
func (m *matcher) int(n *node, name string, standard int64, want ...int64) {
	v := standard
	if a, ok := n.attributes[name]; ok {
		v = a.i
	}
	if !slices.Contains(want, v) {
		m.fail(n, "%s is %d, want %v", name, v, want)
	}
}

// constant is what a value always is: a tensor of the file, or of a node
// Constant, maybe through a cast to float32. It is nil for other values.
func (m *matcher) constant(value string, used ...*node) *tensor {
	if t := m.graph.tensors[value]; t != nil {
		for _, n := range used {
			m.used[n] = true
		}
		return t
	}
	n := m.by[value]
	switch {
	case n == nil || n.domain != "" || len(n.attributes) != 1 || slices.Contains(used, n):
	case n.op == "Constant" && n.attributes["value"].tensor != nil:
		m.used[n] = true
		return n.attributes["value"].tensor
	case n.op == "Cast" && len(n.inputs) == 1 && n.attributes["to"].i == onnxFloat:
		return m.constant(n.inputs[0], append(used, n)...)
	}
	return nil
}

// tensor is the constant that a node takes.
func (m *matcher) tensor(user *node, value string) *tensor {
	t := m.constant(value)
	if t == nil {
		m.fail(user, "takes %q, which is no tensor of the file", value)
	}
	return t
}

// floats are the numbers of a tensor of a shape.
func (m *matcher) floats(user *node, value string, shape ...int) []float32 {
	t := m.tensor(user, value)
	if !slices.Equal(t.dims, shape) {
		m.fail(user, "%q has shape %v, want %v", value, t.dims, shape)
	}
	width := 4
	if t.kind == onnxHalf || t.kind == onnxBF16 {
		width = 2
	}
	x := make([]float32, len(t.raw)/width)
	for i := range x {
		switch t.kind {
		case onnxFloat:
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.raw[4*i:]))
		case onnxHalf:
			x[i] = kernels.F16ToF32(binary.LittleEndian.Uint16(t.raw[2*i:]))
		case onnxBF16:
			x[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(t.raw[2*i:])) << 16)
		default:
			m.fail(user, "%q has numbers of type %d, want floats", value, t.kind)
		}
	}
	if at := notFinite(x); at >= 0 {
		panic(stop{modeldir.Faultf(m.path, value, modeldir.ErrWeights, "value %d is %v", at, x[at])})
	}
	return x
}

// number checks a tensor of one number.
func (m *matcher) number(user *node, value string, ok func(x float64) bool, want string) {
	t := m.tensor(user, value)
	if len(t.raw) != 4 || len(t.dims) > 1 {
		m.fail(user, "%q has shape %v, want one float", value, t.dims)
	}
	if x := m.floats(user, value, t.dims...)[0]; !ok(float64(x)) {
		m.fail(user, "%q is %g, want %s", value, x, want)
	}
}

// about checks a number up to float32's rounding.
func (m *matcher) about(user *node, value string, want float64) {
	m.number(user, value, func(x float64) bool { return math.Abs(x-want) <= 1e-6*math.Abs(want) }, fmt.Sprint(want))
}

// ints checks a tensor of whole numbers.
func (m *matcher) ints(user *node, value string, want ...int64) {
	t := m.tensor(user, value)
	var got []int64
	for b := t.raw; t.kind == onnxInt64 && len(b) >= 8; b = b[8:] {
		got = append(got, int64(binary.LittleEndian.Uint64(b)))
	}
	if !slices.Equal(got, want) {
		m.fail(user, "%q is %v, want %v", value, got, want)
	}
}

// sum parts an addition into the operand that is a tensor, and the other one.
func (m *matcher) sum(value string) (n *node, other, tensor string) {
	n = m.node(value, "Add", 2)
	if other, tensor = n.inputs[0], n.inputs[1]; m.constant(tensor) == nil {
		other, tensor = tensor, other
	}
	return n, other, tensor
}

// linear is W·x + b; it gives x.
func (m *matcher) linear(value string, out, in int) (x string, l native.Linear) {
	n, product, bias := m.sum(value)
	l.Bias = m.floats(n, bias, out)
	x, l.Weight = m.product(product, out, in)
	return x, l
}

// product is x·W, the weight [in, out]; it gives it as [out, in].
func (m *matcher) product(value string, out, in int) (x string, weight []float32) {
	n := m.node(value, "MatMul", 2)
	w := m.floats(n, n.inputs[1], in, out)
	weight = make([]float32, len(w))
	for i := range in {
		for j, v := range w[i*out : (i+1)*out] {
			weight[j*in+i] = v
		}
	}
	return n.inputs[0], weight
}

// norm is a layer norm; it gives what is normalized.
func (m *matcher) norm(value string) (x string, l native.Norm) {
	n := m.node(value, "LayerNormalization", 3, "axis", "epsilon", "stash_type")
	m.int(n, "axis", -1, -1, 2)
	m.int(n, "stash_type", 1, 1)
	epsilon := 1e-5
	if a, ok := n.attributes["epsilon"]; ok {
		epsilon = float64(a.f)
	}
	if want := m.config.Backbone.Epsilon; math.Abs(epsilon-want) > 1e-6*want {
		m.fail(n, "epsilon is %g, but config.json says %g", epsilon, want)
	}
	h := m.config.Backbone.Hidden
	return n.inputs[0], native.Norm{Gamma: m.floats(n, n.inputs[1], h), Beta: m.floats(n, n.inputs[2], h)}
}

// residual is x + W·y + b; it gives x and y.
func (m *matcher) residual(value string, out, in int) (x, y string, l native.Linear) {
	n := m.node(value, "Add", 2)
	x, y = n.inputs[1], n.inputs[0]
	if p := m.by[y]; p == nil || p.op != "Add" {
		x, y = y, x
	}
	y, l = m.linear(y, out, in)
	return x, y, l
}
