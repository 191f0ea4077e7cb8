// Package cluster keeps collections in an object store, for any number of processes that share it.
package cluster

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/collection/store"
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

// Cluster is the collections of a store, as a node or a client sees them. It is a [collection.Set].
type Cluster struct {
	c   Config
	log *slog.Logger

	mu       sync.Mutex
	maps     map[string]*Map                 // by the name of the collection, the newest that is known
	nodes    []*Node                         // that live, by name, this one among them
	replicas map[replicaKey]*replica.Replica // of this node
	known    map[string]*shards              // collections that were asked for, by identity
	seen     map[shardKey]uint64             // the newest entry of a shard that this process knows of
	secret   string                          // of the inner routes
	front    front
	hints    map[replicaKey]uint64 // entries of replicas that are not open yet
	closed   bool
	ctx      context.Context // ends with the cluster
	end      context.CancelFunc
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

// Open joins the nodes of a store, and opens its collections.
func Open(ctx context.Context, c Config) (*Cluster, error) { return nil, errors.ErrUnsupported }

// Close ends the node: others take over at once.
func (c *Cluster) Close(ctx context.Context) error { return nil }

// mapOf is the newest map of a collection, read from the store if none is known here. The error is
// [collection.ErrUnknown].
func (c *Cluster) mapOf(ctx context.Context, name string) (*Map, error) {
	return nil, errors.ErrUnsupported
}

// holders are the living nodes that have a shard, in order: the first gathers its changes.
func (c *Cluster) holders(m *Map, shard int) []*Node { return nil }

// self reports whether a node is this process.
func (c *Cluster) self(n *Node) bool { return n.Name == c.c.Name }

// replica opens the replica of a shard on this node, whether or not this node is a holder.
func (c *Cluster) replica(ctx context.Context, id string, shard int, generation uint64) (*replica.Replica, error) {
	return nil, errors.ErrUnsupported
}

// begin decides how the first documents of a collection are encoded: it puts the first generation,
// or one with a dimension after one without. dim is 0 for documents without vectors.
func (c *Cluster) begin(ctx context.Context, m *Map, dim int, docs []collection.Document, o collection.UpdateOptions) (*Map, error) {
	return nil, errors.ErrUnsupported
}

// controlOperationOf is the operation of a name that keeps the cluster going; nil: there is none.
func controlOperationOf(name string) *operation { return nil }
