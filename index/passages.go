package index

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/vectors"
)

// A passage is a document whose payload says so ([vectors.PassageField]) and whose id is
// that of the longer document, "#" and a number. Nothing else is kept of it: whatever
// keeps ids, payloads and what is derived from them keeps passages.

// passageOf is the field with the id of the longer document, passageNumber that with the
// number of the passage. Conditions may name them where there are no passages, too.
var (
	passageOf     = condition.MakeField(vectors.PassageField, "of")
	passageNumber = condition.MakeField(vectors.PassageField, "n")
)

// passageSet has the passages of a picture, when somebody has asked for them.
type passageSet struct {
	finding turn
	docs    atomic.Pointer[roaring.Bitmap]
}

// Passages are the ordinals of the live documents that are passages of longer ones. The
// bitmap is not to be changed.
func (s *Snapshot) Passages(ctx context.Context) (*roaring.Bitmap, error) {
	p := &s.picture.passages
	if docs := p.docs.Load(); docs != nil {
		return docs, nil
	}
	if err := p.finding.begin(ctx); err != nil {
		return nil, err
	}
	defer p.finding.end()
	if docs := p.docs.Load(); docs != nil {
		return docs, nil
	}
	var docs *roaring.Bitmap
	err := s.withSelector(func(m *metadata.Selector) (err error) {
		docs, err = m.Having(ctx, passageOf)
		return err
	})
	if err != nil {
		return nil, err
	}
	p.docs.Store(docs)
	return docs, nil
}

// PassageOf is the id of the longer document that a passage belongs to, given the ordinal
// of one of [Snapshot.Passages], and its number.
func (s *Snapshot) PassageOf(ordinal uint32) (id string, number int) {
	return vectors.SplitPassageID(s.ID(ordinal))
}

// eachPassage is from how many passages for an id on these are looked up by their ids,
// and no more than maxLookups at a time.
const eachPassage, maxLookups = 16, 4096

// PassagesOf are the ordinals of the live passages of longer documents, given their ids.
func (s *Snapshot) PassagesOf(ctx context.Context, ids []string) (*roaring.Bitmap, error) {
	all, err := s.Passages(ctx)
	if err != nil || all.IsEmpty() || len(ids) == 0 {
		return roaring.New(), err
	}
	wanted := make(map[string]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	among := all
	if len(ids) <= maxLookups && uint64(len(ids))*eachPassage <= all.GetCardinality() {
		if among, err = s.namedAsWhole(ctx, ids); err != nil {
			return nil, err
		}
		among.And(all)
	}
	found := roaring.New()
	for it, n := among.Iterator(), 0; it.HasNext(); n++ {
		if n%1024 == 1023 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		ordinal := it.Next()
		if of, number := s.PassageOf(ordinal); number >= 0 && wanted[of] {
			found.Add(ordinal)
		}
	}
	return found, nil
}

// PassagesInOrder are the ordinals of the live passages of a longer document, by their
// numbers.
func (s *Snapshot) PassagesInOrder(ctx context.Context, id string) ([]uint32, error) {
	docs, err := s.PassagesOf(ctx, []string{id})
	if err != nil {
		return nil, err
	}
	all := docs.ToArray()
	slices.SortFunc(all, func(a, b uint32) int {
		_, m := s.PassageOf(a)
		_, n := s.PassageOf(b)
		return m - n
	})
	return all, nil
}

// namedAsWhole are the documents whose payloads name one of some as the longer one.
func (s *Snapshot) namedAsWhole(ctx context.Context, ids []string) (*roaring.Bitmap, error) {
	expr, err := condition.Parse(string(passageOf) + " IN (" + strings.Repeat("?, ", len(ids)-1) + "?)")
	if err != nil {
		return nil, err
	}
	params := make([]any, len(ids))
	for i, id := range ids {
		params[i] = id
	}
	where, err := expr.Bind(params...)
	if err != nil {
		return nil, err
	}
	return s.selectKnown(ctx, where)
}

// Named are the ordinals of the live documents that ids stand for: those of the ids, and
// all passages of a longer document whose id it is. Ids that stand for none are missing,
// in order.
func (s *Snapshot) Named(ctx context.Context, ids []string) (docs *roaring.Bitmap, missing []string, err error) {
	return s.named(ctx, ids, true)
}

// named is Named, or without passages what ids stand for in any case.
func (s *Snapshot) named(ctx context.Context, ids []string, passages bool) (docs *roaring.Bitmap, missing []string, err error) {
	docs = roaring.New()
	if passages {
		if docs, err = s.PassagesOf(ctx, ids); err != nil {
			return nil, nil, err
		}
	}
	whole := map[string]bool{}
	for it := docs.Iterator(); it.HasNext(); {
		of, _ := s.PassageOf(it.Next())
		whole[of] = true
	}
	for i, id := range ids {
		if i%1024 == 1023 && ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		ordinal, ok, err := s.Ordinal(id)
		switch {
		case err != nil:
			return nil, nil, err
		case ok:
			docs.Add(ordinal)
		case !whole[id]:
			missing = append(missing, id)
		}
	}
	return docs, missing, nil
}

// checkPassage finds what a document that is to be stored says of itself as a passage;
// nil: it is none.
func checkPassage(i int, d vectors.Document) (*vectors.Passage, error) {
	p, err := vectors.PassageOf(d.ID, d.Payload)
	if err != nil {
		return nil, ofDocument(i, d.ID, err)
	}
	return p, nil
}

// keepPassage is a payload that replaces that of a document, with what says that the
// document is a passage, if it is one. A payload makes none of another document.
func (s *Snapshot) keepPassage(ctx context.Context, ordinal uint32, payload []byte) ([]byte, error) {
	passages, err := s.Passages(ctx)
	if err != nil {
		return nil, err
	}
	id := s.ID(ordinal)
	own, err := vectors.PassageOf(id, payload)
	if err == nil && own != nil && !passages.Contains(ordinal) {
		// That of which it would be one may be there, or have other passages.
		err = fmt.Errorf("%w: field %s would make it a passage of %q: add it with the others of that document", ErrOption, vectors.PassageField, own.Of)
	}
	if err != nil || own != nil || !passages.Contains(ordinal) {
		return payload, err
	}
	was, err := s.Payload(ordinal)
	if err != nil {
		return nil, err
	}
	own, err = vectors.PassageOf(id, was)
	if err != nil || own == nil {
		return payload, err
	}
	return own.Payload(payload)
}

// arrivals are the passages among the documents of a source.
type arrivals struct {
	rows  *roaring.Bitmap
	whole map[string]bool // ids of the documents that they are of
}

func (a *arrivals) note(i int, d vectors.Document) error {
	p, err := checkPassage(i, d)
	if p != nil {
		a.rows.Add(uint32(i))
		a.whole[p.Of] = true
	}
	return err
}

// dropOthers has all go that the index has of the documents that are added: passages of a
// document that comes anew, and a document of which passages come.
func (a *addition) dropOthers(ctx context.Context) error {
	if a.options.Apart {
		return nil
	}
	var ids []string
	for i := range a.src.Len() {
		if !a.arrivals.rows.Contains(uint32(i)) {
			ids = append(ids, a.src.ID(i))
		}
	}
	for id := range a.arrivals.whole {
		ids = append(ids, id)
	}
	drop := func(id, of string, ordinal uint32) error {
		if _, again := a.replaced[id]; again {
			return nil
		}
		if !a.options.Replace {
			return fmt.Errorf("document %q: %w: the index has %q", of, ErrDuplicateID, id)
		}
		a.removed[id] = ordinal
		return nil
	}
	old, err := a.snap.PassagesOf(ctx, ids)
	if err != nil {
		return err
	}
	for it := old.Iterator(); it.HasNext(); {
		ordinal := it.Next()
		id := a.snap.ID(ordinal)
		of, _ := vectors.SplitPassageID(id)
		if err := drop(id, of, ordinal); err != nil {
			return err
		}
	}
	for id := range a.arrivals.whole {
		ordinal, ok, err := a.snap.Ordinal(id)
		if err == nil && ok {
			err = drop(id, id, ordinal)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
