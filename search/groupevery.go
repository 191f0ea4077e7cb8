package search

import (
	"context"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/internal/topk"
)

// scoreAllGroups returns the K best documents after scoring all passages. Documents without
// passages are ranked by an ungrouped search, the others document by document.
func (r *run) scoreAllGroups(vectors, weights []float32, allowed *allowedDocs) ([]*groupedDoc, error) {
	r.request.mode = Exhaustive
	k, c := r.request.k, r.call.coll
	passages := make([]*roaring.Bitmap, len(c.shards))
	for i := range c.shards {
		passages[i] = c.shards[i].snap.Passages()
	}
	top, err := r.bestDocuments(vectors, weights, allowed.without(passages), nil)
	if err != nil {
		return nil, err
	}
	docs := make([]*groupedDoc, 0, 2*len(top))
	for _, l := range top {
		docs = append(docs, newGroupedDoc(l, l.shard.snap.ID(l.ordinal), wholeDoc))
	}
	for i := range c.shards {
		sh := &c.shards[i]
		best, err := r.rankGroupsInShard(sh, allowed.shards[i], passages[i], vectors, weights)
		if err != nil {
			return nil, err
		}
		for _, s := range best {
			id, _ := sh.snap.PassageOf(s.Doc)
			docs = append(docs, newGroupedDoc(located{sh, s.Doc, s.Score}, id, splitDoc))
		}
	}
	docs = bestGroups(docs, k)
	members, err := r.livePassages(docs)
	if err != nil {
		return nil, err
	}
	return docs, r.scoreGroups(docs, members, allowed)
}

// rankGroupsInShard returns the K best split documents of a shard, each with the ordinal of its
// best passage.
func (r *run) rankGroupsInShard(
	sh *shard, allowed *selection, passages *roaring.Bitmap, vectors, weights []float32,
) (best []topk.Scored, err error) {
	defer sh.guardRead(r.call, &err)()
	groups, err := allowedPassages(r.ctx, sh.snap, allowed, passages)
	if err != nil || len(groups.groupStarts) == 0 {
		return nil, err
	}
	if err := r.prepareGroup(shardGroup{*sh}, len(groups.passages), vectors, weights); err != nil {
		return nil, err
	}
	defer addElapsed(&r.stats.Times.Exact)()
	const block = 16 // documents
	blocks := parallel.Blocks(len(groups.groupStarts), block)
	visitBlock := func(i int, visit func(doc int) error) error {
		lo, hi := parallel.Block(i, len(groups.groupStarts), block)
		for doc := lo; doc < hi; doc++ {
			if err := visit(doc); err != nil {
				return err
			}
		}
		return nil
	}
	err = r.fillRows(blocks, func(i int) error {
		return visitBlock(i, func(doc int) error { return r.requirePassageRows(sh, groups.document(doc)) })
	})
	if err != nil {
		return nil, err
	}
	scored := make([]topk.Scored, len(groups.groupStarts))
	var scorers sync.Pool
	err = r.forEach(blocks, func(i int) error {
		s, _ := scorers.Get().(*groupScorer)
		if s == nil {
			s = r.newGroupScorer()
		}
		defer scorers.Put(s)
		return visitBlock(i, func(doc int) error {
			score, err := s.scoreGroup(sh, groups.document(doc))
			if err == nil {
				scored[doc] = topk.Scored{Doc: s.best[0].ordinal, Score: score}
			}
			return err
		})
	})
	n := int64(len(groups.passages))
	r.stats.Candidates += n
	r.stats.ExactDocs += n
	r.stats.RefinedDocs += n
	if r.stats.Shards != nil {
		r.stats.Shards[sh.index].Candidates += n
		r.stats.Shards[sh.index].ExactDocs += n
	}
	return topk.Best(scored, r.request.k), err
}

// passageGroups has passages in order of documents, which are numbered from 0; their ids are not
// kept.
type passageGroups struct {
	passages    []uint32 // ordinals
	groupStarts []uint32 // by document: index of its first passage
}

// document returns the passages of a document.
func (m *passageGroups) document(doc int) []uint32 {
	end := len(m.passages)
	if doc+1 < len(m.groupStarts) {
		end = int(m.groupStarts[doc+1])
	}
	return m.passages[m.groupStarts[doc]:end]
}

// allowedPassages returns the passages of a snapshot that are allowed, grouped by document.
func allowedPassages(
	ctx context.Context, snap *index.Snapshot, allowed *selection, passages *roaring.Bitmap,
) (*passageGroups, error) {
	m := &passageGroups{passages: make([]uint32, 0, min(uint64(allowed.count), passages.GetCardinality()))}
	if allowed.set == nil {
		for _, o := range allowed.list {
			if passages.Contains(o) {
				m.passages = append(m.passages, o)
			}
		}
	} else {
		for it := passages.Iterator(); it.HasNext(); {
			if o := it.Next(); hasBit(allowed.set, o) {
				m.passages = append(m.passages, o)
			}
		}
	}
	last := ""
	for i, o := range m.passages { // passages of a document are consecutive
		if i%1024 == 1023 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if id, _ := snap.PassageOf(o); i == 0 || id != last {
			m.groupStarts, last = append(m.groupStarts, uint32(i)), id
		}
	}
	return m, nil
}
