package tier

// QueryVectors are the vectors of a query in the two orders that loops over
// centroids read: rows by plain Go, lanes by vector instructions.
type QueryVectors struct {
	N, Dim  int
	Stride  int       // of a row of products: N rounded up to a multiple of 8
	Vectors []float32 // [N, Dim]
	Lanes   []float32 // [groups of 32, Dim, 32], 0 beyond N
}

// Reset takes vectors, which it copies.
func (q *QueryVectors) Reset(vectors []float32, dim int) {
	q.Dim, q.N = dim, len(vectors)/dim
	q.Stride = (q.N + 7) &^ 7
	q.Vectors = append(q.Vectors[:0], vectors...)
	if n := (q.N + 31) / 32 * 32 * dim; cap(q.Lanes) < n {
		q.Lanes = make([]float32, n)
	} else {
		q.Lanes = q.Lanes[:n]
	}
	clear(q.Lanes[q.N/32*32*dim:])
	for i := range q.N {
		lane := q.Lanes[i/32*32*dim+i%32:]
		for j, v := range vectors[i*dim : (i+1)*dim] {
			lane[32*j] = v
		}
	}
}
