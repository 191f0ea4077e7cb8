package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/collection"
)

// SetMaxDocuments implements [collection.Collection]. The limit is in the map, for all fronts.
func (c *shards) SetMaxDocuments(ctx context.Context, most *uint64) (cfg collection.Config, err error) {
	if c.f.op == nil {
		return cfg, unable("a largest number of documents")
	}
	m, err := c.f.op.Configure(ctx, c.id, func(settings json.RawMessage) (json.RawMessage, error) {
		cfg = c.Config()
		if settings != nil {
			cfg = collection.Config{}
			if err := json.Unmarshal(settings, &cfg); err != nil {
				return nil, err
			}
		}
		cfg.MaxDocuments = most
		done, err := cfg.Completed()
		if err != nil {
			return nil, err
		}
		cfg = done
		return json.Marshal(cfg)
	})
	if err == nil {
		err = c.f.seen(ctx, m)
	}
	return cfg, answered(err)
}

// evict deletes the oldest documents beyond the limit, whole, and returns how many. added are
// those that have just come, by the document id of the first passage. Which are older
// is known in a shard alone. A hash has shared them among the shards, so each gives the same
// part of those that it has, but for the ones that have just come: these go last. That
// documents stay is no fault of the change that they came with: the next one deletes them.
func (c *shards) evict(ctx context.Context, added []uint64) (evicted int) {
	most := c.Config().MaxDocuments
	if most == nil {
		return 0
	}
	c.evicting.Lock()
	defer c.evicting.Unlock()
	const tries = 20
	for range tries {
		n, err := c.evictOnce(ctx, *most, added)
		evicted += n
		switch {
		case errors.Is(err, client.ErrConflict):
			continue
		case err != nil:
			c.f.log.Warn("documents beyond the limit stay", "collection", c.name, "error", err)
		}
		break
	}
	return evicted
}

func (c *shards) evictOnce(ctx context.Context, most uint64, added []uint64) (evicted int, err error) {
	stats, err := c.Shards(ctx)
	if err != nil {
		return 0, err
	}
	olds, news := make([]int, len(stats)), make([]int, len(stats))
	total := 0
	for s := range stats {
		olds[s] = int(stats[s].Documents)
		total += olds[s]
	}
	for _, n := range added {
		if s := int(n >> 32); s < len(olds) && olds[s] > 0 {
			olds[s]--
			news[s]++
		}
	}
	excess := total - int(min(most, uint64(total)))
	from := share(excess, olds)
	if rest := excess - sum(from); rest > 0 {
		for s, n := range share(rest, news) {
			from[s] += n
		}
	}
	for s, n := range from {
		if n == 0 {
			continue
		}
		docs, err := c.Oldest(ctx, s, n)
		if err != nil || len(docs) == 0 {
			return evicted, err
		}
		ids := make([]string, len(docs))
		for i, d := range docs {
			ids[i] = d.ID
		}
		r, err := c.Client.Delete(ctx, ids, &client.WriteOptions{If: map[int]uint64{s: docs[0].Applied}})
		if r != nil {
			evicted += r.Deleted
		}
		if err != nil {
			return evicted, err
		}
	}
	return evicted, nil
}

func sum(all []int) (n int) {
	for _, x := range all {
		n += x
	}
	return n
}

// share takes n from what there is, from each the same part, and all of it where there is
// less.
func share(n int, there []int) []int {
	total := sum(there)
	n = min(n, total)
	out := make([]int, len(there))
	if total == 0 {
		return out
	}
	order := make([]int, len(there))
	for s, have := range there {
		order[s] = s
		out[s] = int(uint64(n) * uint64(have) / uint64(total))
	}
	rest := func(s int) int { return int(uint64(n) * uint64(there[s]) % uint64(total)) }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rest(b), rest(a)) })
	for i := 0; sum(out) < n; i++ {
		if s := order[i%len(order)]; out[s] < there[s] {
			out[s]++
		}
	}
	return out
}
