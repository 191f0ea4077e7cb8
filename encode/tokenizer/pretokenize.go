package tokenizer

import (
	"bytes"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/tokenizer/internal/chars"
)

// preTokenizer splits each of w.cuts, ranges of w.cur, and may rewrite w.cur.
type preTokenizer interface{ split(w *scratch) }

// newPreTokenizers reads the part "pre_tokenizer" of the file, and flattens sequences.
func newPreTokenizers(v value, depth int) ([]preTokenizer, error) {
	if v.absent() {
		return nil, nil
	}
	o, kind, err := v.typedObject()
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
		p = splitter{pattern: class{property: chars.Space}, behavior: removed}
	case "Whitespace":
		p = splitter{pattern: wordMatcher{}, behavior: removed, invert: true}
	case "ByteLevel":
		return newByteLevel(o)
	case "Metaspace":
		p, err = newMetaspace(o)
	case "Punctuation":
		how := isolated
		if b := o.read("behavior"); !b.absent() {
			how, err = newBehavior(b)
		}
		p = splitter{pattern: class{property: chars.Punct}, behavior: how}
	case "Digits":
		var single bool
		single, err = o.read("individual_digits").boolValue()
		p = splitter{pattern: class{property: chars.Numeric}, behavior: contiguous}
		if single {
			p = splitter{pattern: class{property: chars.Numeric}, behavior: isolated}
		}
	case "Split":
		p, err = newSplit(o)
	default:
		return nil, o.unknownTypeError(kind)
	}
	if err != nil {
		return nil, err
	}
	return []preTokenizer{p}, o.checkAllRead()
}

// bertWords splits at white space, which it drops, and around each punctuation character.
type bertWords struct{}

func (bertWords) split(w *scratch) {
	text, out := w.cur.text, w.nextCuts[:0]
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
					out = append(out, span{begin, i})
				}
				begin = i + size
				if info.Is(chars.Punct) {
					out = append(out, span{i, begin})
				}
			}
			i += size
		}
		if begin < c.end {
			out = append(out, span{begin, c.end})
		}
	}
	w.nextCuts, w.cuts = w.cuts, out
}

// byteLevel stands for ByteLevel until [Tokenizer.joinByteLevel] removes it: bytes are the symbols of
// the model, see [bpe.setByteLevel].
type byteLevel struct{}

// newByteLevel reads a ByteLevel: a step that adds a blank, one that splits, and byteLevel.
func newByteLevel(o object) ([]preTokenizer, error) {
	prefix, err := o.read("add_prefix_space").boolValue()
	if err != nil {
		return nil, err
	}
	// trim_offsets only changes spans, and those of this package are always whole characters.
	if _, err := o.read("trim_offsets").boolValue(); err != nil {
		return nil, err
	}
	regex, err := o.read("use_regex").boolOr(true)
	if err != nil {
		return nil, err
	}
	var steps []preTokenizer
	if prefix {
		steps = append(steps, blankBefore{})
	}
	if regex {
		steps = append(steps, splitter{pattern: gpt2, behavior: isolated})
	}
	return append(steps, byteLevel{}), o.checkAllRead()
}

func (byteLevel) split(*scratch) {}

// blankBefore puts a blank before each cut that does not begin with one.
type blankBefore struct{}

func (blankBefore) split(w *scratch) {
	w.prefixCuts([]byte(" "), func(_ *buffer, c span) bool { return w.cur.text[c.start] != ' ' })
}

// prefixCuts puts a text before each cut for which needed returns true. Cuts are not empty.
func (w *scratch) prefixCuts(text []byte, needed func(b *buffer, c span) bool) {
	out, next := w.rewrite(&w.splitBuffers), w.nextCuts[:0]
	for _, c := range w.cuts {
		begin := len(out.text)
		if needed(w.cur, c) {
			p := w.cur.sourceOf(int(c.start), int(c.start)+1)
			out.appendBytes(text, span{p.start, p.start})
		}
		out.appendRange(w.cur, int(c.start), int(c.end))
		next = append(next, span{int32(begin), int32(len(out.text))})
	}
	w.cur, w.nextCuts, w.cuts = out, w.cuts, next
}

// blankMark is the character that spells a blank in vocabularies.
const blankMark = "▁"

// beforeMarks cuts before each run of marks. Files of SentencePiece's kind pass whole texts to the model
// as one word; shorter words are faster and can be cached.
type beforeMarks struct{}

func (beforeMarks) split(w *scratch) {
	text, out := w.cur.text, w.nextCuts[:0]
	for _, c := range w.cuts {
		begin := int(c.start)
		for mark := begin + 1; ; {
			i := bytes.Index(text[mark:c.end], []byte(blankMark))
			if i < 0 {
				break
			}
			mark += i
			if !bytes.HasSuffix(text[begin:mark], []byte(blankMark)) {
				out = append(out, span{int32(begin), int32(mark)})
				begin = mark
			}
			mark += len(blankMark)
		}
		out = append(out, span{int32(begin), c.end})
	}
	w.nextCuts, w.cuts = w.cuts, out
}

// metaspace replaces blanks by a visible mark, puts one before a cut, and begins a
// word at each mark.
type metaspace struct {
	mark    []byte
	prepend scheme
	splits  bool // begins a word at each mark
}

// scheme is where metaspace puts a mark before a cut.
type scheme uint8

// The schemes.
const (
	prependAlways scheme = iota
	prependNever
	prependFirst // only at the beginning of the text
)

// newMetaspace reads a Metaspace, of any version of the file.
func newMetaspace(o object) (*metaspace, error) {
	n := &metaspace{}
	v := o.read("replacement")
	mark, err := v.stringValue()
	if err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(mark) != 1 {
		return nil, v.errorf("is %q, want one character", mark)
	}
	n.mark = []byte(mark)
	if s := o.read("str_rep"); !s.absent() {
		if rep, err := s.stringValue(); err != nil || rep != mark {
			return nil, s.errorf("is %s, want the replacement %q", s.abbreviated(), mark)
		}
	}
	hasScheme := false
	if v = o.read("prepend_scheme"); !v.absent() {
		name, err := v.stringValue()
		if err != nil {
			return nil, err
		}
		hasScheme = true
		switch name {
		case "always":
			n.prepend = prependAlways
		case "never":
			n.prepend = prependNever
		case "first":
			n.prepend = prependFirst
		default:
			return nil, v.errorf("%q is not known", name)
		}
	}
	v = o.read("add_prefix_space")
	prefix, err := v.boolOr(true)
	if err != nil {
		return nil, err
	}
	if !prefix {
		if hasScheme && n.prepend != prependNever {
			return nil, v.errorf("is false, which prepend_scheme contradicts")
		}
		n.prepend = prependNever
	}
	n.splits, err = o.read("split").boolOr(true)
	return n, err
}

func (n *metaspace) split(w *scratch) {
	in, out, next := w.cur, w.rewrite(&w.splitBuffers), w.nextCuts[:0]
	for _, c := range w.cuts {
		begin := len(out.text)
		if n.needsMark(in, c) {
			p := in.sourceOf(int(c.start), int(c.start)+1)
			out.appendBytes(n.mark, span{p.start, p.start})
		}
		for i := int(c.start); i < int(c.end); {
			b := in.text[i]
			isBlank := b == ' '
			size := 1
			if !isBlank && b == n.mark[0] && n.startsWithMark(in.text[i:c.end]) {
				isBlank, size = true, len(n.mark)
			}
			if isBlank && n.splits && len(out.text) > begin {
				next = append(next, span{int32(begin), int32(len(out.text))})
				begin = len(out.text)
			}
			if isBlank {
				out.appendBytes(n.mark, in.sourceOf(i, i+size))
			} else {
				out.appendRange(in, i, i+1)
			}
			i += size
		}
		next = append(next, span{int32(begin), int32(len(out.text))})
	}
	w.cur, w.nextCuts, w.cuts = out, w.cuts, next
}

// startsWithMark reports whether text begins with the mark.
func (n *metaspace) startsWithMark(text []byte) bool {
	return len(text) >= len(n.mark) && string(text[:len(n.mark)]) == string(n.mark)
}

// needsMark reports whether a mark is put before the cut. The scheme "first" reads sources, which the
// tokenizer tracks for it ([Tokenizer.needsSources]).
func (n *metaspace) needsMark(in *buffer, c span) bool {
	text := in.text[c.start:c.end]
	if n.prepend == prependNever || text[0] == ' ' || n.startsWithMark(text) {
		return false
	}
	return n.prepend == prependAlways || in.sources[c.start].start == 0
}
