package weights

import "github.com/plaid-ir/plaid/encode/modeldir"

// names holds the names of a family's tensors, without the prefix that all names of a model
// share. Linear maps and norms are NAME.weight and NAME.bias. "" and nil mean that the family has no
// such tensor.
type names struct {
	words, positions, types, norm, project, relative, final string

	layer string // the prefix of a layer, with %d for its number
	// Several names are maps whose rows are concatenated.
	queryKeyValue, up                          []string
	queryNorm, keyNorm, output, down           string
	attentionNorm, feedForwardNorm             string
	attentionOutputNorm, feedForwardOutputNorm string
	convolutionIn, taps, convolutionOutput     string

	// firstPlain means that the first layer has no norm before attention.
	firstPlain bool
	// addOne means that norms multiply by one more than their weights, and scaled that embeddings of
	// words are multiplied by the root of their size.
	addOne, scaled bool
}

// namesOf returns the names of a model's tensors.
func namesOf(b *modeldir.Backbone) *names {
	if b.Family == modeldir.XLMR && !b.LearnedPositions {
		return &jinaV2
	}
	return families[b.Family]
}

var families = map[modeldir.Family]*names{
	modeldir.BERT: &bert, modeldir.RoBERTa: &bert, modeldir.CamemBERT: &bert, modeldir.XLMR: &bert,
	modeldir.JinaV3: &jinaV3, modeldir.DistilBERT: &distilBERT, modeldir.MPNet: &mpnet, modeldir.ELECTRA: &bert,
	modeldir.ModernBERT: &modernBERT, modeldir.EuroBERT: &euroBERT, modeldir.Gemma3: &gemma3, modeldir.LFM2: &lfm2,
}

// bert also has the projection of ELECTRA, whose other names are those of BERT.
var bert = names{
	words: "embeddings.word_embeddings", positions: "embeddings.position_embeddings",
	types: "embeddings.token_type_embeddings", norm: "embeddings.LayerNorm", project: "embeddings_project",
	layer:         "encoder.layer.%d.",
	queryKeyValue: []string{"attention.self.query", "attention.self.key", "attention.self.value"},
	output:        "attention.output.dense", attentionNorm: "attention.output.LayerNorm",
	up: []string{"intermediate.dense"}, down: "output.dense", feedForwardNorm: "output.LayerNorm",
}

// jinaV2 has the names of jina-colbert-v2 and others whose class is XLMRobertaFlash.
var jinaV2 = names{
	words: "embeddings.word_embeddings", types: "embeddings.token_type_embeddings", norm: "emb_ln",
	layer:         "encoder.layers.%d.",
	queryKeyValue: []string{"mixer.Wqkv"}, output: "mixer.out_proj", attentionNorm: "norm1",
	up: []string{"mlp.fc1"}, down: "mlp.fc2", feedForwardNorm: "norm2",
}

var jinaV3 = names{
	words: "embeddings.word_embeddings", types: "embeddings.token_type_embeddings", norm: "embeddings.LayerNorm",
	layer:         "layers.%d.",
	queryKeyValue: projections, output: "self_attn.o_proj", attentionNorm: "post_attention_layernorm",
	up: []string{"mlp.fc1"}, down: "mlp.fc2", feedForwardNorm: "post_mlp_layernorm",
}

var projections = []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}

var distilBERT = names{
	words: "embeddings.word_embeddings", positions: "embeddings.position_embeddings", norm: "embeddings.LayerNorm",
	layer:         "transformer.layer.%d.",
	queryKeyValue: []string{"attention.q_lin", "attention.k_lin", "attention.v_lin"}, output: "attention.out_lin",
	attentionNorm: "sa_layer_norm", up: []string{"ffn.lin1"}, down: "ffn.lin2", feedForwardNorm: "output_layer_norm",
}

var mpnet = names{
	words: "embeddings.word_embeddings", positions: "embeddings.position_embeddings", norm: "embeddings.LayerNorm",
	relative: "encoder.relative_attention_bias", layer: "encoder.layer.%d.",
	queryKeyValue: []string{"attention.attn.q", "attention.attn.k", "attention.attn.v"}, output: "attention.attn.o",
	attentionNorm: "attention.LayerNorm", up: []string{"intermediate.dense"}, down: "output.dense",
	feedForwardNorm: "output.LayerNorm",
}

var modernBERT = names{
	words: "embeddings.tok_embeddings", norm: "embeddings.norm", final: "final_norm",
	layer: "layers.%d.", firstPlain: true,
	attentionNorm: "attn_norm", queryKeyValue: []string{"attn.Wqkv"}, output: "attn.Wo",
	feedForwardNorm: "mlp_norm", up: []string{"mlp.Wi"}, down: "mlp.Wo",
}

var euroBERT = names{
	words: "embed_tokens", final: "norm", layer: "layers.%d.",
	attentionNorm: "input_layernorm", queryKeyValue: projections, output: "self_attn.o_proj",
	feedForwardNorm: "post_attention_layernorm", up: []string{"mlp.gate_proj", "mlp.up_proj"}, down: "mlp.down_proj",
}

var gemma3 = names{
	words: "embed_tokens", final: "norm", layer: "layers.%d.", addOne: true, scaled: true,
	attentionNorm: "input_layernorm", queryKeyValue: projections,
	queryNorm: "self_attn.q_norm", keyNorm: "self_attn.k_norm", output: "self_attn.o_proj",
	attentionOutputNorm: "post_attention_layernorm",
	feedForwardNorm:     "pre_feedforward_layernorm",
	up:                  []string{"mlp.gate_proj", "mlp.up_proj"}, down: "mlp.down_proj",
	feedForwardOutputNorm: "post_feedforward_layernorm",
}

var lfm2 = names{
	words: "embed_tokens", final: "embedding_norm", layer: "layers.%d.",
	attentionNorm: "operator_norm", queryKeyValue: projections,
	queryNorm: "self_attn.q_layernorm", keyNorm: "self_attn.k_layernorm", output: "self_attn.out_proj",
	convolutionIn: "conv.in_proj", taps: "conv.conv", convolutionOutput: "conv.out_proj",
	feedForwardNorm: "ffn_norm", up: []string{"feed_forward.w1", "feed_forward.w3"}, down: "feed_forward.w2",
}

// Beginnings and ends of the names of tensors that do not belong to the transformer: heads of
// pre-training and of other tasks, and tables that are computed.
var (
	unusedBeginnings = []string{
		"pooler.", "cls.", "lm_head.", "classifier.", "head.", "decoder.", "dense.", "qa_outputs.",
		"pre_classifier.",
		"vocab_transform.", "vocab_layer_norm.", "vocab_projector.",
		"discriminator_predictions.", "generator_predictions.", "generator_lm_head.",
	}
	unusedEnds = []string{".position_ids", ".inv_freq"}
)
