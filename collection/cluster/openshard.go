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

// openShard is a shard that a node has opened to answer a request.
type openShard struct {
	*answerHead
	after    uint64 // the snapshot must have this entry
	replica  *replica.Replica
	snapshot *store.Snapshot // nil if the shard has no documents
}

// openSnapshot takes a snapshot of the shard. It notes the fields of the conditions that the shard does not know.
func (h *openShard) openSnapshot(ctx context.Context, c *Cluster, target *shardTarget,
	wheres []*condition.Condition) (err error) {
	if h.replica, err = c.replicaForRead(ctx, target, h.Shard); err != nil {
		return err
	}
	h.snapshot, h.Entry, err = h.replica.Snapshot(ctx, h.after)
	if errors.Is(err, collection.ErrEmpty) {
		return nil
	}
	if err != nil {
		return err
	}
	h.Docs = uint64(h.snapshot.Snapshot().Len())
	for _, where := range wheres {
		if where == nil {
			continue
		}
		unknown, err := index.UnknownFields(ctx, []*index.Snapshot{h.snapshot.Snapshot()}, where)
		if err != nil {
			return err
		}
		h.Unknown = append(h.Unknown, unknown...)
	}
	return nil
}

// setError makes the answer for the shard an error. A damaged file is fetched again.
func (h *openShard) setError(err error) {
	if h.answerHead.setError(err); h.replica != nil && errors.Is(err, storage.ErrCorrupt) {
		h.replica.ReportDamage(err)
	}
}

// close closes the snapshot.
func (h *openShard) close() error {
	if h.snapshot == nil {
		return nil
	}
	return h.snapshot.Close()
}

// setError makes the answer for a shard an error.
func (a *answerHead) setError(err error) {
	*a = answerHead{Shard: a.Shard, Entry: a.Entry, Error: newFailure(err)}
}

// openShards opens shards concurrently. The answers of shards that cannot be opened are errors.
func openShards[T any, P answer[T]](ctx context.Context, c *Cluster, target *shardTarget,
	wheres []*condition.Condition) (*answers[T], []*openShard) {
	out, shards := &answers[T]{make([]T, len(target.Shards))}, make([]*openShard, len(target.Shards))
	var wg sync.WaitGroup
	for i, s := range target.Shards {
		shards[i] = &openShard{answerHead: P(&out.Shards[i]).commonHead(), after: s.After}
		shards[i].Shard = s.Shard
		wg.Go(func() {
			open := func() error { return shards[i].openSnapshot(ctx, c, target, wheres) }
			if err := c.runGuarded("a shard", open); err != nil {
				shards[i].setError(err)
			}
		})
	}
	wg.Wait()
	return out, shards
}

// hasDocuments reports whether the shard is open and has documents.
func (h *openShard) hasDocuments() bool { return h.snapshot != nil && h.Error == nil }

// eachShard calls read for shards concurrently, each with one snapshot. The answer for a shard without documents is the
// zero answer.
func eachShard[T any, P answer[T]](ctx context.Context, c *Cluster, target *shardTarget,
	read func(h *openShard, out *T) error, wheres ...*condition.Condition) (*answers[T], error) {
	out, shards := openShards[T, P](ctx, c, target, wheres)
	var wg sync.WaitGroup
	for i, h := range shards {
		wg.Go(func() {
			err := c.runGuarded("a shard", func() (err error) {
				defer func() { err = errors.Join(err, h.close()) }()
				if h.hasDocuments() {
					err = read(h, &out.Shards[i])
				}
				return err
			})
			if err != nil { // discard the incomplete answer
				common := *h.answerHead
				out.Shards[i] = *new(T)
				*h.answerHead = common
				h.setError(err)
			}
		})
	}
	wg.Wait()
	return out, nil
}

// replicaForRead returns the replica of a shard on this node. The error can be errNotHere or errGeneration.
func (c *Cluster) replicaForRead(ctx context.Context, target *shardTarget, shard int) (*replica.Replica, error) {
	m, err := c.findMap(ctx, target.Name)
	if err == nil && (m.ID != target.ID || m.Current == nil || m.Current.Number < target.Generation) {
		m, err = c.rereadMap(ctx, target.Name) // the node that asks may know a newer map
	}
	switch {
	case err != nil:
		return nil, err
	case m.ID != target.ID || m.Current == nil || m.Current.Number != target.Generation:
		return nil, fmt.Errorf("%w: of %s, not %d of %s", errGeneration, m.ID, target.Generation, target.ID)
	case shard < 0 || shard >= m.Shards:
		return nil, fmt.Errorf("%w: shard %d of %d", errMessage, shard, m.Shards)
	}
	c.mu.Lock()
	open := c.replicas[replicaKey{shardKey{target.ID, shard}, target.Generation}] != nil
	c.mu.Unlock()
	if !open && !slices.ContainsFunc(c.holders(m, shard), c.isSelf) {
		return nil, fmt.Errorf("%w: shard %d of %s", errNotHere, shard, target.Name)
	}
	r, err := c.ensureReplica(ctx, target.ID, shard, target.Generation)
	if err != nil {
		return nil, err
	}
	return r.Replica, nil
}
