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
	"time"

	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
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

	mu        sync.RWMutex // held for reading while the index is used
	ix        *index.Index // nil: not open
	engine    *search.Engine
	base      uint64 // entries that the file stands for without saying so
	ready     bool
	fault     string
	logFault  string
	applied   uint64
	documents uint64
}

func newReplica(n *Node, k key) *replica {
	r := &replica{n: n, key: k, done: make(chan struct{})}
	r.ctx, r.end = context.WithCancel(n.ctx)
	return r
}

func (r *replica) state() topology.Serving {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return topology.Serving{
		Collection: r.key.collection, Generation: r.key.generation, Shard: r.key.shard,
		Ready: r.ready, Fault: r.fault, Applied: r.applied, Documents: r.documents, Log: r.logFault,
	}
}

// remove ends the replica and takes its file away.
func (r *replica) remove() {
	r.end()
	<-r.done
	path := r.n.path(r.key)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.n.log.Warn("a replica cannot be removed", "replica", r.key, "error", err)
	}
	_ = os.Remove(filepath.Dir(path)) // if it is empty
}

// errTrimmed: the log has been cut off after what the file has.
var errTrimmed = errors.New("the log begins after what the replica has")

// run keeps the replica going until it is ended. What fails is tried again after a
// while: a disk that is full, an object store that is out of reach.
func (r *replica) run() {
	defer close(r.done)
	wait := 100 * time.Millisecond
	for r.ctx.Err() == nil {
		began := time.Now()
		err := r.live()
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

func (r *replica) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready = false
	if r.ix == nil {
		return
	}
	err := errors.Join(r.engine.Close(), r.ix.Close())
	if err != nil {
		r.n.log.Warn("closing a replica", "replica", r.key, "error", err)
	}
	r.ix, r.engine = nil, nil
}

// live fetches the file if need be, opens it, catches up, and follows the log.
func (r *replica) live() error {
	if err := r.open(); err != nil {
		return err
	}
	for {
		err := r.follow()
		switch {
		case errors.Is(err, errTrimmed):
			return r.startOver(err)
		case errors.Is(err, errLog):
			// Without a log the replica answers queries, if it has all that others have.
			r.set(func() { r.logFault = err.Error(); r.ready = r.complete() })
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
	m, err := r.n.watch.Map(r.key.collection)
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
		if err := objects.Fetch(r.ctx, r.n.store, shard.Object, path); err != nil {
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
	engine, err := search.New(r.ctx, ix, &search.EngineOptions{Threads: r.n.c.Threads, Scheduler: r.n.scheduler, Logger: r.n.log})
	if err != nil {
		return errors.Join(err, ix.Close())
	}
	r.mu.Lock()
	r.ix, r.engine, r.base, r.fault, r.logFault = ix, engine, g.Start[r.key.shard], "", ""
	r.mu.Unlock()
	if err := r.look(); err != nil {
		return err
	}
	return r.warm()
}

// startOver puts a file that is of no use aside; the next attempt fetches it anew.
func (r *replica) startOver(why error) error {
	path := r.n.path(r.key)
	r.close()
	if errors.Is(why, errTrimmed) {
		g, err := r.generation()
		if err != nil {
			return err
		}
		if g.Shards[r.key.shard].Applied <= r.state().Applied {
			return fmt.Errorf("%w, and so does the object", why)
		}
	}
	return errors.Join(why, os.Rename(path, path+".aside"))
}

// look takes over what the file says of itself.
func (r *replica) look() error {
	v, err := r.view()
	if err != nil {
		return err
	}
	applied, documents := v.applied, uint64(v.snap.Len())
	v.close()
	r.mu.Lock()
	r.applied, r.documents = applied, documents
	r.mu.Unlock()
	return nil
}

// view is one state of the replica. The index stays open until it is closed.
type view struct {
	r       *replica
	snap    *index.Snapshot
	engine  *search.Engine
	applied uint64
}

var errNotOpen = errors.New("the replica is not open")

func (r *replica) view() (*view, error) {
	r.mu.RLock()
	if r.ix == nil {
		r.mu.RUnlock()
		return nil, errNotOpen
	}
	snap, err := r.ix.Snapshot()
	if err != nil {
		r.mu.RUnlock()
		return nil, err
	}
	applied, err := snap.Applied()
	if err != nil {
		r.mu.RUnlock()
		return nil, errors.Join(err, snap.Close())
	}
	return &view{r, snap, r.engine.At(snap), max(applied, r.base)}, nil
}

func (v *view) close() {
	if err := v.snap.Close(); err != nil {
		v.r.n.log.Warn("closing a snapshot", "replica", v.r.key, "error", err)
	}
	v.r.mu.RUnlock()
}

// warm reads what the first query would have to wait for.
func (r *replica) warm() error {
	v, err := r.view()
	if err != nil {
		return err
	}
	defer v.close()
	if v.snap.Len() == 0 {
		return nil
	}
	q := search.Query{Vectors: make([]float32, v.snap.Dim())}
	q.Vectors[0] = 1
	for _, mode := range []search.Mode{search.Exhaustive, search.Pruned} {
		if _, err := v.engine.Search(r.ctx, q, search.Options{Mode: mode}); err != nil {
			return fmt.Errorf("warming up: %w", err)
		}
	}
	return nil
}

// complete tells whether the replica has what the others of its shard have.
func (r *replica) complete() bool {
	for _, o := range r.n.watch.Replicas(r.key.collection, r.key.generation, r.key.shard) {
		if o.Node != r.n.c.Name && o.Applied > r.applied {
			return false
		}
	}
	return true
}
