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

// Derived is data computed from a collection, such as a word index. It is kept next to the collection, or elsewhere
// if the collection is read-only. It can always be computed again, and may be out of date or missing when opened.
type Derived interface {
	// Sync brings the data up to date with a snapshot.
	Sync(ctx context.Context, snap *index.Snapshot) error
	Close() error
}

// derivedData is the [Derived] of one collection. It is opened on first use.
type derivedData struct {
	mu          sync.Mutex // held during a Sync, so that the data never returns to an older state
	data        Derived
	running     *derivedWork // opening or repair in progress, or nil
	closed      bool
	keepResting func(Derived) // if set, close hands over data that implements rester instead of closing it
}

// rester is implemented by data that can release its file for others, and be used again after a Sync.
type rester interface{ ReleaseFile() error }

// derivedWork is the opening or the repair of derived data. It may take long, so all callers wait for the same one.
type derivedWork struct {
	done chan struct{}
	err  error // valid once done is closed
}

// Derived returns the data that [Options.Derive] opens for the collection, up to date with every change that was
// answered before the call. The first call opens it. From then on, each change updates it before the change is
// answered. It ends with the collection, and the caller must not close it. Opening goes on in the background, also
// when ctx ends, so that a second call waits only for the remaining work.
//
// Errors: [errors.ErrUnsupported] without Options.Derive, those of [Collection.Snapshot], and
// those of opening it and bringing it up to date.
func (c *Collection) Derived(ctx context.Context) (Derived, error) {
	if c.store.opts.Derive == nil {
		return nil, fmt.Errorf("derived data: %w", errors.ErrUnsupported)
	}
	v, err := c.Snapshot(ctx) // for the error of a collection without documents
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
			if c.external != nil { // the program may have changed the index
				err = c.syncDerived(ctx, d.data)
			}
			return d.data, err
		}
		work, err := c.startDeriving(nil)
		d.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if err := work.waitUntilDone(ctx); err != nil {
			return nil, err
		}
	}
}

// waitUntilDone returns the error of the work, or that of ctx if ctx ends first.
func (work *derivedWork) waitUntilDone(ctx context.Context) error {
	select {
	case <-work.done:
		return work.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// repairDerived repairs data that turned out to be damaged: the Sync of such data rebuilds it.
func (c *Collection) repairDerived(ctx context.Context, damaged Derived) (Derived, error) {
	d := &c.derived
	d.mu.Lock()
	if d.data == damaged && !d.closed { // otherwise another caller has repaired it
		d.data = nil
		work, err := c.startDeriving(damaged)
		if err != nil {
			d.data = damaged
		}
		d.mu.Unlock()
		if err == nil {
			err = work.waitUntilDone(ctx)
		}
		if err != nil {
			return nil, err
		}
		return c.Derived(ctx)
	}
	d.mu.Unlock()
	return c.Derived(ctx)
}

// startDeriving begins to open the data, or to repair the damaged data if that is not nil. It returns the running work
// if there is one. d.mu is held, and d.data is nil.
func (c *Collection) startDeriving(damaged Derived) (*derivedWork, error) {
	d := &c.derived
	if d.running != nil {
		return d.running, nil
	}
	ctx, done, err := c.startBackground(context.Background())
	if err != nil {
		return nil, err
	}
	work := &derivedWork{done: make(chan struct{})}
	d.running = work
	go func() {
		defer done()
		c.runDeriving(ctx, work, damaged)
	}()
	return work, nil
}

// runDeriving opens or repairs the data. The last Sync runs under the mutex, when only the most recent changes are
// missing, so that the writer waits for a short time only.
func (c *Collection) runDeriving(ctx context.Context, work *derivedWork, damaged Derived) {
	d := &c.derived
	data, err := c.openDerived(ctx, damaged)
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
	work.err, d.running = err, nil
	close(work.done)
}

// openDerived opens the data, or reuses the damaged data if that is not nil, and brings it up to date. It turns a panic
// into an error, since it runs in a goroutine of its own. After an error the data is closed.
func (c *Collection) openDerived(ctx context.Context, damaged Derived) (data Derived, err error) {
	defer storage.Guard(c.indexPath(), &err)()
	if data = damaged; data == nil {
		write := c.external == nil || c.external.Write
		if data, err = c.store.opts.Derive(ctx, c.indexPath(), write, c.Config()); err != nil {
			return nil, err // not data, which may be a nil pointer in an interface
		}
	}
	for range 2 { // the first Sync may take long, and changes arrive meanwhile
		if err := c.syncDerived(ctx, data); err != nil {
			return nil, errors.Join(err, data.Close())
		}
	}
	return data, nil
}

// syncDerived brings the data up to date with the present state of the collection.
func (c *Collection) syncDerived(ctx context.Context, data Derived) (err error) {
	defer storage.Guard(c.indexPath(), &err)()
	v, err := c.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	return data.Sync(ctx, v.snap)
}

// syncAfterChange updates the data after a change. A failure does not fail the change: the data is closed, and opened
// again at its next use.
func (d *derivedData) syncAfterChange(ctx context.Context, c *Collection) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.data == nil {
		return
	}
	if err := c.syncDerived(ctx, d.data); err != nil {
		c.store.countPanic(err)
		c.log.Error("derived data is out of date, and will be opened again",
			"error", errors.Join(err, d.data.Close()))
		d.data = nil
	}
}

// close closes the data for good, or releases its file and hands it to keepResting.
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
		if err := r.ReleaseFile(); err != nil {
			return errors.Join(err, data.Close())
		}
		d.keepResting(data)
		return nil
	}
	return data.Close()
}

// DeriveKeywords returns a function for [Options].Derive: it opens the word index of a collection, in a file next to
// its index. Without it, searches by keywords are [collection.ErrUnsupported]. A read-only collection uses the file
// that exists, with its settings, or builds a temporary one.
func DeriveKeywords(log *slog.Logger) func(ctx context.Context, path string, write bool,
	c collection.Config) (Derived, error) {
	return func(ctx context.Context, path string, write bool, c collection.Config) (Derived, error) {
		path, settings := keywords.Path(path), c.Keywords()
		if _, err := os.Stat(path); err == nil && !write {
			settings = nil
		}
		ix, err := keywords.Open(ctx, path, &keywords.Options{Settings: settings, Write: write, Logger: log})
		if err != nil {
			return nil, err // a nil *keywords.Index would not be a nil interface
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

// KeywordStatistics returns the statistics of a query in the collection. If several collections are searched as one,
// their sum is the [collection.KeywordQuery].Statistics of each.
func (v *Snapshot) KeywordStatistics(ctx context.Context, q keywords.Query) (st keywords.Statistics, err error) {
	err = v.withKeywords(ctx, func(ix *keywords.Index) (err error) {
		st, err = ix.Statistics(ctx, q)
		return err
	})
	return st, err
}

// withKeywords calls use with the word index of the collection. If use finds the index damaged, it is repaired and
// use is called once more. If the index was closed because it could not follow a change, it is opened again.
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

// toKeywords returns derived data as a word index. The error is [collection.ErrUnsupported] if it is something else.
func toKeywords(derived Derived, err error) (*keywords.Index, error) {
	ix, ok := derived.(*keywords.Index)
	if errors.Is(err, errors.ErrUnsupported) || err == nil && !ok {
		return nil, collection.Unsupported("a search by keywords")
	}
	return ix, err
}

// searchKeywords ranks the live documents that all filters of the query let through.
func (v *Snapshot) searchKeywords(ctx context.Context, ix *keywords.Index,
	q *collection.KeywordQuery) ([]search.Hit, error) {
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
		return ix.Search(ctx, keywords.Query{
			Text:       q.Text,
			Mode:       q.Mode,
			K:          k,
			Filter:     allowed,
			Statistics: q.Statistics,
		})
	}
	if q.Passages > 0 {
		const withPayload = false // MetadataOf reads it
		hits, err := search.RankWords(ctx, v.snap, page.End(), q.Passages, withPayload, rank)
		return page.Hits(hits), err
	}
	ranked, err := rank(page.End())
	if err != nil {
		return nil, err
	}
	hits := make([]search.Hit, 0, len(ranked))
	for _, h := range ranked {
		if v.snap.Live(h.Ordinal) { // the word index may be newer than the snapshot
			hits = append(hits, search.Hit{ID: v.snap.ID(h.Ordinal), Ordinal: h.Ordinal, Score: h.Score})
		}
	}
	return page.Hits(hits), nil
}
