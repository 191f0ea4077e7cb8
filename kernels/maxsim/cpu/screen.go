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

// Screening finds the best token of a query token in two stages. Tokens x and q, rounded to
// bytes or to bfloat16, are x̃ and q̃, and
//
//	|⟨q, x⟩ − ⟨q̃, x̃⟩| = |⟨q, x − x̃⟩ + ⟨q − q̃, x̃⟩| ≤ |q|·|x − x̃| + |q − q̃|·|x̃|
//
// by Cauchy and Schwarz. Let b be the largest right side over the tokens of a block. A
// token of the block can only win if its product of rounded values is at most b below the
// best product so far, and at most 2b below the best rounded product of the block. These
// tokens, one or two in a hundred, are multiplied in float32, and the best of them wins. The
// bound includes the roundings of float32, so scores and argmaxima are, to the bit, those of
// multiplying all tokens.
//
// A block is rounded once for all panels, right after its conversion to float32, while it is
// in the cache. So screening does not depend on types, masks, lengths and heads. Prepared
// batches are rounded once.

// screenPanels has the columns of queries, rounded.
type screenPanels struct {
	loops  *tier.Screen         // nil means that documents are not screened
	stride int                  // bytes of a column
	levels []byte               // [panels, stride/4, 32, 4]
	starts [][width]int32       // added to the sums of each column, see setColumn
	terms  [][width]columnTerms // of the bound
	usable bool                 // all columns are in a safe range
	row    rounded              // scratch: a column, rounded as rows of documents are
}

// columnTerms has the factors of the bound b of a column, in units of the column.
type columnTerms struct {
	// b = perErr·|x − x̃| + perNorm·|x̃|, for a row x of a document and its rounding x̃. Both are 0
	// for a column of zeros.
	perErr, perNorm float32
	inverse         float32 // 1/unit
}

// minScreenDim is the least dimension for which screening pays.
const minScreenDim = 48

// minScreenColumns returns the least number of query tokens for which screening pays. It is
// more than a panel if documents of float32 must be rounded first: reading these from memory
// takes as long as multiplying them with one panel.
func minScreenColumns(t maxsim.Type, held *rounded) int {
	if held == nil && t == maxsim.F32 {
		return width + width/2
	}
	return width - width/4
}

// reset resizes the arrays for n panels of columns of dim values.
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

// setColumn rounds a vector, writes it as column c, and computes its terms of the bound. It
// clears usable if the vector's length is not in a safe range.
func (s *screenPanels) setColumn(c int, x []float32) {
	s.row.roundRows(s.loops, x, len(x))
	unit, errorSquare, square := float64(s.row.units[0]), float64(s.row.sums[0][0]), float64(s.row.sums[0][1])
	if s.usable = s.usable && inSafeRange(square); !s.usable || square == 0 {
		return
	}
	panel, lane := s.levels[c/width*width*s.stride:], c%width
	// Bytes of rows are unsigned, 128 + level; those of columns are signed levels: flipping
	// the top bit converts.
	var flip uint32
	if !s.loops.Halves {
		flip = 0x80808080
	}
	levelSum := 0 // Σ (128 + level) over the stride
	for k := 0; k < s.stride; k += 4 {
		word := binary.LittleEndian.Uint32(s.row.levels[k:])
		sums := word&0xff00ff + word>>8&0xff00ff // of two bytes each
		levelSum += int(sums&0xffff + sums>>16)
		binary.LittleEndian.PutUint32(panel[width*k+4*lane:], word^flip)
	}
	// The loop computes Σ (128 + row level)·level; the start −128·Σ level corrects that. With
	// Σ level = levelSum − 128·stride it is 128·(128·stride − levelSum).
	s.starts[c/width][lane] = int32(128 * (128*s.stride - levelSum))
	// The terms. Squares are sums of float32: slack exceeds their roundings. Sums of float32
	// products are rounded by (dim + 8)·2⁻²⁴ of |q|·|x|; rounding is four times that, for the
	// products of the screen, those of the exact stage, and the scaling by units.
	slack := 1 + float64(len(x))/(1<<23)
	errorNorm, length := slack*math.Sqrt(errorSquare), slack*math.Sqrt(square)
	rounding := float64(len(x)+8) / (1 << 22) * length
	s.terms[c/width][lane] = columnTerms{
		perErr:  roundUp((length + rounding) / unit),
		perNorm: roundUp((errorNorm + rounding) / unit),
		inverse: float32(1 / unit),
	}
}

// roundUp returns v as float32, or a slightly larger number.
func roundUp(v float64) float32 { return float32(v * (1 + 1e-6)) }

// inSafeRange reports whether a token's length, with or without its factor, is so far from
// the ends of float32 that all errors of products of two tokens are relative, as the bound
// assumes: no product becomes infinite or so small that it counts as 0. Zeros are safe, as
// all their products are 0. square is that of the length.
func inSafeRange(square float64) bool { return square == 0 || square > 1e-24 && square < 1e24 }

const (
	screenRows   = 256 // largest number of tokens of a block that is screened
	pairsPerCall = 32  // the list of tier.Screen.Pairs is a multiple of this
	// maxDoubtsPerToken limits the pairs that are multiplied one by one, for a panel of 32
	// columns: a pair takes as long as about ten products of a panel.
	maxDoubtsPerToken = 4
	// maxSkips is the largest number of blocks that are not screened after one in vain.
	maxSkips = 31
	// fewPanels is the largest number of panels for which only the rows in doubt of a prepared
	// block are converted to float32, and not all of them.
	fewPanels = 2
)

// rounded has rows in the form of tier.Screen.Round.
type rounded struct {
	levels []byte
	units  []float32
	sums   [][2]float32
}

// resize makes the arrays those of n rows, with undefined contents.
func (r *rounded) resize(n, stride int) {
	r.levels, r.units, r.sums = resize(r.levels, n*stride), resize(r.units, n), resize(r.sums, n)
}

// sliceRows returns the rounded rows lo to hi.
func (r *rounded) sliceRows(lo, hi, stride int) rounded {
	return rounded{r.levels[lo*stride : hi*stride], r.units[lo:hi], r.sums[lo:hi]}
}

// roundRows rounds rows. A row has a sum of squares of 0 only if all its values are 0: for
// others, whose squares are too small for float32, the sum is set to NaN, which is not in
// the safe range.
func (r *rounded) roundRows(loops *tier.Screen, rows []float32, dim int) {
	loops.Round(r.levels, loops.Stride(dim), rows, dim, r.units, r.sums)
	for i := range r.sums {
		if r.sums[i][1] == 0 && slices.ContainsFunc(rows[i*dim:(i+1)*dim], func(v float32) bool { return v != 0 }) {
			r.sums[i][1] = float32(math.NaN())
		}
	}
}

// roundBatch rounds all rows of a batch, padding included. It returns nil if the batch will
// not be screened.
func (b *backend) roundBatch(ctx context.Context, batch *maxsim.Batch) (*rounded, error) {
	loops, dim, n := b.tier.Vectors.Screen, batch.Tokens.Dim, batch.Tokens.Rows()
	if loops == nil || dim < minScreenDim {
		return nil, ctx.Err()
	}
	stride := loops.Stride(dim)
	levels := new(rounded)
	// Rows of bfloat16 that fill a stride are their own levels: they are not copied.
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
		block := levels.sliceRows(lo, hi, stride)
		if sharesTokens { // only units and sums are kept
			w.levels = resize(w.levels, len(block.levels))
			block.levels = w.levels
		}
		block.roundRows(loops, w.floatValues(lo, 0, hi-lo, hi-lo), dim)
		return nil
	}))
}

// screener screens blocks of tokens for one goroutine.
type screener struct {
	rounded         // the block: ownRounded, or a slice of the levels of a prepared batch
	ownRounded      rounded
	scales          []float32           // of the rows: their units times their factors
	scaled          [screenRows]float32 // memory of scales
	maxErr, maxNorm float32             // the largest |x − x̃| and |x̃| of the block
	products        [screenRows][width]float32
	doubts          [screenRows*width + pairsPerCall]uint64 // see tier.Screen.Doubts
	limits, maxima  [width]float32                          // of the columns
	rows            []float32                               // rows in doubt
	factors         []float32                               // and their factors

	// After a block for which screening was in vain, skipLength blocks are not screened;
	// skipsLeft of them remain.
	skipLength, skipsLeft int
}

// blockRows returns the largest number of rows of a block that is screened.
func (s *screenPanels) blockRows(r *rowReader) int {
	n := screenRows
	if r.head != nil {
		n = min(n, r.blockRows())
	} else {
		n = min(n, max(1<<16/r.batch.Tokens.Dim, 64))
	}
	return max(n/s.loops.Rows, 1) * s.loops.Rows
}

// startCall resets the screener, which may be nil, for another call.
func (x *screener) startCall() {
	if x != nil {
		x.skipsLeft, x.skipLength, x.rounded = 0, 0, rounded{}
		x.scales = nil
	}
}

// roundBlock sets the block to screen: n rows, rounded here, or from row lo on of preparedLevels
// if that is not nil. It reports false if the block cannot be screened, or is skipped
// because screening was in vain.
func (x *screener) roundBlock(
	s *screenPanels, preparedLevels *rounded, lo int, rows []float32, n, dim int, factors []float32,
) bool {
	if n < s.loops.Rows {
		return false
	}
	if x.skipsLeft > 0 {
		x.skipsLeft--
		return false
	}
	if preparedLevels != nil {
		x.rounded = preparedLevels.sliceRows(lo, lo+n, s.stride)
	} else {
		x.ownRounded.resize(n, s.stride)
		x.ownRounded.roundRows(s.loops, rows[:n*dim], dim)
		x.rounded = x.ownRounded
	}
	// The scales, and the largest error and length, with the factors of the rows.
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
	errorSquare, lengthSquare := float64(maxErrSquare), float64(maxSquare)
	if factors != nil {
		x.scales, errorSquare, lengthSquare = x.scaled[:n], 0, 0
		for i, f := range factors[:n] {
			x.scaled[i] = x.units[i] * f
			f := float64(f)
			square := float64(x.sums[i][1]) * f * f
			if !inSafeRange(square) {
				return false
			}
			errorSquare, lengthSquare = max(errorSquare, float64(x.sums[i][0])*f*f), max(lengthSquare, square)
		}
	}
	slack := 1 + float64(dim)/(1<<23) // exceeds the roundings of squares, which are sums of float32
	errorNorm, length := slack*math.Sqrt(errorSquare), slack*math.Sqrt(lengthSquare)
	x.maxErr, x.maxNorm = roundUp(errorNorm), roundUp(length+errorNorm) // |x̃| ≤ |x| + |x − x̃|
	return true
}

// raiseMaxima raises the maxima of panel i by the rounded block: the n tokens from first on
// of a document that begins at row lo. It reports false, and raises none, if too many tokens
// are in doubt. rows has the block as float32. nil means that the rows in doubt are
// converted here.
func (x *screener) raiseMaxima(w *worker, p *panels, i, lo, first int, rows []float32, n int, factors []float32) bool {
	// 1. Products of rounded values, and their maxima.
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
	// 2. The products that reach the limits of their columns are in doubt. The list is filled
	// up with copies of the last one.
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
	// 3. These are multiplied in float32.
	if rows == nil {
		rows, factors = x.readDoubtfulRows(&w.rows, list, lo, factors)
	}
	s.loops.Pairs(&w.best[i], &w.arg[i], list, rows, p.dim, panel, factors)
	return true
}

// readDoubtfulRows returns the rows of a list of doubts as consecutive rows of float32, with
// their factors, and renumbers the rows of the list accordingly. The list is ordered by row.
func (x *screener) readDoubtfulRows(
	r *rowReader, list []uint64, lo int, factors []float32,
) (rows, rowFactors []float32) {
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

// setLimits sets the limits that products of rounded values must reach to be in doubt, for the
// first n columns of a panel: b below the best product so far, and 2b below the best
// rounded product of the block.
func (x *screener) setLimits(terms *[width]columnTerms, best *[width]float32, arg *[width]int32, first, n int) {
	const roundings = 1.0 / (1 << 20) // of the products, and of units
	inf := float32(math.Inf(1))
	for j := range x.limits {
		x.limits[j] = inf
		t := &terms[j]
		switch {
		case j >= n:
		case t.perErr == 0: // a column of zeros: all products are 0, and the first token wins
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

// noteOutcome notes how many of the panels of a block were screened in vain. After a block
// with most of them in vain, twice as many blocks as before are skipped.
func (x *screener) noteOutcome(inVain, panels int) {
	if 2*inVain <= panels {
		x.skipLength = 0
		return
	}
	x.skipLength = min(2*x.skipLength+1, maxSkips)
	x.skipsLeft = x.skipLength
}
