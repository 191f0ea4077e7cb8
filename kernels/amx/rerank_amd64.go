//go:build !purego

package amx

import "math/bits"

//go:noescape
func rerank1(r *Rerank, win *windows, config *[64]byte)

//go:noescape
func rerank2(r *Rerank, win *windows, config *[64]byte)

//go:noescape
func rerank4(r *Rerank, win *windows, config *[64]byte)

//go:noescape
func rerank8(r *Rerank, win *windows, config *[64]byte)

// Run does the work. It needs [Supported].
func (r *Rerank) Run() {
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
