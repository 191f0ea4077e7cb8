package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search/keywords"
)

// derived are the keywords of a replica, in a file beside that of the replica. It is made when
// the first search by words asks for it, and brought up to date before each.
type derived struct {
	mu   sync.Mutex // held while it is brought up to date, so that it never goes back
	data *keywords.Index
}

func (d *derived) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.data == nil {
		return nil
	}
	err := d.data.Close()
	d.data = nil
	return err
}

// syncWords brings the keywords up to what the replica has now. The work goes on when ctx
// ends, for who asks again.
func (r *replica) syncWords(ctx context.Context) error {
	made := make(chan error, 1)
	go func() { made <- r.n.guard("keywords", func() error { return r.updateWords(r.ctx) }) }()
	select {
	case err := <-made:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *replica) updateWords(ctx context.Context) error {
	d := &r.derived
	if r.use() == nil {
		return errNotOpen
	}
	defer r.release()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.data == nil {
		settings, err := r.wordSettings()
		if err != nil {
			return err
		}
		data, err := keywords.Open(ctx, keywords.Path(r.n.path(r.key)), &keywords.Options{Settings: settings, Write: true, Logger: r.n.log})
		if err != nil {
			return err
		}
		d.data = data
	}
	return r.at(func(snap *index.Snapshot, _ uint64) error { return d.data.Sync(ctx, snap) })
}

// wordSettings are those with which the collection was declared.
func (r *replica) wordSettings() (*keywords.Settings, error) {
	m, err := r.n.watch.MapOf(r.key.collection)
	if err != nil {
		return nil, err
	}
	c := collection.Config{}
	if m.Settings != nil {
		if err := json.Unmarshal(m.Settings, &c); err != nil {
			return nil, fmt.Errorf("settings of %s: %w", m.Collection, err)
		}
	}
	return c.Keywords(), nil
}

// mostWords is how many documents an answer has at most: a message has room for them.
const mostWords = 1 << 14

// words finds documents by their words, or counts what statistics need.
func (r *replica) words(ctx context.Context, snap *index.Snapshot, l *wire.Look, f *wire.Found) error {
	r.derived.mu.Lock()
	ix := r.derived.data
	r.derived.mu.Unlock()
	if ix == nil {
		return errNotOpen
	}
	f.Words = &wire.WordsFound{}
	q := keywords.Query{Text: l.Words.Text, Mode: l.Words.Mode, K: l.Words.K, Statistics: l.Words.Statistics}
	if q.Statistics == nil {
		st, err := ix.Statistics(ctx, q)
		f.Words.Statistics = &st
		return wordsError(err)
	}
	var docs *roaring.Bitmap
	filters := l.Words.Filters
	if len(filters) == 0 {
		filters = []json.RawMessage{nil}
	}
	for _, filter := range filters {
		some, err := among(ctx, snap, l, filter, f)
		if err != nil {
			return err
		}
		if docs == nil {
			docs = some
		} else {
			docs.And(some)
		}
	}
	q.Filter = docs
	hits, err := ix.Search(ctx, q)
	if err != nil {
		return wordsError(err)
	}
	for i := int(l.From); i < len(hits); i++ {
		if len(f.Words.Hits) == mostWords {
			f.Words.More, f.Next = true, uint32(i)
			break
		}
		if h := hits[i]; snap.Live(h.Ordinal) { // the keywords may know of a later change
			f.Words.Hits = append(f.Words.Hits, wire.WordsHit{Ordinal: h.Ordinal, ID: snap.ID(h.Ordinal), Score: h.Score})
		}
	}
	return nil
}

// wordsError is an error of a query that is at fault itself.
func wordsError(err error) error {
	for _, bad := range []error{keywords.ErrOption, keywords.ErrSyntax, keywords.ErrTooLong} {
		if errors.Is(err, bad) {
			return fmt.Errorf("%w: %w", wire.ErrMessage, err)
		}
	}
	return err
}
