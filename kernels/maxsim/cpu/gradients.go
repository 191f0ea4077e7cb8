package cpu

import (
	"context"
	"math"
	"runtime/debug"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels/internal/tier"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// gradients executes calls of Gradients, one after another. Every row of a gradient is
// summed up by one goroutine: a piece of work is some rows of a query for DQ, or some rows of
// a document for DD. The bits do not depend on how rows are divided into pieces.
type gradients struct {
	backend        *backend
	call           *maxsim.GradCall
	work           maxsim.Work
	q, d           *maxsim.Batch
	grouped        pairGroups
	queryPieceRows int          // rows of a piece of a query
	piecesPerQuery int          // pieces of a query
	pieces         []piece      // of documents
	inverses       [2][]float64 // 1/length of the rows of q and of d; empty if computed when needed
	lengths        lengths
	workers        []puller
	pool           parallel.Pool
}

// piece is a range of the rows of an item, counted from its first one.
type piece struct{ item, from, to int32 }

const (
	// queryRows is the largest number of rows of a piece of a query.
	queryRows = 16
	// documentRows is the least number of rows of a piece of a document that is cut. Each
	// piece reads all argmaxima of the document, so that small pieces do not pay.
	documentRows = 4096
)

// Gradients implements [maxsim.Backend].
func (b *backend) Gradients(ctx context.Context, g *maxsim.GradCall) (err error) {
	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), faultError)
	w, err := g.Check()
	if err != nil {
		return err
	}
	q, d, err := b.operands(g.Q, g.D)
	if err != nil {
		return err
	}
	x, _ := b.gradients.Get().(*gradients)
	if x == nil {
		x = &gradients{backend: b}
	}
	x.call, x.work, x.q, x.d = g, w, q, d
	err = x.run(ctx)
	x.call, x.q, x.d, x.work, x.grouped.pairs = nil, nil, nil, maxsim.Work{}, nil
	b.gradients.Put(x)
	return err
}

// run computes the inverse lengths, with Normalize, and then the gradients.
func (x *gradients) run(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	x.inverses = [2][]float64{x.inverses[0][:0], x.inverses[1][:0]}
	if x.call.Normalize {
		for i, b := range []*maxsim.Batch{x.q, x.d} {
			if err := x.inverseNorms(ctx, i, b); err != nil {
				return err
			}
		}
	}
	threads := parallel.Threads(x.call.Threads, math.MaxInt)
	if g := x.call.DQ; g != nil {
		x.grouped.reset(&x.call.Pairs, x.work, byQuery)
		x.queryPieceRows = queryRows
		if threads > 1 { // at least four pieces for each thread
			x.queryPieceRows = min(max(x.q.Tokens.Rows()/(4*threads), 1), queryRows)
		}
		x.piecesPerQuery = max(parallel.Blocks(x.work.Stride, x.queryPieceRows), 1)
		clearOutside(g, x.q)
		if err := x.pullPieces(ctx, x.q.Len()*x.piecesPerQuery); err != nil {
			return err
		}
	}
	if g := x.call.DD; g != nil {
		x.grouped.reset(&x.call.Pairs, x.work, byDocument)
		clearOutside(g, x.d)
		x.cutDocuments(threads)
		return x.pullPieces(ctx, len(x.pieces))
	}
	return nil
}

// cutDocuments lists the pieces of the documents.
func (x *gradients) cutDocuments(threads int) {
	x.pieces = x.pieces[:0]
	for d := range x.d.Len() {
		lo, hi := x.d.Span(d)
		n := 1
		if threads > 1 {
			n = min(max((hi-lo)/documentRows, 1), 2*threads)
		}
		for i := range n {
			x.pieces = append(x.pieces, piece{int32(d), int32(i * (hi - lo) / n), int32((i + 1) * (hi - lo) / n)})
		}
	}
}

// inverseNorms computes the inverse lengths of all rows of a side, without their scales. If
// there are more rows than argmaxima, each is computed when it is needed.
func (x *gradients) inverseNorms(ctx context.Context, side int, b *maxsim.Batch) error {
	n := b.Tokens.Rows()
	if n > x.work.Pairs*x.work.Stride {
		return nil
	}
	x.inverses[side] = resize(x.inverses[side], n)
	l := &x.lengths
	l.tier, l.matrix, l.dst = x.backend.tier, &b.Tokens, x.inverses[side]
	pieces := parallel.Blocks(n, lengthRows)
	threads := parallel.Threads(x.call.Threads, pieces)
	for len(l.workers) < threads {
		l.workers = append(l.workers, measurer{})
	}
	err := x.pool.Run(ctx, pieces, threads, l)
	l.matrix, l.dst = nil, nil
	return err
}

// lengths computes the inverse lengths of the rows of a matrix on several goroutines.
type lengths struct {
	tier    *tier.Tier
	matrix  *maxsim.Matrix
	dst     []float64
	workers []measurer
}

// measurer is the work space of one goroutine.
type measurer struct {
	wide    []float32
	squares [lengthRows][8]float64
}

// lengthRows is the number of rows of a block of lengths.
const lengthRows = 64

// Run computes the inverse lengths of block i.
func (l *lengths) Run(worker, i int) error {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	w, dim := &l.workers[worker], l.matrix.Dim
	lo, hi := parallel.Block(i, len(l.dst), lengthRows)
	var rows []float32
	if l.matrix.Type == maxsim.F32 {
		rows = l.matrix.F32[lo*dim : hi*dim]
	} else {
		w.wide = resize(w.wide, (hi-lo)*dim)
		widenRows(l.tier, l.matrix, w.wide, lo, hi)
		rows = w.wide
	}
	l.tier.Vectors.Squares(w.squares[:hi-lo], rows, dim)
	for r := range hi - lo {
		l.dst[lo+r] = inverseRoot(sumSquares(&w.squares[r], rows[r*dim:(r+1)*dim]))
	}
	return nil
}

// inverseRoot returns 1/√square, or 0 for 0.
func inverseRoot(square float64) float64 {
	if square > 0 {
		return 1 / math.Sqrt(square)
	}
	return 0
}

// clearOutside clears the rows of a gradient that belong to no item.
func clearOutside(g *maxsim.Gradient, b *maxsim.Batch) {
	if g.Add {
		return
	}
	last := 0
	for i := range b.Len() {
		lo, hi := b.Span(i)
		clearRows(g, last, lo)
		last = hi
	}
	clearRows(g, last, g.Rows())
}

// clearRows sets the rows lo to hi of a gradient to 0.
func clearRows(g *maxsim.Gradient, lo, hi int) {
	if g.Type == maxsim.F32 {
		clear(g.F32[lo*g.Dim : hi*g.Dim])
	} else {
		clear(g.U16[lo*g.Dim : hi*g.Dim])
	}
}

// pullPieces computes the given number of pieces on the goroutines of the call.
func (x *gradients) pullPieces(ctx context.Context, pieces int) error {
	threads := parallel.Threads(x.call.Threads, pieces)
	for len(x.workers) < threads {
		x.workers = append(x.workers, puller{})
	}
	return x.pool.Run(ctx, pieces, threads, x)
}

// Run computes the gradients of piece i.
func (x *gradients) Run(worker, i int) error {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	w := &x.workers[worker]
	if x.grouped.byDoc {
		x.pullTokenRows(w, x.pieces[i])
	} else {
		x.pullQueryRows(w, i/x.piecesPerQuery, i%x.piecesPerQuery*x.queryPieceRows)
	}
	return nil
}
