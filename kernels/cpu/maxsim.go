package cpu

import (
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/internal/portable"
)

// maximaPath finds the largest products of query tokens with the decoded tokens of
// documents, by one algorithm. Calls come in this order: for each group of query tokens
// startGroup, raiseMaxima any number of times, and copyMaxima for each document; at the end
// dropReferences.
type maximaPath interface {
	// groupAndCallSize returns the number of query tokens of a group and the largest
	// number of document tokens of one call of raiseMaxima.
	groupAndCallSize() (group, call int)
	// startGroup resets the maxima of docs documents for a group of query tokens.
	startGroup(docs, group int)
	// raiseMaxima raises the maxima of each document by the products of a range of tokens.
	raiseMaxima(ranges [][2]uint32, c *kernels.Chunk)
	// copyMaxima writes the maxima of a document for the group, in units of the path.
	copyMaxima(dst []float64, doc int)
	// addMaxima adds maxima, of the query tokens from first on, to a sum, times weights
	// and units. It adds one after another, so that the sum does not depend on group sizes.
	addMaxima(sum float64, values []float64, first int) float64
	// scoreUnit returns the factor that turns the sum over all query tokens into a score.
	scoreUnit() float64
	// dropReferences drops the references to query and chunk.
	dropReferences()
}

// paths has a reusable value for each implementation of maximaPath.
type paths struct {
	fast      fastPath
	fine      finePath
	levels    levelsPath
	fineTiles fineTilesPath
	tiles     tilesPath
	float     floatPath
}

// algorithm is one way to compute MaxSim at a level.
type algorithm int

const (
	byFloat       algorithm = iota // decodes tokens, see floatPath
	byLevels                       // dot products of integers, see levels.go
	byLevelTables                  // the sums of byLevels from tables, at level Fine
	byFineTables                   // tables of 32 bits, see tables.go
	byTiles                        // matrix products, see tiles.go
	byFastTables                   // tables of 16 bits, see tables.go
)

// algorithmFor returns the algorithm for a level. At level Fine the choice depends on the
// tier only among algorithms that give the same bits.
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

// preparePath returns the path for a level, in scratch memory, and builds its tables if
// this is their first use.
func (q *query) preparePath(sc *scratch, level kernels.Level) maximaPath {
	if q.screen.enabled && !q.usesByteProducts() {
		level = kernels.Fine // level Fast needs words of all of S, which Screen(0) does not compute
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
	fromWords := level == kernels.Fast && q.usesByteProducts()
	sc.paths.float = floatPath{floatUnits: floatUnits{q}, sc: sc, fromWords: fromWords}
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

// scoreDocuments writes the scores of documents for a query of n tokens, a batch of
// documents after the other.
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

// findMaxima finds the largest products of a batch's documents with a group of query tokens.
func (sc *scratch) findMaxima(p maximaPath, group int, ranges [][2]uint32, call int, c *kernels.Chunk) {
	p.startGroup(len(ranges), group)
	for j := 0; ; j++ {
		callRanges := sc.rangesOfCall(ranges, j, call)
		if callRanges == nil {
			return
		}
		p.raiseMaxima(callRanges, c)
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

// TotalScore implements [kernels.Query].
func (q *query) TotalScore(maxima []float64, level kernels.Level) float32 {
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

// fastPath looks up tables of level Fast. It computes with integers throughout: sums of 16
// bits, and products with the factor of 31 bits, whose maxima are not rounded.
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
	s.loops.MaxFast(p.sc.fastMaxima[:len(ranges)], ranges,
		f.tables[g*s.rowBytes:(g+1)*s.rowBytes], p.q.words.rows[g*k:(g+1)*k],
		c.Codes, c.CodeBytes, c.Residuals, c.Factors, s.scales16)
}

func (p *fastPath) copyMaxima(dst []float64, doc int) {
	best := &p.sc.fastMaxima[doc]
	for i := range dst {
		dst[i] = float64(best[i&1*16+i>>1&15]) // even query tokens come first, see tier.Tokens.MaxFast
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

// lowestProducts has the initial value of maxima of tier.Tokens.MaxFast. Products are at
// least −2³⁰: a factor of 15 bits times 15 bits and a sign.
var lowestProducts = func() (p [fastGroup]int32) {
	for i := range p {
		p[i] = -1 << 30
	}
	return p
}()

// finePath looks up tables of level Fine, whose sums are integers of 32 bits, and continues
// in float32.
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
	s.loops.MaxFine(p.sc.fineMaxima[:len(ranges)], ranges,
		f.tables[g*s.rowBytes:(g+1)*s.rowBytes], q.scores[g*fineGroup:],
		c.Codes, c.CodeBytes, c.Residuals, c.Factors, s.codec.CentroidScale,
		q.Stride, p.groupLen, &f.mid[g], &f.unit[g])
}

func (p *finePath) copyMaxima(dst []float64, doc int) { toFloat64(dst, p.sc.fineMaxima[doc][:]) }

func (p *finePath) dropReferences() { *p = finePath{} }

// levelsPath computes the sums of finePath by dot products; at level Fast with integers of
// one byte.
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
	s.loops.MaxLevels(p.sc.levelMaxima[:len(ranges)], ranges,
		l.bytes[g*size:(g+1)*size], p.sc.levels, nbits, integerBytes(p.level), q.scores[g*levelGroup:],
		c.Codes, c.CodeBytes, s.rowBytes, c.Residuals, c.Factors, s.codec.CentroidScale,
		q.Stride, p.groupLen, &l.mid[g], &l.unit[g], words, &l.words[g])
}

func (p *levelsPath) copyMaxima(dst []float64, doc int) { toFloat64(dst, p.sc.levelMaxima[doc][:]) }

func (p *levelsPath) dropReferences() { *p = levelsPath{} }

// toFloat64 converts the first len(dst) values of src.
func toFloat64(dst []float64, src []float32) {
	for i := range dst {
		dst[i] = float64(src[i])
	}
}

// floatUnits has the methods of paths whose maxima are products of vectors in float32. Only
// the factors of tokens are still in stored units.
type floatUnits struct{ q *query }

func (p *floatUnits) addMaxima(sum float64, values []float64, first int) float64 {
	for i, v := range values {
		sum += float64(float64(p.q.weights[first+i]) * v)
	}
	return sum
}

func (p *floatUnits) scoreUnit() float64 { return p.q.scorer.factorUnit() }

// factorUnit returns the unit of stored factors.
func (s *scorer) factorUnit() float64 { return float64(s.codec.FactorMax) / 32767 }

// floatPath decodes each token and multiplies: for codecs and queries whose
// tables would be too large. All query tokens are one group.
type floatPath struct {
	floatUnits
	sc        *scratch
	fromWords bool // S is read from words, because only these have all rows
}

// groupAndCallSize limits a call to 2¹⁷ products.
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

// scoresFromWords computes the row of S for a centroid from its words.
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

// decodeResidual writes g ⊙ w[b] for a packed residual.
func (s *scorer) decodeResidual(dst []float32, residual []byte) {
	nbits := s.codec.Codebook.Nbits
	mask := byte(1<<nbits - 1)
	perByte := 8 / nbits
	for p, b := range residual {
		out := dst[p*perByte : min((p+1)*perByte, len(dst))]
		for j := range out {
			out[j] = s.weights[b&mask]
			b >>= nbits
		}
	}
	for j, g := range s.codec.DimScale {
		dst[j] *= g
	}
}
