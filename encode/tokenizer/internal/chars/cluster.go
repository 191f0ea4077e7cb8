package chars

import "unicode/utf8"

// ClusterEnd is where the grapheme cluster that begins at from ends. The text
// must be valid UTF-8 and longer than from.
func ClusterEnd(text []byte, from int) int {
	r, n := utf8.DecodeRune(text[from:])
	at := from + n
	info := InfoOf(r)
	prev, prevRune := info.Cluster(), r
	pictograph := prev == Pictographic               // a pictograph, then only Extend
	joined := false                                  // after it a joiner
	consonant, linked := info.Is(InConsonant), false // within an Indic conjunct
	for at < len(text) {
		r, n = utf8.DecodeRune(text[at:])
		info = InfoOf(r)
		c := info.Cluster()
		switch {
		case prevRune == '\r' && r == '\n':
		case prev == Control || c == Control:
			return at
		case c == Extend || c == ZWJ || c == SpacingMark || prev == Prepend:
		case prev == HangulL && (c == HangulL || c == HangulV || c == HangulLV || c == HangulLVT):
		case (prev == HangulLV || prev == HangulV) && (c == HangulV || c == HangulT):
		case (prev == HangulLVT || prev == HangulT) && c == HangulT:
		case joined && c == Pictographic:
		case consonant && linked && info.Is(InConsonant):
		default:
			return at
		}
		joined = pictograph && c == ZWJ
		pictograph = c == Pictographic || pictograph && c == Extend
		switch {
		case info.Is(InConsonant):
			consonant, linked = true, false
		case info.Is(InLinker):
			linked = consonant
		case !info.Is(InExtend):
			consonant, linked = false, false
		}
		prev, prevRune = c, r
		at += n
	}
	return at
}
