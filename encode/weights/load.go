// Package weights reads the tensors of a model from its folder: from safetensors or from
// pytorch_model.bin, in one file or sharded. Numbers of half precision become float32.
//
// Every tensor must have the name and shape that the settings ask for, and be
// finite; a tensor that is not asked for is an error too, because a model that
// has one is another model.
package weights

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/native"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// Load reads the tensors of a model. Errors are [*modeldir.ModelError].
func Load(c *modeldir.Config) (native.Config, *native.Weights, error) {
	n := c.Backbone.Config
	w, err := loadTensors(c)
	if err != nil {
		return n, nil, err
	}
	dim := c.Backbone.Hidden
	if len(w.Heads) > 0 {
		dim = w.Heads[len(w.Heads)-1].Out
	}
	if c.Dim != 0 && dim != c.Dim {
		return n, nil, modeldir.Faultf(c.Weights[0], "", modeldir.ErrContradiction, "gives vectors of %d dimensions, but %s says %d",
			dim, c.Origin["dim"], c.Dim)
	}
	return n, w, nil
}

func loadTensors(c *modeldir.Config) (*native.Weights, error) {
	t, err := openTensors(c.Weights)
	if err != nil {
		return nil, err
	}
	defer t.close()
	w := &native.Weights{}
	switch c.Backbone.Family {
	case modeldir.BERT:
		bert(t, c, w)
	case modeldir.XLMR, modeldir.JinaV3:
		xlmr(t, c, w)
	case modeldir.ModernBERT:
		modernBERT(t, c, w)
	default:
		return nil, modeldir.Faultf(c.Dir, "model_type", modeldir.ErrFamily, "is %q", c.Backbone.Family)
	}
	if t.has("linear.weight") {
		shape := t.shape("linear.weight")
		switch {
		case len(c.Dense) > 0:
			t.ignore("linear.")
		case len(shape) != 2 || shape[0] < 1:
			t.fail("linear.weight", "has shape %v, want [dimensions, %d]", shape, c.Backbone.Hidden)
		default:
			head := native.Dense{In: c.Backbone.Hidden, Out: shape[0]}
			head.Linear = t.linear("linear", head.Out, head.In, false)
			w.Heads = append(w.Heads, head)
		}
	}
	if err := t.done(); err != nil {
		return nil, err
	}
	for _, d := range c.Dense {
		head, err := dense(d)
		if err != nil {
			return nil, err
		}
		w.Heads = append(w.Heads, head)
	}
	return w, nil
}

var activations = map[string]native.Activation{
	"identity": transformer.Identity, "relu": transformer.ReLU, "gelu": transformer.GELU, "gelu_tanh": transformer.GELUTanh,
	"silu": transformer.SiLU, "tanh": transformer.Tanh,
}

// dense reads a head of its own file.
func dense(d modeldir.Dense) (native.Dense, error) {
	h := native.Dense{In: d.In, Out: d.Out, Residual: d.Residual}
	var ok bool
	if h.Activation, ok = activations[d.Activation]; !ok {
		return h, modeldir.Faultf(d.Path, "activation_function", modeldir.ErrFamily, "%q is not known", d.Activation)
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
	return h, t.done()
}

// prefixed finds the prefix that the names of the backbone have.
func prefixed(t *tensors, known string, prefixes ...string) string {
	for _, p := range prefixes {
		if t.has(p + known) {
			return p
		}
	}
	return prefixes[0]
}

// embeddings reads those of words, types and, where they are learned, positions.
func embeddings(t *tensors, p string, b *modeldir.Backbone, w *native.Weights) {
	h := b.Hidden
	w.Words = t.read(p+"embeddings.word_embeddings.weight", b.Vocabulary, h)
	if b.LearnedPositions {
		w.Positions = t.read(p+"embeddings.position_embeddings.weight", b.MaxPositions+b.PositionOffset, h)
	}
	types := p + "embeddings.token_type_embeddings.weight"
	if shape := t.shape(types); len(shape) == 2 {
		w.Types = t.read(types, shape[0], h)
	} else {
		w.Types = t.read(types, 2, h)
	}
}

func bert(t *tensors, c *modeldir.Config, w *native.Weights) {
	bertLayers(t, c, w, prefixed(t, "embeddings.word_embeddings.weight", "bert.", ""))
}

func bertLayers(t *tensors, c *modeldir.Config, w *native.Weights, p string) {
	b := &c.Backbone
	h := b.Hidden
	embeddings(t, p, b, w)
	w.Norm = t.norm(p+"embeddings.LayerNorm", h, true)
	for i := range b.Layers {
		l := fmt.Sprintf("%sencoder.layer.%d.", p, i)
		w.Layers = append(w.Layers, native.Layer{
			AttentionNorm: t.norm(l+"attention.output.LayerNorm", h, true),
			Query:         t.linear(l+"attention.self.query", h, h, true), Key: t.linear(l+"attention.self.key", h, h, true),
			Value: t.linear(l+"attention.self.value", h, h, true), Output: t.linear(l+"attention.output.dense", h, h, true),
			FeedForwardNorm: t.norm(l+"output.LayerNorm", h, true),
			Up:              t.linear(l+"intermediate.dense", b.Intermediate, h, true), Down: t.linear(l+"output.dense", h, b.Intermediate, true),
		})
	}
	// What pre-training needed.
	t.ignore(p+"embeddings.position_ids", p+"pooler.", "cls.")
}

// xlmr reads the tensors of XLM-R, under the names of its own class, of jina-colbert-v2 or
// of transformers' JinaEmbeddingsV3.
func xlmr(t *tensors, c *modeldir.Config, w *native.Weights) {
	b := &c.Backbone
	h, wide := b.Hidden, b.Intermediate
	p := prefixed(t, "embeddings.word_embeddings.weight", "roberta.", "bert.", "")
	t.ignore(p+"pooler.", "lm_head.")
	switch {
	case b.Family == modeldir.JinaV3:
		embeddings(t, p, b, w)
		w.Norm = t.norm(p+"embeddings.LayerNorm", h, true)
		for i := range b.Layers {
			l := fmt.Sprintf("%slayers.%d.", p, i)
			a := l + "self_attn."
			w.Layers = append(w.Layers, native.Layer{
				AttentionNorm: t.norm(l+"post_attention_layernorm", h, true), FeedForwardNorm: t.norm(l+"post_mlp_layernorm", h, true),
				Query: t.linear(a+"q_proj", h, h, true), Key: t.linear(a+"k_proj", h, h, true), Value: t.linear(a+"v_proj", h, h, true),
				Output: t.linear(a+"o_proj", h, h, true), Up: t.linear(l+"mlp.fc1", wide, h, true), Down: t.linear(l+"mlp.fc2", h, wide, true),
			})
		}
	case !b.LearnedPositions:
		embeddings(t, p, b, w)
		w.Norm = t.norm(p+"emb_ln", h, true)
		for i := range b.Layers {
			l := fmt.Sprintf("%sencoder.layers.%d.", p, i)
			y := native.Layer{
				AttentionNorm: t.norm(l+"norm1", h, true), FeedForwardNorm: t.norm(l+"norm2", h, true),
				Output: t.linear(l+"mixer.out_proj", h, h, true), Up: t.linear(l+"mlp.fc1", wide, h, true), Down: t.linear(l+"mlp.fc2", h, wide, true),
			}
			thirds(&y, t.linear(l+"mixer.Wqkv", 3*h, h, true), h)
			w.Layers = append(w.Layers, y)
		}
	default:
		bertLayers(t, c, w, p)
	}
}

// thirds gives queries, keys and values their rows of one map.
func thirds(y *native.Layer, qkv native.Linear, h int) {
	for j, to := range []*native.Linear{&y.Query, &y.Key, &y.Value} {
		if qkv.Weight != nil {
			to.Weight = qkv.Weight[j*h*h : (j+1)*h*h]
		}
		if qkv.Bias != nil {
			to.Bias = qkv.Bias[j*h : (j+1)*h]
		}
	}
}

func modernBERT(t *tensors, c *modeldir.Config, w *native.Weights) {
	b := &c.Backbone
	h, wide := b.Hidden, b.Intermediate
	p := prefixed(t, "embeddings.tok_embeddings.weight", "model.", "")
	w.Words = t.read(p+"embeddings.tok_embeddings.weight", b.Vocabulary, h)
	w.Norm = t.norm(p+"embeddings.norm", h, false)
	w.Final = t.norm(p+"final_norm", h, false)
	for i := range b.Layers {
		l := fmt.Sprintf("%slayers.%d.", p, i)
		layer := native.Layer{
			FeedForwardNorm: t.norm(l+"mlp_norm", h, false), Output: t.linear(l+"attn.Wo", h, h, false),
			Up: t.linear(l+"mlp.Wi", 2*wide, h, false), Down: t.linear(l+"mlp.Wo", h, wide, false),
		}
		if i > 0 {
			layer.AttentionNorm = t.norm(l+"attn_norm", h, false)
		}
		thirds(&layer, t.linear(l+"attn.Wqkv", 3*h, h, false), h)
		w.Layers = append(w.Layers, layer)
	}
	t.ignore("head.", "decoder.", "classifier.")
}

// asModelError marks a fault of a file.
func asModelError(path, field string, err error) error {
	var me *modeldir.ModelError
	if errors.As(err, &me) {
		return err
	}
	text := strings.TrimPrefix(err.Error(), path+": ")
	return &modeldir.ModelError{Path: filepath.Clean(path), Field: field, Err: &described{text, err}}
}

// described is an error of another package without the path that ModelError names.
type described struct {
	text string
	err  error
}

func (d *described) Error() string   { return modeldir.ErrWeights.Error() + ": " + d.text }
func (d *described) Unwrap() []error { return []error{modeldir.ErrWeights, d.err} }
