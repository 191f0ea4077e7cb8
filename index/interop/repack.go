package interop

import "math/bits"

// repackTable turns a residual byte of the ColBERT order into plaid's and back.
//
// ColBERT emits the n bits of each bucket least significant first and fills
// bytes from the most significant bit, so bit t of dimension d is at bit
// 7−((d·n+t) mod 8) of its byte; plaid has it at bit (d·n+t) mod 8. Whatever n
// (a divisor of 8) is, that is the reversal of the byte, its own inverse.
var repackTable = func() (t [256]byte) {
	for i := range t {
		t[i] = bits.Reverse8(uint8(i))
	}
	return t
}()

// repack converts residual bytes in place, in either direction.
func repack(b []byte) {
	for i, v := range b {
		b[i] = repackTable[v]
	}
}
