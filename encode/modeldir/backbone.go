package modeldir

import (
	"strconv"
	"strings"

	"github.com/plaid-ir/plaid/kernels/transformer"
)

// backbone reads the sizes of the transformer from config.json.
func (r *reader) backbone() error {
	if r.graphs != nil {
		return r.graphBackbone()
	}
	f := r.config
	kind, err := must[string](f, "model_type")(f.text("model_type"))
	if err != nil {
		return err
	}
	b := &r.c.Backbone
	b.Family = Family(kind)
	activation, epsilon, epsilonKey := "hidden_act", 1e-12, "layer_norm_eps"
	b.Activation = transformer.GELU
	switch b.Family {
	case XLMR, JinaV3:
		epsilon = 1e-5
	case BERT:
		if s, ok, err := f.text("position_embedding_type"); err != nil || ok && s != "absolute" {
			return firstError(err, f.faultf("position_embedding_type", ErrFamily, "is %q, want absolute", s))
		}
		if is, _, err := f.bool("is_decoder"); err != nil || is {
			return firstError(err, f.faultf("is_decoder", ErrFamily, "is true"))
		}
	case ModernBERT:
		activation, epsilon, epsilonKey = "hidden_activation", 1e-5, "norm_eps"
	default:
		return f.faultf("model_type", ErrFamily, "is %q, want bert, modernbert, xlm-roberta or jina_embeddings_v3", kind)
	}
	if s, ok, err := f.text(activation); err != nil || ok && s != "gelu" {
		return firstError(err, f.faultf(activation, ErrFamily, "is %q, want gelu", s))
	}
	var layers int
	for _, s := range []struct {
		key   string
		to    *int
		least int
	}{
		{"hidden_size", &b.Hidden, 1}, {"num_hidden_layers", &layers, 1}, {"num_attention_heads", &b.Heads, 1},
		{"intermediate_size", &b.Intermediate, 1}, {"max_position_embeddings", &b.MaxPositions, 4}, {"vocab_size", &b.Vocabulary, 1},
	} {
		if *s.to, err = must[int](f, s.key)(f.int(s.key, s.least)); err != nil {
			return err
		}
	}
	if b.Hidden%b.Heads != 0 {
		return f.faultf("num_attention_heads", ErrConfig, "is %d, which do not divide %d dimensions", b.Heads, b.Hidden)
	}
	b.KeyHeads, b.HeadSize = b.Heads, b.Hidden/b.Heads
	b.Layers = transformer.EqualLayers(layers, 0)
	if epsilon, err = orElse(epsilon)(f.float(epsilonKey)); err != nil {
		return err
	}
	if !(epsilon >= 0 && epsilon < 1) {
		return f.faultf(epsilonKey, ErrConfig, "is %g", epsilon)
	}
	b.Epsilon = float32(epsilon)
	r.origin["backbone"] = r.name(f.path)
	switch b.Family {
	case ModernBERT:
		return r.modern(f, b)
	case XLMR, JinaV3:
		return r.xlmr(f, b)
	}
	b.LearnedPositions = true
	return nil
}

// xlmr reads what the family of XLM-R has of its own: where its positions come from.
func (r *reader) xlmr(f *file, b *Backbone) error {
	if is, _, err := f.bool("is_decoder"); err != nil || is {
		return firstError(err, f.faultf("is_decoder", ErrFamily, "is true"))
	}
	if f.has("lora_adaptations") {
		return f.faultf("lora_adaptations", ErrFamily, "adapters of tasks are not computed")
	}
	if b.Family == JinaV3 {
		o, err := f.object("rope_parameters")
		if err != nil || o == nil {
			return firstError(err, f.faultf("rope_parameters", ErrConfig, "is missing"))
		}
		return r.rotary(o, "rope_theta", b)
	}
	switch kind, ok, err := f.text("position_embedding_type"); {
	case err != nil:
		return err
	case kind == "rotary":
		return r.rotary(f, "rotary_emb_base", b)
	case ok && kind != "absolute":
		return f.faultf("position_embedding_type", ErrFamily, "is %q, want absolute or rotary", kind)
	}
	var err error
	b.LearnedPositions = true
	b.PositionOffset, err = r.behindPadding(f, b)
	return err
}

// rotary reads the base of rotary angles.
func (r *reader) rotary(f *file, key string, b *Backbone) error {
	if s, ok, err := f.text("rope_type"); err != nil || ok && s != "default" {
		return firstError(err, f.faultf("rope_type", ErrFamily, "is %q, want default", s))
	}
	theta, err := must[float64](f, key)(f.float(key))
	if err != nil {
		return err
	}
	if !(theta > 1) {
		return f.faultf(key, ErrConfig, "is %g", theta)
	}
	b.Layers = transformer.EqualLayers(len(b.Layers), theta)
	return nil
}

// behindPadding takes off the positions up to that of the padding, which texts of RoBERTa's
// family begin behind, and says how many they are.
func (r *reader) behindPadding(f *file, b *Backbone) (int, error) {
	pad, err := orElse(1)(f.int("pad_token_id", 0))
	if err != nil {
		return 0, err
	}
	if b.MaxPositions -= pad + 1; b.MaxPositions < 4 {
		return 0, f.faultf("max_position_embeddings", ErrConfig, "leaves room for %d ids", b.MaxPositions)
	}
	return pad + 1, nil
}

// Unbounded is the length of texts that a folder does not bound.
const Unbounded = maxSize

// graphBackbone reads what is of use for a graph that is run as a whole: how long
// texts may be, and how many tokens there are.
func (r *reader) graphBackbone() error {
	b := &r.c.Backbone
	b.MaxPositions = Unbounded
	f := r.config
	if f == nil {
		return nil
	}
	kind, _, err := f.text("model_type")
	if err != nil {
		return err
	}
	b.Family = Family(kind)
	for _, s := range []struct {
		key string
		to  *int
	}{{"hidden_size", &b.Hidden}, {"max_position_embeddings", &b.MaxPositions}, {"vocab_size", &b.Vocabulary}} {
		if *s.to, err = orElse(*s.to)(f.int(s.key, 1)); err != nil {
			return err
		}
	}
	if strings.Contains(kind, "roberta") && f.has("max_position_embeddings") {
		if _, err := r.behindPadding(f, b); err != nil {
			return err
		}
	}
	r.origin["backbone"] = r.name(f.path)
	return nil
}

// modern reads what ModernBERT has of its own.
func (r *reader) modern(f *file, b *Backbone) error {
	every, err := orElse(3)(f.int("global_attn_every_n_layers", 1))
	window, windowErr := orElse(128)(f.int("local_attention", 2))
	global, local, thetaErr := modernThetas(f)
	if err := firstError(err, windowErr, thetaErr, modernLayers(f, len(b.Layers), every)); err != nil {
		return err
	}
	b.NormPlace, b.Gated = transformer.PreNorm, true
	b.Layers = transformer.AlternateLayers(len(b.Layers), every, window, global, local)
	return nil
}

// modernThetas reads the bases of rotations, of global and of local layers.
func modernThetas(f *file) (global, local float64, err error) {
	global, local = 160000, 10000
	// Newer versions of transformers write one object for all kinds of layers.
	params, err := f.object("rope_parameters")
	if err != nil {
		return 0, 0, err
	}
	for _, t := range []struct {
		key, kind string
		to        *float64
	}{{"global_rope_theta", "full_attention", &global}, {"local_rope_theta", "sliding_attention", &local}} {
		x, ok, err := f.float(t.key)
		if err != nil {
			return 0, 0, err
		}
		if ok {
			*t.to = x
		}
		if params == nil {
			continue
		}
		o, err := params.object(t.kind)
		if err != nil || o == nil {
			return 0, 0, firstError(err, params.faultf(t.kind, ErrConfig, "is missing"))
		}
		if s, ok, err := o.text("rope_type"); err != nil || ok && s != "default" {
			return 0, 0, firstError(err, o.faultf("rope_type", ErrFamily, "is %q, want default", s))
		}
		y, there, err := o.float("rope_theta")
		if err != nil {
			return 0, 0, err
		}
		if there && ok && x != y {
			return 0, 0, o.faultf("rope_theta", ErrContradiction, "is %g, but %s is %g", y, t.key, x)
		}
		if there {
			*t.to = y
		}
	}
	return global, local, nil
}

// modernLayers holds the list of kinds of layers, if there is one, against the rule.
func modernLayers(f *file, layers, every int) error {
	kinds, ok, err := value[[]string](f, "layer_types", "a list of strings")
	if err != nil || !ok {
		return err
	}
	if len(kinds) != layers {
		return f.faultf("layer_types", ErrContradiction, "has %d layers, num_hidden_layers %d", len(kinds), layers)
	}
	for i, kind := range kinds {
		want := "sliding_attention"
		if i%every == 0 {
			want = "full_attention"
		}
		if kind != want {
			return f.faultf("layer_types["+strconv.Itoa(i)+"]", ErrFamily, "is %q, want %s", kind, want)
		}
	}
	return nil
}
