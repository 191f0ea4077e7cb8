package cpu

import (
	"context"
	"math"
	"runtime/debug"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// scorer does a call of Score, one after another. Its work is units, each a document
// with some of the queries: with all, that of one pair, or those of all its pairs.
type scorer struct {
	backend  *backend
	ctx      context.Context
	call     *maxsim.Call
	work     maxsim.Work
	docs     *maxsim.Batch
	levels   *rounded // of the documents, where they are held
	by       int      // what a unit is
	units    int
	first    int // document of the first unit, and documents, of AllPairs
	count    int
	size     int // units of a piece
	panels   panels
	head     head
	grouped  grouped
	long     []longUnit
	segments segments
	workers  []worker
	pool     parallel.Pool
}

// What a unit is.
const (
	perPair = iota
	withAll // all queries
	perDocument
)

// worker is what one goroutine works with.
type worker struct {
	rows  rows
	spans []span           // of panels: those of the queries of a unit
	best  [][width]float32 // of each panel
	arg   [][width]int32

	screener *screener // nil until a block is screened
}

// Score implements [maxsim.Backend].
func (b *backend) Score(ctx context.Context, c *maxsim.Call) (err error) {
	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), asFault)
	w, err := c.Check()
	if err != nil {
		return err
	}
	q, d, err := b.operands(c.Q, c.D)
	if err != nil {
		return err
	}
	return b.score(ctx, c, w, q, d, nil)
}

// score does a checked call. With a head d has hidden states.
func (b *backend) score(ctx context.Context, c *maxsim.Call, w maxsim.Work, q, d *maxsim.Batch, h *maxsim.Head) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s, _ := b.scorers.Get().(*scorer)
	if s == nil {
		s = &scorer{backend: b}
	}
	if held, ok := c.D.(*held); ok && h == nil {
		s.levels = held.levels
	}
	err := s.run(ctx, c, w, q, d, h)
	s.ctx, s.call, s.docs, s.levels, s.work, s.grouped.pairs = nil, nil, nil, nil, maxsim.Work{}, nil
	b.scorers.Put(s)
	return err
}

// pieceProducts is how many products of rows a piece has, at least, where there is
// enough to do.
const pieceProducts = 1 << 17

func (s *scorer) run(ctx context.Context, c *maxsim.Call, w maxsim.Work, q, d *maxsim.Batch, h *maxsim.Head) error {
	s.ctx, s.call, s.work, s.docs = ctx, c, w, d
	if w.Pairs == 0 {
		return nil
	}
	most := parallel.Threads(c.Threads, math.MaxInt)
	s.cut(q, d, h != nil, min(most, w.Pairs))
	loops := s.backend.tier.Vectors.Screen
	if q.Tokens.Dim < screenDims || q.Tokens.Rows() < screenColumns(d.Tokens.Type, s.levels) {
		loops = nil
	}
	queries := c.Terms
	var own *head
	if h != nil {
		queries.Normalize = false
		own = &s.head
		own.reset(s.backend.tier, h)
	}
	s.panels.reset(s.backend.tier, q, &queries, s.by == withAll, loops)
	pieces := parallel.Blocks(s.units, s.size)
	s.findLong(most)
	useful := pieces
	for i := range s.long {
		useful = max(useful, s.long[i].segments)
	}
	threads := parallel.Threads(most, useful)
	for len(s.workers) < threads {
		s.workers = append(s.workers, worker{})
	}
	for i := range s.workers[:threads] {
		x := &s.workers[i]
		n := s.panels.count()
		x.rows.reset(s.backend.tier, d, c.Normalize, own)
		x.best, x.arg = resize(x.best, n), resize(x.arg, n)
		x.screener.begin()
	}
	if err := s.pool.Run(ctx, pieces, threads, s); err != nil {
		return err
	}
	for i := range s.long {
		if err := s.inSegments(ctx, &s.long[i], threads); err != nil {
			return err
		}
	}
	return nil
}

// cut decides what units are, and how many of them a piece has.
func (s *scorer) cut(q, d *maxsim.Batch, head bool, threads int) {
	s.first, s.count = 0, d.Len()
	if s.call.First > 0 || s.call.Count > 0 {
		s.first, s.count = s.call.First, s.call.Count
	}
	rows := d.Tokens.Rows()/max(d.Len(), 1) + 1 // of a document, on average
	perDoc := max(pieceProducts/(rows*(q.Tokens.Rows()+1)), 1)
	switch {
	case s.call.Kind == maxsim.AllPairs && (head || q.Len() == 1 || threads == 1 || parallel.Blocks(s.count, perDoc) >= 2*threads):
		s.by, s.units, s.size = withAll, s.count, perDoc
	case head: // a token vector is made once for all who want it
		s.by, s.units, s.size = perDocument, d.Len(), 1
		s.grouped.reset(&s.call.Pairs, s.work, true)
	default:
		s.by, s.units = perPair, s.work.Pairs
		s.size = max(min(pieceProducts/(rows*(q.Tokens.Rows()/q.Len()+1)), s.units/(4*threads)), 1)
	}
}

// document is that of a unit.
func (s *scorer) document(unit int) int {
	switch s.by {
	case withAll:
		return s.first + unit
	case perDocument:
		return unit
	}
	_, d := s.call.At(unit, s.work.D.Len())
	return d
}

// pairs is how many pairs a unit has.
func (s *scorer) pairs(unit int) int {
	switch s.by {
	case withAll:
		return len(s.panels.spans)
	case perDocument:
		return s.grouped.count(unit)
	}
	return 1
}

// pair is pair j of a unit, and its query.
func (s *scorer) pair(unit, j int) (pair, query int) {
	switch s.by {
	case withAll:
		return j*s.count + unit, j
	case perDocument:
		unit = s.grouped.pair(unit, j)
	}
	query, _ = s.call.At(unit, s.work.D.Len())
	return unit, query
}

// spansOf lists the panels of a unit.
func (s *scorer) spansOf(w *worker, unit int) {
	w.spans = w.spans[:0]
	if s.by == withAll {
		w.spans = append(w.spans, span{0, s.panels.count()})
		return
	}
	for j := range s.pairs(unit) {
		_, q := s.pair(unit, j)
		columns := s.panels.spans[q]
		w.spans = append(w.spans, span{columns.lo / width, parallel.Blocks(columns.hi, width)})
	}
}

// Run does a piece: some units, without those that are cut into segments.
func (s *scorer) Run(worker, i int) error {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	w := &s.workers[worker]
	lo, hi := parallel.Block(i, s.units, s.size)
	for u := lo; u < hi; u++ {
		if len(s.long) > 0 && s.isLong(u) || s.pairs(u) == 0 {
			continue
		}
		lo, n := w.rows.item(s.document(u))
		s.spansOf(w, u)
		if err := w.maxima(s.ctx, &s.panels, s.levels, lo, 0, n); err != nil {
			return err
		}
		s.finish(w, u, n)
	}
	return nil
}

// finish writes the results of a unit, whose document has n tokens.
func (s *scorer) finish(w *worker, unit, n int) {
	for j := range s.pairs(unit) {
		pair, q := s.pair(unit, j)
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
}

// maxima finds the best of the tokens from to to of a document that begins at row lo, for
// the panels of the worker's spans. held are the levels of all documents; nil means that they are not
// rounded.
func (w *worker) maxima(ctx context.Context, p *panels, held *rounded, lo, from, to int) error {
	// 1. Nothing is best before the first token.
	columns, panels := 0, 0
	for _, s := range w.spans {
		columns += min(s.hi*width, len(p.rows)) - s.lo*width
		panels += s.hi - s.lo
		for i := s.lo; i < s.hi; i++ {
			for j := range w.best[i] {
				w.best[i][j] = float32(math.Inf(-1))
			}
			w.arg[i] = [width]int32{}
		}
	}
	if columns == 0 {
		return nil
	}
	// 2. Screening, and the size of blocks.
	if len(w.rows.list) > 0 {
		held = nil // which has masked rows, too
	}
	n, most := to-from, w.rows.blockRows()
	screen := p.screen.loops != nil && p.screen.fit && columns >= screenColumns(w.rows.batch.Tokens.Type, held)
	if screen {
		if w.screener == nil {
			w.screener = new(screener)
		}
		most = p.screen.blockRows(&w.rows)
	}
	// 3. The tokens, block by block.
	blocks := parallel.Blocks(n, most)
	for k := range blocks {
		if err := ctx.Err(); err != nil {
			return err
		}
		w.block(p, held, screen, panels, lo, from+k*n/blocks, from+(k+1)*n/blocks)
	}
	return nil
}

// block raises the maxima of n panels by the tokens a to b of a document that begins at row lo. With
// screen it excludes tokens that cannot win.
func (w *worker) block(p *panels, held *rounded, screen bool, n, lo, a, b int) {
	var x, factors []float32
	var m int
	// Where only the few rows in doubt are needed as float32, x stays nil.
	if screen && held != nil && n <= fewPanels && !w.rows.normalize && w.rows.batch.Tokens.Type != maxsim.F32 {
		factors = w.rows.scales(lo, a, b, b-a)
	} else {
		x, m, factors = w.rows.block(lo, a, b)
	}
	screened, vain := screen && w.screener.round(&p.screen, held, lo+a, x, b-a, p.dim, factors), 0
	for _, s := range w.spans {
		for i := s.lo; i < s.hi; i++ {
			if screened {
				if w.screener.maxima(w, p, i, lo, a, x, b-a, factors) {
					continue
				}
				vain++
			}
			if x == nil {
				x, m, factors = w.rows.block(lo, a, b)
			}
			panel, c := p.panel(i)
			w.rows.tier.Vectors.MaxDot(&w.best[i], &w.arg[i], x, m, p.dim, a, panel, c, factors)
		}
	}
	if screened {
		w.screener.done(vain, n)
	}
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

// grouped are the pairs of a call by query or by document.
type grouped struct {
	pairs  *maxsim.Pairs
	work   maxsim.Work
	byDoc  bool
	order  []int32 // the pairs of item i, in their order: order[starts[i]] and on
	starts []int32
}

// reset groups pairs. Where all meet all there is nothing to do.
func (g *grouped) reset(pairs *maxsim.Pairs, w maxsim.Work, byDoc bool) {
	g.pairs, g.work, g.byDoc = pairs, w, byDoc
	if pairs.Kind == maxsim.AllPairs {
		return
	}
	items := w.Q.Len()
	if byDoc {
		items = w.D.Len()
	}
	g.order = resize(g.order, w.Pairs)
	g.starts = resize(g.starts, items+2)
	clear(g.starts)
	starts := g.starts[1:] // one ahead, until all have been put down
	for p := range w.Pairs {
		starts[g.item(p)+1]++
	}
	for i := range items {
		starts[i+1] += starts[i]
	}
	for p := range w.Pairs {
		i := g.item(p)
		g.order[starts[i]] = int32(p)
		starts[i]++
	}
}

func (g *grouped) item(pair int) int {
	q, d := g.pairs.At(pair, g.work.D.Len())
	if g.byDoc {
		return d
	}
	return q
}

// count is how many pairs an item has; pair is one of them.
func (g *grouped) count(item int) int {
	if g.pairs.Kind != maxsim.AllPairs {
		return int(g.starts[item+1] - g.starts[item])
	}
	n := g.work.Pairs / max(g.work.Q.Len(), 1)
	if !g.byDoc {
		return n
	}
	if item < g.pairs.First || item >= g.pairs.First+n {
		return 0
	}
	return g.work.Q.Len()
}

func (g *grouped) pair(item, i int) int {
	if g.pairs.Kind != maxsim.AllPairs {
		return int(g.order[int(g.starts[item])+i])
	}
	n := g.work.Pairs / g.work.Q.Len()
	if g.byDoc {
		return i*n + item - g.pairs.First
	}
	return item*n + i
}
