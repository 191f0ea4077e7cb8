package maxsim

import (
	"github.com/plaid-ir/plaid/kernels"
)

// fromChunk makes a matrix of the tokens of a chunk of an index, which are decoded as
// they are read: what [kernels.OracleDecode] gives, rounded to float32. They are
// constants, so that there is no gradient by them, and there is one by what is
// multiplied with them: queries that are trained on the documents of an index.
func fromChunk(c *kernels.Codec, ch *kernels.Chunk) Matrix {
	return Matrix{Type: Compressed, Dim: c.Dim(), Codec: c, Chunk: ch}
}

// ChunkBatch makes a batch of the documents of a chunk.
func ChunkBatch(c *kernels.Codec, ch *kernels.Chunk) *Batch {
	offsets := make([]int, len(ch.Offsets))
	for i, o := range ch.Offsets {
		offsets[i] = int(o)
	}
	return Packed(fromChunk(c, ch), offsets)
}

func (m *Matrix) validateCompressed() error {
	if m.Codec == nil || m.Chunk == nil {
		return faultf("compressed tokens without a codec and a chunk")
	}
	if err := m.Codec.Validate(); err != nil {
		return err
	}
	if m.Dim != m.Codec.Dim() {
		return faultf("dimension %d of tokens that a codec of dimension %d made", m.Dim, m.Codec.Dim())
	}
	if len(m.F32)+len(m.U16)+len(m.I8)+len(m.U8)+len(m.Scales)+len(m.Zeros) > 0 {
		return faultf("elements or scales beside compressed tokens")
	}
	return m.Chunk.Validate(m.Codec)
}

// decode writes the rows lo to hi.
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

// sliceChunk is the tokens lo to hi of a chunk.
func sliceChunk(c *kernels.Codec, ch *kernels.Chunk, lo, hi int) *kernels.Chunk {
	rowBytes := c.RowBytes()
	return &kernels.Chunk{
		Offsets: []uint32{0, uint32(hi - lo)}, CodeBytes: ch.CodeBytes, Codes: ch.Codes[lo*ch.CodeBytes : hi*ch.CodeBytes],
		Residuals: ch.Residuals[lo*rowBytes : hi*rowBytes], Factors: ch.Factors[2*lo : 2*hi],
	}
}
