//go:build !purego

package amx

import (
	"math/bits"

	"github.com/plaid-ir/plaid/kernels/internal/tiles"
)

// fine gives the assembler the offsets of the fields; those of its Call, which
// comes first, are those of rerank.
type fine tiles.Fine

//go:noescape
func fine1(f *fine, win *window, config *[64]byte)

//go:noescape
func fine2(f *fine, win *window, config *[64]byte)

//go:noescape
func fine4(f *fine, win *window, config *[64]byte)

//go:noescape
func fine8(f *fine, win *window, config *[64]byte)

// Fine does the work of a call. It needs [Supported].
func Fine(c *tiles.Fine) {
	f := (*fine)(c)
	i := bits.TrailingZeros(uint(c.Nbits))
	win := &fieldWindows[i]
	switch i {
	case 0:
		fine1(f, win, &tileConfig)
	case 1:
		fine2(f, win, &tileConfig)
	case 2:
		fine4(f, win, &tileConfig)
	default:
		fine8(f, win, &tileConfig)
	}
}

// window is the operand of VPMULTISHIFTQB and the mask for what it takes.
type window struct {
	from, mask [64]byte
}

// fieldWindows take the fields as they are, for 1, 2, 4 and 8 bits.
var fieldWindows = func() (all [4]window) {
	for i, s := range selectors {
		part := 1 // in the bottom bits of a byte
		if i == 3 {
			part = 0 // the byte
		}
		all[i] = window{s.from[part], s.mask[part]}
	}
	return all
}()
