package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/testing/clustertest"
)

// ring is a collection that forgets its oldest documents, which two writers fill.
type ring struct {
	m     *model
	mu    sync.Mutex
	acked map[string]uint64 // numbers by id
	sent  int
}

func (r *ring) add(n *clustertest.Node) {
	ctx, stop := context.WithTimeout(r.m.ctx, opTime)
	defer stop()
	r.mu.Lock()
	r.sent++
	id := fmt.Sprint("r", r.sent)
	r.mu.Unlock()
	c, err := n.Get("ring")
	var got collection.Receipt
	if err == nil {
		got, err = c.Update(ctx, []collection.DocumentInput{document(id, id, `{"w":"ring"}`)}, collection.UpdateOptions{})
	}
	if r.m.failed("a document of the ring", n, err) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked[id] = got.Numbers[0]
}

// check holds that each shard has its newest documents, as many as are its share.
func (r *ring) check(ctx context.Context, n *clustertest.Node) {
	for written := map[uint64]bool{}; len(written) < modelShards && ctx.Err() == nil; {
		before := len(r.acked)
		if r.add(n); len(r.acked) > before {
			written[r.acked[fmt.Sprint("r", r.sent)]>>32] = true
		}
	}
	c, err := n.Get("ring")
	if r.m.failed("the ring", n, err) {
		return
	}
	v, err := c.Snapshot(ctx)
	if r.m.failed("the ring", n, err) {
		return
	}
	defer v.Close()
	there := map[string]uint64{}
	oldest, count := map[uint64]uint64{}, map[uint64]int{}
	for d, err := range v.Documents(ctx, collection.Selection{}, collection.ReadOptions{}) {
		if r.m.failed("the ring", n, err) {
			return
		}
		there[d.ID] = d.Number
		shard := d.Number >> 32
		if count[shard]++; count[shard] == 1 || d.Number < oldest[shard] {
			oldest[shard] = d.Number
		}
	}
	acked := map[uint64]int{}
	for id, number := range r.acked {
		shard := number >> 32
		acked[shard]++
		if number > oldest[shard] && there[id] != number {
			r.m.Errorf("document %s is number %d, and gone, although %d is there", id, number, oldest[shard])
		}
	}
	for shard, n := range count {
		if n > ringMost/modelShards || n < min(acked[shard], ringMost/modelShards) {
			r.m.Errorf("shard %d of the ring has %d documents of %d acknowledged ones, %d are kept", shard, n,
				acked[shard], ringMost/modelShards)
		}
	}
}

// phoenix declares a collection, fills it, drops it, and so on; nothing of one life comes
// back in the next.
func (m *model) phoenix(r *rand.Rand) {
	life := 0
	try := func(what string, do func(ctx context.Context, n *clustertest.Node) error) (done bool) {
		m.calm.RLock()
		defer m.calm.RUnlock()
		ctx, stop := context.WithTimeout(m.ctx, opTime)
		defer stop()
		n := m.node(r)
		return !m.failed(what, n, do(ctx, n))
	}
	for m.ctx.Err() == nil && !m.Failed() {
		life++
		for !try("a declaration", func(ctx context.Context, n *clustertest.Node) error {
			_, err := n.Create(ctx, "phoenix", collection.Config{})
			if errors.Is(err, collection.ErrExists) { // by an attempt whose answer did not come
				err = nil
			}
			return err
		}) && m.ctx.Err() == nil {
		}
		for i := range 5 {
			try("a change of what is declared again", func(ctx context.Context, n *clustertest.Node) (err error) {
				defer func() {
					// the node has not heard of this life, or not of the end of the last
					if errors.Is(err, collection.ErrUnknown) {
						err = nil
					}
				}()
				c, err := n.Get("phoenix")
				if err != nil {
					return err
				}
				d := document(fmt.Sprint("d", i), "x", fmt.Sprintf(`{"life":%d}`, life))
				_, err = c.Update(ctx, []collection.DocumentInput{d}, collection.UpdateOptions{Replace: true})
				if err != nil {
					return err
				}
				v, err := c.Snapshot(ctx)
				if err != nil {
					return err
				}
				defer v.Close()
				for d, err := range v.Documents(ctx, collection.Selection{}, collection.ReadOptions{Metadata: true}) {
					if err != nil {
						return err
					}
					if string(d.Metadata) != fmt.Sprintf(`{"life":%d}`, life) {
						m.Errorf("%s is in life %d: %s", d.ID, life, d.Metadata)
					}
				}
				return nil
			})
		}
		for !try("a removal", func(ctx context.Context, n *clustertest.Node) error {
			_, err := n.Remove(ctx, "phoenix")
			return err
		}) && m.ctx.Err() == nil {
		}
	}
}
