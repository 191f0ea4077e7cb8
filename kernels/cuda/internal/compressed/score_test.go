package compressed

import (
	"context"
	"fmt"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// fineBlock is how many documents get fine scores in one launch of Score.
const fineBlock = 1 << 15

// Score is the score of each of docs (nil: of every document, empty ones 0) for
// a query, at a level: by the scan, or fine. Searches return none by the scan.
func (a *attachment) Score(ctx context.Context, c kernels.Corpus, vectors, weights []float32, docs []uint32, level kernels.Level) ([]float32, error) {
	n := corpusDocs(c)
	q := &kernels.DeviceQuery{Vectors: vectors, Weights: weights, K: 1, Docs: docs}
	groups, err := checkQuery(c, q, n)
	if err != nil {
		return nil, err
	}
	if level != kernels.Fast && level != kernels.Fine {
		return nil, fmt.Errorf("%w: level %d", kernels.ErrShape, level)
	}
	if docs != nil {
		n = len(docs)
	}
	out := make([]float32, n)
	if n == 0 {
		return out, nil
	}
	r := &scoring{newRequest(a, c, q, groups, fineBlock, firstSlack), out, docs, level}
	return out, runtime.Do(ctx, a.dev, []*scoring{r})
}

// scoring is a request for scores of documents, which shares nothing.
type scoring struct {
	*request
	out   []float32
	docs  []uint32
	level kernels.Level
}

func (*scoring) Joins(runtime.Request) bool { return false }

func (r *scoring) Run(rt *runtime.Runtime, _ []runtime.Request) error {
	if err := r.attachment.ensure(r.Context(), r.corpus, nil); err != nil {
		return err
	}
	err := newBatch(rt, []*request{r.request}).scoreAll(r.out, r.docs, r.level)
	if err != nil {
		rt.Drain()
	}
	return err
}

// ScoreBound is the largest difference to the float64 definition that Score
// shows at level Fast for a query: the worst case.
func (a *attachment) ScoreBound(ctx context.Context, c kernels.Corpus, vectors, weights []float32) (float32, error) {
	q := &kernels.DeviceQuery{Vectors: vectors, Weights: weights, K: 1, Docs: []uint32{}}
	groups, err := checkQuery(c, q, 0)
	if err != nil {
		return 0, err
	}
	r := &bounding{request: newRequest(a, c, q, groups, 1, firstSlack)}
	err = runtime.Do(ctx, a.dev, []*bounding{r})
	return r.bound, err
}

// bounding is a request for the bound of a query.
type bounding struct {
	*request
	bound float32
}

func (*bounding) Joins(runtime.Request) bool { return false }

func (r *bounding) Run(rt *runtime.Runtime, _ []runtime.Request) error {
	if err := r.attachment.ensure(r.Context(), r.corpus, nil); err != nil {
		return err
	}
	b := newBatch(rt, []*request{r.request})
	if err := b.reserve(target{list: true}, false, true); err != nil {
		return err
	}
	if err := b.upload(&target{list: true}); err != nil {
		return err
	}
	if err := b.prepare(false); err != nil {
		return err
	}
	bounds, err := b.bounds()
	if err == nil {
		r.bound = bounds[0].error
	}
	return err
}

func (b *batch) scoreAll(out []float32, docs []uint32, level kernels.Level) error {
	if b.attachment.whole == nil {
		return b.scoreStreamed(out, docs, level)
	}
	s := b.requests[0]
	t := target{p: b.attachment.whole, docs: int64(s.docs), tiles: int64(b.attachment.firstTile[s.docs])}
	if docs != nil {
		t.list, t.docs, t.tiles = true, int64(len(docs)), 0
		for _, d := range docs {
			t.tiles += int64(b.attachment.firstTile[d+1] - b.attachment.firstTile[d])
		}
	}
	if err := b.reserve(t, false, true); err != nil {
		return err
	}
	if err := b.upload(&t); err != nil {
		return err
	}
	if err := b.prepare(false); err != nil {
		return err
	}
	if level == kernels.Fast {
		return b.scanInto(out, t)
	}
	ids := make([]uint32, b.room)
	for lo := 0; lo < len(out); lo += b.room {
		n := min(len(out)-lo, b.room)
		for i := range n {
			if ids[i] = uint32(lo + i); docs != nil {
				ids[i] = docs[lo+i]
			}
		}
		if err := b.fineInto(out[lo:lo+n], t.p, ids[:n]); err != nil {
			return err
		}
	}
	return nil
}

// scanInto writes the scores of all entries of the target; empty documents
// have 0. It waits for the device.
func (b *batch) scanInto(out []float32, t target) error {
	if err := b.rt.Driver.Set(b.tmpAt(b.tmp.scores), 0, 4*int64(b.groups)*t.docs, b.rt.Stream); err != nil {
		return err
	}
	if t.tiles > 0 {
		if err := b.scan(t); err != nil {
			return err
		}
	}
	scores, err := b.scores(t, 0)
	copy(out, scores)
	return err
}

// fineInto writes the fine scores of listed documents. It waits for the device.
func (b *batch) fineInto(out []float32, p *packed, ids []uint32) error {
	if err := b.rt.Driver.ToDevice(b.outAt(b.out.ids), runtime.Bytes(ids), b.rt.Stream); err != nil {
		return err
	}
	if err := b.rt.Driver.ToDevice(b.outAt(b.out.found), runtime.Bytes([]uint32{uint32(len(ids)), 0, 0, 0}), b.rt.Stream); err != nil {
		return err
	}
	if err := b.fine(p, false); err != nil {
		return err
	}
	if err := b.fetch(b.out.coarse); err != nil {
		return err
	}
	if err := b.rt.Sync(); err != nil {
		return err
	}
	copy(out, take[float32](b, b.out.fine, 0, len(ids)))
	return nil
}

func (b *batch) scoreStreamed(out []float32, docs []uint32, level kernels.Level) error {
	from := b.requests[0].corpus
	cut := cutter{limit: b.attachment.pieceTokens()}
	if docs != nil {
		addDocs(&cut, from, docs)
	} else {
		cut.docs(from, 0)
	}
	if err := b.reserve(b.largest(), false, true); err != nil {
		return err
	}
	if err := b.upload(&target{}); err != nil {
		return err
	}
	if err := b.prepare(false); err != nil {
		return err
	}
	done, ids := 0, make([]uint32, b.room)
	for i := range cut.pieces {
		// A piece without tiles is not handed on; its documents keep 0.
		if cut.pieces[i].tiles == 0 {
			done += int(cut.pieces[i].docs)
			continue
		}
		one := cut.pieces[i : i+1]
		err := b.pieces(from, one, func(t target, p *piece) (func() error, error) {
			part := out[done : done+int(p.docs)]
			if level == kernels.Fast {
				return func() error { return b.scanInto(part, t) }, nil
			}
			return func() error {
				for lo := 0; lo < len(part); lo += b.room {
					n := min(len(part)-lo, b.room)
					for j := range n {
						ids[j] = uint32(lo + j)
					}
					if err := b.fineInto(part[lo:lo+n], t.p, ids[:n]); err != nil {
						return err
					}
				}
				return nil
			}, nil
		})
		if err != nil {
			return err
		}
		done += int(cut.pieces[i].docs)
	}
	return nil
}
