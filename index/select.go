package index

import (
	"context"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/condition"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/storage"
)

// Select returns the ordinals of the live documents that a condition is true of.
// Every field that the condition names must be in the payload of some live document,
// be it null; otherwise the error wraps [condition.ErrUnknownField], so that a
// misspelt name is not taken for one that is NULL everywhere.
func (s *Snapshot) Select(ctx context.Context, c *condition.Condition) (docs *roaring.Bitmap, err error) {
	all, err := SelectAll(ctx, []*Snapshot{s}, c)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// SelectAll is Select over several indexes, of which each may lack fields that
// documents of another one have. It returns a set of ordinals for each.
func SelectAll(ctx context.Context, snaps []*Snapshot, c *condition.Condition) ([]*roaring.Bitmap, error) {
	parts, err := selectingAll(ctx, snaps, c)
	if err != nil {
		return nil, err
	}
	docs := make([]*roaring.Bitmap, len(snaps))
	for i, q := range parts {
		if docs[i], err = q.selected(c); err != nil {
			return nil, err
		}
	}
	return docs, nil
}

// UnknownFields are the fields of a condition that no live document of the indexes has.
func UnknownFields(ctx context.Context, snaps []*Snapshot, c *condition.Condition) (unknown []condition.Field, err error) {
	known := map[condition.Field]bool{condition.FieldID: true, condition.FieldOrdinal: true}
	for _, s := range snaps {
		q, err := s.selecting(ctx)
		if err == nil {
			err = q.findFields(c, known)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, f := range c.Fields() {
		if !known[f] {
			unknown = append(unknown, f)
		}
	}
	return unknown, nil
}

// selectingAll makes sure that each field of the condition is in one of the indexes.
func selectingAll(ctx context.Context, snaps []*Snapshot, c *condition.Condition) ([]*selecting, error) {
	known := map[condition.Field]bool{condition.FieldID: true, condition.FieldOrdinal: true}
	parts := make([]*selecting, len(snaps))
	for i, s := range snaps {
		var err error
		if parts[i], err = s.selecting(ctx); err != nil {
			return nil, err
		}
		if err := parts[i].findFields(c, known); err != nil {
			return nil, err
		}
	}
	return parts, c.Check(func(f condition.Field) bool { return known[f] })
}

func (s *Snapshot) selecting(ctx context.Context) (q *selecting, err error) {
	defer storage.Guard(s.Path(), &err)()
	q = &selecting{ctx: ctx, snap: s, live: s.liveDocs()}
	q.runs, q.rest, err = s.runs(q.live)
	return q, err
}

// selected are the documents that a condition is true of.
func (q *selecting) selected(c *condition.Condition) (docs *roaring.Bitmap, err error) {
	defer storage.Guard(q.snap.Path(), &err)()
	b, err := condition.Select(c, q)
	if err != nil {
		return nil, err
	}
	b.maybe.AndNot(b.sure)
	found, err := q.scan(c, b.maybe)
	if err != nil {
		return nil, err
	}
	b.sure.Or(found)
	return b.sure, nil
}

// liveDocs are the documents that are not deleted, also those without tokens.
func (s *Snapshot) liveDocs() *roaring.Bitmap {
	live := roaring.New()
	live.AddRange(0, uint64(s.State().Docs))
	live.AndNot(s.Tombstones())
	return live
}

// between are bounds of a set of documents: sure are in it, and none is that is not in
// maybe. The bitmaps may be changed.
type between struct{ sure, maybe *roaring.Bitmap }

func exactly(b *roaring.Bitmap) between { return between{b, b.Clone()} }

// selecting answers the tests of a condition. It is a [condition.Sets].
type selecting struct {
	ctx  context.Context
	snap *Snapshot
	live *roaring.Bitmap
	runs []coveredRun
	rest *roaring.Bitmap // live documents that are in no run
}

func (q *selecting) All() between  { return exactly(q.live.Clone()) }
func (q *selecting) None() between { return exactly(roaring.New()) }

func (q *selecting) And(a, b between) between {
	a.sure.And(b.sure)
	a.maybe.And(b.maybe)
	return a
}

func (q *selecting) Or(a, b between) between {
	a.sure.Or(b.sure)
	a.maybe.Or(b.maybe)
	return a
}

// Test answers tests of ids and ordinals, and of fields from what is derived from them.
func (q *selecting) Test(t *condition.Test, is condition.Truth) (between, error) {
	switch t.Field {
	case condition.FieldOrdinal:
		return q.ordinals(t, is), nil
	case condition.FieldID:
		docs, err := q.ids(t, is)
		return exactly(docs), err
	}
	all := between{roaring.New(), q.rest.Clone()}
	for _, r := range q.runs {
		sure, maybe, err := r.Test(t, is)
		if err != nil {
			return all, q.snap.badRun(r.FieldRun, err)
		}
		if !r.all {
			sure.And(r.counts)
			maybe.And(r.counts)
		}
		all.sure.Or(sure)
		all.maybe.Or(maybe)
	}
	return all, nil
}

func (q *selecting) ordinals(t *condition.Test, is condition.Truth) between {
	docs := roaring.New()
	numbers, _, ok := t.Spans(is)
	if !ok {
		for it := q.live.Iterator(); it.HasNext(); {
			ordinal := it.Next()
			if t.Truth(condition.Value{Kind: condition.Integer, Int: int64(ordinal)}) == is {
				docs.Add(ordinal)
			}
		}
		return exactly(docs)
	}
	for i := range numbers {
		first, end := ordinalRange(&numbers[i])
		docs.AddRange(first, end)
	}
	docs.And(q.live)
	return exactly(docs)
}

// ordinalRange are the ordinals of a span of numbers, from first to before end.
func ordinalRange(s *condition.Span) (first, end uint64) {
	above := func(o uint64) bool { return !s.Above(condition.Value{Kind: condition.Integer, Int: int64(o)}) }
	below := func(o uint64) bool { return s.Below(condition.Value{Kind: condition.Integer, Int: int64(o)}) }
	return firstThat(above), firstThat(below)
}

// firstThat is the first ordinal for which something holds that goes on to hold.
func firstThat(holds func(uint64) bool) uint64 {
	lo, hi := uint64(0), uint64(storage.MaxDocs)
	for lo < hi {
		if mid := (lo + hi) / 2; holds(mid) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// ids finds single ids in the tree of ids, and otherwise looks at each.
func (q *selecting) ids(t *condition.Test, is condition.Truth) (*roaring.Bitmap, error) {
	docs := roaring.New()
	if points, ok := t.Points(is); ok {
		for _, id := range points {
			ordinal, ok, err := q.snap.Ordinal(id)
			if err != nil {
				return docs, err
			}
			if ok {
				docs.Add(ordinal)
			}
		}
		return docs, nil
	}
	n := 0
	for it := q.live.Iterator(); it.HasNext(); n++ {
		if n%scanBlock == 0 && q.ctx.Err() != nil {
			return docs, q.ctx.Err()
		}
		ordinal := it.Next()
		if t.Truth(condition.Value{Kind: condition.Text, Text: q.snap.ID(ordinal)}) == is {
			docs.Add(ordinal)
		}
	}
	return docs, nil
}

// scanBlock is how many payloads a goroutine reads at a time.
const scanBlock = 1024

// scan returns those of some documents that the condition is true of, by their
// payloads.
func (q *selecting) scan(c *condition.Condition, docs *roaring.Bitmap) (*roaring.Bitmap, error) {
	ordinals := docs.ToArray()
	found := make([][]uint32, parallel.Blocks(len(ordinals), scanBlock))
	err := parallel.Do(q.ctx, len(found), 0, func(i int) (err error) {
		defer storage.Guard(q.snap.Path(), &err)()
		lo, hi := parallel.Block(i, len(ordinals), scanBlock)
		for _, ordinal := range ordinals[lo:hi] {
			d, err := q.snap.document(ordinal)
			if err != nil {
				return err
			}
			if c.Match(d) {
				found[i] = append(found[i], ordinal)
			}
		}
		return nil
	})
	all := roaring.New()
	for _, f := range found {
		all.AddMany(f)
	}
	return all, err
}

// document is what conditions see of a live document.
func (s *Snapshot) document(ordinal uint32) (*condition.Document, error) {
	payload, err := s.Payload(ordinal)
	return condition.NewDocument(payload, s.ID(ordinal), ordinal), err
}

// findFields looks for documents that have the fields of a condition, of those that
// are not known yet.
func (q *selecting) findFields(c *condition.Condition, known map[condition.Field]bool) (err error) {
	defer storage.Guard(q.snap.Path(), &err)()
	var left []condition.Field
	look := q.rest
	for _, f := range c.Fields() {
		for _, r := range q.runs {
			if known[f] {
				break
			}
			docs, complete, err := r.Present(f)
			if err != nil {
				return q.snap.badRun(r.FieldRun, err)
			}
			known[f] = docs.Intersects(r.counts)
			if !complete {
				look = roaring.Or(look, r.counts)
			}
		}
		if !known[f] {
			left = append(left, f)
		}
	}
	n := 0
	for it := look.Iterator(); it.HasNext() && len(left) > 0; n++ {
		if n%scanBlock == 0 && q.ctx.Err() != nil {
			return q.ctx.Err()
		}
		d, err := q.snap.document(it.Next())
		if err != nil {
			return err
		}
		still := left[:0]
		for _, f := range left {
			if known[f] = d.Has(f); !known[f] {
				still = append(still, f)
			}
		}
		left = still
	}
	return nil
}
