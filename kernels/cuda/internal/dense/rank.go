package dense

import (
	"context"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// ranking keeps the best scores of each query of a call on the device.
type ranking struct {
	call       *maxsim.RankCall
	k          int   // at most the number of documents
	best, list int64 // offsets in the scratch memory
	keys       []uint64
}

// Rank implements [maxsim.Ranker]. The device stores the scores of one piece at a time, and copies only
// the best of all pieces to the host.
func (b *backend) Rank(ctx context.Context, c *maxsim.RankCall) error {
	w, err := c.Check()
	if err != nil {
		return err
	}
	r := &ranking{call: c, k: min(c.K, w.D.Len())}
	s, err := b.newScoring(&maxsim.Call{Q: c.Q, D: c.D, Terms: c.Terms}, w)
	if err != nil {
		return err
	}
	if s.d.closed() || s.q.closed() {
		return b.wrapError("ranking", maxsim.ErrForeign)
	}
	if r.k > 0 && w.Pairs > 0 {
		s.rank = r
		if err := b.submit(ctx, "scoring", s.run); err != nil {
			return err
		}
	}
	return r.writeHits(ctx, w.Q.Len())
}

// reserve reserves memory for the best documents and for the list of each query.
func (r *ranking) reserve(a *runtime.Arena, s *scoring, docs int) {
	nq := int64(s.q.shape.Len())
	r.best = a.Append(8 * nq * int64(r.k))
	r.list = a.Append(8 * nq * int64(docs+r.k))
}

// clearBest sets the best documents of all queries to none.
func (r *ranking) clearBest(s *scoring) error {
	return s.rt.Driver.Set(s.rt.Work.Scratch.At(r.best), 0, 8*int64(s.q.shape.Len())*int64(r.k), s.rt.Stream)
}

// mergeScores merges the scores of a piece into the best ones.
func (r *ranking) mergeScores(s *scoring, slot *slot) error {
	w := &s.rt.Work
	p := &denseRankParams{
		scores: w.Out.At(slot.scores),
		items:  s.params.items,
		best:   w.Scratch.At(r.best),
		list:   w.Scratch.At(r.list),
		n:      uint32(slot.piece.hi - slot.piece.lo),
		nItems: uint32(len(s.work.items)),
		k:      uint32(r.k),
		first:  uint32(slot.piece.lo),
	}
	if s.segment > 0 {
		p.items, p.nItems = s.nonEmptyDocs, uint32(len(s.work.nonEmptyDocs))
	}
	return runtime.Launch(s.rt, "dense/dense_rank", s.q.shape.Len(), 1, 1, 1024, 0, p)
}

// collect copies the best documents to the host. It waits for the device.
func (r *ranking) collect(s *scoring) error {
	rt, w := s.rt, &s.rt.Work
	if err := s.finishAll(); err != nil {
		return err
	}
	size := 8 * int64(s.q.shape.Len()) * int64(r.k)
	if err := w.Reserve(runtime.WorkspaceSizes{Out: size}); err != nil {
		return err
	}
	if err := rt.Driver.ToHost(w.HostOut[:size], w.Scratch.At(r.best), rt.Stream); err != nil {
		return err
	}
	if err := rt.Sync(); err != nil {
		return err
	}
	r.keys = slices.Clone(structsFrom[uint64](w.HostOut, s.q.shape.Len()*r.k)) // the next call overwrites the workspace
	return nil
}

// writeHits writes the best documents of each query to the call, in order.
func (r *ranking) writeHits(ctx context.Context, nq int) error {
	c := r.call
	return parallel.Do(ctx, nq, parallel.Threads(c.Threads, nq), func(q int) error {
		docs, scores := c.Docs[q*c.K:(q+1)*c.K], c.Scores[q*c.K:(q+1)*c.K]
		for i := range docs {
			docs[i], scores[i] = -1, 0
		}
		if r.keys == nil {
			return nil
		}
		keys := r.keys[q*r.k : (q+1)*r.k]
		slices.Sort(keys)
		for i := range keys {
			if key := keys[len(keys)-1-i]; key != 0 {
				docs[i], scores[i] = rankDoc(key), rankScore(key)
			}
		}
		return nil
	})
}

// rankDoc returns the document of a key of src/dense/rank.cuh. A better document has a larger key.
func rankDoc(key uint64) int32 { return int32(^uint32(key)) }

// rankScore returns the score of a key.
func rankScore(key uint64) float32 {
	b := uint32(key >> 32)
	if b>>31 != 0 {
		return math.Float32frombits(b &^ (1 << 31))
	}
	return math.Float32frombits(^b)
}
