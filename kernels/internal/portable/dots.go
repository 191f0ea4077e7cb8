package portable

// Products of float32 vectors. Each product is one chain of additions in the
// order of the dimensions, whichever of the functions below computes it, and
// every multiplication is rounded (the conversion forbids a fused one), so
// the same pair of vectors gives the same bits everywhere: in any block, on
// any machine.
//
// The Go compiler keeps one register of 16 for itself and needs one for each
// product on the way, so four chains fit and eight spill: a 2×2 tile reaches
// 15 GFLOP/s where a 4×2 tile reaches 6 (Zen 5).

// Dots writes dst[r·stride+s] = ⟨row r, query s⟩ for m rows of dim values and n
// queries, the other columns 0, and widens lo to hi by each of the first n.
func Dots(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi []float32) {
	dots(dst, stride, rows, m, queries, n, dim)
	for ; len(dst) > 0; dst = dst[stride:] {
		clear(dst[n:stride])
		for i, v := range dst[:n] {
			if v < lo[i] {
				lo[i] = v
			}
			if v > hi[i] {
				hi[i] = v
			}
		}
	}
}

// dots writes dst[i·stride+j] = ⟨a_i, b_j⟩ for the m vectors of a and the n of b.
func dots(dst []float32, stride int, a []float32, m int, b []float32, n, dim int) {
	i := 0
	for ; i+2 <= m; i += 2 {
		a0, a1 := a[i*dim:(i+1)*dim], a[(i+1)*dim:(i+2)*dim]
		d0, d1 := dst[i*stride:i*stride+n], dst[(i+1)*stride:(i+1)*stride+n]
		j := 0
		for ; j+2 <= n; j += 2 {
			d0[j], d0[j+1], d1[j], d1[j+1] = Dot2x2(a0, a1, b[j*dim:(j+1)*dim], b[(j+1)*dim:(j+2)*dim])
		}
		if j < n {
			bj := b[j*dim : (j+1)*dim]
			d0[j], d1[j], _, _ = Dot1x4(bj, a0, a1, a0, a1)
		}
	}
	if i < m {
		DotsOne(dst[i*stride:i*stride+n], a[i*dim:(i+1)*dim], b)
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
