package portable

import "github.com/plaid-ir/plaid/internal/floats"

// Products of float32 vectors. Each is one chain of additions in the order of the
// dimensions, whichever of the functions below computes it, so the same pair of
// vectors gives the same bits everywhere: in any block, on any machine. Dots fuses
// product and sum, as loops in vector instructions do; the others, for which there
// are no such loops, round both (the conversion forbids to fuse them).
//
// The Go compiler keeps one register of 16 for itself and needs one for each
// product on the way, so four chains fit and eight spill: a 2×2 tile reaches
// 15 GFLOP/s where a 4×2 tile reaches 6 (Zen 5).

// Dots writes dst[r·stride+s] = ⟨row r, query s⟩ for m rows of dim values and the
// first n columns of a panel [dim, 32], the next ones 0 up to a multiple of 8, and
// widens lo to hi by each of the first n.
func Dots(dst []float32, stride int, rows []float32, m, dim int, panel []float32, n int, lo, hi []float32) {
	var c [2 * 32]float32
	for r := 0; r < m; r += 2 {
		next := min(1, m-1-r) * dim // 0: the last row twice
		floats.Products(c[:], 32, rows[r*dim:], next, 2, dim, panel, noBias[:], 32)
		for i := range min(2, m-r) {
			copy(dst[(r+i)*stride:], c[32*i:32*i+(n+7)&^7])
			for j, v := range c[32*i : 32*i+n] {
				if v < lo[j] {
					lo[j] = v
				}
				if v > hi[j] {
					hi[j] = v
				}
			}
		}
	}
}

// DotsOne writes dst[j] = ⟨x, b_j⟩.
func DotsOne(dst, x, b []float32) {
	dim := len(x)
	row := func(j int) []float32 { return b[j*dim : (j+1)*dim] }
	j := 0
	for ; j+4 <= len(dst); j += 4 {
		dst[j], dst[j+1], dst[j+2], dst[j+3] = Dot1x4(x, row(j), row(j+1), row(j+2), row(j+3))
	}
	for ; j < len(dst); j++ {
		dst[j], _, _, _ = Dot1x4(x, row(j), row(j), row(j), row(j))
	}
}

// Dot2x2 returns the products of two vectors with two others. Inlined, its loop
// would share the registers of its caller and be a third slower.
//
//go:noinline
func Dot2x2(a0, a1, b0, b1 []float32) (s00, s01, s10, s11 float32) {
	n := len(a0)
	a1, b0, b1 = a1[:n], b0[:n], b1[:n]
	for k := range a0 {
		x, y := b0[k], b1[k]
		v, w := a0[k], a1[k]
		s00 += float32(v * x)
		s01 += float32(v * y)
		s10 += float32(w * x)
		s11 += float32(w * y)
	}
	return
}

// Dot1x4 returns the products of x with four vectors.
//
//go:noinline
func Dot1x4(x, b0, b1, b2, b3 []float32) (s0, s1, s2, s3 float32) {
	n := len(x)
	b0, b1, b2, b3 = b0[:n], b1[:n], b2[:n], b3[:n]
	for k, v := range x {
		s0 += float32(b0[k] * v)
		s1 += float32(b1[k] * v)
		s2 += float32(b2[k] * v)
		s3 += float32(b3[k] * v)
	}
	return
}
