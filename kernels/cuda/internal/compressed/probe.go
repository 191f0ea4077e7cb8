package compressed

import (
	"fmt"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

type markParams struct {
	ids, weights, groupBegin, marks driver.Ptr
	columns, picked, n, queries     uint32
}

type candidateParams struct {
	words, tileDoc, marks, hits driver.Ptr
	tiles, _                    uint32
}

type compactParams struct {
	hits, allowed, list, n driver.Ptr
	docs, query            uint32
}

// mostProbed is how many queries with probes share their launches: those that the
// bits of a word tell apart.
const mostProbed = 32

// probe finds, for all queries at once, the documents that have a token in one of
// the best centroids of a query token.
func (b *batch) probe(t target) error {
	s, st, c := b.shape, b.rt.Stream, b.rt.Driver
	rows := b.groups * columns
	n := b.probes()
	gx := runtime.CeilDiv(s.k, topkBlock)
	ids := b.tmpAt(b.tmp.probes)
	keys := ids + driver.Ptr(runtime.CeilDiv(4*rows*n, runtime.ArenaAlign)*runtime.ArenaAlign)
	keys2 := keys + driver.Ptr(runtime.CeilDiv(8*rows*gx*n, runtime.ArenaAlign)*runtime.ArenaAlign)
	err := runtime.Launch(b.rt, "topk_first", gx, rows, 1, 1024, 0, &topkFirstParams{
		scores: b.tmpAt(b.tmp.sFloat), keys: keys, clock: b.clock(atCentroids), stride: uint64(s.k), n: uint32(s.k), k: uint32(n),
	})
	if err != nil {
		return err
	}
	if err := b.merge(keys, keys2, gx*n, rows, n, ids, 0); err != nil {
		return err
	}
	marks, hits := b.tmpAt(b.tmp.marks), b.tmpAt(b.tmp.hits)
	if err := c.Set(marks, 0, 4*int64(s.k), st); err != nil {
		return err
	}
	if err := c.Set(hits, 0, 4*t.docs, st); err != nil {
		return err
	}
	err = runtime.Launch(b.rt, "probe_mark", runtime.CeilDiv(n*rows, 256), 1, 1, 256, 0, &markParams{
		ids: ids, weights: b.inAt(b.in.weights), groupBegin: b.inAt(b.in.begin), marks: marks,
		columns: uint32(rows), picked: uint32(n), n: uint32(n), queries: uint32(b.queries),
	})
	if err != nil {
		return err
	}
	blocks := min(8*b.rt.Props.Multiprocessors, int(runtime.CeilDiv(t.tiles, 16)))
	return runtime.Launch(b.rt, "candidates", blocks, 1, 1, 256, 0, &candidateParams{
		words: t.p.words.Ptr, tileDoc: t.p.tileDoc.Ptr, marks: marks, hits: hits, tiles: uint32(t.tiles),
	})
}

// probes is how many centroids a query token probes; at most, where several queries
// share launches, which then probe the same number.
func (b *batch) probes() int { return min(b.requests[0].query.Probes, b.shape.k, maxTopK) }

// listFound makes a list of what probing has found for a query, and makes it the target.
func (b *batch) listFound(t target, query int) (target, error) {
	t.ids, t.listLen = b.tmpAt(b.tmp.found), b.outAt(b.out.cand+4*int64(query))
	return t, runtime.Launch(b.rt, "compact", int(runtime.CeilDiv(t.docs, 256)), 1, 1, 256, 0, &compactParams{
		hits: b.tmpAt(b.tmp.hits), allowed: t.allowed, list: t.ids, n: t.listLen, docs: uint32(t.docs), query: uint32(query),
	})
}

// alone is the batch as far as a query of it is concerned, which is scanned and
// picked by itself.
func (b *batch) alone(query int) *batch {
	one := *b
	q, room := int64(query), int64(b.room)
	one.queries, one.group, one.groups = 1, int(b.begin[query]), int(b.begin[query+1]-b.begin[query])
	one.in.begin += 4 * q
	one.out.found += 16 * q
	one.out.ids += 4 * q * room
	one.out.fine += 4 * q * room
	one.out.coarse += 8 * q * room
	one.others, one.later, one.sooner = b.queries > 1, query > 0, query+1 < b.queries
	return &one
}

// probed does, for each query, what follows probing.
func (b *batch) probed(t target, wide bool) error {
	if err := b.probe(t); err != nil {
		return err
	}
	for i := range b.requests {
		found, err := b.listFound(t, i)
		if err != nil {
			return err
		}
		if err := b.alone(i).best(found, wide); err != nil {
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

// scan writes a score for each group and entry of the target.
func (b *batch) scan(t target) error {
	s := b.shape
	k := s.scanner(t.list, b.side)
	blocks, err := b.blocks(t, k)
	if err != nil {
		return err
	}
	first, g := t.p.firstTile.Ptr, int64(b.group)
	p := &scanParams{
		words: t.p.words.Ptr, rows: t.p.rows.Ptr, tileDoc: t.p.tileDoc.Ptr, docFirst: first, docEnd: first + 4,
		sRows: b.tmpAt(b.tmp.sRows + 64*g*int64(s.k)), frags: b.tmpAt(b.tmp.frags + 4*g*int64(s.fragStride)), cols: b.tmpAt(b.tmp.cols + 16*g*columns),
		table: b.attachment.array(b.attachment.at.table), scores: b.tmpAt(b.tmp.scores + 4*g*t.docs), part: b.tmpAt(b.tmp.part), count: b.rt.Work.Zeroed.Ptr, clock: b.clock(atProbed),
		sStride: uint64(columns * s.k), scoreStride: uint64(t.docs), nTiles: uint32(t.tiles),
		laneWords: uint32(s.lanes), fragStride: uint32(s.fragStride), dim: uint32(s.dim), nbits: uint32(s.nbits), groups: uint32(b.groups),
	}
	if t.list {
		total := b.tmpAt(b.tmp.total)
		if err := b.rt.Driver.Set(total, 0, 4, b.rt.Stream); err != nil {
			return err
		}
		err := runtime.Launch(b.rt, "list_tiles", int(runtime.CeilDiv(t.docs, 256)), 1, 1, 256, 0, &listParams{
			docs: t.ids, nDev: t.listLen, firstTile: first, walk: b.tmpAt(b.tmp.walk),
			posFirst: b.tmpAt(b.tmp.posFirst), posEnd: b.tmpAt(b.tmp.posEnd), tilesTotal: total,
			n: uint32(t.docs), walkCapacity: uint32(t.tiles),
		})
		if err != nil {
			return err
		}
		p.walk, p.nTilesDev, p.docFirst, p.docEnd = b.tmpAt(b.tmp.walk), total, b.tmpAt(b.tmp.posFirst), b.tmpAt(b.tmp.posEnd)
	}
	return follow(b, k.name, blocks, runtime.CeilDiv(b.groups, k.side), 1, k.threads, k.shared, p)
}

// scanner is a scan for a shape: its name, block and shared memory, and how many groups
// it takes side by side, which share the decoding of tokens.
type scanner struct {
	name                  string
	threads, shared, side int
}

// scanner names the scan that takes so many groups side by side.
func (s *shape) scanner(list bool, side int) scanner {
	k := scanner{threads: scanThreads, side: side}
	ring := func() int { return k.threads / 32 * (1024 + 1024*s.lanes + 2048*side) } // of tiles on their way
	switch {
	case s.mode == tableMode:
		k.name, k.shared = "scan_table", 4*s.fragStride+2048
	case s.mode > halfMode:
		k.name = fmt.Sprintf("scan_f%d_w%d", s.mode-halfMode, s.lanes)
		if side > 1 {
			k.name += fmt.Sprintf("_x%d", side)
		}
		if side == mostSide {
			k.threads = wideThreads
		}
		k.shared = 4*s.fragStride*side + ring()
	case s.mode == 1 && s.lanes == 1, s.mode == 2 && s.lanes <= 2, s.mode == 4 && (s.lanes == 2 || s.lanes == 4):
		k.name, k.shared = fmt.Sprintf("scan_b%d_w%d", s.mode, s.lanes), ring()
	default:
		k.name, k.shared = fmt.Sprintf("scan_b%d", s.mode), 4*s.fragStride
	}
	if list {
		k.name += "_list"
	}
	return k
}

// mostSide is the most groups that a scan takes side by side.
const mostSide = 4

// sideBySide is how many groups of a scan of all documents share the decoding of
// tokens: as many as take the least time, measured with 1.3 to 600 million tokens
// (docs/lab/kernels.md), if there is room for whole sets of them.
func (s *shape) sideBySide(groups, room int) int {
	if s.mode <= halfMode {
		return 1
	}
	best, least := 1, float64(groups)
	for _, k := range []struct {
		side int
		time float64 // of so many, where one takes 1
	}{{2, 1.5}, {mostSide, 2.6}} {
		sets := runtime.CeilDiv(groups, k.side)
		if t := float64(sets) * k.time; t < least && (sets*k.side <= room || sets*k.side == groups) {
			best, least = k.side, t
		}
	}
	return best
}
