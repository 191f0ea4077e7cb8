package cpu

import (
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/internal/portable"
)

// A path is one way to find the largest products of query tokens with the
// decoded tokens of documents.
type path interface {
	// sizes returns how many query tokens one group has and how many tokens of
	// documents one call takes.
	sizes() (group, call int)
	// begin forgets the products of so many documents with a group of query
	// tokens; raise then looks at more tokens, a range for each document.
	begin(docs, group int)
	raise(ranges [][2]uint32, c *kernels.Chunk)
	// largest writes the largest products of a document with the group, in units
	// of the path.
	largest(dst []float64, doc int)
	// add adds them to a sum, those of the group from query token first on. It goes one
	// by one, so that the sum does not depend on the sizes of groups.
	add(sum float64, values []float64, first int) float64
	// unit is what makes a score of the sum over all query tokens.
	unit() float64
	// end drops the references to query and chunk.
	end()
}

// paths has the state of each path.
type paths struct {
	fast      fastPath
	fine      finePath
	levels    levelsPath
	fineTiles fineTilesPath
	tiles     tilesPath
	float     floatPath
}

// way is how a level is computed.
type way int

const (
	byFloat way = iota
	byLevels
	byLevelTables // of level Fine where levels are uniform: the sums of byLevels
	byFineTables
	byTiles
	byFastTables
)

// way chooses how a level is computed. For level Fine it chooses among ways that
// give the same bits.
func (q *query) way(level kernels.Level) way {
	switch {
	case q.byLevels(level):
		return byLevels
	case level == kernels.Fine && q.tabled(fineGroup):
		if q.s.codec.Codebook.Uniform() {
			return byLevelTables
		}
		return byFineTables
	case level != kernels.Fine && q.s.tiles != nil:
		return byTiles
	case level != kernels.Fine && q.tabled(fastGroup):
		return byFastTables
	}
	return byFloat
}

// path prepares the way of a level.
func (q *query) path(sc *scratch, level kernels.Level) path {
	if q.screen.on && !q.coarse() {
		level = kernels.Fine // has all that there is of S
	}
	switch q.way(level) {
	case byLevels:
		if level == kernels.Fine && q.byFineTiles() {
			q.ensure(builtFine, (*query).buildFineTiles)
			sc.paths.fineTiles = fineTilesPath{floatUnits: floatUnits{q}, sc: sc}
			return &sc.paths.fineTiles
		}
		q.ensure(builtLevels+int(level), func(q *query) { q.buildLevels(level) })
		sc.paths.levels = levelsPath{floatUnits: floatUnits{q}, sc: sc, level: level}
		return &sc.paths.levels
	case byLevelTables, byFineTables:
		q.ensure(builtFine, (*query).buildFine)
		sc.paths.fine = finePath{floatUnits: floatUnits{q}, sc: sc}
		return &sc.paths.fine
	case byTiles:
		q.ensure(builtTiles, (*query).buildTiles)
		q.ensure(builtWords, (*query).buildWords)
		sc.paths.tiles = tilesPath{q: q, sc: sc}
		return &sc.paths.tiles
	case byFastTables:
		q.ensure(builtFast, (*query).buildFast)
		q.ensure(builtWords, (*query).buildWords)
		sc.paths.fast = fastPath{q: q, sc: sc}
		return &sc.paths.fast
	}
	sc.paths.float = floatPath{floatUnits: floatUnits{q}, sc: sc, words: level == kernels.Fast && q.coarse()}
	return &sc.paths.float
}

// MaxSim implements [kernels.Query].
func (q *query) MaxSim(dst []float32, c *kernels.Chunk, docs []uint32, level kernels.Level) {
	sc := q.s.scratch.Get().(*scratch)
	p := q.path(sc, level)
	sc.score(dst[:count(c, docs)], p, q.N, c, docs)
	p.end()
	q.s.scratch.Put(sc)
}

// score writes the scores of documents for a query of n tokens.
func (sc *scratch) score(dst []float32, p path, n int, c *kernels.Chunk, docs []uint32) {
	group, call := p.sizes()
	sc.values = resize(sc.values, group)
	for i := 0; i < len(dst); {
		ranges := sc.batch(c, docs, i, len(dst), call)
		sums := sc.sums[:len(ranges)]
		clear(sums)
		for first := 0; first < n; first += group {
			sc.raise(p, first/group, ranges, call, c)
			values := sc.values[:min(group, n-first)]
			for j := range sums {
				p.largest(values, j)
				sums[j] = p.add(sums[j], values, first)
			}
		}
		unit := p.unit()
		for j, r := range ranges {
			dst[i+j] = 0
			if r[0] < r[1] {
				dst[i+j] = float32(sums[j] * unit)
			}
		}
		i += len(ranges)
	}
}

// raise finds the largest products of a batch with a group of query tokens.
func (sc *scratch) raise(p path, group int, ranges [][2]uint32, call int, c *kernels.Chunk) {
	p.begin(len(ranges), group)
	for j := 0; ; j++ {
		part := sc.part(ranges, j, call)
		if part == nil {
			return
		}
		p.raise(part, c)
	}
}

// Maxima implements [kernels.Query].
func (q *query) Maxima(dst []float64, c *kernels.Chunk, lo, hi int, level kernels.Level) {
	sc := q.s.scratch.Get().(*scratch)
	p := q.path(sc, level)
	group, call := p.sizes()
	ranges := append(sc.ranges[:0], [2]uint32{uint32(lo), uint32(hi)})
	for first := 0; first < q.N; first += group {
		sc.raise(p, first/group, ranges, call, c)
		p.largest(dst[first:min(first+group, q.N)], 0)
	}
	p.end()
	q.s.scratch.Put(sc)
}

// Total implements [kernels.Query].
func (q *query) Total(maxima []float64, level kernels.Level) float32 {
	sc := q.s.scratch.Get().(*scratch)
	p := q.path(sc, level)
	group, _ := p.sizes()
	var sum float64
	for first := 0; first < q.N; first += group {
		sum = p.add(sum, maxima[first:min(first+group, q.N)], first)
	}
	sum *= p.unit()
	p.end()
	q.s.scratch.Put(sc)
	return float32(sum)
}

// fastPath computes with integers throughout: sums of 16 bits, products with
// the factor of 31 bits, whose maxima are exact.
type fastPath struct {
	q  *query
	sc *scratch
	g  int
}

func (p *fastPath) sizes() (group, call int) { return fastGroup, callSize(p.q.s.rowBytes) }

func (p *fastPath) begin(docs, group int) {
	p.g = group
	for j := range docs {
		p.sc.fast[j] = noProducts
	}
}

func (p *fastPath) raise(ranges [][2]uint32, c *kernels.Chunk) {
	s, f, g := p.q.s, &p.q.fast, p.g
	k := s.codec.Centroids.K
	s.loops.MaxFast(p.sc.fast[:len(ranges)], ranges, f.tables[g*s.rowBytes:(g+1)*s.rowBytes], p.q.words.rows[g*k:(g+1)*k],
		c.Codes, c.CodeBytes, c.Residuals, c.Factors, s.scale16)
}

func (p *fastPath) largest(dst []float64, doc int) {
	best := &p.sc.fast[doc]
	for i := range dst {
		dst[i] = float64(best[i&1*16+i>>1&15])
	}
}

func (p *fastPath) add(sum float64, values []float64, first int) float64 {
	q := p.q
	for i, v := range values {
		sum += float64(float64(q.weights[first+i]) * q.ranges[first+i].fast * v)
	}
	return sum
}

func (p *fastPath) unit() float64 { return p.q.s.factorUnit() }

func (p *fastPath) end() { *p = fastPath{} }

// noProducts is what tier.Tokens.MaxFast starts with: no larger than any products.
var noProducts = func() (p [fastGroup]int32) {
	for i := range p {
		p[i] = -1 << 30
	}
	return p
}()

// finePath sums the residual part in 32 bits and does the rest in float32.
type finePath struct {
	floatUnits
	sc   *scratch
	g, n int
}

func (p *finePath) sizes() (group, call int) { return fineGroup, callSize(p.q.s.rowBytes) }

func (p *finePath) begin(docs, group int) {
	p.g, p.n = group, min(fineGroup, p.q.N-group*fineGroup)
	for j := range docs {
		p.sc.fine[j] = [fineGroup]float32(noLevels[:])
	}
}

func (p *finePath) raise(ranges [][2]uint32, c *kernels.Chunk) {
	q, s, f, g := p.q, p.q.s, &p.q.fine, p.g
	s.loops.MaxFine(p.sc.fine[:len(ranges)], ranges, f.tables[g*s.rowBytes:(g+1)*s.rowBytes], q.scores[g*fineGroup:],
		c.Codes, c.CodeBytes, c.Residuals, c.Factors, s.codec.CentroidScale,
		q.Stride, p.n, &f.mid[g], &f.unit[g])
}

func (p *finePath) largest(dst []float64, doc int) { widen(dst, p.sc.fine[doc][:]) }

func (p *finePath) end() { *p = finePath{} }

// levelsPath does by dot products what finePath does by tables; at level Fast
// with shorter integers.
type levelsPath struct {
	floatUnits
	sc    *scratch
	level kernels.Level
	g, n  int
}

func (p *levelsPath) sizes() (group, call int) {
	return levelGroup, callSize(max(p.q.s.rowBytes, p.q.s.dim/4))
}

func (p *levelsPath) begin(docs, group int) {
	p.g, p.n = group, min(levelGroup, p.q.N-group*levelGroup)
	for j := range docs {
		p.sc.wide[j] = noLevels
	}
}

func (p *levelsPath) raise(ranges [][2]uint32, c *kernels.Chunk) {
	q, s, l, g := p.q, p.q.s, &p.q.levels[p.level], p.g
	nbits, size := s.codec.Codebook.Nbits, len(l.bytes)/len(l.unit)
	p.sc.levels = resize(p.sc.levels, 8/nbits*(4*s.rowBytes+64))
	var words []row
	if p.level == kernels.Fast && q.coarse() {
		k := s.codec.Centroids.K
		words = q.words.rows[g*k : (g+1)*k]
	}
	s.loops.MaxLevels(p.sc.wide[:len(ranges)], ranges, l.bytes[g*size:(g+1)*size], p.sc.levels, nbits, levelParts(p.level), q.scores[g*levelGroup:],
		c.Codes, c.CodeBytes, s.rowBytes, c.Residuals, c.Factors, s.codec.CentroidScale,
		q.Stride, p.n, &l.mid[g], &l.unit[g], words, &l.words[g])
}

func (p *levelsPath) largest(dst []float64, doc int) { widen(dst, p.sc.wide[doc][:]) }

func (p *levelsPath) end() { *p = levelsPath{} }

func widen(dst []float64, src []float32) {
	for i := range dst {
		dst[i] = float64(src[i])
	}
}

// floatUnits is what paths have in common whose products are such, but for the factors,
// which are still in stored units.
type floatUnits struct{ q *query }

func (p *floatUnits) add(sum float64, values []float64, first int) float64 {
	for i, v := range values {
		sum += float64(float64(p.q.weights[first+i]) * v)
	}
	return sum
}

func (p *floatUnits) unit() float64 { return p.q.s.factorUnit() }

// factorUnit is the unit of the factors that are stored.
func (s *scorer) factorUnit() float64 { return float64(s.codec.FactorMax) / 32767 }

// floatPath decodes each token and multiplies: for codecs and queries whose
// tables would be too large. All query tokens are one group.
type floatPath struct {
	floatUnits
	sc    *scratch
	words bool // in place of S
}

// The products of all documents of a call are kept.
func (p *floatPath) sizes() (group, call int) { return p.q.N, max(1<<17/p.q.N, 1) }

func (p *floatPath) begin(docs, _ int) {
	p.sc.hi = resize(p.sc.hi, docs*p.q.N)
	for i := range p.sc.hi {
		p.sc.hi[i] = noLevels[0]
	}
}

func (p *floatPath) raise(ranges [][2]uint32, c *kernels.Chunk) {
	q, s, sc := p.q, p.q.s, p.sc
	sc.floats, sc.lo = resize(sc.floats, s.dim), resize(sc.lo, q.N)
	products := sc.lo
	for i, r := range ranges {
		best := sc.hi[i*q.N : (i+1)*q.N]
		for t := int(r[0]); t < int(r[1]); t++ {
			s.unpack(sc.floats, c.Residuals[t*s.rowBytes:(t+1)*s.rowBytes])
			portable.DotsOne(products, sc.floats, q.Vectors)
			code, a := int(c.Code(t)), float32(1)
			if s.codec.CentroidScale != nil {
				a = s.codec.CentroidScale[code]
			}
			factor := float32(c.Factor(t))
			scores := q.scores[code*q.Stride:]
			if p.words {
				scores = p.row(code)
			}
			for j, r := range products {
				if v := float32(factor * (scores[j] + float32(a*r))); v > best[j] {
					best[j] = v
				}
			}
		}
	}
}

// row computes a row of S from its words.
func (p *floatPath) row(code int) []float32 {
	q, sc := p.q, p.sc
	w, k := &q.words, q.s.codec.Centroids.K
	sc.rows = resize(sc.rows, q.N)
	for i := range sc.rows {
		word := uint16(w.rows[i/fastGroup*k+code][i%fastGroup/4] >> (i % 4 * 16))
		sc.rows[i] = float32(int32(word)-32768) * float32(q.wordUnit(i))
	}
	return sc.rows
}

func (p *floatPath) largest(dst []float64, doc int) {
	widen(dst, p.sc.hi[doc*p.q.N:(doc+1)*p.q.N])
}

func (p *floatPath) end() { *p = floatPath{} }

// unpack writes g ⊙ w[b] of a packed residual.
func (s *scorer) unpack(dst []float32, residual []byte) {
	nbits := s.codec.Codebook.Nbits
	mask := byte(1<<nbits - 1)
	per := 8 / nbits
	for p, b := range residual {
		out := dst[p*per : min((p+1)*per, len(dst))]
		for j := range out {
			out[j] = s.weights[b&mask]
			b >>= nbits
		}
	}
	for j, g := range s.codec.DimScale {
		dst[j] *= g
	}
}
