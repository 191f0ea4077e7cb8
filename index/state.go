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

// snapshotState is shared by the snapshots that are taken between two changes.
type snapshotState struct {
	version      uint64 // unique in this process
	fileSnapshot *storage.Snapshot
	codec        *codec.Quantizer
	scorer       kernels.Scorer
	live         liveSet
	defaults     func() (*storage.Defaults, error)
	selector     func() (*metadata.Selector, error) // opened for the first condition
	refs         int                                // guarded by Index.mu; the index itself holds one
}

// lastVersion is the last version that was given to a state of any index.
var lastVersion atomic.Uint64

// newState builds the state of a file snapshot. It shares unchanged parts with older, which may be nil.
func (ix *Index) newState(snap *storage.Snapshot, older *snapshotState) (*snapshotState, error) {
	state := &snapshotState{
		version:      lastVersion.Add(1),
		fileSnapshot: snap,
		refs:         1,
		defaults:     sync.OnceValues(snap.Defaults),
	}
	state.selector = sync.OnceValues(func() (*metadata.Selector, error) { return openSelector(snap) })
	if older == nil {
		state.live = newLiveSet(snap)
	} else {
		state.live = nextLiveSet(snap, older.fileSnapshot, older.live)
	}
	if older != nil && snap.Codec() == older.fileSnapshot.Codec() {
		state.codec, state.scorer = older.codec, older.scorer
		return state, nil
	}
	var err error
	if state.codec, err = newQuantizer(ix.Path(), snap.Codec(), snap.Cutoffs()); err != nil {
		return nil, err
	}
	if state.scorer, err = ix.backend.Scorer(snap.Codec()); err != nil {
		return nil, fmt.Errorf("%s: %w", ix.Path(), err)
	}
	return state, nil
}

// newQuantizer returns the codec of the file at path.
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

// acquireState returns the current state with a reference that the caller must release. The result is
// nil if no state has been built yet, or if none could be built after a change.
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

// releaseState drops a reference, and closes the state with the last.
func (ix *Index) releaseState(state *snapshotState) error {
	ix.mu.Lock()
	state.refs--
	last := state.refs == 0
	ix.mu.Unlock()
	if !last {
		return nil
	}
	return state.fileSnapshot.Close()
}

// setCurrent replaces the current state, by nil if none can be built.
func (ix *Index) setCurrent(state *snapshotState) error {
	ix.mu.Lock()
	old := ix.current
	if state != nil && ix.closed { // closed while the state was built
		old = state
	} else {
		ix.current = state
	}
	ix.mu.Unlock()
	if old == nil {
		return nil
	}
	return ix.releaseState(old)
}

// ensureCurrent builds the current state unless there is one. Of concurrent callers one builds it, and
// the others wait.
func (ix *Index) ensureCurrent(ctx context.Context) error {
	ix.stateMu.Lock()
	defer ix.stateMu.Unlock()
	state, err := ix.acquireState()
	if err != nil {
		return err
	}
	if state != nil {
		return ix.releaseState(state)
	}
	return ix.openNewest(ctx, nil)
}

// refreshCurrent builds a state from the newest content of the file and makes it current. If that
// fails, the current state stays.
func (ix *Index) refreshCurrent() error {
	ix.stateMu.Lock()
	defer ix.stateMu.Unlock()
	older, err := ix.acquireState()
	if err != nil {
		return err
	}
	err = ix.openNewest(context.Background(), older) // without ctx: a change that is done must become visible
	if older != nil {
		err = errors.Join(err, ix.releaseState(older))
	}
	return err
}

// openNewest makes the newest content of the file the current state. older may be nil.
func (ix *Index) openNewest(ctx context.Context, older *snapshotState) error {
	var olderSnapshot *storage.Snapshot
	if older != nil {
		olderSnapshot = older.fileSnapshot
	}
	snap, err := ix.file.SnapshotAfter(ctx, olderSnapshot)
	if err != nil {
		return err
	}
	state, err := ix.readState(snap, older)
	if err != nil {
		return errors.Join(err, snap.Close())
	}
	return ix.setCurrent(state)
}

// readState builds the state of a file snapshot, and logs damage in the data written since older.
func (ix *Index) readState(snap *storage.Snapshot, older *snapshotState) (state *snapshotState, err error) {
	defer storage.Guard(ix.Path(), &err)()
	if older != nil {
		// Searches would meet the same damage, and report it, so it is not an error here.
		if err := snap.VerifyUnshared(older.fileSnapshot); err != nil {
			ix.log.Warn("data written by a change is damaged", "index", ix.Path(), "error", err)
		}
	}
	return ix.newState(snap, older)
}

// afterChange makes the result of a change visible, and returns its error. Call it after every
// change, successful or not. If the outcome of the change is unknown, the file keeps showing its
// content before the change. A successful change stays done even if it cannot be read: then
// Snapshot fails until a state that has the change can be built.
func (ix *Index) afterChange(err error) error {
	refreshErr := ix.refreshCurrent()
	switch {
	case refreshErr == nil, errors.Is(refreshErr, storage.ErrClosed):
	case err != nil:
		ix.log.Warn("the index was not read again after a failed change", "index", ix.Path(), "error", refreshErr)
	default:
		ix.log.Error("a change is done, but cannot be read", "index", ix.Path(), "error", refreshErr)
		_ = ix.setCurrent(nil) // closing a read transaction loses nothing
	}
	return err
}
