package cpu

import (
	"context"
	"math"
	"runtime/debug"
	"unsafe"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels/internal/tier"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// The search in two stages. Tokens x and q, rounded to bytes, are x̃ and q̃, and
//
//	|⟨q, x⟩ − ⟨q̃, x̃⟩| = |⟨q, x − x̃⟩ + ⟨q − q̃, x̃⟩| ≤ |q|·|x − x̃| + |q − q̃|·|x̃|
//
// by Cauchy and Schwarz. With b the right side at its largest over the tokens of a
// document, a token can only win if its product of bytes is within 2b of the best one.
// Those tokens, a few of a hundred, are multiplied in float32, and the best of them
// wins. The bound takes in what float32 rounds, so scores and argmaxima are, to the
// bit, those of multiplying all.
//
// Documents in bfloat16 are their own x̃ where the processor multiplies bfloat16
// matrices: x − x̃ is 0 then, and few tokens but the best are in doubt.

// packed is documents rounded to bytes beside their originals. It has the tokens of all
// items one after another, without those that are masked.
type packed struct {
	// levels is [tokens, stride]: 128 + x/unit, rounded, with the unit of a token that
	// makes its largest value ±127; bytes beyond the dimension are 128.
	levels []byte
	stride int   // the dimension, rounded up to a multiple of 4
	starts []int // for each item the number of its first token, and at last that of all
	// plain is of the vectors as they are, unit of those divided by their lengths.
	plain, unit packedTerms
}

// packedTerms are what depends on the lengths of vectors.
type packedTerms struct {
	// scales are the units of the tokens, and factors what the products of their values
	// count times (nil: all 1).
	scales, factors []float32
	// errors and norms have, for each item, the largest length of a rounding error and
	// of a rounded vector.
	errors, norms []float32
}

func (p *packed) terms(normalize bool) *packedTerms {
	if normalize {
		return &p.unit
	}
	return &p.plain
}

// starts has for each item the number of its first token, and at last that of all tokens.
func starts(b *maxsim.Batch) []int {
	starts := make([]int, b.Len()+1)
	for i := range b.Len() {
		lo, hi := b.Span(i)
		n := hi - lo
		if b.Mask != nil {
			for _, real := range b.Mask[lo:hi] {
				if !real {
					n--
				}
			}
		}
		starts[i+1] = starts[i] + n
	}
	return starts
}

// pack rounds documents to bytes; nil if there are values that bytes are no good for.
func (b *backend) pack(ctx context.Context, batch *maxsim.Batch, threads int) (*packed, error) {
	n, t := batch.Len(), b.tier
	p := &packed{stride: (batch.Tokens.Dim + 3) &^ 3, starts: starts(batch)}
	rows := p.starts[n]
	p.levels = aligned(rows * p.stride)
	for _, s := range []*packedTerms{&p.plain, &p.unit} {
		*s = packedTerms{scales: make([]float32, rows), errors: make([]float32, n), norms: make([]float32, n)}
	}
	p.unit.factors = make([]float32, rows)
	if batch.Tokens.Scales != nil {
		p.plain.factors = make([]float32, rows)
	}
	const block = 64 // items
	workers := make([]rounder, parallel.Threads(threads, parallel.Blocks(n, block)))
	var pool parallel.Pool
	err := pool.Run(ctx, parallel.Blocks(n, block), len(workers), parallel.Func(func(worker, i int) error {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		lo, hi := parallel.Block(i, n, block)
		for ; lo < hi; lo++ {
			workers[worker].item(p, t, batch, lo, p.starts[lo])
		}
		return nil
	}))
	for i := range workers {
		if workers[i].unfit {
			return nil, err
		}
	}
	return p, err
}

// aligned returns n bytes from a multiple of 64 on.
func aligned(n int) []byte {
	b := make([]byte, n+63)
	off := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & 63
	return b[off : off+n]
}

// rounder packs items.
type rounder struct {
	row     []float32
	squares [1][8]float64
	unfit   bool
}

func (r *rounder) item(p *packed, t *tier.Tier, b *maxsim.Batch, item, at int) {
	lo, hi := b.Span(item)
	dim := b.Tokens.Dim
	r.row = resize(r.row, dim)
	for i := lo; i < hi; i++ {
		if !b.IsToken(i) {
			continue
		}
		widen(t, &b.Tokens, r.row, i, i+1)
		levels := p.levels[at*p.stride : (at+1)*p.stride]
		unit, err, norm, length := round(levels, r.row)
		inverse := 0.0
		if t.Vectors.Squares(r.squares[:], r.row, dim); length > 0 {
			inverse = 1 / math.Sqrt(squared(&r.squares[0], r.row)) // as for whole blocks
		}
		scale := b.Tokens.Scale(i)
		if !fits(length) || !fits(length*math.Abs(float64(scale))) {
			r.unfit = true
		}
		put(&p.plain, item, at, float64(scale), unit, err, norm)
		put(&p.unit, item, at, sign(scale)*inverse, unit, err, norm)
		at++
	}
}

// fits says that a length, of a token without its scale or with it, or of a query token,
// is so far from the ends of float32 that products of two are rounded by no more than
// shares of them: the bound knows of no others, of no infinities, and of no products so
// small that they count as zero. Lengths of 0 fit, as all products are 0.
func fits(length float64) bool { return length == 0 || length > 1e-15 && length < 1e15 }

// put enters a token whose values count times factor.
func put(s *packedTerms, item, at int, factor, unit, err, norm float64) {
	s.scales[at] = float32(factor * unit)
	if s.factors != nil {
		s.factors[at] = float32(factor)
	}
	factor = math.Abs(factor)
	s.errors[item] = max(s.errors[item], up(factor*err))
	s.norms[item] = max(s.norms[item], up(factor*norm))
}

// up is v as float32, or a little more.
func up(v float64) float32 { return float32(v * (1 + 1e-6)) }

// round writes the multiples of unit that are nearest to x, the largest of which is
// ±127, with 128 added, and returns unit and the lengths of the rounding error, of the
// rounded vector and of x.
func round(dst []byte, x []float32) (unit, err, norm, length float64) {
	var most float64
	for _, v := range x {
		most = max(most, math.Abs(float64(v)))
	}
	unit = most / 127
	inverse := 0.0
	if unit > 0 {
		inverse = 1 / unit
	}
	const magic = 3 << 51 // whose last bit is 1: adding it rounds
	for j, v := range x {
		x := float64(v)
		level := x*inverse + magic - magic
		rounded := level * unit
		d := x - rounded
		err += d * d
		norm += rounded * rounded
		length += x * x
		dst[j] = byte(int(level) + 128)
	}
	for j := len(x); j < len(dst); j++ {
		dst[j] = 128
	}
	return unit, math.Sqrt(err), math.Sqrt(norm), math.Sqrt(length)
}

const (
	screenRows = 240 // tokens that are screened at a time
	halvesRows = 256 // of them as bfloat16
	manyPanels = 3   // that pay for all tokens as float32, not only those in doubt
	pairs      = 32  // products that are computed at a time
	// A product of a pair takes as long as some ten of a whole panel.
	mostDoubts = 4 // for each token
)

// screener is what one goroutine screens with.
type screener struct {
	products [halvesRows][width]float32
	list     [halvesRows*width + pairs]uint64
	limits   [width]float32
	most     [][width]float32 // of each panel
	factors  []float32
	rows     []float32
	many     bool // the item at hand meets many panels
	// Of a block, once a panel needs all its rows.
	whole               bool
	block, blockFactors []float32
}

// screened finds what maxima finds, in two stages.
func (w *worker) screened(ctx context.Context, p *panels, s *screenPanels, docs *packed, normalize bool, item, lo, from, to int) error {
	if w.screener == nil {
		w.screener = new(screener)
	}
	x, terms, first := w.screener, docs.terms(normalize), docs.starts[item]
	x.most = resize(x.most, p.count())
	panels := 0
	for _, span := range w.spans {
		panels += span.hi - span.lo
		for i := span.lo; i < span.hi; i++ {
			for j := range width {
				w.best[i][j], x.most[i][j] = float32(math.Inf(-1)), float32(math.Inf(-1))
				if s.per[i][j] == 0 && math.IsInf(float64(s.perErr[i][j]), 1) {
					w.best[i][j] = 0
				}
			}
			w.arg[i] = [width]int32{}
		}
	}
	n := to - from
	x.many = panels >= manyPanels
	blocks := parallel.Blocks(n, screenRows)
	if len(s.halves) > 0 {
		blocks = parallel.Blocks(n, halvesRows)
	}
	for k := range blocks {
		if err := ctx.Err(); err != nil {
			return err
		}
		a, b := from+k*n/blocks, from+(k+1)*n/blocks
		x.whole = false
		for _, span := range w.spans {
			for i := span.lo; i < span.hi; i++ {
				w.screenBlock(p, s, docs.levels, terms, item, i, lo, first, a, b)
			}
		}
	}
	return nil
}

// screenBlock raises the maxima of panel i by the tokens a to b of an item.
func (w *worker) screenBlock(p *panels, s *screenPanels, levels []byte, terms *packedTerms, item, i, lo, first, a, b int) {
	x, loops := w.screener, w.rows.tier.Vectors.Screen
	products := x.products[:b-a]
	panel, c := p.panel(i)
	if len(s.halves) > 0 {
		var factors []float32
		if terms.factors != nil {
			factors = terms.factors[first+a : first+b]
		}
		loops.Halves(products, &x.most[i], w.rows.batch.Tokens.U16[(lo+a)*p.dim:(lo+b)*p.dim], p.dim, s.halves[i*width*p.dim:(i+1)*width*p.dim], factors)
	} else {
		levels = levels[(first+a)*s.stride : (first+b)*s.stride]
		loops.Products(products, &x.most[i], levels, s.stride, s.levels[i*width*s.stride:(i+1)*width*s.stride], &s.starts[i], terms.scales[first+a:first+b])
	}
	x.limit(i, &s.perErr[i], &s.per[i], terms.errors[item], terms.norms[item], c)
	doubts := loops.Doubts(x.list[:], products, &x.limits, a)
	inDoubt := doubts > mostDoubts*(b-a)
	if !x.whole && (inDoubt || x.many && w.rows.batch.Tokens.Type != maxsim.F32) {
		x.block, _, x.blockFactors = w.rows.block(lo, a, b)
		x.whole = true
	}
	if inDoubt {
		w.rows.tier.Vectors.MaxDot(&w.best[i], &w.arg[i], x.block, b-a, p.dim, a, panel, c, x.blockFactors)
		return
	}
	list := x.list[:(doubts+pairs-1)/pairs*pairs]
	for j := doubts; j < len(list); j++ {
		list[j] = list[doubts-1]
	}
	some, theirs := w.doubted(list, terms.factors, first, lo, a, b)
	loops.Pairs(&w.best[i], &w.arg[i], list, some, p.dim, panel, theirs)
}

// limit sets what a product of bytes has to reach, of the first n columns of panel i.
func (x *screener) limit(i int, perErr, per *[width]float32, err, norm float32, n int) {
	const roundings = 1.0 / (1 << 20) // of the products of bytes, as float32
	for j, most := range x.most[i] {
		x.limits[j] = float32(math.Inf(1))
		if j < n && !math.IsInf(float64(perErr[j]), 1) {
			bound := perErr[j]*err + per[j]*norm
			x.limits[j] = most - bound*(1+1e-5) - float32(math.Abs(float64(most)))*roundings
		}
	}
}

// doubted returns the rows that the list, of tokens from a on, counts from the first
// of, with their factors: those in memory, those of the block, or else copies, to which
// the list then points.
func (w *worker) doubted(list []uint64, factors []float32, first, lo, a, b int) (rows, rowFactors []float32) {
	r, x := &w.rows, w.screener
	t, dim := &r.batch.Tokens, r.batch.Tokens.Dim
	if direct := t.Type == maxsim.F32 && len(r.list) == 0; direct || x.whole {
		if factors != nil {
			factors = factors[first+a : first+b]
		}
		if direct {
			return t.F32[(lo+a)*dim : (lo+b)*dim], factors
		}
		return x.block, factors
	}
	x.rows, x.factors = x.rows[:0], x.factors[:0]
	last, n := -1, -1
	for i, entry := range list {
		if token := int(entry >> 32); token != last {
			last, n = token, n+1
			x.rows = grow(x.rows, dim)
			row := lo + int(r.row(int32(token)))
			widen(r.tier, t, x.rows[n*dim:], row, row+1)
			if factors != nil {
				x.factors = append(x.factors, factors[first+token])
			}
		}
		list[i] = entry&^(1<<32-1) | uint64(width*n) | entry%width
	}
	if factors == nil {
		return x.rows, nil
	}
	return x.rows, x.factors
}

// grow adds n values to x.
func grow(x []float32, n int) []float32 {
	for cap(x) < len(x)+n {
		x = append(x[:cap(x)], 0)[:len(x)]
	}
	return x[:len(x)+n]
}
