package server

import (
	"context"
	"encoding/json"
	"errors"
	"iter"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/server/store"
)

// Folder are the indexes of a store. It stays the caller's.
func Folder(st *store.Store) Indexes { return folder{st} }

type folder struct{ *store.Store }

func (f folder) Place() string { return f.Dir() }

func (f folder) Get(name string) (Index, error) { return asIndex(f.Store.Get(name)) }

func (f folder) Declare(ctx context.Context, name string, c store.Config) (Index, error) {
	return asIndex(f.Store.Declare(ctx, name, c))
}

// folderIndex is an index file and its writer.
type folderIndex struct{ *store.Collection }

func asIndex(c *store.Collection, err error) (Index, error) {
	if err != nil {
		return nil, err
	}
	return folderIndex{c}, nil
}

func (c folderIndex) View(ctx context.Context) (View, error) {
	v, err := c.Collection.View(ctx)
	if err != nil {
		return nil, err
	}
	return folderView{v, c.Collection}, nil
}

func (c folderIndex) Update(ctx context.Context, docs []store.Document, o store.UpdateOptions) (Receipt, error) {
	r, err := c.Collection.Update(ctx, docs, o)
	out := Receipt{make([]uint64, len(r.Ordinals)), r.IDs, r.Generation, r.Evicted}
	for i, o := range r.Ordinals {
		out.Documents[i] = uint64(o)
	}
	return out, err
}

// folderView is one state of an index file.
type folderView struct {
	*store.View
	c *store.Collection
}

func (v folderView) Most() int { return v.Len() }

// Filter finds the documents: a set of ordinals, which serves all queries that share it.
func (v folderView) Filter(ctx context.Context, r Restriction) (*search.Filter, error) {
	var all *roaring.Bitmap
	and := func(b *roaring.Bitmap) {
		if all == nil {
			all = b
			return
		}
		all.And(b)
	}
	if r.Documents != nil {
		b := roaring.New()
		for _, id := range r.Documents {
			if v.Live(id) {
				b.Add(uint32(id))
			}
		}
		and(b)
	}
	if r.IDs != nil {
		b := roaring.New()
		for _, id := range r.IDs {
			ordinal, ok, err := v.Ordinal(id)
			if err != nil {
				return nil, err
			}
			if ok {
				b.Add(ordinal)
			}
		}
		and(b)
	}
	if r.Condition != "" {
		b, err := v.Select(ctx, r.Condition, r.Params...)
		if err != nil {
			return nil, err
		}
		and(b)
	}
	if all == nil {
		return nil, nil
	}
	return (&search.Filter{Docs: all}).Prepared(), nil
}

func (v folderView) Check(q *search.Query) error {
	_, _, err := q.Tokens(v.Snapshot())
	return err
}

func (v folderView) Tokens(_ context.Context, q *search.Query) ([]float32, error) {
	vectors, _, err := q.Tokens(v.Snapshot())
	return vectors, err
}

// Search leaves metadata out, which Metadata reads when it is asked for: that of many
// documents is never in memory at a time without being counted.
func (v folderView) Search(ctx context.Context, qs []search.Query, o search.Options) ([]search.Result, error) {
	o.Payload = false
	return v.SearchBatch(ctx, qs, o)
}

func (v folderView) Metadata(h *search.Hit) (json.RawMessage, error) {
	return v.View.Metadata(uint64(h.Ordinal))
}

func (v folderView) Documents(ctx context.Context, o Wanted) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		n := 0
		give := func(ordinal uint64) bool {
			d, err := v.document(ordinal, &o)
			if err == nil {
				err = ctx.Err()
			}
			n++
			return yield(d, err) && err == nil && (o.Limit == 0 || n < o.Limit)
		}
		var found *roaring.Bitmap
		switch chosen := o.Chosen; {
		case chosen == nil:
			found = v.All()
		case chosen.Condition != "":
			var err error
			if found, err = v.Select(ctx, chosen.Condition, chosen.Params...); err != nil {
				yield(Document{}, err)
				return
			}
		case chosen.Ordinals != nil:
			for _, ordinal := range chosen.Ordinals {
				if v.Live(ordinal) && !give(ordinal) {
					return
				}
			}
			return
		default:
			for _, id := range chosen.IDs {
				ordinal, ok, err := v.Ordinal(id)
				if err != nil {
					yield(Document{}, err)
					return
				}
				if ok && !give(uint64(ordinal)) {
					return
				}
			}
			return
		}
		for it := found.Iterator(); it.HasNext(); {
			if !give(uint64(it.Next())) {
				return
			}
		}
	}
}

// document reads what is wanted of a document.
func (v folderView) document(ordinal uint64, o *Wanted) (d Document, err error) {
	d.Document, d.ID = ordinal, v.ID(ordinal)
	if o.Metadata {
		if d.Metadata, err = v.View.Metadata(ordinal); err != nil {
			return d, err
		}
	}
	if o.Vectors {
		d.Vectors, err = v.Vectors(ordinal)
	}
	return d, err
}

// file is the index of the path as a file of this service; what is asked for can be
// done with such alone.
func (q *request) file(what string) (*store.Collection, error) {
	c, err := q.collection()
	if err != nil {
		return nil, err
	}
	f, ok := c.(folderIndex)
	if !ok {
		return nil, NotSupported(what)
	}
	return f.Collection, nil
}

// fileView calls use with the newest state of such an index.
func (q *request) fileView(what string, use func(v folderView) error) (err error) {
	c, err := q.file(what)
	if err != nil {
		return err
	}
	v, err := c.View(q.ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	return use(folderView{v, c})
}
