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

// noteChosenIDs notes the ids of the chosen documents in a change, for indexes with another [OpenIndex.Base].
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

// idsFromOrdinals returns the ids of the chosen documents. A document of passages is named once if all of its passages
// are chosen, since another index may have split its text differently; otherwise each chosen passage is named.
func idsFromOrdinals(snap *index.Snapshot, chosen *roaring.Bitmap) ([]string, error) {
	ids := make([]string, 0, chosen.GetCardinality())
	lastDocument, allChosen := "", false // the last document with passages, and whether all of them are chosen
	for it := chosen.Iterator(); it.HasNext(); {
		ordinal := it.Next()
		id := snap.ID(ordinal)
		if !snap.Passages().Contains(ordinal) {
			ids = append(ids, strings.Clone(id))
			continue
		}
		document := snap.DocumentOf(ordinal)
		if document != lastDocument {
			passages, err := snap.PassagesOf(document)
			if err != nil {
				return nil, err
			}
			notChosen := func(passage uint32) bool { return !chosen.Contains(passage) }
			lastDocument, allChosen = document, !slices.ContainsFunc(passages, notChosen)
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

// notedRefusals are the refusals that depend on the stored documents, with their names in a log.
var notedRefusals = []struct {
	name string
	err  error
}{
	{"duplicate", index.ErrDuplicateID}, {"metadata", collection.ErrMetadata}, {"option", index.ErrOption},
	{"too large", collection.ErrTooLarge},
}

// refusalName returns the name of a refusal in a log. "" means that the log does not note it.
func refusalName(err error) string {
	for _, n := range notedRefusals {
		if errors.Is(err, n.err) {
			return n.name
		}
	}
	return ""
}

// refusal returns the error of a refused request, nil if the request was done.
func (o *outcome) refusal() error {
	if o.Refused == "" {
		return nil
	}
	kind := storage.ErrOutcomeUnknown // a newer program may note refusals that this one does not know
	for _, n := range notedRefusals {
		if n.name == o.Refused {
			kind = n.err
		}
	}
	return fmt.Errorf("%w: %s", kind, o.Message)
}

// logNoChange appends an entry that says that a repeated request has changed nothing, or was refused. Without it, the
// first sending, which may still be waiting at another node, could change documents that are added after this answer.
func (w *worker) logNoChange(ctx context.Context, r *request) error {
	o, err := w.requireIndex()
	if err != nil {
		return err
	}
	out := outcome{ID: r.batch.ID}
	if r.err != nil {
		out.Refused, out.Message = refusalName(r.err), r.err.Error()
	}
	noChange := changeHead{Kind: deleteDocuments, Batches: []outcome{out}}
	if _, err = w.commitChange(ctx, o, &change{changeHead: noChange, chosen: roaring.New()}); err == nil {
		r.entry = w.appended
	}
	return err
}
