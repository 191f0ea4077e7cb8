package dense

import (
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// The structs of src/dense/dense.cuh, which documents their fields.

type denseItem struct {
	begin    uint64
	len, pos uint32
}

type denseGroup struct {
	out, arg             uint64
	row, count, argPitch uint32
	_                    uint32
}

type denseUnit struct {
	group, groups, begin, end uint32
	first                     denseItem
}

type denseCodec struct {
	centroids, centroidScale, dimScale, weights      driver.Ptr
	factor                                           float32
	nbits, residualBytes, codeBytes, centroidType, _ uint32
}

type densePackParams struct {
	in, scales, zeros, rows, scale, unit, inverse driver.Ptr
	n, dim, source, format, rowBytes, columns     uint32
	residuals, factors                            driver.Ptr
	codec                                         denseCodec
}

type denseWeightsParams struct {
	weights, scale, out driver.Ptr
	n, stride           uint32
	lengths, mask       driver.Ptr
	maskStride          uint64
	items, longest      uint32
}

type densePrepareParams struct {
	side           [2]densePackParams
	weights        denseWeightsParams
	firstBlocks, _ uint32
}

type denseFillParams struct {
	dOffsets, dLengths, dMask, rowMask, qOffsets, pairQ, pairD driver.Ptr
	unitsIn, groupsIn, items, groups, units, joins             driver.Ptr
	dStride, dMaskStride, qStride                              uint64
	dItems, dLongest, qItems, qLongest                         uint32
	nItems, nGroups, nUnits, nJoins                            uint32
	segment, segments, tokens, perQuery, unitGroups, argPitch  uint32
	runs, joinDocs, joinPitch, dRows, qRows, _                 uint32
}

type denseParams struct {
	docs, docScale, queries, weights, items, groups, units, out, arg driver.Ptr
	rowBytes, queryBytes, docFormat, queryFormat, dim, _             uint32
	top, mask                                                        driver.Ptr
}

type denseSumParams struct{ part, out, partAt, outAt, groups, count driver.Ptr }

type denseGradSide struct {
	rows, scale, inverse, zeros, offsets, pairItem, pairFirst, pairs, out driver.Ptr
	nRows                                                                 uint64
	items, stride, longest, format, rowBytes, outType, whole, _           uint32
}

type denseGradParams struct {
	q, d                                                              denseGradSide
	weights, upstream, arg                                            driver.Ptr
	pitch, dim, kind, count, groups, docBlocks, tiles, parts, rows, _ uint32
}

type denseListSide struct {
	item, first, loose, pairs, counts driver.Ptr
	items, _                          uint32
}

type denseListsParams struct {
	q, d                 denseListSide
	n, from, end, passes uint32
}

type denseRankParams struct {
	scores, items, best, list driver.Ptr
	n, nItems, k, first       uint32
}

type denseJoin struct {
	first, out              uint64
	segments, row, count, _ uint32
}

type denseJoinParams struct {
	top, arg, weights, joins, out, outArg driver.Ptr
	pitch, segment                        uint32
}

type denseProjectParams struct {
	hidden, hiddenScale, weights, weightScale, bias, out, rowsOut, scale, unit        driver.Ptr
	rows, dim, rowBytes, weightBytes, hiddenFormat, weightFormat, hiddenDim, outBytes uint32
}

type denseHeadParams struct {
	head             denseProjectParams
	score            denseParams
	normalize, ahead uint32
}

type denseChamferPair struct {
	x, y, keyX, keyY uint64
	xLen, yLen       uint32
}

type denseChamferSide struct {
	rows, scale, mask, points, norms, near      driver.Ptr
	n, bytes, format, stride, maskStride, pitch uint32
}

type denseChamferParams struct {
	side                                                  [2]denseChamferSide
	pairs, keys, seconds, doubt, counts, parts, done, out driver.Ptr
	nKeys                                                 uint64
	nPairs, dim, pointBytes, products, l1, mean           uint32
}

type denseChamferItems struct {
	offsets, lengths, list       driver.Ptr
	items, stride, longest, rows uint32
}

type denseChamferPairsParams struct {
	side              [2]denseChamferItems
	pairs             driver.Ptr
	n, kind, count, _ uint32
}

type denseChamferGradSide struct {
	rows, scale, near, head, next, offsets, pairFirst, pairList, out driver.Ptr
	n                                                                uint64
	bytes, format, outType, items, stride, pitch                     uint32
}

type denseChamferGradParams struct {
	side                              [2]denseChamferGradSide
	pairs, counts, chains, upstream   driver.Ptr
	nPairs, kind, count, dim, mean, _ uint32
}

// reserveSlice reserves memory for a slice.
func reserveSlice[T any](a *runtime.Arena, s []T) int64 {
	return a.Append(int64(len(runtime.Bytes(s))))
}

// writeStructs copies a slice to memory that reserveSlice reserved.
func writeStructs[T any](to []byte, s []T) { copy(to, runtime.Bytes(s)) }

// tables are slices that are copied to the device together.
type tables struct {
	runtime.Arena
	entries []tableEntry
}

type tableEntry struct {
	offset int64
	data   []byte
}

// addTable adds a slice and returns its offset. [tables.write] copies it.
func addTable[T any](t *tables, s []T) (offset int64) {
	offset = reserveSlice(&t.Arena, s)
	t.entries = append(t.entries, tableEntry{offset, runtime.Bytes(s)})
	return offset
}

// write copies all tables to their offsets in host memory.
func (t *tables) write(host []byte) {
	for _, x := range t.entries {
		copy(host[x.offset:], x.data)
	}
}
