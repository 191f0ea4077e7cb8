package compressed

import (
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

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

// rank leaves the k best entries of each query in the output.
func (b *batch) rank(t target) error {
	if t.docs == 0 {
		return b.rt.Driver.Set(b.outAt(b.out.ids), 0xFF, 4*int64(b.queries*b.k), b.rt.Stream)
	}
	gx := int(runtime.CeilDiv(t.docs, topkBlock))
	err := runtime.Launch(b.rt, "topk_first", gx, b.queries, 1, 1024, 0, &topkFirstParams{
		scores: b.tmpAt(b.tmp.scores), groupBegin: b.inAt(b.in.begin), ids: t.ids, nDev: t.listLen, allowed: t.allowed,
		keys: b.tmpAt(b.tmp.keys), stride: uint64(t.docs), n: uint32(t.docs), k: uint32(b.k),
	})
	if err != nil {
		return err
	}
	return b.merge(b.tmpAt(b.tmp.keys), b.tmpAt(b.tmp.keys2), gx*b.k, b.queries, b.k,
		b.outAt(b.out.ids), b.outAt(b.out.coarse), b.outAt(b.out.n))
}

// merge reduces rows of n keys to the k best, in order.
func (b *batch) merge(from, to driver.Ptr, n, rows, keep int, ids, scores, count driver.Ptr) error {
	for {
		gx := runtime.CeilDiv(n, topkBlock)
		p := &topkNextParams{keys: from, out: to, n: uint32(n), k: uint32(keep)}
		if gx == 1 {
			p.outIDs, p.outScores, p.outN = ids, scores, count
		}
		if err := runtime.Launch(b.rt, "topk_next", gx, rows, 1, 1024, 0, p); err != nil || gx == 1 {
			return err
		}
		from, to, n = to, from, gx*keep
	}
}
