#!/usr/bin/env python3
"""Tiny random models, saved and run by the classes that they are of.

  python make.py pylate    needs pylate (made with 1.6.0): folders of PyLate, and of Stanford's kind read by PyLate
  python make.py sentence  needs sentence-transformers 6 (made with 6.2.0): folders of its MultiVectorEncoder, and
                           what it gives for the folders of the other call
  python make.py xlmr      needs transformers 5 (made with 5.17.0): folders of the XLM-R family, with learned and
                           with rotary positions, which its classes run

Writes for each model a folder, and beside it golden-NAME.npz: query0, document0 …, float32 [vectors, dimensions],
of the lines of texts.json. Nothing is fetched.
"""

import json
import os
import shutil
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel, ModernBertConfig, ModernBertModel, PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(HERE, "texts.json"), encoding="utf8") as f:
    TEXTS = json.load(f)
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def wordpiece(path):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(TEXTS["queries"] + TEXTS["documents"], trainers.WordPieceTrainer(
        vocab_size=260, special_tokens=[*SPECIAL, "[unused0]", "[unused1]"], show_progress=False))
    return around(t, path)


def bpe(path):
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(TEXTS["queries"] + TEXTS["documents"], trainers.BpeTrainer(
        vocab_size=340, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return around(t, path)


def around(t, path):
    ids = {s: t.token_to_id(s) for s in SPECIAL}
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=t, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
        model_max_length=64, model_input_names=["input_ids", "attention_mask"])
    fast.save_pretrained(path)
    return fast


def randomize(model):
    """Larger weights than those of a fresh model, so that attention and norms matter."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            one = "norm" in name.lower() and name.endswith("weight")
            p.copy_(torch.randn_like(p) * (0.15 if p.dim() > 1 else 0.2) + (1.0 if one else 0.0))
    return model


def backbone(path, family):
    torch.manual_seed({"bert": 1, "modernbert": 2}[family])
    if family == "bert":
        vocabulary = len(wordpiece(path))
        m = BertModel(BertConfig(
            vocab_size=vocabulary, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
            max_position_embeddings=64), add_pooling_layer=True)
    else:
        vocabulary = len(bpe(path))
        m = ModernBertModel(ModernBertConfig(
            vocab_size=vocabulary, hidden_size=32, num_hidden_layers=4, num_attention_heads=1, intermediate_size=32,
            max_position_embeddings=64, local_attention=12, global_attn_every_n_layers=3,
            pad_token_id=0, cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3))
    randomize(m).save_pretrained(path)


def golden(name, queries, documents):
    out = {f"query{i}": np.asarray(v, np.float32) for i, v in enumerate(queries)}
    out.update({f"document{i}": np.asarray(v, np.float32) for i, v in enumerate(documents)})
    np.savez(os.path.join(HERE, f"golden-{name}.npz"), **out)
    print(name, [len(v) for v in out.values()])


def clean(path):
    """Removes the files that are not read to compute vectors, and writes each JSON file as a line."""
    for root, _, names in os.walk(path):
        for n in names:
            file = os.path.join(root, n)
            if n in ("README.md", "special_tokens_map.json", ".gitattributes") or n.startswith("vocab"):
                os.remove(file)
            elif n.endswith(".json"):
                with open(file, encoding="utf8") as f:
                    values = json.load(f)
                with open(file, "w", encoding="utf8") as f:
                    json.dump(values, f, ensure_ascii=False, separators=(",", ":"))
                    f.write("\n")


def fresh(name):
    path = os.path.join(HERE, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


def by_pylate(path, name):
    from pylate import models as pylate

    m = pylate.ColBERT(path, device="cpu")
    golden(name, m.encode(TEXTS["queries"], is_query=True, batch_size=3), m.encode(TEXTS["documents"], is_query=False, batch_size=3))


def pylate():
    from pylate import models as pl
    from pylate.models.Dense import Dense

    def save(name, family, heads=(), **options):
        start = fresh("start")
        backbone(start, family)
        m = pl.ColBERT(start, device="cpu", embedding_size=16, **options)
        torch.manual_seed(7)
        for d in heads:
            m.append(d(Dense))
        for h in list(m)[1:]:
            randomize(h)
        # The rows of the markers are as fresh as the class made them; make them count.
        e = m[0].auto_model.get_input_embeddings().weight
        with torch.no_grad():
            e[-2:].copy_(torch.randn_like(e[-2:]) * 0.15)
        path = fresh(name)
        m.save(path, create_model_card=False)
        shutil.rmtree(start)
        clean(path)
        by_pylate(path, name)

    save("pylate-bert", "bert", query_length=16, document_length=24)
    save("pylate-heads", "modernbert", [
        lambda d: d(16, 24, bias=True, activation_function=torch.nn.GELU(), use_residual=True),
        lambda d: d(24, 12, bias=False, activation_function=torch.nn.Identity(), use_residual=True),
    ], query_length=20, document_length=40, do_query_expansion=False, skiplist_words=["!", ".", "\u0120the"])
    save("pylate-attend", "modernbert", query_length=14, document_length=30, attend_to_expansion_tokens=True, query_prefix="[Q] ")

    # A folder as Stanford's ColBERT writes it: the same tensors under a prefix, one linear.weight, float16.
    from safetensors.torch import save_file

    path = fresh("stanford")
    backbone(path, "bert")
    m = BertModel.from_pretrained(path)
    torch.manual_seed(9)
    tensors = {"bert." + k: v.half().contiguous() for k, v in m.state_dict().items()}
    tensors["linear.weight"] = (torch.randn(20, 32) * 0.15).half()
    save_file(tensors, os.path.join(path, "model.safetensors"), metadata={"format": "pt"})
    config = json.load(open(os.path.join(path, "config.json")))
    config["architectures"], config["dtype"] = ["HF_ColBERT"], "float32"
    json.dump(config, open(os.path.join(path, "config.json"), "w"))
    json.dump({"query_token_id": "[unused0]", "doc_token_id": "[unused1]", "query_maxlen": 16, "doc_maxlen": 24, "dim": 20,
               "similarity": "cosine", "attend_to_mask_tokens": True, "mask_punctuation": True, "nbits": 2},
              open(os.path.join(path, "artifact.metadata"), "w"))
    clean(path)
    by_pylate(path, "stanford")


def sentence():
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from sentence_transformers.sentence_transformer.modules import Normalize

    def encode(path, name):
        m = MultiVectorEncoder(path, device="cpu")
        golden(name, m.encode_query(TEXTS["queries"], batch_size=3), m.encode_document(TEXTS["documents"], batch_size=3))

    def save(name, family, heads, skip, transformer, **options):
        start = fresh("start")
        backbone(start, family)
        torch.manual_seed(8)
        modules = [Transformer(start, **transformer)]
        modules += [randomize(Dense(**h, module_input_name="token_embeddings", module_output_name="token_embeddings")) for h in heads]
        modules += [MultiVectorMask(**skip), Normalize(module_input_name="token_embeddings", module_output_name="token_embeddings")]
        m = MultiVectorEncoder(modules=modules, device="cpu", **options)
        path = fresh(name)
        m.save_pretrained(path, create_model_card=False)
        shutil.rmtree(start)
        clean(path)
        encode(path, name)

    gelu = {"in_features": 32, "out_features": 16, "bias": True, "activation_function": torch.nn.GELU()}
    plain = {"in_features": 32, "out_features": 16, "bias": False, "activation_function": torch.nn.Identity()}
    save("sentence-bert", "bert", [plain], {"skiplist_words": list(".,!?")},
         {"query_length": 16, "document_length": 24, "query_expansion": {"strategy": "fixed", "length": 16}},
         prompts={"query": "[unused0] ", "document": "[unused1] "})
    save("sentence-modernbert", "modernbert", [gelu], {"skiplist_words": ["!"], "skiplist_tasks": ["query", "document"]},
         {"document_length": 30, "query_expansion": {"strategy": "min", "length": 12, "attend": True}},
         prompts={"query": "[Q] ", "document": "[D] title: "})
    for name in ("pylate-bert", "pylate-heads", "pylate-attend", "stanford"):
        encode(os.path.join(HERE, name), name + "-sentence")


def unigram(path):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always")
    t.decoder = decoders.Metaspace(replacement="\u2581", prepend_scheme="always")
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    t.train_from_iterator(TEXTS["queries"] + TEXTS["documents"], trainers.UnigramTrainer(
        vocab_size=220, special_tokens=special, unk_token="<unk>", show_progress=False))
    t.add_special_tokens(["<mask>", "[QueryMarker]", "[DocumentMarker]"])
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    t.save(os.path.join(path, "tokenizer.json"))
    return t


def xlmr():
    """Folders as jina-colbert-v2 is one: Stanford's, of the XLM-R family. The texts are put together here."""
    import transformers as tf
    from safetensors.torch import save_file

    def save(name, cls, config, prefix, **more):
        torch.manual_seed(10)
        path = fresh(name)
        t = unigram(path)
        m = randomize(cls(config(
            vocab_size=t.get_vocab_size(), hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
            max_position_embeddings=50, type_vocab_size=1, layer_norm_eps=1e-5, pad_token_id=1, bos_token_id=0, eos_token_id=2,
            **more), add_pooling_layer=False)).eval()
        print(name, {k: tuple(v.shape) for k, v in m.state_dict().items()})
        head = torch.randn(20, 64) * 0.15
        save_file({**{prefix + k: v.contiguous() for k, v in m.state_dict().items()}, "linear.weight": head},
                  os.path.join(path, "model.safetensors"), metadata={"format": "pt"})
        m.config.architectures = ["HF_ColBERT"]
        json.dump(m.config.to_dict(), open(os.path.join(path, "config.json"), "w"), default=str)
        json.dump({"query_token_id": "[QueryMarker]", "doc_token_id": "[DocumentMarker]", "query_maxlen": 16, "doc_maxlen": 40,
                   "dim": 20, "similarity": "cosine", "attend_to_mask_tokens": False, "mask_punctuation": False, "nbits": 2},
                  open(os.path.join(path, "artifact.metadata"), "w"))
        clean(path)
        m, head = m.double(), head.double()

        def run(text, marker, length, expand):
            ids = t.encode(text.strip(), add_special_tokens=False).ids[:length - 3]
            ids = [0, t.token_to_id(marker), *ids, 2]
            real = len(ids)
            ids += [t.token_to_id("<mask>")] * (length - real if expand else 0)
            attend = torch.tensor([[1] * real + [0] * (len(ids) - real)])
            with torch.no_grad():
                x = m(input_ids=torch.tensor([ids]), attention_mask=attend).last_hidden_state[0] @ head.T
            return torch.nn.functional.normalize(x, dim=-1).numpy()

        golden(name, [run(q, "[QueryMarker]", 16, True) for q in TEXTS["queries"]],
               [run(d, "[DocumentMarker]", 40, False) for d in TEXTS["documents"]])

    save("xlmr", tf.XLMRobertaModel, tf.XLMRobertaConfig, "roberta.")
    save("xlmr-rotary", tf.JinaEmbeddingsV3Model, tf.JinaEmbeddingsV3Config, "roberta.", rope_parameters={"rope_type": "default", "rope_theta": 20000.0})


if __name__ == "__main__":
    {"pylate": pylate, "sentence": sentence, "xlmr": xlmr}[sys.argv[1]]()
