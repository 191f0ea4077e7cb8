package tokenizer

import (
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/tokenizer/internal/chars"
)

// bert cleans text, sets Chinese characters apart, strips accents and lowers
// case, in this order.
type bert struct {
	lower, accents bool // accents: they are stripped
	removed        chars.Prop
	blank          chars.Prop
	apart          chars.Prop
	special        chars.Prop // characters that are not copied as they are
	ascii          [utf8.RuneSelf]byte
}

// drop is what bert.ascii says of a character that is removed.
const drop = 0xFF

func newBert(o object) (*bert, error) {
	n := &bert{}
	clean, err := o.get("clean_text").bool()
	if err != nil {
		return nil, err
	}
	apart, err := o.get("handle_chinese_chars").bool()
	if err != nil {
		return nil, err
	}
	strip := o.get("strip_accents")
	if n.lower, err = o.get("lowercase").bool(); err != nil {
		return nil, err
	}
	if n.accents, err = strip.boolOr(n.lower); err != nil {
		return nil, err
	}
	if clean {
		n.removed, n.blank = chars.BertRemoved, chars.BertBlank
	}
	if apart {
		n.apart = chars.CJK
	}
	n.special = n.removed | n.blank | n.apart
	if n.accents {
		n.special |= chars.Decomposes | chars.Joins | chars.BertMark
	}
	if n.lower {
		n.special |= chars.Lowers
	}
	for c := range n.ascii {
		info := chars.InfoOf(rune(c))
		n.ascii[c] = byte(c)
		switch {
		case info.Is(n.removed):
			n.ascii[c] = drop
		case info.Is(n.blank):
			n.ascii[c] = ' '
		case n.lower && info.Is(chars.Lowers):
			l, _ := chars.Lower(rune(c))
			n.ascii[c] = byte(l)
		}
	}
	return n, nil
}

func (n *bert) normalize(w *work) {
	in, out := w.cur, w.rewrite(&w.norm)
	for i := 0; i < len(in.text); {
		if c := in.text[i]; c < utf8.RuneSelf {
			if c = n.ascii[c]; c != drop {
				out.text = append(out.text, c)
				if out.track {
					out.src = append(out.src, in.src[i])
				}
			}
			i++
			continue
		}
		r, size := utf8.DecodeRune(in.text[i:])
		if !chars.InfoOf(r).Is(n.special) {
			out.copy(in, i, i+size)
			i += size
			continue
		}
		i = n.stretch(w, out, i)
	}
	w.cur = out
}

// stretch handles characters from one that is not copied as it is up to the
// next that is, and returns where that stands.
func (n *bert) stretch(w *work, out *buffer, i int) int {
	in, items := w.cur, w.items[:0]
	for i < len(in.text) {
		r, size := utf8.DecodeRune(in.text[i:])
		info := chars.InfoOf(r)
		if r < utf8.RuneSelf && n.ascii[r] != drop || !info.Is(n.special) {
			break
		}
		p := in.placeOf(i, i+size)
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
		if n.accents {
			items = chars.AppendDecomposed(items, r, p.start, p.end, false)
		} else {
			items = append(items, chars.Item{R: r, Start: p.start, End: p.end})
		}
		if apart {
			items = append(items, chars.Item{R: ' ', Start: p.end, End: p.end})
		}
	}
	if n.accents {
		chars.Order(items)
	}
	w.items = items
	for _, it := range items {
		p := place{it.Start, it.End}
		info := chars.InfoOf(it.R)
		if n.accents && info.Is(chars.BertMark) {
			continue
		}
		if !n.lower || !info.Is(chars.Lowers) {
			out.rune(it.R, p)
			continue
		}
		first, second := chars.Lower(it.R)
		out.rune(first, p)
		if second != 0 {
			out.rune(second, p)
		}
	}
	return i
}
