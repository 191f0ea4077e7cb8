package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search/keywords"
	"github.com/plaid-ir/plaid/storage"
)

func compareServing(a, b topology.Serving) int {
	return cmp.Or(cmp.Compare(a.Collection, b.Collection), cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Shard, b.Shard))
}

// replica is the file of a shard, and what is done with it.
type replica struct {
	n    *Node
	key  key
	ctx  context.Context
	end  context.CancelFunc
	done chan struct{}
	// hints: something may be wrong with the log.
	hints chan struct{}

	checkpointing sync.Mutex
	logEnd        atomic.Uint64 // the last entry of the log, when it was looked at

	mu        sync.Mutex
	ix        *index.Index   // nil: not open
	users     sync.WaitGroup // of ix
	base      uint64         // entries that the file stands for without saying so
	ready     bool
	fault     string
	logFault  string
	lost      bool
	applied   uint64
	documents uint64
	recent    map[uint64][16]byte // marks of entries that were carried out lately
	moments   []*moment           // entries that are waited for
	derived   derived
	retired   bool   // it acknowledges nothing any more
	last      uint64 // what it had applied when it retired
}

// remembered is how many entries a replica can tell from others of their numbers; which were
// carried out before it was opened it does not know, but for the last one.
const remembered = 256

// remember takes down marks of entries; r.mu is held.
func (r *replica) remember(sequence uint64, mark [16]byte) {
	if r.recent == nil {
		r.recent = map[uint64][16]byte{}
	}
	r.recent[sequence] = mark
	delete(r.recent, sequence-remembered)
}

// retire has the replica acknowledge no further entries, as it is to be dropped, or acknowledge
// them again. It returns the last entry that it may have acknowledged.
func (r *replica) retire(retired bool) (last uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if retired && !r.retired {
		r.last = r.applied
	}
	r.retired = retired
	return r.last
}

func newReplica(n *Node, k key) *replica {
	r := &replica{n: n, key: k, done: make(chan struct{}), hints: make(chan struct{}, 1)}
	r.ctx, r.end = context.WithCancel(n.ctx)
	return r
}

func (r *replica) state() topology.Serving {
	r.mu.Lock()
	defer r.mu.Unlock()
	return topology.Serving{
		Collection: r.key.collection, Generation: r.key.generation, Shard: r.key.shard,
		Ready: r.ready, Fault: r.fault, Applied: r.applied, Documents: r.documents, Log: r.logFault, Lost: r.lost,
		Behind: max(r.logEnd.Load(), r.applied) - r.applied,
	}
}

// stop ends the replica.
func (r *replica) stop() {
	r.end()
	<-r.done
}

// remove ends the replica and takes its files away.
func (r *replica) remove() {
	r.stop()
	path := r.n.path(r.key)
	var err error
	for _, path := range []string{path, keywords.Path(path), path + aside} {
		if rerr := os.Remove(path); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	if err != nil {
		r.n.log.Warn("a replica cannot be removed", "replica", r.key, "error", err)
	}
	_ = os.Remove(filepath.Dir(path)) // if it is empty
}

// putAside renames the file of a replica that is of no use, in place of the one that was put
// aside before.
func (r *replica) putAside() (to string, err error) {
	path := r.n.path(r.key)
	to = path + aside
	return to, os.Rename(path, to)
}

// errFar: the object of the shard is nearer to the end of the log than the replica.
var errFar = errors.New("the replica is far behind the object of its shard")

// errTrimmed: the log has been cut off after what the file has.
var errTrimmed = errors.New("the log begins after what the replica has")

// run keeps the replica going until it is ended. What fails is tried again after a
// while: a disk that is full, an object store that is out of reach.
func (r *replica) run() {
	defer close(r.done)
	wait := 100 * time.Millisecond
	for r.ctx.Err() == nil {
		began := time.Now()
		err := r.n.guard("a replica", r.live)
		r.close()
		if r.ctx.Err() != nil {
			return
		}
		r.set(func() { r.fault = err.Error() })
		r.n.log.Error("a replica has failed", "replica", r.key, "error", err)
		if time.Since(began) > time.Minute {
			wait = 100 * time.Millisecond
		}
		select {
		case <-r.ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, 10*time.Second)
	}
}

// set changes what the lease says, and has it said.
func (r *replica) set(change func()) {
	r.mu.Lock()
	change()
	r.mu.Unlock()
	r.n.say()
}

// use is the index, which stays open until release; nil: it is not open.
func (r *replica) use() *index.Index {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ix != nil {
		r.users.Add(1)
	}
	return r.ix
}

func (r *replica) release() { r.users.Done() }

func (r *replica) close() {
	r.mu.Lock()
	ix := r.ix
	r.ready, r.ix = false, nil
	r.giveUpMoments() // who waits uses the index
	r.mu.Unlock()
	if ix == nil {
		return
	}
	r.users.Wait()
	r.n.sets.forget(ix)
	if err := errors.Join(r.derived.close(), ix.Close()); err != nil {
		r.n.log.Warn("closing a replica", "replica", r.key, "error", err)
	}
}

// live fetches the file if need be, opens it, catches up, and follows the log.
func (r *replica) live() error {
	if err := r.open(); err != nil {
		return err
	}
	for {
		err := r.follow()
		if errors.Is(err, errTrimmed) {
			g, gerr := r.generation()
			if gerr != nil {
				return gerr
			}
			if g.Shards[r.key.shard].Applied > r.state().Applied {
				return r.startOver(err)
			}
			err = fmt.Errorf("%w: %w, and so does the object", errLog, err) // until there is a later one
		}
		switch {
		case errors.Is(err, errAgain):
			continue
		case errors.Is(err, errFar):
			return r.startOver(err)
		case errors.Is(err, errLog):
			// Without a log the replica answers queries, if it has all that others have.
			complete := r.complete()
			if errors.Is(err, errLost) && !r.state().Lost {
				r.n.metrics.differences.Add(1)
			}
			r.set(func() { r.logFault, r.lost, r.ready = err.Error(), errors.Is(err, errLost), complete })
			r.n.log.Error("a log is not followed", "replica", r.key, "error", err)
		default:
			return err
		}
		select {
		case <-r.ctx.Done():
			return r.ctx.Err()
		case <-time.After(r.n.c.Renew):
		}
	}
}

// generation is that of the replica as the map has it now.
func (r *replica) generation() (*topology.Generation, error) {
	m, err := r.n.watch.MapOf(r.key.collection)
	if err != nil {
		return nil, err
	}
	g := m.Generation(r.key.generation)
	if g == nil {
		return nil, fmt.Errorf("%s: the generation is over", r.key)
	}
	return g, nil
}

func (r *replica) open() error {
	g, err := r.generation()
	if err != nil {
		return err
	}
	path := r.n.path(r.key)
	shard := g.Shards[r.key.shard]
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		r.n.log.Info("fetching", "replica", r.key, "object", shard.Object.Name, "bytes", shard.Object.Size)
		fetching, span := r.n.tracer.Start(r.ctx, "fetch", r.n.attributes(r.key.collection, r.key.generation, r.key.shard))
		err := objects.Fetch(fetching, r.n.store, shard.Object, path)
		if ended(span, err); err != nil {
			return err
		}
	}
	ix, err := index.Open(r.ctx, path, &index.Options{Write: true, Backend: r.n.c.Backend, Logger: r.n.log, LockTimeout: 5 * time.Second})
	if errors.Is(err, storage.ErrCorrupt) || errors.Is(err, storage.ErrNotIndex) {
		return r.startOver(err)
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.ix, r.base, r.fault, r.logFault, r.lost = ix, g.Start[r.key.shard], "", "", false
	r.mu.Unlock()
	if err := r.look(); err != nil {
		return err
	}
	return r.warm()
}

// startOver puts a file that is of no use aside; the next attempt fetches it anew.
func (r *replica) startOver(why error) error {
	r.close()
	_, err := r.putAside()
	if err == nil {
		r.mu.Lock()
		r.recent = nil // the entries that the file had, and the next one may have others
		r.mu.Unlock()
		r.n.metrics.rebuilds.Add(1)
	}
	return errors.Join(why, err)
}

// farEntries: a replica may be as far behind the object and goes on by the log anyway.
var farEntries uint64 = 1000

// far tells whether fetching the object of the shard would be the shorter way: it has so many
// entries more than the replica that these are larger than it, by the size of one of them. A
// disk that cannot keep up with the log writes one large file in their place. The replica does
// not answer meanwhile, so there have to be enough others which do.
func (r *replica) far(entry int) bool {
	m, err := r.n.watch.MapOf(r.key.collection)
	if err != nil || m.Current == nil || m.Current.Number != r.key.generation {
		return false
	}
	shard, applied := m.Current.Shards[r.key.shard], r.state().Applied
	if shard.Applied <= applied+farEntries || int64(shard.Applied-applied)*int64(entry) < shard.Object.Size {
		return false
	}
	others := 0
	for _, o := range r.n.watch.Replicas(r.key.collection, r.key.generation, r.key.shard) {
		if o.Node != r.n.c.Name && o.Ready && o.Log == "" && o.Applied >= shard.Applied {
			others++
		}
	}
	return others >= m.Acks
}

var errNotOpen = errors.New("the replica is not open")

// errMissed: the replica is not to be had as it is asked for.
var errMissed = errors.New("the replica is at another entry of its log")

// at gives a snapshot to fn, and what it has applied.
func (r *replica) at(fn func(snap *index.Snapshot, applied uint64) error) error {
	ix := r.use()
	if ix == nil {
		return errNotOpen
	}
	defer r.release()
	snap, err := ix.Snapshot()
	if err != nil {
		return err
	}
	return r.show(snap, fn)
}

// show gives a snapshot to fn, and what it has applied, and closes it.
func (r *replica) show(snap *index.Snapshot, fn func(snap *index.Snapshot, applied uint64) error) (err error) {
	defer func() { err = errors.Join(err, snap.Close()) }()
	applied, err := snap.Applied()
	if err != nil {
		return err
	}
	return fn(snap, max(applied.Sequence, r.base))
}

// look takes over what the file says of itself.
func (r *replica) look() error {
	return r.at(func(snap *index.Snapshot, applied uint64) error {
		last, err := snap.Applied()
		if err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.applied, r.documents = applied, uint64(snap.Len())
		if last.Sequence > 0 {
			r.remember(last.Sequence, last.Mark)
		}
		return nil
	})
}

// warm reads what the first query would have to wait for.
func (r *replica) warm() error {
	return r.at(func(snap *index.Snapshot, _ uint64) error { return snap.Warm(r.ctx, r.n.c.Threads, nil) })
}

// complete tells whether the replica has what the others of its shard have.
func (r *replica) complete() bool {
	applied := r.state().Applied
	for _, o := range r.n.watch.Replicas(r.key.collection, r.key.generation, r.key.shard) {
		if o.Node != r.n.c.Name && o.Applied > applied {
			return false
		}
	}
	return true
}
