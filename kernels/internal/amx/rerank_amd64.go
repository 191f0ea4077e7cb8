//go:build !purego

package amx

import (
	"encoding/binary"
	"math/bits"

	"github.com/plaid-ir/plaid/kernels/internal/tiles"
)

// rerank gives the assembler the offsets of the fields.
type rerank tiles.Call

//go:noescape
func rerank1(r *rerank, win *windows, config *[64]byte)

//go:noescape
func rerank2(r *rerank, win *windows, config *[64]byte)

//go:noescape
func rerank4(r *rerank, win *windows, config *[64]byte)

//go:noescape
func rerank8(r *rerank, win *windows, config *[64]byte)

// Rerank does the work of a call. It needs [Supported].
func Rerank(c *tiles.Call) {
	r := (*rerank)(c)
	i := bits.TrailingZeros(uint(r.Nbits))
	win := &selectors[i]
	switch i {
	case 0:
		rerank1(r, win, &tileConfig)
	case 1:
		rerank2(r, win, &tileConfig)
	case 2:
		rerank4(r, win, &tileConfig)
	default:
		rerank8(r, win, &tileConfig)
	}
}

// windows are the operands of VPMULTISHIFTQB, which takes eight bits from
// anywhere in a word of 64, and the masks for what it takes: high and low.
type windows struct {
	from, mask [2][64]byte
}

// selectors are the windows for 1, 2, 4 and 8 bits.
var selectors = func() (all [4]windows) {
	for i := range all {
		n, s := 1<<i, &all[i]
		for m := range 64 {
			first := (8*(m/8/n) + m%8) * n // bit of the field in its word
			s.from[0][m], s.mask[0][m] = byte(first+n-8)&63, byte(0xff<<(8-n))
			s.from[1][m], s.mask[1][m] = byte(first), byte(1<<n-1)
			if n == 8 {
				s.from[1][m], s.mask[1][m] = byte(first+4)&63, 15
			}
		}
	}
	return all
}()

// tileConfig makes all tiles 16 rows of 64 bytes.
var tileConfig = func() (c [64]byte) {
	c[0] = 1 // palette
	for t := range 8 {
		binary.LittleEndian.PutUint16(c[16+2*t:], 64)
		c[48+t] = 16
	}
	return c
}()
