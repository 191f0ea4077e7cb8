package cpu

import (
	"slices"

	"github.com/plaid-ir/plaid/kernels/internal/tier"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// width is the number of columns of a panel.
const width = 32

// panels has the tokens of queries as columns, [panels, dim, 32]. A panel is 32 columns.
type panels struct {
	dim   int
	data  []float32
	spans []span  // of each query
	rows  []int32 // of each column the row of its token, counted from the first row of its query; −1 for none
	// weights has the weight of each column; empty means that all are 1.
	weights []float32
	row     []float32 // scratch: the vector of a column
	screen  screenPanels
}

// span is a range of columns or of panels.
type span struct{ lo, hi int }

// reset lays out the queries of a batch. With together all queries are scored with the same
// documents and share panels; otherwise each query begins a new panel. If loops is not nil,
// columns are also rounded for screening.
func (p *panels) reset(t *tier.Tier, b *maxsim.Batch, terms *maxsim.Terms, together bool, loops *tier.Screen) {
	// 1. The rows of the columns.
	m := &b.Tokens
	p.dim = m.Dim
	p.spans, p.rows = p.spans[:0], slices.Grow(p.rows[:0], m.Rows())
	for q := range b.Len() {
		for !together && len(p.rows)%width != 0 {
			p.rows = append(p.rows, -1)
		}
		s := span{lo: len(p.rows)}
		lo, hi := b.Span(q)
		for r := lo; r < hi; r++ {
			if b.IsToken(r) {
				p.rows = append(p.rows, int32(r-lo))
			}
		}
		s.hi = len(p.rows)
		p.spans = append(p.spans, s)
	}
	// 2. Their values, normalized or scaled, and their weights.
	p.data = resize(p.data, (len(p.rows)+width-1)/width*width*p.dim)
	clear(p.data)
	p.screen.reset(loops, p.panelCount(), p.dim)
	p.weights = p.weights[:0]
	if terms.Weights != nil {
		p.weights = resize(p.weights, len(p.rows))
	}
	p.row = resize(p.row, p.dim)
	for q, s := range p.spans {
		first, _ := b.Span(q)
		for c := s.lo; c < s.hi; c++ {
			r := first + int(p.rows[c])
			widenRows(t, m, p.row, r, r+1)
			switch scale := m.Scale(r); {
			case terms.Normalize:
				normalizeInto(p.row, p.row, sign(scale))
			case m.Scales != nil:
				for j, v := range p.row {
					p.row[j] = v * scale
				}
			}
			column := p.data[c/width*width*p.dim+c%width:]
			for j, v := range p.row {
				column[width*j] = v
			}
			if loops != nil {
				p.screen.setColumn(c, p.row)
			}
			if terms.Weights != nil {
				p.weights[c] = terms.Weights[r]
			}
		}
	}
}

// panelCount returns the number of panels.
func (p *panels) panelCount() int { return (len(p.rows) + width - 1) / width }

// panelData returns panel i, [dim, 32], and the number of columns that it uses.
func (p *panels) panelData(i int) (data []float32, n int) {
	return p.data[i*width*p.dim : (i+1)*width*p.dim], min(width, len(p.rows)-i*width)
}
