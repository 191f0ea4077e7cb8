package cpu

// Several small integers in the lanes of a uint64, as in package portable.

const (
	lanes16   = 0x0001_0001_0001_0001 // 1 in each 16-bit lane
	even16    = 0x0000_ffff_0000_ffff // lanes 0 and 2
	lanes32   = 0x0000_0001_0000_0001 // 1 in each 32-bit lane
	top16     = 0x8000_8000_8000_8000 // the top bit of each lane
	evenBytes = 0x00ff_00ff_00ff_00ff
)

// max16 is the maximum of 16-bit lanes whose top bits are 0.
func max16(a, b uint64) uint64 {
	m := ((a | top16) - b) & top16
	return b ^ (a^b)&(m-m>>15)
}

// sum8 adds the eight bytes of a word.
func sum8(v uint64) uint64 {
	v = v&evenBytes + v>>8&evenBytes
	return v * lanes16 >> 48
}

// resize returns a slice of length n, in s where that is large enough. Its
// contents are undefined.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
