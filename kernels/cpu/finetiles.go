package cpu

import (
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/internal/tiles"
)

// Level Fine by matrix products of bytes: the sums of levelsPath, and with them
// the same bits, 16 tokens and 32 query tokens at a time.

// fineTiles is what level Fine needs of a query on a tier with tiles.
type fineTiles struct {
	tiles     []byte // [groups of 32, blocks of 64 fields, 4096]
	unit, mid [][levelGroup]float32
}

// byFineTiles reports whether level Fine is done by tier.Tokens.FineTiles.
func (q *query) byFineTiles() bool {
	return q.s.fineLayout != nil && q.byLevels(kernels.Fine)
}

// newFineLayout returns nil where level Fine does without tiles.
func newFineLayout(s *scorer) *tiles.Layout {
	layout, ok := tiles.NewLayout(s.dim, s.codec.Codebook.Nbits)
	if s.loops.FineTiles == nil || !ok {
		return nil
	}
	return &layout
}

func (q *query) buildFineTiles() {
	s, f := q.s, &q.fineTile
	groups, size := (q.N+levelGroup-1)/levelGroup, s.fineLayout.Blocks()*tiles.Bytes
	f.tiles = resize(f.tiles, groups*size)
	clear(f.tiles)
	f.unit, f.mid = resize(f.unit, groups), resize(f.mid, groups)
	clear(f.unit)
	clear(f.mid)
	for i := range q.N {
		if q.over(i) {
			return
		}
		g, lane := i/levelGroup, i%levelGroup
		f.unit[g][lane], f.mid[g][lane] = q.levelUnits(i, kernels.Fine)
		group, u := f.tiles[g*size:(g+1)*size], q.ranges[i].unit[kernels.Fine]
		for b := range s.fineLayout.Blocks() {
			for m := range 64 {
				j := s.fineLayout.Field(b, m)
				if j < 0 {
					continue
				}
				v := integer(q.scaled(i, j), u)
				at := tiles.At(b, lane/16, lane%16, m)
				group[at], group[at+tiles.Low] = byte((v+128)>>8), byte(v)
			}
		}
	}
}

// fineTilesPath does by matrix products what levelsPath does by dot products, at
// level Fine.
type fineTilesPath struct {
	floatUnits
	sc *scratch
	g  int
}

func (p *fineTilesPath) sizes() (group, call int) {
	return levelGroup, tileTokens / max(p.q.s.fineLayout.Blocks(), 2)
}

func (p *fineTilesPath) begin(docs, group int) {
	if p.sc.fineTiles == nil {
		p.sc.fineTiles = tiles.NewFine(*p.q.s.fineLayout, callDocs)
	}
	p.g = group
	for j := range docs {
		p.sc.fineTiles.Maxima[j] = noLevels
	}
}

func (p *fineTilesPath) raise(ranges [][2]uint32, ch *kernels.Chunk) {
	q, s, f, g, c := p.q, p.q.s, &p.q.fineTile, p.g, p.sc.fineTiles
	size := s.fineLayout.Blocks() * tiles.Bytes
	c.Codes, c.CodeBytes, c.Residuals, c.Factors = ch.Codes, ch.CodeBytes, ch.Residuals, ch.Factors
	c.Tiles, c.Mid, c.Unit = f.tiles[g*size:(g+1)*size], &f.mid[g], &f.unit[g]
	c.Rows, c.Stride, c.N, c.RowScales = q.scores[g*levelGroup:], q.Stride, min(levelGroup, q.N-g*levelGroup), s.codec.CentroidScale
	c.StartPlan()
	for doc, t := range ranges {
		c.Plan(doc, int(t[0]), int(t[1]))
	}
	if c.EndPlan(len(ranges)) {
		s.loops.FineTiles(c)
	}
}

func (p *fineTilesPath) largest(dst []float64, doc int) { widen(dst, p.sc.fineTiles.Maxima[doc][:]) }

func (p *fineTilesPath) end() {
	if p.sc.fineTiles != nil {
		p.sc.fineTiles.Release()
	}
	*p = fineTilesPath{}
}
