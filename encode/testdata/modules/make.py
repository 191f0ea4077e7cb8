#!/usr/bin/env python3
"""Tiny random models whose tokenizers, prompts, heads and modules are unlike those of ../golden, saved and run by the
classes that they are of. The texts are those of ../golden/texts.json.

  python make.py pylate    needs pylate (made with 1.6.0)
  python make.py sentence  needs sentence-transformers 6 (made with 6.2.0)

Writes for each model a folder, and in it golden.npz: query0, document0 …, float32 [vectors, dimensions].
"""

import json
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "golden"))
import make as golden
import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

TEXTS = golden.TEXTS
TRAIN = TEXTS["queries"] + TEXTS["documents"]


def tokenizer(path, kind):
    """bos: byte-level, an id before the text and none after, no mask. eos: byte-level, an id after the text alone.
    marks: unigram with Metaspace, unknown pieces. words: WordPiece."""
    special = {"bos": ["<|pad|>", "<|startoftext|>", "<|im_end|>"], "eos": ["<|endoftext|>"],
               "marks": ["<s>", "<pad>", "</s>", "<unk>"], "words": golden.SPECIAL}[kind]
    names = {}
    if kind in ("bos", "eos"):
        t = Tokenizer(models.BPE())
        t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        t.train_from_iterator(TRAIN, trainers.BpeTrainer(
            vocab_size=300, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
        template = "<|startoftext|> $A" if kind == "bos" else "$A <|endoftext|>"
        names = {"pad_token": special[0], "eos_token": special[-1]}
        if kind == "bos":
            names["bos_token"] = special[1]
    elif kind == "marks":
        t = Tokenizer(models.Unigram())
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        t.train_from_iterator(TEXTS["queries"], trainers.UnigramTrainer(
            vocab_size=160, special_tokens=special, unk_token="<unk>", show_progress=False))
        t.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False), AddedToken("[Q]"), AddedToken("[D]")])
        template = "<s> $A </s>"
        names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>"}
    else:
        t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
        t.train_from_iterator(TRAIN, trainers.WordPieceTrainer(
            vocab_size=200, limit_alphabet=60, special_tokens=[*special, "[unused0]"], show_progress=False))
        template = "[CLS] $A [SEP]"
        names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    t.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[(w, t.token_to_id(w)) for w in template.split() if w != "$A"])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=t, model_max_length=64, padding_side="right", model_input_names=["input_ids", "attention_mask"], **names)
    fast.save_pretrained(path)
    return len(fast)


def backbone(path, kind, seed):
    torch.manual_seed(seed)
    m = BertModel(BertConfig(
        vocab_size=tokenizer(path, kind), hidden_size=16, num_hidden_layers=1, num_attention_heads=1, intermediate_size=16,
        max_position_embeddings=64), add_pooling_layer=False)
    golden.randomize(m).half().save_pretrained(path)


def save(name, model, encode):
    path = os.path.join(HERE, name)
    shutil.rmtree(path, ignore_errors=True)
    model.save(path, **{"create_model_card": False})
    golden.clean(path)
    queries, documents = encode(path)
    out = {f"query{i}": np.asarray(v, np.float32) for i, v in enumerate(queries)}
    out.update({f"document{i}": np.asarray(v, np.float32) for i, v in enumerate(documents)})
    np.savez(os.path.join(path, "golden.npz"), **out)
    print(name, [len(v) for v in out.values()])



def pylate():
    from pylate import models as pl

    def make(name, kind, prompts=None, heads=(), **options):
        start = golden.fresh("start")
        backbone(start, kind, 20)
        torch.manual_seed(21)
        m = pl.ColBERT(start, device="cpu", embedding_size=8, prompts=prompts, query_length=14, document_length=24, **options)
        for d in heads:
            m.append(d(pl.Dense))
        for h in list(m)[1:]:
            golden.randomize(h)
        e = m[0].auto_model.get_input_embeddings().weight
        with torch.no_grad():
            e[-2:].copy_(torch.randn_like(e[-2:]) * 0.15)
        m.half()

        def encode(path):
            p = pl.ColBERT(path, device="cpu", model_kwargs={"dtype": torch.float32})
            names = ("query", "document") if prompts else (None, None)
            return [p.encode(TEXTS[k], is_query=q, batch_size=3, prompt_name=n)
                    for k, q, n in (("queries", True, names[0]), ("documents", False, names[1]))]

        save(name, m, encode)
        shutil.rmtree(start)

    make("pylate-bos", "bos", prompts={"query": " ask: ", "document": "text:"}, query_prefix="")
    make("pylate-eos", "eos", query_prefix="[Q] ", document_prefix="[D] ", heads=[
        lambda d: d(8, 12, bias=True, activation_function=torch.nn.SiLU()),
        lambda d: d(12, 12, bias=False, activation_function=torch.nn.ReLU(), use_residual=True),
    ])
    make("pylate-marks", "marks", query_prefix="[Q]", document_prefix="[D]", attend_to_expansion_tokens=True)


def sentence():
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling, MultiVectorMask
    from transformers.activations import NewGELUActivation

    def make(name, kind, heads, mask, pooling=None, after=(), transformer={}, **options):
        start = golden.fresh("start")
        backbone(start, kind, 22)
        torch.manual_seed(23)
        tokens = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
        modules = [Transformer(start, **transformer)]
        modules += [golden.randomize(Dense(**h, **tokens)) for h in heads]
        modules += [MultiVectorMask(**mask), Normalize(**tokens)]
        if pooling:
            modules.append(HierarchicalTokenPooling(**pooling))
        m = MultiVectorEncoder(modules=modules, device="cpu", **options)
        m.half()

        def encode(path):
            p = MultiVectorEncoder(path, device="cpu", trust_remote_code=True, model_kwargs={"dtype": torch.float32}).float()
            return p.encode_query(TEXTS["queries"], batch_size=3), p.encode_document(TEXTS["documents"], batch_size=3)

        save(name, m, encode)
        shutil.rmtree(start)

    def head(i, o, activation, **more):
        return {"in_features": i, "out_features": o, "bias": True, "activation_function": activation, **more}

    # The marker of queries is a token with no blank of its own; an ordinary word is that of documents.
    make("sentence-marks", "marks", [head(16, 24, NewGELUActivation()), head(24, 8, torch.nn.Tanh(), use_residual=True)],
         {"skiplist_words": ["\u2581the", "nowhere"], "skiplist_tasks": "query"},
         {"pool_factor": 2.5, "num_protected_tokens": 2}, prompts={"query": "[Q] ", "document": "the bird: ", "other": "x"},
         default_prompt_name="other", transformer={"query_expansion": {"strategy": "fixed", "length": 15, "attend": True}})
    make("sentence-bos", "bos", [head(16, 8, torch.nn.ReLU())], {"skiplist_words": list(".,!?")},
         {"pool_factor": 2, "normalize_embeddings": False}, prompts={"query": "ask:"},
         transformer={"query_length": 20, "query_expansion": {"strategy": "min", "length": 12}, "max_seq_length": 22})
    keep = [12, 13, 14, 15, 20, 21, 25, 30, 31, 32, 33, 40, 45, 50, 60]
    make("sentence-words", "words", [head(16, 8, None)], {"skiplist_words": ["."], "keep_only_token_ids": keep},
         prompts={"query": "[unused0] what", "document": "[MASK]the "}, transformer={"do_lower_case": True, "max_seq_length": 30})


if __name__ == "__main__":
    {"pylate": pylate, "sentence": sentence}[sys.argv[1]]()
