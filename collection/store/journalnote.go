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

// noteChosenIDs notes the ids of the chosen documents in a change, for indexes of another [Opened.Base].
func (w *worker) noteChosenIDs(o *openedIndex, ch *change) error {
	if ch.Base = w.c.external.Base; ch.chosen == nil {
		return nil
	}
	snap, err := o.ix.Snapshot()
	if err != nil {
		return err
	}
	ch.IDs, err = idsFromOrdinals(snap, ch.chosen)
	return errors.Join(err, snap.Close())
}

// idsFromOrdinals returns the ids of documents that are chosen with all of their parts, and of single passages: another index
// may have the text of a document in other passages.
func idsFromOrdinals(snap *index.Snapshot, chosen *roaring.Bitmap) ([]string, error) {
	ids := make([]string, 0, chosen.GetCardinality())
	last, allChosen := "", false // a document with passages, and whether all of them are chosen
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
			notChosen := func(part uint32) bool { return !chosen.Contains(part) }
			last, allChosen = document, !slices.ContainsFunc(parts, notChosen)
			if allChosen {
				ids = append(ids, strings.Clone(document))
			}
		}
		if !allChosen {
			ids = append(ids, strings.Clone(id))
		}
	}
	return ids, nil
}

// fromOtherBase reports whether a change was decided for an index with other ordinals.
func (w *worker) fromOtherBase(ch *change) bool {
	return w.journal() != nil && ch.Base != w.c.external.Base
}

// notedRefusals are the refusals that depend on the documents that are there, by their names in a log.
var notedRefusals = []struct {
	name string
	err  error
}{
	{"duplicate", index.ErrDuplicateID}, {"metadata", collection.ErrMetadata}, {"option", index.ErrOption},
	{"too large", collection.ErrTooLarge},
}

// refusalName is the name of a refusal; "" means that it is not noted.
func refusalName(err error) string {
	for _, n := range notedRefusals {
		if errors.Is(err, n.err) {
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
	for _, n := range notedRefusals {
		if n.name == o.Refused {
			kind = n.err
		}
	}
	return fmt.Errorf("%w: %s", kind, o.Message)
}

// logNoChange puts an entry that says that a request which is sent again has changed nothing, or was refused. Else the
// first sending of it, which waits at another node, could change documents that came after this answer.
func (w *worker) logNoChange(ctx context.Context, r *request) error {
	o, err := w.requireIndex()
	if err != nil {
		return err
	}
	out := outcome{ID: r.batch.ID}
	if r.err != nil {
		out.Refused, out.Message = refusalName(r.err), r.err.Error()
	}
	none := changeHead{Kind: deleteDocuments, Batches: []outcome{out}}
	if _, err = w.commitChange(ctx, o, &change{changeHead: none, chosen: roaring.New()}); err == nil {
		r.entry = w.appended
	}
	return err
}
