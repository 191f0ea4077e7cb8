package cpu

import (
	"context"
	"math"
	"runtime/debug"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// scorer executes calls of Score, one after another. It divides a call into units, a
// document with some of the queries, and groups units into pieces, which goroutines take.
type scorer struct {
	backend        *backend
	ctx            context.Context
	call           *maxsim.Call
	work           maxsim.Work
	docs           *maxsim.Batch
	preparedLevels *rounded // of prepared documents. nil means that each call rounds them
	unitKind       int      // unitPair, unitAllQueries or unitDocument
	units          int      // their number
	firstDoc       int      // for AllPairs, the first document
	docCount       int      // for AllPairs, the number of documents
	pieceUnits     int      // units of a piece
	panels         panels
	head           head
	grouped        pairGroups
	longUnits      []longUnit
	segments       segments
	workers        []worker
	pool           parallel.Pool
}

// Kinds of units.
const (
	unitPair       = iota // one pair
	unitAllQueries        // a document with all queries
	unitDocument          // a document with the queries of all its pairs
)

// worker is the work space of one goroutine.
type worker struct {
	rows  rowReader
	spans []span           // the panels of the queries of a unit
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

// scoreChecked executes a checked call. If h is not nil, d has hidden states.
func (b *backend) scoreChecked(
	ctx context.Context, c *maxsim.Call, w maxsim.Work, q, d *maxsim.Batch, h *maxsim.Head,
) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s, _ := b.scorers.Get().(*scorer)
	if s == nil {
		s = &scorer{backend: b}
	}
	if prepared, ok := c.D.(*preparedBatch); ok && h == nil {
		s.preparedLevels = prepared.levels
	}
	err := s.run(ctx, c, w, q, d, h)
	// The pool keeps no reference to the caller's memory.
	s.ctx, s.call, s.docs, s.preparedLevels, s.work, s.grouped.pairs = nil, nil, nil, nil, maxsim.Work{}, nil
	b.scorers.Put(s)
	return err
}

// pieceProducts is the least number of products of a piece in a large call, so that a
// goroutine does not take pieces too often.
const pieceProducts = 1 << 17

// run executes a call with pairs of q and d.
func (s *scorer) run(ctx context.Context, c *maxsim.Call, w maxsim.Work, q, d *maxsim.Batch, h *maxsim.Head) error {
	s.ctx, s.call, s.work, s.docs = ctx, c, w, d
	if w.Pairs == 0 {
		return nil
	}
	// 1. Divide the work, and lay out the queries.
	maxThreads := parallel.Threads(c.Threads, math.MaxInt)
	s.chooseUnits(q, d, h != nil, min(maxThreads, w.Pairs))
	loops := s.backend.tier.Vectors.Screen
	if q.Tokens.Dim < minScreenDim || q.Tokens.Rows() < minScreenColumns(d.Tokens.Type, s.preparedLevels) {
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
	// 2. As many workers as there are pieces, or segments of a long unit.
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
	// 3. Score the pieces, and then the long units, each by all workers.
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

// chooseUnits sets the kind and number of units, and the size of pieces. A unit with all
// queries reads each document once, but there must be enough documents for all threads.
func (s *scorer) chooseUnits(q, d *maxsim.Batch, hasHead bool, threads int) {
	s.firstDoc, s.docCount = 0, d.Len()
	if s.call.First > 0 || s.call.Count > 0 {
		s.firstDoc, s.docCount = s.call.First, s.call.Count
	}
	rows := d.Tokens.Rows()/max(d.Len(), 1) + 1 // of a document, on average
	perDoc := max(pieceProducts/(rows*(q.Tokens.Rows()+1)), 1)
	together := hasHead || q.Len() == 1 || threads == 1 || parallel.Blocks(s.docCount, perDoc) >= 2*threads
	switch {
	case s.call.Kind == maxsim.AllPairs && together:
		s.unitKind, s.units, s.pieceUnits = unitAllQueries, s.docCount, perDoc
	case hasHead: // computes the token vectors of a document once for all of its pairs
		s.unitKind, s.units, s.pieceUnits = unitDocument, d.Len(), 1
		s.grouped.reset(&s.call.Pairs, s.work, byDocument)
	default:
		s.unitKind, s.units = unitPair, s.work.Pairs
		s.pieceUnits = max(min(pieceProducts/(rows*(q.Tokens.Rows()/q.Len()+1)), s.units/(4*threads)), 1)
	}
}

// document returns the document of a unit.
func (s *scorer) document(unit int) int {
	switch s.unitKind {
	case unitAllQueries:
		return s.firstDoc + unit
	case unitDocument:
		return unit
	}
	_, d := s.call.PairAt(unit, s.work.D.Len())
	return d
}

// pairCount returns the number of pairs of a unit.
func (s *scorer) pairCount(unit int) int {
	switch s.unitKind {
	case unitAllQueries:
		return len(s.panels.spans)
	case unitDocument:
		return s.grouped.pairCount(unit)
	}
	return 1
}

// pairAndQuery returns the number of pair j of a unit, and its query.
func (s *scorer) pairAndQuery(unit, j int) (pair, query int) {
	switch s.unitKind {
	case unitAllQueries:
		return j*s.docCount + unit, j
	case unitDocument:
		unit = s.grouped.pairOfItem(unit, j)
	}
	query, _ = s.call.PairAt(unit, s.work.D.Len())
	return unit, query
}

// listSpans lists the panels of the queries of a unit in w.spans.
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

// Run scores the units of piece i, except those that are cut into segments.
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
		if err := w.findMaxima(s.ctx, &s.panels, s.preparedLevels, lo, 0, n); err != nil {
			return err
		}
		s.writeResults(w, u, n)
	}
	return nil
}

// writeResults writes the scores and argmaxima of a unit, whose document has n tokens.
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

// findMaxima finds, for the panels of w.spans, the best of the tokens from to to of a
// document that begins at row lo. preparedLevels are those of all prepared documents. nil means
// that blocks are rounded here, if they are screened.
func (w *worker) findMaxima(ctx context.Context, p *panels, preparedLevels *rounded, lo, from, to int) error {
	// 1. Maxima begin at −∞.
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
	// 2. Decide whether to screen, and the size of blocks.
	if len(w.rows.tokenRows) > 0 {
		preparedLevels = nil // these include the masked rows
	}
	n, maxRows := to-from, w.rows.blockRows()
	minColumns := minScreenColumns(w.rows.batch.Tokens.Type, preparedLevels)
	screen := p.screen.loops != nil && p.screen.usable && columns >= minColumns
	if screen {
		if w.screener == nil {
			w.screener = new(screener)
		}
		maxRows = p.screen.blockRows(&w.rows)
	}
	// 3. Raise the maxima, block by block.
	blocks := parallel.Blocks(n, maxRows)
	for k := range blocks {
		if err := ctx.Err(); err != nil {
			return err
		}
		w.raiseMaxima(p, preparedLevels, screen, panels, lo, from+k*n/blocks, from+(k+1)*n/blocks)
	}
	return nil
}

// raiseMaxima raises the maxima of the worker's panels by the tokens a to b of a document
// that begins at row lo. With screen it computes products only of tokens that may win.
func (w *worker) raiseMaxima(p *panels, preparedLevels *rounded, screen bool, panels, lo, a, b int) {
	var x, factors []float32
	var m int
	// For prepared documents and few panels, x stays nil: only the rows in doubt are converted.
	converted := !w.rows.normalize && w.rows.batch.Tokens.Type != maxsim.F32
	if screen && preparedLevels != nil && panels <= fewPanels && converted {
		factors = w.rows.blockScales(lo, a, b, b-a)
	} else {
		x, m, factors = w.rows.readBlock(lo, a, b)
	}
	// Panels for which too many tokens are in doubt are multiplied in full.
	screened := screen && w.screener.roundBlock(&p.screen, preparedLevels, lo+a, x, b-a, p.dim, factors)
	inVain := 0
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

// weightedSum returns the score of the query with these columns: the sum of its maxima times
// their weights. It writes their rows to argmax if that is not nil.
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

// pairGroups lists the pairs of a call by query or by document, here called item.
type pairGroups struct {
	pairs  *maxsim.Pairs
	work   maxsim.Work
	byDoc  bool
	order  []int32 // numbers of pairs: item i has order[starts[i]:starts[i+1]]
	starts []int32
}

// Values of pairGroups.byDoc.
const (
	byQuery    = false
	byDocument = true
)

// reset groups pairs by a counting sort. Numbers of AllPairs are computed instead.
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
	starts := g.starts[1:] // starts[i] is the next free entry of item i, in the end its end
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

// itemOfPair returns the query or the document of a pair.
func (g *pairGroups) itemOfPair(pair int) int {
	q, d := g.pairs.PairAt(pair, g.work.D.Len())
	if g.byDoc {
		return d
	}
	return q
}

// pairCount returns the number of pairs of an item.
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

// pairOfItem returns the number of the i-th pair of an item.
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
