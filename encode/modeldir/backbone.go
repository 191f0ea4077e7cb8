package modeldir

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/kernels/transformer"
)

// Family is an architecture, by its model_type.
type Family string

// The families.
const (
	BERT       Family = "bert"
	RoBERTa    Family = "roberta"
	CamemBERT  Family = "camembert"
	XLMR       Family = "xlm-roberta" // with learned positions, or rotary ones as jina-colbert-v2
	JinaV3     Family = "jina_embeddings_v3"
	DistilBERT Family = "distilbert"
	MPNet      Family = "mpnet"
	ELECTRA    Family = "electra"
	ModernBERT Family = "modernbert"
	EuroBERT   Family = "eurobert"
	Gemma3     Family = "gemma3_text"
	LFM2       Family = "lfm2"
)

// family is how config.json describes the models of a model_type. Defaults are those of
// transformers' classes; sizes have none.
type family struct {
	sizes      sizeKeys
	activation key[string]
	epsilon    key[float64]
	only       []only
	// classes are those of code that models are published with, and that is computed here.
	classes []string
	// form reads all that other families do not have.
	form func(v values, b *Backbone)
}

// key is one of config.json. Without a name, the value is that of all models.
type key[T any] struct {
	name      string
	otherwise T
}

// sizeKeys are the names of sizes; without one of intermediate, form reads it.
type sizeKeys struct{ hidden, layers, heads, intermediate string }

// only is a key with the values that are computed here, as JSON; a file may leave it out, too.
type only struct {
	key    string
	values []string
}

// families are those that are computed here.
var families = map[Family]family{
	BERT: bert, RoBERTa: roberta, CamemBERT: roberta, XLMR: xlmr, JinaV3: jinaV3, DistilBERT: distilBERT, MPNet: mpnet,
	ELECTRA: electra, ModernBERT: modernBERT, EuroBERT: euroBERT, Gemma3: gemma3, LFM2: lfm2,
}

// mostLayers bounds the layers of a model.
const mostLayers = 1024

var usualSizes = sizeKeys{"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"}

var isFalse = []string{"false"}

// notCausal: classes of encoders let tokens look ahead unless this says otherwise.
var notCausal = only{"is_causal", isFalse}

// usualOnly are the keys of any family that change what is computed.
var usualOnly = []only{
	{"is_decoder", isFalse}, {"is_encoder_decoder", isFalse}, {"add_cross_attention", isFalse},
	{"quantization_config", nil}, {"lora_adaptations", nil},
}

// activationNames are the functions of transformers' ACT2FN that are computed here.
var activationNames = map[string]transformer.Activation{
	"gelu": transformer.GELU, "gelu_python": transformer.GELU,
	"gelu_new": transformer.GELUTanh, "gelu_fast": transformer.GELUTanh, "gelu_accurate": transformer.GELUTanh,
	"gelu_pytorch_tanh": transformer.GELUTanh, "gelu_python_tanh": transformer.GELUTanh,
	"relu": transformer.ReLU, "silu": transformer.SiLU, "swish": transformer.SiLU, "tanh": transformer.Tanh,
}

// backbone reads the transformer from config.json.
func (r *reader) backbone() error {
	if r.graphs != nil {
		return r.graphBackbone()
	}
	var err error
	v, b := values{r.config, &err}, &r.c.Backbone
	b.Family = Family(v.text("model_type", ""))
	f, ok := families[b.Family]
	switch {
	case err != nil:
		return err
	case b.Family == "":
		return v.f.faultf("model_type", ErrConfig, "is missing")
	case !ok:
		known := slices.Sorted(maps.Keys(families))
		return v.f.faultf("model_type", ErrFamily, "is %q, want one of %v", b.Family, known)
	}
	v.only(usualOnly)
	v.only(f.only)
	if s := v.class(); s != "" && !slices.Contains(f.classes, s) {
		v.part("auto_map").fail("AutoModel", ErrFamily, "is %q: code of a model's own is not run", s)
	}
	v.sizes(&f, b)
	f.form(v, b)
	r.origin["backbone"] = r.name(v.f.path)
	if err == nil {
		if unfit := b.Check(); unfit != nil {
			err = Faultf(v.f.path, "", ErrFamily, "%w", unfit)
		}
	}
	return err
}

// class is the name of the class of a model's own code, "" where it has none.
func (v values) class() string {
	s := v.part("auto_map").text("AutoModel", "")
	return s[strings.LastIndexByte(s, '.')+1:]
}

// only refuses values that are not computed here.
func (v values) only(list []only) {
	for _, o := range list {
		raw := v.f.raw(o.key)
		switch {
		case raw == nil || slices.Contains(o.values, string(raw)):
		case o.values == nil:
			v.fail(o.key, ErrFamily, "is %s, want none", shown(raw))
		default:
			v.fail(o.key, ErrFamily, "is %s, want %s", shown(raw), strings.Join(o.values, " or "))
		}
	}
}

// sizes reads the keys that every family has. Heads make up the dimensions of the model, and all
// tokens attend to all.
func (v values) sizes(f *family, b *Backbone) {
	keys := f.sizes
	if keys == (sizeKeys{}) {
		keys = usualSizes
	}
	b.Hidden, b.Heads = v.size(keys.hidden, 1), v.size(keys.heads, 1)
	if b.MaxPositions = v.size("max_position_embeddings", 4); keys.intermediate != "" {
		b.Intermediate = v.size(keys.intermediate, 1)
	}
	b.Vocabulary = v.size("vocab_size", 1)
	b.KeyHeads, b.HeadSize = b.Heads, b.Hidden/b.Heads
	layers := v.size(keys.layers, 1)
	if layers > mostLayers {
		v.fail(keys.layers, ErrConfig, "is %d, want %d at most", layers, mostLayers)
	}
	b.Layers = transformer.EqualLayers(min(layers, mostLayers), 0)
	if v.f.raw("head_dim") == nil && b.Hidden%b.Heads != 0 {
		v.fail(keys.heads, ErrConfig, "is %d, which do not divide %d dimensions", b.Heads, b.Hidden)
	}
	name := v.text(f.activation.name, f.activation.otherwise)
	if b.Activation = activationNames[name]; b.Activation == transformer.Identity {
		v.fail(f.activation.name, ErrFamily, "is %q, want one of %v", name, slices.Sorted(maps.Keys(activationNames)))
	}
	epsilon := v.float(f.epsilon.name, math.Inf(-1), f.epsilon.otherwise)
	if !(epsilon >= 0 && epsilon < 1) {
		v.fail(f.epsilon.name, ErrConfig, "is %g, want a number from 0 to less than 1", epsilon)
	}
	b.Epsilon = float32(epsilon)
}

// grouped reads heads of keys and values, and sizes of heads, which need not be those of sizes.
func (v values) grouped(b *Backbone, keyHeads, headSize int) {
	b.KeyHeads = v.int("num_key_value_heads", 1, keyHeads)
	b.HeadSize = v.int("head_dim", 1, headSize)
	if b.Heads%b.KeyHeads != 0 {
		v.fail("num_key_value_heads", ErrConfig, "is %d, which do not divide %d heads", b.KeyHeads, b.Heads)
	}
}

// Unbounded is the length of texts that a folder does not bound.
const Unbounded = maxSize

// graphBackbone reads what is of use for a graph that is run as a whole: how long
// texts may be, and how many tokens there are.
func (r *reader) graphBackbone() error {
	b := &r.c.Backbone
	b.MaxPositions = Unbounded
	if r.config == nil {
		return nil
	}
	var err error
	v := values{r.config, &err}
	b.Family = Family(v.text("model_type", ""))
	hidden := usualSizes.hidden
	if f := families[b.Family]; f.sizes.hidden != "" {
		hidden = f.sizes.hidden
	}
	b.Hidden, b.Vocabulary = v.int(hidden, 1, 0), v.int("vocab_size", 1, 0)
	b.MaxPositions = v.int("max_position_embeddings", 1, Unbounded)
	if b.MaxPositions < Unbounded {
		switch {
		case b.Family == MPNet:
			v.behind(b, mpnetPadding)
		case b.Family == CamemBERT || strings.Contains(string(b.Family), "roberta"):
			v.behindPadding(b)
		}
		b.PositionOffset = 0
	}
	r.origin["backbone"] = r.name(v.f.path)
	return err
}
