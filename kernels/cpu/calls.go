package cpu

import (
	"github.com/plaid-ir/plaid/kernels"
)

// One call of a loop is to take less than some 200 µs, because the garbage
// collector cannot interrupt assembly: it looks up at most callLookups rows of
// tables, for at most callTokens tokens.
const (
	callTokens  = 4096
	callLookups = 1 << 18
)

// callSize is the number of tokens of one call that looks n rows up for each.
func callSize(n int) int { return max(min(callTokens, callLookups/n), 1) }

// callDocs is the largest number of documents of one call.
const callDocs = 256

// batch lists the token ranges of the documents from the i-th on, as many as
// go into one call of size tokens, one at least.
func (sc *scratch) batch(c *kernels.Chunk, docs []uint32, i, n, size int) [][2]uint32 {
	r := sc.ranges[:0]
	for total := 0; i < n && len(r) < callDocs; i++ {
		lo, hi := tokens(c, docs, i)
		if total += hi - lo; total > size && len(r) > 0 {
			break
		}
		r = append(r, [2]uint32{uint32(lo), uint32(hi)})
	}
	return r
}

// part returns what the j-th call of a batch is to do, nil after the last. A
// document too long for one call, always alone, is cut.
func (sc *scratch) part(batch [][2]uint32, j, size int) [][2]uint32 {
	lo, hi := int(batch[0][0]), int(batch[0][1])
	if len(batch) > 1 || hi-lo <= size {
		if j > 0 {
			return nil
		}
		return batch
	}
	if lo += j * size; lo >= hi {
		return nil
	}
	sc.cut[0] = [2]uint32{uint32(lo), uint32(min(lo+size, hi))}
	return sc.cut[:]
}
