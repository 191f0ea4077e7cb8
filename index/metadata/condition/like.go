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

// match goes back to the last % only: what an earlier one could be, that one can. It
// means nothing once the evaluation has ended.
func (p *likePattern) match(e *Evaluation, s string) bool {
	next, last, resume := 0, -1, 0
	e.ended(1 + len(s))
	for i, steps := 0, 0; i < len(s); {
		if steps++; steps == askAfter {
			if e.ended(steps) {
				return false
			}
			steps = 0
		}
		r, size := rune(s[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(s[i:])
		} else {
			r = rune(lower(byte(r)))
		}
		switch {
		case next < len(p.runes) && p.runes[next] == anyText:
			last, resume = next, i
			next++
		case next < len(p.runes) && (p.runes[next] == r || p.runes[next] == anyRune):
			next++
			i += size
		case last >= 0:
			_, size := utf8.DecodeRuneInString(s[resume:])
			resume += size
			next, i = last+1, resume
		default:
			return false
		}
	}
	if next < len(p.runes) && p.runes[next] == anyText {
		next++
	}
	return next == len(p.runes)
}
