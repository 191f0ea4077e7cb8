package dense

import "github.com/plaid-ir/plaid/kernels/cuda/internal/driver"

// The structs of src/dense/dense.cuh.

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

type densePackParams struct {
	in, scales, zeros, rows, scale, unit, inverse driver.Ptr
	n, dim, source, format, rowBytes, _           uint32
}

type denseWeightsParams struct {
	weights, scale, out driver.Ptr
	n, _                uint32
}

type denseParams struct {
	docs, docScale, queries, weights, items, groups, units, out, arg driver.Ptr
	rowBytes, queryBytes, docFormat, queryFormat, dim, _             uint32
}

type denseSumParams struct{ part, out, partAt, outAt, groups, count driver.Ptr }

type denseGradParams struct {
	docs, docScale, docInverse, queries, queryScale, queryInverse, weights, upstream, arg driver.Ptr
	groups, items, pairs, pairFirst, rowGroup, out                                        driver.Ptr
	rowBytes, queryBytes, docFormat, queryFormat, dim, rows, nDocs, nGroups               uint32
}
