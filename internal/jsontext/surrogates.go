package jsontext

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// utf16Unit returns the UTF-16 unit of \uXXXX at an offset.
func utf16Unit(text []byte, pos int) (rune, bool) {
	if pos+6 > len(text) || text[pos] != '\\' || text[pos+1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[pos+2:pos+6]), 16, 16)
	return rune(n), err == nil
}

// LoneSurrogate returns the offset of the first \uD800 to \uDFFF in valid JSON that is not half of
// a pair, or −1.
func LoneSurrogate(text []byte) int {
	for pos := 0; pos < len(text); {
		next := bytes.IndexByte(text[pos:], '\\')
		if next < 0 {
			break
		}
		pos += next
		high, ok := utf16Unit(text, pos)
		if !ok || !utf16.IsSurrogate(high) {
			pos += 2
			continue
		}
		if low, ok := utf16Unit(text, pos+6); !ok || utf16.DecodeRune(high, low) == utf8.RuneError {
			return pos
		}
		pos += 12
	}
	return -1
}
