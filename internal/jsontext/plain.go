package jsontext

import (
	"encoding/binary"
	"math/bits"
)

// plainPrefixLen returns the number of bytes before the first quotation mark, backslash or control
// character.
func plainPrefixLen(text []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(text); i += 8 {
		// The lowest byte with a high bit in found is the first of them. Higher bytes may be wrong.
		// (y−n)&^y has a high bit for each byte of y below n, so that y = x^c finds c with n = 1.
		x := binary.LittleEndian.Uint64(text[i:])
		quote, slash := x^ones*'"', x^ones*'\\'
		found := ((x-ones*' ')&^x | (quote-ones)&^quote | (slash-ones)&^slash) & highs
		if found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(text); i++ {
		if c := text[i]; c == '"' || c == '\\' || c < ' ' {
			return i
		}
	}
	return len(text)
}
