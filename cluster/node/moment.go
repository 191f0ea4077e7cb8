package node

import (
	"fmt"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/index"
)

// A moment is an entry of the log at which somebody wants to look at the replica, before the
// next one is carried out: so replicas are compared that change all the time.
type moment struct {
	entry uint64
	snap  chan *index.Snapshot // gets one, or nothing where the replica has passed the entry
}

// stalled is how long a replica may come no nearer to an entry before nobody waits for it.
const stalled = 5 * time.Second

// await has the replica looked at when it has carried out an entry; nil: it has passed it.
func (r *replica) await(entry uint64) *moment {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.applied >= entry || r.ix == nil {
		return nil
	}
	w := &moment{entry, make(chan *index.Snapshot, 1)}
	r.moments = append(r.moments, w)
	return w
}

// forgo ends that a moment is waited for, and takes what has come meanwhile.
func (r *replica) forgo(w *moment) (snap *index.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moments = slices.DeleteFunc(r.moments, func(o *moment) bool { return o == w })
	select {
	case snap = <-w.snap:
	default:
	}
	return snap
}

// awaited tells whether the replica is to be looked at when it has carried out an entry.
func (r *replica) awaited(entry uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.moments, func(w *moment) bool { return w.entry == entry })
}

// reached serves those who wait for what has been carried out; ix is open.
func (r *replica) reached(ix *index.Index) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var failed error
	r.moments = slices.DeleteFunc(r.moments, func(w *moment) bool {
		if w.entry > r.applied {
			return false
		}
		if w.entry == r.applied {
			snap, err := ix.Snapshot()
			if failed = err; err != nil {
				return false
			}
			w.snap <- snap
		}
		close(w.snap)
		return true
	})
	return failed
}

// giveUpMoments ends all waiting; r.mu is held.
func (r *replica) giveUpMoments() {
	for _, w := range r.moments {
		close(w.snap)
	}
	r.moments = nil
}

// atEntry gives the replica to fn as it is when it has carried out an entry. The error is
// [errMissed] where it has passed that, or comes no nearer to it.
func (r *replica) atEntry(entry uint64, fn func(snap *index.Snapshot, applied uint64) error) error {
	exact := func(snap *index.Snapshot, applied uint64) error {
		if applied != entry {
			return fmt.Errorf("%w: it has carried out %d, and is asked for %d", errMissed, applied, entry)
		}
		return fn(snap, applied)
	}
	ix := r.use()
	if ix == nil {
		return errNotOpen
	}
	defer r.release()
	w := r.await(entry)
	if w == nil {
		return r.at(exact)
	}
	tick := time.NewTicker(stalled)
	defer tick.Stop()
	before := r.state().Applied
	for {
		var snap *index.Snapshot
		select {
		case snap = <-w.snap:
		case <-r.ctx.Done():
			snap = r.forgo(w)
		case <-tick.C:
			if now := r.state().Applied; now > before {
				before = now
				continue
			}
			snap = r.forgo(w)
		}
		if snap == nil {
			return fmt.Errorf("%w: it has carried out %d, and is asked for %d", errMissed, r.state().Applied, entry)
		}
		return r.show(snap, exact)
	}
}
