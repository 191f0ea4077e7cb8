package cpu

import (
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/internal/tiles"
)

// Level Fine by matrix products of bytes: 16 tokens and 32 query tokens at a time. The sums
// are those of levelsPath, and so are the bits of the scores.

// fineTiles is the query in the form of level Fine by tiles.
type fineTiles struct {
	tiles     []byte                // [groups of 32, blocks of 64 fields, 4096]
	unit, mid [][levelGroup]float32 // ⟨g ⊙ q, w⟩ = mid + unit·sum
}

// usesFineTiles reports whether MaxSim at level Fine uses tier.Tokens.FineTiles.
func (q *query) usesFineTiles() bool {
	return q.scorer.fineLayout != nil && q.usesLevels(kernels.Fine)
}

// newFineLayout returns nil if level Fine does not use tiles: if the tier has none, or a
// residual has fewer than 64 fields.
func newFineLayout(s *scorer) *tiles.Layout {
	layout, ok := tiles.NewLayout(s.dim, s.codec.Codebook.Nbits)
	if s.loops.FineTiles == nil || !ok {
		return nil
	}
	return &layout
}

// buildFineTiles writes the integers of level Fine into tiles.
func (q *query) buildFineTiles() {
	s, f := q.scorer, &q.fineTiles
	groups, size := (q.N+levelGroup-1)/levelGroup, s.fineLayout.Blocks()*tiles.BlockBytes
	f.tiles = resize(f.tiles, groups*size)
	clear(f.tiles)
	f.unit, f.mid = resize(f.unit, groups), resize(f.mid, groups)
	clear(f.unit)
	clear(f.mid)
	for i := range q.N {
		if q.endedAt(i) {
			return
		}
		g, lane := i/levelGroup, i%levelGroup
		f.unit[g][lane], f.mid[g][lane] = q.levelUnits(i, kernels.Fine)
		group, u := f.tiles[g*size:(g+1)*size], q.ranges[i].levelUnits[kernels.Fine]
		for b := range s.fineLayout.Blocks() {
			for m := range 64 {
				j := s.fineLayout.Dimension(b, m)
				if j < 0 {
					continue
				}
				v := roundToUnits(q.scaledComponent(i, j), u)
				offset := tiles.ByteOffset(b, lane/16, lane%16, m)
				group[offset], group[offset+tiles.LowDistance] = byte((v+128)>>8), byte(v)
			}
		}
	}
}

// fineTilesPath computes the sums of levelsPath at level Fine by matrix products.
type fineTilesPath struct {
	floatUnits
	sc    *scratch
	group int
}

func (p *fineTilesPath) groupAndCallSize() (group, call int) {
	return levelGroup, maxCallTileTokens / max(p.q.scorer.fineLayout.Blocks(), 2)
}

func (p *fineTilesPath) startGroup(docs, group int) {
	if p.sc.fineTilesCall == nil {
		p.sc.fineTilesCall = tiles.NewFine(*p.q.scorer.fineLayout, callDocs)
	}
	p.group = group
	for j := range docs {
		p.sc.fineTilesCall.Maxima[j] = lowestFloats
	}
}

func (p *fineTilesPath) raiseMaxima(ranges [][2]uint32, ch *kernels.Chunk) {
	q, s, f, g, c := p.q, p.q.scorer, &p.q.fineTiles, p.group, p.sc.fineTilesCall
	size := s.fineLayout.Blocks() * tiles.BlockBytes
	c.Codes, c.CodeBytes, c.Residuals, c.Factors = ch.Codes, ch.CodeBytes, ch.Residuals, ch.Factors
	c.Tiles, c.Mid, c.Unit = f.tiles[g*size:(g+1)*size], &f.mid[g], &f.unit[g]
	c.Rows, c.Stride, c.RowScales = q.scores[g*levelGroup:], q.Stride, s.codec.CentroidScale
	c.N = min(levelGroup, q.N-g*levelGroup)
	c.StartPlan()
	for doc, t := range ranges {
		c.PlanTokens(doc, int(t[0]), int(t[1]))
	}
	if c.EndPlan(len(ranges)) {
		s.loops.FineTiles(c)
	}
}

func (p *fineTilesPath) copyMaxima(dst []float64, doc int) {
	toFloat64(dst, p.sc.fineTilesCall.Maxima[doc][:])
}

func (p *fineTilesPath) dropReferences() {
	if p.sc.fineTilesCall != nil {
		p.sc.fineTilesCall.Release()
	}
	*p = fineTilesPath{}
}
