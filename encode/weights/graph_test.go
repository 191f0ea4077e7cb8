package weights

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/internal/modeltest"
	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/native"
)

// graphFolder writes a folder of Stanford's kind with a graph for weights.
func graphFolder(t testing.TB, b []byte) string {
	t.Helper()
	dir := t.TempDir()
	modeltest.Stanford(t, dir)
	require.NoError(t, os.Remove(filepath.Join(dir, "model.safetensors")))
	modeltest.WriteFile(t, filepath.Join(dir, "model.onnx"), b)
	return dir
}

// TestGraph: a graph gives the weights that a file of tensors gives.
func TestGraph(t *testing.T) {
	dir := t.TempDir()
	modeltest.Stanford(t, dir)
	m := modeltest.Tensors("bert")
	m["linear.weight"] = modeltest.Random("linear", 0.25, 0, 32, 64)
	modeltest.Safetensors(t, filepath.Join(dir, "model.safetensors"), "F32", m)
	c, want, err := load(dir)
	require.NoError(t, err)
	for i := range want.Positions { // the graph has the row of token type 0 there
		want.Positions[i] += want.Types[i%64]
	}
	want.Types = nil
	d, got, err := load(graphFolder(t, tinyGraph().bytes()))
	require.NoError(t, err)
	require.Equal(t, c, d)
	require.Equal(t, want, got)
	_, err = native.New(d, got, native.Options{})
	require.NoError(t, err)
	// An empty optional input, operands the other way round, another name of an axis.
	g := tinyGraph()
	for _, n := range g.nodes {
		if n.op == "Softmax" {
			n.attributes["axis"] = attribute{i: 3}
		}
	}
	_, got, err = load(graphFolder(t, g.bytes()))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// TestGraphFaults: whatever is changed in the graph is noticed, and the node named.
func TestGraphFaults(t *testing.T) {
	for _, f := range []struct {
		node, message string
		change        func(g *graph, n *node)
	}{
		{"Erf", " (Tanh): graph is not recognised: want Erf there", func(_ *graph, n *node) { n.op = "Tanh" }},
		{"Softmax", "axis is 1", func(_ *graph, n *node) { n.attributes["axis"] = attribute{i: 1} }},
		{"Softmax", "attribute extra is not known", func(_ *graph, n *node) { n.attributes["extra"] = attribute{i: 1} }},
		{"Transpose", "perm is [0 2 3 1], want [0 2 1 3]", func(_ *graph, n *node) { n.attributes["perm"] = attribute{ints: []int64{0, 2, 3, 1}} }},
		{"LayerNormalization", "but config.json says 1e-12", func(_ *graph, n *node) { n.attributes["epsilon"] = attribute{f: 1e-5} }},
		{"Gather", "", func(_ *graph, n *node) { n.inputs[1] = "zero" }},
		{"MatMul", "", func(_ *graph, n *node) { slices.Reverse(n.inputs) }},
		{"", "node extra (Relu): graph is not recognised: is no part of such a model", func(g *graph, _ *node) {
			g.nodes = append(g.nodes, &node{name: "extra", op: "Relu", inputs: []string{g.outputs[0]}, outputs: []string{"y"}})
		}},
		{"", "something else gives too", func(g *graph, _ *node) { g.nodes = append(g.nodes, g.nodes[0]) }},
		{"", "is of operator set 12", func(g *graph, _ *node) { g.opset = 12 }},
		{"", "want one output", func(g *graph, _ *node) { g.outputs = append(g.outputs, "x") }},
		{"", "want attention_mask among them", func(g *graph, _ *node) { g.inputs = []string{"input_ids"} }},
		{"", `no node gives "nothing"`, func(g *graph, _ *node) { g.outputs = []string{"nothing"} }},
		{"", `"scale" is 5, want`, func(g *graph, _ *node) { (&builder{g: g}).floats("scale", []int{1}, 5) }},
		{"", `"heads" is [0 0 4 16]`, func(g *graph, _ *node) { (&builder{g: g}).ints("heads", 0, 0, 4, 16) }},
		{"", "want -1000 or less", func(g *graph, _ *node) { (&builder{g: g}).floats("far", nil, -10) }},
		{"", `"word" has shape [64 50], want [50 64]`, func(g *graph, _ *node) { slices.Reverse(g.tensors["word"].dims) }},
		{"", `"word" has numbers of type 6`, func(g *graph, _ *node) { g.tensors["word"].kind = onnxInt32 }},
		{"", `tensor "word" has`, func(g *graph, _ *node) { g.tensors["word"].raw = g.tensors["word"].raw[:8] }},
		{"Cast", `takes "c", which is no tensor`, func(g *graph, n *node) {
			g.nodes = append(g.nodes, &node{op: "Cast", inputs: []string{"c"}, outputs: []string{"c"}, attributes: map[string]attribute{"to": {i: onnxFloat}}})
			g.nodes[len(g.nodes)-3].inputs[1] = "c"
		}},
	} {
		g := tinyGraph()
		var at *node
		for _, n := range g.nodes {
			if n.op == f.node && at == nil {
				at = n
			}
		}
		require.True(t, f.node == "" || at != nil, "no %s", f.node)
		f.change(g, at)
		_, _, err := load(graphFolder(t, g.bytes()))
		require.ErrorIs(t, err, modeldir.ErrGraph, "%s: %v", f.node, err)
		require.ErrorContains(t, err, "model.onnx: ")
		require.ErrorContains(t, err, f.message)
	}
	g := tinyGraph()
	copy(g.tensors["pos"].raw[4:], []byte{0, 0, 0xc0, 0x7f})
	_, _, err := load(graphFolder(t, g.bytes()))
	require.ErrorIs(t, err, modeldir.ErrWeights)
	require.ErrorContains(t, err, "pos: unusable weights: value 1 is NaN")
	for _, b := range [][]byte{nil, []byte("text"), tinyGraph().bytes()[:5000]} {
		_, _, err := load(graphFolder(t, b))
		require.ErrorIs(t, err, modeldir.ErrGraph)
		require.ErrorContains(t, err, "cut short")
	}
	// Of another family, or with heads that a graph may lack.
	dir := t.TempDir()
	modeltest.PyLate(t, dir, "modernbert")
	require.NoError(t, os.Remove(filepath.Join(dir, "model.safetensors")))
	modeltest.WriteFile(t, filepath.Join(dir, "model.onnx"), tinyGraph().bytes())
	_, _, err = load(dir)
	require.ErrorIs(t, err, modeldir.ErrGraph)
	require.True(t, strings.Contains(err.Error(), "modernbert"), err)
}

// FuzzGraph: no bytes make the reader panic or go on for ever.
func FuzzGraph(f *testing.F) {
	whole := tinyGraph()
	for _, t := range whole.tensors { // short seeds change more
		if len(t.raw) > 64 {
			t.raw, t.dims = t.raw[:64], []int{16}
		}
	}
	f.Add(whole.bytes())
	f.Add([]byte{0x3a, 0x02, 0x0a, 0x00})
	f.Add([]byte{0x3a, 0x06, 0x2a, 0x04, 0x08, 0x80, 0x80, 0x01})
	dir := f.TempDir()
	modeltest.Stanford(f, dir)
	c, err := modeldir.Read(dir, nil)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := recognize("fuzz", b, c); err != nil {
			var me *modeldir.ModelError
			require.ErrorAs(t, err, &me)
		}
	})
}

// FuzzSafetensors: no file of tensors makes the reader panic.
func FuzzSafetensors(f *testing.F) {
	dir := f.TempDir()
	modeltest.Stanford(f, dir)
	b, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	require.NoError(f, err)
	f.Add(b)
	f.Add(b[:len(b)-2])
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Add([]byte(`5       {"linear.weight":{"dtype":"F32","shape":[0,64],"data_offsets":[0,0]}}`))
	c, err := modeldir.Read(dir, nil)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, b []byte) {
		own := *c
		path := filepath.Join(t.TempDir(), "model.safetensors")
		own.Weights = []string{path}
		modeltest.WriteFile(t, path, b)
		if _, _, err := Load(&own); err != nil {
			var me *modeldir.ModelError
			require.ErrorAs(t, err, &me)
		}
	})
}
