#!/usr/bin/env python3
"""Makes small tokenizers and the ids that the Python package gives for some lines:
small.json.gz, lines.json.gz and golden.json.gz. The tests read them.

  pip install tokenizers==0.23.3 && python make.py

With the argument "nano" only golden-nano.json.gz, of the tokenizer of the quickstart; with "kinds" only kinds.json.gz
and golden-kinds.json.gz: the pipelines that published families have, steps and special tokens as in their files.

Texts are the project's own documents and lines made here. variants.json lists other settings of the small
tokenizers: parts to put in place of theirs ("base" is the part itself, "charsmap" the unigram one's normalizer;
of "model" only the keys given are replaced).
"""
import base64, copy, glob, gzip, io, json, os, random, struct, sys, unicodedata
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers as N, pre_tokenizers as P, processors, trainers

here = os.path.dirname(os.path.abspath(__file__))
top = os.path.join(here, "..", "..", "..")

def charsmap(pairs):
    """A precompiled map as SentencePiece's: a double array of the keys and the texts they become."""
    texts, where, tree = b"", {}, {}
    for k, v in sorted(pairs.items()):
        if v not in where: where[v] = len(texts); texts += v.encode() + b"\0"
        node = tree
        for c in k.encode(): node = node.setdefault(c, {})
        node[0] = where[v]                        # NUL is in no key
    units, used, bases = {}, set([0]), set()
    def put(at, node, unit):
        base = 1
        while base in bases or any((base ^ c) in used for c in node) or (at ^ base) >> 21: base += 1
        bases.add(base); used.update(base ^ c for c in node)
        units[at] = unit | (at ^ base) << 10 | (1 << 8 if 0 in node else 0)
        for c, child in sorted(node.items()):
            if c == 0: units[base] = child | 1 << 31
            else: put(base ^ c, child, c)
    put(0, tree, 0)
    size = (max(used) // 256 + 1) * 256
    trie = struct.pack("<%dI" % size, *(units.get(i, 0) for i in range(size)))
    return struct.pack("<I", len(trie)) + trie + texts

def corpus():
    out = []
    for f in sorted(glob.glob(os.path.join(top, "docs", "*.md")) + [os.path.join(top, "README.md")]):
        out += [l.strip() for l in open(f, encoding="utf8") if l.strip()]
    return out + made()

def made():
    return ["The Search engine's index isn't read twice; we've said so, haven't they?", "naïve café, Ångström, résumé, İstanbul, straße",
        "поиск по коллекции документов", "Αναζήτηση σε συλλογή εγγράφων", "東京で検索エンジンを作る", "文档检索与向量", "한국어 문서 검색 엔진",
        "बहुत सारे दस्तावेज़ क्षत्रिय", "البحث في المستندات", "חיפוש במסמכים", "สวัสดีชาวโลก", "tìm kiếm tài liệu trên toàn thế giới",
        "def f(x):\n    return x  # twice\n\n\n\ty", "x\n\n\n\n\t\t\t", "3.14159 1,000,000 2^31-1 0x1F ½ ² ٣٤ Ⅷ", "{\"a\": [1, 2.5e-3]} <html>&amp;"] * 3

def lines(texts):
    r = random.Random(7)
    nasty = ["", " ", "  ", "\t\n", "\u0000", "a\u0000b", "x\u0301\u0316\u0327y e\u0301\u0316", "\u0301alone", "\u0958 \u0344 \u1E9B\u0323 \u2126",
        "각 \u1100\u1161\u11A8 \uAC00\u11A8 \u1100\u1100\u1161", "\r\n\r\na\r\u0301", "👨\u200D👩\u200D👧 🇩🇪🇩 ❤\uFE0F ©\uFE0F©\u200D❤\u0301", "क्ष\u0301 क्\u200Dष का", "\u0915\u094d\u0937\u0301 \u0915\u094d\u0301\u0937\u0301 \u0915\u0301\u0937\u0301 \u0915\u093e\u0937\u0301", "©\u200d©\u0301 ©\u0301\u200d®\u0301 ©\u0903\u200d®\u0301 x\u200d®\u0301", "\u1100\u1161\u0301 \uac00\u1161\u0301 \uac00\u11a8\u0301 \uac01\u1161\u0301 \uac01\u11a8\u0301 \u1161\u1161\u0301 \u11a8\u11a8\u0301 \u1161\u11a8\u0301 \u11a8\u1161\u0301",
             "a\u094d\u0937\u0301 \u0915\u093e\u094d\u0937\u0301 a\u0313\u0301 x\u1df6\x01\u1df9", "a\n\n\n", "a \t\t\t", "\r\u0301© \x01\u0301\u0301 \u0600© \u0600\u1161\u0301", "\u0600x \u0600\u0301",
        "[MASK]", "a [MASK] b", "a[MASK]b", "[MASK] [MASK]", "[mask]", "  [MASK]  x", "<mask>", "[Q] what", "[D] the index", "[Q]what", "word|||x|||word", "xNAMEx NAME Name NAME.", "éNAME NAMEé name",
        "a\u200bb\u00adc\ufeffd\ufffde\ue000f", "\u200bword", " \u200b word", "a\u00a0b\u2003c\u3000d\u2028e\u0085f\u180eg", "DON'T I'LL we'Ve 'ſ ''s ' s 'S", "a\n \n  b \r\n\r\n c   ", "   a", "a   ", "!?!  ?!\n\n!x",
        "▁word ▁ ▁▁a _b__c", "$1.50 #tag ^`~ <a>=b|c", "x" * 99, "x" * 100, "x" * 101, "the" * 60, "日本語" * 30, "a" * 300, "\u0301" * 50 + "a" + "\u0316\u0301" * 40, "ΑΣ ΟΔΟΣ Σ", "ẞ ß ŉ ǰ ﬁ ﬀ ﷺ ㎏ ① ﾊﾞ",
        "\U0001D400\U00020000\U0002F800\U000E0041\U0010FFFF", "\u1A7F\u0301 \u302A\u0301 \U00011938\U00011935\U00011930", "٣٤١٢ १२३ 12345 1a2b3", "ǅ ǆ İ ı Ω K Å", "(a)[b]{c}", "–—“q” «x» … ¿¡", "<unk> <s> </s> [UNK]"]
    words = sorted({w for t in texts for w in t.split(" ")})
    odd = [chr(c) for c in range(0x20, 0x3000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")] + list("が각क्षि👍🏽🇩\u200d\ufe0f\u0301\u0323\u0345\u3099ﬁ①Ａ㍿𝔘𞤀")
    out = nasty + r.sample([t for t in texts if len(t) < 160], 100)
    for _ in range(120): out.append(" ".join(r.choice(words) if r.random() < .6 else "".join(r.choice(odd) for _ in range(r.randint(1, 5))) for _ in range(r.randint(1, 9))))
    for _ in range(60): out.append("".join(r.choice(odd if r.random() < .7 else " \u0301\u0316ab'\n1") for _ in range(r.randint(1, 25))))
    return out, len(nasty)

def small(texts):
    bert = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    bert.normalizer, bert.pre_tokenizer = N.BertNormalizer(), P.BertPreTokenizer()
    bert.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=900, limit_alphabet=250, special_tokens=["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    bert.post_processor = processors.BertProcessing(("[SEP]", 5), ("[CLS]", 4))
    bert.add_tokens([AddedToken("NAME", single_word=True, normalized=True), AddedToken("|||", lstrip=True, rstrip=True, normalized=False)])

    bpe = Tokenizer(models.BPE())
    bpe.normalizer, bpe.pre_tokenizer, bpe.decoder = N.NFC(), P.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    bpe.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=1000, initial_alphabet=P.ByteLevel.alphabet(), special_tokens=["[UNK]", "[CLS]", "[SEP]", "[PAD]"], show_progress=False))
    bpe.add_tokens([AddedToken(" " * n, normalized=True) for n in range(6, 1, -1)] + [AddedToken("NAME", single_word=True, normalized=True)])
    bpe.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False), AddedToken("[Q] ", normalized=False), AddedToken("[D] ", normalized=False)])
    bpe.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])

    keys = {c: unicodedata.normalize("NFKC", c) for c in map(chr, [*range(0xA0, 0x180), *range(0x1E00, 0x1E40), *range(0x2100, 0x2140), *range(0x2460, 0x2480), *range(0x3300, 0x3310), *range(0xFB00, 0xFB07), *range(0xFF01, 0xFF80)])}
    keys = {k: v for k, v in keys.items() if k != v}
    keys |= {"e\u0301": "é", "a\u0308": "ä", "\t": " ", "\n": " ", "\r": " ", "\u200b": "", "\u00ad": "", "\u3000": " ", "\u1100\u1161": "가", "\u00a0": " ",
             "\u00a9": "(c)", "\u00ae": "(r)", "\u0937": "sh", "\u0915": "k", "\u1161": "a", "\u11a8": "g", "\u0600": "#"}
    uni = Tokenizer(models.Unigram())
    uni.normalizer = N.Precompiled(charsmap(keys))
    uni.pre_tokenizer = P.Sequence([P.WhitespaceSplit(), P.Metaspace()])
    uni.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=900, special_tokens=["<s>", "<pad>", "</s>", "<unk>"] + ["<0x%02X>" % b for b in range(0x80, 0x100)], unk_token="<unk>", show_progress=False))
    uni.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    uni.post_processor = processors.Sequence([processors.ByteLevel(), processors.RobertaProcessing(("</s>", 2), ("<s>", 0))])
    out = {"wordpiece": bert, "bpe": bpe, "unigram": uni}
    out = {k: json.loads(t.to_str()) for k, t in out.items()}
    # The package does not add tokens by these numbers, so they must be as it would number them.
    out["bpe"]["model"]["merges"] = [" ".join(m) for m in out["bpe"]["model"]["merges"]]

    tiny = texts[:60]
    deco = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="@@", end_of_word_suffix="</w>"))
    deco.pre_tokenizer = P.Whitespace()
    deco.train_from_iterator(tiny, trainers.BpeTrainer(vocab_size=400, continuing_subword_prefix="@@", end_of_word_suffix="</w>", special_tokens=["[UNK]"], show_progress=False))
    fall = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    fall.normalizer = N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")])
    fall.train_from_iterator(tiny, trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256) if b != 0xF0], show_progress=False))
    out["decorated"], out["fallback"] = json.loads(deco.to_str()), json.loads(fall.to_str())
    return out

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")

def kinds(texts):
    """Tokenizers whose pipelines are those of the families, trained on few texts."""
    out = {}
    def add(name, t, trainer, special, template, extra=()):
        t.train_from_iterator(texts, trainer)
        t.add_special_tokens([a if isinstance(a, AddedToken) else AddedToken(a, normalized=False) for a in special])
        t.add_tokens(list(extra))
        if isinstance(template, str):
            names = [w for w in template.split() if w != "$A"]
            template = processors.TemplateProcessing(single=template, special_tokens=[(n, t.token_to_id(n)) for n in dict.fromkeys(names)])
        t.post_processor = template(t) if callable(template) else template
        out[name] = json.loads(t.to_str())
        # Bytes are pieces of the vocabulary alone; the trainer knows no other way to put them there.
        out[name]["added_tokens"] = [a for a in out[name]["added_tokens"] if not a["content"].startswith("<0x")]
    mask = AddedToken("<mask>", lstrip=True, normalized=False)
    def roberta(t): return processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")), True, False)
    def bytes_of(prefix, regex=None, normalizer=None):
        t = Tokenizer(models.BPE())
        if normalizer: t.normalizer = normalizer
        t.pre_tokenizer = P.ByteLevel(add_prefix_space=prefix) if regex is None else P.Sequence([
            P.Split(Regex(regex), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)])
        t.decoder = decoders.ByteLevel()
        return t
    alphabet = {"initial_alphabet": P.ByteLevel.alphabet(), "show_progress": False}
    five = ["<s>", "<pad>", "</s>", "<unk>"]
    for name, prefix in (("roberta", False), ("roberta, prefix space", True)):
        add(name, bytes_of(prefix), trainers.BpeTrainer(vocab_size=500, special_tokens=five, **alphabet), five + [mask], roberta)
    t = bytes_of(False, LLAMA3); t.model.ignore_merges = True
    ends = ["<|begin_of_text|>", "<|end_of_text|>", "<|mask|>", "<|pad|>"]
    add("eurobert", t, trainers.BpeTrainer(vocab_size=500, special_tokens=[], **alphabet), ends, "<|begin_of_text|> $A <|end_of_text|>")
    out["eurobert"]["model"]["ignore_merges"] = True
    ends = ["<|pad|>", "<|startoftext|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    add("lfm2", bytes_of(False, LLAMA3), trainers.BpeTrainer(vocab_size=500, special_tokens=ends, **alphabet), ends, "<|startoftext|> $A")
    ends = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    add("qwen 3", bytes_of(False, QWEN2, N.NFC()), trainers.BpeTrainer(vocab_size=500, special_tokens=[], **alphabet), ends, "$A <|endoftext|>")
    bytes_ = ["<0x%02X>" % b for b in range(256)]
    def gemma():
        t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        t.normalizer, t.pre_tokenizer = N.Replace(" ", "▁"), P.Split(" ", "merged_with_previous")
        return t
    ends = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    # Trained on words, as its files were, so that no piece has a blank behind something else.
    blanks = [AddedToken("\n" * n, normalized=False) for n in range(2, 6)] + [AddedToken("▁" * n, normalized=False) for n in range(2, 5)]
    words = [w for l in texts for w in l.replace(" ", "\u2009 ").split("\u2009")]
    keep, texts = texts, words
    add("gemma 3", gemma(), trainers.BpeTrainer(vocab_size=900, special_tokens=ends + bytes_, show_progress=False), ends, "<bos> $A", blanks + [AddedToken("<table>", normalized=False)])
    add("mmbert", gemma(), trainers.BpeTrainer(vocab_size=900, special_tokens=ends + bytes_, show_progress=False), ends, "<bos> $A <eos>", blanks)
    texts = keep
    add("gemma, pieces with blanks", gemma(), trainers.BpeTrainer(vocab_size=700, special_tokens=ends + bytes_, show_progress=False), ends, "<bos> $A <eos>")
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = P.Sequence([P.WhitespaceSplit(), P.Metaspace(replacement="▁", prepend_scheme="always")])
    first = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"]
    add("camembert", t, trainers.UnigramTrainer(vocab_size=400, special_tokens=first, unk_token="<unk>", show_progress=False), [*first, mask], "<s> $A </s>")
    for name, special, cls, sep, lower, masks in (
            ("mpnet", ["<s>", "<pad>", "</s>", "[UNK]"], "<s>", "</s>", True, mask), ("electra", ["[PAD]", "[UNK]", "[CLS]", "[SEP]"], "[CLS]", "[SEP]", True, "[MASK]"),
            ("distilbert cased", ["[PAD]", "[UNK]", "[CLS]", "[SEP]"], "[CLS]", "[SEP]", False, "[MASK]")):
        t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        t.normalizer, t.pre_tokenizer = N.BertNormalizer(lowercase=lower), P.BertPreTokenizer()
        add(name, t, trainers.WordPieceTrainer(vocab_size=500, limit_alphabet=120, special_tokens=[*special, str(getattr(masks, "content", masks))], show_progress=False),
            [*special, masks], roberta if cls == "<s>" else "[CLS] $A [SEP]")
    return out

def variant(bases, v):
    t = copy.deepcopy(bases[v["base"]])
    part = lambda key, p: t[key] if p == "base" else bases["unigram"]["normalizer"] if p == "charsmap" else p
    for key in ("normalizer", "pre_tokenizer"):
        if key not in v: continue
        p = copy.deepcopy(v[key])
        if p and "normalizers" in p: p["normalizers"] = [part(key, x) for x in p["normalizers"]]
        t[key] = p
    t["model"].update(v.get("model", {}))
    return t

def write(name, v):
    buf = io.BytesIO()
    with gzip.GzipFile(fileobj=buf, mode="wb", mtime=0, compresslevel=9) as f: f.write(json.dumps(v, ensure_ascii=False, separators=(",", ":")).encode())
    open(os.path.join(here, name), "wb").write(buf.getvalue())

def main():
    texts = corpus()
    bases, (ls, nasty) = small(texts), lines(texts)
    variants = json.load(open(os.path.join(here, "variants.json"), encoding="utf8"))
    ids = {}
    for v in [{"name": k, "base": k} for k in ("wordpiece", "bpe", "unigram")] + variants:
        t = Tokenizer.from_str(json.dumps(variant(bases, v), ensure_ascii=False))
        n = len(ls) if v["name"] == v["base"] else nasty + 15
        ids[v["name"]] = [e.ids for e in t.encode_batch(ls[:n], add_special_tokens=False)]
    write("small.json.gz", bases); write("lines.json.gz", ls); write("golden.json.gz", ids)
    print(len(ls), "lines,", nasty, "nasty;", {k: os.path.getsize(os.path.join(here, k)) for k in ("small.json.gz", "lines.json.gz", "golden.json.gz")})

def nano():
    quickstart = os.path.join(top, "docs", "examples", "quickstart")
    ls = json.load(gzip.open(os.path.join(here, "lines.json.gz")))
    for f in ("corpus.jsonl", "queries.jsonl"): ls += [json.loads(l)["text"] for l in open(os.path.join(quickstart, "scifact-sample", f), encoding="utf8")]
    t = Tokenizer.from_file(os.path.join(quickstart, "colbert-nano", "tokenizer.json")); t.no_truncation(); t.no_padding()
    write("golden-nano.json.gz", [t.encode(l, add_special_tokens=False).ids for l in ls])

def of_kinds():
    made_of = corpus()[:400] + made()
    ls = json.load(gzip.open(os.path.join(here, "lines.json.gz")))[:160]
    out = kinds(made_of)
    write("kinds.json.gz", out)
    ids = {}
    for name, file in out.items():
        t = Tokenizer.from_str(json.dumps(file, ensure_ascii=False))
        ids[name] = {"bare": [e.ids for e in t.encode_batch(ls, add_special_tokens=False)], "whole": t.encode("a text").ids}
    write("golden-kinds.json.gz", ids)

if __name__ == "__main__": {"nano": nano, "kinds": of_kinds}.get("".join(sys.argv[1:]), main)()
