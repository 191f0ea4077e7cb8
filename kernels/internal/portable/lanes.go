// Package portable holds the inner loops in plain Go: what every tier has that
// has none of its own, and what those of the other tiers must equal to the bit.
//
// It gets its speed from SWAR ("SIMD within a register"): several small
// integers in the lanes of a uint64. Sums are arranged so that no lane
// overflows, so one addition serves them all. Where the compiler could fuse a
// product with a sum, a conversion rounds the product first, so that results
// are the same on every machine.
package portable

const (
	even16  = 0x0000_ffff_0000_ffff // 16-bit lanes 0 and 2
	lanes32 = 0x0000_0001_0000_0001 // 1 in each 32-bit lane
	top8    = 0x8080_8080_8080_8080 // the top bit of each lane
	top32   = 0x8000_0000_8000_0000
)

// A row is eight words, one cache line: 32 lanes of 16 bits or 16 of 32. A
// byteTable has a row for each value of a byte.
type (
	row       = [8]uint64
	byteTable = [256]row
	row4      = [4]uint64 // 32 bytes
)

// max8 is the maximum of 8-bit lanes whose top bits are 0.
func max8(a, b uint64) uint64 {
	m := ((a | top8) - b) & top8
	return b ^ (a^b)&(m-m>>7)
}

// max32 is the maximum of 32-bit lanes whose top bits are 0.
func max32(a, b uint64) uint64 {
	m := ((a | top32) - b) & top32
	return b ^ (a^b)&(m-m>>31)
}
