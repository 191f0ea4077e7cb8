package native

import (
	"context"
	"fmt"

	"github.com/plaid-ir/plaid/encode/engine"
	"github.com/plaid-ir/plaid/encode/native/internal/plain"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// scratch is the memory of one call of Encode.
type scratch struct {
	ids   []int32
	texts []text
	rows  int // tokens of the chunk

	// Rows of tokens: the residual stream, its norm (PreNorm); queries, keys
	// and values, or inputs of a convolution; and the outputs of these. Their strides come from stride.
	x, a, qkv, context []float32
	// Rows of a block: the feed-forward part, the values to be added to x, and the heads.
	wide, add, head, nextHead []float32
	// One head of attention.
	keys, values, scores []float32
	// Activations in bytes, and their scales.
	bytes  []byte
	scales []float32
}

// text is n tokens of a chunk from first on. Tokens attend to the first attended of them.
type text struct{ first, n, attended int }

// stride returns the distance of rows of n values. Rows a power of two apart would
// share few sets of the cache.
func stride(n int) int { return n + 16 }

// blockRows is the rows of a block: enough that panels of weights are read rarely, and few
// enough that the rows of the feed-forward part, which are read right after they are written, stay
// in the cache.
const blockRows = 12 * tileRows

// setTexts selects texts i to j of a batch, and makes room for them.
func (sc *scratch) setTexts(m *Model, b *engine.Batch, i, j int) {
	first := b.Offsets[i]
	sc.ids, sc.texts = b.IDs[first:b.Offsets[j]], sc.texts[:0]
	sc.rows = len(sc.ids)
	for ; i < j; i++ {
		if n := b.Offsets[i+1] - b.Offsets[i]; n > 0 {
			sc.texts = append(sc.texts, text{b.Offsets[i] - first, n, b.AttendedLength(i)})
		}
	}
	// Tiles of products reach beyond the last row, and by up to one more tile if a text does not
	// begin at a multiple of tileRows.
	rows, h := roundUp(sc.rows, tileRows)+tileRows, m.config.Hidden
	sc.x, sc.context = resize(sc.x, rows*stride(h)), resize(sc.context, rows*stride(m.contextWidth))
	sc.qkv = resize(sc.qkv, rows*stride(m.qkvWidth))
	if m.config.NormPlace != transformer.PostNorm {
		sc.a = resize(sc.a, rows*stride(h))
	}
	sc.wide, sc.add = resize(sc.wide, blockRows*stride(m.feedForwardWidth())), resize(sc.add, blockRows*stride(h))
}

// feedForwardWidth returns the width of the widest rows of the feed-forward part.
func (m *Model) feedForwardWidth() int {
	if m.config.Gated {
		return 2 * m.config.Intermediate
	}
	return m.config.Intermediate
}

// visitBlocks calls visit for each block of rows with its first row, the number of its rows, and
// that number rounded up to tiles.
func (m *Model) visitBlocks(sc *scratch, visit func(first, rows, padded int)) {
	for i := 0; i < sc.rows; i += blockRows {
		rows := min(blockRows, sc.rows-i)
		visit(i, rows, roundUp(rows, tileRows))
	}
}

// forward computes the layers for a chunk.
func (m *Model) forward(ctx context.Context, sc *scratch) error {
	h, l := m.config.Hidden, m.loops
	ldHidden, ldContext := stride(h), stride(m.contextWidth)
	ldQKV, ldWide := stride(m.qkvWidth), stride(m.feedForwardWidth())
	m.embedTokens(sc)
	in := sc.x // input of a layer: x itself, or its norm
	if m.config.NormPlace != transformer.PostNorm {
		in = sc.a
		if n := m.normBefore(0); n.Gamma != nil {
			m.normRows(sc.a, sc.x, ldHidden, sc.rows, n)
		} else {
			copy(sc.a, sc.x)
		}
	}
	for i := range m.layers {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("encoder: %w", context.Cause(ctx))
		}
		// Attention or convolution.
		y := &m.layers[i]
		m.visitBlocks(sc, func(first, _, padded int) {
			y.qkv.multiply(l, sc, sc.qkv[first*ldQKV:], ldQKV, in[first*ldHidden:], ldHidden, padded)
		})
		if y.convolution != nil {
			m.convolve(sc, y)
		} else {
			m.attention(sc, y)
		}
		// The feed-forward part, with the norms after it and before it.
		middle, last := y.feedForwardNorm, m.normBefore(i+1)
		if m.config.NormPlace == transformer.PostNorm {
			middle, last = y.attentionNorm, y.feedForwardNorm
		}
		m.visitBlocks(sc, func(first, rows, padded int) {
			x, a := sc.x[first*ldHidden:], in[first*ldHidden:]
			y.output.multiply(l, sc, sc.add, ldHidden, sc.context[first*ldContext:], ldContext, padded)
			m.addNormRows(a, x, sc.add, ldHidden, rows, y.attentionOutputNorm, middle)
			y.up.multiply(l, sc, sc.wide, ldWide, a, ldHidden, padded)
			l.activate(m.config.Activation, sc.wide, ldWide, rows, m.config.Intermediate)
			if m.config.Gated {
				l.gate(sc.wide, ldWide, rows, m.config.Intermediate)
			}
			y.down.multiply(l, sc, sc.add, ldHidden, sc.wide, ldWide, padded)
			m.addNormRows(a, x, sc.add, ldHidden, rows, y.feedForwardOutputNorm, last)
		})
	}
	return nil
}

// normRows writes the normalized rows of x to dst, which may be x.
func (m *Model) normRows(dst, x []float32, stride, rows int, n Norm) {
	f := m.loops.norm
	if m.config.Norm == transformer.RMSNorm {
		f = m.loops.rms
	}
	size := len(n.Gamma)
	f(dst, x, stride, rows, size, n.Gamma, n.Beta, m.config.Epsilon, 1/float32(size))
}

// addNormRows adds r to x, and writes the normalized sums to dst, which may be x. If inner is a norm, it is
// applied to r first.
func (m *Model) addNormRows(dst, x, r []float32, stride, rows int, inner, n Norm) {
	if inner.Gamma != nil {
		m.normRows(r, r, stride, rows, inner)
	}
	f := m.loops.addNorm
	if m.config.Norm == transformer.RMSNorm {
		f = m.loops.addRMS
	}
	size := len(n.Gamma)
	f(dst, x, r, stride, rows, size, n.Gamma, n.Beta, m.config.Epsilon, 1/float32(size))
}

// activate applies an activation to m rows of n values.
func (l *loops) activate(a Activation, x []float32, stride, m, n int) {
	switch a {
	case ReLU:
		l.relu(x, stride, m, n)
	case GELU:
		l.gelu(x, stride, m, n)
	case SiLU:
		l.swish(x, stride, m, n, 1, 0)
	case GELUTanh:
		l.swish(x, stride, m, n, plain.GELULinear, plain.GELUCubic)
	case Tanh:
		l.tanh(x, stride, m, n)
	}
}

// normBefore returns the norm of PreNorm before layer i, or the one after the last layer.
func (m *Model) normBefore(i int) Norm {
	if i < len(m.layers) {
		return m.layers[i].attentionNorm
	}
	return m.final
}

// embedTokens writes the embeddings of tokens to x: the sums of the embeddings of words, types and
// positions, in this order, normalized if the model has a norm, and projected to its size.
func (m *Model) embedTokens(sc *scratch) {
	e, h := m.config.EmbeddingSize(), m.config.Hidden
	out := sc.x
	if m.expand != nil {
		out = sc.context
	}
	s := stride(e)
	for _, t := range sc.texts {
		for i := range t.n {
			x := out[(t.first+i)*s:][:e]
			copy(x, m.words[int(sc.ids[t.first+i])*e:])
			if m.types != nil {
				for j, v := range m.types[:e] {
					x[j] += v
				}
			}
			if m.config.LearnedPositions {
				for j, v := range m.positions[(i+m.config.PositionOffset)*e:][:e] {
					x[j] += v
				}
			}
		}
	}
	if m.norm.Gamma != nil {
		m.normRows(out, out, s, sc.rows, m.norm)
	}
	if m.expand != nil {
		m.visitBlocks(sc, func(first, _, padded int) {
			m.expand.multiply(m.loops, sc, sc.x[first*stride(h):], stride(h), out[first*s:], s, padded)
		})
	}
}

// project applies the heads to a chunk and writes unit vectors. bad is the first token whose
// vector is not finite, or −1.
func (m *Model) project(sc *scratch, dst []float32) (bad int) {
	bad = -1
	s := stride(m.config.Hidden)
	out := sc.x
	if m.config.NormPlace != transformer.PostNorm {
		out = sc.a
	}
	m.visitBlocks(sc, func(first, rows, padded int) {
		x, ldx := out[first*s:], s
		for i := range m.heads {
			d := &m.heads[i]
			ldy := stride(d.weight.n)
			sc.nextHead = resize(sc.nextHead, padded*ldy)
			y := sc.nextHead
			d.weight.multiply(m.loops, sc, y, ldy, x, ldx, padded)
			m.loops.activate(d.Activation, y, ldy, rows, d.weight.n)
			if d.Residual {
				d.addResidual(m.loops, sc, y, ldy, x, ldx, rows, padded)
			}
			sc.head, sc.nextHead = y, sc.head
			x, ldx = y, ldy
		}
		for r := range rows {
			v := dst[(first+r)*m.dim:][:m.dim]
			copy(v, x[r*ldx:])
			if !normalize(v) && bad < 0 {
				bad = first + r
			}
		}
	})
	return bad
}

// addResidual adds the input x of a head, or its product with the residual weight, to the output y.
func (d *head) addResidual(l *loops, sc *scratch, y []float32, ldy int, x []float32, ldx, rows, padded int) {
	if d.residual != nil {
		r := resize(sc.add, padded*ldy)
		d.residual.multiply(l, sc, r, ldy, x, ldx, padded)
		sc.add, x, ldx = r, r, ldy
	}
	for i := range rows {
		row := y[i*ldy:][:d.Out]
		for j, v := range x[i*ldx:][:d.Out] {
			row[j] += v
		}
	}
}
