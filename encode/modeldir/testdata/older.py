#!/usr/bin/env python3
"""Writes older.json.gz: folders of tokenizers without tokenizer.json, and the ids that AutoTokenizer of transformers gives
for lines of ../../tokenizer/testdata/lines.json.gz. Made with transformers 5.24.0.

  python older.py
"""
import gzip, io, json, os, tempfile
os.environ["HF_HUB_OFFLINE"] = "1"
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer

here = os.path.dirname(os.path.abspath(__file__))
lines = json.load(gzip.open(os.path.join(here, "..", "..", "tokenizer", "testdata", "lines.json.gz")))
train, lines = lines[60:], lines[:110] + ["MASK [MASK] <mask>", "a [Q] b", "[q]A [D] ", "x<mask>y </s>"]

def wordpiece(special, lower):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(lowercase=lower), pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(train, trainers.WordPieceTrainer(vocab_size=400, limit_alphabet=120, special_tokens=special, show_progress=False))
    return "".join(w + "\n" for w, _ in sorted(t.get_vocab().items(), key=lambda p: p[1]))

def merges(special):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(train, trainers.BpeTrainer(vocab_size=420, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    m = json.loads(t.to_str())["model"]
    return json.dumps(m["vocab"], ensure_ascii=False), "#version: 0.2\n" + "".join((x if isinstance(x, str) else " ".join(x)) + "\n" for x in m["merges"])

bert = wordpiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], True)
cased = wordpiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], False)
mpnet = wordpiece(["<s>", "<pad>", "</s>", "[UNK]", "<mask>"], True)
vocab, ranks = merges(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
token = lambda content, **more: {"content": content, "lstrip": False, "rstrip": False, "single_word": False, "normalized": True, **more}
n = bert.count("\n")
folders = {
    "bert": {"vocab.txt": bert},
    "bert, lines of Windows": {"vocab.txt": bert.replace("\n", "\r\n").rstrip("\r\n"), "tokenizer_config.json": {}},
    "bert, a line twice": {"vocab.txt": bert + "the\n"},
    "cased": {"vocab.txt": cased, "tokenizer_config.json": {"do_lower_case": False, "tokenizer_class": "BertTokenizer", "model_max_length": 512}},
    "accents": {"vocab.txt": bert, "tokenizer_config.json": {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False}},
    "electra": {"vocab.txt": bert, "tokenizer_config.json": {"tokenizer_class": "ElectraTokenizer"}},
    "added tokens": {"vocab.txt": bert, "added_tokens.json": {"[D] ": n + 1, "[Q] ": n}, "special_tokens_map.json": {
        "mask_token": token("[MASK]", lstrip=True), "additional_special_tokens": ["[Q] "], "cls_token": "[CLS]"}},
    "decoder": {"vocab.txt": bert, "tokenizer_config.json": {"tokenizer_class": "DistilBertTokenizer", "added_tokens_decoder": {
        "0": {**token("[PAD]"), "special": True}, "4": {**token("[MASK]", lstrip=True, normalized=False), "special": True},
        str(n): {**token("[Q]", normalized=False), "special": False}, str(n + 1): {**token("[D] "), "special": True}}}},
    "mpnet": {"vocab.txt": mpnet, "tokenizer_config.json": {"tokenizer_class": "MPNetTokenizer", "do_lower_case": True}},
    "roberta": {"vocab.json": vocab, "merges.txt": ranks, "tokenizer_config.json": {"tokenizer_class": "RobertaTokenizer"}},
    "roberta, prefix space": {"vocab.json": vocab, "merges.txt": ranks, "tokenizer_config.json": {
        "tokenizer_class": "RobertaTokenizerFast", "add_prefix_space": True, "mask_token": {"__type": "AddedToken", **token("<mask>", lstrip=True, normalized=False)}}},
}
# tokenizer.json with settings that are not those of the class.
kinds = json.load(gzip.open(os.path.join(here, "..", "..", "tokenizer", "testdata", "kinds.json.gz")))
file = lambda kind: json.dumps(kinds[kind], ensure_ascii=False, separators=(",", ":"))
folders |= {
    "class lowers": {"tokenizer.json": file("distilbert cased"), "tokenizer_config.json": {"tokenizer_class": "BertTokenizerFast"}},
    "class keeps case": {"tokenizer.json": file("electra"), "tokenizer_config.json": {
        "tokenizer_class": "ElectraTokenizer", "do_lower_case": False, "tokenize_chinese_chars": False, "strip_accents": True}},
    "class has prefix space": {"tokenizer.json": file("roberta"), "tokenizer_config.json": {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": True}},
    "class has no prefix space": {"tokenizer.json": file("roberta, prefix space"), "tokenizer_config.json": {"tokenizer_class": "RobertaTokenizer"}},
    "no class": {"tokenizer.json": file("electra"), "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": False}},
}
out = {}
for name, files in folders.items():
    with tempfile.TemporaryDirectory() as d:
        files = {f: v if isinstance(v, str) else json.dumps(v) for f, v in files.items()}
        for f, v in {**files, "config.json": json.dumps({"model_type": "bert"})}.items():
            with open(os.path.join(d, f), "w", encoding="utf8", newline="") as to: to.write(v)
        t = AutoTokenizer.from_pretrained(d)
        out[name] = {"files": files, "ids": [t(l, add_special_tokens=False)["input_ids"] for l in lines], "whole": t("a text")["input_ids"]}
        print(name, type(t).__name__, len(t), out[name]["whole"])
buf = io.BytesIO()
with gzip.GzipFile(fileobj=buf, mode="wb", mtime=0, compresslevel=9) as f:
    f.write(json.dumps({"lines": lines, "folders": out}, ensure_ascii=False, separators=(",", ":")).encode())
open(os.path.join(here, "older.json.gz"), "wb").write(buf.getvalue())
print(len(buf.getvalue()))
