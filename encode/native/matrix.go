package native

import (
	"github.com/plaid-ir/plaid/encode/native/internal/plain"
)

// tileRows is the minimum of rows that products are computed for: their inputs and outputs are padded
// to a multiple of it.
const tileRows = 8

// roundUp returns n rounded up to a multiple of size.
func roundUp(n, size int) int { return (n + size - 1) / size * size }

// visitPanels divides n columns, a multiple of 16, into panels of at most maxVectors
// vectors and about the same size, and calls visit with the first column and the number
// of vectors of each. A vector has the given columns.
func visitPanels(n, columns, maxVectors int, visit func(first, vectors int)) {
	vectors := n / columns
	count := (vectors + maxVectors - 1) / maxVectors
	first := 0
	for i := range count {
		v := vectors / count
		if i < vectors%count {
			v++
		}
		visit(first, v)
		first += v * columns
	}
}

// matrix is a weight, repacked for the loops of a tier: in panels that have
// all k rows of a few columns each. k and n are padded with zeros to multiples of 16.
type matrix struct {
	k, n int
	data []float32
	bias []float32 // [n]

	// Of precision Int8.
	bytes   []int8
	starts  []int32   // [n]: the initial values of sums, which remove the offset of activations
	columns []float32 // for each panel, the scales of its columns, then their biases
}

// pack repacks linear maps that share an input of in dimensions as one matrix, one
// after the other.
func pack(l *loops, p Precision, in int, maps ...Linear) *matrix {
	out := 0
	for _, linear := range maps {
		out += len(linear.Weight) / in
	}
	m := &matrix{k: roundUp(in, 16), n: roundUp(out, 16)}
	rows, bias := make([][]float32, 0, m.n), make([]float32, m.n)
	for _, linear := range maps {
		copy(bias[len(rows):], linear.Bias)
		for i := 0; i < len(linear.Weight); i += in {
			rows = append(rows, linear.Weight[i:i+in])
		}
	}
	if p == Int8 {
		m.packBytes(l, rows, bias)
		return m
	}
	m.bias = bias
	m.data = make([]float32, m.k*m.n)
	visitPanels(m.n, l.columns, l.vectors, func(first, vectors int) {
		width := vectors * l.columns
		panel := m.data[first*m.k:][:width*m.k]
		for j := range min(width, len(rows)-first) {
			for i, w := range rows[first+j] {
				panel[i*width+j] = w
			}
		}
	})
	return m
}

// packBytes rounds each row, which is a column of the product, to bytes.
func (m *matrix) packBytes(l *loops, rows [][]float32, bias []float32) {
	m.bytes = make([]int8, m.k*m.n)
	m.starts, m.columns = make([]int32, m.n), make([]float32, 2*m.n)
	quantized, scale := make([]byte, m.k), make([]float32, 1)
	row := make([]float32, m.k)
	visitPanels(m.n, l.bytes.columns, l.bytes.vectors, func(first, vectors int) {
		width := vectors * l.bytes.columns
		panel, columns := m.bytes[first*m.k:][:width*m.k], m.columns[2*first:][:2*width]
		copy(columns[width:], bias[first:][:width])
		for j := range min(width, len(rows)-first) {
			copy(row, rows[first+j])
			plain.Quantize(quantized, m.k, scale, row, m.k, 1, m.k, plain.Magic)
			columns[j] = scale[0]
			sum := int32(0)
			for i, q := range quantized { // a panel holds four bytes of each column for each four rows of k
				panel[i/4*4*width+4*j+i%4] = int8(q)
				sum += int32(int8(q))
			}
			m.starts[first+j] = -l.bytes.offset * sum // activations are offset: Σ(a+offset)·w = Σa·w + offset·Σw
		}
	})
}

// multiply writes the products of m rows of a with the matrix, plus its bias, to c.
// m is a multiple of tileRows.
func (w *matrix) multiply(l *loops, sc *scratch, c []float32, ldc int, a []float32, lda, m int) {
	if w.bytes == nil {
		visitPanels(w.n, l.columns, l.vectors, func(first, vectors int) {
			l.products(c[first:], ldc, a, lda, m, w.k, w.data[first*w.k:], w.bias[first:], vectors)
		})
		return
	}
	stride := w.k + 64 // as in stride, a distance that is rarely a power of two
	sc.bytes, sc.scales = resize(sc.bytes, m*stride), resize(sc.scales, m)
	l.quantize(sc.bytes, stride, sc.scales, a, lda, m, w.k, plain.Magic+float32(l.bytes.offset))
	visitPanels(w.n, l.bytes.columns, l.bytes.vectors, func(first, vectors int) {
		l.bytes.products(c[first:], ldc, sc.bytes, stride, sc.scales, m, w.k,
			w.bytes[first*w.k:], w.starts[first:], w.columns[2*first:], vectors)
	})
}

// resize returns x with length n, or new memory if x is too small. Its contents are undefined.
func resize[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n)
	}
	return x[:n]
}
