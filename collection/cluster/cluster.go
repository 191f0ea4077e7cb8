// Package cluster keeps collections in an object store, for any number of processes that share it.
package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/objects"
)

// Config of a process. Store and Dir are needed.
type Config struct {
	Store objects.Store
	Place string // the address of the store, for messages
	Dir   string // of the cache
	// Name of the node, the same after a restart; Zone is what may fail as a whole with it.
	Name, Zone string
	// Address is the URL under which other nodes reach [Cluster.Handler]; "": a client, which
	// has no shards and asks the nodes for everything.
	Address string
	// Shards and Replicas are those of collections that are declared; 0: 1 shard, 2 replicas.
	Shards, Replicas int
	Index            store.Options // growth, threads, backend, device, derived data, queue
	Grace            time.Duration // how long what is not needed stays in the store; 0: an hour
	Beat             time.Duration // how often a node says that it lives; 0: 3 s. It counts as dead after 4 of them
	// Deadline bounds a search; 0: 30 s. Partial lets searches answer without shards that do not answer.
	Deadline time.Duration
	Partial  bool
	Logger   *slog.Logger
}

func (c *Config) complete() (err error) {
	c.Shards, c.Replicas = cmp.Or(c.Shards, 1), cmp.Or(c.Replicas, 2)
	c.Grace, c.Beat, c.Deadline = cmp.Or(c.Grace, time.Hour), cmp.Or(c.Beat, 3*time.Second), cmp.Or(c.Deadline, 30*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Store == nil || c.Dir == "" || c.Grace < 0 || c.Beat < 0 || c.Deadline < 0 {
		return fmt.Errorf("%w: a store and a folder are needed, and no time may be negative", collection.ErrConfig)
	}
	if err := checkSpread(c.Shards, c.Replicas); err != nil {
		return err
	}
	c.Index.Growth, err = c.Index.Growth.Completed()
	return err
}

// Cluster is the collections of a store, as a node or a client sees them. It is a [collection.Set].
type Cluster struct {
	c    Config
	log  *slog.Logger
	node *Node // this one; nil: a client
	rc   replica.Config
	// Of the loop:
	beat    uint64    // how many there were
	lives   lives     // of the nodes
	cleaned time.Time // when the cache was

	mu       sync.Mutex
	maps     map[string]*Map                 // by the name of the collection, the newest that is known
	nodes    []*Node                         // that live, by name, this one among them
	replicas map[replicaKey]*replica.Replica // of this node
	kept     map[replicaKey]*keeping         // what is known of them
	known    map[string]*shards              // collections that were asked for, by identity
	seen     map[shardKey]uint64             // the newest entry of a shard that this process knows of
	secret   string                          // of the inner routes
	front    front
	hints    map[string]map[shardKey]uint64 // entries that a process is to be told of, by its Started
	placed   map[string]*placement          // by identity
	missed   map[string]time.Time           // when names were asked for that are not there
	busy     map[string]bool                // what runs beside, of what there is one at a time
	built    map[string]*building           // by identity: what is known of Next
	tidied   map[string]time.Time           // when garbage was looked for, by identity
	grew     time.Time                      // when growth was looked for
	swept    time.Time                      // when leftovers were
	now      time.Time                      // by the clock of the store, at least
	answered time.Time                      // when the store has answered, by the clock of this process
	trouble  error                          // of the last look; nil: there was none
	news     chan struct{}                  // closed when a map, or who lives, has changed
	closed   bool
	panics   atomic.Uint64
	requests atomic.Int64    // to the store, of the loop; for tests
	ctx      context.Context // ends with the cluster
	end      context.CancelFunc
	look     chan struct{} // asks the loop for a look now
	heavy    chan struct{} // a turn to train, or to encode a shard anew
	polls    chan struct{} // turns to look at logs
	opening  sync.Mutex
	beside   sync.WaitGroup
}

type shardKey struct {
	id    string // of the collection
	shard int
}

type replicaKey struct {
	shardKey
	generation uint64
}

type placement struct {
	nodes            []*Node
	shards, replicas int
	holders          [][]*Node
}

// Open joins the nodes of a store, and opens its collections.
func Open(ctx context.Context, cfg Config) (*Cluster, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	c := &Cluster{
		c: cfg, log: cfg.Logger,
		maps: map[string]*Map{}, lives: lives{ttl: beatsToDie * cfg.Beat}, replicas: map[replicaKey]*replica.Replica{},
		kept: map[replicaKey]*keeping{}, known: map[string]*shards{}, seen: map[shardKey]uint64{}, hints: map[string]map[shardKey]uint64{},
		placed: map[string]*placement{}, missed: map[string]time.Time{}, busy: map[string]bool{}, built: map[string]*building{},
		tidied: map[string]time.Time{}, news: make(chan struct{}), look: make(chan struct{}, 1), heavy: make(chan struct{}, 1), polls: make(chan struct{}, 4),
	}
	c.rc = replica.Config{
		Store: cfg.Store, Dir: cfg.Dir, Index: cfg.Index, Grace: cfg.Grace, Logger: cfg.Logger,
		Appended: c.appended,
	}
	if cfg.Address != "" {
		c.node = &Node{cfg.Name, cfg.Address, cfg.Zone, newToken(), index.Version(), time.Now().UTC()}
		if err := c.node.check(); err != nil {
			return nil, err
		}
	}
	if left, _ := filepath.Glob(filepath.Join(cfg.Dir, scratchPrefix+"*")); c.node != nil {
		for _, dir := range left { // of a process that was killed
			_ = os.RemoveAll(dir)
		}
	}
	var err error
	if c.secret, err = secretOf(ctx, cfg.Store); err != nil {
		return nil, fmt.Errorf("the secret of %s: %w", cfg.Place, err)
	}
	c.ctx, c.end = context.WithCancel(context.WithoutCancel(ctx))
	if err := c.lookOnce(ctx); err != nil {
		c.end()
		return nil, fmt.Errorf("%s: %w", cfg.Place, err)
	}
	c.beside.Go(c.loop)
	return c, nil
}

const secretName = "secret"

// secretOf is the token of the inner routes, which the first process of a store makes.
func secretOf(ctx context.Context, s objects.Store) (string, error) {
	fresh := newToken() + newToken()
	_, err := s.Put(ctx, secretName, strings.NewReader(fresh), int64(len(fresh)))
	if err != nil && !errors.Is(err, objects.ErrExists) {
		return "", err
	}
	r, _, err := s.Get(ctx, secretName, 0, -1)
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, 1024))
	if text = bytes.TrimSpace(text); err == nil && len(text) < 16 {
		err = fmt.Errorf("the object %s has %d bytes; it is a long random text", secretName, len(text))
	}
	return string(text), err
}

// Close ends the node: others take over at once.
func (c *Cluster) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.mu.Unlock()
	c.end()
	c.beside.Wait()
	var err error
	if c.node != nil {
		ctx, stop := context.WithTimeout(ctx, c.c.Beat)
		if derr := c.c.Store.Delete(ctx, c.node.object()); derr != nil {
			c.log.Warn("others will notice later that this node has ended", "error", derr)
		}
		stop()
	}
	c.mu.Lock()
	open := slices.Collect(maps.Values(c.replicas))
	c.replicas = map[replicaKey]*replica.Replica{}
	c.mu.Unlock()
	for _, r := range open {
		err = errors.Join(err, r.Close(ctx))
	}
	return err
}

// loop looks at the store at every beat, or when it is asked to.
func (c *Cluster) loop() {
	ticker := time.NewTicker(c.c.Beat)
	defer ticker.Stop()
	for {
		c.after()
		select {
		case <-c.ctx.Done():
			return
		case <-ticker.C:
			_ = c.lookOnce(c.ctx) // it is noted
		case <-c.look: // a map has changed here, or elsewhere
		}
	}
}

// lookOnce says that this node lives, and looks which others do, and for new maps.
func (c *Cluster) lookOnce(ctx context.Context) (err error) {
	ctx, stop := context.WithTimeout(ctx, max(beatsToDie*c.c.Beat, time.Second))
	defer stop()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil {
			c.answered = time.Now()
		} else if c.trouble == nil && c.ctx.Err() == nil {
			c.log.Error("the object store does not answer", "error", err)
		}
		c.trouble = err
	}()
	if c.node != nil {
		c.beat++
		c.requests.Add(1)
		made, err := beat(ctx, c.c.Store, c.node, c.beat)
		if err != nil {
			return fmt.Errorf("saying that this node lives: %w", err)
		}
		c.noteTime(made)
	}
	c.requests.Add(2)
	beats, err := c.c.Store.List(ctx, nodesPrefix, "", 0)
	if err != nil {
		return err
	}
	listed, err := c.c.Store.List(ctx, mapsPrefix, "", 0)
	if err != nil {
		return err
	}
	for _, e := range slices.Concat(beats, listed) {
		c.noteTime(e.Made)
	}
	c.sawNodes(ctx, beats)
	return c.sawMaps(ctx, listed)
}

// noteTime notes a time of the store's clock that is over.
func (c *Cluster) noteTime(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.now) {
		c.now = t
	}
}

func (c *Cluster) storeTime() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// changed wakes whoever waits for news; c.mu is held.
func (c *Cluster) changed() {
	close(c.news)
	c.news = make(chan struct{})
}

// poke asks the loop to act on what is known now.
func (c *Cluster) poke() {
	select {
	case c.look <- struct{}{}:
	default:
	}
}

func (c *Cluster) sawNodes(ctx context.Context, beats []objects.Entry) {
	now := time.Now()
	err := c.lives.look(now, beats, func(object string) (*Node, error) {
		c.requests.Add(1)
		return readNode(ctx, c.c.Store, object)
	})
	if err != nil {
		c.log.Warn("a node that is in the store cannot be read", "error", err)
	}
	living := c.lives.living(now)
	if c.node != nil { // it does, whatever others have noticed of it
		living = slices.DeleteFunc(living, func(n *Node) bool { return n.Name == c.node.Name })
		i, _ := slices.BinarySearchFunc(living, c.node.Name, func(n *Node, name string) int { return strings.Compare(n.Name, name) })
		living = slices.Insert(living, i, c.node)
		for object, l := range c.lives.beats {
			if l.node != nil && l.node.Name == c.node.Name && l.node.Started != c.node.Started && c.lives.alive(l, now) && c.beat > 3*beatsToDie {
				c.log.Error("another process has the name of this node: names have to differ", "name", c.node.Name, "its_object", object, "its_address", l.node.Address)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.nodes, living) {
		c.nodes = living
		c.changed()
	}
}

// sawMaps reads the maps that are newer than those that are known. A map that is known and not listed any
// more says nothing: it stays.
func (c *Cluster) sawMaps(ctx context.Context, listed []objects.Entry) error {
	newest := map[string]uint64{}
	for _, e := range listed {
		if name, version, ok := mapVersion(e.Name); ok {
			newest[name] = max(newest[name], version)
		}
	}
	var errs []error
	for name, version := range newest {
		c.mu.Lock()
		m := c.maps[name]
		c.mu.Unlock()
		if m != nil && m.Version >= version {
			continue
		}
		c.requests.Add(1)
		if err := c.readVersion(ctx, name, version); err != nil {
			errs = append(errs, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, m := range c.maps {
		if newest[name] == 0 && !m.Removed && m.fault == nil {
			c.log.Error("the store has no map of a collection any more: nothing of it is changed", "collection", name)
		}
	}
	return errors.Join(errs...)
}

// readVersion takes over a version of a map.
func (c *Cluster) readVersion(ctx context.Context, name string, version uint64) error {
	m, err := readMap(ctx, c.c.Store, name, version)
	switch {
	case err == nil:
		c.learn(m)
	case unreadable(err):
		c.note(name, err)
	case !errors.Is(err, objects.ErrNotFound): // else it was superseded long ago
		return err
	}
	return nil
}

// unreadable reports whether a map is there that this program cannot read, or must not.
func unreadable(err error) bool {
	return errors.Is(err, ErrNewer) || errors.Is(err, storage.ErrCorrupt)
}

// note takes over that the map of a collection cannot be read: nothing of the collection is touched until
// a newer one can be.
func (c *Cluster) note(name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	version := uint64(0)
	if before := c.maps[name]; before != nil {
		if version = before.Version; before.fault != nil {
			return
		}
	}
	c.log.Error("the map of a collection cannot be read: nothing of it is touched", "collection", name, "error", err)
	c.maps[name] = &Map{Name: name, Version: version, fault: fmt.Errorf("%w: %w", collection.ErrDamaged, err)}
	c.changed()
}

// learn takes over a map, unless a newer one is known.
func (c *Cluster) learn(m *Map) {
	c.mu.Lock()
	if before := c.maps[m.Name]; before != nil && before.Version >= m.Version {
		c.mu.Unlock()
		return
	}
	c.maps[m.Name] = m
	delete(c.missed, m.Name)
	var tell []func()
	for k, r := range c.replicas {
		if most := m.most(k.shard); k.id == m.ID && !same(c.kept[k].most, most) {
			c.kept[k].most = most
			tell = append(tell, func() { r.SetMost(most) })
		}
	}
	c.changed()
	c.poke()
	c.mu.Unlock()
	for _, do := range tell {
		do()
	}
}

// await waits until a map, the newest one that is known here, is as it should be.
func (c *Cluster) await(ctx context.Context, id string, is func(*Map) (bool, error)) (*Map, error) {
	for {
		c.mu.Lock()
		news := c.news
		c.mu.Unlock()
		m, err := c.mapByID(id)
		if err != nil {
			return nil, err
		}
		if ok, err := is(m); ok || err != nil {
			return m, err
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.ctx.Done():
			return nil, collection.ErrClosed
		}
	}
}

// lastMap is the newest map that is known here, whatever it says; nil: none.
func (c *Cluster) lastMap(name string) *Map {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.maps[name]
}

// mapByID is the newest map that is known of a collection. The error is [collection.ErrUnknown].
func (c *Cluster) mapByID(id string) (*Map, error) {
	m := c.lastMap(nameOf(id))
	switch {
	case m == nil || m.fault == nil && (m.Removed || m.ID != id):
		return nil, fmt.Errorf("%w: %q", collection.ErrUnknown, id)
	case m.fault != nil:
		return nil, m.fault
	}
	return m, nil
}

// mapOf is the newest map of a collection, read from the store if none is known here. The error is
// [collection.ErrUnknown], or [collection.ErrDamaged] of a collection that this program does not understand.
func (c *Cluster) mapOf(ctx context.Context, name string) (*Map, error) {
	c.mu.Lock()
	m, closed := c.maps[name], c.closed
	missed := time.Since(c.missed[name]) < c.c.Beat
	c.mu.Unlock()
	switch {
	case closed:
		return nil, collection.ErrClosed
	case m != nil && m.fault != nil:
		return nil, m.fault
	case m != nil && !m.Removed:
		return m, nil
	case missed || collection.CheckName(name) != nil:
		return nil, fmt.Errorf("%w: %q", collection.ErrUnknown, name)
	}
	return c.renew(ctx, name)
}

// renew is mapOf with a look into the store, whatever is known here.
func (c *Cluster) renew(ctx context.Context, name string) (*Map, error) {
	m, err := newestMap(ctx, c.c.Store, name)
	switch {
	case unreadable(err):
		c.note(name, err)
		return nil, fmt.Errorf("%w: %w", collection.ErrDamaged, err)
	case err == nil:
		c.learn(m)
		if !m.Removed {
			return m, nil
		}
	case !errors.Is(err, collection.ErrUnknown):
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.maps[name]; m == nil && known != nil && !known.Removed { // lost, which says nothing
		return known, known.fault
	}
	if len(c.missed) > 4096 {
		clear(c.missed)
	}
	c.missed[name] = time.Now()
	return nil, fmt.Errorf("%w: %q", collection.ErrUnknown, name)
}

// update changes the map of a collection, and tells the other nodes.
func (c *Cluster) update(ctx context.Context, name string, change func(*Map) error) (*Map, error) {
	m, err := updateMap(ctx, c.c.Store, name, change)
	if unreadable(err) {
		err = fmt.Errorf("%w: %w", collection.ErrDamaged, err)
	}
	if err != nil {
		return nil, err
	}
	c.tell(m)
	return m, nil
}

// updateID is update of the collection of an identity; another one of the name is [collection.ErrUnknown].
func (c *Cluster) updateID(ctx context.Context, id string, change func(*Map) error) (*Map, error) {
	name := nameOf(id)
	return c.update(ctx, name, func(m *Map) error {
		if m.ID != id {
			return fmt.Errorf("%w: %q", collection.ErrUnknown, id)
		}
		return change(m)
	})
}

// tell takes over a map that this process has put, and tells the other nodes of it; wait waits until they know,
// a beat at most.
func (c *Cluster) tell(m *Map) (wait func()) {
	c.learn(m)
	c.mu.Lock()
	nodes := c.nodes
	c.mu.Unlock()
	var wg sync.WaitGroup
	for _, n := range nodes {
		if c.self(n) {
			c.poke()
			continue
		}
		wg.Add(1)
		began := c.aside(fmt.Sprint("telling ", n.Name, " ", m.ID, m.Version, newToken()), func(ctx context.Context) {
			defer wg.Done()
			ctx, stop := context.WithTimeout(ctx, c.c.Beat)
			defer stop()
			_ = c.call(ctx, n, "news", &newsAsk{m.Name, m.Version}, &newsAnswer{}) // else it looks by itself
		})
		if !began {
			wg.Done()
		}
	}
	return wg.Wait
}

// aside does something beside, unless the same is being done.
func (c *Cluster) aside(what string, do func(ctx context.Context)) (began bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.ctx.Err() != nil || c.busy[what] {
		return false
	}
	c.busy[what] = true
	c.beside.Go(func() {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.busy, what)
		}()
		if err := c.guarded(what, func() error { do(c.ctx); return nil }); err != nil {
			c.panics.Add(1)
		}
	})
	return true
}

// holders are the living nodes that have a shard, in order: the first gathers its changes.
func (c *Cluster) holders(m *Map, shard int) []*Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.placeOf(m)[shard]
}

// placeOf are the holders of all shards; c.mu is held.
func (c *Cluster) placeOf(m *Map) [][]*Node {
	p := c.placed[m.ID]
	if p == nil || p.shards != m.Shards || p.replicas != m.Replicas || !slices.Equal(p.nodes, c.nodes) {
		p = &placement{c.nodes, m.Shards, m.Replicas, placeShards(c.nodes, m.ID, m.Shards, m.Replicas)}
		c.placed[m.ID] = p
	}
	return p.holders
}

// coordinates reports whether this node looks after a collection.
func (c *Cluster) coordinates(m *Map) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node != nil && coordinator(c.nodes, m.ID) == c.node
}

// runs reports whether a process is known to live, by what its node has as Started.
func (c *Cluster) runs(started string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.nodes, func(n *Node) bool { return n.Started == started })
}

// self reports whether a node is this process.
func (c *Cluster) self(n *Node) bool { return c.node != nil && n.Name == c.node.Name }
