package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/vectors"
)

// BuildOptions of a generation.
type BuildOptions struct {
	// Train says how the codec is trained, and what else the shards have of it: the model,
	// pooling, and whether vectors are scaled.
	Train index.BuildOptions
	// Dir is where codec and input are made before they are objects; "": a temporary folder.
	Dir string
	// Progress, where set, is told what is being done.
	Progress func(stage string, done, total int)
}

// Build makes the next generation of a collection from documents: one codec is trained
// on a sample of all, each shard gets its documents, and the nodes that build take the
// shards from a queue. It returns when all are built; [Operator.Promote] comes next.
//
// A build that was interrupted after the orders were given goes on by [Operator.Resume].
// Changes that are made to the collection after Build has begun are in the new
// generation too: its replicas apply the logs from then on.
func (o *Operator) Build(ctx context.Context, collection string, src vectors.Source, b BuildOptions) (_ *topology.Map, err error) {
	if b.Progress == nil {
		b.Progress = func(string, int, int) {}
	}
	free := func(m *topology.Map) error {
		if m.Next != nil {
			return fmt.Errorf("%w: generation %d of %s is being built or waits", ErrState, m.Next.Number, collection)
		}
		return nil
	}
	m, err := o.maps.Get(ctx, collection)
	if err != nil {
		return nil, err
	}
	of := m
	defer func() { err = o.left(ctx, of, err) }()
	m, release, err := o.reserve(ctx, m.ID(), free)
	if err != nil {
		return nil, err
	}
	defer func() { release(err) }()
	g, err := o.generation(ctx, m, src.Dim(), &b.Train)
	if err != nil {
		return nil, err
	}
	dir, remove, err := Scratch(b.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	b.Progress("train", 0, 1)
	if g.Codec, err = o.codec(ctx, dir, codecName(m, g.Number), src, b); err != nil {
		return nil, err
	}
	b.Progress("train", 1, 1)
	if g.Inputs, err = o.split(ctx, dir, m, g.Number, src, b); err != nil {
		return nil, err
	}
	if m, err = o.enter(ctx, m.ID(), g, free); err != nil {
		return nil, err
	}
	return o.finish(ctx, m, b)
}

// generation is the one that is built next, whose number m.Last was reserved for it. It
// begins with what is in the logs now, which are not cut off from then on.
func (o *Operator) generation(ctx context.Context, m *topology.Map, dim int, train *index.BuildOptions) (*topology.Generation, error) {
	g := &topology.Generation{Number: m.Last, Dim: dim, Model: train.Model, Pool: train.Pool, Shards: make([]topology.Shard, m.Shards())}
	if train.Like != nil {
		g.Pool = train.Like.Header().Build.Pool
	}
	for s := range m.Shards() {
		stream, err := o.bus.JS.Stream(ctx, bus.LogStream(m.ID(), s))
		if err != nil {
			return nil, fmt.Errorf("log of shard %d: %w", s, err)
		}
		g.Start = append(g.Start, stream.CachedInfo().State.LastSeq)
	}
	return g, nil
}

// codecName is where the codec of a generation is.
func codecName(m *topology.Map, generation uint64) string {
	return fmt.Sprintf("codecs/%s/g%d.plaid", m.ID(), generation)
}

// Resume goes on with a build after its documents were taken apart: what is not built
// is ordered again, unless that is in the queue.
func (o *Operator) Resume(ctx context.Context, collection string, b BuildOptions) (*topology.Map, error) {
	if b.Progress == nil {
		b.Progress = func(string, int, int) {}
	}
	m, err := o.maps.Get(ctx, collection)
	if err != nil {
		return nil, err
	}
	if m.Next == nil {
		return nil, fmt.Errorf("%w: nothing of %s is being built", ErrState, collection)
	}
	return o.finish(ctx, m, b)
}

// finish orders what is not built, and waits for it.
func (o *Operator) finish(ctx context.Context, m *topology.Map, b BuildOptions) (*topology.Map, error) {
	g := m.Next
	for s, shard := range g.Shards {
		if shard.Object.Name != "" || g.Inputs == nil {
			continue
		}
		order := node.BuildOrder{Collection: m.ID(), Generation: g.Number, Shard: s, Codec: g.Codec, Input: g.Inputs[s], Dim: g.Dim}
		if err := o.order(ctx, order); err != nil {
			return nil, err
		}
	}
	return o.built(ctx, m, b)
}

// codec trains on the documents and makes an object of the codec.
func (o *Operator) codec(ctx context.Context, dir, name string, src vectors.Source, b BuildOptions) (objects.Ref, error) {
	path := filepath.Join(dir, "codec.plaid")
	if _, err := index.Train(ctx, path, src, &b.Train); err != nil {
		return objects.Ref{}, err
	}
	return objects.PutFile(ctx, o.store, name, path)
}

// split writes the documents of each shard to an object.
func (o *Operator) split(ctx context.Context, dir string, m *topology.Map, generation uint64, src vectors.Source, b BuildOptions) (_ []objects.Ref, err error) {
	spools := make([]*vectors.Spool, m.Shards())
	defer func() {
		for _, s := range spools {
			if s != nil {
				err = errors.Join(err, s.Close())
			}
		}
	}()
	path := func(s int) string { return filepath.Join(dir, fmt.Sprintf("s%04d.spool", s)) }
	done := 0
	for doc, err := range src.Docs(ctx, 0, src.Len()) {
		if err != nil {
			return nil, err
		}
		if doc.ID == "" {
			doc.ID = src.ID(done)
		}
		s := m.ShardOf(doc.ID)
		if spools[s] == nil {
			if spools[s], err = vectors.NewSpool(src.Dim(), &vectors.SpoolOptions{Path: path(s), Tag: node.InputTag}); err != nil {
				return nil, err
			}
		}
		if err := spools[s].Add(doc); err != nil {
			return nil, err
		}
		if done++; done%1000 == 0 || done == src.Len() {
			b.Progress("split", done, src.Len())
		}
	}
	refs := make([]objects.Ref, m.Shards())
	for s, spool := range spools {
		if spool == nil {
			continue
		}
		err := spool.Close()
		spools[s] = nil
		if err == nil {
			refs[s], err = objects.PutFile(ctx, o.store, fmt.Sprintf("inputs/%s/g%d/s%04d.spool", m.ID(), generation, s), path(s))
		}
		if err != nil {
			return nil, err
		}
		b.Progress("upload", s+1, m.Shards())
	}
	return refs, nil
}

func (o *Operator) order(ctx context.Context, order node.BuildOrder) error {
	text, err := json.Marshal(order)
	if err != nil {
		return err
	}
	_, err = o.bus.JS.Publish(ctx, bus.BuildSubject(order.Collection, order.Generation, order.Shard), text, jetstream.WithExpectStream(bus.BuildStream))
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == tooMany {
		return nil // it is in the queue
	}
	if err != nil {
		return fmt.Errorf("ordering shard %d: %w", order.Shard, err)
	}
	return nil
}

// tooMany is JetStream's code where a subject of a stream has as many messages as it may.
const tooMany = 10077

// built waits until every shard has its file, and drops the input.
func (o *Operator) built(ctx context.Context, m *topology.Map, b BuildOptions) (*topology.Map, error) {
	number := m.Next.Number
	var over error
	n := 0
	err := o.wait(ctx, m, func() string {
		what := fmt.Sprintf("%d of %d shards of generation %d of %s are built", n, m.Shards(), number, m.Collection)
		now, err := o.watch.MapOf(m.ID())
		if err != nil || now.Version < m.Version {
			return what
		}
		g := now.Generation(number)
		if g == nil {
			over = fmt.Errorf("%w: generation %d of %s was given up", ErrState, number, m.Collection)
			return ""
		}
		m, n = now, 0
		for _, s := range g.Shards {
			if s.Object.Name != "" {
				n++
			}
		}
		b.Progress("build", n, len(g.Shards))
		if n == len(g.Shards) {
			return ""
		}
		return what
	})
	if err = errors.Join(err, over); err != nil {
		return nil, err
	}
	inputs, err := o.store.List(ctx, fmt.Sprintf("inputs/%s/g%d/", m.ID(), number))
	for _, input := range inputs {
		err = errors.Join(err, o.store.Delete(ctx, input.Name))
	}
	return m, err
}
