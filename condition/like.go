package condition

import "unicode/utf8"

// likePattern is a pattern of LIKE: % stands for any text, _ for one character; ASCII
// letters match in either case.
type likePattern struct{ runes []rune }

const (
	anyText = -1
	anyRune = -2
)

func compileLike(pattern string) *likePattern {
	p := &likePattern{}
	for _, r := range pattern {
		switch {
		case r == '%':
			if n := len(p.runes); n > 0 && p.runes[n-1] == anyText {
				continue
			}
			r = anyText
		case r == '_':
			r = anyRune
		case r < utf8.RuneSelf:
			r = rune(lower(byte(r)))
		}
		p.runes = append(p.runes, r)
	}
	return p
}

// match goes back to the last % only: what an earlier one could take, that one can.
func (p *likePattern) match(s string) bool {
	at, last, resume := 0, -1, 0
	for i := 0; i < len(s); {
		r, size := rune(s[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(s[i:])
		} else {
			r = rune(lower(byte(r)))
		}
		switch {
		case at < len(p.runes) && p.runes[at] == anyText:
			last, resume = at, i
			at++
		case at < len(p.runes) && (p.runes[at] == r || p.runes[at] == anyRune):
			at++
			i += size
		case last >= 0:
			_, size := utf8.DecodeRuneInString(s[resume:])
			resume += size
			at, i = last+1, resume
		default:
			return false
		}
	}
	if at < len(p.runes) && p.runes[at] == anyText {
		at++
	}
	return at == len(p.runes)
}
