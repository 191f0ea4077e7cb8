// Package tiles says how MaxSim is laid out for processors that multiply
// matrices of bytes: tiles of 16 rows of 64. It is plain Go; package amx has the
// instructions.
package tiles

// Call is one call of MaxSim by matrix products of bytes, for 32 query
// tokens and documents cut in blocks of 16 tokens.
//
// The fields of a residual (1, 2, 4 or 8 bits) are the unsigned bytes of one
// operand; 64 of them are multiplied at a time. Each is there twice: high, in
// the top bits of its byte, and low, in the bottom ones (of 8 bits the upper
// four), to be multiplied with a high and a low part of the query. So a
// product counts in units of 2⁻¹⁴ or so of the largest component of the query
// and not of 2⁻⁷, all in one sum.
type Call struct {
	Nbits    int
	RowBytes int
	// Offsets has the first byte in a residual of every 64 fields, [Layout.Blocks].
	Offsets []int
	// Tiles are the query: byte [ByteOffset](block, half, n, m) belongs to field
	// [Layout.Dimension](block, m) and query token [Lane](half, n), for the high part,
	// and the one [LowDistance] bytes later for the low part.
	Tiles []byte
	// Shift is the number of bits dropped of the products, rounded down, for
	// each half and column.
	Shift *[2][16]int32
	// Scores are the rows that are added to the shifted products, one for each
	// centroid: 16 bits for each of the 32 query tokens, in their order.
	Scores [][8]uint64
	// Scales multiply the shifted products, one for each centroid: the same
	// 16-bit fraction, in units of 2⁻¹⁵, in either half of a word; nil: 1.
	Scales []uint32

	Codes     []byte
	CodeBytes int
	Residuals []byte
	Factors   []byte
	// Short has tokens of documents of fewer than 16, filled up to 16 with
	// copies, in the same form.
	ShortCodes, ShortResiduals, ShortFactors []byte

	// Blocks are the blocks of 16 tokens, made by [Call.PlanTokens]; its first and last
	// entries keep the pipeline going.
	Blocks []Block
	// Best is raised, for each document, to the 16-bit products with the factor
	// in units of 2⁻¹⁵, rounded; it has one entry more than there are documents.
	Best [][32]int16

	// Scratch is overwritten; it has [ScratchSize] bytes.
	Scratch []byte
}

// Block is 16 consecutive tokens of a document.
type Block struct {
	First uint32 // the first token; with [InShort], one of the short arrays
	Doc   uint32
}

// InShort marks a block of the short arrays.
const InShort = 1 << 31

const (
	// BlockTokens is the number of tokens of a block.
	BlockTokens = 16
	// MaxCentroids is the largest number of centroids: a row of scores is found
	// by an offset of 32 bits.
	MaxCentroids = 1 << 25

	leadBlocks  = 4  // entries of Blocks before the first
	trailBlocks = 10 // and after the last: two pairs to finish, three to fetch ahead
	// Of the scratch: products of two pairs of blocks, tokens of four, operands
	// of two, for each 64 fields.
	productBytes = 2 * 4096
	tokenBytes   = 4 * 512
	operandBytes = 2 * 4096
)

// NewCall returns a call for rows of a layout, each centroid with a scale, or
// none, and so many documents at most.
func NewCall(l Layout, scales []uint32, docs int) *Call {
	c := &Call{
		Nbits: l.nbits, RowBytes: l.rowBytes, Scales: scales,
		Best: make([][32]int16, docs+1), Scratch: make([]byte, ScratchSize(l.Blocks())),
	}
	for b := range l.Blocks() {
		c.Offsets = append(c.Offsets, l.Offset(b))
	}
	return c
}

// ScratchSize is the size of the scratch for rows of so many blocks of 64 fields.
func ScratchSize(blocks int) int { return productBytes + tokenBytes + blocks*operandBytes }

// StartPlan empties Blocks and the short arrays.
func (c *Call) StartPlan() {
	c.Blocks = append(c.Blocks[:0], make([]Block, leadBlocks)...)
	c.ShortCodes, c.ShortResiduals, c.ShortFactors = c.ShortCodes[:0], c.ShortResiduals[:0], c.ShortFactors[:0]
}

// PlanTokens adds the tokens lo to hi to a document. The last block of a document
// may begin before the previous one ends: a maximum does not mind.
func (c *Call) PlanTokens(doc int, lo, hi int) {
	d := uint32(doc)
	if hi-lo >= BlockTokens {
		for t := lo; t < hi; t += BlockTokens {
			c.Blocks = append(c.Blocks, Block{uint32(min(t, hi-BlockTokens)), d})
		}
		return
	}
	if lo == hi {
		return
	}
	c.Blocks = append(c.Blocks, Block{uint32(len(c.ShortFactors)/2) | InShort, d})
	c.ShortCodes = appendFilledUp(c.ShortCodes, c.Codes, lo, hi, c.CodeBytes)
	c.ShortResiduals = appendFilledUp(c.ShortResiduals, c.Residuals, lo, hi, c.RowBytes)
	c.ShortFactors = appendFilledUp(c.ShortFactors, c.Factors, lo, hi, 2)
}

// appendFilledUp appends tokens lo to hi, the last again until there are 16.
func appendFilledUp(dst, src []byte, lo, hi, size int) []byte {
	dst = append(dst, src[lo*size:hi*size]...)
	for range BlockTokens - (hi - lo) {
		dst = append(dst, src[(hi-1)*size:hi*size]...)
	}
	return dst
}

// EndPlan completes Blocks for the given number of documents. It reports false
// if there is nothing to do.
func (c *Call) EndPlan(docs int) bool {
	if len(c.Blocks) == leadBlocks {
		return false
	}
	for i := range leadBlocks {
		c.Blocks[i] = Block{c.Blocks[leadBlocks].First, uint32(docs)}
	}
	last := c.Blocks[len(c.Blocks)-1]
	for range trailBlocks + len(c.Blocks)%2 {
		c.Blocks = append(c.Blocks, last)
	}
	return true
}

// Release drops the references to query and documents. What was allocated for the
// next call stays.
func (c *Call) Release() {
	*c = Call{
		Nbits: c.Nbits, RowBytes: c.RowBytes, Offsets: c.Offsets, Scales: c.Scales, Best: c.Best, Scratch: c.Scratch,
		Blocks: c.Blocks, ShortCodes: c.ShortCodes, ShortResiduals: c.ShortResiduals, ShortFactors: c.ShortFactors,
	}
}

// Planned are the blocks without those that only keep the pipeline going.
func (c *Call) Planned() []Block { return c.Blocks[leadBlocks : len(c.Blocks)-trailBlocks] }

// Layout says how the fields of a residual get into operands.
type Layout struct {
	nbits, rowBytes, dim int
}

// NewLayout returns the layout for a dimension; ok is false where a residual
// is shorter than 64 fields.
func NewLayout(dim, nbits int) (l Layout, ok bool) {
	l = Layout{nbits, (dim*nbits + 7) / 8, dim}
	return l, l.rowBytes >= 8*nbits
}

// Blocks is the number of blocks of 64 fields.
func (l Layout) Blocks() int { return (l.dim + 63) / 64 }

// Offset is the first byte of a block in a residual. The last block ends with
// the residual, so that nothing beyond it is read; it may have fields again
// that the block before it has.
func (l Layout) Offset(block int) int { return min(8*l.nbits*block, l.rowBytes-8*l.nbits) }

// OperandField is the field of a residual that is at byte m of a block's operand.
func (l Layout) OperandField(block, m int) int {
	w := m / 8
	return l.Offset(block)*8/l.nbits + 64/l.nbits*(w%l.nbits) + 8*(w/l.nbits) + m%8
}

// Dimension is the dimension that byte m of a block's operand is there for, or −1.
func (l Layout) Dimension(block, m int) int {
	j := l.OperandField(block, m)
	if j < 64*block || j >= l.dim {
		return -1
	}
	return j
}

// ByteOffset is the place in [Call.Tiles] of byte m of the operand, 0 to 63, and a column.
func ByteOffset(block, half, column, m int) int {
	return BlockBytes*block + 1024*half + 64*(m/4) + 4*column + m%4
}

const (
	// BlockBytes is the size of the tiles of a query for a block of 64 fields.
	BlockBytes = 4096
	// LowDistance is the distance of the low part of a byte from its high one.
	LowDistance = BlockBytes / 2
)

// Split is the weight of the high part of the query where that of the low part is 1.
func Split(nbits int) int {
	if nbits == 8 {
		return 16
	}
	return 1 << (8 - nbits)
}

// Fine is one call of MaxSim at level Fine. Of [Call] it uses the plan and the
// arrays of documents; the fields are there once, as they are, and multiplied with
// the two signed bytes of a query of 16 bits. Byte [ByteOffset](block, half, n, m) of Tiles
// is the high one of query token 16·half + n, and the one [LowDistance] bytes later the
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
