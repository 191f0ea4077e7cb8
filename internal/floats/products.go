package floats

// Products writes the products of m rows, an even number, of k values with the n
// columns, a multiple of 4, of b, which holds one row of columns after the other.
// Each is one chain of fused additions in the order of k, from the bias of the
// column on.
func Products(c []float32, ldc int, a []float32, lda, m, k int, b, bias []float32, n int) {
	for i := 0; i < m; i += 2 {
		x, y := a[i*lda:][:k], a[(i+1)*lda:][:k]
		for j := 0; j < n; j += 4 {
			b0 := bias[j:][:4]
			p0, p1, p2, p3 := b0[0], b0[1], b0[2], b0[3]
			q0, q1, q2, q3 := p0, p1, p2, p3
			for t, u := range x {
				v, w := y[t], b[t*n+j:][:4]
				// FMA by hand: a call for each would take twice the time.
				u64, v64 := float64(u), float64(v)
				w0, w1, w2, w3 := float64(w[0]), float64(w[1]), float64(w[2]), float64(w[3])
				r0, r1, r2, r3 := u64*w0+float64(p0), u64*w1+float64(p1), u64*w2+float64(p2), u64*w3+float64(p3)
				s0, s1, s2, s3 := v64*w0+float64(q0), v64*w1+float64(q1), v64*w2+float64(q2), v64*w3+float64(q3)
				if doubtful(r0) || doubtful(r1) || doubtful(r2) || doubtful(r3) ||
					doubtful(s0) || doubtful(s1) || doubtful(s2) || doubtful(s3) {
					p0, p1, p2, p3 = fmaOdd(u, w[0], p0), fmaOdd(u, w[1], p1), fmaOdd(u, w[2], p2), fmaOdd(u, w[3], p3)
					q0, q1, q2, q3 = fmaOdd(v, w[0], q0), fmaOdd(v, w[1], q1), fmaOdd(v, w[2], q2), fmaOdd(v, w[3], q3)
					continue
				}
				p0, p1, p2, p3 = float32(r0), float32(r1), float32(r2), float32(r3)
				q0, q1, q2, q3 = float32(s0), float32(s1), float32(s2), float32(s3)
			}
			d, e := c[i*ldc+j:][:4], c[(i+1)*ldc+j:][:4]
			d[0], d[1], d[2], d[3] = p0, p1, p2, p3
			e[0], e[1], e[2], e[3] = q0, q1, q2, q3
		}
	}
}
