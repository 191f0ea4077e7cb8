package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

// name notes the ids of the chosen documents in a change, for indexes of another [Opened.Base].
func (w *worker) name(o *opened, ch *change) error {
	if ch.Base = w.c.given.Base; ch.chosen == nil {
		return nil
	}
	snap, err := o.ix.Snapshot()
	if err != nil {
		return err
	}
	ch.IDs, err = namesOf(snap, ch.chosen)
	return errors.Join(err, snap.Close())
}

// namesOf returns the ids of documents that are chosen with all of their parts, and of single passages: another index
// may have the text of a document in other passages.
func namesOf(snap *index.Snapshot, chosen *roaring.Bitmap) ([]string, error) {
	ids := make([]string, 0, chosen.GetCardinality())
	last, whole := "", false // a document with passages, and whether all of them are chosen
	for it := chosen.Iterator(); it.HasNext(); {
		ordinal := it.Next()
		id := snap.ID(ordinal)
		if !snap.Passages().Contains(ordinal) {
			ids = append(ids, strings.Clone(id))
			continue
		}
		document := snap.DocumentOf(ordinal)
		if document != last {
			parts, err := snap.PassagesOf(document)
			if err != nil {
				return nil, err
			}
			other := func(part uint32) bool { return !chosen.Contains(part) }
			last, whole = document, !slices.ContainsFunc(parts, other)
			if whole {
				ids = append(ids, strings.Clone(document))
			}
		}
		if !whole {
			ids = append(ids, strings.Clone(id))
		}
	}
	return ids, nil
}

// foreign reports whether a change was decided for an index with other ordinals.
func (w *worker) foreign(ch *change) bool { return w.journal() != nil && ch.Base != w.c.given.Base }

// noted are the refusals that depend on the documents that are there, by their names in a log.
var noted = []struct {
	name string
	is   error
}{
	{"duplicate", index.ErrDuplicateID}, {"metadata", collection.ErrMetadata}, {"option", index.ErrOption},
	{"too large", collection.ErrTooLarge},
}

// notedAs is the name of a refusal; "" means that it is not noted.
func notedAs(err error) string {
	for _, n := range noted {
		if errors.Is(err, n.is) {
			return n.name
		}
	}
	return ""
}

// refusal is the error of a request that was refused; nil means that it was done.
func (o *outcome) refusal() error {
	if o.Refused == "" {
		return nil
	}
	kind := storage.ErrOutcomeUnknown // of a newer program
	for _, n := range noted {
		if n.name == o.Refused {
			kind = n.is
		}
	}
	return fmt.Errorf("%w: %s", kind, o.Says)
}

// noteNothing puts an entry that says that a request which is sent again has changed nothing, or was refused. Else the
// first sending of it, which waits at another node, could change documents that came after this answer.
func (w *worker) noteNothing(ctx context.Context, r *request) error {
	o, err := w.nonEmpty()
	if err != nil {
		return err
	}
	out := outcome{ID: r.batch.ID}
	if r.err != nil {
		out.Refused, out.Says = notedAs(r.err), r.err.Error()
	}
	none := changeHead{Kind: deleteDocuments, Batches: []outcome{out}}
	if _, err = w.commit(ctx, o, &change{changeHead: none, chosen: roaring.New()}); err == nil {
		r.entry = w.appended
	}
	return err
}
