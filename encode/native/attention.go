package native

import (
	"math"

	"github.com/plaid-ir/plaid/kernels/transformer"
)

// queryRows is how many tokens of a text attend together: their scores, and a
// panel of keys or all values, should stay in L1. The first key that such a block attends to,
// in local attention, is rounded down to a multiple of keyStep. This is a multiple of
// the columns of any panel, so that the order of sums does not depend on the tier.
const (
	queryRows = 32
	keyStep   = 48
)

var (
	zeros    [64]float32 // the bias of products without one
	minusInf = float32(math.Inf(-1))
)

// attention computes, for each text and head, softmax(Q·Kᵀ·scale + relative)·V. Products of a
// text are computed in tiles of rows. The last tile may write rows of the next text, which are
// computed later, or rows beyond the last one. Keys and values are packed once for all heads of
// queries that share them.
func (m *Model) attention(sc *scratch, y *layer) {
	c := &m.config
	d, ld, ldContext := c.HeadSize, stride(m.qkvWidth), stride(m.contextWidth)
	// The columns in rows of qkv at which keys and values begin, behind the queries.
	keyOffset, valueOffset := c.Heads*d, (c.Heads+c.KeyHeads)*d
	group := c.Heads / c.KeyHeads
	for _, t := range sc.texts {
		rows := sc.qkv[t.first*ld:]
		m.normHeads(rows, t.n, c.Heads, y.queryNorm)
		m.normHeads(rows[keyOffset:], t.n, c.KeyHeads, y.keyNorm)
		if a := y.angles; a != nil {
			m.loops.rotate(rows, ld, t.n, c.Heads+c.KeyHeads, a.Half, a.Cos, a.Sin)
		}
		for head := range c.Heads {
			if shared := head / group; head%group == 0 {
				m.packKeys(sc, rows[keyOffset+shared*d:], ld, t.attended, d)
				m.packValues(sc, rows[valueOffset+shared*d:], ld, t.attended, d)
			}
			for first := 0; first < t.n; first += queryRows {
				b := block{t, head, first, min(queryRows, t.n-first)}
				m.attend(sc, b, rows[head*d:], sc.context[t.first*ldContext+head*d:], &y.form)
			}
		}
	}
}

// normHeads normalizes each head of n rows, unless the model has no such norm.
func (m *Model) normHeads(rows []float32, n, heads int, norm Norm) {
	for head := range heads {
		if norm.Gamma == nil {
			return
		}
		x := rows[head*m.config.HeadSize:]
		m.normRows(x, x, stride(m.qkvWidth), n, norm)
	}
}

// block is a range of rows of a head of a text: rows of them, from the row from on.
type block struct {
	text
	head, from, rows int
}

// panelWidth returns the number of columns of a full panel.
func (l *loops) panelWidth() int { return l.columns * l.vectors }

// packKeys transposes the keys of a head into panels, padded with zeros to a multiple of 16.
func (m *Model) packKeys(sc *scratch, k []float32, ld, n, d int) {
	padded := roundUp(n, 16)
	sc.keys = resize(sc.keys, padded*d)
	for j := 0; j < padded; {
		width := min(m.loops.panelWidth(), padded-j)
		panel := sc.keys[j*d:][:width*d]
		for c := range width {
			if j+c >= n {
				for i := range d {
					panel[i*width+c] = 0
				}
				continue
			}
			for i, v := range k[(j+c)*ld:][:d] {
				panel[i*width+c] = v
			}
		}
		j += width
	}
}

// packValues copies the values of a head into panels of their columns, padded with zeros to a
// multiple of 16.
func (m *Model) packValues(sc *scratch, v []float32, ld, n, d int) {
	padded := roundUp(n, 16)
	sc.values = resize(sc.values, padded*d)
	visitPanels(d, m.loops.columns, m.loops.vectors, func(first, vectors int) {
		width := vectors * m.loops.columns
		panel := sc.values[first*padded:][:width*padded]
		for j := range n {
			copy(panel[j*width:][:width], v[j*ld+first:])
		}
		clear(panel[n*width:])
	})
}

// attend computes a block of rows of a head. The window of a mask token may have no key, if the last
// attended token is too far before it: its row is 0.
func (m *Model) attend(sc *scratch, b block, q, out []float32, form *transformer.LayerForm) {
	l, d, qkv, ldContext := m.loops, m.config.HeadSize, stride(m.qkvWidth), stride(m.contextWidth)
	q, out = q[b.from*qkv:], out[b.from*ldContext:]
	// The range of keys that any row of the block attends to, and the number of rows, from the
	// first one on, that attend to any key.
	from, _ := form.AttendedRange(b.from, b.attended)
	_, to := form.AttendedRange(b.from+b.rows-1, b.attended)
	from = from / keyStep * keyStep
	attending := b.rows
	if form.Before != transformer.Unbounded {
		attending = min(b.rows, max(0, b.attended+form.Before-b.from))
	}
	if attending == 0 {
		for i := range b.rows {
			clear(out[i*ldContext:][:d])
		}
		return
	}
	// Multiply queries with keys.
	padded := roundUp(b.attended, 16)
	n := min(roundUp(to-from, 16), padded-from)
	ld, tiles := stride(min(roundUp(to-from, keyStep), padded-from)), roundUp(b.rows, tileRows)
	sc.scores = resize(sc.scores, tiles*ld)
	scores := sc.scores
	for j := 0; j < n; {
		width := min(l.panelWidth(), padded-from-j)
		l.products(scores[j:], ld, q, qkv, tiles, d, sc.keys[(from+j)*d:], zeros[:], width/l.columns)
		j += width
	}
	// Mask the keys outside of each row's window, and add relative positions.
	for i := range attending {
		lo, hi := form.AttendedRange(b.from+i, b.attended)
		row := scores[i*ld:][:n]
		for j := range lo - from {
			row[j] = minusInf
		}
		for j := hi - from; j < n; j++ {
			row[j] = minusInf
		}
		if m.relative != nil {
			// A head has 2·longest − 1 distances: that of key j from row i is at longest − 1 + j − i.
			longest := m.config.MaxPositions
			distances := m.relative[b.head*(2*longest-1)+longest-1+lo-b.from-i:]
			row = row[lo-from : hi-from]
			for j, v := range distances[:len(row)] {
				row[j] += v
			}
		}
	}
	// Multiply the probabilities with values. Rows without keys are 0.
	l.softmax(scores, ld, attending, n, m.config.Scale())
	for i := attending; i < b.rows; i++ {
		clear(scores[i*ld:][:n])
	}
	visitPanels(d, l.columns, l.vectors, func(column, vectors int) {
		w := vectors * l.columns
		l.products(out[column:], ldContext, scores, ld, tiles, n, sc.values[column*padded+from*w:], zeros[:], vectors)
	})
}
