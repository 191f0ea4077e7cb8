package compressed

import (
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

type topkFirstParams struct {
	scores, groupBegin, ids, nDev, allowed, docMax, bound, keys, clock driver.Ptr
	stride                                                             uint64
	n, k                                                               uint32
	idsStride                                                          uint64
	maxByEntry                                                         uint32
	deviations, slack                                                  float32
	_                                                                  uint32
}

type topkNextParams struct {
	keys, out, outIDs, outScores, outN driver.Ptr
	n, k                               uint32
}

type pickParams struct {
	scores, groupBegin, ids, nDev, allowed, docMax, bound, kth, outIDs, outScores, found, clock driver.Ptr
	stride                                                                                      uint64
	n, k, capacity, maxByEntry                                                                  uint32
	deviations, slack, error                                                                    float32
	_                                                                                           uint32
}

// pick lists, for each query, the documents that can be among the k best.
func (b *batch) pick(t target) error {
	if t.docs == 0 {
		return nil
	}
	p := &pickParams{
		scores: b.tmpAt(b.tmp.scores), groupBegin: b.beginAt(), ids: t.ids, nDev: t.listLen, allowed: t.allowed,
		docMax: t.p.docMax.Ptr, bound: b.tmpAt(b.tmp.bound), outIDs: b.outAt(b.out.ids), outScores: b.outAt(b.out.coarse),
		found: b.outAt(b.out.found), stride: uint64(t.docs), n: uint32(t.docs), k: uint32(b.k), capacity: uint32(b.room),
		maxByEntry: t.maxByEntry, deviations: b.deviations, slack: b.slack, error: fineError,
	}
	gx := int(runtime.CeilDiv(t.docs, topkBlock))
	if gx == 1 {
		p.clock = b.clock(atScanned)
		return follow(b, "pick", 1, b.queries, 1, 1024, 0, p)
	}
	err := runtime.Launch(b.rt, "topk_first", gx, b.queries, 1, 1024, 0, &topkFirstParams{
		scores: p.scores, groupBegin: p.groupBegin, ids: p.ids, nDev: p.nDev, allowed: p.allowed, docMax: p.docMax, bound: p.bound,
		keys: b.tmpAt(b.tmp.keys), clock: b.clock(atScanned), stride: p.stride, n: p.n, k: p.k, maxByEntry: p.maxByEntry, deviations: p.deviations, slack: p.slack,
	})
	if err != nil {
		return err
	}
	p.kth = b.tmpAt(b.tmp.kth)
	if err := b.merge(b.tmpAt(b.tmp.keys), b.tmpAt(b.tmp.keys2), gx*b.k, b.queries, b.k, 0, p.kth); err != nil {
		return err
	}
	return runtime.Launch(b.rt, "collect", gx, b.queries, 1, 256, 0, p)
}

// merge reduces rows of n keys to the k best, in order.
func (b *batch) merge(from, to driver.Ptr, n, rows, keep int, ids, scores driver.Ptr) error {
	for {
		gx := runtime.CeilDiv(n, topkBlock)
		p := &topkNextParams{keys: from, out: to, n: uint32(n), k: uint32(keep)}
		if gx == 1 {
			p.outIDs, p.outScores = ids, scores
		}
		if err := runtime.Launch(b.rt, "topk_next", gx, rows, 1, 1024, 0, p); err != nil || gx == 1 {
			return err
		}
		from, to, n = to, from, gx*keep
	}
}
