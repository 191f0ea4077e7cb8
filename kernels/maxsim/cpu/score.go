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
	backend    *backend
	ctx        context.Context
	call       *maxsim.Call
	work       maxsim.Work
	docs       *maxsim.Batch
	heldLevels *rounded // of the documents, where they are held
	unitKind   int      // what a unit is
	units      int
	first      int // document of the first unit, and documents, of AllPairs
	count      int
	pieceUnits int // units of a piece
	panels     panels
	head       head
	grouped    pairGroups
	longUnits  []longUnit
	segments   segments
	workers    []worker
	pool       parallel.Pool
}

// What a unit is.
const (
	unitPair       = iota
	unitAllQueries // all queries
	unitDocument
)

// worker is what one goroutine works with.
type worker struct {
	rows  rowReader
	spans []span           // of panels: those of the queries of a unit
	best  [][width]float32 // of each panel
	arg   [][width]int32

	screener *screener // nil until a block is screened
}

// Score implements [maxsim.Backend].
func (b *backend) Score(ctx context.Context, c *maxsim.Call) (err error) {
	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), faultError)
	w, err := c.Check()
	if err != nil {
		return err
	}
	q, d, err := b.operands(c.Q, c.D)
	if err != nil {
		return err
	}
	return b.scoreChecked(ctx, c, w, q, d, nil)
}

// scoreChecked does a checked call. With a head d has hidden states.
func (b *backend) scoreChecked(ctx context.Context, c *maxsim.Call, w maxsim.Work, q, d *maxsim.Batch, h *maxsim.Head) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s, _ := b.scorers.Get().(*scorer)
	if s == nil {
		s = &scorer{backend: b}
	}
	if held, ok := c.D.(*held); ok && h == nil {
		s.heldLevels = held.levels
	}
	err := s.run(ctx, c, w, q, d, h)
	s.ctx, s.call, s.docs, s.heldLevels, s.work, s.grouped.pairs = nil, nil, nil, nil, maxsim.Work{}, nil
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
	maxThreads := parallel.Threads(c.Threads, math.MaxInt)
	s.chooseUnits(q, d, h != nil, min(maxThreads, w.Pairs))
	loops := s.backend.tier.Vectors.Screen
	if q.Tokens.Dim < minScreenDim || q.Tokens.Rows() < minScreenColumns(d.Tokens.Type, s.heldLevels) {
		loops = nil
	}
	queries := c.Terms
	var headLayer *head
	if h != nil {
		queries.Normalize = false
		headLayer = &s.head
		headLayer.reset(s.backend.tier, h)
	}
	s.panels.reset(s.backend.tier, q, &queries, s.unitKind == unitAllQueries, loops)
	pieces := parallel.Blocks(s.units, s.pieceUnits)
	s.findLongUnits(maxThreads)
	useful := pieces
	for i := range s.longUnits {
		useful = max(useful, s.longUnits[i].segments)
	}
	threads := parallel.Threads(maxThreads, useful)
	for len(s.workers) < threads {
		s.workers = append(s.workers, worker{})
	}
	for i := range s.workers[:threads] {
		x := &s.workers[i]
		n := s.panels.panelCount()
		x.rows.reset(s.backend.tier, d, c.Normalize, headLayer)
		x.best, x.arg = resize(x.best, n), resize(x.arg, n)
		x.screener.startCall()
	}
	if err := s.pool.Run(ctx, pieces, threads, s); err != nil {
		return err
	}
	for i := range s.longUnits {
		if err := s.scoreInSegments(ctx, &s.longUnits[i], threads); err != nil {
			return err
		}
	}
	return nil
}

// chooseUnits decides what units are, and how many of them a piece has.
func (s *scorer) chooseUnits(q, d *maxsim.Batch, head bool, threads int) {
	s.first, s.count = 0, d.Len()
	if s.call.First > 0 || s.call.Count > 0 {
		s.first, s.count = s.call.First, s.call.Count
	}
	rows := d.Tokens.Rows()/max(d.Len(), 1) + 1 // of a document, on average
	perDoc := max(pieceProducts/(rows*(q.Tokens.Rows()+1)), 1)
	switch {
	case s.call.Kind == maxsim.AllPairs && (head || q.Len() == 1 || threads == 1 || parallel.Blocks(s.count, perDoc) >= 2*threads):
		s.unitKind, s.units, s.pieceUnits = unitAllQueries, s.count, perDoc
	case head: // a token vector is made once for all who want it
		s.unitKind, s.units, s.pieceUnits = unitDocument, d.Len(), 1
		s.grouped.reset(&s.call.Pairs, s.work, true)
	default:
		s.unitKind, s.units = unitPair, s.work.Pairs
		s.pieceUnits = max(min(pieceProducts/(rows*(q.Tokens.Rows()/q.Len()+1)), s.units/(4*threads)), 1)
	}
}

// document is that of a unit.
func (s *scorer) document(unit int) int {
	switch s.unitKind {
	case unitAllQueries:
		return s.first + unit
	case unitDocument:
		return unit
	}
	_, d := s.call.At(unit, s.work.D.Len())
	return d
}

// pairCount is how many pairs a unit has.
func (s *scorer) pairCount(unit int) int {
	switch s.unitKind {
	case unitAllQueries:
		return len(s.panels.spans)
	case unitDocument:
		return s.grouped.pairCount(unit)
	}
	return 1
}

// pairAndQuery is pair j of a unit, and its query.
func (s *scorer) pairAndQuery(unit, j int) (pair, query int) {
	switch s.unitKind {
	case unitAllQueries:
		return j*s.count + unit, j
	case unitDocument:
		unit = s.grouped.pairOfItem(unit, j)
	}
	query, _ = s.call.At(unit, s.work.D.Len())
	return unit, query
}

// listSpans lists the panels of a unit.
func (s *scorer) listSpans(w *worker, unit int) {
	w.spans = w.spans[:0]
	if s.unitKind == unitAllQueries {
		w.spans = append(w.spans, span{0, s.panels.panelCount()})
		return
	}
	for j := range s.pairCount(unit) {
		_, q := s.pairAndQuery(unit, j)
		columns := s.panels.spans[q]
		w.spans = append(w.spans, span{columns.lo / width, parallel.Blocks(columns.hi, width)})
	}
}

// Run does a piece: some units, without those that are cut into segments.
func (s *scorer) Run(worker, i int) error {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	w := &s.workers[worker]
	lo, hi := parallel.Block(i, s.units, s.pieceUnits)
	for u := lo; u < hi; u++ {
		if len(s.longUnits) > 0 && s.isLong(u) || s.pairCount(u) == 0 {
			continue
		}
		lo, n := w.rows.startItem(s.document(u))
		s.listSpans(w, u)
		if err := w.findMaxima(s.ctx, &s.panels, s.heldLevels, lo, 0, n); err != nil {
			return err
		}
		s.writeResults(w, u, n)
	}
	return nil
}

// writeResults writes the results of a unit, whose document has n tokens.
func (s *scorer) writeResults(w *worker, unit, n int) {
	for j := range s.pairCount(unit) {
		pair, q := s.pairAndQuery(unit, j)
		var argmax []int32
		if s.call.Argmax != nil {
			argmax = s.call.Argmax[pair*s.work.Stride : (pair+1)*s.work.Stride]
			for i := range argmax {
				argmax[i] = -1
			}
		}
		s.call.Scores[pair] = 0
		if n > 0 {
			s.call.Scores[pair] = s.weightedSum(w, s.panels.spans[q], argmax)
		}
	}
}

// findMaxima finds the best of the tokens from to to of a document that begins at row lo, for
// the panels of the worker's spans. held are the levels of all documents; nil means that they are not
// rounded.
func (w *worker) findMaxima(ctx context.Context, p *panels, heldLevels *rounded, lo, from, to int) error {
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
	if len(w.rows.tokenRows) > 0 {
		heldLevels = nil // which has masked rows, too
	}
	n, maxRows := to-from, w.rows.blockRows()
	screen := p.screen.loops != nil && p.screen.usable && columns >= minScreenColumns(w.rows.batch.Tokens.Type, heldLevels)
	if screen {
		if w.screener == nil {
			w.screener = new(screener)
		}
		maxRows = p.screen.blockRows(&w.rows)
	}
	// 3. The tokens, block by block.
	blocks := parallel.Blocks(n, maxRows)
	for k := range blocks {
		if err := ctx.Err(); err != nil {
			return err
		}
		w.raiseMaxima(p, heldLevels, screen, panels, lo, from+k*n/blocks, from+(k+1)*n/blocks)
	}
	return nil
}

// raiseMaxima raises the maxima of n panels by the tokens a to b of a document that begins at row lo. With
// screen it excludes tokens that cannot win.
func (w *worker) raiseMaxima(p *panels, heldLevels *rounded, screen bool, panels, lo, a, b int) {
	var x, factors []float32
	var m int
	// Where only the few rows in doubt are needed as float32, x stays nil.
	if screen && heldLevels != nil && panels <= fewPanels && !w.rows.normalize && w.rows.batch.Tokens.Type != maxsim.F32 {
		factors = w.rows.blockScales(lo, a, b, b-a)
	} else {
		x, m, factors = w.rows.readBlock(lo, a, b)
	}
	screened, inVain := screen && w.screener.roundBlock(&p.screen, heldLevels, lo+a, x, b-a, p.dim, factors), 0
	for _, s := range w.spans {
		for i := s.lo; i < s.hi; i++ {
			if screened {
				if w.screener.raiseMaxima(w, p, i, lo, a, x, b-a, factors) {
					continue
				}
				inVain++
			}
			if x == nil {
				x, m, factors = w.rows.readBlock(lo, a, b)
			}
			panel, c := p.panelData(i)
			w.rows.tier.Vectors.MaxDot(&w.best[i], &w.arg[i], x, m, p.dim, a, panel, c, factors)
		}
	}
	if screened {
		w.screener.noteOutcome(inVain, panels)
	}
}

// weightedSum adds up the maxima of a query, and notes their rows.
func (s *scorer) weightedSum(w *worker, columns span, argmax []int32) float32 {
	var sum float64
	for c := columns.lo; c < columns.hi; c++ {
		v := float64(w.best[c/width][c%width])
		if len(s.panels.weights) > 0 {
			v *= float64(s.panels.weights[c])
		}
		sum += v
		if argmax != nil {
			argmax[s.panels.rows[c]] = w.rows.rowOfToken(w.arg[c/width][c%width])
		}
	}
	return float32(sum)
}

// pairGroups are the pairs of a call by query or by document.
type pairGroups struct {
	pairs  *maxsim.Pairs
	work   maxsim.Work
	byDoc  bool
	order  []int32 // the pairs of item i, in their order: order[starts[i]] and on
	starts []int32
}

// reset groups pairs. Where all meet all there is nothing to do.
func (g *pairGroups) reset(pairs *maxsim.Pairs, w maxsim.Work, byDoc bool) {
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
		starts[g.itemOfPair(p)+1]++
	}
	for i := range items {
		starts[i+1] += starts[i]
	}
	for p := range w.Pairs {
		i := g.itemOfPair(p)
		g.order[starts[i]] = int32(p)
		starts[i]++
	}
}

func (g *pairGroups) itemOfPair(pair int) int {
	q, d := g.pairs.At(pair, g.work.D.Len())
	if g.byDoc {
		return d
	}
	return q
}

// pairCount is how many pairs an item has; pair is one of them.
func (g *pairGroups) pairCount(item int) int {
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

func (g *pairGroups) pairOfItem(item, i int) int {
	if g.pairs.Kind != maxsim.AllPairs {
		return int(g.order[int(g.starts[item])+i])
	}
	n := g.work.Pairs / g.work.Q.Len()
	if g.byDoc {
		return i*n + item - g.pairs.First
	}
	return item*n + i
}
