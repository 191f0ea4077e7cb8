package cpu

import (
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/internal/portable"
)

// A path is one way to find the largest products of query tokens with the
// decoded tokens of documents.
type maximaPath interface {
	// sizes returns how many query tokens one group has and how many tokens of
	// documents one call takes.
	groupAndCallSize() (group, call int)
	// begin forgets the products of so many documents with a group of query
	// tokens; raise then looks at more tokens, a range for each document.
	startGroup(docs, group int)
	raiseMaxima(ranges [][2]uint32, c *kernels.Chunk)
	// largest writes the largest products of a document with the group, in units
	// of the path.
	copyMaxima(dst []float64, doc int)
	// add adds them to a sum, those of the group from query token first on. It goes one
	// by one, so that the sum does not depend on the sizes of groups.
	addMaxima(sum float64, values []float64, first int) float64
	// unit is what makes a score of the sum over all query tokens.
	scoreUnit() float64
	// end drops the references to query and chunk.
	dropReferences()
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

// algorithm is how a level is computed.
type algorithm int

const (
	byFloat algorithm = iota
	byLevels
	byLevelTables // of level Fine where levels are uniform: the sums of byLevels
	byFineTables
	byTiles
	byFastTables
)

// algorithmFor chooses how a level is computed. For level Fine it chooses among ways that
// give the same bits.
func (q *query) algorithmFor(level kernels.Level) algorithm {
	switch {
	case q.usesLevels(level):
		return byLevels
	case level == kernels.Fine && q.usesTables(fineGroup):
		if q.scorer.codec.Codebook.Uniform() {
			return byLevelTables
		}
		return byFineTables
	case level != kernels.Fine && q.scorer.tiles != nil:
		return byTiles
	case level != kernels.Fine && q.usesTables(fastGroup):
		return byFastTables
	}
	return byFloat
}

// preparePath prepares the way of a level.
func (q *query) preparePath(sc *scratch, level kernels.Level) maximaPath {
	if q.screen.enabled && !q.usesByteProducts() {
		level = kernels.Fine // has all that there is of S
	}
	switch q.algorithmFor(level) {
	case byLevels:
		if level == kernels.Fine && q.usesFineTiles() {
			q.buildOnce(builtFine, (*query).buildFineTiles)
			sc.paths.fineTiles = fineTilesPath{floatUnits: floatUnits{q}, sc: sc}
			return &sc.paths.fineTiles
		}
		q.buildOnce(builtLevels+int(level), func(q *query) { q.buildLevels(level) })
		sc.paths.levels = levelsPath{floatUnits: floatUnits{q}, sc: sc, level: level}
		return &sc.paths.levels
	case byLevelTables, byFineTables:
		q.buildOnce(builtFine, (*query).buildFine)
		sc.paths.fine = finePath{floatUnits: floatUnits{q}, sc: sc}
		return &sc.paths.fine
	case byTiles:
		q.buildOnce(builtTiles, (*query).buildTiles)
		q.buildOnce(builtWords, (*query).buildWords)
		sc.paths.tiles = tilesPath{q: q, sc: sc}
		return &sc.paths.tiles
	case byFastTables:
		q.buildOnce(builtFast, (*query).buildFast)
		q.buildOnce(builtWords, (*query).buildWords)
		sc.paths.fast = fastPath{q: q, sc: sc}
		return &sc.paths.fast
	}
	sc.paths.float = floatPath{floatUnits: floatUnits{q}, sc: sc, fromWords: level == kernels.Fast && q.usesByteProducts()}
	return &sc.paths.float
}

// MaxSim implements [kernels.Query].
func (q *query) MaxSim(dst []float32, c *kernels.Chunk, docs []uint32, level kernels.Level) {
	sc := q.scorer.scratchPool.Get().(*scratch)
	p := q.preparePath(sc, level)
	sc.scoreDocuments(dst[:countDocs(c, docs)], p, q.N, c, docs)
	p.dropReferences()
	q.scorer.scratchPool.Put(sc)
}

// scoreDocuments writes the scores of documents for a query of n tokens.
func (sc *scratch) scoreDocuments(dst []float32, p maximaPath, n int, c *kernels.Chunk, docs []uint32) {
	group, call := p.groupAndCallSize()
	sc.maxima = resize(sc.maxima, group)
	for i := 0; i < len(dst); {
		ranges := sc.nextBatch(c, docs, i, len(dst), call)
		sums := sc.sums[:len(ranges)]
		clear(sums)
		for first := 0; first < n; first += group {
			sc.findMaxima(p, first/group, ranges, call, c)
			values := sc.maxima[:min(group, n-first)]
			for j := range sums {
				p.copyMaxima(values, j)
				sums[j] = p.addMaxima(sums[j], values, first)
			}
		}
		unit := p.scoreUnit()
		for j, r := range ranges {
			dst[i+j] = 0
			if r[0] < r[1] {
				dst[i+j] = float32(sums[j] * unit)
			}
		}
		i += len(ranges)
	}
}

// findMaxima finds the largest products of a batch with a group of query tokens.
func (sc *scratch) findMaxima(p maximaPath, group int, ranges [][2]uint32, call int, c *kernels.Chunk) {
	p.startGroup(len(ranges), group)
	for j := 0; ; j++ {
		part := sc.rangesOfCall(ranges, j, call)
		if part == nil {
			return
		}
		p.raiseMaxima(part, c)
	}
}

// Maxima implements [kernels.Query].
func (q *query) Maxima(dst []float64, c *kernels.Chunk, lo, hi int, level kernels.Level) {
	sc := q.scorer.scratchPool.Get().(*scratch)
	p := q.preparePath(sc, level)
	group, call := p.groupAndCallSize()
	ranges := append(sc.ranges[:0], [2]uint32{uint32(lo), uint32(hi)})
	for first := 0; first < q.N; first += group {
		sc.findMaxima(p, first/group, ranges, call, c)
		p.copyMaxima(dst[first:min(first+group, q.N)], 0)
	}
	p.dropReferences()
	q.scorer.scratchPool.Put(sc)
}

// Total implements [kernels.Query].
func (q *query) Total(maxima []float64, level kernels.Level) float32 {
	sc := q.scorer.scratchPool.Get().(*scratch)
	p := q.preparePath(sc, level)
	group, _ := p.groupAndCallSize()
	var sum float64
	for first := 0; first < q.N; first += group {
		sum = p.addMaxima(sum, maxima[first:min(first+group, q.N)], first)
	}
	sum *= p.scoreUnit()
	p.dropReferences()
	q.scorer.scratchPool.Put(sc)
	return float32(sum)
}

// fastPath computes with integers throughout: sums of 16 bits, products with
// the factor of 31 bits, whose maxima are exact.
type fastPath struct {
	q     *query
	sc    *scratch
	group int
}

func (p *fastPath) groupAndCallSize() (group, call int) {
	return fastGroup, callSize(p.q.scorer.rowBytes)
}

func (p *fastPath) startGroup(docs, group int) {
	p.group = group
	for j := range docs {
		p.sc.fastMaxima[j] = lowestProducts
	}
}

func (p *fastPath) raiseMaxima(ranges [][2]uint32, c *kernels.Chunk) {
	s, f, g := p.q.scorer, &p.q.fast, p.group
	k := s.codec.Centroids.K
	s.loops.MaxFast(p.sc.fastMaxima[:len(ranges)], ranges, f.tables[g*s.rowBytes:(g+1)*s.rowBytes], p.q.words.rows[g*k:(g+1)*k],
		c.Codes, c.CodeBytes, c.Residuals, c.Factors, s.scales16)
}

func (p *fastPath) copyMaxima(dst []float64, doc int) {
	best := &p.sc.fastMaxima[doc]
	for i := range dst {
		dst[i] = float64(best[i&1*16+i>>1&15])
	}
}

func (p *fastPath) addMaxima(sum float64, values []float64, first int) float64 {
	q := p.q
	for i, v := range values {
		sum += float64(float64(q.weights[first+i]) * q.ranges[first+i].fastUnit * v)
	}
	return sum
}

func (p *fastPath) scoreUnit() float64 { return p.q.scorer.factorUnit() }

func (p *fastPath) dropReferences() { *p = fastPath{} }

// lowestProducts is what tier.Tokens.MaxFast starts with: no larger than any products.
var lowestProducts = func() (p [fastGroup]int32) {
	for i := range p {
		p[i] = -1 << 30
	}
	return p
}()

// finePath sums the residual part in 32 bits and does the rest in float32.
type finePath struct {
	floatUnits
	sc              *scratch
	group, groupLen int
}

func (p *finePath) groupAndCallSize() (group, call int) {
	return fineGroup, callSize(p.q.scorer.rowBytes)
}

func (p *finePath) startGroup(docs, group int) {
	p.group, p.groupLen = group, min(fineGroup, p.q.N-group*fineGroup)
	for j := range docs {
		p.sc.fineMaxima[j] = [fineGroup]float32(lowestFloats[:])
	}
}

func (p *finePath) raiseMaxima(ranges [][2]uint32, c *kernels.Chunk) {
	q, s, f, g := p.q, p.q.scorer, &p.q.fine, p.group
	s.loops.MaxFine(p.sc.fineMaxima[:len(ranges)], ranges, f.tables[g*s.rowBytes:(g+1)*s.rowBytes], q.scores[g*fineGroup:],
		c.Codes, c.CodeBytes, c.Residuals, c.Factors, s.codec.CentroidScale,
		q.Stride, p.groupLen, &f.mid[g], &f.unit[g])
}

func (p *finePath) copyMaxima(dst []float64, doc int) { toFloat64(dst, p.sc.fineMaxima[doc][:]) }

func (p *finePath) dropReferences() { *p = finePath{} }

// levelsPath does by dot products what finePath does by tables; at level Fast
// with shorter integers.
type levelsPath struct {
	floatUnits
	sc              *scratch
	level           kernels.Level
	group, groupLen int
}

func (p *levelsPath) groupAndCallSize() (group, call int) {
	return levelGroup, callSize(max(p.q.scorer.rowBytes, p.q.scorer.dim/4))
}

func (p *levelsPath) startGroup(docs, group int) {
	p.group, p.groupLen = group, min(levelGroup, p.q.N-group*levelGroup)
	for j := range docs {
		p.sc.levelMaxima[j] = lowestFloats
	}
}

func (p *levelsPath) raiseMaxima(ranges [][2]uint32, c *kernels.Chunk) {
	q, s, l, g := p.q, p.q.scorer, &p.q.levels[p.level], p.group
	nbits, size := s.codec.Codebook.Nbits, len(l.bytes)/len(l.unit)
	p.sc.levels = resize(p.sc.levels, 8/nbits*(4*s.rowBytes+64))
	var words []tableRow
	if p.level == kernels.Fast && q.usesByteProducts() {
		k := s.codec.Centroids.K
		words = q.words.rows[g*k : (g+1)*k]
	}
	s.loops.MaxLevels(p.sc.levelMaxima[:len(ranges)], ranges, l.bytes[g*size:(g+1)*size], p.sc.levels, nbits, integerBytes(p.level), q.scores[g*levelGroup:],
		c.Codes, c.CodeBytes, s.rowBytes, c.Residuals, c.Factors, s.codec.CentroidScale,
		q.Stride, p.groupLen, &l.mid[g], &l.unit[g], words, &l.words[g])
}

func (p *levelsPath) copyMaxima(dst []float64, doc int) { toFloat64(dst, p.sc.levelMaxima[doc][:]) }

func (p *levelsPath) dropReferences() { *p = levelsPath{} }

func toFloat64(dst []float64, src []float32) {
	for i := range dst {
		dst[i] = float64(src[i])
	}
}

// floatUnits is what paths have in common whose products are such, but for the factors,
// which are still in stored units.
type floatUnits struct{ q *query }

func (p *floatUnits) addMaxima(sum float64, values []float64, first int) float64 {
	for i, v := range values {
		sum += float64(float64(p.q.weights[first+i]) * v)
	}
	return sum
}

func (p *floatUnits) scoreUnit() float64 { return p.q.scorer.factorUnit() }

// factorUnit is the unit of the factors that are stored.
func (s *scorer) factorUnit() float64 { return float64(s.codec.FactorMax) / 32767 }

// floatPath decodes each token and multiplies: for codecs and queries whose
// tables would be too large. All query tokens are one group.
type floatPath struct {
	floatUnits
	sc        *scratch
	fromWords bool // in place of S
}

// The products of all documents of a call are kept.
func (p *floatPath) groupAndCallSize() (group, call int) { return p.q.N, max(1<<17/p.q.N, 1) }

func (p *floatPath) startGroup(docs, _ int) {
	p.sc.hi = resize(p.sc.hi, docs*p.q.N)
	for i := range p.sc.hi {
		p.sc.hi[i] = lowestFloats[0]
	}
}

func (p *floatPath) raiseMaxima(ranges [][2]uint32, c *kernels.Chunk) {
	q, s, sc := p.q, p.q.scorer, p.sc
	sc.floats, sc.lo = resize(sc.floats, s.dim), resize(sc.lo, q.N)
	products := sc.lo
	for i, r := range ranges {
		best := sc.hi[i*q.N : (i+1)*q.N]
		for t := int(r[0]); t < int(r[1]); t++ {
			s.decodeResidual(sc.floats, c.Residuals[t*s.rowBytes:(t+1)*s.rowBytes])
			portable.DotsOne(products, sc.floats, q.Vectors)
			code, a := int(c.Code(t)), float32(1)
			if s.codec.CentroidScale != nil {
				a = s.codec.CentroidScale[code]
			}
			factor := float32(c.Factor(t))
			scores := q.scores[code*q.Stride:]
			if p.fromWords {
				scores = p.scoresFromWords(code)
			}
			for j, r := range products {
				if v := float32(factor * (scores[j] + float32(a*r))); v > best[j] {
					best[j] = v
				}
			}
		}
	}
}

// scoresFromWords computes a row of S from its words.
func (p *floatPath) scoresFromWords(code int) []float32 {
	q, sc := p.q, p.sc
	w, k := &q.words, q.scorer.codec.Centroids.K
	sc.rows = resize(sc.rows, q.N)
	for i := range sc.rows {
		word := uint16(w.rows[i/fastGroup*k+code][i%fastGroup/4] >> (i % 4 * 16))
		sc.rows[i] = float32(int32(word)-32768) * float32(q.wordUnit(i))
	}
	return sc.rows
}

func (p *floatPath) copyMaxima(dst []float64, doc int) {
	toFloat64(dst, p.sc.hi[doc*p.q.N:(doc+1)*p.q.N])
}

func (p *floatPath) dropReferences() { *p = floatPath{} }

// decodeResidual writes g ⊙ w[b] of a packed residual.
func (s *scorer) decodeResidual(dst []float32, residual []byte) {
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
