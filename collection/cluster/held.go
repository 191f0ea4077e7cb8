package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/storage"
)

// held is a shard as a node has it.
type held struct {
	*answered
	after   uint64
	replica *replica.Replica
	view    *store.Snapshot
}

// open takes a shard in one state; the view is nil if it has no documents. The fields of conditions are noted
// that it does not know.
func (h *held) open(ctx context.Context, c *Cluster, a *asked, wheres []*condition.Condition) (err error) {
	if h.replica, err = c.here(ctx, a, h.Shard); err != nil {
		return err
	}
	h.view, h.Entry, err = h.replica.Snapshot(ctx, h.after)
	if errors.Is(err, collection.ErrEmpty) {
		return nil
	}
	if err != nil {
		return err
	}
	h.Docs = uint64(h.view.Snapshot().Len())
	for _, where := range wheres {
		if where == nil {
			continue
		}
		unknown, err := index.UnknownFields(ctx, []*index.Snapshot{h.view.Snapshot()}, where)
		if err != nil {
			return err
		}
		h.Unknown = append(h.Unknown, unknown...)
	}
	return nil
}

// failed makes the answer for the shard an error. A file with damage is fetched again.
func (h *held) failed(err error) {
	if h.answered.failed(err); h.replica != nil && errors.Is(err, storage.ErrCorrupt) {
		h.replica.Corrupt(err)
	}
}

func (h *held) close() error {
	if h.view == nil {
		return nil
	}
	return h.view.Close()
}

// failed makes the answer for a shard an error.
func (a *answered) failed(err error) {
	*a = answered{Shard: a.Shard, Entry: a.Entry, Error: failureOf(err)}
}

// openShards opens shards, all at a time. Some of them may not be ready.
func openShards[T any, P answer[T]](ctx context.Context, c *Cluster, a *asked, wheres []*condition.Condition) (
	*answers[T], []*held) {
	out, all := &answers[T]{make([]T, len(a.Shards))}, make([]*held, len(a.Shards))
	var wg sync.WaitGroup
	for i, s := range a.Shards {
		all[i] = &held{answered: P(&out.Shards[i]).common(), after: s.After}
		all[i].Shard = s.Shard
		wg.Go(func() {
			if err := c.guarded("a shard", func() error { return all[i].open(ctx, c, a, wheres) }); err != nil {
				all[i].failed(err)
			}
		})
	}
	wg.Wait()
	return out, all
}

// ready reports whether the shard is open and has documents.
func (h *held) ready() bool { return h.view != nil && h.Error == nil }

// eachShard answers for shards, each in one state, all at a time. A shard without documents gives the
// zero answer.
func eachShard[T any, P answer[T]](ctx context.Context, c *Cluster, a *asked, do func(h *held, out *T) error,
	wheres ...*condition.Condition) (*answers[T], error) {
	out, all := openShards[T, P](ctx, c, a, wheres)
	var wg sync.WaitGroup
	for i, h := range all {
		wg.Go(func() {
			err := c.guarded("a shard", func() (err error) {
				defer func() { err = errors.Join(err, h.close()) }()
				if h.ready() {
					err = do(h, &out.Shards[i])
				}
				return err
			})
			if err != nil {
				common := *h.answered
				out.Shards[i] = *new(T)
				*h.answered = common
				h.failed(err)
			}
		})
	}
	wg.Wait()
	return out, nil
}

// here is the replica of a shard on this node. The error is errNotHere or errGeneration.
func (c *Cluster) here(ctx context.Context, a *asked, shard int) (*replica.Replica, error) {
	m, err := c.mapOf(ctx, a.Name)
	if err == nil && (m.ID != a.ID || m.Current == nil || m.Current.Number < a.Generation) {
		m, err = c.renew(ctx, a.Name) // who asks may know of a newer one
	}
	switch {
	case err != nil:
		return nil, err
	case m.ID != a.ID || m.Current == nil || m.Current.Number != a.Generation:
		return nil, fmt.Errorf("%w: of %s, not %d of %s", errGeneration, m.ID, a.Generation, a.ID)
	case shard < 0 || shard >= m.Shards:
		return nil, fmt.Errorf("%w: shard %d of %d", errMessage, shard, m.Shards)
	}
	c.mu.Lock()
	open := c.replicas[replicaKey{shardKey{a.ID, shard}, a.Generation}] != nil
	c.mu.Unlock()
	if !open && !slices.ContainsFunc(c.holders(m, shard), c.self) {
		return nil, fmt.Errorf("%w: shard %d of %s", errNotHere, shard, a.Name)
	}
	r, err := c.replica(ctx, a.ID, shard, a.Generation)
	if err != nil {
		return nil, err
	}
	return r.Replica, nil
}
