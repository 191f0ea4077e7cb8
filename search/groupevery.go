package search

import (
	"context"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/internal/topk"
)

// everyWhole returns the K best documents, and scores all passages: documents without passages are
// ranked by an ordinary search, the others one after the other.
func (r *run) everyWhole(vectors, weights []float32, allowed *allowance) ([]*whole, error) {
	r.request.mode = Exhaustive
	k, c := r.request.k, r.call.coll
	passages := make([]*roaring.Bitmap, len(c.parts))
	for i := range c.parts {
		passages[i] = c.parts[i].snap.Passages()
	}
	top, err := r.best(vectors, weights, allowed.without(passages), nil)
	if err != nil {
		return nil, err
	}
	docs := make([]*whole, 0, 2*len(top))
	for _, l := range top {
		docs = append(docs, wholeOf(l, l.part.snap.ID(l.ordinal), false))
	}
	for i := range c.parts {
		p := &c.parts[i]
		best, err := r.rankWholes(p, allowed.parts[i], passages[i], vectors, weights)
		if err != nil {
			return nil, err
		}
		for _, s := range best {
			id, _ := p.snap.PassageOf(s.Doc)
			docs = append(docs, wholeOf(located{p, s.Doc, s.Score}, id, true))
		}
	}
	docs = bestWholes(docs, k)
	members, err := r.passagesOf(docs)
	if err != nil {
		return nil, err
	}
	return docs, r.scoreWholes(docs, members, allowed)
}

// rankWholes returns the K best documents of passages of a part, each by the ordinal of its best
// passage.
func (r *run) rankWholes(p *part, allowed *selection, passages *roaring.Bitmap,
	vectors, weights []float32) (best []topk.Scored, err error) {
	defer p.guard(r.call, &err)()
	m, err := membersOf(r.ctx, p.snap, allowed, passages)
	if err != nil || len(m.starts) == 0 {
		return nil, err
	}
	if err := r.ready(group{*p}, len(m.passages), vectors, weights); err != nil {
		return nil, err
	}
	defer timed(&r.stats.Times.Exact)()
	const block = 16 // documents
	blocks := parallel.Blocks(len(m.starts), block)
	eachOf := func(i int, fn func(doc int) error) error {
		lo, hi := parallel.Block(i, len(m.starts), block)
		for doc := lo; doc < hi; doc++ {
			if err := fn(doc); err != nil {
				return err
			}
		}
		return nil
	}
	err = r.fillRows(blocks, func(i int) error {
		return eachOf(i, func(doc int) error { return r.requireWhole(p, m.document(doc)) })
	})
	if err != nil {
		return nil, err
	}
	scored := make([]topk.Scored, len(m.starts))
	var scorers sync.Pool
	err = r.forEach(blocks, func(i int) error {
		s, _ := scorers.Get().(*wholeScorer)
		if s == nil {
			s = r.wholeScorer()
		}
		defer scorers.Put(s)
		return eachOf(i, func(doc int) error {
			score, err := s.score(p, m.document(doc))
			if err == nil {
				scored[doc] = topk.Scored{Doc: s.best[0].ordinal, Score: score}
			}
			return err
		})
	})
	n := int64(len(m.passages))
	r.stats.Candidates += n
	r.stats.ExactDocs += n
	r.stats.RefinedDocs += n
	if r.stats.Shards != nil {
		r.stats.Shards[p.at].Candidates += n
		r.stats.Shards[p.at].ExactDocs += n
	}
	return topk.Best(scored, r.request.k), err
}

// members are passages by document. A document is known by the place of its first passage; its id
// is not kept.
type members struct {
	passages []uint32
	starts   []uint32 // of documents in them
}

// document returns the passages of a document.
func (m *members) document(doc int) []uint32 {
	end := len(m.passages)
	if doc+1 < len(m.starts) {
		end = int(m.starts[doc+1])
	}
	return m.passages[m.starts[doc]:end]
}

// membersOf returns the passages of a snapshot that are allowed.
func membersOf(ctx context.Context, snap *index.Snapshot, allowed *selection,
	passages *roaring.Bitmap) (*members, error) {
	m := &members{passages: make([]uint32, 0, min(uint64(allowed.count), passages.GetCardinality()))}
	if allowed.set == nil {
		for _, o := range allowed.list {
			if passages.Contains(o) {
				m.passages = append(m.passages, o)
			}
		}
	} else {
		for it := passages.Iterator(); it.HasNext(); {
			if o := it.Next(); inSet(allowed.set, o) {
				m.passages = append(m.passages, o)
			}
		}
	}
	last := ""
	for i, o := range m.passages { // those of a document are in a row
		if i%1024 == 1023 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if id, _ := snap.PassageOf(o); i == 0 || id != last {
			m.starts, last = append(m.starts, uint32(i)), id
		}
	}
	return m, nil
}
