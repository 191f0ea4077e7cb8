package index

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index/metadata"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// picture is what the snapshots taken between two changes share.
type picture struct {
	number   uint64 // of this process
	view     *storage.Snapshot
	codec    *codec.Quantizer
	scorer   kernels.Scorer
	live     liveSet
	defaults func() (*storage.Defaults, error)
	selector func() (*metadata.Selector, error) // made for the first condition
	refs     int                                // guarded by Index.mu; one is the index's own
}

// pictures counts those that were made.
var pictures atomic.Uint64

// newPicture makes the picture of a view. older may be nil; what it shares with the
// view is taken from it.
func (ix *Index) newPicture(v *storage.Snapshot, older *picture) (*picture, error) {
	p := &picture{number: pictures.Add(1), view: v, refs: 1, defaults: sync.OnceValues(v.Defaults)}
	p.selector = sync.OnceValues(func() (*metadata.Selector, error) { return selectorOf(v) })
	if older == nil {
		p.live = newLiveSet(v)
	} else {
		p.live = nextLiveSet(v, older.view, older.live)
	}
	if older != nil && v.Codec() == older.view.Codec() {
		p.codec, p.scorer = older.codec, older.scorer
		return p, nil
	}
	var err error
	if p.codec, err = quantizerOf(ix.Path(), v.Codec(), v.Cutoffs()); err != nil {
		return nil, err
	}
	if p.scorer, err = ix.backend.Scorer(v.Codec()); err != nil {
		return nil, fmt.Errorf("%s: %w", ix.Path(), err)
	}
	return p, nil
}

// quantizerOf is the codec of a file.
func quantizerOf(path string, c *kernels.Codec, cutoffs []float32) (*codec.Quantizer, error) {
	q, err := codec.New(*c)
	if err == nil && cutoffs != nil {
		q, err = q.WithCutoffs(cutoffs)
	}
	if err != nil {
		return nil, &storage.CorruptError{Path: path, What: "codec", Err: err}
	}
	return q, nil
}

// hold takes the current picture, which is to be released. It is nil where none has
// been made yet, or could be made after a change.
func (ix *Index) hold() (*picture, error) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.closed {
		return nil, fmt.Errorf("%s: %w", ix.Path(), storage.ErrClosed)
	}
	if ix.current != nil {
		ix.current.refs++
	}
	return ix.current, nil
}

func (ix *Index) release(p *picture) error {
	ix.mu.Lock()
	p.refs--
	last := p.refs == 0
	ix.mu.Unlock()
	if !last {
		return nil
	}
	return p.view.Close()
}

// show puts a picture, or nil, in the place of the current one.
func (ix *Index) show(p *picture) error {
	ix.mu.Lock()
	old := ix.current
	if p != nil && ix.closed { // meanwhile
		old = p
	} else {
		ix.current = p
	}
	ix.mu.Unlock()
	if old == nil {
		return nil
	}
	return ix.release(old)
}

// load makes a picture where there is none; many who ask at once wait for one.
func (ix *Index) load(ctx context.Context) error {
	ix.renewing.Lock()
	defer ix.renewing.Unlock()
	p, err := ix.hold()
	if err != nil {
		return err
	}
	if p != nil {
		return ix.release(p)
	}
	return ix.showNewest(ctx, nil)
}

// renew shows what the file holds now. If that fails, what was shown stays.
func (ix *Index) renew() error {
	ix.renewing.Lock()
	defer ix.renewing.Unlock()
	older, err := ix.hold()
	if err != nil {
		return err
	}
	err = ix.showNewest(context.Background(), older) // what is done is to be seen
	if older != nil {
		err = errors.Join(err, ix.release(older))
	}
	return err
}

func (ix *Index) showNewest(ctx context.Context, older *picture) error {
	var olderView *storage.Snapshot
	if older != nil {
		olderView = older.view
	}
	v, err := ix.file.SnapshotAfter(ctx, olderView)
	if err != nil {
		return err
	}
	p, err := ix.pictureOf(v, older)
	if err != nil {
		return errors.Join(err, v.Close())
	}
	return ix.show(p)
}

func (ix *Index) pictureOf(v *storage.Snapshot, older *picture) (p *picture, err error) {
	defer storage.Guard(ix.Path(), &err)()
	if older != nil {
		// Searches would find the same, and report it.
		if err := v.CheckNew(older.view); err != nil {
			ix.log.Warn("what a change has written is damaged", "index", ix.Path(), "error", err)
		}
	}
	return ix.newPicture(v, older)
}

// changed is to be called when a change has been tried, whatever came of it. (If the
// outcome of the change is not known the file goes on showing what it held before.)
// A change that is done stays done if it cannot be shown: then no snapshots are to be
// had, for want of one that shows it, until it can.
func (ix *Index) changed(err error) error {
	rerr := ix.renew()
	switch {
	case rerr == nil, errors.Is(rerr, storage.ErrClosed):
	case err != nil:
		ix.log.Warn("the index was not read anew after a change that failed", "index", ix.Path(), "error", rerr)
	default:
		ix.log.Error("a change is done, but cannot be read", "index", ix.Path(), "error", rerr)
		_ = ix.show(nil) // a read transaction: closing it loses nothing
	}
	return err
}
