package human

import "unicode"

// HasNoBlanks reports whether a letter belongs to a script without blanks between words, such as
// Chinese, Japanese and Thai.
func HasNoBlanks(r rune) bool {
	switch {
	case r < 0xe00:
		return false
	case r == 0x30fc, r == 0x3006, r >= 0x3031 && r <= 0x3035, r == 0xff70, r == 0xff9e, r == 0xff9f:
		return true // marks of length, voice and repetition that Unicode assigns to no script, and 〆
	}
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Bopomofo, unicode.Yi, unicode.Thai,
		unicode.Lao, unicode.Khmer, unicode.Myanmar, unicode.Tibetan, unicode.Javanese, unicode.Balinese)
}

// UsesPairs reports whether a character is a letter of a script in which searches use pairs of
// characters, because words have no blanks between them or, in Korean, have endings behind them.
// Tibetan is excluded, since it has a mark between syllables. Signs that end a sentence in Thai,
// Khmer and Burmese are not letters.
func UsesPairs(r rune) bool {
	if r < 0xe00 || unicode.In(r, unicode.P, unicode.S) {
		return false
	}
	return HasNoBlanks(r) && !unicode.Is(unicode.Tibetan, r) || unicode.Is(unicode.Hangul, r)
}
