package compressed

import (
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
