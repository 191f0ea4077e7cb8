package modeldir

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/kernels/transformer"
)

// Family is an architecture, named by its model_type.
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

// family describes the config.json of a model_type. Defaults are those of the
// classes of transformers. Sizes have no defaults.
type family struct {
	sizes        sizeKeys
	activation   key[string]
	epsilon      key[float64]
	restrictions []allowedValues
	// classes are the classes of models' own code that this program can compute.
	classes []string
	// readExtra reads the values that only this family has.
	readExtra func(v values, b *Backbone)
}

// key is a key of config.json with its default. If it has no name, all models have the default.
type key[T any] struct {
	name         string
	defaultValue T
}

// sizeKeys are the keys of the sizes. If intermediate is "", readExtra reads that size.
type sizeKeys struct{ hidden, layers, heads, intermediate string }

// allowedValues is a key with its supported values, as JSON. A file may also leave it out.
type allowedValues struct {
	key    string
	values []string
}

// families are the supported families.
var families = map[Family]family{
	BERT: bert, RoBERTa: roberta, CamemBERT: roberta, XLMR: xlmr, JinaV3: jinaV3, DistilBERT: distilBERT, MPNet: mpnet,
	ELECTRA: electra, ModernBERT: modernBERT, EuroBERT: euroBERT, Gemma3: gemma3, LFM2: lfm2,
}

// maxLayers limits the layers of a model.
const maxLayers = 1024

var commonSizes = sizeKeys{"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"}

var isFalse = []string{"false"}

// notCausal refuses models whose tokens attend only to those before. The classes of encoders
// attend to all tokens unless is_causal is true.
var notCausal = allowedValues{"is_causal", isFalse}

// commonRestrictions are the keys of all families that change the computation.
var commonRestrictions = []allowedValues{
	{"is_decoder", isFalse}, {"is_encoder_decoder", isFalse}, {"add_cross_attention", isFalse},
	{"quantization_config", nil}, {"lora_adaptations", nil},
}

// activationNames are the supported functions of transformers' ACT2FN.
var activationNames = map[string]transformer.Activation{
	"gelu": transformer.GELU, "gelu_python": transformer.GELU,
	"gelu_new": transformer.GELUTanh, "gelu_fast": transformer.GELUTanh, "gelu_accurate": transformer.GELUTanh,
	"gelu_pytorch_tanh": transformer.GELUTanh, "gelu_python_tanh": transformer.GELUTanh,
	"relu": transformer.ReLU, "silu": transformer.SiLU, "swish": transformer.SiLU, "tanh": transformer.Tanh,
}

// readBackbone reads the transformer's settings from config.json.
func (r *reader) readBackbone() error {
	if r.graphs != nil {
		return r.graphBackbone()
	}
	var err error
	v, b := values{r.config, &err}, &r.c.Backbone
	b.Family = Family(v.stringOr("model_type", ""))
	f, ok := families[b.Family]
	switch {
	case err != nil:
		return err
	case b.Family == "":
		return v.file.errorf("model_type", ErrConfig, "is missing")
	case !ok:
		known := slices.Sorted(maps.Keys(families))
		return v.file.errorf("model_type", ErrFamily, "is %q, want one of %v", b.Family, known)
	}
	v.checkOnly(commonRestrictions)
	v.checkOnly(f.restrictions)
	if s := v.codeClass(); s != "" && !slices.Contains(f.classes, s) {
		v.section("auto_map").setError("AutoModel", ErrFamily, "is %q: code of a model's own is not run", s)
	}
	v.readSizes(&f, b)
	f.readExtra(v, b)
	r.origin["backbone"] = r.relativePath(v.file.path)
	if err == nil {
		if checkErr := b.Check(); checkErr != nil {
			err = Errorf(v.file.path, "", ErrFamily, "%w", checkErr)
		}
	}
	return err
}

// codeClass returns the name of the class of a model's own code. "" means that it has none.
func (v values) codeClass() string {
	s := v.section("auto_map").stringOr("AutoModel", "")
	return s[strings.LastIndexByte(s, '.')+1:]
}

// checkOnly sets an error for values that are not supported.
func (v values) checkOnly(list []allowedValues) {
	for _, o := range list {
		raw := v.file.rawValue(o.key)
		switch {
		case raw == nil || slices.Contains(o.values, string(raw)):
		case o.values == nil:
			v.setError(o.key, ErrFamily, "is %s, want none", abbreviate(raw))
		default:
			v.setError(o.key, ErrFamily, "is %s, want %s", abbreviate(raw), strings.Join(o.values, " or "))
		}
	}
}

// readSizes reads the keys that every family has. Its defaults are one head of keys per head, heads
// that divide the dimensions of the model, and layers whose tokens attend to all.
func (v values) readSizes(f *family, b *Backbone) {
	keys := f.sizes
	if keys == (sizeKeys{}) {
		keys = commonSizes
	}
	b.Hidden, b.Heads = v.requiredSize(keys.hidden, 1), v.requiredSize(keys.heads, 1)
	if b.MaxPositions = v.requiredSize("max_position_embeddings", 4); keys.intermediate != "" {
		b.Intermediate = v.requiredSize(keys.intermediate, 1)
	}
	b.Vocabulary = v.requiredSize("vocab_size", 1)
	b.KeyHeads, b.HeadSize = b.Heads, b.Hidden/b.Heads
	layers := v.requiredSize(keys.layers, 1)
	if layers > maxLayers {
		v.setError(keys.layers, ErrConfig, "is %d, want %d at most", layers, maxLayers)
	}
	b.Layers = transformer.EqualLayers(min(layers, maxLayers), 0)
	if v.file.rawValue("head_dim") == nil && b.Hidden%b.Heads != 0 {
		v.setError(keys.heads, ErrConfig, "is %d, which do not divide %d dimensions", b.Heads, b.Hidden)
	}
	name := v.stringOr(f.activation.name, f.activation.defaultValue)
	if b.Activation = activationNames[name]; b.Activation == transformer.Identity {
		v.setError(f.activation.name, ErrFamily, "is %q, want one of %v",
			name, slices.Sorted(maps.Keys(activationNames)))
	}
	epsilon := v.floatOr(f.epsilon.name, math.Inf(-1), f.epsilon.defaultValue)
	if !(epsilon >= 0 && epsilon < 1) {
		v.setError(f.epsilon.name, ErrConfig, "is %g, want a number from 0 to less than 1", epsilon)
	}
	b.Epsilon = float32(epsilon)
}

// readGroupedHeads reads the number of key heads and the size of heads, for families where they may
// differ from those of readSizes.
func (v values) readGroupedHeads(b *Backbone, keyHeads, headSize int) {
	b.KeyHeads = v.intOr("num_key_value_heads", 1, keyHeads)
	b.HeadSize = v.intOr("head_dim", 1, headSize)
	if b.Heads%b.KeyHeads != 0 {
		v.setError("num_key_value_heads", ErrConfig, "is %d, which do not divide %d heads", b.KeyHeads, b.Heads)
	}
}

// Unbounded is the length of texts if a folder has no limit.
const Unbounded = maxSize

// graphBackbone reads the values of config.json that are needed for a graph, which is run as a
// whole: the length of texts and the size of the vocabulary.
func (r *reader) graphBackbone() error {
	b := &r.c.Backbone
	b.MaxPositions = Unbounded
	if r.config == nil {
		return nil
	}
	var err error
	v := values{r.config, &err}
	b.Family = Family(v.stringOr("model_type", ""))
	hidden := commonSizes.hidden
	if f := families[b.Family]; f.sizes.hidden != "" {
		hidden = f.sizes.hidden
	}
	b.Hidden, b.Vocabulary = v.intOr(hidden, 1, 0), v.intOr("vocab_size", 1, 0)
	b.MaxPositions = v.intOr("max_position_embeddings", 1, Unbounded)
	if b.MaxPositions < Unbounded {
		switch {
		case b.Family == MPNet:
			v.offsetPositions(b, mpnetPadding)
		case b.Family == CamemBERT || strings.Contains(string(b.Family), "roberta"):
			v.offsetByPadding(b)
		}
		b.PositionOffset = 0
	}
	r.origin["backbone"] = r.relativePath(v.file.path)
	return err
}
