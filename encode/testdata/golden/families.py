#!/usr/bin/env python3
"""Tiny random models of more families, saved and run by the classes that they are of.

  python families.py [NAME...]   needs sentence-transformers 6 (made with 6.2.0 and transformers 5.24.0)

Each is a folder of sentence-transformers' MultiVectorEncoder, with weights of half precision, and beside it
golden-NAME.npz as make.py writes it: what the package gives for the folder in float64. Activations, norms' epsilons
and the like differ from model to model, so that each of them is met. electra, gemma-causal and lfm25 are other readings
of the weights of sentence-bert, gemma and lfm2. Nothing is fetched.
"""

import json
import os
import shutil
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
import transformers as tf
from safetensors.torch import load_file, save_file
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sentence_transformer.modules import Normalize
from make import HERE, TEXTS, clean, fresh
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = TEXTS["queries"] + TEXTS["documents"]
MARKERS = ["[Q] ", "[D] "]  # as PyLate adds them
LLAMA = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def around(t, path, template, names):
    """Saves a tokenizer with the markers and a template of the tokens around a text."""
    t.add_special_tokens([n for n in names.values() if t.token_to_id(n) is None])
    t.add_tokens(MARKERS)
    specials = [w for w in template.split() if w != "$A"]
    t.post_processor = processors.TemplateProcessing(single=template, special_tokens=[(s, t.token_to_id(s)) for s in specials])
    fast = tf.PreTrainedTokenizerFast(
        tokenizer_object=t, model_max_length=64, model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False, **names)
    fast.save_pretrained(path)
    return t


ROBERTA = {"bos_token": "<s>", "cls_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "sep_token": "</s>",
           "unk_token": "<unk>", "mask_token": "<mask>"}


def roberta(path):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=280, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return around(t, path, "<s> $A </s>", ROBERTA)


def camembert(path):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always")
    t.decoder = decoders.Metaspace(replacement="\u2581", prepend_scheme="always")
    t.train_from_iterator(CORPUS, trainers.UnigramTrainer(
        vocab_size=200, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    return around(t, path, "<s> $A </s>", ROBERTA)


def wordpiece(path, special=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), template="[CLS] $A [SEP]", names=None):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=190, special_tokens=list(special), show_progress=False))
    return around(t, path, template, names or {
        "pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"})


def mpnet(path):
    return wordpiece(path, ("<s>", "<pad>", "</s>", "[UNK]", "<mask>"), "<s> $A </s>", {**ROBERTA, "unk_token": "[UNK]"})


def llama(path, specials, template, names):
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=280, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return around(t, path, template, names)


def eurobert(path):
    return llama(path, ["<|begin_of_text|>", "<|end_of_text|>", "<|mask|>"], "<|begin_of_text|> $A <|end_of_text|>", {
        "bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>", "pad_token": "<|end_of_text|>", "mask_token": "<|mask|>"})


def lfm(path):
    return llama(path, ["<|pad|>", "<|startoftext|>", "<|endoftext|>", "<|mask|>"], "<|startoftext|> $A", {
        "bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<|pad|>"})


def gemma(path):
    """A BPE over characters, with bytes for those that it lacks, and a mark for spaces."""
    small = [s.replace(" ", "\u2581") for s in CORPUS if s.isascii()]
    t = Tokenizer(models.BPE())
    t.train_from_iterator(small, trainers.BpeTrainer(vocab_size=90, show_progress=False))
    learned = json.loads(t.to_str())["model"]
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"] + [f"<0x{i:02X}>" for i in range(256)]
    tokens += [w for w in sorted(learned["vocab"], key=learned["vocab"].get) if w not in tokens]
    t = Tokenizer(models.BPE(
        {w: i for i, w in enumerate(tokens)}, [tuple(m) for m in learned["merges"]], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Replace(" ", "\u2581")
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    t.add_special_tokens(tokens[:5])
    return around(t, path, "<bos> $A <eos>", {
        "pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>", "mask_token": "<mask>"})


BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 64}
GROUPED = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
GEMMA = {**BERT, "num_key_value_heads": 1, "head_dim": 32, "query_pre_attn_scalar": 24,
         "layer_types": ["sliding_attention", "full_attention"], "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
LFM = {"hidden_size": 32, "num_hidden_layers": 2, "max_position_embeddings": 64,
       "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
FIXED, SHORT = {"strategy": "fixed", "length": 16}, {"strategy": "min", "length": 12, "attend": True}

# Name: tokenizer, config, its values, expansion of queries, type of the weights.
FAMILIES = {
    "roberta": (roberta, tf.RobertaConfig, {**BERT, "max_position_embeddings": 66, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "hidden_act": "gelu_new"}, FIXED, "half"),
    "camembert": (camembert, tf.CamembertConfig, {**BERT, "max_position_embeddings": 66, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "hidden_act": "relu"}, SHORT, "half"),
    "distilbert": (wordpiece, tf.DistilBertConfig, {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 64, "activation": "silu"}, FIXED, "half"),
    "mpnet": (mpnet, tf.MPNetConfig, {**BERT, "max_position_embeddings": 66, "layer_norm_eps": 1e-5}, FIXED, "half"),
    "electra-narrow": (wordpiece, tf.ElectraConfig, {**BERT, "embedding_size": 16, "hidden_act": "gelu_pytorch_tanh"}, SHORT, "half"),
    "eurobert": (eurobert, tf.EuroBertConfig, {**BERT, **GROUPED, "rope_parameters": {"rope_type": "default", "rope_theta": 250000.0}, "rms_norm_eps": 1e-5,
                                              "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 1, "mask_token_id": 2}, FIXED, "bfloat16"),
    "eurobert-biased": (eurobert, tf.EuroBertConfig, {**BERT, "num_attention_heads": 1, "attention_bias": True, "mlp_bias": True, "rms_norm_eps": 1e-3,
                                                     "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 1, "mask_token_id": 2}, FIXED, "half"),
    "gemma": (gemma, tf.Gemma3TextConfig, {**GEMMA, "use_bidirectional_attention": True, "sliding_window": 9}, FIXED, "bfloat16"),
    "mmbert": (gemma, tf.ModernBertConfig, {**BERT, "num_attention_heads": 1, "local_attention": 12, "global_attn_every_n_layers": 3,
                                           "rope_parameters": {k: {"rope_type": "default", "rope_theta": 160000.0} for k in ("full_attention", "sliding_attention")},
                                           "pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 1, "bos_token_id": 2, "eos_token_id": 1}, FIXED, "half"),
    "lfm2": (lfm, tf.Lfm2Config, {**LFM, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "intermediate_size": 50, "block_multiple_of": 16, "block_ffn_dim_multiplier": 1.1,
                                 "layer_types": ["full_attention", "conv"]}, {**FIXED, "token": "<|mask|>"}, "bfloat16"),
    "lfm2-biased": (lfm, tf.Lfm2Config, {**LFM, "num_attention_heads": 1, "num_key_value_heads": 1, "intermediate_size": 48, "conv_L_cache": 4,
                                        "block_auto_adjust_ff_dim": False, "conv_bias": True, "full_attn_idxs": [1],
                                        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}, {**FIXED, "token": "<|mask|>"}, "half"),
}


def randomize(model, dtype):
    """Larger weights than those of a fresh model, so that all matter, which the type of the file holds."""
    dtype = getattr(torch, dtype)
    std = 0.1 if "Lfm2" in type(model).__name__ else 0.2  # gates multiply what float32 rounds
    with torch.no_grad():
        for name, p in model.named_parameters():
            one = "norm" in name.lower() and name.endswith("weight") and "Gemma" not in type(model).__name__
            p.copy_((torch.randn_like(p) * (std if p.dim() > 1 else 0.25) + (1.0 if one else 0.0)).to(dtype).float())
    return model


def bidirectional():
    """Makes of Lfm2Model what LFM2.5's retrieval models compute: attention to all attended tokens, and convolutions
    around each token. Expansion tokens take part in convolutions; a text must be alone, since padding would, too."""
    from transformers.masking_utils import create_bidirectional_mask
    from transformers.models.lfm2 import modeling_lfm2 as m

    def forward(self, hidden_states, attention_mask=None, **_):
        b, c, x = self.in_proj(hidden_states).transpose(-1, -2).chunk(3, dim=-2)
        u, size = b * x, self.conv.weight.shape[-1]
        v = torch.nn.functional.conv1d(u, self.conv.weight, self.conv.bias, padding=size // 2, groups=u.shape[1])[..., :u.shape[-1]]
        return self.out_proj((c * v).transpose(-1, -2).contiguous())

    class Attention(m.Lfm2Attention):
        def __init__(self, *args, **named):
            super().__init__(*args, **named)
            self.is_causal = False

    m.Lfm2ShortConv.forward, m.Lfm2Attention = forward, Attention
    m.create_causal_mask = lambda config, inputs_embeds, attention_mask, **_: create_bidirectional_mask(
        config=config, inputs_embeds=inputs_embeds, attention_mask=attention_mask)


def make(seed, name):
    tokenizer, config, values, expansion, dtype = FAMILIES[name]
    torch.manual_seed(100 + seed)
    start = fresh("start")
    vocabulary = tokenizer(start).get_vocab_size()
    model = tf.AutoModel.from_config(config(vocab_size=vocabulary, **values))
    randomize(model, dtype).save_pretrained(start)
    head = Dense(32, 8, bias=False, activation_function=torch.nn.Identity(),
                 module_input_name="token_embeddings", module_output_name="token_embeddings")
    encoder = MultiVectorEncoder(device="cpu", prompts={"query": MARKERS[0], "document": MARKERS[1]}, modules=[
        Transformer(start, document_length=60 if name == "mpnet" else 40, query_expansion=expansion), randomize(head, "half"),
        MultiVectorMask(skiplist_words=list(".,!?")), Normalize(module_input_name="token_embeddings", module_output_name="token_embeddings")])
    path = fresh(name)
    encoder.save_pretrained(path, create_model_card=False)
    shutil.rmtree(start)
    weights = os.path.join(path, "model.safetensors")
    tensors = {k: v.to(getattr(torch, dtype)) for k, v in load_file(weights).items() if not k.startswith("pooler.")}
    save_file(tensors, weights, metadata={"format": "pt"})
    clean(path)
    print(name, vocabulary, {k: tuple(v.shape) for k, v in tensors.items()})
    golden(path, name)


def golden(path, name, batch=3):
    encoder = MultiVectorEncoder(path, device="cpu")
    assert encoder[0].auto_model.dtype == torch.float32
    encoder.double()  # but for what the classes do in float32 whatever is asked for
    out = {f"query{i}": v for i, v in enumerate(encoder.encode_query(TEXTS["queries"], batch_size=batch))}
    out.update({f"document{i}": v for i, v in enumerate(encoder.encode_document(TEXTS["documents"], batch_size=batch))})
    np.savez_compressed(os.path.join(HERE, f"golden-{name}.npz"), **{k: np.asarray(v, np.float32) for k, v in out.items()})
    print(name, [len(v) for v in out.values()])


def vary(name, base, changes, batch=3):
    """What a folder gives with other values in its config.json; golden_test.go makes the same changes."""
    path = os.path.join(HERE, "start")
    shutil.copytree(os.path.join(HERE, base), path, dirs_exist_ok=True)
    settings = os.path.join(path, "config.json")
    with open(settings) as f:
        values = {**json.load(f), **changes}
    with open(settings, "w") as f:
        json.dump(values, f)
    golden(path, name, batch)
    shutil.rmtree(path)


for i, family in enumerate(FAMILIES):
    if not sys.argv[1:] or family in sys.argv[1:]:
        make(i, family)
vary("electra", "sentence-bert", {"model_type": "electra", "architectures": ["ElectraModel"], "embedding_size": 32, "hidden_act": "tanh"})
vary("gemma-causal", "gemma", {"use_bidirectional_attention": False, "sliding_window": 5})
bidirectional()  # for the rest of this program
vary("lfm25", "lfm2", {"architectures": ["Lfm2BidirectionalModel"]}, batch=1)
