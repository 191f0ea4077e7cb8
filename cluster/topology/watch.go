package topology

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/plaid-ir/plaid/cluster/bus"
)

// Watcher knows the maps and leases of a cluster as they are. When NATS cannot be
// reached it goes on knowing what it knew.
type Watcher struct {
	bus    *bus.Bus
	mu     sync.Mutex
	maps   map[string]*Map
	leases map[string]*heard
	// replicas of the leases, by shard; nil: they have changed.
	replicas map[place][]Replica
	changed  chan struct{}
	faults   map[string]error // maps that this program does not understand
	end      context.CancelFunc
	done     sync.WaitGroup
}

// heard is a lease, and when it came by the clock of this process, which never jumps.
// NATS ends leases by the clocks of its servers. Where these disagree and another server
// comes to lead, it ends all of them at once, or those of dead nodes after minutes only.
// So it is not believed alone.
type heard struct {
	*Lease
	at     time.Time
	ended  bool // so NATS says
	silent int  // looks in turn at which others had been heard, and this node had not
	spoke  bool // since the last look
}

// looks is how many looks at the leases there are in the time of one. A node of which
// nothing comes while others are heard is forgotten after twice that time.
const looks = 4

// silence is how long nothing may be heard before a watch is begun anew: nodes renew
// their leases more often. A watch that was lost in the failure of a server need not say
// so.
const silence = 2 * bus.LeaseTime

// ErrSilent: the servers do not answer. They have no quorum, say.
var ErrSilent = errors.New("the NATS servers do not answer")

// Watch begins to watch, and returns when it knows what there is.
func Watch(ctx context.Context, b *bus.Bus) (*Watcher, error) {
	w := &Watcher{bus: b, maps: map[string]*Map{}, leases: map[string]*heard{}, faults: map[string]error{}, changed: make(chan struct{})}
	own, end := context.WithCancel(context.WithoutCancel(ctx))
	w.end = end
	known := make(chan error, 1)
	w.done.Go(func() {
		for own.Err() == nil {
			err := w.watch(own, known)
			if err != nil && !errors.Is(err, ErrSilent) { // silence ends when servers have found each other
				select {
				case known <- err: // only of the first time
				default:
				}
			}
			select {
			case <-own.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
	})
	select {
	case err := <-known:
		if err == nil {
			return w, nil
		}
		w.Close()
		return nil, fmt.Errorf("watching the cluster: %w", err)
	case <-ctx.Done():
		w.Close()
		return nil, fmt.Errorf("watching the cluster: %w: %w", ErrSilent, ctx.Err())
	}
}

// watch takes over what there is, says nil to known, and what comes, until that is
// silent.
func (w *Watcher) watch(ctx context.Context, known chan<- error) error {
	outer := ctx
	ctx, stop := context.WithCancel(ctx) // a watch lives as long as its context
	defer stop()
	begin := func(kv jetstream.KeyValue) (jetstream.KeyWatcher, error) {
		late := time.AfterFunc(bus.Attempt, stop)
		defer late.Stop()
		w, err := kv.WatchAll(ctx)
		if err != nil && ctx.Err() != nil && outer.Err() == nil {
			return nil, fmt.Errorf("bucket %s: %w", kv.Bucket(), ErrSilent)
		}
		return w, err
	}
	maps, err := begin(w.bus.Maps)
	if err != nil {
		return err
	}
	defer maps.Stop()
	nodes, err := begin(w.bus.Nodes)
	if err != nil {
		return err
	}
	defer nodes.Stop()
	silence := max(silence, w.bus.Lease)
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	// A server that was reached again need not know what it was asked to tell.
	again := w.bus.Conn.StatusChanged(nats.CONNECTED)
	defer w.bus.Conn.RemoveStatusListener(again)
	look := time.NewTicker(max(w.bus.Lease/looks, time.Millisecond))
	defer look.Stop()
	there := map[string]bool{} // nodes that there are, until all are known
	waits := 2
	for {
		select {
		case e, ok := <-maps.Updates():
			switch {
			case !ok:
				return nil
			case e == nil:
				waits--
			default:
				w.takeMap(e)
			}
		case e, ok := <-nodes.Updates():
			switch {
			case !ok:
				return nil
			case e == nil:
				w.keep(there)
				there = nil
				waits--
			default:
				if there != nil {
					there[e.Key()] = true
				}
				w.takeLease(e)
			}
			quiet.Reset(silence)
		case <-look.C:
			w.look()
		case <-quiet.C:
			return nil
		case <-again:
			return nil
		case <-ctx.Done():
			return nil
		}
		if waits == 0 {
			waits = -1
			select {
			case known <- nil:
			default:
			}
		}
	}
}

// keep ends the leases of nodes that the bucket has no more.
func (w *Watcher) keep(there map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, l := range w.leases {
		if !there[name] {
			w.ends(name, l)
		}
	}
	w.tell()
}

// ends forgets a node whose lease NATS has ended, unless it was heard of too lately for
// that to be true; look forgets it later. Messages may have been under way for some time.
func (w *Watcher) ends(name string, l *heard) {
	if time.Since(l.at) >= w.bus.Lease*3/4 {
		delete(w.leases, name)
		return
	}
	l.ended = true
}

// look forgets nodes of which nothing has come for long.
func (w *Watcher) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	spoke := false
	for _, l := range w.leases {
		spoke = spoke || l.spoke
	}
	for name, l := range w.leases {
		switch {
		case l.spoke:
			l.silent = 0
		case spoke:
			l.silent++
		}
		l.spoke = false
		if l.ended && time.Since(l.at) >= w.bus.Lease || l.silent >= 2*looks {
			delete(w.leases, name)
			w.tell()
		}
	}
}

func (w *Watcher) takeMap(e jetstream.KeyValueEntry) {
	var m *Map
	var err error
	if e.Operation() == jetstream.KeyValuePut {
		m, err = Decode(e.Value())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.tell()
	delete(w.faults, e.Key())
	switch old := w.maps[e.Key()]; {
	case err != nil:
		w.faults[e.Key()] = err
	case m == nil:
		delete(w.maps, e.Key())
	case old == nil || m.Version > old.Version:
		w.maps[e.Key()] = m
	}
}

func (w *Watcher) takeLease(e jetstream.KeyValueEntry) {
	l := &Lease{}
	there := e.Operation() == jetstream.KeyValuePut && json.Unmarshal(e.Value(), l) == nil && l.Node == e.Key()
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.tell()
	switch old := w.leases[e.Key()]; {
	case there:
		w.leases[e.Key()] = &heard{Lease: l, at: time.Now(), spoke: true}
	case old != nil && e.Operation() == jetstream.KeyValuePurge:
		w.ends(e.Key(), old)
	default: // the node has taken it back
		delete(w.leases, e.Key())
	}
}

// tell lets those who wait look again; w.mu is held.
func (w *Watcher) tell() {
	w.replicas = nil
	close(w.changed)
	w.changed = make(chan struct{})
}

// Changed is closed with the next change. Take it before looking.
func (w *Watcher) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

// Map is the map of the collection that has a name. It is not to be changed. The error
// is [ErrNoCollection], [ErrRemoved], or why the map is not understood.
func (w *Watcher) Map(name string) (*Map, error) {
	m, err := w.Last(name)
	if err == nil && m.Removed {
		err = m.is(m.ID())
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// MapOf is the map of the collection of an identity. The error is as that of Map, or
// [ErrReplaced].
func (w *Watcher) MapOf(id string) (*Map, error) {
	m, err := w.Last(NameOf(id))
	if err == nil {
		err = m.is(id)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Last is the last map under a name, also that of a collection that was removed.
func (w *Watcher) Last(name string) (*Map, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.faults[name]; err != nil {
		return nil, err
	}
	if m := w.maps[name]; m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("%w: %s", ErrNoCollection, name)
}

// Maps are those of all collections that there are, and whose maps this program understands.
func (w *Watcher) Maps() []*Map {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*Map
	for _, m := range w.maps {
		if !m.Removed && w.faults[m.Collection] == nil {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b *Map) int { return cmp.Compare(a.Collection, b.Collection) })
	return all
}

// Faults are names of collections whose maps this program does not understand, and why: that is
// no reason to take them for removed. They are in no list of maps.
func (w *Watcher) Faults() map[string]error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.faults)
}

// Leases are those of all nodes that were heard of lately. They are not to be changed.
func (w *Watcher) Leases() []*Lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*Lease
	for _, l := range w.leases {
		all = append(all, l.Lease)
	}
	slices.SortFunc(all, func(a, b *Lease) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

// Replica is a node and what it says of a shard.
type Replica struct {
	*Lease
	Serving
}

// place is where replicas are asked for.
type place struct {
	id         string
	generation uint64
	shard      int
}

// Replicas are those of a shard in a generation of the collection of an identity, ready or
// not, in the order of their nodes. They are not to be changed.
func (w *Watcher) Replicas(id string, generation uint64, shard int) []Replica {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.replicas == nil {
		w.replicas = map[place][]Replica{}
		for _, name := range slices.Sorted(maps.Keys(w.leases)) {
			l := w.leases[name].Lease
			for _, s := range l.Shards {
				at := place{s.Collection, s.Generation, s.Shard}
				w.replicas[at] = append(w.replicas[at], Replica{l, s})
			}
		}
	}
	return w.replicas[place{id, generation, shard}]
}

// Wait returns when ok does, which is asked again after each change.
func (w *Watcher) Wait(ctx context.Context, ok func() bool) error {
	for {
		changed := w.Changed()
		if ok() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close ends watching. It may be called more than once.
func (w *Watcher) Close() {
	w.end()
	w.done.Wait()
}
