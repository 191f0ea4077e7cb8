package compressed

import (
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

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

// probe makes a list of the documents that may be returned and have a token in
// one of the best centroids of a query token, and makes it the target. A batch
// with probing has one query.
func (b *batch) probe(t *target) error {
	s, st, c := b.s, b.rt.Stream, b.rt.Driver
	rows := b.groups * columns
	n := min(b.requests[0].q.Probes, s.k, maxTopK)
	gx := runtime.CeilDiv(s.k, topkBlock)
	ids := b.tmpAt(b.tmp.probes)
	keys := ids + driver.Ptr(runtime.CeilDiv(4*rows*n, runtime.ArenaAlign)*runtime.ArenaAlign)
	keys2 := keys + driver.Ptr(runtime.CeilDiv(8*rows*gx*n, runtime.ArenaAlign)*runtime.ArenaAlign)
	err := runtime.Launch(b.rt, "topk_first", gx, rows, 1, 1024, 0, &topkFirstParams{
		scores: b.tmpAt(b.tmp.sFloat), keys: keys, stride: uint64(s.k), n: uint32(s.k), k: uint32(n),
	})
	if err != nil {
		return err
	}
	if err := b.merge(keys, keys2, gx*n, rows, n, ids, 0, 0); err != nil {
		return err
	}
	marks, hits := b.tmpAt(b.tmp.marks), b.tmpAt(b.tmp.hits)
	markBytes, hitWords := runtime.CeilDiv(int64(s.k), 32)*4, runtime.CeilDiv(t.docs, 32)
	if err := c.Set(marks, 0, markBytes, st); err != nil {
		return err
	}
	if err := c.Set(hits, 0, 4*hitWords, st); err != nil {
		return err
	}
	err = runtime.Launch(b.rt, "probe_mark", runtime.CeilDiv(n*rows, 256), 1, 1, 256, 0, &markParams{
		ids: ids, weights: b.inAt(b.in.weights), bitmap: marks, columns: uint32(rows), picked: uint32(n), n: uint32(n),
	})
	if err != nil {
		return err
	}
	shared := 0
	p := &candidateParams{words: t.p.words.Ptr, tileDoc: t.p.tileDoc.Ptr, bitmap: marks, hits: hits, tiles: uint32(t.tiles), k: uint32(s.k)}
	if markBytes <= 48<<10 {
		shared, p.smem = int(markBytes), 1
	}
	blocks := min(8*b.rt.Props.Multiprocessors, int(runtime.CeilDiv(t.tiles, 16)))
	if err := runtime.Launch(b.rt, "candidates", blocks, 1, 1, 256, shared, p); err != nil {
		return err
	}
	err = runtime.Launch(b.rt, "compact", int(runtime.CeilDiv(hitWords, 256)), 1, 1, 256, 0, &compactParams{
		a: hits, b: t.allowed, list: b.tmpAt(b.tmp.found), n: b.outAt(b.out.cand), words: uint32(hitWords), capacity: uint32(t.docs),
	})
	if err != nil {
		return err
	}
	t.ids, t.listLen = b.tmpAt(b.tmp.found), b.outAt(b.out.cand)
	return nil
}
