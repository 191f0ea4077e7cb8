// Package service lets package server serve the collections of a cluster: they are the
// [collection.Set] of a front.
//
// A document id is the shard in the upper 32 bits and the ordinal in it below; it lasts
// as long as the generation. Documents that come without a name get a random one, since
// the name decides on the shard.
package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// Config of a front.
type Config struct {
	// Client is what the clients of all collections have in common.
	Client client.Config
	// Place says where the cluster is, for /health.
	Place string
	// Store is the object store of the cluster. With it collections are declared and removed;
	// nil: they are not. Create says how they are made.
	Store  objects.Store
	Create operate.CreateOptions
	// Backend names the kernels that codecs are trained with, and Threads bounds the
	// goroutines of that; "" and 0: the best there is, one a processor.
	Backend string
	Threads int
	// Growth says when a collection is trained anew as it grows.
	Growth collection.Growth
	// Dir is where files are made before they are objects; "": a temporary folder.
	Dir string
}

// Front is the collections of a cluster, as a service sees them. It is safe for
// concurrent use.
type Front struct {
	c      Config
	bus    *bus.Bus
	watch  *topology.Watcher
	log    *slog.Logger
	op     *operate.Operator // nil: nothing is declared or removed
	growth collection.Growth

	ctx    context.Context // ends with the front
	end    context.CancelFunc
	beside sync.WaitGroup // what goes on beside requests

	mu      sync.Mutex
	closed  bool
	clients map[string]*shards
	ending  sync.WaitGroup // clients of collections that were removed
}

var (
	_ collection.Set      = (*Front)(nil)
	_ collection.Readier  = (*Front)(nil)
	_ collection.Restorer = (*Front)(nil)
)

// New returns a front over a connection, which stays the caller's. The error is
// [bus.ErrRole] if it may not declare collections, and is told of the object store.
func New(ctx context.Context, conn *nats.Conn, c Config) (*Front, error) {
	growth, err := c.Growth.Completed()
	if err != nil {
		return nil, err
	}
	b, err := bus.Open(ctx, conn)
	if err != nil {
		return nil, err
	}
	if c.Store != nil {
		if err := b.CheckOperator(ctx); err != nil {
			return nil, fmt.Errorf("declaring and removing collections: %w", err)
		}
	}
	watch, err := topology.Watch(ctx, b)
	if err != nil {
		return nil, err
	}
	f := &Front{c: c, bus: b, watch: watch, log: c.Client.Logger, growth: growth, clients: map[string]*shards{}}
	f.ctx, f.end = context.WithCancel(context.WithoutCancel(ctx))
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	if c.Store != nil {
		f.op = operate.Over(b, watch, c.Store, f.log)
		if _, remove, err := operate.Scratch(c.Dir); err == nil { // what one that was killed has left goes now
			_ = remove()
		}
	}
	return f, nil
}

// Close ends what goes on. It may be called more than once.
func (f *Front) Close() error {
	f.mu.Lock()
	f.closed = true
	all := f.clients
	f.clients = nil
	f.mu.Unlock()
	f.end()
	f.beside.Wait()
	var errs []error
	for _, c := range all {
		errs = append(errs, c.Close())
	}
	f.ending.Wait()
	f.watch.Close()
	return errors.Join(errs...)
}

// aside lets something run beside requests, which Close waits for; false: not any more.
func (f *Front) aside(do func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.beside.Go(do)
	}
	return !f.closed
}

// Ready implements [collection.Readier]: without a connection nobody can be asked.
func (f *Front) Ready() error {
	if !f.bus.Conn.IsConnected() {
		return errors.New("no node of the cluster can be reached")
	}
	return nil
}

// Place implements [collection.Set].
func (f *Front) Place() string { return f.c.Place }

// Names implements [collection.Set]. Collections whose maps this program does not understand are
// among them.
func (f *Front) Names() []string {
	names := slices.Collect(maps.Keys(f.watch.Faults()))
	for _, m := range f.watch.Maps() {
		names = append(names, m.Collection)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Get implements [collection.Set].
func (f *Front) Get(name string) (collection.Collection, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, collection.ErrClosed
	}
	c := f.clients[name]
	m, err := f.watch.Map(name)
	if c != nil && (m != nil && c.id != m.ID() || errors.Is(err, topology.ErrNoCollection)) {
		f.drain(c) // it was removed, and another collection may have the name
		c = nil
	}
	switch {
	case errors.Is(err, topology.ErrNoCollection):
		return nil, fmt.Errorf("%w: %q", collection.ErrUnknown, name)
	case c != nil:
		return c, nil
	}
	cfg := f.c.Client
	cfg.Collection = name
	cl, err := client.Over(f.bus, f.watch, cfg)
	if err != nil {
		return nil, err
	}
	c = &shards{Client: cl, f: f, name: name, turn: make(chan struct{}, 1)}
	if m, err := cl.Map(); err == nil {
		c.id = m.ID()
	}
	f.clients[name] = c
	return c, nil
}

// drain forgets a collection that was removed; f.mu is held. What is asked of it finds
// that out by itself.
func (f *Front) drain(c *shards) {
	delete(f.clients, c.name)
	f.ending.Go(func() { _ = c.Drain() })
}

// shards is a collection of a cluster, behind its client.
type shards struct {
	*client.Client
	f     *Front
	name  string
	id    string       // its identity; "": its map is not understood
	nbits atomic.Int32 // as Stats has seen it last
	final atomic.Bool  // it does not grow into another codec by itself any more
	grown growth
	turn  chan struct{} // holds one while it is trained

	evicting sync.Mutex // held while documents beyond the limit are deleted
}

var (
	_ collection.Collection = (*shards)(nil)
	_ collection.Retrainer  = (*shards)(nil)
	_ collection.Backuper   = (*shards)(nil)
	_ collection.Verifier   = (*shards)(nil)
)

func (c *shards) Name() string { return c.name }

// Err is why the map of the collection is not understood.
func (c *shards) Err() error {
	if _, err := c.Watcher().Map(c.name); err != nil && !errors.Is(err, topology.ErrNoCollection) {
		return fmt.Errorf("%w: %w", collection.ErrDamaged, err)
	}
	return nil
}

// Config is how the collection was declared, and of one that an operator has made, what is
// known.
func (c *shards) Config() collection.Config {
	cfg := collection.Config{Nbits: int(c.nbits.Load()), Tokenizer: collection.TokenizerUnicode}
	if m, err := c.Map(); err == nil && m.Settings != nil {
		var declared collection.Config
		if json.Unmarshal(m.Settings, &declared) == nil {
			return declared
		}
	}
	return cfg
}

// Stats asks one replica of each shard.
func (c *shards) Stats(ctx context.Context) (collection.Stats, error) {
	st := collection.Stats{Growth: collection.GrowthStats{Stage: collection.StageEmpty}}
	d, err := c.Describe(ctx)
	if errors.Is(err, client.ErrEmpty) {
		return st, nil
	} else if err != nil {
		return st, answered(err)
	}
	shards, err := c.Shards(ctx)
	if err != nil {
		return st, answered(err)
	}
	st.Dim, st.Generation, st.Model = d.Dim, d.Generation, d.Model
	for _, s := range shards {
		st.Documents += s.Documents
		st.Passages += s.Passages
		st.Deleted += s.Deleted
		st.Tokens += s.Tokens
		st.Metadata += s.Payloads
		st.FileBytes += s.FileBytes
		st.Nbits, st.Centroids = s.Nbits, s.Centroids // one codec
	}
	c.growing(&st, shards)
	c.nbits.Store(int32(st.Nbits))
	return st, nil
}

// View is the collection as it is from now on: what a shard answers is of one state of
// it, and has the changes that this front was told are made.
func (c *shards) View(ctx context.Context) (collection.View, error) {
	d, err := c.Describe(ctx)
	if err != nil {
		return nil, answered(err)
	}
	return &view{c, d}, nil
}

// Update sends documents to their shards.
func (c *shards) Update(ctx context.Context, docs []collection.Document, o collection.UpdateOptions) (collection.Receipt, error) {
	d, err := c.Describe(ctx)
	if errors.Is(err, client.ErrEmpty) {
		if err := c.begin(ctx, docs, o.Model); err != nil || len(docs) == 0 {
			return collection.Receipt{}, err
		}
		d, err = c.Describe(ctx)
	}
	if err != nil {
		return collection.Receipt{}, answered(err)
	}
	if docs, err = collection.CheckDocuments(docs, d.Dim); err != nil {
		return collection.Receipt{}, err
	}
	if slices.ContainsFunc(docs, func(d collection.Document) bool { return d.KeepMetadata }) {
		return collection.Receipt{}, collection.Unsupported("keeping the metadata of documents that are replaced")
	}
	src, r, firsts, place, err := named(docs, d.Dim)
	if err != nil {
		return collection.Receipt{}, err
	}
	r.Generation = d.Generation
	for i := range docs {
		if len(docs[i].Vectors) == 0 {
			r.Empty++
		}
	}
	w := &client.WriteOptions{Replace: o.Replace, Model: o.Model, Placed: place}
	report, err := c.Add(ctx, src, w)
	if err = changed(report, err); err != nil {
		return r, err
	}
	c.grow()
	added := make([]uint64, len(firsts))
	for i, first := range firsts {
		added[i] = r.Numbers[first]
	}
	r.Evicted = c.evict(ctx, added)
	return r, nil
}

// Delete deletes documents by name, by document id, or by a condition.
func (c *shards) Delete(ctx context.Context, chosen collection.Selection) (index.Affected, error) {
	if err := chosen.CheckOne(); err != nil {
		return index.Affected{}, err
	}
	var report *client.WriteReport
	var err error
	switch {
	case chosen.Numbers != nil:
		return c.byNumber(ctx, chosen.Numbers, func(ids []string, o *client.WriteOptions) (*client.WriteReport, error) {
			return c.Client.Delete(ctx, ids, o)
		})
	case chosen.Where != nil:
		report, err = c.DeleteWhere(ctx, chosen.Where, nil)
	default:
		report, err = c.Client.Delete(ctx, chosen.IDs, nil)
	}
	if err := changed(report, err); err != nil {
		return index.Affected{}, err
	}
	return affected(report), nil
}

// affected counts what a deletion or an update was made to.
func affected(r *client.WriteReport) index.Affected {
	return index.Affected{Documents: r.Deleted + r.Updated, Passages: r.Passages}
}

// byNumber changes documents by document id. The logs have names: a shard that was changed
// since its names were read refuses them, as they may be those of later documents, and they
// are read again.
func (c *shards) byNumber(ctx context.Context, documents []uint64,
	change func(ids []string, o *client.WriteOptions) (*client.WriteReport, error)) (done index.Affected, err error) {
	const tries = 20
	for i := 0; ; i++ {
		ids, applied, err := c.names(ctx, documents)
		if err != nil || len(ids) == 0 {
			return done, err
		}
		report, err := change(ids, &client.WriteOptions{If: applied})
		if report != nil {
			done.Add(affected(report))
			report.Deleted, report.Updated, report.Passages = done.Documents, 0, done.Passages
		}
		if !errors.Is(err, client.ErrConflict) || errors.Is(err, client.ErrUnacknowledged) || i == tries {
			return done, changed(report, err)
		}
		select {
		case <-time.After(time.Duration(i+1) * 5 * time.Millisecond):
		case <-ctx.Done():
			return done, changed(report, ctx.Err())
		}
	}
}

// names are those of the documents that there are of some document ids, and the entries
// of the logs of their shards up to which that was looked up.
func (c *shards) names(ctx context.Context, documents []uint64) ([]string, map[int]uint64, error) {
	ids, applied := []string{}, map[int]uint64{}
	for d, err := range c.Documents(ctx, collection.Selection{Numbers: documents}, collection.ReadOptions{}) {
		if err != nil {
			return nil, nil, answered(err)
		}
		ids = append(ids, d.ID)
		if at, there := applied[d.Shard]; !there || d.Applied < at {
			applied[d.Shard] = d.Applied
		}
	}
	return ids, applied, nil
}

// UpdateMetadata sets fields of the documents of a selection, and removes those that are null.
func (c *shards) UpdateMetadata(
	ctx context.Context, chosen collection.Selection, set map[string]json.RawMessage) (index.Affected, error) {
	if err := collection.CheckFields(set); err != nil {
		return index.Affected{}, err
	}
	if err := chosen.CheckOne(); err != nil {
		return index.Affected{}, err
	}
	fields := condition.Fields(set).NullRemoves()
	var report *client.WriteReport
	var err error
	switch {
	case chosen.Numbers != nil:
		return c.setByNumber(ctx, chosen.Numbers, fields)
	case chosen.Where != nil:
		report, err = c.UpdatePayload(ctx, chosen.Where, fields, nil)
	default:
		report, err = c.SetPayload(ctx, chosen.IDs, fields, nil)
	}
	if err := changed(report, err); err != nil {
		return index.Affected{}, err
	}
	return affected(report), nil
}

// setByNumber sets fields of documents by document id. What was made before a conflict is
// made again, and counts once: the documents that there were in the end.
func (c *shards) setByNumber(ctx context.Context, documents []uint64, fields condition.Fields) (made index.Affected, err error) {
	_, err = c.byNumber(ctx, documents, func(ids []string, o *client.WriteOptions) (*client.WriteReport, error) {
		report, err := c.SetPayload(ctx, ids, fields, o)
		if err == nil {
			made = affected(report)
		}
		return report, err
	})
	return made, err
}
