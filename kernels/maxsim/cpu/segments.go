package cpu

import (
	"context"
	"runtime/debug"
	"sort"

	"github.com/plaid-ir/plaid/internal/parallel"
)

// A document that is much of the work is cut into segments, which several goroutines
// take. Products do not depend on the tile that they are computed in, and the first of
// the largest maxima of the segments is the first of all, so that results are the same
// bits.

// longUnit is a unit whose document is cut.
type longUnit struct {
	unit, segments int
}

// segments does one long unit.
type segments struct {
	scorer *scorer
	unit   int
	lo, n  int
	count  int
	panels int
	best   [][width]float32 // of each segment and panel
	arg    [][width]int32
	pool   parallel.Pool
}

// segmentRows is the least number of tokens of a segment.
const segmentRows = 512

// findLong lists the units that are too large a share of the work for one goroutine.
func (s *scorer) findLong(threads int) {
	s.long = s.long[:0]
	if threads == 1 {
		return
	}
	longest, total := 0, 0.0
	for u := range s.units {
		rows, products := s.products(u)
		longest = max(longest, rows)
		total += products
	}
	if longest < 2*segmentRows {
		return
	}
	for u := range s.units {
		rows, products := s.products(u)
		if rows < 2*segmentRows || products*float64(2*threads) < total {
			continue
		}
		if n := min(4*threads, int(products)/pieceProducts, rows/segmentRows); n > 1 {
			s.long = append(s.long, longUnit{u, n})
		}
	}
}

// products counts the rows of a unit's document, and its products with query tokens.
func (s *scorer) products(unit int) (rows int, products float64) {
	if s.pairs(unit) == 0 {
		return 0, 0
	}
	lo, hi := s.docs.Span(s.document(unit))
	n := len(s.panels.rows)
	if s.by != withAll {
		n = 0
		for j := range s.pairs(unit) {
			_, q := s.pair(unit, j)
			n += s.panels.spans[q].hi - s.panels.spans[q].lo
		}
	}
	return hi - lo, float64(hi-lo) * float64(n)
}

func (s *scorer) isLong(unit int) bool {
	i := sort.Search(len(s.long), func(i int) bool { return s.long[i].unit >= unit })
	return i < len(s.long) && s.long[i].unit == unit
}

// inSegments does a long unit.
func (s *scorer) inSegments(ctx context.Context, l *longUnit, threads int) error {
	x, w := &s.segments, &s.workers[0]
	x.scorer, x.unit, x.panels = s, l.unit, s.panels.count()
	x.lo, x.n = w.rows.item(s.document(l.unit))
	s.spansOf(w, l.unit)
	x.count = min(l.segments, x.n) // tokens, of which masks may leave few
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
	s.finish(w, l.unit, x.n)
	return nil
}

// Run does a segment.
func (x *segments) Run(worker, i int) error {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	w := &x.scorer.workers[worker]
	w.rows.item(x.scorer.document(x.unit))
	x.scorer.spansOf(w, x.unit)
	from, to := i*x.n/x.count, (i+1)*x.n/x.count
	if err := w.maxima(x.scorer.ctx, &x.scorer.panels, x.scorer.levels, x.lo, from, to); err != nil {
		return err
	}
	for _, span := range w.spans {
		copy(x.best[i*x.panels+span.lo:i*x.panels+span.hi], w.best[span.lo:span.hi])
		copy(x.arg[i*x.panels+span.lo:i*x.panels+span.hi], w.arg[span.lo:span.hi])
	}
	return nil
}
