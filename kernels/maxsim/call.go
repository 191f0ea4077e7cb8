package maxsim

import (
	"context"
	"log/slog"
	"math"
	"runtime/debug"
	"sync/atomic"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels"
)

// Call has the arguments and results of [Backend.Score]. The caller owns all buffers, and may
// reuse them.
type Call struct {
	Q, D Operand
	Pairs
	Terms
	// Scores receives the score of each pair.
	Scores []float32
	// Argmax, unless nil, receives for each pair and each row of its query the row
	// of the document that won, counted from the first of its span: [pairs, stride],
	// with the MaxRows of Q as stride. It is −1 for rows that are masked or past
	// the end of the query, and where the document has no tokens.
	Argmax []int32
}

// Terms are the parameters that scores and their gradients share.
type Terms struct {
	// Weights has a weight for each row of Q. nil means that all are 1.
	Weights []float32
	// Normalize divides every token vector by its length.
	Normalize bool
	// Threads is the number of goroutines on the processor. 0 means one for each processor.
	Threads int
	// Logger receives a warning, once in a process, if queries are not of length 1 and
	// Normalize is off. nil means no warning.
	Logger *slog.Logger
}

// Work is the size of a checked call.
type Work struct {
	Q, D   Shape
	Pairs  int
	Stride int // number of argmaxima of a pair
}

// Check checks that the operands are valid and that all arrays have the right length.
// Errors wrap [kernels.ErrShape].
func (c *Call) Check() (Work, error) {
	w, err := checkOperands(c.Q, c.D, &c.Pairs, &c.Terms)
	if err != nil {
		return w, err
	}
	if len(c.Scores) != w.Pairs {
		return w, shapeErrorf("%d scores for %d pairs", len(c.Scores), w.Pairs)
	}
	if c.Argmax != nil {
		err = w.checkArgmax(c.Argmax)
	}
	warnIfNotUnit(c.Q, &c.Terms)
	return w, err
}

// checkArgmax checks the length of argmaxima.
func (w *Work) checkArgmax(argmax []int32) error {
	n, err := checkedProduct(w.Pairs, w.Stride)
	if err == nil && len(argmax) != n {
		err = shapeErrorf("%d argmaxima for %d pairs of %d query rows", len(argmax), w.Pairs, w.Stride)
	}
	return err
}

// checkOperands checks operands, pairs and weights.
func checkOperands(q, d Operand, p *Pairs, t *Terms) (Work, error) {
	w, err := checkOperandShapes(q, d, p, t)
	if err == nil && w.Q.Dim != w.D.Dim {
		err = shapeErrorf("queries have dimension %d, documents %d", w.Q.Dim, w.D.Dim)
	}
	return w, err
}

// checkOperandShapes is checkOperands for operands whose dimensions may differ.
func checkOperandShapes(q, d Operand, p *Pairs, t *Terms) (w Work, err error) {
	if w.Q, err = checkedShape("query", q); err != nil {
		return w, err
	}
	if w.D, err = checkedShape("document", d); err != nil {
		return w, err
	}
	if t.Weights != nil && len(t.Weights) != w.Q.Rows {
		return w, shapeErrorf("%d weights for %d query rows", len(t.Weights), w.Q.Rows)
	}
	w.Stride = w.Q.MaxRows()
	w.Pairs, err = p.countPairs(w.Q.Len(), w.D.Len())
	return w, err
}

// checkedShape validates an operand and returns its shape. Errors use the name.
func checkedShape(name string, o Operand) (Shape, error) {
	if o == nil {
		return Shape{}, shapeErrorf("no %s operand", name)
	}
	if b, ok := o.(*Batch); ok {
		if err := b.Validate(); err != nil {
			return Shape{}, shapeErrorf("%s operand: %w", name, err)
		}
	}
	return o.Shape(), nil
}

// lengthsWarned is set once the warning about lengths has been logged.
var lengthsWarned atomic.Bool

// warnIfNotUnit logs a warning if most of the first rows of the queries are not of length 1.
// A fault of a truncated mapped file is ignored here: computing the scores reports it.
func warnIfNotUnit(q Operand, t *Terms) {
	if t.Logger == nil || t.Normalize || lengthsWarned.Load() {
		return
	}
	b, ok := q.(*Batch)
	if !ok {
		return
	}
	var fault error
	defer files.RecoverFault(&fault, debug.SetPanicOnFault(true), func(err error) error { return err })
	const rows, tolerance = 64, 0.1
	row := make([]float32, b.Tokens.Dim)
	odd, seen := 0, 0
	for i := 0; i < b.Tokens.Rows() && seen < rows; i++ {
		if !b.IsToken(i) {
			continue
		}
		b.Tokens.Widen(row, i, i+1)
		var square float64
		for _, v := range row {
			square += float64(v) * float64(v)
		}
		length := math.Sqrt(square) * math.Abs(float64(b.Tokens.Scale(i)))
		if length == 0 {
			continue // padding
		}
		if seen++; math.Abs(length-1) > tolerance {
			odd++
		}
	}
	if 2*odd > seen && !lengthsWarned.Swap(true) {
		t.Logger.LogAttrs(context.Background(), slog.LevelWarn,
			"query vectors are not of length 1, and normalisation is off",
			slog.Int("odd", odd), slog.Int("looked_at", seen))
	}
}

// GradCall has the arguments and results of [Backend.Gradients]. Operands, pairs and terms
// are those of the call of Score that wrote Argmax. With a the argmax, the gradients are
//
//	dQ_s = Σ_pairs upstream · weight_s · D_a(s)
//	dD_t = Σ_pairs Σ_{s: a(s)=t} upstream · weight_s · Q_s
//
// With Normalize, these are derivatives by the normalized vectors, from which those by the
// vectors follow.
//
// Contributions are added in float32 in the order of the pairs and then of the query
// rows, each by one fused multiplication and addition with the rounded product
// upstream·weight, so that results do not depend on the number of threads. A device may
// first add up subsets of the contributions to a query row, always the same ones.
// The gradient of vectors with a scale is by the scaled values.
type GradCall struct {
	Q, D Operand
	Pairs
	Terms
	Argmax []int32
	// Upstream is the derivative of the loss by each score. nil means that all are 1.
	Upstream []float32
	// DQ and DD receive the gradients. nil means that one is not computed.
	DQ, DD *Gradient
}

// Gradient is the matrix that a gradient is written to. It is as large as that of the
// operand, and of type F32, F16 or BF16. Rows that win nothing, masked ones included, are
// set to 0.
type Gradient struct {
	Matrix
	// Add adds the gradient to the values of the matrix instead of overwriting them.
	Add bool
}

// Check checks the call as [Call.Check] does. Argmaxima that Score cannot have written are
// errors.
func (g *GradCall) Check() (Work, error) {
	w, err := checkOperands(g.Q, g.D, &g.Pairs, &g.Terms)
	if err != nil {
		return w, err
	}
	if g.Upstream != nil && len(g.Upstream) != w.Pairs {
		return w, shapeErrorf("%d upstream values for %d pairs", len(g.Upstream), w.Pairs)
	}
	if err := g.DQ.checkShape("query", &w.Q); err != nil {
		return w, err
	}
	if err := g.DD.checkShape("document", &w.D); err != nil {
		return w, err
	}
	if err := w.checkArgmax(g.Argmax); err != nil {
		return w, err
	}
	return w, w.checkWinners(&g.Pairs, g.Argmax, w.Stride, ofQueryRows)
}

// Values of the last parameter of checkWinners: the rows that argmaxima belong to.
const (
	ofQueryRows    = false
	ofDocumentRows = true
)

// checkWinners checks that every argmax is a row of the other side: a row of a document, or,
// if reversed, of a query.
func (w *Work) checkWinners(p *Pairs, argmax []int32, stride int, reversed bool) error {
	for i := range w.Pairs {
		from, to := p.PairAt(i, w.D.Len())
		lo, hi := w.Q.Span(from)
		otherLo, otherHi := w.D.Span(to)
		if reversed {
			lo, hi, otherLo, otherHi = otherLo, otherHi, lo, hi
		}
		for s, a := range argmax[i*stride : (i+1)*stride] {
			if a < -1 || int(a) >= otherHi-otherLo || a >= 0 && s >= hi-lo {
				return shapeErrorf("row %d wins in pair %d for row %d of %d; the other side has %d rows",
					a, i, s, hi-lo, otherHi-otherLo)
			}
		}
	}
	return nil
}

// checkShape checks that a gradient, if there is one, has the shape of its operand.
func (g *Gradient) checkShape(name string, s *Shape) error {
	if g == nil {
		return nil
	}
	if err := g.Validate(); err != nil {
		return shapeErrorf("%s gradient: %w", name, err)
	}
	if s.Type == Compressed {
		return shapeErrorf("%s gradient: compressed tokens are constants and have none", name)
	}
	if g.Type > BF16 || g.Dim != s.Dim || g.Rows() != s.Rows {
		return shapeErrorf("%s gradient of %d rows of %d of type %s; want %d of %d, of float32, float16 or bfloat16",
			name, g.Rows(), g.Dim, g.Type, s.Rows, s.Dim)
	}
	return nil
}

// Put writes x as the gradient of a row, or adds it if Add is set.
func (g *Gradient) Put(row int, x []float32) {
	lo := row * g.Dim
	switch g.Type {
	case F32:
		dst := g.F32[lo : lo+g.Dim]
		if !g.Add {
			copy(dst, x)
			return
		}
		for i, v := range x {
			dst[i] += v
		}
	case F16:
		g.putHalves(lo, x, kernels.F16ToF32, kernels.F16FromF32)
	default:
		widen := func(v uint16) float32 { return math.Float32frombits(uint32(v) << 16) }
		g.putHalves(lo, x, widen, kernels.BF16FromF32)
	}
}

// putHalves is Put for 16-bit types, with their conversions, for the row that begins at
// element lo.
func (g *Gradient) putHalves(lo int, x []float32, widen func(uint16) float32, round func(float32) uint16) {
	dst := g.U16[lo : lo+g.Dim]
	for i, v := range x {
		if g.Add {
			v += widen(dst[i])
		}
		dst[i] = round(v)
	}
}
