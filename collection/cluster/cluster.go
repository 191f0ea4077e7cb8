// Package cluster keeps collections in an object store, for any number of processes that share the store.
// docs/lab/cluster.md has the protocol and its invariants, which comments here name as I1 to I11.
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

// Config is the configuration of a process. Store and Dir are required.
type Config struct {
	Store        objects.Store
	StoreAddress string // the address of the store, for messages
	Dir          string // folder of the cache
	// Name is the name of the node, the same after a restart. Nodes of one Zone may fail together.
	Name, Zone string
	// Address is the URL under which other nodes reach [Cluster.Handler]. "" means a client: it has no shards and asks
	// the nodes for everything.
	Address string
	// Shards and Replicas are the defaults of collections that are declared. 0 means 1 shard and 2 replicas.
	Shards, Replicas int
	Index            store.Options // growth, threads, backend, device, derived data, queue
	Grace            time.Duration // how long unneeded objects stay. 0 means an hour
	CheckpointBytes  int64         // see [replica.Config]
	// Beat is the interval at which a node says that it is alive. 0 means 3 s. It counts as dead after four intervals.
	Beat time.Duration
	// Deadline limits a search. 0 means 30 s. Partial lets searches answer without shards that do not answer.
	Deadline time.Duration
	Partial  bool
	Logger   *slog.Logger
}

// complete checks the configuration and fills in the defaults.
func (c *Config) complete() (err error) {
	c.Shards, c.Replicas = cmp.Or(c.Shards, 1), cmp.Or(c.Replicas, 2)
	c.Grace, c.Beat = cmp.Or(c.Grace, time.Hour), cmp.Or(c.Beat, 3*time.Second)
	c.Deadline = cmp.Or(c.Deadline, 30*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Store == nil || c.Dir == "" || c.Grace < 0 || c.Beat < 0 || c.Deadline < 0 {
		return fmt.Errorf("%w: a store and a folder are required, and no time may be negative", collection.ErrConfig)
	}
	if err := checkSpread(c.Shards, c.Replicas); err != nil {
		return err
	}
	c.Index.Growth, err = c.Index.Growth.Completed()
	return err
}

// Cluster is the collections of a store, as one node or client sees them. It is a [collection.Catalog].
type Cluster struct {
	cfg           Config
	log           *slog.Logger
	node          *Node // this node, nil for a client
	replicaConfig replica.Config

	// Used by the loop only.
	beatCount uint64 // beats of this node so far
	beats     beatTracker

	mu            sync.Mutex                     // guards the fields up to panics
	maps          map[string]*Map                // newest known map, by the name of the collection
	lostMaps      map[string]bool                // collections whose maps the store has lost
	nodes         []*Node                        // living nodes by name, including this one
	twin          *Node                          // another process with the name of this node, or nil
	replicas      map[replicaKey]*cachedReplica  // open replicas of this node
	closing       map[replicaKey]bool            // replicas that are being closed
	seenEntries   map[shardKey]uint64            // newest entry that this process has made or seen
	hintedEntries map[shardKey]uint64            // newest entry that a hint named; it may be wrong
	secret        string                         // token of the inner routes
	front         front                          // answers requests
	pendingHints  map[string]map[shardKey]uint64 // entries still to be sent to a process, by its Node.Started
	placements    map[placementKey][][]*Node     // holders of shards, valid while the same nodes live
	missedNames   map[string]time.Time           // when unknown names were last looked up
	unsealed      map[string]time.Time           // when removed collections with unsealed logs were first seen, by name
	runningTasks  map[string]bool                // background tasks by name; each runs once at a time
	nextBuilds    map[string]*nextBuild          // state of Map.Next, by the id of the collection
	lastDone      map[string]time.Time           // when work was last done, see claimIfDue
	storeNow      time.Time                      // time of the last beat, by the clock of the store
	lastAnswer    time.Time                      // when the store last answered, by the clock of this process
	storeErr      error                          // error of the last refresh, nil if it succeeded
	mapsChanged   chan struct{}                  // closed when a map, or the list of nodes, has changed
	closed        bool

	panics     atomic.Uint64
	requests   atomic.Int64    // requests of the loop to the store; for tests
	ctx        context.Context // ends with the cluster
	cancel     context.CancelFunc
	wake       chan struct{} // asks the loop to act
	heavySlot  chan struct{} // slot to train a codec or to encode a shard
	pollSlots  chan struct{} // slots to poll logs
	openMutex  sync.Mutex    // held while a replica is opened
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

// placementKey identifies a placement of shards.
type placementKey struct {
	id               string
	shards, replicas int
}

// Open joins the nodes of a store, and opens its collections.
func Open(ctx context.Context, cfg Config) (*Cluster, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	rawStore := cfg.Store
	cfg.Store = reachabilityStore{rawStore}
	c := &Cluster{
		cfg:           cfg,
		log:           cfg.Logger,
		maps:          map[string]*Map{},
		lostMaps:      map[string]bool{},
		missedNames:   map[string]time.Time{},
		lastDone:      map[string]time.Time{},
		replicas:      map[replicaKey]*cachedReplica{},
		closing:       map[replicaKey]bool{},
		seenEntries:   map[shardKey]uint64{},
		hintedEntries: map[shardKey]uint64{},
		unsealed:      map[string]time.Time{},
		pendingHints:  map[string]map[shardKey]uint64{},
		placements:    map[placementKey][][]*Node{},
		runningTasks:  map[string]bool{},
		nextBuilds:    map[string]*nextBuild{},
		beats:         beatTracker{ttl: beatsToDie * cfg.Beat},
		mapsChanged:   make(chan struct{}),
		wake:          make(chan struct{}, 1),
		heavySlot:     make(chan struct{}, 1),
		pollSlots:     make(chan struct{}, 4),
	}
	c.replicaConfig = replica.Config{
		Store:           cfg.Store,
		Dir:             cfg.Dir,
		Index:           cfg.Index,
		Grace:           cfg.Grace,
		CheckpointBytes: cfg.CheckpointBytes,
		Logger:          cfg.Logger,
		Appended:        c.announceEntry,
		HintFailed:      c.forgetHints,
		CheckExists:     c.checkExists,
	}
	if cfg.Address != "" {
		c.node = &Node{cfg.Name, cfg.Address, cfg.Zone, newToken(), index.Version(), time.Now().UTC()}
		if err := c.node.validate(); err != nil {
			return nil, err
		}
		scratchDirs, _ := filepath.Glob(filepath.Join(cfg.Dir, scratchPrefix+"*"))
		for _, dir := range scratchDirs { // left by a process that was killed
			_ = os.RemoveAll(dir)
		}
	}
	c.beats.stale = 10*c.beats.ttl + time.Minute
	if c.node == nil { // a client may end before it sees that a beat has stopped; stores have times in whole seconds
		c.beats.stale = c.beats.ttl + 3*time.Second
	}
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := c.joinStore(ctx, rawStore); err != nil {
		c.cancel()
		return nil, fmt.Errorf("%s: %w", cfg.StoreAddress, err)
	}
	c.background.Go(c.runLoop)
	return c, nil
}

// joinStore looks at the store for the first time. It uses rawStore, whose errors are those of the store alone, unlike
// those of a [reachabilityStore].
func (c *Cluster) joinStore(ctx context.Context, rawStore objects.Store) (err error) {
	if c.secret, err = readSecret(ctx, rawStore, c.node != nil); err != nil {
		return joinError{err}
	}
	if c.node != nil {
		if err := checkStore(ctx, rawStore); err != nil {
			return err
		}
	}
	return c.refreshFromStore(ctx)
}

// secretName is the object that holds the token of the inner routes.
const secretName = "secret"

// readSecret returns the token of the inner routes, which the first node of a store creates. "" means that there is
// none yet.
func readSecret(ctx context.Context, s objects.Store, create bool) (string, error) {
	text, _, err := objects.Read(ctx, s, secretName, 1024)
	if errors.Is(err, objects.ErrNotFound) {
		if !create {
			return "", nil
		}
		created := newToken() + newToken()
		_, perr := s.Put(ctx, secretName, strings.NewReader(created), int64(len(created)))
		if text, _, err = objects.Read(ctx, s, secretName, 1024); err != nil {
			err = errors.Join(perr, err)
		}
	}
	if text = bytes.TrimSpace(text); err == nil && len(text) < 16 {
		err = fmt.Errorf("the object %s has %d bytes; it is a long random text", secretName, len(text))
	}
	return string(text), err
}

// ErrStore means that a store does not have the conditional puts that a cluster needs.
var ErrStore = errors.New("the store does not refuse to put an object that is there (If-None-Match): " +
	"changes would be lost")

// checkStore puts an object twice: a store that accepts both would accept two entries with one number (I1). Other
// errors are ignored, since they prove nothing.
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

// Close ends the node. Other nodes take over its shards at once.
func (c *Cluster) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	idle := make(chan struct{})
	// Wait for the background work.
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
	// Delete the beat of this node, so that others notice at once that it has ended.
	if c.node != nil {
		ctx, stop := context.WithTimeout(ctx, c.cfg.Beat)
		ended := []string{c.node.object()}
		if stopped { // otherwise the loop may still change the beats
			for object, l := range c.beats.byObject { // and of an earlier process of this name that was killed
				if l.node != nil && l.node.Name == c.node.Name && l.node.Since.Before(c.node.Since) {
					ended = append(ended, object)
				}
			}
		}
		for _, object := range ended {
			if derr := c.cfg.Store.Delete(ctx, object); derr != nil {
				c.log.Warn("others will notice only later that this node has ended", "error", derr)
			}
		}
		stop()
	}
	// Close the replicas.
	c.mu.Lock()
	open := slices.Collect(maps.Values(c.replicas))
	c.replicas = map[replicaKey]*cachedReplica{}
	c.mu.Unlock()
	errs := make([]error, len(open))
	_ = parallel.Do(context.WithoutCancel(ctx), len(open), len(open), func(i int) error {
		errs[i] = open[i].Close(ctx)
		return nil
	})
	return errors.Join(errs...)
}

// checkExists asks the store whether a collection exists. The error is [collection.ErrUnknown] if it was removed.
func (c *Cluster) checkExists(ctx context.Context, id string) error {
	m, err := newestMap(ctx, c.cfg.Store, nameFromID(id))
	switch {
	case errors.Is(err, collection.ErrUnknown): // a missing map does not prove a removal
		return fmt.Errorf("%w: the store has lost the map of %s", collection.ErrUnreachable, id)
	case err == nil && (m.Removed || m.ID != id):
		return fmt.Errorf("%w: %q", collection.ErrUnknown, id)
	}
	return err
}

// startTask starts work in the background, unless a task with the same name is running. began reports whether it did.
func (c *Cluster) startTask(task string, run func(ctx context.Context)) (began bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.ctx.Err() != nil || c.runningTasks[task] {
		return false
	}
	c.runningTasks[task] = true
	c.background.Go(func() {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.runningTasks, task)
		}()
		_ = c.runGuarded(task, func() error { run(c.ctx); return nil })
	})
	return true
}

// acquireSlot waits for one of the slots of a channel. The caller calls release to give it back.
func acquireSlot(ctx context.Context, slots chan struct{}) (release func(), err error) {
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// retryStore sends a request that the store may refuse at first, up to 6 times. errTaken ends it.
func retryStore(ctx context.Context, request func() error) (err error) {
	for try := range 6 {
		if try > 0 {
			select {
			case <-ctx.Done():
				return errors.Join(err, ctx.Err())
			case <-time.After(10 * time.Millisecond << try):
			}
		}
		if err = request(); err == nil || errors.Is(err, errTaken) {
			return err
		}
	}
	return err
}

// holders returns the living nodes that have a shard, in order: the first one gathers its changes.
func (c *Cluster) holders(m *Map, shard int) []*Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.placementOf(m)[shard]
}

// placementOf returns the holders of all shards; c.mu is held.
func (c *Cluster) placementOf(m *Map) [][]*Node {
	p := placementKey{m.ID, m.Shards, m.Replicas}
	if c.placements[p] == nil {
		c.placements[p] = placeShards(c.nodes, m.ID, m.Shards, m.Replicas)
	}
	return c.placements[p]
}

// isCoordinator reports whether this node coordinates a collection: it trains, promotes and collects garbage.
func (c *Cluster) isCoordinator(m *Map) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node != nil && coordinator(c.nodes, m.ID) == c.node
}

// isProcessAlive reports whether a process is known to live, by the Started of its node.
func (c *Cluster) isProcessAlive(started string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.nodes, func(n *Node) bool { return n.Started == started })
}

// isSelf reports whether a node is this process.
func (c *Cluster) isSelf(n *Node) bool { return c.node != nil && n.Name == c.node.Name }
