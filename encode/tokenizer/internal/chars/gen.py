#!/usr/bin/env python3
"""Writes tables.bin: what the Python package tokenizers takes each code point for, found by asking it.

  python3 -m venv venv && venv/bin/pip install tokenizers==0.23.3
  venv/bin/python gen.py > tables.bin

No copy of the Unicode database is read: the package's parts follow different versions of Unicode (the Bert
normalizer's categories are of version 8 or so), so only its answers count. Takes about a minute.
"""
import base64, struct, sys
import tokenizers
from tokenizers import Regex, normalizers as N, pre_tokenizers as P

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
ACUTE, ZWJ, VIRAMA, KA, COPY = "\u0301", "\u200d", "\u094d", "\u0915", "\u00a9"

# In the order of the constants in chars.go.
PROPERTIES = ("BertRemoved", "BertBlank", "CJK", "BertMark", "Mark", "Space", "Punct", "Numeric", "Word", "Letter",
              "Number", "Blank", "InConsonant", "InExtend", "InLinker")
CLUSTERS = ("Control", "Extend", "ZWJ", "SpacingMark", "Prepend", "Pictographic", "HangulL", "HangulV", "HangulT")

def ranges(cs):
    out = []
    for c in sorted(cs):
        if out and out[-1][1] == c - 1: out[-1][1] = c
        else: out.append([c, c])
    return out

def valued(d):
    """Ranges of equal value."""
    out = []
    for c in sorted(d):
        if out and out[-1][1] == c - 1 and out[-1][2] == d[c]: out[-1][1] = c
        else: out.append([c, c, d[c]])
    return out

def left_out_by(pattern):
    """The code points that a regular expression of the package matches."""
    kept = set(N.Replace(Regex(pattern), "").normalize_str("".join(map(chr, ALL))))
    return {c for c in ALL if chr(c) not in kept}

def charsmap():
    """A precompiled map whose keys are all bytes that begin a character, each giving Y: with it a text of
    clusters comes out as one Y for a cluster below six bytes and one for every character of a longer one."""
    units = [0] * 1024
    units[0] = 256 << 10                      # children of the root at 256 ^ byte
    for b in [*range(1, 0x80), *range(0xC2, 0xF5)]:
        at = 256 ^ b
        units[at] = b | 1 << 8 | (at ^ 512) << 10   # a leaf at 512
    units[512] = 0                            # value: offset 0 of the texts
    trie = struct.pack("<%dI" % len(units), *units)
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + b"Y\0").decode()

def clusters():
    p = N.Precompiled(base64.b64decode(charsmap()))
    ys = lambda s: p.normalize_str(s).count("Y")
    assert ys("ab") == 2 and ys("a" + ACUTE) == 1 and ys("a" + ACUTE * 3) == 4 and ys("\r\n") == 1
    cls, incb = {}, {}
    for c in ALL:
        if c == 0: continue
        s = chr(c)
        if ys("x" + s) == 1:
            if ys(COPY + s + ZWJ + COPY + ACUTE) == 5: cls[c] = "Extend"
            else: cls[c] = "SpacingMark"
            if ys(KA + VIRAMA + s + KA + ACUTE) == 5: incb[c] = "InExtend"
            if ys(KA + s + KA + ACUTE) == 4: incb[c] = "InLinker"
            if c == ord(ZWJ): cls[c] = "ZWJ"
        elif ys(s + "x") == 1: cls[c] = "Prepend"
        elif ys(s + ACUTE + ACUTE) == 2 and ys(s + ACUTE) == 2: cls[c] = "Control"
        elif ys(COPY + ZWJ + s + ACUTE) == (4 if len(s.encode()) < 5 else 0): cls[c] = "Pictographic"
        elif len(s.encode()) == 3:
            if ys(KA + VIRAMA + s + ACUTE) == 4: incb[c] = "InConsonant"
            before_l, before_v, before_t = (ys(s + x + ACUTE) == 3 for x in "\u1100\u1160\u11a8")
            after_l = ys("\u1100" + s + ACUTE) == 3
            after_v = ys("\u1160" + s + ACUTE) == 3
            after_t = ys("\u11a8" + s + ACUTE) == 3
            k = {(1, 1, 0, 1, 0, 0): "HangulL", (0, 1, 1, 1, 1, 0): "HangulV", (0, 0, 1, 0, 1, 1): "HangulT",
                 (0, 1, 1, 1, 0, 0): "HangulLV", (0, 0, 1, 1, 0, 0): "HangulLVT", (0,) * 6: None}[
                (before_l, before_v, before_t, after_l, after_v, after_t)]
            if k: cls[c] = k
    for c in range(0xAC00, 0xD7A4):   # syllables are arithmetic
        assert cls.pop(c) == ("HangulLVT" if (c - 0xAC00) % 28 else "HangulLV")
    # U+0000 ends a key, so it is not seen; it is a control as its neighbours are.
    cls[0] = "Control"
    return cls, incb

def combining(nfd):
    """Canonical combining classes, by the order into which marks are put."""
    reps = [0x334, 0x93C, 0x3099, 0x94D, *range(0x5B0, 0x5BA), 0x5BB, 0x5BC, 0x5BD, 0x5BF, 0x5C1, 0x5C2, 0xFB1E,
            *range(0x64B, 0x653), 0x670, 0x711, 0xC55, 0xC56, 0xE38, 0xE48, 0xEB8, 0xEC8, 0xF71, 0xF72, 0xF74, 0x321,
            0x1DCE, 0x31B, 0x302A, 0x316, 0x59A, 0x302E, 0x1D16D, 0x5AE, 0x301, 0x315, 0x35C, 0x35D, 0x345]
    import unicodedata
    swap = lambda a, b: nfd.normalize_str("a" + a + b) != "a" + a + b
    low, high = "\u0334", "\u0345"
    known = lambda s: swap(s, low) or swap(high, s)   # a mark, and not younger than the package's tables
    number = {r: unicodedata.combining(chr(r)) for r in reps if known(chr(r))}
    assert number[0x334] == 1 and all(number.values())
    out = {}
    for c in ALL:
        s = chr(c)
        if nfd.normalize_str(s) != s: continue
        if not known(s): continue
        same = {n for r, n in number.items() if not swap(s, chr(r)) and not swap(chr(r), s)}
        if len(same) != 1: raise SystemExit("combining class of U+%04X: %s" % (c, same))
        out[c] = same.pop()
    for r, n in number.items():
        if n in (1, 240): assert not swap(chr(r), chr(r))
    for c in map(ord, (low, high)): out.setdefault(c, number[c])
    return out

def lower():
    f, d, special = N.Lowercase(), {}, []
    for c in ALL:
        l = f.normalize_str(chr(c))
        if len(l) != 1: special.append((c, l))
        elif ord(l) != c: d[c] = ord(l) - c
    runs = []
    for c in sorted(d):
        if runs and runs[-1][3] == d[c]:
            lo, hi, step, delta = runs[-1]
            if (lo == hi and c - hi <= 2) or (lo != hi and c - hi == step):
                runs[-1] = [lo, c, c - hi, delta]; continue
        runs.append([c, c, 1, d[c]])
    return runs, special

def number(n):
    """A number as Go's binary.AppendVarint writes it."""
    n = n << 1 if n >= 0 else ~(n << 1)
    out = bytearray()
    while n >= 0x80: out.append(n & 0x7F | 0x80); n >>= 7
    return bytes(out + bytes([n]))

def numbers(rows):
    """How many numbers, and these."""
    all = [x for row in rows for x in row]
    return b"".join(map(number, [len(all), *all]))

def text(s):
    """How many bytes, and these."""
    return number(len(s.encode())) + s.encode()

def main():
    bert = lambda **k: N.BertNormalizer(**{**dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False), **k})
    clean, cjk, accents = bert(clean_text=True), bert(handle_chinese_chars=True), bert(strip_accents=True)
    strip, sa, nfc, nfd, nfkd = N.Strip(), N.StripAccents(), N.NFC(), N.NFD(), N.NFKD()
    pre, white, words, digits, punct = P.BertPreTokenizer(), P.WhitespaceSplit(), P.Whitespace(), P.Digits(individual_digits=True), P.Punctuation()
    sets = {k: set() for k in PROPERTIES}
    for c in ALL:
        s = chr(c); t = "a" + s + "a"
        r = clean.normalize_str(t)
        if r == "aa": sets["BertRemoved"].add(c)
        elif r == "a a": sets["BertBlank"].add(c)
        else: assert r == t, c
        if cjk.normalize_str(s) != s: sets["CJK"].add(c)
        if nfd.normalize_str(s) == s:
            if accents.normalize_str(s) == "": sets["BertMark"].add(c)
        if sa.normalize_str(s) == "": sets["Mark"].add(c)
        if strip.normalize_str(s) == "": sets["Space"].add(c)
        n = len(white.pre_tokenize_str(t)); assert (n == 2) == (c in sets["Space"]), c
        parts = [p for p, _ in pre.pre_tokenize_str(t)]
        if len(parts) == 3: sets["Punct"].add(c)
        else: assert (len(parts) == 2) == (c in sets["Space"]), c
        assert (len(punct.pre_tokenize_str(t)) == 3) == (c in sets["Punct"]), c
        if len(digits.pre_tokenize_str(t)) == 3: sets["Numeric"].add(c)
        if len(words.pre_tokenize_str(t)) == 1: sets["Word"].add(c)
    sets["Letter"], sets["Number"], sets["Blank"] = (left_out_by(p) for p in (r"\p{L}", r"\p{N}", r"\s"))
    can, compat = {}, {}
    for c in ALL:
        s = chr(c)
        if 0xAC00 <= c < 0xD7A4: continue
        d = nfd.normalize_str(s)
        if d != s: can[c] = d
        k = nfkd.normalize_str(s)
        if k != d: compat[c] = k
    pairs = []
    for c, d in can.items():
        if len(d) < 2: continue
        first = nfc.normalize_str(d[:-1])
        if len(first) == 1 and nfc.normalize_str(d) == chr(c): pairs.append(first + d[-1] + chr(c))
    ccc = combining(nfd)
    runs, special = lower()
    assert special == [(0x130, "i\u0307")], special
    cls, incb = clusters()
    sets.update((k, {c for c in incb if incb[c] == k}) for k in set(incb.values()))
    classes = [[c for c in cls if cls[c] == k] for k in CLUSTERS]
    sys.stdout.buffer.write(b"".join([
        *(numbers(ranges(sets[k])) for k in PROPERTIES), *map(numbers, map(ranges, classes)),
        numbers(valued(ccc)), numbers(runs),
        text("".join(chr(c) + d + "\0" for c, d in sorted(can.items()))),
        text("".join(chr(c) + d + "\0" for c, d in sorted(compat.items()))),
        text("".join(sorted(pairs)))]))
    print({k: len(v) for k, v in sets.items()}, len(can), len(compat), len(pairs), len(ccc), len(runs), {k: list(cls.values()).count(k) for k in set(cls.values())}, {k: list(incb.values()).count(k) for k in set(incb.values())}, file=sys.stderr)

main()
