package human

import "unicode"

// Blankless reports whether a letter is of a script that has no blanks between words, such as
// Chinese, Japanese and Thai.
func Blankless(r rune) bool {
	switch {
	case r < 0xe00:
		return false
	case r == 0x30fc, r == 0x3006, r >= 0x3031 && r <= 0x3035, r == 0xff70, r == 0xff9e, r == 0xff9f:
		return true // marks of length, voice and repetition that Unicode counts to no script, and 〆
	}
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Bopomofo, unicode.Yi, unicode.Thai,
		unicode.Lao, unicode.Khmer, unicode.Myanmar, unicode.Tibetan, unicode.Javanese, unicode.Balinese)
}

// Paired reports whether a character is a letter of a script whose words are looked for by pairs of
// characters: words have no blanks between them, or, in Korean, endings behind them. Tibetan is not,
// since it has a mark between syllables. The scripts of Thai, Khmer and Burmese have signs of their
// own that end a sentence, which are no letters.
func Paired(r rune) bool {
	return r >= 0xe00 && (Blankless(r) && !unicode.Is(unicode.Tibetan, r) || unicode.Is(unicode.Hangul, r)) && !unicode.In(r, unicode.P, unicode.S)
}
