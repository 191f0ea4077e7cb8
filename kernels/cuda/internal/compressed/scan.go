package compressed

import (
	"fmt"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

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
