//go:build amd64 && !purego

// Package amx has the loops that AMX's matrix products make faster:
//
//   - of bytes, levels Fast and Fine of MaxSim;
//   - of bytes, the filter of nearest centroids, with the integers of avx512.Filter;
//   - of bytes, the screening of centroids, with the sums of avx512.Screen;
//   - of bfloat16, the screening of plain vectors.
//
// Package tier specifies each function.
package amx

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/plaid-ir/plaid/kernels/internal/avx512"
	"github.com/plaid-ir/plaid/kernels/internal/tiles"
)

//go:noescape
func filter(
	hits [][18]int32, levels []byte, stride int, x *byte, first int, best, margin *[64]int32, k int, config *[64]byte,
) (size int)

// configs has the shapes of the tiles for strides that are 0, 16, 32 and 48 more than a
// multiple of 64. Tiles 6 and 7 are the operands for the bytes beyond that multiple.
var configs = func() (all [4][64]byte) {
	for excess := range all { // in 16 bytes
		c := &all[excess]
		c[0] = 1 // palette
		for t := range 8 {
			rows, bytes := 16, 64
			if excess > 0 && t == 6 {
				bytes = 16 * excess
			}
			if excess > 0 && t == 7 {
				rows = 4 * excess
			}
			binary.LittleEndian.PutUint16(c[16+2*t:], uint16(bytes))
			c[48+t] = byte(rows)
		}
	}
	return all
}()

// Filter implements tier.Filter.Filter, with the results of [avx512.Filter]. hits must have
// room for the hits of 16 vectors more than k. It needs [Supported].
func Filter(
	hits [][18]int32, levels []byte, stride int, x *byte, first int, best, margin *[64]int32, k int,
) (size int) {
	if k < 16 {
		return avx512.Filter(hits, levels, stride, x, first, best, margin, k)
	}
	return filter(hits, levels, stride, x, first, best, margin, k, &configs[stride/16%4])
}

// rerank is tiles.Call as a type of this package, so that the assembler knows the offsets of
// its fields.
type rerank tiles.Call

//go:noescape
func rerank1(r *rerank, win *windows, config *[64]byte)

//go:noescape
func rerank2(r *rerank, win *windows, config *[64]byte)

//go:noescape
func rerank4(r *rerank, win *windows, config *[64]byte)

//go:noescape
func rerank8(r *rerank, win *windows, config *[64]byte)

// Rerank implements tier.Tokens.Tiles. It needs [Supported].
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

// windows has the operands of VPMULTISHIFTQB, which extracts eight bits from any bit of a
// word of 64, and the masks of the extracted bits: for the high parts of fields, then for
// the low ones.
type windows struct {
	from, mask [2][64]byte
}

// selectors has the windows for 1, 2, 4 and 8 bits.
var selectors = func() (all [4]windows) {
	for i := range all {
		n, s := 1<<i, &all[i]
		for m := range 64 {
			first := (8*(m/8/n) + m%8) * n // first bit of the field in its word, see tiles.Layout.OperandField
			s.from[0][m], s.mask[0][m] = byte(first+n-8)&63, byte(0xff<<(8-n))
			s.from[1][m], s.mask[1][m] = byte(first), byte(1<<n-1)
			if n == 8 {
				s.from[1][m], s.mask[1][m] = byte(first+4)&63, 15
			}
		}
	}
	return all
}()

// tileConfig has the shapes of tiles that are all 16 rows of 64 bytes.
var tileConfig = func() (c [64]byte) {
	c[0] = 1 // palette
	for t := range 8 {
		binary.LittleEndian.PutUint16(c[16+2*t:], 64)
		c[48+t] = 16
	}
	return c
}()

// fine is tiles.Fine as a type of this package, so that the assembler knows the offsets of
// its fields. Those of its Call, which comes first, are the offsets of rerank.
type fine tiles.Fine

//go:noescape
func fine1(f *fine, win *window, config *[64]byte)

//go:noescape
func fine2(f *fine, win *window, config *[64]byte)

//go:noescape
func fine4(f *fine, win *window, config *[64]byte)

//go:noescape
func fine8(f *fine, win *window, config *[64]byte)

// Fine implements tier.Tokens.FineTiles. It needs [Supported].
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

// window has the operand of VPMULTISHIFTQB and the mask of the extracted bits.
type window struct {
	from, mask [64]byte
}

// fieldWindows extract whole fields into bytes, for 1, 2, 4 and 8 bits.
var fieldWindows = func() (all [4]window) {
	for i, s := range selectors {
		operand := 1 // low: the field in the bottom bits of a byte
		if i == 3 {
			operand = 0 // high, which for 8 bits is the whole byte
		}
		all[i] = window{s.from[operand], s.mask[operand]}
	}
	return all
}()

// halves multiplies n rows, stride bytes apart, with a panel of 32 columns, all of bfloat16. dst gets
// the products, and most the largest of each column. A row's products are scaled by its factor; nil
// factors mean 1.
//
//go:noescape
func halves(
	dst *[32]float32, most *[32]float32, rows *byte, n, stride int, panel *byte, factors *float32, config *[64]byte,
)

// HalvesRows is the least number of rows of Halves.
const HalvesRows = 16

// Halves implements tier.Screen.Products for bfloat16, with strides that are multiples of 64
// bytes. Sums are rounded after each product; denormal values count as zeros. It needs
// [SupportedHalves].
func Halves(
	dst [][32]float32, most *[32]float32, levels []byte, stride int, panel []byte, _ *[32]int32, factors []float32,
) {
	halves(&dst[0], most, &levels[0], len(dst), stride, &panel[0], unsafe.SliceData(factors), &configs[0])
}

//go:noescape
func screen(dst *[32]float32, levels *byte, m, stride int, panel *byte, start *[32]int32, config *[64]byte)

//go:noescape
func screen2(dst *[32]float32, levels *byte, m, stride int, panel *byte, start *[32]int32, config *[64]byte)

// screenConfigs has the shapes of the tiles of Screen, by the number of groups of four
// dimensions in the last step of up to 64. Index 0 is for 16 groups. Tiles 3, 6 and 7 are the
// operands of the last step.
var screenConfigs = func() (all [16][64]byte) {
	for groups := range all {
		c := &all[groups]
		*c = tileConfig
		if groups > 0 {
			binary.LittleEndian.PutUint16(c[16+2*3:], uint16(4*groups))
			c[48+6], c[48+7] = byte(groups), byte(groups)
		}
	}
	return all
}()

// ScreenRows is the least number of rows of Screen.
const ScreenRows = 16

// Screen implements tier.Tokens.Screen. It needs [Supported].
func Screen(dst [][32]float32, levels []byte, stride int, panel []byte, start *[32]int32) {
	config := &screenConfigs[stride/4%16]
	if 64 < stride && stride <= 128 {
		screen2(&dst[0], &levels[0], len(dst), stride, &panel[0], start, config)
		return
	}
	screen(&dst[0], &levels[0], len(dst), stride, &panel[0], start, config)
}
