package native

import (
	"math"

	"github.com/plaid-ir/plaid/kernels/transformer"
)

// queryRows is how many tokens of a text attend together: their scores, and a
// panel of keys or all values, should stay in L1. keyStep is what the first key
// that such a block looks at is a multiple of, in the window of local attention: a multiple of
// the columns of any panel, so that the order of sums does not depend on the tier.
const (
	queryRows = 32
	keyStep   = 48
)

var (
	zeros    [64]float32
	minusInf = float32(math.Inf(-1))
)

// attention computes, for each text and head, softmax(Q·Kᵀ/√d)·V. Products of a
// text are computed in tiles of rows, of which the last may reach into the next
// text, whose own come afterwards, or beyond the last row.
func (m *Model) attention(sc *scratch, y *layer) {
	h, d := m.config.Hidden, m.config.Hidden/m.config.Heads
	ld := stride(3 * h)
	for _, t := range sc.texts {
		rows := sc.qkv[t.first*ld:]
		if y.angles != nil {
			a := y.angles
			m.loops.rotate(rows, ld, t.n, 2*m.config.Heads, a.Half, a.Cos, a.Sin) // queries and keys
		}
		for head := range m.config.Heads {
			m.packKeys(sc, rows[h+head*d:], ld, t.attended, d)
			m.packValues(sc, rows[2*h+head*d:], ld, t.attended, d)
			for first := 0; first < t.n; first += queryRows {
				m.attend(sc, t, first, min(queryRows, t.n-first), rows[head*d:], sc.context[t.first*stride(h)+head*d:], d, &y.form)
			}
		}
	}
}

// panelWidth is the number of columns of a full panel.
func (l *loops) panelWidth() int { return l.columns * l.vectors }

// packKeys transposes the keys of a head into panels, up to a multiple of 16
// with zeros.
func (m *Model) packKeys(sc *scratch, k []float32, ld, n, d int) {
	padded := roundUp(n, 16)
	sc.keys = grow(sc.keys, padded*d)
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

// packValues copies the values of a head into panels of their columns, up to a
// multiple of 16 with zeros.
func (m *Model) packValues(sc *scratch, v []float32, ld, n, d int) {
	padded := roundUp(n, 16)
	sc.values = grow(sc.values, padded*d)
	panels(d, m.loops.columns, m.loops.vectors, func(first, vectors int) {
		width := vectors * m.loops.columns
		panel := sc.values[first*padded:][:width*padded]
		for j := range n {
			copy(panel[j*width:][:width], v[j*ld+first:])
		}
		clear(panel[n*width:])
	})
}

// attend computes a block of rows of a head. Rows of a query's filling may be so far behind the
// last token that is attended to that their window has no key: attention gives them 0.
func (m *Model) attend(sc *scratch, t text, first, rows int, q, out []float32, d int, form *transformer.LayerForm) {
	l, h := m.loops, m.config.Hidden
	// The keys that any row of the block looks at, and how many rows, from the first one on,
	// look at one.
	from, _ := form.Sees(first, t.attended)
	_, to := form.Sees(first+rows-1, t.attended)
	from = from / keyStep * keyStep
	seeing := rows
	if form.Before != transformer.Unbounded {
		seeing = min(rows, max(0, t.attended+form.Before-first))
	}
	if seeing == 0 {
		for i := range rows {
			clear(out[(first+i)*stride(h):][:d])
		}
		return
	}
	padded := roundUp(t.attended, 16)
	n := min(roundUp(to-from, 16), padded-from)
	ld, tiles := stride(min(roundUp(to-from, keyStep), padded-from)), roundUp(rows, tileRows)
	sc.scores = grow(sc.scores, tiles*ld)
	scores, qkv := sc.scores, stride(3*h)
	for j := 0; j < n; {
		width := min(l.panelWidth(), padded-from-j)
		l.products(scores[j:], ld, q[first*qkv:], qkv, tiles, d, sc.keys[(from+j)*d:], zeros[:], width/l.columns)
		j += width
	}
	for i := range seeing {
		lo, hi := form.Sees(first+i, t.attended)
		lo, hi = lo-from, hi-from
		row := scores[i*ld:][:n]
		for j := range lo {
			row[j] = minusInf
		}
		for j := hi; j < n; j++ {
			row[j] = minusInf
		}
	}
	l.softmax(scores, ld, seeing, n, m.config.Scale())
	for i := seeing; i < rows; i++ {
		clear(scores[i*ld:][:n])
	}
	panels(d, l.columns, l.vectors, func(column, vectors int) {
		w := vectors * l.columns
		l.products(out[first*stride(h)+column:], stride(h), scores, ld, tiles, n, sc.values[column*padded+from*w:], zeros[:], vectors)
	})
}
