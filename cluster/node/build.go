package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/vectors"
)

// BuildOrder has a worker build a shard. It lies in the queue until a worker says that
// the shard is in the map.
type BuildOrder struct {
	Collection string `json:"collection"` // its identity
	Generation uint64 `json:"generation"`
	Shard      int    `json:"shard"`
	// Codec is an index file whose codec is used, Input a spool of the documents of the
	// shard, without a name if it has none, or the object of the shard in an earlier
	// generation (a shard, or a codec), which is encoded anew.
	Codec objects.Ref `json:"codec"`
	Input objects.Ref `json:"input,omitzero"`
	Dim   int         `json:"dim"`
}

// buildFolder is where shards are built, in the folder of the node.
const buildFolder = "build"

// InputTag is the tag of the spools of input.
const InputTag = "plaid cluster input"

var (
	// errOver: an order that there is no use for any more.
	errOver = errors.New("the order is over")
	// errOrder: an order that nobody can carry out.
	errOrder = errors.New("bad order")
)

// build takes orders from the queue until the node ends.
func (n *Node) build() {
	for n.ctx.Err() == nil {
		if err := n.takeOrders(); err != nil && n.ctx.Err() == nil {
			n.log.Warn("the queue of builds", "error", err)
			select {
			case <-n.ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

func (n *Node) takeOrders() error {
	ctx, stop := context.WithTimeout(n.ctx, bus.Attempt)
	defer stop()
	consumer, err := n.bus.JS.CreateOrUpdateConsumer(ctx, bus.BuildStream, jetstream.ConsumerConfig{
		Durable: "builders", AckPolicy: jetstream.AckExplicitPolicy, AckWait: n.c.BuildWait, MaxDeliver: -1, MaxAckPending: 4096,
	})
	if err != nil {
		return err
	}
	for n.ctx.Err() == nil {
		batch, err := consumer.Fetch(1, jetstream.FetchMaxWait(n.c.Renew), jetstream.FetchHeartbeat(n.c.Renew/3))
		if err != nil {
			return err
		}
		for msg := range batch.Messages() {
			n.take(msg)
		}
		if err := batch.Error(); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) take(msg jetstream.Msg) {
	var o BuildOrder
	err := json.Unmarshal(msg.Data(), &o)
	log := n.log.With("collection", o.Collection, "generation", o.Generation, "shard", o.Shard)
	ctx, stop := context.WithCancel(n.ctx)
	defer stop()
	n.done.Go(func() { // the sign of life of a build that takes long
		tick := time.NewTicker(n.c.BuildWait / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = msg.InProgress() // without it the order goes to another node
			case <-ctx.Done():
				return
			}
		}
	})
	if err == nil {
		log.Info("building")
		within, span := n.tracer.Start(ctx, "build", n.attributes(o.Collection, o.Generation, o.Shard))
		err = n.guard("a build", func() error { return n.buildShard(within, &o) })
		ended(span, err)
	}
	switch {
	case err == nil:
		ctx, stop := context.WithTimeout(n.ctx, 10*time.Second)
		err = msg.DoubleAck(ctx)
		stop()
	case errors.Is(err, errOver) || errors.Is(err, errOrder):
		log.Warn("an order is dropped", "error", err)
		err = msg.TermWithReason(err.Error())
	case n.ctx.Err() == nil:
		wait := n.failing(msg, &o, err)
		log.Error("a build has failed and is tried again", "error", err, "after", wait)
		err = msg.NakWithDelay(wait)
	}
	if err != nil && n.ctx.Err() == nil {
		log.Warn("the queue does not hear what became of an order", "error", err)
	}
}

// longestBuildWait is the longest time before a build that has failed is tried again.
const longestBuildWait = 10 * time.Minute

// maxFailing is how many builds that have failed a lease names.
const maxFailing = 16

// failing notes that a build has failed, for those who look at the lease, and says when to try it
// again: after twice as long as the last time, as it may be that nobody can ever do it.
func (n *Node) failing(msg jetstream.Msg, o *BuildOrder, why error) time.Duration {
	tries := uint64(1)
	if meta, err := msg.Metadata(); err == nil {
		tries = max(meta.NumDelivered, 1)
	}
	wait := min(n.c.BuildWait<<min(tries-1, 16), max(longestBuildWait, n.c.BuildWait))
	text := why.Error()
	f := topology.FailedBuild{Collection: o.Collection, Generation: o.Generation, Shard: o.Shard, Error: strings.ToValidUTF8(text[:min(len(text), 512)], "…"), Tries: tries, Again: time.Now().Add(wait).UTC().Truncate(time.Second)}
	n.mu.Lock()
	n.inVain = slices.DeleteFunc(n.inVain, func(b topology.FailedBuild) bool { return b.Collection == o.Collection && b.Shard == o.Shard })
	if n.inVain = append(n.inVain, f); len(n.inVain) > maxFailing {
		n.inVain = n.inVain[1:]
	}
	n.mu.Unlock()
	n.say()
	return wait
}

// buildShard builds the file of a shard, makes an object of it and enters that in the map.
func (n *Node) buildShard(ctx context.Context, o *BuildOrder) error {
	if topology.CheckID(o.Collection) != nil || o.Codec.Check() != nil || o.Shard < 0 {
		return fmt.Errorf("%w: %+v", errOrder, o)
	}
	m, err := n.maps.Find(ctx, o.Collection)
	if errors.Is(err, topology.ErrRemoved) {
		return fmt.Errorf("%w: %w", errOver, err)
	}
	if err != nil {
		return err
	}
	g, err := openPlace(m, o)
	if err != nil || g.Shards[o.Shard].Object.Name != "" {
		return err
	}
	dir := filepath.Join(n.c.Dir, buildFolder)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	dir, err = os.MkdirTemp(dir, "shard-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "shard.plaid")
	if err := n.buildFile(ctx, dir, path, o); err != nil {
		return err
	}
	shard, err := Examine(ctx, path, g.Start[o.Shard])
	if err != nil {
		return err
	}
	shard.Object, err = objects.PutFile(ctx, n.store, ObjectName(o.Collection, o.Generation, o.Shard, shard.Applied), path)
	if err != nil {
		return err
	}
	entered := false
	_, err = n.maps.Update(ctx, o.Collection, func(m *topology.Map) error {
		g, err := openPlace(m, o)
		if err != nil {
			return err
		}
		if entered = g.Shards[o.Shard].Object.Name == ""; entered {
			g.Shards[o.Shard] = *shard
		}
		return nil
	})
	if errors.Is(err, topology.ErrRemoved) {
		err = fmt.Errorf("%w: %w", errOver, err)
	}
	if !entered { // another worker was first, with the same content
		err = errors.Join(err, n.store.Delete(ctx, shard.Object.Name))
	}
	return err
}

// openPlace is the generation that waits for the shard of an order.
func openPlace(m *topology.Map, o *BuildOrder) (*topology.Generation, error) {
	if g := m.Next; g != nil && g.Number == o.Generation && o.Shard < len(g.Shards) {
		return g, nil
	}
	return nil, fmt.Errorf("%w: generation %d of %s is not being built", errOver, o.Generation, o.Collection)
}

func (n *Node) buildFile(ctx context.Context, dir, path string, o *BuildOrder) (err error) {
	codecFile := filepath.Join(dir, "codec.plaid")
	if err := objects.Fetch(ctx, n.store, o.Codec, codecFile); err != nil {
		return err
	}
	ix, err := index.Open(ctx, codecFile, &index.Options{Backend: n.c.Backend})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ix.Close()) }()
	snap, err := ix.Snapshot()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	if o.Input.Name == "" { // a codec without documents is an index without documents
		_, err = ix.BackupTo(ctx, path, &index.BackupOptions{Check: index.CheckSums})
		return err
	}
	if isIndex(o.Input) {
		return n.encodeAnew(ctx, path, o.Input, snap)
	}
	input := filepath.Join(dir, "input.spool")
	if err := objects.Fetch(ctx, n.store, o.Input, input); err != nil {
		return err
	}
	src, err := vectors.NewSpool(o.Dim, &vectors.SpoolOptions{Path: input, Resume: true, Tag: InputTag})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if src.Tokens() > 0 {
		_, err = index.Build(ctx, path, src, &index.BuildOptions{Like: snap, Threads: n.c.Threads, Backend: n.c.Backend, Logger: n.log})
		return err
	}
	// A build needs a token; documents without any are added to the codec.
	if _, err := ix.BackupTo(ctx, path, &index.BackupOptions{Check: index.CheckSums}); err != nil {
		return err
	}
	empty, err := index.Open(ctx, path, &index.Options{Write: true, Backend: n.c.Backend})
	if err != nil {
		return err
	}
	_, err = empty.Add(ctx, src, nil)
	return errors.Join(err, empty.Close())
}

// isIndex tells objects that are index files from spools: shards, as [ObjectName] names them,
// and codecs, with which shards of a collection that was begun empty stay until something
// changes in them.
func isIndex(o objects.Ref) bool {
	return strings.HasPrefix(o.Name, "shards/") || strings.HasPrefix(o.Name, "codecs/")
}

// encodeAnew fetches the file of a shard and encodes its documents with another codec. Their
// ordinals stay, and so does what was applied of the log.
func (n *Node) encodeAnew(ctx context.Context, path string, input objects.Ref, like *index.Snapshot) error {
	if err := objects.Fetch(ctx, n.store, input, path); err != nil {
		return err
	}
	ix, err := index.Open(ctx, path, &index.Options{Write: true, Backend: n.c.Backend, Logger: n.log})
	if err != nil {
		return err
	}
	_, err = ix.Retrain(ctx, &index.RetrainOptions{Like: like, Threads: n.c.Threads})
	return errors.Join(err, ix.Close())
}
