package cpu

import (
	"context"
	"encoding/binary"
	"math"
	"runtime/debug"
	"slices"
	"unsafe"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels/internal/tier"
	"github.com/plaid-ir/plaid/kernels/maxsim"
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
// all panels: screening knows nothing of types, masks, lengths and heads. Batches that are
// held are rounded once.

// screenPanels are the columns of queries, rounded.
type screenPanels struct {
	loops  *tier.Screen // nil means that documents are not screened
	stride int          // bytes of a column
	levels []byte       // [panels, stride/4, 32, 4]
	starts [][width]int32
	terms  [][width]columnTerms
	usable bool    // all columns
	row    rounded // of a column, to be entered
}

// columnTerms say how far products of a column may be off, in units of the column.
type columnTerms struct {
	perErr, perNorm float32 // the terms of |x − x̃| and |x̃| in the bound; 0 for zeros
	inverse         float32 // 1/unit
}

// minScreenDim is the least dimension that is screened.
const minScreenDim = 48

// minScreenColumns is how many query tokens pay for screening documents. Those of one panel
// do not if documents of float32 have to be rounded for them alone: they are read from
// memory no faster than they are multiplied.
func minScreenColumns(t maxsim.Type, held *rounded) int {
	if held == nil && t == maxsim.F32 {
		return width + width/2
	}
	return width - width/4
}

// reset makes room for n panels of columns of dim values.
func (s *screenPanels) reset(loops *tier.Screen, n, dim int) {
	if s.loops, s.usable = loops, true; loops == nil {
		return
	}
	s.stride = loops.Stride(dim)
	s.levels = resize(s.levels, n*width*s.stride)
	s.row.resize(1, s.stride)
	s.starts, s.terms = resize(s.starts, n), resize(s.terms, n)
	clear(s.levels)
	clear(s.terms)
}

// setColumn enters a vector as column c.
func (s *screenPanels) setColumn(c int, x []float32) {
	s.row.roundRows(s.loops, x, len(x))
	unit, err, length := float64(s.row.units[0]), float64(s.row.sums[0][0]), float64(s.row.sums[0][1])
	if s.usable = s.usable && inSafeRange(length); !s.usable || length == 0 {
		return
	}
	panel, lane := s.levels[c/width*width*s.stride:], c%width
	var flip uint32 // brings levels of rows to those of columns, which are signed
	if !s.loops.Halves {
		flip = 0x80808080
	}
	levels := 0
	for k := 0; k < s.stride; k += 4 {
		word := binary.LittleEndian.Uint32(s.row.levels[k:])
		sums := word&0xff00ff + word>>8&0xff00ff // of two bytes each
		levels += int(sums&0xffff + sums>>16)
		binary.LittleEndian.PutUint32(panel[width*k+4*lane:], word^flip)
	}
	s.starts[c/width][lane] = int32(128 * (128*s.stride - levels))
	more := 1 + float64(len(x))/(1<<23) // the squares are sums of float32
	err, length = more*math.Sqrt(err), more*math.Sqrt(length)
	rounding := float64(len(x)+8) / (1 << 22) * length // of sums of float32 products, four times
	s.terms[c/width][lane] = columnTerms{
		perErr:  roundUp((length + rounding) / unit),
		perNorm: roundUp((err + rounding) / unit),
		inverse: float32(1 / unit),
	}
}

// roundUp is v as float32, or a little more.
func roundUp(v float64) float32 { return float32(v * (1 + 1e-6)) }

// inSafeRange says that the length of a token, whose square is given, with or without its factor,
// is so far from the ends of float32 that products of two are rounded by no more than
// shares of them: the bound knows of no others, of no infinities, and of no products so
// small that they count as zero. Zeros fit, as all their products are 0.
func inSafeRange(square float64) bool { return square == 0 || square > 1e-24 && square < 1e24 }

const (
	screenRows   = 256 // tokens that are screened at a time, at most
	pairsPerCall = 32  // products that are computed at a time
	// A product of a pair takes as long as some ten of a whole panel.
	maxDoubtsPerToken = 4 // for each token
	// maxSkips is how many blocks are multiplied at once after some were in doubt.
	maxSkips = 31
	// fewPanels do not pay for all rows of a block as float32.
	fewPanels = 2
)

// rounded are rows, as tier.Screen has them.
type rounded struct {
	levels []byte
	units  []float32
	sums   [][2]float32
}

func (r *rounded) resize(n, stride int) {
	r.levels, r.units, r.sums = resize(r.levels, n*stride), resize(r.units, n), resize(r.sums, n)
}

// sliceRows returns the rows lo to hi.
func (r *rounded) sliceRows(lo, hi, stride int) rounded {
	return rounded{r.levels[lo*stride : hi*stride], r.units[lo:hi], r.sums[lo:hi]}
}

// roundRows takes rows. A sum of squares of 0 is of zeros, after it; others that come out as 0
// are no numbers.
func (r *rounded) roundRows(loops *tier.Screen, rows []float32, dim int) {
	loops.Round(r.levels, loops.Stride(dim), rows, dim, r.units, r.sums)
	for i := range r.sums {
		if r.sums[i][1] == 0 && slices.ContainsFunc(rows[i*dim:(i+1)*dim], func(v float32) bool { return v != 0 }) {
			r.sums[i][1] = float32(math.NaN())
		}
	}
}

// roundBatch rounds a batch, padding included. It returns nil for one that will not be screened.
func (b *backend) roundBatch(ctx context.Context, batch *maxsim.Batch) (*rounded, error) {
	loops, dim, n := b.tier.Vectors.Screen, batch.Tokens.Dim, batch.Tokens.Rows()
	if loops == nil || dim < minScreenDim {
		return nil, ctx.Err()
	}
	stride := loops.Stride(dim)
	levels := new(rounded)
	// Whole strides of bfloat16 are their own levels.
	sharesTokens := loops.Halves && batch.Tokens.Type == maxsim.BF16 && stride == 2*dim && n > 0
	if sharesTokens {
		levels.resize(n, 0)
		levels.levels = unsafe.Slice((*byte)(unsafe.Pointer(&batch.Tokens.U16[0])), n*stride)
	} else {
		levels.resize(n, stride)
	}
	workers := make([]struct {
		rowReader
		levels []byte
	}, parallel.Threads(0, parallel.Blocks(n, screenRows)))
	var pool parallel.Pool
	return levels, pool.Run(ctx, parallel.Blocks(n, screenRows), len(workers), parallel.Func(func(worker, i int) error {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		lo, hi := parallel.Block(i, n, screenRows)
		w := &workers[worker]
		w.reset(b.tier, batch, false, nil)
		part := levels.sliceRows(lo, hi, stride)
		if sharesTokens {
			w.levels = resize(w.levels, len(part.levels))
			part.levels = w.levels
		}
		part.roundRows(loops, w.floatValues(lo, 0, hi-lo, hi-lo), dim)
		return nil
	}))
}

// screener holds the rounded block of tokens that a goroutine screens.
type screener struct {
	rounded         // own, or part of those that are held
	ownRounded      rounded
	scales          []float32 // of the rows: their units, times their factors
	scaled          [screenRows]float32
	maxErr, maxNorm float32 // the largest of the block
	products        [screenRows][width]float32
	doubts          [screenRows*width + pairsPerCall]uint64
	limits, maxima  [width]float32
	rows            []float32 // those that are in doubt
	factors         []float32

	skipLength, skipsLeft int // blocks that are not screened after those that were in vain
}

// blockRows is how many rows a block that is screened has at most.
func (s *screenPanels) blockRows(r *rowReader) int {
	n := screenRows
	if r.head != nil {
		n = min(n, r.blockRows())
	} else {
		n = min(n, max(1<<16/r.batch.Tokens.Dim, 64))
	}
	return max(n/s.loops.Rows, 1) * s.loops.Rows
}

// startCall forgets the results of the call before.
func (x *screener) startCall() {
	if x != nil {
		x.skipsLeft, x.skipLength, x.rounded = 0, 0, rounded{}
		x.scales = nil
	}
}

// roundBlock takes a block of n rows, which are at row lo of held where that is not nil, and
// reports whether it can be screened.
func (x *screener) roundBlock(s *screenPanels, heldLevels *rounded, lo int, rows []float32, n, dim int, factors []float32) bool {
	if n < s.loops.Rows {
		return false
	}
	if x.skipsLeft > 0 {
		x.skipsLeft--
		return false
	}
	if heldLevels != nil {
		x.rounded = heldLevels.sliceRows(lo, lo+n, s.stride)
	} else {
		x.ownRounded.resize(n, s.stride)
		x.ownRounded.roundRows(s.loops, rows[:n*dim], dim)
		x.rounded = x.ownRounded
	}
	x.scales = x.units
	var minSquare, maxSquare, maxErrSquare float32 = 1, 0, 0 // squares
	for _, sums := range x.sums {
		maxErrSquare, maxSquare = max(maxErrSquare, sums[0]), max(maxSquare, sums[1])
		if sums[1] > 0 {
			minSquare = min(minSquare, sums[1])
		}
	}
	if !inSafeRange(float64(minSquare)) || !inSafeRange(float64(maxSquare)) {
		return false
	}
	err, length := float64(maxErrSquare), float64(maxSquare)
	if factors != nil {
		x.scales, err, length = x.scaled[:n], 0, 0
		for i, f := range factors[:n] {
			x.scaled[i] = x.units[i] * f
			f := float64(f)
			l := float64(x.sums[i][1]) * f * f
			if !inSafeRange(l) {
				return false
			}
			err, length = max(err, float64(x.sums[i][0])*f*f), max(length, l)
		}
	}
	more := 1 + float64(dim)/(1<<23) // the squares are sums of float32
	err, length = more*math.Sqrt(err), more*math.Sqrt(length)
	x.maxErr, x.maxNorm = roundUp(err), roundUp(length+err)
	return true
}

// raiseMaxima raises the maxima of panel i by the tokens of the block that was rounded, n from
// first on of a document that begins at row lo, and reports whether few were in doubt:
// else it does nothing. rows are all of them; nil means that those in doubt are to be made.
func (x *screener) raiseMaxima(w *worker, p *panels, i, lo, first int, rows []float32, n int, factors []float32) bool {
	s := &p.screen
	for j := range x.maxima {
		x.maxima[j] = float32(math.Inf(-1))
	}
	scales := x.scales
	if s.loops.Halves && factors == nil {
		scales = nil // all 1
	}
	products := x.products[:n]
	size := width * s.stride
	s.loops.Products(products, &x.maxima, x.levels, s.stride, s.levels[i*size:(i+1)*size], &s.starts[i], scales)
	panel, columns := p.panelData(i)
	x.setLimits(&s.terms[i], &w.best[i], &w.arg[i], first, columns)
	doubts := s.loops.Doubts(x.doubts[:], products, &x.limits, first)
	if doubts > maxDoubtsPerToken*n {
		return false
	}
	list := x.doubts[:(doubts+pairsPerCall-1)/pairsPerCall*pairsPerCall]
	for j := doubts; j < len(list); j++ {
		list[j] = list[doubts-1]
	}
	if rows == nil {
		rows, factors = x.readDoubtfulRows(&w.rows, list, lo, factors)
	}
	s.loops.Pairs(&w.best[i], &w.arg[i], list, rows, p.dim, panel, factors)
	return true
}

// readDoubtfulRows returns the rows of a list as float32, one after another, with their factors, and
// makes the list point to them.
func (x *screener) readDoubtfulRows(r *rowReader, list []uint64, lo int, factors []float32) (rows, theirs []float32) {
	dim := r.batch.Tokens.Dim
	x.rows, x.factors = x.rows[:0], x.factors[:0]
	lastToken, n := -1, -1
	for i, entry := range list {
		if token := int(entry >> 32); token != lastToken {
			lastToken, n = token, n+1
			x.rows = slices.Grow(x.rows, dim)[:(n+1)*dim]
			widenRows(r.tier, &r.batch.Tokens, x.rows[n*dim:], lo+token, lo+token+1)
			if factors != nil {
				x.factors = append(x.factors, factors[entry&(1<<32-1)/width])
			}
		}
		list[i] = entry&^(1<<32-1) | uint64(width*n) | entry%width
	}
	if factors == nil {
		return x.rows, nil
	}
	return x.rows, x.factors
}

// setLimits sets the limits that products of rounded values have to reach, of the first n columns of a
// panel.
func (x *screener) setLimits(terms *[width]columnTerms, best *[width]float32, arg *[width]int32, first, n int) {
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
			largest := x.maxima[j]
			bound := (t.perErr*x.maxErr + t.perNorm*x.maxNorm) * (1 + 1e-5)
			reference := max(best[j]*t.inverse, largest-bound)
			x.limits[j] = reference - bound - (abs(reference)+abs(largest))*roundings
		}
	}
}

// noteOutcome notes how many of the panels of a block were screened in vain.
func (x *screener) noteOutcome(inVain, panels int) {
	if 2*inVain <= panels {
		x.skipLength = 0
		return
	}
	x.skipLength = min(2*x.skipLength+1, maxSkips)
	x.skipsLeft = x.skipLength
}
