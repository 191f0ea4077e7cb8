package kernels

import "github.com/plaid-ir/plaid/kernels/amx"

// prims are the inner loops of a CPU backend: everything else is the same Go
// code on every processor. A tier replaces those loops that it has faster ones
// for; all of them compute the same integers, and the same float32 operations
// in the same order, so that the tiers agree to the bit.
type prims struct {
	name string
	// uses names, for each stage, the tier whose loops are in use; "" is generic.
	uses [stages]string

	// accumulate adds to acc[i] the rows that the bytes of vector i select, one
	// from each table: byte p of the vector, at i·stride + p, selects from table p.
	accumulate func(acc []row, tables []byteTable, vectors []byte, stride int)
	// compose fills a byte table from the rows of its two nibbles: the entry of
	// byte b is lo[b&15] + hi[b>>4].
	compose func(t *byteTable, lo, hi *[16]row)

	// maxFast raises best[i] to the largest products, over the tokens of
	// ranges[i], of the factor and 32768 less than the 16-bit lanes of
	// scores[code] + Σ tables. Products of even lanes come first, then those of
	// odd ones. Where scales is not nil the sum of the tables is first
	// multiplied by scales[code]/2¹⁶ and rounded down.
	maxFast func(best [][fastGroup]int32, ranges [][2]uint32, tables []byteTable, scores []row,
		codes []byte, codeBytes int, residuals, factors []byte, scales []uint32)
	// tiles, where there is one, does the work of maxFast for codecs whose weights
	// are uniform, with other roundings.
	tiles func(r *amx.Rerank)
	// maxFine raises best[i] to the largest products, over the tokens of
	// ranges[i], of the factor and scores[code·stride+lane] + a·(mid + unit·(sum − 2³¹)),
	// with the 32-bit lanes of the sum Σ tables, for the first n lanes; a is
	// scales[code], or 1.
	maxFine func(best [][fineGroup]float32, ranges [][2]uint32, tables []byteTable, scores []float32,
		codes []byte, codeBytes int, residuals, factors []byte, scales []float32,
		stride, n int, mid, unit *[fineGroup]float32)
	// maxLevels is maxFine for uniform levels and groups of levelGroup query
	// tokens, by dot products of levels with query integers of so many parts; see
	// levelQuery. levels is scratch memory, (8/nbits)·(4·rowBytes+64) bytes. Nil
	// where there are no such instructions.
	maxLevels func(best [][levelGroup]float32, ranges [][2]uint32, query, levels []byte, nbits, parts int, scores []float32,
		codes []byte, codeBytes, rowBytes int, residuals, factors []byte, scales []float32,
		stride, n int, mid, unit *[levelGroup]float32)
	// maxBytes raises the bytes of best[i] to those of rows[code] over the
	// tokens of ranges[i].
	maxBytes func(best []row4, ranges [][2]uint32, rows []row4, codes []byte, codeBytes int)

	// centroidScores writes the products of m centroids with all query tokens,
	// the padding of a row set to 0, and widens the ranges lo to hi of the columns.
	centroidScores func(dst []float32, centroids []float32, m int, q *queryVectors, lo, hi []float32)
	// widen converts 16-bit floats.
	widenBF16, widenF16 func(dst []float32, src []byte)
	// above writes to rows the numbers of those of the len(rows) rows of S that
	// exceed limits in any of their first n ≤ 32 columns, and returns how many
	// there are; limits is +Inf from n on.
	above func(rows []uint32, scores []float32, stride, n int, limits *[32]float32) int
	// bytes writes mul·S + add of n ≤ 32 columns of S, rounded down and limited
	// to 0..127, the rest 0.
	bytes func(dst []row4, scores []float32, stride, n int, mul, add *[32]float32)
	// words writes mul·S + a·low + bias of n ≤ 32 columns of S, rounded down, in
	// 16-bit lanes, the rest 0; a is the entry of scales for the row, or 1. Where
	// there are tiles the results may exceed 16 bits, of which the lowest are kept.
	words func(dst []row, scores []float32, stride, n int, mul, low *[32]float32, bias float32, scales []float32)

	// lanes says that centroidScores computes on lanes of query tokens.
	lanes bool
	// filter has the loops of the nearest centroid by products of bytes, nil
	// where there are none.
	filter *filterPrims
}

// portable are the loops in plain Go.
var portable = prims{
	name:           "generic",
	accumulate:     accumulate,
	compose:        compose,
	maxFast:        maxFast,
	maxFine:        maxFine,
	maxBytes:       maxBytes,
	centroidScores: centroidScores,
	widenBF16:      widenBF16,
	widenF16:       widenF16,
	bytes:          bytesOf,
	words:          wordsOf,
	above:          above,
}

// queryVectors are the vectors of a query in both orders.
type queryVectors struct {
	n, dim, stride int
	vectors        []float32 // [n, dim]
	lanes          []float32 // [groups of 32, dim, 32], 0 beyond n
}

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
func (sc *scratch) batch(c *Chunk, docs []uint32, i, n, size int) [][2]uint32 {
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
