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

// selectionBytes estimates the memory of a selection in the queue.
func selectionBytes(s *collection.Selection) int64 {
	n := 8*int64(len(s.Numbers)) + 64 // 64 for the request itself
	for _, id := range s.IDs {
		n += int64(len(id)) + 16 // 16 for the string's header
	}
	if s.Where != nil {
		n += int64(len(s.Where.String())) + 16*int64(len(s.Where.Params()))
	}
	return n
}

// selectDocuments returns the live documents of a selection. The caller owns the bitmap.
func selectDocuments(ctx context.Context, snap *index.Snapshot, s *collection.Selection) (*roaring.Bitmap, error) {
	var selected *roaring.Bitmap
	intersect := func(b *roaring.Bitmap) {
		if selected == nil {
			selected = b
			return
		}
		selected.And(b)
	}
	if s.Numbers != nil {
		b := roaring.New()
		for _, n := range s.Numbers {
			if isLive(snap, n) {
				b.Add(uint32(n))
			}
		}
		intersect(b)
	}
	if s.IDs != nil {
		b, _, err := snap.OrdinalsOfIDs(ctx, s.IDs)
		if err != nil {
			return nil, err
		}
		intersect(b)
	}
	if s.Where != nil {
		b, err := snap.Select(ctx, s.Where)
		if err != nil {
			return nil, err
		}
		intersect(b)
	}
	if selected == nil {
		selected = roaring.New()
		selected.AddRange(0, uint64(snap.State().Docs))
		selected.AndNot(snap.Tombstones())
	}
	return selected, nil
}

// isLive reports whether a number is that of a document that was not deleted.
func isLive(snap *index.Snapshot, number uint64) bool {
	return number < uint64(snap.State().Docs) && snap.Live(uint32(number))
}

// Filter returns a filter that lets the documents of a selection through. Queries may share it. A nil filter lets all
// documents through.
func (v *Snapshot) Filter(ctx context.Context, s collection.Selection) (*search.Filter, error) {
	if s.SelectsAll() {
		return nil, nil
	}
	b, err := selectDocuments(ctx, v.snap, &s)
	if err != nil {
		return nil, err
	}
	return (&search.Filter{Docs: b}).Prepared(), nil
}

// Facets implements [collection.Faceter].
func (v *Snapshot) Facets(ctx context.Context, fields []condition.Field, s collection.Selection,
	o index.FacetOptions) ([]*index.Facet, error) {
	docs, err := selectDocuments(ctx, v.snap, &s)
	if err != nil {
		return nil, err
	}
	facets := make([]*index.Facet, len(fields))
	remaining := cmp.Or(o.Memory, index.DefaultFacetMemory)
	for i, f := range fields {
		o.Memory = max(remaining, 1) // 0 would mean the default
		if facets[i], err = v.snap.Facet(ctx, f, docs, &o); err != nil {
			return nil, err
		}
		remaining -= facets[i].Bytes()
	}
	return facets, nil
}

// Documents implements [collection.Snapshot].
func (v *Snapshot) Documents(ctx context.Context, s collection.Selection,
	o collection.ReadOptions) iter.Seq2[collection.StoredDocument, error] {
	return func(yield func(collection.StoredDocument, error) bool) {
		n := 0
		for ordinal, err := range v.ordinals(ctx, &s, o.From) {
			var d collection.StoredDocument
			if err == nil {
				err = ctx.Err()
			}
			if err == nil {
				d, err = v.readDocument(ordinal, &o)
			}
			n++
			if !yield(d, err) || err != nil || n == o.Limit {
				return
			}
		}
	}
}

// ordinals yields the ordinals of a selection: in the order of its list, or ascending and beginning at from.
func (v *Snapshot) ordinals(ctx context.Context, s *collection.Selection, from uint64) iter.Seq2[uint32, error] {
	return func(yield func(uint32, error) bool) {
		err := s.Check()
		switch {
		case err != nil:
		case s.Numbers != nil:
			for _, n := range s.Numbers {
				if isLive(v.snap, n) && !yield(uint32(n), nil) {
					return
				}
			}
		case s.IDs != nil:
			for _, id := range s.IDs {
				var ordinals []uint32
				if ordinals, err = v.ordinalsByID(ctx, id); err != nil {
					break
				}
				for _, o := range ordinals {
					if !yield(o, nil) {
						return
					}
				}
			}
		default:
			var b *roaring.Bitmap
			if b, err = selectDocuments(ctx, v.snap, s); err != nil {
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

// ordinalsByID returns the ordinals of a document, by its id, or of a passage, by its own.
func (v *Snapshot) ordinalsByID(ctx context.Context, id string) ([]uint32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	docs, _, err := v.snap.OrdinalsOfIDs(ctx, []string{id})
	if err != nil {
		return nil, err
	}
	return docs.ToArray(), nil
}

// readDocument reads the parts of a document that the options ask for.
func (v *Snapshot) readDocument(ordinal uint32, o *collection.ReadOptions) (d collection.StoredDocument, err error) {
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
