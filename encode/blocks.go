package encode

import "strings"

// blocks are those of source code: what stands between empty lines and begins without
// indentation. So a function is one, with the comment above it. One that is longer than a
// passage is taken apart into its lines, and such a line into its words.
func (p *Parting) blocks(text string) (units []unit) {
	add := func(lo, hi int) {
		inside := words(text[lo:hi])
		for i := range inside {
			inside[i].start += lo
			inside[i].end += lo
		}
		if len(inside) == 0 {
			return
		}
		units = append(units, p.whole(text[lo:hi], inside)...)
	}
	flush := func(lo, hi int) {
		weight := 0
		if p.InTokens {
			weight = p.tokens(text[lo:hi])
		} else {
			weight = len(words(text[lo:hi]))
		}
		if weight <= p.Size {
			add(lo, hi)
			return
		}
		for at := lo; at < hi; {
			next := lineEnd(text[:hi], at)
			add(at, next)
			at = next
		}
	}
	begin, empty := 0, false
	for at := 0; at < len(text); {
		next := lineEnd(text, at)
		line := strings.TrimRight(text[at:next], " \t\r\n")
		if line != "" && empty && !strings.ContainsRune(" \t)}]", rune(line[0])) {
			flush(begin, at)
			begin = at
		}
		empty = line == ""
		at = next
	}
	flush(begin, len(text))
	return units
}

// lineEnd is where the line that begins at a byte ends, with its end.
func lineEnd(text string, at int) int {
	if n := strings.IndexByte(text[at:], '\n'); n >= 0 {
		return at + n + 1
	}
	return len(text)
}
