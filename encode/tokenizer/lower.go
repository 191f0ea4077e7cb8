package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/tokenizer/internal/chars"
)

// lowerInput lowers the whole input. Unlike the step Lowercase, it has the form of sigma at the end of
// a word.
func (w *scratch) lowerInput() {
	in, out := &w.input, &w.lowered
	out.reset(w.track)
	for i := 0; i < len(in.text); {
		r, n := utf8.DecodeRune(in.text[i:])
		switch {
		case !chars.InfoOf(r).Is(chars.Lowers):
			out.appendRange(in, i, i+n)
		case r == 'Σ' && endsWord(in.text, i, i+n):
			out.appendRune('ς', in.sourceOf(i, i+n))
		default:
			from := in.sourceOf(i, i+n)
			first, second := chars.Lower(r)
			out.appendRune(first, from)
			if second != 0 {
				out.appendRune(second, from)
			}
		}
		i += n
	}
	w.input, w.lowered = *out, *in
}

// maxSigmaDistance limits how many bytes of case-ignorable characters are skipped to find the letter next to a
// sigma, so that texts of such characters take no more time than others.
const maxSigmaDistance = 256

// endsWord reports whether the character from start to end follows a cased letter and is not followed by
// one, without regard to case-ignorable characters (Final_Sigma in Unicode's SpecialCasing).
func endsWord(text []byte, start, end int) bool {
	before := false
	for i := start; i > max(0, start-maxSigmaDistance); {
		r, n := utf8.DecodeLastRune(text[:i])
		if i -= n; !isCaseIgnorable(r) {
			before = isCased(r)
			break
		}
	}
	if !before {
		return false
	}
	for i := end; i < min(len(text), end+maxSigmaDistance); {
		r, n := utf8.DecodeRune(text[i:])
		if i += n; !isCaseIgnorable(r) {
			return !isCased(r)
		}
	}
	return true
}

// isCased reports whether a character has the derived property Cased of Unicode.
func isCased(r rune) bool {
	return unicode.In(r, unicode.Lu, unicode.Ll, unicode.Lt, unicode.Other_Uppercase, unicode.Other_Lowercase)
}

// isCaseIgnorable reports whether a character has the property Case_Ignorable of Unicode: marks,
// modifiers, and punctuation within words.
func isCaseIgnorable(r rune) bool {
	const punctuation = "'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a"
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) ||
		strings.ContainsRune(punctuation, r)
}
