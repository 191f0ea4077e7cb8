package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/journal"
	"github.com/plaid-ir/plaid/storage/objects"
)

// Garbage is what a readable map says is over, first marked there with the time of the store, and deleted when
// the grace is over since; and what newer checkpoints have. The coordinator of a collection, or of what was one,
// deletes it. Nothing is deleted because something could not be read or was not there.

// buildGrace is how long a bulk build may take. No log of the collection is cut meanwhile.
const buildGrace = 7 * 24 * time.Hour

// leftoversEvery is how often what interrupted puts have left is looked for, and putGrace how long a put may take.
const (
	leftoversEvery = 6 * time.Hour
	putGrace       = 24 * time.Hour
)

// tidy removes what is not needed of collections of which this node is the coordinator.
func (c *Cluster) tidy(ctx context.Context, now time.Time) {
	c.mu.Lock()
	var due []*Map
	for _, m := range c.maps {
		if m.fault == nil && now.Sub(c.tidied[m.ID]) >= c.c.Grace/2 && coordinator(c.nodes, m.ID) == c.node {
			due = append(due, m)
			c.tidied[m.ID] = now
		}
	}
	first := len(c.nodes) > 0 && c.nodes[0] == c.node && now.Sub(c.swept) >= min(leftoversEvery, 6*c.c.Grace)
	if first {
		c.swept = now
	}
	c.mu.Unlock()
	for _, m := range due {
		err := (&collector{c.c.Store, c.c.Grace, c.storeTime()}).collect(ctx, m.Name)
		if err != nil && ctx.Err() == nil {
			c.log.Warn("what is not needed of a collection stays for now", "collection", m.Name, "error", err)
		}
	}
	if first {
		now := c.storeTime()
		_, err := c.c.Store.RemoveLeftovers(ctx, now.Add(-max(c.c.Grace, putGrace)))
		err = errors.Join(err, removeBeats(ctx, c.c.Store, now.Add(-c.c.Grace)))
		if err != nil && ctx.Err() == nil {
			c.log.Warn("what interrupted puts have left stays for now", "error", err)
		}
	}
}

// removeBeats removes those of nodes that ended long ago: one that lives makes its again.
func removeBeats(ctx context.Context, s objects.Store, before time.Time) error {
	return eachObject(ctx, s, nodesPrefix, func(e objects.Entry) error {
		if !e.Made.Before(before) {
			return nil
		}
		return s.Delete(ctx, e.Name)
	})
}

// collector removes what is not needed. now is not after the time of the store.
type collector struct {
	store objects.Store
	grace time.Duration
	now   time.Time
}

func (k *collector) over(since time.Time) bool { return !since.IsZero() && k.now.Sub(since) > k.grace }

// collect removes what is not needed of a collection.
func (k *collector) collect(ctx context.Context, name string) error {
	m, err := newestMap(ctx, k.store, name)
	if errors.Is(err, collection.ErrUnknown) || unreadable(err) {
		return nil // which says nothing
	}
	if err != nil {
		return err
	}
	if m, err = k.mark(ctx, m); err != nil {
		return err
	}
	var gone []string
	for _, g := range m.Gone {
		if k.over(g.Since) {
			if err := k.deleteAll(ctx, dataOf(g.ID), func(string) bool { return true }); err != nil {
				return err
			}
			gone = append(gone, g.ID)
		}
	}
	var retired []uint64
	for _, r := range m.Retired {
		if k.over(r.Since) {
			retired = append(retired, r.Generation)
		}
	}
	if len(retired) > 0 {
		if err := k.deleteGenerations(ctx, m, retired); err != nil {
			return err
		}
	}
	if len(gone)+len(retired) > 0 {
		_, err := k.update(ctx, m, func(m *Map) {
			m.Gone = slices.DeleteFunc(m.Gone, func(g Gone) bool { return slices.Contains(gone, g.ID) })
			m.Retired = slices.DeleteFunc(m.Retired, func(r Retired) bool { return slices.Contains(retired, r.Generation) })
		})
		if err != nil {
			return err
		}
	}
	if err := k.cut(ctx, m); err != nil {
		return err
	}
	return k.oldVersions(ctx, name)
}

// update is updateMap of a map that may say that the collection was removed. It is not tried again.
func (k *collector) update(ctx context.Context, m *Map, change func(*Map)) (*Map, error) {
	next := m.clone()
	change(next)
	next.Version++
	if err := putMap(ctx, k.store, next); errors.Is(err, errTaken) {
		return nil, fmt.Errorf("%s: %w", m.Name, ErrConflict)
	} else if err != nil {
		return nil, err
	}
	return next, nil
}

// mark notes since when what is over has been so, and gives up a bulk build that has not ended.
func (k *collector) mark(ctx context.Context, m *Map) (*Map, error) {
	change := func(m *Map) (changed bool) {
		since := func(t *time.Time) {
			if t.IsZero() {
				*t, changed = k.now.UTC(), true
			}
		}
		for i := range m.Gone {
			if m.Gone[i].Shards == 0 { // what is put before a seal is not garbage yet
				since(&m.Gone[i].Since)
			}
		}
		for i := range m.Retired {
			since(&m.Retired[i].Since)
		}
		if m.Building != nil {
			if since(&m.Building.Since); k.now.Sub(m.Building.Since) > buildGrace {
				m.retire(m.Building.Generation)
				since(&m.Retired[len(m.Retired)-1].Since)
				m.Building = nil
			}
		}
		return changed
	}
	if k.now.IsZero() || !change(m.clone()) {
		return m, nil
	}
	return k.update(ctx, m, func(m *Map) { change(m) })
}

// deleteAll deletes the objects below a prefix that are chosen by their name.
func (k *collector) deleteAll(ctx context.Context, prefix string, chosen func(name string) bool) error {
	return eachObject(ctx, k.store, prefix, func(e objects.Entry) error {
		if !chosen(e.Name) {
			return nil
		}
		return k.store.Delete(ctx, e.Name)
	})
}

func (k *collector) deleteGenerations(ctx context.Context, m *Map, numbers []uint64) error {
	err := k.deleteAll(ctx, dataOf(m.ID)+"files/", func(name string) bool {
		p, ok := journal.ParseCheckpoint(objects.Entry{Name: name})
		return ok && slices.Contains(numbers, p.Generation)
	})
	for _, n := range numbers {
		err = errors.Join(err, k.store.Delete(ctx, codecName(m.ID, n)))
	}
	return err
}

// cut removes entries and checkpoints that newer checkpoints have, by the rule of package journal.
func (k *collector) cut(ctx context.Context, m *Map) error {
	if m.Removed || m.Current == nil {
		return nil
	}
	generations := []uint64{m.Current.Number}
	if m.Next != nil {
		generations = append(generations, m.Next.Number)
	}
	shards := map[int][]journal.Checkpoint{}
	err := eachObject(ctx, k.store, dataOf(m.ID)+"files/", func(e objects.Entry) error {
		if s, ok := shardOfFile(m, e.Name); ok {
			if p, ok := journal.ParseCheckpoint(e); ok {
				shards[s] = append(shards[s], p)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for s, all := range shards {
		before, drop := journal.Unneeded(all, generations, k.now, k.grace)
		for _, p := range drop {
			if err := k.store.Delete(ctx, p.Name); err != nil {
				return err
			}
		}
		if before > 0 && m.Building == nil { // which goes on with the log as it was
			if _, err := journal.New(k.store, m.ID, s, journal.Options{Grace: k.grace}).Cut(ctx, before); err != nil {
				return err
			}
		}
	}
	return nil
}

// oldVersions removes versions of a map that were superseded more than a grace ago, the oldest first and never the
// newest: whoever puts a version relies on that.
func (k *collector) oldVersions(ctx context.Context, name string) error {
	listed, err := k.store.List(ctx, mapsOf(name), "", 0)
	if err != nil {
		return err
	}
	listed = slices.DeleteFunc(listed, func(e objects.Entry) bool {
		of, _, ok := mapVersion(e.Name)
		return !ok || of != name
	})
	slices.SortFunc(listed, func(a, b objects.Entry) int { return strings.Compare(a.Name, b.Name) })
	for i := 0; i+1 < len(listed) && k.over(listed[i+1].Made); i++ {
		if err := k.store.Delete(ctx, listed[i].Name); err != nil {
			return err
		}
	}
	return nil
}
