package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/keywords"
	"github.com/plaid-ir/plaid/storage"
)

// Derived is data computed from a collection, such as keywords, and kept next to it, or elsewhere
// if the collection is read-only. It can always be computed again, and may be out of date or
// missing when it is opened.
type Derived interface {
	// Sync brings it up to a snapshot.
	Sync(ctx context.Context, snap *index.Snapshot) error
	Close() error
}

// derivedData is that of one collection: nil until it is first asked for.
type derivedData struct {
	mu          sync.Mutex // held while it is brought up to date, so that it never goes back
	data        Derived
	running     *derivedWork // nil: none runs
	closed      bool
	keepResting func(Derived) // if set, gets data that rests instead of being closed
}

// rester is data that can release its file for others, and be used again after a Sync.
type rester interface{ Rest() error }

// derivedWork is the work of opening or mending derived data, which may take long: everybody who asks
// meanwhile waits for the same.
type derivedWork struct {
	done chan struct{}
	err  error // once done
}

// Derived returns the data that [Options.Derive] has opened for the collection, up to
// date with every change that was answered when it was called. It is opened when it is
// first asked for; from then on each change brings it up to date before it is answered.
// It ends with the collection, and is not to be closed. Opening goes on beside searches
// and changes, and when ctx ends: who asks again waits for the rest only.
//
// Errors: [errors.ErrUnsupported] without Options.Derive, those of [Collection.Snapshot], and
// those of opening it and bringing it up to date.
func (c *Collection) Derived(ctx context.Context) (Derived, error) {
	if c.store.opts.Derive == nil {
		return nil, fmt.Errorf("derived data: %w", errors.ErrUnsupported)
	}
	v, err := c.Snapshot(ctx) // says why there is none
	if err != nil {
		return nil, err
	}
	if err := v.Close(); err != nil {
		return nil, err
	}
	d := &c.derived
	for {
		d.mu.Lock()
		if d.closed {
			d.mu.Unlock()
			return nil, context.Cause(c.lifetime)
		}
		if d.data != nil {
			defer d.mu.Unlock()
			if c.external != nil { // its program may have changed it
				err = c.syncDerived(ctx, d.data)
			}
			return d.data, err
		}
		m, err := c.startDeriving(nil)
		d.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if err := m.waitUntilDone(ctx); err != nil {
			return nil, err
		}
	}
}

// waitUntilDone returns the error of the work, or that of ctx if it ends before.
func (m *derivedWork) waitUntilDone(ctx context.Context) error {
	select {
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// repairDerived brings data up to date that a use of it found damaged, as Derived does for
// data that is not there: the Sync of the data is what mends it.
func (c *Collection) repairDerived(ctx context.Context, damaged Derived) (Derived, error) {
	d := &c.derived
	d.mu.Lock()
	if d.data == damaged && !d.closed { // otherwise somebody was here
		d.data = nil
		m, err := c.startDeriving(damaged)
		if err != nil {
			d.data = damaged
		}
		d.mu.Unlock()
		if err == nil {
			err = m.waitUntilDone(ctx)
		}
		if err != nil {
			return nil, err
		}
		return c.Derived(ctx)
	}
	d.mu.Unlock()
	return c.Derived(ctx)
}

// startDeriving begins to open the data, or to mend it, unless that goes on. It is for who
// holds the mutex and has no data.
func (c *Collection) startDeriving(open Derived) (*derivedWork, error) {
	d := &c.derived
	if d.running != nil {
		return d.running, nil
	}
	ctx, done, err := c.startBackground(context.Background())
	if err != nil {
		return nil, err
	}
	m := &derivedWork{done: make(chan struct{})}
	d.running = m
	go func() {
		defer done()
		c.runDeriving(ctx, m, open)
	}()
	return m, nil
}

// runDeriving opens the data, or mends what was open. Only the changes that came meanwhile
// are left for when the writer has to wait.
func (c *Collection) runDeriving(ctx context.Context, m *derivedWork, open Derived) {
	d := &c.derived
	data, err := c.openDerived(ctx, open)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		if err = c.syncDerived(ctx, data); err != nil {
			err = errors.Join(err, data.Close())
		}
	}
	if err == nil {
		d.data = data
	} else if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	c.store.countPanic(err)
	m.err, d.running = err, nil
	close(m.done)
}

// openDerived opens the data, unless it is open, and brings it up to date. It runs in a
// goroutine of its own, where a panic would end the process. After an error the data is
// closed.
func (c *Collection) openDerived(ctx context.Context, open Derived) (data Derived, err error) {
	defer storage.Guard(c.indexPath(), &err)()
	if data = open; data == nil {
		if data, err = c.store.opts.Derive(ctx, c.indexPath(), c.external == nil || c.external.Write, c.Config()); err != nil {
			return nil, err // whatever data is: perhaps a nil of a type
		}
	}
	for range 2 { // the first may take long
		if err := c.syncDerived(ctx, data); err != nil {
			return nil, errors.Join(err, data.Close())
		}
	}
	return data, nil
}

// syncDerived brings the data up to the collection as it is now.
func (c *Collection) syncDerived(ctx context.Context, data Derived) (err error) {
	defer storage.Guard(c.indexPath(), &err)()
	v, err := c.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	return data.Sync(ctx, v.snap)
}

// syncAfterChange brings derived data up to a change. That it cannot be is no fault of the
// change: it is opened anew when it is next asked for.
func (d *derivedData) syncAfterChange(ctx context.Context, c *Collection) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.data == nil {
		return
	}
	if err := c.syncDerived(ctx, d.data); err != nil {
		c.store.countPanic(err)
		c.log.Error("derived data is behind the collection, and will be opened anew", "error", errors.Join(err, d.data.Close()))
		d.data = nil
	}
}

func (d *derivedData) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.data == nil {
		return nil
	}
	data := d.data
	d.data = nil
	if r, ok := data.(rester); ok && d.keepResting != nil {
		if err := r.Rest(); err != nil {
			return errors.Join(err, data.Close())
		}
		d.keepResting(data)
		return nil
	}
	return data.Close()
}

// DeriveKeywords is what [Options] derive for searches by keywords: a file next to the index of each
// collection that is searched so. Without it such searches are [collection.ErrUnsupported]. A
// collection that is only read takes the file that is there, with its settings, or makes a
// temporary one.
func DeriveKeywords(log *slog.Logger) func(ctx context.Context, path string, write bool,
	c collection.Config) (Derived, error) {
	return func(ctx context.Context, path string, write bool, c collection.Config) (Derived, error) {
		path, settings := keywords.Path(path), c.Keywords()
		if _, err := os.Stat(path); err == nil && !write {
			settings = nil
		}
		ix, err := keywords.Open(ctx, path, &keywords.Options{Settings: settings, Write: write, Logger: log})
		if err != nil {
			return nil, err // and no nil of a type, which is not nil to who gets it
		}
		return ix, nil
	}
}

// SearchKeywords implements [collection.Keywords].
func (v *Snapshot) SearchKeywords(ctx context.Context, q collection.KeywordQuery) (hits []search.Hit, err error) {
	err = v.withKeywords(ctx, func(ix *keywords.Index) (err error) {
		hits, err = v.searchKeywords(ctx, ix, &q)
		return err
	})
	return hits, err
}

// KeywordStatistics is what a query finds in the collection: of several that are searched as one, the sums
// are [collection.KeywordQuery].Statistics for each.
func (v *Snapshot) KeywordStatistics(ctx context.Context, q keywords.Query) (st keywords.Statistics, err error) {
	err = v.withKeywords(ctx, func(ix *keywords.Index) (err error) {
		st, err = ix.Statistics(ctx, q)
		return err
	})
	return st, err
}

// withKeywords calls use with the keywords of the collection, and once more if it finds them
// damaged. If they were closed first because they could not follow a change, they are opened again;
// the error says why that failed.
func (v *Snapshot) withKeywords(ctx context.Context, use func(*keywords.Index) error) error {
	ix, err := toKeywords(v.c.Derived(ctx))
	for repaired := false; err == nil; {
		switch err = use(ix); {
		case errors.Is(err, storage.ErrClosed):
			ix, err = toKeywords(v.c.Derived(ctx))
		case errors.Is(err, keywords.ErrDamaged) && !repaired:
			repaired = true
			ix, err = toKeywords(v.c.repairDerived(ctx, ix))
		default:
			return err
		}
	}
	return err
}

// toKeywords are the keywords of a collection, if that is what its store derives.
func toKeywords(derived Derived, err error) (*keywords.Index, error) {
	ix, ok := derived.(*keywords.Index)
	if errors.Is(err, errors.ErrUnsupported) || err == nil && !ok {
		return nil, collection.Unsupported("a search by keywords")
	}
	return ix, err
}

func (v *Snapshot) searchKeywords(ctx context.Context, ix *keywords.Index, q *collection.KeywordQuery) ([]search.Hit, error) {
	var allowed *roaring.Bitmap
	for _, f := range q.Filters {
		switch {
		case f == nil:
		case allowed == nil:
			allowed = f.Docs
		default:
			allowed = roaring.And(allowed, f.Docs)
		}
	}
	page := q.Page()
	if err := page.Check(); err != nil {
		return nil, err
	}
	rank := func(k int) ([]keywords.ScoredDocument, error) {
		return ix.Search(ctx, keywords.Query{Text: q.Text, Mode: q.Mode, K: k, Filter: allowed, Statistics: q.Statistics})
	}
	if q.Passages > 0 {
		hits, err := search.RankWords(ctx, v.snap, page.End(), q.Passages, false, rank)
		return page.Hits(hits), err
	}
	found, err := rank(page.End())
	if err != nil {
		return nil, err
	}
	hits := make([]search.Hit, 0, len(found))
	for _, h := range found {
		if v.snap.Live(h.Ordinal) { // the keywords may know of a later change than the view
			hits = append(hits, search.Hit{ID: v.snap.ID(h.Ordinal), Ordinal: h.Ordinal, Score: h.Score})
		}
	}
	return page.Hits(hits), nil
}
