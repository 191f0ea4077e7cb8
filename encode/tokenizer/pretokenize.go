package tokenizer

import (
	"bytes"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/tokenizer/internal/chars"
)

// preTokenizer splits each of w.cuts, ranges of w.cur, and may rewrite the text.
type preTokenizer interface{ split(w *work) }

// newPreTokenizers reads the part "pre_tokenizer" of the file; sequences become flat.
func newPreTokenizers(v value, depth int) ([]preTokenizer, error) {
	if v.absent() {
		return nil, nil
	}
	o, kind, err := v.typed()
	if err != nil {
		return nil, err
	}
	var p preTokenizer
	switch kind {
	case "Sequence":
		return newSequence(o, "pretokenizers", depth, newPreTokenizers)
	case "BertPreTokenizer":
		p = bertWords{}
	case "WhitespaceSplit":
		p = splitter{what: class{one: chars.Space}, how: removed}
	case "Whitespace":
		p = splitter{what: words{}, how: removed, invert: true}
	case "ByteLevel":
		return newByteLevel(o)
	case "Metaspace":
		p, err = newMetaspace(o)
	case "Punctuation":
		how := isolated
		if b := o.get("behavior"); !b.absent() {
			how, err = newBehavior(b)
		}
		p = splitter{what: class{one: chars.Punct}, how: how}
	case "Digits":
		var single bool
		single, err = o.get("individual_digits").bool()
		p = splitter{what: class{one: chars.Numeric}, how: contiguous}
		if single {
			p = splitter{what: class{one: chars.Numeric}, how: isolated}
		}
	case "Split":
		p, err = newSplit(o)
	default:
		return nil, o.unknown(kind)
	}
	if err != nil {
		return nil, err
	}
	return []preTokenizer{p}, o.rest()
}

// bertWords splits at white space, which is dropped, and around each
// punctuation character.
type bertWords struct{}

func (bertWords) split(w *work) {
	text, out := w.cur.text, w.next[:0]
	for _, c := range w.cuts {
		begin := c.start
		for i := c.start; i < c.end; {
			b, size := text[i], int32(1)
			var info chars.Info
			if b < utf8.RuneSelf {
				if b-'a' < 26 {
					i++
					continue
				}
				info = chars.InfoOf(rune(b))
			} else {
				r, n := utf8.DecodeRune(text[i:])
				info, size = chars.InfoOf(r), int32(n)
			}
			if info.Is(chars.Space | chars.Punct) {
				if begin < i {
					out = append(out, place{begin, i})
				}
				begin = i + size
				if info.Is(chars.Punct) {
					out = append(out, place{i, begin})
				}
			}
			i += size
		}
		if begin < c.end {
			out = append(out, place{begin, c.end})
		}
	}
	w.next, w.cuts = w.cuts, out
}

// byteLevel puts a blank before what does not begin with one. The bytes
// themselves are the model's words, see [bpe.setByteLevel].
type byteLevel struct{}

func newByteLevel(o object) ([]preTokenizer, error) {
	prefix, err := o.get("add_prefix_space").bool()
	if err != nil {
		return nil, err
	}
	if _, err := o.get("trim_offsets").bool(); err != nil { // spans only, and ours are whole
		return nil, err
	}
	regex, err := o.get("use_regex").boolOr(true)
	if err != nil {
		return nil, err
	}
	var steps []preTokenizer
	if prefix {
		steps = append(steps, blankBefore{})
	}
	if regex {
		steps = append(steps, splitter{what: gpt2, how: isolated})
	}
	return append(steps, byteLevel{}), o.rest()
}

func (byteLevel) split(*work) {}

type blankBefore struct{}

func (blankBefore) split(w *work) {
	w.prefix([]byte(" "), func(_ *buffer, c place) bool { return w.cur.text[c.start] != ' ' })
}

// prefix puts a text before the cuts for which need says so. Cuts are not empty.
func (w *work) prefix(what []byte, need func(b *buffer, c place) bool) {
	out, next := w.rewrite(&w.split), w.next[:0]
	for _, c := range w.cuts {
		begin := len(out.text)
		if need(w.cur, c) {
			p := w.cur.placeOf(int(c.start), int(c.start)+1)
			out.bytes(what, place{p.start, p.start})
		}
		out.copy(w.cur, int(c.start), int(c.end))
		next = append(next, place{int32(begin), int32(len(out.text))})
	}
	w.cur, w.next, w.cuts = out, w.cuts, next
}

// blankMark is the character that vocabularies have for a blank.
const blankMark = "▁"

// beforeMarks cuts before each run of marks. Files of SentencePiece's kind give the model whole
// texts as one word; parts are quicker, and can be remembered.
type beforeMarks struct{}

func (beforeMarks) split(w *work) {
	text, out := w.cur.text, w.next[:0]
	for _, c := range w.cuts {
		begin := int(c.start)
		for mark := begin + 1; ; {
			i := bytes.Index(text[mark:c.end], []byte(blankMark))
			if i < 0 {
				break
			}
			mark += i
			if !bytes.HasSuffix(text[begin:mark], []byte(blankMark)) {
				out = append(out, place{int32(begin), int32(mark)})
				begin = mark
			}
			mark += len(blankMark)
		}
		out = append(out, place{int32(begin), c.end})
	}
	w.next, w.cuts = w.cuts, out
}

// metaspace makes blanks a visible character, puts one before, and begins a
// word at each.
type metaspace struct {
	mark    []byte
	prepend scheme
	cut     bool
}

type scheme uint8

const (
	always scheme = iota
	never
	first // only at the beginning of the text
)

func newMetaspace(o object) (*metaspace, error) {
	n := &metaspace{}
	v := o.get("replacement")
	mark, err := v.str()
	if err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(mark) != 1 {
		return nil, v.faultf("is %q, want one character", mark)
	}
	n.mark = []byte(mark)
	if s := o.get("str_rep"); !s.absent() {
		if rep, err := s.str(); err != nil || rep != mark {
			return nil, s.faultf("is %s, want the replacement %q", s.shown(), mark)
		}
	}
	given := false
	if v = o.get("prepend_scheme"); !v.absent() {
		name, err := v.str()
		if err != nil {
			return nil, err
		}
		given = true
		switch name {
		case "always":
			n.prepend = always
		case "never":
			n.prepend = never
		case "first":
			n.prepend = first
		default:
			return nil, v.faultf("%q is not known", name)
		}
	}
	v = o.get("add_prefix_space")
	prefix, err := v.boolOr(true)
	if err != nil {
		return nil, err
	}
	if !prefix {
		if given && n.prepend != never {
			return nil, v.faultf("is false, which prepend_scheme contradicts")
		}
		n.prepend = never
	}
	n.cut, err = o.get("split").boolOr(true)
	return n, err
}

func (n *metaspace) split(w *work) {
	in, out, next := w.cur, w.rewrite(&w.split), w.next[:0]
	for _, c := range w.cuts {
		begin := len(out.text)
		if n.before(in, c) {
			p := in.placeOf(int(c.start), int(c.start)+1)
			out.bytes(n.mark, place{p.start, p.start})
		}
		for i := int(c.start); i < int(c.end); {
			b := in.text[i]
			marked := b == ' '
			size := 1
			if !marked && b == n.mark[0] && i+len(n.mark) <= int(c.end) && string(in.text[i:i+len(n.mark)]) == string(n.mark) {
				marked, size = true, len(n.mark)
			}
			if marked && n.cut && len(out.text) > begin {
				next = append(next, place{int32(begin), int32(len(out.text))})
				begin = len(out.text)
			}
			if marked {
				out.bytes(n.mark, in.placeOf(i, i+size))
			} else {
				out.copy(in, i, i+1)
			}
			i += size
		}
		next = append(next, place{int32(begin), int32(len(out.text))})
	}
	w.cur, w.next, w.cuts = out, w.cuts, next
}

// before says whether a mark goes before the cut. The scheme "first" needs
// places, so the tokenizer keeps them then.
func (n *metaspace) before(in *buffer, c place) bool {
	text := in.text[c.start:c.end]
	if n.prepend == never || text[0] == ' ' || len(text) >= len(n.mark) && string(text[:len(n.mark)]) == string(n.mark) {
		return false
	}
	return n.prepend == always || in.src[c.start].start == 0
}
