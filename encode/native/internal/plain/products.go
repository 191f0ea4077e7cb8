package plain

// Columns is how many columns a vector of a panel has here, MaxVectors how
// many vectors a panel has at most.
const (
	Columns    = 4
	MaxVectors = 3
)

// Products writes the products of m rows, a multiple of 8, of k values, a
// multiple of 16, with the vectors·Columns columns of a panel, to which bias is
// added first; the panel holds one row of columns after the other.
func Products(c []float32, ldc int, a []float32, lda, m, k int, b, bias []float32, vectors int) {
	n := vectors * Columns
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

// ByteProducts is Products of bytes: rows of k bytes with a scale each, and a
// panel that holds, for each four values of k, four bytes of each column. Sums
// are exact; the result is ((sum + start)·row scale)·column scale + bias, the
// last two fused. columns has the scales of the columns, then their biases.
func ByteProducts(c []float32, ldc int, a []byte, lda int, scales []float32, m, k int, b []int8, starts []int32, columns []float32, vectors int) {
	n := vectors * Columns
	for i := range m {
		x := a[i*lda:][:k]
		for j := range n {
			sum := starts[j]
			for t := 0; t < k; t += 4 {
				w, v := b[t*n+4*j:][:4], x[t:][:4]
				sum += int32(int8(v[0]))*int32(w[0]) + int32(int8(v[1]))*int32(w[1]) +
					int32(int8(v[2]))*int32(w[2]) + int32(int8(v[3]))*int32(w[3])
			}
			c[i*ldc+j] = FMA(float32(sum)*scales[i], columns[j], columns[n+j])
		}
	}
}
