package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// unable is why a front declares and removes nothing.
func unable(what string) error {
	return collection.Unsupported(what + " (this front is not told of the object store; an operator has plaid cluster create and remove)")
}

// Declare implements [collection.Set]. The collection has the shards and replicas that
// [Config] says, and gets a codec with its first documents.
func (f *Front) Declare(ctx context.Context, name string, c collection.Config) (collection.Collection, error) {
	if err := collection.CheckName(name); err != nil {
		return nil, err
	}
	if _, err := f.watch.Map(name); !errors.Is(err, topology.ErrNoCollection) {
		return nil, fmt.Errorf("%w: %q", collection.ErrExists, name)
	}
	c, err := c.Completed()
	switch {
	case err != nil:
		return nil, err
	case f.op == nil:
		return nil, unable("declaring an index")
	}
	if err := topology.CheckName(name); err != nil {
		return nil, fmt.Errorf("%w: %q: in a cluster it has 1 to 64 of a-z, 0-9, - and _", collection.ErrName, name)
	}
	o := f.c.Create
	if o.Settings, err = json.Marshal(c); err != nil {
		return nil, err
	}
	m, err := f.op.Create(ctx, name, o)
	switch {
	case errors.Is(err, topology.ErrExists):
		return nil, fmt.Errorf("%w: %q", collection.ErrExists, name)
	case err != nil:
		return nil, answered(err)
	}
	if err := f.seen(ctx, m); err != nil {
		return nil, answered(err)
	}
	return f.Get(name)
}

// Drop implements [collection.Set]. A removal that was interrupted is finished.
func (f *Front) Drop(ctx context.Context, name string) (existed bool, err error) {
	if err := collection.CheckName(name); err != nil {
		return false, err
	}
	if _, err := f.watch.Last(name); errors.Is(err, topology.ErrNoCollection) {
		return false, nil
	}
	if f.op == nil {
		return false, unable("removing an index")
	}
	m, existed, err := f.op.Remove(ctx, name)
	if errors.Is(err, topology.ErrNoCollection) {
		return false, nil
	}
	if err == nil {
		err = f.seen(ctx, m)
	}
	if err != nil {
		return existed, answered(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.clients[name]; c != nil && c.id == m.ID() {
		f.drain(c)
	}
	return existed, nil
}

// seen waits until this front knows of a map, or of a later one.
func (f *Front) seen(ctx context.Context, m *topology.Map) error {
	return f.watch.Wait(ctx, func() bool {
		now, err := f.watch.Last(m.Collection)
		return err == nil && now.Version >= m.Version
	})
}

// begin gives a collection without a codec one that suits its first documents, as a
// folder of indexes does.
func (c *shards) begin(ctx context.Context, docs []collection.Document, model *storage.Model) error {
	if c.f.op == nil {
		return collection.Unsupported("documents in a collection that has not been built (plaid cluster build and promote)")
	}
	docs, err := collection.CheckDocuments(docs, 0)
	if err != nil || len(docs) == 0 {
		return err
	}
	if err := model.Validate(); err != nil {
		return fmt.Errorf("%w: %w", collection.ErrConfig, err)
	}
	all := make([]vectors.Document, len(docs))
	for i, d := range docs {
		all[i] = vectors.Document{ID: fmt.Sprint(i), Tokens: d.Vectors}
	}
	dim := 0
	for i := range docs {
		dim = cmp.Or(dim, docs[i].Dim)
	}
	if dim == 0 {
		return collection.Unsupported("a collection whose first documents all have no vectors")
	}
	src, err := vectors.FromDocuments(dim, all)
	if err != nil {
		return err
	}
	train, err := c.f.c.Growth.First(src, dim, c.Config())
	if err != nil {
		return err
	}
	train.Model, train.Backend, train.Threads, train.Logger = model, c.f.c.Backend, c.f.c.Threads, c.f.log
	m, err := c.f.op.Begin(ctx, c.id, src, operate.BuildOptions{Train: *train, Dir: c.f.c.Dir})
	if err != nil {
		return answered(err)
	}
	return answered(c.f.seen(ctx, m))
}
