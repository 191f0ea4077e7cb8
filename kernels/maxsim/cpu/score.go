package cpu

import (
	"context"
	"math"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// scorer does a call of Score, one after another.
type scorer struct {
	b        *backend
	ctx      context.Context
	call     *maxsim.Call
	work     maxsim.Work
	docs     *maxsim.Batch
	packed   *packed // documents that are screened; nil if they are not
	together bool    // every document meets all queries at once
	first    int     // document of the first piece
	count    int     // documents
	size     int     // documents, or pairs, of a piece
	panels   panels
	screen   screenPanels
	workers  []worker
	pool     parallel.Pool
}

// worker is what one goroutine works with.
type worker struct {
	rows rows
	best [][width]float32 // of each panel
	arg  [][width]int32

	screener *screener
}

// Score implements [maxsim.Backend].
func (b *backend) Score(ctx context.Context, c *maxsim.Call) error {
	w, err := c.Check()
	if err != nil {
		return err
	}
	q, d, err := b.operands(c.Q, c.D)
	if err != nil {
		return err
	}
	return b.score(ctx, c, w, q, d)
}

// score does a checked call.
func (b *backend) score(ctx context.Context, c *maxsim.Call, w maxsim.Work, q, d *maxsim.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s, _ := b.scorers.Get().(*scorer)
	if s == nil {
		s = &scorer{b: b}
	}
	if h, ok := c.D.(*held); ok {
		s.packed = h.packed
	}
	err := s.run(ctx, c, w, q, d)
	s.ctx, s.call, s.docs, s.packed, s.work = nil, nil, nil, nil, maxsim.Work{}
	b.scorers.Put(s)
	return err
}

// pieceProducts is how many products of rows a piece has, at least, where there is
// enough to do.
const pieceProducts = 1 << 17

func (s *scorer) run(ctx context.Context, c *maxsim.Call, w maxsim.Work, q, d *maxsim.Batch) error {
	s.ctx, s.call, s.work, s.docs = ctx, c, w, d
	if w.Pairs == 0 {
		return nil
	}
	s.first, s.count = 0, d.Len()
	if c.First > 0 || c.Count > 0 {
		s.first, s.count = c.First, c.Count
	}
	// Products of a document with all queries, or of a pair, on average.
	rows := d.Tokens.Rows()/max(d.Len(), 1) + 1
	threads := parallel.Threads(c.Threads, w.Pairs)
	s.size = max(pieceProducts/(rows*(q.Tokens.Rows()+1)), 1)
	s.together = c.Kind == maxsim.AllPairs && (q.Len() == 1 || parallel.Blocks(s.count, s.size) >= 2*threads || threads == 1)
	pieces := parallel.Blocks(s.count, s.size)
	if !s.together {
		s.size = max(min(pieceProducts/(rows*(q.Tokens.Rows()/q.Len()+1)), w.Pairs/(4*threads)), 1)
		pieces = parallel.Blocks(w.Pairs, s.size)
	}
	s.panels.reset(s.b.tier, q, &c.Terms, s.together)
	if s.packed != nil {
		s.screen.reset(&s.panels, s.packed.stride)
	}
	threads = parallel.Threads(threads, pieces)
	for len(s.workers) < threads {
		s.workers = append(s.workers, worker{})
	}
	for i := range s.workers[:threads] {
		x := &s.workers[i]
		n := parallel.Blocks(len(s.panels.rows), width)
		x.rows.reset(s.b.tier, d, c.Normalize)
		x.best, x.arg = resize(x.best, n), resize(x.arg, n)
	}
	return s.pool.Run(ctx, pieces, threads, s)
}

// Run does a piece: some documents with all queries, or some pairs.
func (s *scorer) Run(worker, i int) error {
	w := &s.workers[worker]
	if s.together {
		lo, hi := parallel.Block(i, s.count, s.size)
		for d := lo; d < hi; d++ {
			if err := s.document(w, s.first+d, 0, len(s.panels.spans), d, s.count); err != nil {
				return err
			}
		}
		return nil
	}
	lo, hi := parallel.Block(i, s.work.Pairs, s.size)
	for p := lo; p < hi; p++ {
		q, d := s.call.At(p, s.work.D.Len())
		if err := s.document(w, d, q, q+1, p, 0); err != nil {
			return err
		}
	}
	return nil
}

// document scores a document with the queries q0 to q1, and writes the results of the
// first at pair, those of each other one step further.
func (s *scorer) document(w *worker, doc, q0, q1, pair, step int) error {
	columns := span{s.panels.spans[q0].lo, s.panels.spans[q1-1].hi}
	lo, n := w.rows.item(doc)
	var err error
	if s.packed != nil && n >= s.b.tier.Vectors.Screen.Rows {
		err = w.screened(s.ctx, &s.panels, &s.screen, s.packed, s.call.Normalize, columns, doc, lo, n)
	} else {
		err = w.maxima(s.ctx, &s.panels, columns, lo, n)
	}
	if err != nil {
		return err
	}
	for q := q0; q < q1; q, pair = q+1, pair+step {
		var argmax []int32
		if s.call.Argmax != nil {
			argmax = s.call.Argmax[pair*s.work.Stride : (pair+1)*s.work.Stride]
			for i := range argmax {
				argmax[i] = -1
			}
		}
		s.call.Scores[pair] = 0
		if n > 0 {
			s.call.Scores[pair] = s.total(w, s.panels.spans[q], argmax)
		}
	}
	return nil
}

// maxima finds the best of n tokens from row lo on for columns of panels.
func (w *worker) maxima(ctx context.Context, p *panels, columns span, lo, n int) error {
	from, to := columns.lo/width, parallel.Blocks(columns.hi, width)
	for i := from; i < to; i++ {
		for j := range w.best[i] {
			w.best[i][j] = float32(math.Inf(-1))
		}
		w.arg[i] = [width]int32{}
	}
	if from == to {
		return nil
	}
	blocks := parallel.Blocks(n, w.rows.blockRows())
	for k := range blocks {
		if err := ctx.Err(); err != nil {
			return err
		}
		a, b := k*n/blocks, (k+1)*n/blocks
		x, m, factors := w.rows.block(lo, a, b)
		for i := from; i < to; i++ {
			panel, c := p.panel(i)
			w.rows.tier.Vectors.MaxDot(&w.best[i], &w.arg[i], x, m, p.dim, a, panel, c, factors)
		}
	}
	return nil
}

// total adds up the maxima of a query, and notes their rows.
func (s *scorer) total(w *worker, columns span, argmax []int32) float32 {
	var sum float64
	for c := columns.lo; c < columns.hi; c++ {
		v := float64(w.best[c/width][c%width])
		if len(s.panels.weights) > 0 {
			v *= float64(s.panels.weights[c])
		}
		sum += v
		if argmax != nil {
			argmax[s.panels.rows[c]] = w.rows.row(w.arg[c/width][c%width])
		}
	}
	return float32(sum)
}
