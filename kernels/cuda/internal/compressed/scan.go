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
	nTiles, laneWords, fragStride, dim, nbits, _            uint32
}

// scan writes a score for each group and entry of the target.
func (b *batch) scan(t target) error {
	s := b.s
	blocks, err := b.blocks(t)
	if err != nil {
		return err
	}
	first, g := t.p.firstTile.Ptr, int64(b.group)
	p := &scanParams{
		words: t.p.words.Ptr, rows: t.p.rows.Ptr, tileDoc: t.p.tileDoc.Ptr, docFirst: first, docEnd: first + 4,
		sRows: b.tmpAt(b.tmp.sRows + 64*g*int64(s.k)), frags: b.tmpAt(b.tmp.frags + 4*g*int64(s.fragStride)), cols: b.tmpAt(b.tmp.cols + 16*g*columns),
		table: b.a.array(b.a.at.table), scores: b.tmpAt(b.tmp.scores + 4*g*t.docs), part: b.tmpAt(b.tmp.part), count: b.rt.Work.Zeroed.Ptr, clock: b.clock(atProbed),
		sStride: uint64(columns * s.k), scoreStride: uint64(t.docs), nTiles: uint32(t.tiles),
		laneWords: uint32(s.lanes), fragStride: uint32(s.fragStride), dim: uint32(s.dim), nbits: uint32(s.nbits),
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
	name, shared := s.scanKernel(t.list)
	return runtime.Launch(b.rt, name, blocks, b.groups, 1, scanThreads, shared, p)
}

// scanKernel names the scan for a shape and says what shared memory it takes.
func (s *shape) scanKernel(list bool) (name string, shared int) {
	ring := 4 * (3072 + 1024*s.lanes) // of tiles on their way
	switch {
	case s.mode == tableMode:
		name, shared = "scan_table", 4*s.fragStride+2048
	case s.mode > halfMode:
		name, shared = fmt.Sprintf("scan_f%d_w%d", s.mode-halfMode, s.lanes), 4*s.fragStride+ring
	case s.mode == 1 && s.lanes == 1, s.mode == 2 && s.lanes <= 2, s.mode == 4 && (s.lanes == 2 || s.lanes == 4):
		name, shared = fmt.Sprintf("scan_b%d_w%d", s.mode, s.lanes), ring
	default:
		name, shared = fmt.Sprintf("scan_b%d", s.mode), 4*s.fragStride
	}
	if list {
		name += "_list"
	}
	return name, shared
}
