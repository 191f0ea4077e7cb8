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

// snapshotState is what the snapshots taken between two changes share.
type snapshotState struct {
	version      uint64 // of this process
	fileSnapshot *storage.Snapshot
	codec        *codec.Quantizer
	scorer       kernels.Scorer
	live         liveSet
	defaults     func() (*storage.Defaults, error)
	selector     func() (*metadata.Selector, error) // made for the first condition
	refs         int                                // guarded by Index.mu; one is the index's own
}

// lastVersion counts those that were made.
var lastVersion atomic.Uint64

// newState makes the picture of a view. older may be nil; what it shares with the
// view is taken from it.
func (ix *Index) newState(v *storage.Snapshot, older *snapshotState) (*snapshotState, error) {
	p := &snapshotState{version: lastVersion.Add(1), fileSnapshot: v, refs: 1, defaults: sync.OnceValues(v.Defaults)}
	p.selector = sync.OnceValues(func() (*metadata.Selector, error) { return openSelector(v) })
	if older == nil {
		p.live = newLiveSet(v)
	} else {
		p.live = nextLiveSet(v, older.fileSnapshot, older.live)
	}
	if older != nil && v.Codec() == older.fileSnapshot.Codec() {
		p.codec, p.scorer = older.codec, older.scorer
		return p, nil
	}
	var err error
	if p.codec, err = newQuantizer(ix.Path(), v.Codec(), v.Cutoffs()); err != nil {
		return nil, err
	}
	if p.scorer, err = ix.backend.Scorer(v.Codec()); err != nil {
		return nil, fmt.Errorf("%s: %w", ix.Path(), err)
	}
	return p, nil
}

// newQuantizer is the codec of a file.
func newQuantizer(path string, c *kernels.Codec, cutoffs []float32) (*codec.Quantizer, error) {
	q, err := codec.New(*c)
	if err == nil && cutoffs != nil {
		q, err = q.WithCutoffs(cutoffs)
	}
	if err != nil {
		return nil, &storage.CorruptError{Path: path, What: "codec", Err: err}
	}
	return q, nil
}

// acquireState takes the current picture, which is to be released. It is nil where none has
// been made yet, or could be made after a change.
func (ix *Index) acquireState() (*snapshotState, error) {
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

func (ix *Index) releaseState(p *snapshotState) error {
	ix.mu.Lock()
	p.refs--
	last := p.refs == 0
	ix.mu.Unlock()
	if !last {
		return nil
	}
	return p.fileSnapshot.Close()
}

// setCurrent puts a picture, or nil, in the place of the current one.
func (ix *Index) setCurrent(p *snapshotState) error {
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
	return ix.releaseState(old)
}

// ensureCurrent makes a picture where there is none; many who ask at once wait for one.
func (ix *Index) ensureCurrent(ctx context.Context) error {
	ix.stateMu.Lock()
	defer ix.stateMu.Unlock()
	p, err := ix.acquireState()
	if err != nil {
		return err
	}
	if p != nil {
		return ix.releaseState(p)
	}
	return ix.openNewest(ctx, nil)
}

// refreshCurrent shows what the file holds now. If that fails, what was shown stays.
func (ix *Index) refreshCurrent() error {
	ix.stateMu.Lock()
	defer ix.stateMu.Unlock()
	older, err := ix.acquireState()
	if err != nil {
		return err
	}
	err = ix.openNewest(context.Background(), older) // what is done is to be seen
	if older != nil {
		err = errors.Join(err, ix.releaseState(older))
	}
	return err
}

func (ix *Index) openNewest(ctx context.Context, older *snapshotState) error {
	var olderView *storage.Snapshot
	if older != nil {
		olderView = older.fileSnapshot
	}
	v, err := ix.file.SnapshotAfter(ctx, olderView)
	if err != nil {
		return err
	}
	p, err := ix.readState(v, older)
	if err != nil {
		return errors.Join(err, v.Close())
	}
	return ix.setCurrent(p)
}

func (ix *Index) readState(v *storage.Snapshot, older *snapshotState) (p *snapshotState, err error) {
	defer storage.Guard(ix.Path(), &err)()
	if older != nil {
		// Searches would find the same, and report it.
		if err := v.CheckNew(older.fileSnapshot); err != nil {
			ix.log.Warn("what a change has written is damaged", "index", ix.Path(), "error", err)
		}
	}
	return ix.newState(v, older)
}

// afterChange is to be called when a change has been tried, whatever came of it. (If the
// outcome of the change is not known the file goes on showing what it held before.)
// A change that is done stays done if it cannot be shown: then no snapshots are to be
// had, for want of one that shows it, until it can.
func (ix *Index) afterChange(err error) error {
	refreshErr := ix.refreshCurrent()
	switch {
	case refreshErr == nil, errors.Is(refreshErr, storage.ErrClosed):
	case err != nil:
		ix.log.Warn("the index was not read anew after a change that failed", "index", ix.Path(), "error", refreshErr)
	default:
		ix.log.Error("a change is done, but cannot be read", "index", ix.Path(), "error", refreshErr)
		_ = ix.setCurrent(nil) // a read transaction: closing it loses nothing
	}
	return err
}
