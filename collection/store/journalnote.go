package store

import (
	"context"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"
)

// name notes in a change what an index of another [Opened.Base] needs to do it.
func (w *worker) name(o *opened, ch *change) error {
	if ch.Base = w.c.given.Base; ch.chosen == nil {
		return nil
	}
	snap, err := o.ix.Snapshot()
	if err != nil {
		return err
	}
	ch.IDs = make([]string, 0, ch.chosen.GetCardinality())
	for it := ch.chosen.Iterator(); it.HasNext(); {
		ch.IDs = append(ch.IDs, strings.Clone(snap.ID(it.Next())))
	}
	return snap.Close()
}

// foreign reports whether a change was decided for an index with other ordinals.
func (w *worker) foreign(ch *change) bool { return w.journal() != nil && ch.Base != w.c.given.Base }

// noteNothing puts an entry that says that a request which is sent again has changed nothing, or was refused. Else the
// first of its kind, which waits elsewhere, would do what there is to do after this one was answered.
func (w *worker) noteNothing(ctx context.Context, r *request) error {
	o, err := w.nonEmpty()
	if err != nil {
		return err
	}
	out := outcome{ID: r.batch.ID}
	if r.err != nil {
		out.Taken = r.err.Error()
	}
	none := changeHead{Kind: deleteDocuments, Batches: []outcome{out}}
	if _, err = w.commit(ctx, o, &change{changeHead: none, chosen: roaring.New()}); err == nil {
		r.entry = w.appended
	}
	return err
}
