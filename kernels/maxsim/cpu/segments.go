package cpu

import (
	"context"
	"runtime/debug"
	"sort"

	"github.com/plaid-ir/plaid/internal/parallel"
)

// A document that is a large share of the work is cut into segments, which several
// goroutines score. Results have the same bits: products do not depend on the tile that they
// are computed in, and of equal maxima that of the first segment is kept.

// longUnit is a unit whose document is cut into segments.
type longUnit struct {
	unit, segments int
}

// segments scores one long unit.
type segments struct {
	scorer           *scorer
	unit             int
	firstRow, tokens int              // of the document
	count            int              // of segments
	panels           int              // of all queries
	best             [][width]float32 // maxima, [count, panels]
	arg              [][width]int32   // their tokens, [count, panels]
	pool             parallel.Pool
}

// segmentRows is the least number of tokens of a segment.
const segmentRows = 512

// findLongUnits lists the units that are too large for one goroutine: those with at least
// two segments of tokens and more than half of a thread's share of the products.
func (s *scorer) findLongUnits(threads int) {
	s.longUnits = s.longUnits[:0]
	if threads == 1 {
		return
	}
	longest, total := 0, 0.0
	for u := range s.units {
		rows, products := s.countProducts(u)
		longest = max(longest, rows)
		total += products
	}
	if longest < 2*segmentRows {
		return
	}
	for u := range s.units {
		rows, products := s.countProducts(u)
		if rows < 2*segmentRows || products*float64(2*threads) < total {
			continue
		}
		if n := min(4*threads, int(products)/pieceProducts, rows/segmentRows); n > 1 {
			s.longUnits = append(s.longUnits, longUnit{u, n})
		}
	}
}

// countProducts returns the number of rows of a unit's document, and of its products with
// query tokens.
func (s *scorer) countProducts(unit int) (rows int, products float64) {
	if s.pairCount(unit) == 0 {
		return 0, 0
	}
	lo, hi := s.docs.Span(s.document(unit))
	n := len(s.panels.rows)
	if s.unitKind != unitAllQueries {
		n = 0
		for j := range s.pairCount(unit) {
			_, q := s.pairAndQuery(unit, j)
			n += s.panels.spans[q].hi - s.panels.spans[q].lo
		}
	}
	return hi - lo, float64(hi-lo) * float64(n)
}

// isLong reports whether a unit is cut into segments.
func (s *scorer) isLong(unit int) bool {
	i := sort.Search(len(s.longUnits), func(i int) bool { return s.longUnits[i].unit >= unit })
	return i < len(s.longUnits) && s.longUnits[i].unit == unit
}

// scoreInSegments scores a long unit by all threads, and merges the maxima of its segments.
func (s *scorer) scoreInSegments(ctx context.Context, l *longUnit, threads int) error {
	x, w := &s.segments, &s.workers[0]
	x.scorer, x.unit, x.panels = s, l.unit, s.panels.panelCount()
	x.firstRow, x.tokens = w.rows.startItem(s.document(l.unit))
	s.listSpans(w, l.unit)
	x.count = min(l.segments, x.tokens) // masks may leave few tokens
	x.best, x.arg = resize(x.best, x.count*x.panels), resize(x.arg, x.count*x.panels)
	if err := x.pool.Run(ctx, x.count, threads, x); err != nil {
		return err
	}
	for _, span := range w.spans {
		for i := span.lo; i < span.hi; i++ {
			for g := range x.count {
				best, arg := &x.best[g*x.panels+i], &x.arg[g*x.panels+i]
				if g == 0 {
					w.best[i], w.arg[i] = *best, *arg
					continue
				}
				for j, v := range best {
					if v > w.best[i][j] {
						w.best[i][j], w.arg[i][j] = v, arg[j]
					}
				}
			}
		}
	}
	s.writeResults(w, l.unit, x.tokens)
	return nil
}

// Run finds the maxima of segment i.
func (x *segments) Run(worker, i int) error {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	w := &x.scorer.workers[worker]
	w.rows.startItem(x.scorer.document(x.unit))
	x.scorer.listSpans(w, x.unit)
	from, to := i*x.tokens/x.count, (i+1)*x.tokens/x.count
	if err := w.findMaxima(x.scorer.ctx, &x.scorer.panels, x.scorer.preparedLevels, x.firstRow, from, to); err != nil {
		return err
	}
	for _, span := range w.spans {
		copy(x.best[i*x.panels+span.lo:i*x.panels+span.hi], w.best[span.lo:span.hi])
		copy(x.arg[i*x.panels+span.lo:i*x.panels+span.hi], w.arg[span.lo:span.hi])
	}
	return nil
}
