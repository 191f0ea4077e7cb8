package store

import (
	"cmp"
	"context"
	"iter"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
)

// costOf is what a selection takes in the queue.
func costOf(s *collection.Selection) int64 {
	n := 8*int64(len(s.Numbers)) + 64
	for _, id := range s.IDs {
		n += int64(len(id)) + 16
	}
	if s.Where != nil {
		n += int64(len(s.Where.String())) + 16*int64(len(s.Where.Params()))
	}
	return n
}

// resolve finds the live documents of a selection; the bitmap is the caller's.
func resolve(ctx context.Context, snap *index.Snapshot, s *collection.Selection) (*roaring.Bitmap, error) {
	var all *roaring.Bitmap
	and := func(b *roaring.Bitmap) {
		if all == nil {
			all = b
			return
		}
		all.And(b)
	}
	if s.Numbers != nil {
		b := roaring.New()
		for _, n := range s.Numbers {
			if live(snap, n) {
				b.Add(uint32(n))
			}
		}
		and(b)
	}
	if s.IDs != nil {
		b, _, err := snap.Named(ctx, s.IDs)
		if err != nil {
			return nil, err
		}
		and(b)
	}
	if s.Where != nil {
		b, err := snap.Select(ctx, s.Where)
		if err != nil {
			return nil, err
		}
		and(b)
	}
	if all == nil {
		all = roaring.New()
		all.AddRange(0, uint64(snap.State().Docs))
		all.AndNot(snap.Tombstones())
	}
	return all, nil
}

// live tells whether a number is that of a document that was not deleted.
func live(snap *index.Snapshot, number uint64) bool {
	return number < uint64(snap.State().Docs) && snap.Live(uint32(number))
}

// Filter lets the documents of a selection through: a set of ordinals, which serves all
// queries that share it. It is nil for all documents.
func (v *Snapshot) Filter(ctx context.Context, s collection.Selection) (*search.Filter, error) {
	if s.All() {
		return nil, nil
	}
	b, err := resolve(ctx, v.snap, &s)
	if err != nil {
		return nil, err
	}
	return (&search.Filter{Docs: b}).Prepared(), nil
}

// Facets implements [collection.Faceter].
func (v *Snapshot) Facets(ctx context.Context, fields []condition.Field, s collection.Selection, o index.FacetOptions) ([]*index.Facet, error) {
	docs, err := resolve(ctx, v.snap, &s)
	if err != nil {
		return nil, err
	}
	all := make([]*index.Facet, len(fields))
	left := cmp.Or(o.Memory, index.DefaultFacetMemory)
	for i, f := range fields {
		o.Memory = max(left, 1) // 0 is the default
		if all[i], err = v.snap.Facet(ctx, f, docs, &o); err != nil {
			return nil, err
		}
		left -= all[i].Bytes()
	}
	return all, nil
}

// Documents implements [collection.Snapshot].
func (v *Snapshot) Documents(ctx context.Context, s collection.Selection, o collection.ReadOptions) iter.Seq2[collection.StoredDocument, error] {
	return func(yield func(collection.StoredDocument, error) bool) {
		n := 0
		for ordinal, err := range v.inOrder(ctx, &s, o.From) {
			var d collection.StoredDocument
			if err == nil {
				err = ctx.Err()
			}
			if err == nil {
				d, err = v.read(ordinal, &o)
			}
			n++
			if !yield(d, err) || err != nil || n == o.Limit {
				return
			}
		}
	}
}

// inOrder are the ordinals of a selection: in the order of its list, or rising from one on.
func (v *Snapshot) inOrder(ctx context.Context, s *collection.Selection, from uint64) iter.Seq2[uint32, error] {
	return func(yield func(uint32, error) bool) {
		err := s.Check()
		switch {
		case err != nil:
		case s.Numbers != nil:
			for _, n := range s.Numbers {
				if live(v.snap, n) && !yield(uint32(n), nil) {
					return
				}
			}
		case s.IDs != nil:
			for _, id := range s.IDs {
				var found []uint32
				if found, err = v.named(ctx, id); err != nil {
					break
				}
				for _, o := range found {
					if !yield(o, nil) {
						return
					}
				}
			}
		default:
			var b *roaring.Bitmap
			if b, err = resolve(ctx, v.snap, s); err != nil {
				break
			}
			b.RemoveRange(0, min(from, 1<<32))
			for it := b.Iterator(); it.HasNext(); {
				if !yield(it.Next(), nil) {
					return
				}
			}
		}
		if err != nil {
			yield(0, err)
		}
	}
}

// named returns the ordinals of a document by its name, or of a passage by its own.
func (v *Snapshot) named(ctx context.Context, id string) ([]uint32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	docs, _, err := v.snap.Named(ctx, []string{id})
	if err != nil {
		return nil, err
	}
	return docs.ToArray(), nil
}

// read reads what is wanted of a document.
func (v *Snapshot) read(ordinal uint32, o *collection.ReadOptions) (d collection.StoredDocument, err error) {
	d.Number, d.ID = uint64(ordinal), v.snap.ID(ordinal)
	if v.snap.Passages().Contains(ordinal) {
		d.Of, d.Passage = v.snap.PassageOf(ordinal)
	}
	if o.Metadata {
		if d.Metadata, err = v.snap.Payload(ordinal); err != nil {
			return d, err
		}
	}
	if o.Vectors {
		d.Vectors, err = v.snap.Vectors(ordinal)
	}
	return d, err
}
