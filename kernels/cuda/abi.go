package cuda

import "github.com/plaid-ir/plaid/kernels/cuda/driver"

// The parameters of the kernels, field for field as in src/plaid.cuh, which
// says what they mean, and the constants of that file.

const (
	tileTokens  = 16
	columns     = 32 // query tokens of a group
	scanThreads = 128
	spareTiles  = 4 // zero tiles after the last one
	maxTopK     = 4096
	topkBlock   = 8192 // entries that a block of topk_* reduces
	noDocument  = 0xFFFFFFFF
	tableMode   = 16
	halfMode    = 32 // + bits: scan_f*, of sm_90a alone
	maxDocs     = 1<<31 - 1
	maxRatio    = 64 // of scales of centroids, for scan_b*
)

type packParams struct {
	codes, factors, residuals, offsets, firstTile, centroidScale driver.Ptr
	words, rows, tileDoc                                         driver.Ptr
	docs, docBase, tiles, codeBytes, rowBytes, laneWords         uint32
}

type prepParams struct {
	query, weights, dimScale, frags, cols, bound, split driver.Ptr
	dim, mode, nbits, laneWords, fragStride             uint32
	step, sMax, factorMax                               float32
}

type centroidParams struct {
	centroids, split, cols, invScale, sRows, sFloat driver.Ptr
	k, dim, halfRows, _                             uint32
}

type listParams struct {
	docs, nDev, firstTile, walk, posFirst, posEnd, tilesTotal driver.Ptr
	n, walkCapacity                                           uint32
}

type scanParams struct {
	words, rows, tileDoc, walk, nTilesDev, docFirst, docEnd driver.Ptr
	sRows, frags, cols, table, scores, part, count          driver.Ptr
	sStride, scoreStride                                    uint64
	nTiles, laneWords, fragStride, dim, nbits, _            uint32
}

type topkFirstParams struct {
	scores, groupBegin, ids, nDev, allowed, keys driver.Ptr
	stride                                       uint64
	n, k                                         uint32
	idsStride                                    uint64
}

type topkNextParams struct {
	keys, out, outIDs, outScores, outN driver.Ptr
	n, k                               uint32
}

type fineParams struct {
	words, rows, firstTile, centroids, weightsTable, dimScale, centroidRatio driver.Ptr
	query, weights, groupBegin, ids, best, scores                            driver.Ptr
	factorMax, aMax                                                          float32
	n, dim, nbits, laneWords, maxGroups, _                                   uint32
}

type markParams struct {
	ids, weights, bitmap driver.Ptr
	columns, picked, n   uint32
}

type candidateParams struct {
	words, tileDoc, bitmap, hits driver.Ptr
	tiles, k, smem, _            uint32
}

type compactParams struct {
	a, b, list, n   driver.Ptr
	words, capacity uint32
}

type halfParams struct {
	in, out, norms, errors driver.Ptr
	n, rows, dim, width    uint32
}

type nearestParams struct {
	xHalf, cHalf, x, centroids, xNorms, xErrors, slots, codes, scores driver.Ptr
	cNorm, cError                                                     float32
	n, k, dim, width                                                  uint32
}

// laneWords is W: a row of packed fields takes 16·W bytes.
func laneWords(dim, nbits int) int { return (((dim*nbits + 7) / 8) + 15) / 16 }

// fragWords is the number of words of the operand of a group.
func fragWords(mode, lanes, nbits int) int {
	steps := 0
	switch mode {
	case 1:
		steps = 5 * lanes
	case 2:
		steps = 3 * lanes
	case 4:
		steps = 2 * lanes
	case 8:
		steps = 2 * ((lanes + 1) / 2)
	case halfMode + 1:
		steps = 8 * lanes
	case halfMode + 2:
		steps = 4 * lanes
	case halfMode + 4:
		steps = 2 * lanes
	default:
		steps = 8 * lanes / nbits
	}
	return steps * 256
}

func ceilDiv[T int | int64 | uint32 | uint64](a, b T) T { return (a + b - 1) / b }
