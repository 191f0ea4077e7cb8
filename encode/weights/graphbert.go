package weights

import (
	"math"
	"slices"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/native"
)

// model matches the whole graph.
func (m *matcher) model() *native.Weights {
	if m.config.Backbone.Family != modeldir.BERT {
		m.fail(nil, "graphs of %s are not recognised; with model.safetensors the model can be used", m.config.Backbone.Family)
	}
	if len(m.config.Dense) > 0 {
		m.fail(nil, "modules.json has heads, which a graph may lack; with model.safetensors the model can be used")
	}
	if m.graph.opset < 17 || m.graph.opset > 22 {
		m.fail(nil, "is of operator set %d, want 17 to 22", m.graph.opset)
	}
	for _, n := range m.graph.nodes {
		for _, o := range n.outputs {
			if m.by[o] != nil || m.graph.tensors[o] != nil {
				m.fail(n, "gives %q, which something else gives too", o)
			}
			m.by[o] = n
		}
	}
	if len(m.graph.outputs) != 1 {
		m.fail(nil, "gives %q, want one output", m.graph.outputs)
	}
	for _, in := range []string{"input_ids", "attention_mask"} {
		if !slices.Contains(m.graph.inputs, in) {
			m.fail(nil, "takes %q, want %s among them", m.graph.inputs, in)
		}
	}
	w := &native.Weights{}
	x := m.head(m.graph.outputs[0], w)
	for range m.config.Backbone.Layers {
		var l native.Layer
		x, l = m.layer(x)
		w.Layers = append(w.Layers, l)
	}
	slices.Reverse(w.Layers)
	m.embeddings(x, w)
	for _, n := range m.graph.nodes {
		if !m.used[n] {
			m.fail(n, "is no part of such a model")
		}
	}
	return w
}

// head is one product, whose rows become unit vectors.
func (m *matcher) head(value string, w *native.Weights) (x string) {
	div := m.node(value, "Div", 2)
	clip := m.node(div.inputs[1], "Clip", 2)
	m.about(clip, clip.inputs[1], 1e-12)
	inputs := 1
	if m.graph.opset >= 18 {
		inputs = 2
	}
	norm := m.node(clip.inputs[0], "ReduceL2", inputs, "axes", "keepdims", "noop_with_empty_axes")
	m.int(norm, "keepdims", 1, 1)
	if inputs == 2 {
		m.ints(norm, norm.inputs[1], -1)
	} else if axes := norm.attributes["axes"].ints; len(axes) != 1 || axes[0] != -1 && axes[0] != 2 {
		m.fail(norm, "axes are %v, want -1", axes)
	}
	if norm.inputs[0] != div.inputs[0] {
		m.fail(div, "does not divide by its own length")
	}
	h := m.config.Backbone.Hidden
	product := m.by[div.inputs[0]]
	if product == nil || len(product.inputs) != 2 {
		m.fail(product, "want a product with a weight there")
	}
	dims := m.tensor(product, product.inputs[1]).dims
	if len(dims) != 2 {
		m.fail(product, "%q has shape %v, want [%d, dimensions]", product.inputs[1], dims, h)
	}
	d := native.Dense{In: h, Out: dims[1]}
	x, d.Weight = m.product(div.inputs[0], d.Out, h)
	w.Heads = []native.Dense{d}
	return x
}

// layer gives what goes into it.
func (m *matcher) layer(value string) (string, native.Layer) {
	var l native.Layer
	h, wide := m.config.Backbone.Hidden, m.config.Backbone.Intermediate
	var sum, activated, x, y, context string
	sum, l.FeedForwardNorm = m.norm(value)
	x, activated, l.Down = m.residual(sum, h, wide)
	y, l.Up = m.linear(m.gelu(activated), wide, h)
	m.same(activated, y, x)
	sum, l.AttentionNorm = m.norm(x)
	x, context, l.Output = m.residual(sum, h, h)
	m.attention(context, x, &l)
	return x, l
}

// same checks that the branches of a layer begin at one value.
func (m *matcher) same(at, got, want string) {
	if got != want {
		m.fail(m.by[at], "comes from %q, want %q", got, want)
	}
}

// gelu is 0.5 · x · (1 + erf(x/√2)); it gives x.
func (m *matcher) gelu(value string) string {
	half := m.node(value, "Mul", 2)
	m.about(half, half.inputs[1], 0.5)
	gate := m.node(half.inputs[0], "Mul", 2)
	one, erf, tensor := m.sum(gate.inputs[1])
	m.about(one, tensor, 1)
	div := m.node(m.node(erf, "Erf", 1).inputs[0], "Div", 2)
	m.about(div, div.inputs[1], math.Sqrt2)
	m.same(value, div.inputs[0], gate.inputs[0])
	return gate.inputs[0]
}

// attention of the heads of x.
func (m *matcher) attention(value, x string, l *native.Layer) {
	b := &m.config.Backbone
	size := b.Hidden / b.Heads
	join := m.reshape(value, 0, 0, int64(b.Hidden))
	mix := m.node(m.transpose(join, 0, 2, 1, 3), "MatMul", 2)
	weights := m.node(mix.inputs[0], "Softmax", 1, "axis")
	m.int(weights, "axis", -1, -1, 3)
	masked := m.node(weights.inputs[0], "Add", 2)
	if m.mask == "" {
		m.mask = masked.inputs[1]
		m.maskBias(m.mask)
	}
	m.same(weights.inputs[0], masked.inputs[1], m.mask)
	scaled := m.node(masked.inputs[0], "Div", 2)
	m.about(scaled, scaled.inputs[1], math.Sqrt(float64(size)))
	scores := m.node(scaled.inputs[0], "MatMul", 2)
	for _, part := range []struct {
		value string
		perm  []int64
		to    *native.Linear
	}{
		{scores.inputs[0], []int64{0, 2, 1, 3}, &l.Query},
		{scores.inputs[1], []int64{0, 2, 3, 1}, &l.Key},
		{mix.inputs[1], []int64{0, 2, 1, 3}, &l.Value},
	} {
		var from string
		from, *part.to = m.linear(m.reshape(m.transpose(part.value, part.perm...), 0, 0, int64(b.Heads), int64(size)), b.Hidden, b.Hidden)
		m.same(part.value, from, x)
	}
}

// reshape gives what is given the shape, where 0 stands for what it was.
func (m *matcher) reshape(value string, shape ...int64) string {
	n := m.node(value, "Reshape", 2, "allowzero")
	m.int(n, "allowzero", 0, 0)
	m.ints(n, n.inputs[1], shape...)
	return n.inputs[0]
}

func (m *matcher) transpose(value string, perm ...int64) string {
	n := m.node(value, "Transpose", 1, "perm")
	if got := n.attributes["perm"].ints; !slices.Equal(got, perm) {
		m.fail(n, "perm is %v, want %v", got, perm)
	}
	return n.inputs[0]
}

// maskBias is what keeps tokens from being attended to: far enough below every
// score that its exponential is 0.
func (m *matcher) maskBias(value string) {
	mul := m.node(value, "Mul", 2)
	m.number(mul, mul.inputs[1], func(x float64) bool { return x <= -1000 }, "-1000 or less")
	sub := m.node(mul.inputs[0], "Sub", 2)
	m.about(sub, sub.inputs[0], 1)
	wide := m.node(sub.inputs[1], "Unsqueeze", 2)
	m.ints(wide, wide.inputs[1], 1, 2)
	cast := m.node(wide.inputs[0], "Cast", 1, "to")
	m.int(cast, "to", 0, onnxFloat)
	m.same(value, cast.inputs[0], "attention_mask")
}

// embeddings are words and positions; the row of token type 0 is in the latter.
func (m *matcher) embeddings(value string, w *native.Weights) {
	b := &m.config.Backbone
	sum, norm := m.norm(value)
	w.Norm = norm
	add := m.node(sum, "Add", 2)
	words := add.inputs[0]
	if n := m.by[words]; n != nil && n.op == "Cast" {
		m.int(m.node(words, "Cast", 1, "to"), "to", 0, onnxFloat)
		words = n.inputs[0]
	}
	gather := m.node(words, "Gather", 2, "axis")
	m.int(gather, "axis", 0, 0)
	m.same(words, gather.inputs[1], "input_ids")
	w.Words = m.floats(gather, gather.inputs[0], b.Vocabulary, b.Hidden)
	slice := m.node(add.inputs[1], "Slice", 4)
	w.Positions = m.floats(slice, slice.inputs[0], b.Positions, b.Hidden)
	m.ints(slice, slice.inputs[1], 0)
	m.ints(slice, slice.inputs[3], 0)
	length := m.node(slice.inputs[2], "Gather", 2, "axis")
	m.int(length, "axis", 0, 0)
	m.ints(length, length.inputs[1], 1)
	shape := m.node(length.inputs[0], "Shape", 1)
	m.same(slice.inputs[2], shape.inputs[0], "input_ids")
}
