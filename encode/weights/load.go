// Package weights reads the tensors of a model from its folder: from safetensors or
// pytorch_model.bin, in one file or in shards. Numbers of half precision become float32.
//
// Every tensor must have the name and shape that the settings require, and be
// finite. An additional tensor is an error too, because it belongs to
// another model.
package weights

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/native"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// Load reads the tensors of a model. Errors are of type [*modeldir.ModelError].
func Load(c *modeldir.Config) (native.Config, *native.Weights, error) {
	n := c.Backbone.Config
	// A table of rotary angles has a row per position: it needs none beyond the longest text.
	if !n.LearnedPositions {
		n.MaxPositions = min(n.MaxPositions, max(c.Query.Length, c.Document.Length))
	}
	w, err := loadTensors(c)
	if err != nil {
		return n, nil, err
	}
	dim := c.Backbone.Hidden
	if len(w.Heads) > 0 {
		dim = w.Heads[len(w.Heads)-1].Out
	}
	if c.Dim != 0 && dim != c.Dim {
		return n, nil, modeldir.Errorf(c.Weights[0], "", modeldir.ErrContradiction,
			"gives vectors of %d dimensions, but %s says %d", dim, c.Origin["dim"], c.Dim)
	}
	return n, w, nil
}

// loadTensors reads the backbone and the heads.
func loadTensors(c *modeldir.Config) (*native.Weights, error) {
	t, err := openTensors(c.Weights)
	if err != nil {
		return nil, err
	}
	defer t.close()
	w := &native.Weights{}
	readBackbone(t, &c.Backbone, w)
	if t.contains("linear.weight") {
		shape := t.shapeOf("linear.weight")
		switch {
		case len(c.Dense) > 0:
			t.ignore("linear.")
		case len(shape) != 2 || shape[0] < 1:
			t.setError("linear.weight", "has shape %v, want [dimensions, %d]", shape, c.Backbone.Hidden)
		default:
			head := native.Dense{In: c.Backbone.Hidden, Out: shape[0]}
			head.Linear = t.linear("linear", head.Out, head.In, t.contains("linear.bias"))
			w.Heads = append(w.Heads, head)
		}
	}
	if err := t.finish(); err != nil {
		return nil, err
	}
	for _, d := range c.Dense {
		head, err := readDense(d)
		if err != nil {
			return nil, err
		}
		w.Heads = append(w.Heads, head)
	}
	return w, nil
}

var activations = map[string]native.Activation{
	"identity": transformer.Identity, "relu": transformer.ReLU, "gelu": transformer.GELU,
	"gelu_tanh": transformer.GELUTanh, "silu": transformer.SiLU, "tanh": transformer.Tanh,
}

// readDense reads a head from its own file.
func readDense(d modeldir.Dense) (native.Dense, error) {
	h := native.Dense{In: d.In, Out: d.Out, Residual: d.Residual}
	var ok bool
	if h.Activation, ok = activations[d.Activation]; !ok {
		return h, modeldir.Errorf(d.Path, "activation_function", modeldir.ErrFamily, "%q is not known", d.Activation)
	}
	t, err := openTensors([]string{d.Path})
	if err != nil {
		return h, err
	}
	defer t.close()
	h.Weight = t.read("linear.weight", d.Out, d.In)
	if d.Bias {
		h.Bias = t.read("linear.bias", d.Out)
	}
	if d.Residual && d.In != d.Out {
		h.ResidualWeight = t.read("residual.weight", d.Out, d.In)
	}
	return h, t.finish()
}

// modelError wraps the error of a file, or of a tensor in it, in a ModelError.
func modelError(path, field string, err error) error {
	var me *modeldir.ModelError
	if errors.As(err, &me) {
		return err
	}
	text := strings.TrimPrefix(err.Error(), path+": ")
	return &modeldir.ModelError{Path: filepath.Clean(path), Field: field, Err: &described{text, err}}
}

// described is an error of another package without its path, which ModelError names.
type described struct {
	text string
	err  error
}

func (d *described) Error() string   { return modeldir.ErrWeights.Error() + ": " + d.text }
func (d *described) Unwrap() []error { return []error{modeldir.ErrWeights, d.err} }
