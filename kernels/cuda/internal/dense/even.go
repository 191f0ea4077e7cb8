package dense

import "github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"

// even is n items of as many rows, some rows apart.
type even struct{ n, rows, apart int }

func (e even) len() int        { return e.n }
func (e even) count(int) int   { return e.rows }
func (e even) begin(i int) int { return i * e.apart }
func (e even) longest() int    { return e.rows }

// evenSegments is the segments of even items, each cut into as many.
type evenSegments struct {
	whole   even
	segment int
}

func (e evenSegments) each() int    { return max(runtime.CeilDiv(e.whole.rows, e.segment), 1) }
func (e evenSegments) len() int     { return e.whole.n * e.each() }
func (e evenSegments) longest() int { return min(e.segment, e.whole.rows) }
func (e evenSegments) count(i int) int {
	return min(e.whole.rows-i%e.each()*e.segment, e.segment)
}
func (e evenSegments) begin(i int) int {
	return e.whole.begin(i/e.each()) + i%e.each()*e.segment
}
