// Package tiles defines the layout of MaxSim for processors that multiply matrices of
// bytes, as tiles of 16 rows of 64 bytes. It is plain Go; package amx has the
// instructions.
package tiles

// Call has the arguments of level Fast of MaxSim by matrix products of bytes, for 32 query
// tokens and documents cut into blocks of 16 tokens.
//
// The fields of a residual (1, 2, 4 or 8 bits) are the unsigned bytes of one
// operand; 64 of them are multiplied at a time. The operand has each field twice: in the
// top bits of a byte, which are multiplied with the high part of the query, and in the
// bottom bits of another (of 8 bits only the upper four), which are multiplied with the
// low part. So one sum of products represents the query in units of about 2⁻¹⁴ of its
// largest component, where one byte would give 2⁻⁷.
type Call struct {
	Nbits    int
	RowBytes int
	// Offsets has the first byte in a residual of every 64 fields, [Layout.Blocks].
	Offsets []int
	// Tiles has the query. Byte [ByteOffset](block, half, n, m) is the high part of
	// dimension [Layout.Dimension](block, m) of query token 8·(n/4) + 4·half + n%4, and the
	// byte [LowDistance] later is its low part. Packing 32-bit sums to 16 bits interleaves
	// the halves by four, which restores the order of the query tokens.
	Tiles []byte
	// Shift is the number of bits by which products are shifted right, rounding down, for
	// each half and column.
	Shift *[2][16]int32
	// Scores has a row for each centroid that is added to the shifted products: 16 bits
	// for each of the 32 query tokens, in their order.
	Scores [][8]uint64
	// Scales has a factor of the shifted products for each centroid: the same 16-bit
	// fraction, in units of 2⁻¹⁵, in both halves of a word. nil means that all are 1.
	Scales []uint32

	Codes     []byte
	CodeBytes int
	Residuals []byte
	Factors   []byte
	// ShortCodes, ShortResiduals and ShortFactors have the tokens of documents of fewer
	// than 16, in the same form; each document is filled up to 16 tokens with copies.
	ShortCodes, ShortResiduals, ShortFactors []byte

	// Blocks lists the blocks of 16 tokens, as [Call.PlanTokens] plans them. Its first and
	// last entries only fill and drain the pipeline of the assembly.
	Blocks []Block
	// Best is raised, for each document, to the 16-bit products with the factor
	// in units of 2⁻¹⁵, rounded. It has one entry more than there are documents, for the
	// blocks that fill the pipeline.
	Best [][32]int16

	// Scratch has [ScratchSize] bytes, which are overwritten.
	Scratch []byte
}

// Block is 16 consecutive tokens of a document.
type Block struct {
	First uint32 // number of the first token, in the short arrays if it has [InShort]
	Doc   uint32
}

// InShort is set in the First of a block of the short arrays.
const InShort = 1 << 31

const (
	// BlockTokens is the number of tokens of a block.
	BlockTokens = 16
	// MaxCentroids is the largest number of centroids: the assembly finds a row of scores,
	// of 64 bytes, by a signed offset of 32 bits.
	MaxCentroids = 1 << 25

	leadBlocks  = 4  // entries of Blocks before the first block
	trailBlocks = 10 // entries after the last block: two pairs to finish, three to fetch ahead

	// Bytes of the scratch memory.
	productBytes = 2 * 4096 // products of two pairs of blocks
	tokenBytes   = 4 * 512  // codes and factors of four blocks
	operandBytes = 2 * 4096 // operands of two blocks, for each 64 fields
)

// NewCall returns a call for at most docs documents whose residuals have this layout. scales
// has the scales of the centroids. nil means that all are 1.
func NewCall(l Layout, scales []uint32, docs int) *Call {
	c := &Call{
		Nbits:    l.nbits,
		RowBytes: l.rowBytes,
		Scales:   scales,
		Best:     make([][32]int16, docs+1),
		Scratch:  make([]byte, ScratchSize(l.Blocks())),
	}
	for b := range l.Blocks() {
		c.Offsets = append(c.Offsets, l.Offset(b))
	}
	return c
}

// ScratchSize returns the bytes of scratch memory for residuals of blocks · 64 fields.
func ScratchSize(blocks int) int { return productBytes + tokenBytes + blocks*operandBytes }

// StartPlan empties Blocks and the short arrays.
func (c *Call) StartPlan() {
	c.Blocks = append(c.Blocks[:0], make([]Block, leadBlocks)...)
	c.ShortCodes, c.ShortResiduals, c.ShortFactors = c.ShortCodes[:0], c.ShortResiduals[:0], c.ShortFactors[:0]
}

// PlanTokens adds the tokens lo to hi of a document to the plan. The last block of a document
// may overlap the one before: repeated tokens do not change a maximum.
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

// appendFilledUp appends the tokens lo to hi, of size bytes each, and copies of the last one
// until there are 16.
func appendFilledUp(dst, src []byte, lo, hi, size int) []byte {
	dst = append(dst, src[lo*size:hi*size]...)
	for range BlockTokens - (hi - lo) {
		dst = append(dst, src[(hi-1)*size:hi*size]...)
	}
	return dst
}

// EndPlan completes Blocks for the given number of documents. It reports false if there are
// no tokens to score. The entries before the first block raise the extra entry of Best. The
// entries after the last block repeat it, which changes no maximum; there is one more if
// the number of blocks is odd, because the assembly takes pairs.
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

// Release drops the references to query and documents, and keeps allocated memory for the
// next call.
func (c *Call) Release() {
	*c = Call{
		Nbits:          c.Nbits,
		RowBytes:       c.RowBytes,
		Offsets:        c.Offsets,
		Scales:         c.Scales,
		Best:           c.Best,
		Scratch:        c.Scratch,
		Blocks:         c.Blocks,
		ShortCodes:     c.ShortCodes,
		ShortResiduals: c.ShortResiduals,
		ShortFactors:   c.ShortFactors,
	}
}

// Planned returns the blocks without those that only fill and drain the pipeline.
func (c *Call) Planned() []Block { return c.Blocks[leadBlocks : len(c.Blocks)-trailBlocks] }

// Layout maps the fields of a residual to the bytes of operands.
type Layout struct {
	nbits, rowBytes, dim int
}

// NewLayout returns the layout for a dimension. ok is false if a residual has fewer than 64
// fields.
func NewLayout(dim, nbits int) (l Layout, ok bool) {
	l = Layout{nbits, (dim*nbits + 7) / 8, dim}
	return l, l.rowBytes >= 8*nbits
}

// Blocks returns the number of blocks of 64 fields.
func (l Layout) Blocks() int { return (l.dim + 63) / 64 }

// Offset returns the first byte of a block in a residual. The last block ends at the end of
// the residual, so that no byte beyond it is read; it may repeat fields of the block before.
func (l Layout) Offset(block int) int { return min(8*l.nbits*block, l.rowBytes-8*l.nbits) }

// OperandField returns the field of a residual that is at byte m of a block's operand. Word w
// = m/8 of the operand has eight consecutive fields of word w%nbits of the block, because
// VPMULTISHIFTQB extracts them from one word of 64 bits.
func (l Layout) OperandField(block, m int) int {
	w := m / 8
	return l.Offset(block)*8/l.nbits + 64/l.nbits*(w%l.nbits) + 8*(w/l.nbits) + m%8
}

// Dimension returns the dimension of byte m of a block's operand, or −1 if the byte repeats
// a field of the block before or is padding.
func (l Layout) Dimension(block, m int) int {
	j := l.OperandField(block, m)
	if j < 64*block || j >= l.dim {
		return -1
	}
	return j
}

// ByteOffset returns the offset in [Call.Tiles] of byte m of the operand, 0 to 63, for a
// column. A tile of 16 rows has four bytes of each of 16 columns in a row.
func ByteOffset(block, half, column, m int) int {
	return BlockBytes*block + 1024*half + 64*(m/4) + 4*column + m%4
}

const (
	// BlockBytes is the size of the tiles of a query for a block of 64 fields.
	BlockBytes = 4096
	// LowDistance is the distance of the low part of a byte from its high one.
	LowDistance = BlockBytes / 2
)

// Split returns the weight of the high part of the query; that of the low part is 1.
func Split(nbits int) int {
	if nbits == 8 {
		return 16
	}
	return 1 << (8 - nbits)
}

// Fine has the arguments of level Fine of MaxSim by matrix products of bytes. It uses the
// plan and the arrays of documents of [Call]. The operand has each field once, as a byte
// that is multiplied with both signed bytes of a query integer of 16 bits, 256·high + low.
// Byte [ByteOffset](block, half, n, m) of Tiles is the high byte of query token 16·half + n,
// and the byte [LowDistance] later is its low byte. Sums are integers, without roundings.
type Fine struct {
	Call
	// Rows has the scores of the centroids for N ≤ 32 query tokens, Stride values apart.
	Rows      []float32
	Stride, N int
	// RowScales has a factor of mid + unit·sum for each centroid. nil means that all are 1.
	RowScales []float32
	Mid, Unit *[32]float32
	// Maxima is raised, for each document, to the products with the stored factor. It has
	// one entry more than there are documents, as Best.
	Maxima [][32]float32
}

// NewFine returns a call for at most docs documents whose residuals have this layout.
func NewFine(l Layout, docs int) *Fine {
	f := &Fine{Maxima: make([][32]float32, docs+1)}
	f.Nbits, f.RowBytes, f.Scratch = l.nbits, l.rowBytes, make([]byte, FineScratchSize(l.Blocks()))
	for b := range l.Blocks() {
		f.Offsets = append(f.Offsets, l.Offset(b))
	}
	return f
}

// FineScratchSize returns the bytes of scratch memory for residuals of blocks · 64 fields:
// products of two blocks, codes and factors of four, and operands of two.
func FineScratchSize(blocks int) int { return 2*4096 + 4*256 + blocks*2*1024 }

// Release drops the references to query and documents, and keeps allocated memory for the
// next call.
func (f *Fine) Release() {
	f.Call.Release()
	*f = Fine{Call: f.Call, Maxima: f.Maxima}
}
