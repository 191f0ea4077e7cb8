package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/tokenizer/internal/chars"
)

// lower makes the given text lower case, as a whole: unlike the step Lowercase it knows the sigma
// at the end of a word.
func (w *work) lower() {
	in, out := &w.given, &w.lowered
	out.reset(w.track)
	for i := 0; i < len(in.text); {
		r, n := utf8.DecodeRune(in.text[i:])
		switch {
		case !chars.InfoOf(r).Is(chars.Lowers):
			out.copy(in, i, i+n)
		case r == 'Σ' && endsWord(in.text, i, i+n):
			out.rune('ς', in.placeOf(i, i+n))
		default:
			from := in.placeOf(i, i+n)
			first, second := chars.Lower(r)
			out.rune(first, from)
			if second != 0 {
				out.rune(second, from)
			}
		}
		i += n
	}
	w.given, w.lowered = *out, *in
}

// farthest is how many bytes are looked at for the letter beside a sigma, behind characters that
// count as none: texts of such characters alone take no longer than others.
const farthest = 256

// endsWord reports whether the character from start to end has a cased letter before it and none
// after it, of those that count (Final_Sigma in Unicode's SpecialCasing).
func endsWord(text []byte, start, end int) bool {
	before := false
	for i := start; i > max(0, start-farthest); {
		r, n := utf8.DecodeLastRune(text[:i])
		if i -= n; !caseIgnorable(r) {
			before = cased(r)
			break
		}
	}
	if !before {
		return false
	}
	for i := end; i < min(len(text), end+farthest); {
		r, n := utf8.DecodeRune(text[i:])
		if i += n; !caseIgnorable(r) {
			return !cased(r)
		}
	}
	return true
}

// cased reports whether a character is Cased, as Unicode derives it.
func cased(r rune) bool {
	return unicode.In(r, unicode.Lu, unicode.Ll, unicode.Lt, unicode.Other_Uppercase, unicode.Other_Lowercase)
}

// caseIgnorable reports whether a character is Case_Ignorable: marks, modifiers, and the
// punctuation that stands within words.
func caseIgnorable(r rune) bool {
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) ||
		strings.ContainsRune("'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a", r)
}
