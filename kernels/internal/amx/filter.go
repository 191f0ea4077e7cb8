//go:build amd64 && !purego

// Package amx has the loops that gain from AMX's matrix products: of bytes, levels Fast
// and Fine of MaxSim and the filter of nearest centroids, which computes the same
// integers as avx512.Filter; of bfloat16, the screening of plain vectors.
package amx

import (
	"encoding/binary"

	"github.com/plaid-ir/plaid/kernels/internal/avx512"
)

//go:noescape
func filter(hits [][18]int32, levels []byte, stride int, x *byte, first int, best, margin *[64]int32, k int, config *[64]byte) (size int)

// configs are the shapes of the tiles, by the number of 16 dimensions that are
// left over by steps of 64.
var configs = func() (all [4][64]byte) {
	for left := range all {
		c := &all[left]
		c[0] = 1 // palette
		for t := range 8 {
			rows, bytes := 16, 64
			if left > 0 && t == 6 {
				bytes = 16 * left
			}
			if left > 0 && t == 7 {
				rows = 4 * left
			}
			binary.LittleEndian.PutUint16(c[16+2*t:], uint16(bytes))
			c[48+t] = byte(rows)
		}
	}
	return all
}()

// Filter does what [avx512.Filter] does. hits has room for 16 more vectors
// than k. It needs [Supported].
func Filter(hits [][18]int32, levels []byte, stride int, x *byte, first int, best, margin *[64]int32, k int) (size int) {
	if k < 16 {
		return avx512.Filter(hits, levels, stride, x, first, best, margin, k)
	}
	return filter(hits, levels, stride, x, first, best, margin, k, &configs[stride/16%4])
}
