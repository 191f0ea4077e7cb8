// Package cluster keeps collections in an object store, for any number of processes that share it.
package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
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
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/storage/objects"
)

// Config of a process. Store and Dir are needed.
type Config struct {
	Store objects.Store
	Place string // the address of the store, for messages
	Dir   string // of the cache
	// Name of the node, the same after a restart. The nodes of a Zone may fail together.
	Name, Zone string
	// Address is the URL under which other nodes reach [Cluster.Handler]; "": a client, which
	// has no shards and asks the nodes for everything.
	Address string
	// Shards and Replicas are those of collections that are declared; 0: 1 shard, 2 replicas.
	Shards, Replicas int
	Index            store.Options // growth, threads, backend, device, derived data, queue
	Grace            time.Duration // how long objects stay after they were needed; 0 means an hour
	CheckpointBytes  int64         // see [replica.Config]
	Beat             time.Duration // how often a node says that it lives; 0: 3 s. It counts as dead after 4 of them
	// Deadline bounds a search; 0: 30 s. Partial lets searches answer without shards that do not answer.
	Deadline time.Duration
	Partial  bool
	Logger   *slog.Logger
}

func (c *Config) complete() (err error) {
	c.Shards, c.Replicas = cmp.Or(c.Shards, 1), cmp.Or(c.Replicas, 2)
	c.Grace, c.Beat = cmp.Or(c.Grace, time.Hour), cmp.Or(c.Beat, 3*time.Second)
	c.Deadline = cmp.Or(c.Deadline, 30*time.Second)
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

// Cluster is the collections of a store, as a node or a client sees them. It is a [collection.Catalog].
type Cluster struct {
	c    Config
	log  *slog.Logger
	node *Node // this one; nil: a client
	rc   replica.Config
	// Of the loop:
	beat  uint64 // how many there were
	lives lives

	mu         sync.Mutex
	maps       map[string]*Map                // by the name of the collection, the newest that is known
	lost       map[string]bool                // collections whose maps the store has lost
	nodes      []*Node                        // that live, by name, this one among them
	twin       *Node                          // another process with the name of this node; nil means none
	replicas   map[replicaKey]*kept           // of this node
	ending     map[replicaKey]bool            // replicas that are being closed
	seen       map[shardKey]uint64            // the newest entry of a shard that this process has made or seen
	heard      map[shardKey]uint64            // the newest that a hint spoke of; it may be wrong
	secret     string                         // of the inner routes
	front      front                          // answers requests
	hints      map[string]map[shardKey]uint64 // entries that a process is to be told of, by its Started
	placed     map[placement][][]*Node        // while the same nodes live
	missed     map[string]time.Time           // when names were asked for that are not there
	unsealed   map[string]time.Time           // since when logs are known that are to be sealed, by name
	busy       map[string]bool                // work in the background, by its name; each runs once at a time
	built      map[string]*building           // by identity: the state of Next
	times      map[string]time.Time           // when something was done last, see due
	now        time.Time                      // by the clock of the store, at the last beat
	answered   time.Time                      // when the store has answered, by the clock of this process
	trouble    error                          // error of the last look
	news       chan struct{}                  // closed when a map, or the list of nodes, has changed
	closed     bool
	panics     atomic.Uint64
	requests   atomic.Int64    // to the store, of the loop; for tests
	ctx        context.Context // ends with the cluster
	end        context.CancelFunc
	look       chan struct{} // asks the loop to act
	heavy      chan struct{} // a turn to train a codec, or to encode a shard
	polls      chan struct{} // turns to look at logs
	opening    sync.Mutex
	background sync.WaitGroup
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
	id               string
	shards, replicas int
}

// Open joins the nodes of a store, and opens its collections.
func Open(ctx context.Context, cfg Config) (*Cluster, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	given := cfg.Store
	cfg.Store = reached{given}
	c := &Cluster{
		c: cfg, log: cfg.Logger,
		maps: map[string]*Map{}, lost: map[string]bool{}, missed: map[string]time.Time{}, times: map[string]time.Time{},
		replicas: map[replicaKey]*kept{}, ending: map[replicaKey]bool{}, seen: map[shardKey]uint64{},
		heard: map[shardKey]uint64{}, unsealed: map[string]time.Time{},
		hints: map[string]map[shardKey]uint64{}, placed: map[placement][][]*Node{}, busy: map[string]bool{},
		built: map[string]*building{}, lives: lives{ttl: beatsToDie * cfg.Beat}, news: make(chan struct{}),
		look: make(chan struct{}, 1), heavy: make(chan struct{}, 1), polls: make(chan struct{}, 4),
	}
	c.rc = replica.Config{
		Store: cfg.Store, Dir: cfg.Dir, Index: cfg.Index, Grace: cfg.Grace, CheckpointBytes: cfg.CheckpointBytes,
		Logger: cfg.Logger, Appended: c.appended, Misled: c.misled, Living: c.living,
	}
	if cfg.Address != "" {
		c.node = &Node{cfg.Name, cfg.Address, cfg.Zone, newToken(), index.Version(), time.Now().UTC()}
		if err := c.node.check(); err != nil {
			return nil, err
		}
		left, _ := filepath.Glob(filepath.Join(cfg.Dir, scratchPrefix+"*"))
		for _, dir := range left { // of a process that was killed
			_ = os.RemoveAll(dir)
		}
	}
	c.lives.stale = 10*c.lives.ttl + time.Minute
	if c.node == nil { // it may end before it sees that a beat stands still; stores have times in whole seconds
		c.lives.stale = c.lives.ttl + 3*time.Second
	}
	c.ctx, c.end = context.WithCancel(context.WithoutCancel(ctx))
	if err := c.join(ctx, given); err != nil {
		c.end()
		return nil, fmt.Errorf("%s: %w", cfg.Place, err)
	}
	c.background.Go(c.loop)
	return c, nil
}

// join looks at the store for the first time. Errors of given, unlike those of [reached], are those of the store alone.
func (c *Cluster) join(ctx context.Context, given objects.Store) (err error) {
	if c.secret, err = secretOf(ctx, given, c.node != nil); err != nil {
		return firstError{err}
	}
	if c.node != nil {
		if err := checkStore(ctx, given); err != nil {
			return err
		}
	}
	return c.lookOnce(ctx)
}

const secretName = "secret"

// secretOf is the token of the inner routes, which the first node of a store makes; "": there was none yet.
func secretOf(ctx context.Context, s objects.Store, create bool) (string, error) {
	text, _, err := objects.Read(ctx, s, secretName, 1024)
	if errors.Is(err, objects.ErrNotFound) {
		if !create {
			return "", nil
		}
		fresh := newToken() + newToken()
		_, perr := s.Put(ctx, secretName, strings.NewReader(fresh), int64(len(fresh)))
		if text, _, err = objects.Read(ctx, s, secretName, 1024); err != nil {
			err = errors.Join(perr, err)
		}
	}
	if text = bytes.TrimSpace(text); err == nil && len(text) < 16 {
		err = fmt.Errorf("the object %s has %d bytes; it is a long random text", secretName, len(text))
	}
	return string(text), err
}

// ErrStore: a store that a cluster cannot have.
var ErrStore = errors.New("the store does not refuse to put an object that is there (If-None-Match): " +
	"changes would be lost")

// checkStore puts an object twice: a store that takes both would take two entries of one number. Other errors
// say nothing.
func checkStore(ctx context.Context, s objects.Store) error {
	name := "probe/" + newToken()
	put := func(text string) error {
		_, err := s.Put(ctx, name, strings.NewReader(text), int64(len(text)))
		return err
	}
	first, second := put("first"), put("again")
	_ = s.Delete(ctx, name)
	if first == nil && second == nil {
		return ErrStore
	}
	return nil
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
	idle := make(chan struct{})
	go func() {
		c.background.Wait()
		close(idle)
	}()
	stopped := true
	select {
	case <-idle:
	case <-ctx.Done():
		stopped = false
	}
	if c.node != nil {
		ctx, stop := context.WithTimeout(ctx, c.c.Beat)
		ended := []string{c.node.object()}
		if stopped { // else the loop may still change the beats
			for object, l := range c.lives.beats { // a process of this name that was killed before this one began
				if l.node != nil && l.node.Name == c.node.Name && l.node.Since.Before(c.node.Since) {
					ended = append(ended, object)
				}
			}
		}
		for _, object := range ended {
			if derr := c.c.Store.Delete(ctx, object); derr != nil {
				c.log.Warn("others will notice later that this node has ended", "error", derr)
			}
		}
		stop()
	}
	c.mu.Lock()
	open := slices.Collect(maps.Values(c.replicas))
	c.replicas = map[replicaKey]*kept{}
	c.mu.Unlock()
	errs := make([]error, len(open))
	_ = parallel.Do(context.WithoutCancel(ctx), len(open), len(open), func(i int) error {
		errs[i] = open[i].Close(ctx)
		return nil
	})
	return errors.Join(errs...)
}

// living looks into the store whether a collection is there.
func (c *Cluster) living(ctx context.Context, id string) error {
	m, err := newestMap(ctx, c.c.Store, nameOf(id))
	switch {
	case errors.Is(err, collection.ErrUnknown): // which says nothing
		return fmt.Errorf("%w: the store has lost the map of %s", collection.ErrUnreachable, id)
	case err == nil && (m.Removed || m.ID != id):
		return fmt.Errorf("%w: %q", collection.ErrUnknown, id)
	}
	return err
}

// aside begins work in the background, unless work of that name is running.
func (c *Cluster) aside(what string, do func(ctx context.Context)) (began bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.ctx.Err() != nil || c.busy[what] {
		return false
	}
	c.busy[what] = true
	c.background.Go(func() {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.busy, what)
		}()
		_ = c.guarded(what, func() error { do(c.ctx); return nil })
	})
	return true
}

// take waits for one of the turns that a channel has room for; end gives it back.
func take(ctx context.Context, turns chan struct{}) (end func(), err error) {
	select {
	case turns <- struct{}{}:
		return func() { <-turns }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// persist repeats requests that the store may refuse at first, 6 times at most. errTaken ends it.
func persist(ctx context.Context, do func() error) (err error) {
	for try := range 6 {
		if try > 0 {
			select {
			case <-ctx.Done():
				return errors.Join(err, ctx.Err())
			case <-time.After(10 * time.Millisecond << try):
			}
		}
		if err = do(); err == nil || errors.Is(err, errTaken) {
			return err
		}
	}
	return err
}

// holders are the living nodes that have a shard, in order: the first gathers its changes.
func (c *Cluster) holders(m *Map, shard int) []*Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.placeOf(m)[shard]
}

// placeOf are the holders of all shards; c.mu is held.
func (c *Cluster) placeOf(m *Map) [][]*Node {
	p := placement{m.ID, m.Shards, m.Replicas}
	if c.placed[p] == nil {
		c.placed[p] = placeShards(c.nodes, m.ID, m.Shards, m.Replicas)
	}
	return c.placed[p]
}

// coordinates reports whether this node looks after a collection.
func (c *Cluster) coordinates(m *Map) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node != nil && coordinator(c.nodes, m.ID) == c.node
}

// runs reports whether a process is known to live, by the Started of its node.
func (c *Cluster) runs(started string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.nodes, func(n *Node) bool { return n.Started == started })
}

// self reports whether a node is this process.
func (c *Cluster) self(n *Node) bool { return c.node != nil && n.Name == c.node.Name }
