package cpu

import (
	"encoding/binary"
	"math"

	"github.com/plaid-ir/plaid/kernels/internal/tier"
)

// The search in two stages. Tokens x and q, rounded to bytes or to bfloat16, are x̃ and
// q̃, and
//
//	|⟨q, x⟩ − ⟨q̃, x̃⟩| = |⟨q, x − x̃⟩ + ⟨q − q̃, x̃⟩| ≤ |q|·|x − x̃| + |q − q̃|·|x̃|
//
// by Cauchy and Schwarz. With b the right side at its largest over the tokens of a
// block, a token of the block can only win if its product of rounded values is no more
// than b below the best product so far, and no more than 2b below the best of the block.
// Those tokens, one or two of a hundred, are multiplied in float32, and the best of them
// wins. The bound takes in what float32 rounds, so scores and argmaxima are, to the bit,
// those of multiplying all.
//
// Blocks are rounded while they are in the cache, as soon as they are float32, once for
// all panels: screening knows nothing of types, masks, lengths and heads.

// screenPanels are the columns of queries, rounded.
type screenPanels struct {
	loops  *tier.Screen // nil: documents are not screened
	stride int          // bytes of a column
	levels []byte       // [panels, stride/4, 32, 4]
	starts [][width]int32
	terms  [][width]columnTerms
	fit    bool // all columns
	row    []byte
	unit   [1]float32
	sums   [1][2]float32
}

// columnTerms say how far products of a column may be off, in units of the column.
type columnTerms struct {
	perErr, per float32 // what |x − x̃| and |x̃| add to the bound; 0 for zeros
	inverse     float32 // 1/unit
}

// screenDims and screenColumns are the least dimensions and query tokens that pay for
// rounding a document. One panel does not, on most processors: documents are then read
// from memory no faster than they are multiplied.
const screenDims, screenColumns = 48, width + width/2

// reset makes room for n panels.
func (s *screenPanels) reset(loops *tier.Screen, n, dim int) {
	if s.loops, s.fit = loops, true; loops == nil {
		return
	}
	s.stride = loops.Stride(dim)
	s.levels, s.row = resize(s.levels, n*width*s.stride), resize(s.row, s.stride)
	s.starts, s.terms = resize(s.starts, n), resize(s.terms, n)
	clear(s.levels)
	clear(s.terms)
}

// put enters a vector as column c.
func (s *screenPanels) put(c int, x []float32) {
	s.loops.Round(s.row, s.stride, x, len(x), s.unit[:], s.sums[:])
	unit, err, length := float64(s.unit[0]), float64(s.sums[0][0]), float64(s.sums[0][1])
	if s.fit = s.fit && fits(length, x); !s.fit || length == 0 {
		return
	}
	panel, lane := s.levels[c/width*width*s.stride:], c%width
	var flip uint32 // brings levels of rows to those of columns, which are signed
	if !s.loops.Halves {
		flip = 0x80808080
	}
	low, high := uint32(0), uint32(0) // sums of two bytes each
	for k := 0; k < s.stride; k += 4 {
		word := binary.LittleEndian.Uint32(s.row[k:])
		low, high = low+word&0xff00ff, high+word>>8&0xff00ff
		binary.LittleEndian.PutUint32(panel[width*k+4*lane:], word^flip)
	}
	levels := int(low&0xffff) + int(low>>16) + int(high&0xffff) + int(high>>16)
	s.starts[c/width][lane] = int32(128 * (128*s.stride - levels))
	more := 1 + float64(len(x))/(1<<23) // the squares are sums of float32
	err, length = more*math.Sqrt(err), more*math.Sqrt(length)
	rounding := float64(len(x)+8) / (1 << 22) * length // of sums of float32 products, four times
	s.terms[c/width][lane] = columnTerms{
		perErr:  up((length + rounding) / unit),
		per:     up((err + rounding) / unit),
		inverse: float32(1 / unit),
	}
}

// up is v as float32, or a little more.
func up(v float64) float32 { return float32(v * (1 + 1e-6)) }

// fits says that the length of a token, whose square is given, with or without its factor,
// is so far from the ends of float32 that products of two are rounded by no more than
// shares of them: the bound knows of no others, of no infinities, and of no products so
// small that they count as zero. Zeros fit, as all their products are 0.
func fits(square float64, x []float32) bool {
	if square != 0 {
		return square > 1e-24 && square < 1e24
	}
	for _, v := range x {
		if v != 0 {
			return false
		}
	}
	return true
}

const (
	screenRows = 256 // tokens that are screened at a time, at most
	pairs      = 32  // products that are computed at a time
	// A product of a pair takes as long as some ten of a whole panel.
	mostDoubts = 4 // for each token
	// mostSkips is how many blocks are multiplied at once after some were in doubt.
	mostSkips = 31
)

// screener is what one goroutine screens with: a block of tokens, rounded.
type screener struct {
	levels        []byte
	units, scales [screenRows]float32
	sums          [screenRows][2]float32
	err, norm     float32 // the largest of the block
	products      [screenRows][width]float32
	list          [screenRows*width + pairs]uint64
	limits, most  [width]float32

	skips, skip int // blocks that are not screened after those that were in vain
}

// blockRows is how many rows a block that is screened has at most.
func (s *screenPanels) blockRows(r *rows) int {
	n := screenRows
	if r.head != nil {
		n = min(n, r.blockRows())
	} else {
		n = min(n, max(1<<16/r.batch.Tokens.Dim, 64))
	}
	return max(n/s.loops.Rows, 1) * s.loops.Rows
}

// begin forgets what a call before found.
func (x *screener) begin() {
	if x != nil {
		x.skip, x.skips = 0, 0
	}
}

// round takes a block, and reports whether it can be screened.
func (x *screener) round(s *screenPanels, rows []float32, n, dim int, factors []float32) bool {
	if n < s.loops.Rows {
		return false
	}
	if x.skip > 0 {
		x.skip--
		return false
	}
	x.levels = resize(x.levels, n*s.stride)
	s.loops.Round(x.levels, s.stride, rows[:n*dim], dim, x.units[:n], x.sums[:n])
	var err, length float64 // squares
	for i := range x.sums[:n] {
		e, l := float64(x.sums[i][0]), float64(x.sums[i][1])
		if !fits(l, rows[i*dim:(i+1)*dim]) {
			return false
		}
		x.scales[i] = x.units[i]
		if factors != nil {
			f := float64(factors[i])
			if e, l = e*f*f, l*f*f; !fits(l, nil) {
				return false
			}
			x.scales[i] *= factors[i]
		}
		err, length = max(err, e), max(length, l)
	}
	more := 1 + float64(dim)/(1<<23) // the squares are sums of float32
	err, length = more*math.Sqrt(err), more*math.Sqrt(length)
	x.err, x.norm = up(err), up(length+err)
	return true
}

// maxima raises the maxima of panel i by the tokens of the block that was rounded, which is
// rows, counted from first, and reports whether few were in doubt: else it does nothing.
func (x *screener) maxima(w *worker, p *panels, i, first int, rows []float32, n int, factors []float32) bool {
	s := &p.screen
	for j := range x.most {
		x.most[j] = float32(math.Inf(-1))
	}
	scales := x.scales[:n]
	if s.loops.Halves && factors == nil {
		scales = nil // all 1
	}
	products := x.products[:n]
	size := width * s.stride
	s.loops.Products(products, &x.most, x.levels[:n*s.stride], s.stride, s.levels[i*size:(i+1)*size], &s.starts[i], scales)
	panel, columns := p.panel(i)
	x.limit(&s.terms[i], &w.best[i], &w.arg[i], first, columns)
	doubts := s.loops.Doubts(x.list[:], products, &x.limits, first)
	if doubts > mostDoubts*n {
		return false
	}
	list := x.list[:(doubts+pairs-1)/pairs*pairs]
	for j := doubts; j < len(list); j++ {
		list[j] = list[doubts-1]
	}
	s.loops.Pairs(&w.best[i], &w.arg[i], list, rows, p.dim, panel, factors)
	return true
}

// limit sets what a product of rounded values has to reach, of the first n columns of a
// panel.
func (x *screener) limit(terms *[width]columnTerms, best *[width]float32, arg *[width]int32, first, n int) {
	const roundings = 1.0 / (1 << 20) // of the products, and of units
	inf := float32(math.Inf(1))
	for j := range x.limits {
		x.limits[j] = inf
		t := &terms[j]
		switch {
		case j >= n:
		case t.perErr == 0: // all products are 0
			if best[j] == -inf {
				best[j], arg[j] = 0, int32(first)
			}
		default:
			most := x.most[j]
			bound := (t.perErr*x.err + t.per*x.norm) * (1 + 1e-5)
			least := max(best[j]*t.inverse, most-bound)
			x.limits[j] = least - bound - (abs(least)+abs(most))*roundings
		}
	}
}

// done notes how many of the panels of a block were screened in vain.
func (x *screener) done(vain, panels int) {
	if 2*vain <= panels {
		x.skips = 0
		return
	}
	x.skips = min(2*x.skips+1, mostSkips)
	x.skip = x.skips
}
