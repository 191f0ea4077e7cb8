package tiles

// Fine is one call of MaxSim at level Fine. Of [Call] it uses the plan and the
// arrays of documents; the fields are there once, as they are, and multiplied with
// the two signed bytes of a query of 16 bits. Byte [At](block, half, n, m) of Tiles
// is the high one of query token 16·half + n, and the one [Low] bytes later the
// low one. The sum of a field over both is exact, 256·high + low.
type Fine struct {
	Call
	// Rows are the scores of the centroids, Stride values apart, of which N ≤ 32
	// count.
	Rows      []float32
	Stride, N int
	// RowScales multiply mid + unit·sum, one for each centroid; nil: 1.
	RowScales []float32
	Mid, Unit *[32]float32
	// Maxima is raised, for each document, to the products with the stored factor;
	// it has one entry more than there are documents.
	Maxima [][32]float32
}

// NewFine returns a call for rows of a layout and so many documents at most.
func NewFine(l Layout, docs int) *Fine {
	f := &Fine{Maxima: make([][32]float32, docs+1)}
	f.Nbits, f.RowBytes, f.Scratch = l.nbits, l.rowBytes, make([]byte, FineScratchSize(l.Blocks()))
	for b := range l.Blocks() {
		f.Offsets = append(f.Offsets, l.Offset(b))
	}
	return f
}

// FineScratchSize is the size of the scratch for rows of so many blocks of 64
// fields: products of two blocks, tokens of four, operands of two.
func FineScratchSize(blocks int) int { return 2*4096 + 4*256 + blocks*2*1024 }

// Release drops the references to query and documents. What was allocated for the
// next call stays.
func (f *Fine) Release() {
	f.Call.Release()
	*f = Fine{Call: f.Call, Maxima: f.Maxima}
}
