package compressed

import (
	"fmt"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

type probePickParams struct {
	scores, maxima, ids, outScores, clock driver.Ptr
	k, picked                             uint32
}

type markParams struct {
	ids, scores, unit, cols, groupBegin, marks, bits, gainCols, gaps driver.Ptr
	picked, n, queries, bitWords                                     uint32
}

type candidateParams struct {
	codes, tileDoc, marks, bits, hits  driver.Ptr
	tiles, bitWords, staged, codeBytes uint32
}

type compactParams struct {
	hits, allowed, list, n driver.Ptr
	docs, query            uint32
}

type gainParams struct {
	docs, nDev, firstTile, codes, bits, sRows, invScale, gainCols, gap, gains, levels driver.Ptr
	n, groups, k, halfRows, bitWords, staged, codeBytes, _                            uint32
}

type cutParams struct {
	docs, nDev, gains, levels, firstTile, list, kept, walk, posFirst, posEnd, tilesTotal driver.Ptr
	n, most, walkCapacity, _                                                             uint32
}

// gainLevels is the number of levels of the histogram of gains, which decides the documents to keep.
const gainLevels = 4096

// maxProbedQueries is the maximum of queries with probes in a batch: each has a bit of a 32-bit
// word.
const maxProbedQueries = 32

// findCandidates finds, for all queries at once, the documents that have a token of one of
// the best centroids of a query token.
func (b *batch) findCandidates(t target) error {
	s, m := b.shape, &b.tmp
	n := b.pickedCentroids()
	if err := b.bestCentroids(n); err != nil {
		return err
	}
	if err := b.rt.Driver.Set(b.scratchPtr(m.marks), 0, m.gains-m.marks, b.rt.Stream); err != nil {
		return err
	}
	err := runtime.Launch(b.rt, "probe_mark", b.queries, 1, 1, 1024, 0, &markParams{
		ids:        b.scratchPtr(m.probes),
		scores:     b.scratchPtr(m.probeScores),
		unit:       b.scratchPtr(m.unit),
		cols:       b.scratchPtr(m.cols),
		groupBegin: b.groupBeginPtr(),
		marks:      b.scratchPtr(m.marks),
		bits:       b.scratchPtr(m.bits),
		gainCols:   b.scratchPtr(m.gainCols),
		gaps:       b.scratchPtr(m.gaps),
		picked:     uint32(n),
		n:          uint32(b.probedCentroids()),
		queries:    uint32(b.queries),
		bitWords:   uint32(s.bitWords()),
	})
	if err != nil {
		return err
	}
	staged, shared := s.stagedBits(maxStagedBytes)
	blocks, err := b.rt.FillingBlocks("candidates", bitThreads, shared)
	if err != nil {
		return err
	}
	blocks = min(blocks, int(runtime.CeilDiv(t.tiles, bitThreads)))
	return runtime.Launch(b.rt, "candidates", blocks, 1, 1, bitThreads, shared, &candidateParams{
		codes:     t.packed.codes.Ptr,
		tileDoc:   t.packed.tileDoc.Ptr,
		marks:     b.scratchPtr(m.marks),
		bits:      b.bitsAt(b.queries),
		hits:      b.scratchPtr(m.hits),
		tiles:     uint32(t.tiles),
		bitWords:  uint32(s.bitWords()),
		staged:    staged,
		codeBytes: uint32(s.codeBytes),
	})
}

// bestCentroids picks the n best centroids of each query token, in order.
func (b *batch) bestCentroids(n int) error {
	s, m, rows := b.shape, &b.tmp, b.groups*columns
	if b.picksByMaxima() {
		return runtime.Launch(b.rt, "probe_pick", rows, 1, 1, 32, 0, &probePickParams{
			scores:    b.scratchPtr(m.sFloat),
			maxima:    b.scratchPtr(m.maxima),
			ids:       b.scratchPtr(m.probes),
			outScores: b.scratchPtr(m.probeScores),
			clock:     b.clockAt(clockCentroids),
			k:         uint32(s.k),
			picked:    uint32(n),
		})
	}
	gx := runtime.CeilDiv(s.k, topkBlock)
	err := runtime.Launch(b.rt, "topk_first", gx, rows, 1, 1024, 0, &topkFirstParams{
		scores: b.scratchPtr(m.sFloat),
		keys:   b.scratchPtr(m.probeKeys),
		clock:  b.clockAt(clockCentroids),
		stride: uint64(s.k),
		n:      uint32(s.k),
		k:      uint32(n),
	})
	if err != nil {
		return err
	}
	return b.mergeTopK(b.scratchPtr(m.probeKeys), b.scratchPtr(m.probeKeys2), gx*n, rows, n, b.scratchPtr(m.probes),
		b.scratchPtr(m.probeScores))
}

// If few of not too many centroids are picked, centroid_scores stores the maximum of each group of
// centroidsPerMaximum scores, and probe_pick reads only the groups with the best maxima.
const maxPicked, maxMaximaPerColumn, centroidsPerMaximum = 64, 2048, 128

// picksByMaxima reports whether centroids are picked by maxima of groups of them.
func (b *batch) picksByMaxima() bool {
	return b.pickedCentroids() <= maxPicked && b.shape.k <= centroidsPerMaximum*maxMaximaPerColumn
}

// bitThreads is the block size of the kernels that look up codes in the bits of probed centroids.
const bitThreads = 512

// bitWords returns the number of words that have a bit for each centroid.
func (s *shape) bitWords() int { return runtime.CeilDiv(s.k, 32) }

// stagedBits returns 1 and the size of the bits if they fit into maxBytes of shared memory, else 0 and 0.
func (s *shape) stagedBits(maxBytes int) (staged uint32, shared int) {
	if shared = 4 * s.bitWords(); shared > maxBytes {
		return 0, 0
	}
	return 1, shared
}

// bitsAt returns the address of the bits of a query. The number of queries stands for the union of
// the bits of all queries.
func (b *batch) bitsAt(query int) driver.Ptr {
	return b.scratchPtr(b.tmp.bits + 4*int64(query)*int64(b.shape.bitWords()))
}

// probedCentroids returns how many centroids a query token probes; all queries of a batch probe the
// same number.
func (b *batch) probedCentroids() int { return min(b.requests[0].query.Probes, b.shape.k, maxTopK) }

// pickedCentroids returns how many centroids are picked: the probed ones and the next one, whose score
// bounds the scores of all centroids that are not probed.
func (b *batch) pickedCentroids() int { return min(b.requests[0].query.Probes+1, b.shape.k, maxTopK) }

// keptDocs returns the maximum of found documents that are scored, where 0 means all of them.
func (b *batch) keptDocs(docs int64) int64 {
	if keep := int64(b.requests[0].query.MaxCandidates); keep < docs {
		return keep
	}
	return 0
}

// listFound lists the documents that probing has found for a query, and returns the list as target.
func (b *batch) listFound(t target, query int) (target, error) {
	t.ids, t.listLenPtr = b.scratchPtr(b.tmp.found), b.outputPtr(b.out.candidates+4*int64(query))
	return t, runtime.Launch(b.rt, "compact", int(runtime.CeilDiv(t.docs, 256)), 1, 1, 256, 0, &compactParams{
		hits:    b.scratchPtr(b.tmp.hits),
		allowed: t.allowed,
		list:    t.ids,
		n:       t.listLenPtr,
		docs:    uint32(t.docs),
		query:   uint32(query),
	})
}

// cutFound keeps the documents of a list with the largest gains, whole levels of them and at most keep
// documents, and returns them as target, with the walk of their tiles. The batch has a single query.
func (b *batch) cutFound(t target, query int, keep int64) (target, error) {
	s, m := b.shape, &b.tmp
	staged, shared := s.stagedBits(maxStagedBytes / 2) // the other half is for codes
	blocks, err := b.rt.FillingBlocks("gains", bitThreads, shared)
	if err != nil {
		return t, err
	}
	blocks = min(blocks, int(runtime.CeilDiv(t.docs, bitThreads/32)))
	g, levels := int64(b.group), b.scratchPtr(m.levels+4*gainLevels*int64(query))
	p := &gainParams{
		docs:      t.ids,
		nDev:      t.listLenPtr,
		firstTile: t.packed.firstTile.Ptr,
		codes:     t.packed.codes.Ptr,
		bits:      b.bitsAt(query),
		sRows:     b.scratchPtr(m.sRows + 64*g*int64(s.k)),
		invScale:  b.attachment.codecArray(b.attachment.arrays.invScale),
		gainCols:  b.scratchPtr(m.gainCols + 16*g*columns),
		gap:       b.scratchPtr(m.gaps + 4*int64(query)),
		gains:     b.scratchPtr(m.gains),
		levels:    levels,
		n:         uint32(t.docs),
		groups:    uint32(b.groups),
		k:         uint32(s.k),
		bitWords:  uint32(s.bitWords()),
		staged:    staged,
		codeBytes: uint32(s.codeBytes),
	}
	if s.mode > halfMode {
		p.halfRows = 1
	}
	if err := runtime.Launch(b.rt, "gains", blocks, 1, 1, bitThreads, shared, p); err != nil {
		return t, err
	}
	kept := b.outputPtr(b.out.kept + 4*int64(query))
	err = runtime.Launch(b.rt, "cut", int(runtime.CeilDiv(t.docs, 256)), 1, 1, 256, 0, &cutParams{
		docs:         t.ids,
		nDev:         t.listLenPtr,
		gains:        p.gains,
		levels:       levels,
		firstTile:    p.firstTile,
		list:         b.scratchPtr(m.kept),
		kept:         kept,
		walk:         b.scratchPtr(m.walk),
		posFirst:     b.scratchPtr(m.posFirst),
		posEnd:       b.scratchPtr(m.posEnd),
		tilesTotal:   b.outputPtr(b.out.tiles),
		n:            uint32(t.docs),
		most:         uint32(keep),
		walkCapacity: uint32(t.tiles),
	})
	t.ids, t.listLenPtr, t.docs, t.walkReady = b.scratchPtr(m.kept), kept, keep, true
	return t, err
}

// singleQuery returns a batch of one query of this batch, with the same memory, to scan and
// pick it alone.
func (b *batch) singleQuery(query int) *batch {
	single := *b
	q, room := int64(query), int64(b.capacity)
	single.queries, single.group = 1, int(b.groupBegin[query])
	single.groups = int(b.groupBegin[query+1] - b.groupBegin[query])
	single.in.groupBegin += 4 * q
	single.out.found += 16 * q
	single.out.tiles += 4 * q
	single.out.ids += 4 * q * room
	single.out.fine += 4 * q * room
	single.out.coarse += 8 * q * room
	single.probedTogether, single.notFirst, single.notLast = b.queries > 1, query > 0, query+1 < b.queries
	return &single
}

// searchProbed finds the candidates of all queries, and then ranks those of each query.
func (b *batch) searchProbed(t target, wide bool) error {
	if err := b.findCandidates(t); err != nil {
		return err
	}
	for i := range b.requests {
		found, err := b.listFound(t, i)
		if err != nil {
			return err
		}
		single := b.singleQuery(i)
		if keep := b.keptDocs(t.docs); keep > 0 {
			if found, err = single.cutFound(found, i, keep); err != nil {
				return err
			}
		}
		if err := single.rankTarget(found, wide); err != nil {
			return err
		}
	}
	return nil
}

type listParams struct {
	docs, nDev, firstTile, walk, posFirst, posEnd, tilesTotal driver.Ptr
	n, walkCapacity                                           uint32
}

type scanParams struct {
	words, rows, tileDoc, walk, nTilesDev, docFirst, docEnd driver.Ptr
	sRows, frags, cols, table, scores, part, count, clock   driver.Ptr
	sStride, scoreStride                                    uint64
	nTiles, laneWords, fragStride, dim, nbits, groups       uint32
}

// scanTarget launches the scan, which computes a score for each group and entry of the target.
func (b *batch) scanTarget(t target) error {
	s := b.shape
	kernel := s.chooseScan(t.isList, b.sideBySide)
	blocks, err := b.scanBlocks(t, kernel)
	if err != nil {
		return err
	}
	first, g := t.packed.firstTile.Ptr, int64(b.group)
	p := &scanParams{
		words:       t.packed.words.Ptr,
		rows:        t.packed.rows.Ptr,
		tileDoc:     t.packed.tileDoc.Ptr,
		docFirst:    first,
		docEnd:      first + 4,
		sRows:       b.scratchPtr(b.tmp.sRows + 64*g*int64(s.k)),
		frags:       b.scratchPtr(b.tmp.frags + 4*g*int64(s.fragStride)),
		cols:        b.scratchPtr(b.tmp.cols + 16*g*columns),
		table:       b.attachment.codecArray(b.attachment.arrays.table),
		scores:      b.scratchPtr(b.tmp.scores + 4*g*t.docs),
		part:        b.scratchPtr(b.tmp.part),
		count:       b.rt.Work.Zeroed.Ptr,
		clock:       b.clockAt(clockProbed),
		sStride:     uint64(columns * s.k),
		scoreStride: uint64(t.docs),
		nTiles:      uint32(t.tiles),
		laneWords:   uint32(s.lanes),
		fragStride:  uint32(s.fragStride),
		dim:         uint32(s.dim),
		nbits:       uint32(s.nbits),
		groups:      uint32(b.groups),
	}
	if t.isList {
		if err := b.walkList(t); err != nil {
			return err
		}
		p.walk, p.nTilesDev = b.scratchPtr(b.tmp.walk), b.outputPtr(b.out.tiles)
		p.docFirst, p.docEnd = b.scratchPtr(b.tmp.posFirst), b.scratchPtr(b.tmp.posEnd)
	}
	return launchChained(b, kernel.name, blocks, runtime.CeilDiv(b.groups, kernel.side), 1, kernel.threads,
		kernel.shared, p)
}

// walkList makes the walk of a list, the order in which its tiles are scanned, unless it exists.
func (b *batch) walkList(t target) error {
	if t.walkReady {
		return nil
	}
	return runtime.Launch(b.rt, "list_tiles", int(runtime.CeilDiv(t.docs, 256)), 1, 1, 256, 0, &listParams{
		docs:         t.ids,
		nDev:         t.listLenPtr,
		firstTile:    t.packed.firstTile.Ptr,
		walk:         b.scratchPtr(b.tmp.walk),
		posFirst:     b.scratchPtr(b.tmp.posFirst),
		posEnd:       b.scratchPtr(b.tmp.posEnd),
		tilesTotal:   b.outputPtr(b.out.tiles),
		n:            uint32(t.docs),
		walkCapacity: uint32(t.tiles),
	})
}

// scanKernel is a scan kernel: its name, block and shared memory, and side, the number of groups
// that a block scores together, which share the decoding of tokens.
type scanKernel struct {
	name                  string
	threads, shared, side int
}

// chooseScan returns the scan kernel of a shape that scores side groups together, of all documents or of
// a list.
func (s *shape) chooseScan(list bool, side int) scanKernel {
	kernel := scanKernel{threads: scanThreads, side: side}
	ring := func() int { return kernel.threads / 32 * (1024 + 1024*s.lanes + 2048*side) } // bytes of tiles being loaded
	switch {
	case s.mode == tableMode:
		kernel.name, kernel.shared = "scan_table", 4*s.fragStride+2048
	case s.mode > halfMode:
		kernel.name = fmt.Sprintf("scan_f%d_w%d", s.mode-halfMode, s.lanes)
		if side > 1 {
			kernel.name += fmt.Sprintf("_x%d", side)
		}
		if side == maxSideBySide {
			kernel.threads = wideThreads
		}
		kernel.shared = 4*s.fragStride*side + ring()
	case s.mode == 1 && s.lanes == 1, s.mode == 2 && s.lanes <= 2, s.mode == 4 && (s.lanes == 2 || s.lanes == 4):
		kernel.name, kernel.shared = fmt.Sprintf("scan_b%d_w%d", s.mode, s.lanes), ring()
	default:
		kernel.name, kernel.shared = fmt.Sprintf("scan_b%d", s.mode), 4*s.fragStride
	}
	if list {
		kernel.name += "_list"
	}
	return kernel
}

// maxSideBySide is the maximum of groups that a block scores together.
const maxSideBySide = 4

// chooseSideBySide returns how many groups of a scan of all documents share the decoding of
// tokens: the number with the lowest time, measured with 1.3 to 600 million tokens
// (docs/lab/kernels.md), if the workspace has room for whole sets of groups.
func (s *shape) chooseSideBySide(groups, room int) int {
	if s.mode <= halfMode {
		return 1
	}
	best, leastTime := 1, float64(groups)
	for _, k := range []struct {
		side int
		time float64 // of a set of side groups; a single group takes 1
	}{{2, 1.5}, {maxSideBySide, 2.6}} {
		sets := runtime.CeilDiv(groups, k.side)
		if t := float64(sets) * k.time; t < leastTime && (sets*k.side <= room || sets*k.side == groups) {
			best, leastTime = k.side, t
		}
	}
	return best
}
