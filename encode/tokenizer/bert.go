package tokenizer

import (
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/tokenizer/internal/chars"
)

// bert is the BertNormalizer: it cleans text, separates Chinese characters by blanks, strips
// accents and lowers case, in this order.
type bert struct {
	lowers, stripsAccents bool                // lowers case, strips accents
	removed               chars.Prop          // characters that are removed
	blank                 chars.Prop          // characters that become a blank
	apart                 chars.Prop          // characters that get blanks around them
	special               chars.Prop          // all characters that are not copied as they are
	ascii                 [utf8.RuneSelf]byte // the result for each ASCII character, or removedByte
}

// removedByte marks a character that is removed in bert.ascii.
const removedByte = 0xFF

// newBert reads a BertNormalizer.
func newBert(o object) (*bert, error) {
	n := &bert{}
	clean, err := o.read("clean_text").boolValue()
	if err != nil {
		return nil, err
	}
	apart, err := o.read("handle_chinese_chars").boolValue()
	if err != nil {
		return nil, err
	}
	strip := o.read("strip_accents")
	if n.lowers, err = o.read("lowercase").boolValue(); err != nil {
		return nil, err
	}
	if n.stripsAccents, err = strip.boolOr(n.lowers); err != nil {
		return nil, err
	}
	if clean {
		n.removed, n.blank = chars.BertRemoved, chars.BertBlank
	}
	if apart {
		n.apart = chars.CJK
	}
	n.special = n.removed | n.blank | n.apart
	if n.stripsAccents {
		n.special |= chars.Decomposes | chars.Joins | chars.BertMark
	}
	if n.lowers {
		n.special |= chars.Lowers
	}
	for c := range n.ascii {
		info := chars.InfoOf(rune(c))
		n.ascii[c] = byte(c)
		switch {
		case info.Is(n.removed):
			n.ascii[c] = removedByte
		case info.Is(n.blank):
			n.ascii[c] = ' '
		case n.lowers && info.Is(chars.Lowers):
			l, _ := chars.Lower(rune(c))
			n.ascii[c] = byte(l)
		}
	}
	return n, nil
}

func (n *bert) normalize(w *scratch) {
	in, out := w.cur, w.rewrite(&w.normBuffers)
	for i := 0; i < len(in.text); {
		if c := in.text[i]; c < utf8.RuneSelf {
			if c = n.ascii[c]; c != removedByte {
				out.text = append(out.text, c)
				if out.track {
					out.sources = append(out.sources, in.sources[i])
				}
			}
			i++
			continue
		}
		r, size := utf8.DecodeRune(in.text[i:])
		if !chars.InfoOf(r).Is(n.special) {
			out.appendRange(in, i, i+size)
			i += size
			continue
		}
		i = n.rewriteRun(w, out, i)
	}
	w.cur = out
}

// rewriteRun normalizes the run of special characters at i, and returns its end. Accents are stripped
// from the run as a whole, since its marks are reordered.
func (n *bert) rewriteRun(w *scratch, out *buffer, i int) int {
	in, items := w.cur, w.items[:0]
	// Clean, separate and decompose.
	for i < len(in.text) {
		r, size := utf8.DecodeRune(in.text[i:])
		info := chars.InfoOf(r)
		if r < utf8.RuneSelf && n.ascii[r] != removedByte || !info.Is(n.special) {
			break
		}
		p := in.sourceOf(i, i+size)
		i += size
		switch {
		case info.Is(n.removed):
			continue
		case info.Is(n.blank):
			r = ' '
		}
		apart := info.Is(n.apart)
		if apart {
			items = append(items, chars.Item{R: ' ', Start: p.start, End: p.start})
		}
		if n.stripsAccents {
			items = chars.AppendDecomposed(items, r, p.start, p.end, false)
		} else {
			items = append(items, chars.Item{R: r, Start: p.start, End: p.end})
		}
		if apart {
			items = append(items, chars.Item{R: ' ', Start: p.end, End: p.end})
		}
	}
	if n.stripsAccents {
		chars.Order(items)
	}
	w.items = items
	// Drop accents, and lower case.
	for _, it := range items {
		p := span{it.Start, it.End}
		info := chars.InfoOf(it.R)
		if n.stripsAccents && info.Is(chars.BertMark) {
			continue
		}
		if !n.lowers || !info.Is(chars.Lowers) {
			out.appendRune(it.R, p)
			continue
		}
		first, second := chars.Lower(it.R)
		out.appendRune(first, p)
		if second != 0 {
			out.appendRune(second, p)
		}
	}
	return i
}
