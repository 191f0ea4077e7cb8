package maxsim

import (
	"math"

	"github.com/plaid-ir/plaid/kernels"
)

// Layout divides the rows of a matrix into items. It is packed, with Offsets, or padded,
// with Count and Stride.
type Layout struct {
	// Offsets has one more entry than there are items: item i has the rows
	// Offsets[i] to Offsets[i+1].
	Offsets []int
	// Count padded items have Stride rows each. Lengths has the number of each item's
	// tokens, which are its first rows. nil means that all rows are tokens.
	Count, Stride int
	Lengths       []int
	// MaxItemRows is the largest number of rows of an item, and the number of its argmaxima.
	// 0 means that it follows from the items. Rows of a padded item beyond it are not
	// tokens, and those of the last item may be missing from the matrix.
	MaxItemRows int
	// Mask has an entry for each row of the matrix, in either layout: false means that the
	// row is not a token. nil means that all rows of the items are.
	Mask []bool
}

// Len returns the number of items.
func (l *Layout) Len() int {
	if l.Offsets != nil {
		return len(l.Offsets) - 1
	}
	return l.Count
}

// Span returns the rows lo to hi (exclusive) of item i; some of them may be masked.
func (l *Layout) Span(i int) (lo, hi int) {
	switch {
	case l.Offsets != nil:
		return l.Offsets[i], l.Offsets[i+1]
	case l.Lengths != nil:
		return i * l.Stride, i*l.Stride + l.Lengths[i]
	}
	return i * l.Stride, i*l.Stride + l.MaxRows()
}

// IsToken reports whether a row of a span is a token.
func (l *Layout) IsToken(row int) bool { return l.Mask == nil || l.Mask[row] }

// MaxRows returns the largest number of rows of an item, padding included.
func (l *Layout) MaxRows() int {
	if l.MaxItemRows > 0 {
		return l.MaxItemRows
	}
	if l.Offsets == nil {
		return l.Stride
	}
	longest := 0
	for i := 1; i < len(l.Offsets); i++ {
		longest = max(longest, l.Offsets[i]-l.Offsets[i-1])
	}
	return longest
}

// validate checks the layout of a matrix with this number of rows.
func (l *Layout) validate(rows int) error {
	if l.Mask != nil && len(l.Mask) != rows {
		return shapeErrorf("a mask of %d entries for %d rows", len(l.Mask), rows)
	}
	if l.Offsets != nil {
		if l.Count != 0 || l.Stride != 0 || l.Lengths != nil {
			return shapeErrorf("a layout has both offsets and padding")
		}
		if err := validateOffsets(l.Offsets, rows); err != nil {
			return err
		}
		return l.validateMaxItemRows()
	}
	if err := l.validatePadding(rows); err != nil {
		return err
	}
	if l.Lengths == nil {
		return nil
	}
	if len(l.Lengths) != l.Count {
		return shapeErrorf("%d lengths for %d items", len(l.Lengths), l.Count)
	}
	for i, n := range l.Lengths {
		if n < 0 || n > l.MaxRows() {
			return shapeErrorf("length %d of item %d is not in 0..%d", n, i, l.MaxRows())
		}
	}
	return nil
}

// validatePadding checks Count, Stride and MaxItemRows of padded items.
func (l *Layout) validatePadding(rows int) error {
	if l.MaxItemRows != 0 {
		if l.Count < 0 || l.MaxItemRows < 0 || l.Stride < l.MaxItemRows ||
			l.Count > 0 && (rows < l.MaxItemRows || l.Count-1 > (rows-l.MaxItemRows)/l.Stride) {
			return shapeErrorf("%d items of %d rows, %d apart, in a matrix of %d",
				l.Count, l.MaxItemRows, l.Stride, rows)
		}
		return nil
	}
	if l.Count < 0 || l.Stride < 0 || l.Stride > 0 && l.Count > rows/l.Stride || l.Count*l.Stride != rows {
		return shapeErrorf("%d items of %d rows in a matrix of %d", l.Count, l.Stride, rows)
	}
	return nil
}

// validateMaxItemRows checks that no packed item has more than MaxItemRows rows.
func (l *Layout) validateMaxItemRows() error {
	for i := 1; i < len(l.Offsets) && l.MaxItemRows != 0; i++ {
		if n := l.Offsets[i] - l.Offsets[i-1]; n > l.MaxItemRows {
			return shapeErrorf("item %d has %d rows, of at most %d", i-1, n, l.MaxItemRows)
		}
	}
	return nil
}

// validateOffsets checks that offsets ascend to at most the number of rows.
func validateOffsets(offsets []int, rows int) error {
	if len(offsets) == 0 {
		return shapeErrorf("no offsets: n items have n+1")
	}
	last := 0
	for i, o := range offsets {
		if o < last {
			return shapeErrorf("offset %d is %d, after %d", i, o, last)
		}
		last = o
	}
	if last > rows {
		return shapeErrorf("offsets end at %d of %d rows", last, rows)
	}
	return nil
}

// Shape describes an operand without its values.
type Shape struct {
	Type Type
	Dim  int
	Rows int // of the matrix, padding included
	Layout
}

// Batch is a matrix of tokens in memory, divided into items.
type Batch struct {
	Tokens Matrix
	Layout
}

// Packed makes a batch of items that follow one another; item i has the rows
// offsets[i] to offsets[i+1].
func Packed(m Matrix, offsets []int) *Batch { return &Batch{m, Layout{Offsets: offsets}} }

// Padded makes a batch of items of stride rows each. Set Lengths or Mask of the
// result where not all of them are tokens.
func Padded(m Matrix, stride int) *Batch {
	b := &Batch{m, Layout{Stride: stride}}
	if stride > 0 {
		b.Count = m.Rows() / stride
	}
	return b
}

// Single makes a batch of one item.
func Single(m Matrix) *Batch { return &Batch{m, Layout{Count: 1, Stride: m.Rows()}} }

// Shape implements [Operand].
func (b *Batch) Shape() Shape { return Shape{b.Tokens.Type, b.Tokens.Dim, b.Tokens.Rows(), b.Layout} }

// Validate checks the matrix and its layout. The number of items, and of the rows of one,
// must fit int32.
func (b *Batch) Validate() error {
	if err := b.Tokens.Validate(); err != nil {
		return err
	}
	if err := b.validate(b.Tokens.Rows()); err != nil {
		return err
	}
	if n := max(b.Len(), b.MaxRows()); n > math.MaxInt32 {
		return shapeErrorf("%d items, or rows of an item; at most %d are supported", n, math.MaxInt32)
	}
	return nil
}

// chunkMatrix returns the tokens of a chunk of an index as a matrix, whose rows are decoded
// as they are read: the vectors of [kernels.OracleDecode], rounded to float32. They are
// constants without a gradient; queries that are scored with them have one, so that they
// can be trained on the documents of an index.
func chunkMatrix(c *kernels.Codec, ch *kernels.Chunk) Matrix {
	return Matrix{Type: Compressed, Dim: c.Dim(), Codec: c, Chunk: ch}
}

// ChunkBatch returns the documents of a chunk as a batch.
func ChunkBatch(c *kernels.Codec, ch *kernels.Chunk) *Batch {
	offsets := make([]int, len(ch.Offsets))
	for i, o := range ch.Offsets {
		offsets[i] = int(o)
	}
	return Packed(chunkMatrix(c, ch), offsets)
}

// validateCompressed checks a matrix of type Compressed.
func (m *Matrix) validateCompressed() error {
	if m.Codec == nil || m.Chunk == nil {
		return shapeErrorf("compressed tokens without a codec and a chunk")
	}
	if err := m.Codec.Validate(); err != nil {
		return err
	}
	if m.Dim != m.Codec.Dim() {
		return shapeErrorf("compressed tokens of dimension %d with a codec of dimension %d", m.Dim, m.Codec.Dim())
	}
	if len(m.F32)+len(m.U16)+len(m.I8)+len(m.U8)+len(m.Scales)+len(m.Zeros) > 0 {
		return shapeErrorf("compressed tokens together with elements or scales")
	}
	return m.Chunk.Validate(m.Codec)
}

// decode writes the decoded rows lo to hi of a matrix of type Compressed.
func (m *Matrix) decode(dst []float32, lo, hi int) {
	c, ch := m.Codec, m.Chunk
	nbits, rowBytes := c.Codebook.Nbits, c.RowBytes()
	weights, mask := c.Codebook.Weights(), 1<<nbits-1
	for t := lo; t < hi; t++ {
		row := dst[(t-lo)*m.Dim : (t-lo+1)*m.Dim]
		code := int(ch.Code(t))
		c.Centroids.Rows(row, code, code+1)
		scale := float32(1)
		if c.CentroidScale != nil {
			scale = c.CentroidScale[code]
		}
		factor := c.Factor(ch.Factor(t))
		residual := ch.Residuals[t*rowBytes : (t+1)*rowBytes]
		for j := range row {
			w := scale * weights[int(residual[j*nbits/8])>>(j*nbits%8)&mask]
			if c.DimScale != nil {
				w *= c.DimScale[j]
			}
			row[j] = factor * (row[j] + w)
		}
	}
}

// sliceChunk returns the tokens lo to hi of a chunk as a chunk of one document.
func sliceChunk(c *kernels.Codec, ch *kernels.Chunk, lo, hi int) *kernels.Chunk {
	rowBytes := c.RowBytes()
	return &kernels.Chunk{
		Offsets:   []uint32{0, uint32(hi - lo)},
		CodeBytes: ch.CodeBytes,
		Codes:     ch.Codes[lo*ch.CodeBytes : hi*ch.CodeBytes],
		Residuals: ch.Residuals[lo*rowBytes : hi*rowBytes],
		Factors:   ch.Factors[2*lo : 2*hi],
	}
}
