package dense

import "github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"

// evenSpans are items with the same number of rows, whose first rows are stride apart.
type evenSpans struct{ items, rowsPerItem, stride int }

func (e evenSpans) itemCount() int     { return e.items }
func (e evenSpans) rowCount(int) int   { return e.rowsPerItem }
func (e evenSpans) firstRow(i int) int { return i * e.stride }
func (e evenSpans) longestItem() int   { return e.rowsPerItem }

// evenSegments are the segments of even items: each item has the same number of them.
type evenSegments struct {
	documents evenSpans
	segment   int
}

// segmentsPerItem returns the number of segments of each item, at least one.
func (e evenSegments) segmentsPerItem() int {
	return max(runtime.CeilDiv(e.documents.rowsPerItem, e.segment), 1)
}
func (e evenSegments) itemCount() int   { return e.documents.items * e.segmentsPerItem() }
func (e evenSegments) longestItem() int { return min(e.segment, e.documents.rowsPerItem) }
func (e evenSegments) rowCount(i int) int {
	return min(e.documents.rowsPerItem-i%e.segmentsPerItem()*e.segment, e.segment)
}
func (e evenSegments) firstRow(i int) int {
	return e.documents.firstRow(i/e.segmentsPerItem()) + i%e.segmentsPerItem()*e.segment
}
