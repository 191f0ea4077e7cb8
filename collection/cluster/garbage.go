package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/journal"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/storage/objects"
)

// Garbage are the objects that a readable map retires, and those that newer checkpoints replace. The first are marked
// in the map with the time of the store, and deleted a grace later. The coordinator of a collection, or of one that
// was removed, deletes them. No object is deleted because another could not be read or was not there (I8).

const (
	// buildGrace is how long a bulk build may take. No log of the collection is cut meanwhile.
	buildGrace = 7 * 24 * time.Hour
	// leftoversInterval is how often the first node removes the remains of interrupted puts and of nodes, and putGrace
	// how long a put may take.
	leftoversInterval = 6 * time.Hour
	putGrace          = 24 * time.Hour
	// collectionsAtOnce is the number of collections that are tidied at a time, and cutting that of shards of each.
	collectionsAtOnce, shardsAtOnce = 8, 16
)

// garbageCollect removes the garbage of the collections that this node coordinates.
func (c *Cluster) garbageCollect(ctx context.Context) {
	warn := func(err error, what string, with ...any) {
		if err != nil && ctx.Err() == nil {
			c.log.Warn(what, append(with, "error", err)...)
		}
	}
	var coordinated []*Map
	c.mu.Lock()
	for _, m := range c.maps {
		if m.readErr == nil && coordinator(c.nodes, m.ID) == c.node {
			coordinated = append(coordinated, m)
		}
	}
	first := c.nodes[0] == c.node
	c.mu.Unlock()
	due := slices.DeleteFunc(coordinated, func(m *Map) bool { return !c.isDue("tidying "+m.ID, c.cfg.Grace/2) })
	_ = parallel.Do(ctx, len(due), collectionsAtOnce, func(i int) error {
		err := (&collector{c.cfg.Store, c.cfg.Grace, c.storeTime()}).collect(ctx, due[i].Name)
		warn(err, "the garbage of a collection stays for now", "collection", due[i].Name)
		return nil
	})
	if first && c.isDue("leftovers", min(leftoversInterval, 6*c.cfg.Grace)) {
		now := c.storeTime()
		_, err := c.cfg.Store.RemoveLeftovers(ctx, now.Add(-max(c.cfg.Grace, putGrace)))
		warn(errors.Join(err, removeOldBeats(ctx, c.cfg.Store, now.Add(-c.cfg.Grace))), "leftovers in the store stay for now")
	}
}

// removeOldBeats removes those of nodes that ended long ago: a node that lives makes its own again.
func removeOldBeats(ctx context.Context, s objects.Store, before time.Time) error {
	return deleteEach(ctx, s, nodesPrefix, func(e objects.Entry) bool { return e.Made.Before(before) })
}

// deleteEach deletes the chosen objects below a prefix.
func deleteEach(ctx context.Context, s objects.Store, prefix string, chosen func(objects.Entry) bool) error {
	return eachObject(ctx, s, prefix, func(e objects.Entry) error {
		if !chosen(e) {
			return nil
		}
		return s.Delete(ctx, e.Name)
	})
}

// collector removes garbage. now is not after the time of the store.
type collector struct {
	store objects.Store
	grace time.Duration
	now   time.Time
}

func (k *collector) isGraceOver(since time.Time) bool {
	return !since.IsZero() && k.now.Sub(since) > k.grace
}

// collect removes the garbage of a collection, or of one that was removed.
func (k *collector) collect(ctx context.Context, name string) error {
	m, err := updateMapOrRemoved(ctx, k.store, name, func(m *Map) error {
		if k.now.IsZero() || !k.markRetired(m) {
			return errUnchanged
		}
		return nil
	})
	if errors.Is(err, collection.ErrUnknown) || unreadable(err) {
		return nil // which says nothing
	}
	if err != nil {
		return err
	}
	var deleted []Retired
	for _, r := range m.Retired {
		if k.isGraceOver(r.Since) {
			if err := k.deleteRetired(ctx, r); err != nil {
				return err
			}
			deleted = append(deleted, r)
		}
	}
	if len(deleted) > 0 {
		m, err = updateMapOrRemoved(ctx, k.store, name, func(m *Map) error {
			m.Retired = slices.DeleteFunc(m.Retired, func(r Retired) bool { return slices.Contains(deleted, r) })
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := k.cutLogs(ctx, m); err != nil {
		return err
	}
	return k.deleteOldVersions(ctx, name)
}

// markRetired notes the time in newly retired entries, and gives up a bulk build that has not ended. It reports whether
// the map has changed.
func (k *collector) markRetired(m *Map) (changed bool) {
	since := func(t *time.Time) {
		if t.IsZero() {
			*t, changed = k.now.UTC(), true
		}
	}
	if m.Building != nil {
		if since(&m.Building.Since); k.now.Sub(m.Building.Since) > buildGrace {
			m.release(&m.Building)
		}
	}
	for i := range m.Retired {
		if m.Retired[i].Shards == 0 { // its logs still take entries
			since(&m.Retired[i].Since)
		}
	}
	return changed
}

func (k *collector) deleteRetired(ctx context.Context, r Retired) error {
	if r.Generation == 0 {
		return deleteEach(ctx, k.store, dataPrefix(r.ID), func(objects.Entry) bool { return true })
	}
	err := deleteEach(ctx, k.store, dataPrefix(r.ID)+"files/", func(e objects.Entry) bool {
		p, ok := journal.ParseCheckpoint(e)
		return ok && p.Generation == r.Generation
	})
	return errors.Join(err, k.store.Delete(ctx, codecObject(r.ID, r.Generation)))
}

// cutLogs removes entries and checkpoints that newer checkpoints have, by the rule of package journal.
func (k *collector) cutLogs(ctx context.Context, m *Map) error {
	if m.Removed || m.Current == nil {
		return nil
	}
	var generations []uint64
	for _, g := range m.generations() {
		generations = append(generations, g.Number)
	}
	shards, err := listCheckpoints(ctx, k.store, m)
	if err != nil {
		return err
	}
	// Entries of a shard go one after another, as they came. Shards go at a time: a log would grow faster than it
	// is cut otherwise.
	numbers := sortedKeys(shards)
	return parallel.Do(ctx, len(numbers), shardsAtOnce, func(i int) error {
		shard := numbers[i]
		before, drop := journal.Unneeded(shards[shard], generations, k.now, k.grace)
		for _, p := range drop {
			if err := k.store.Delete(ctx, p.Name); err != nil {
				return err
			}
		}
		if before == 0 || m.Building != nil { // which goes on with the log as it was
			return nil
		}
		_, err := journal.New(k.store, m.ID, shard, journal.Options{Grace: k.grace}).Cut(ctx, before)
		return err
	})
}

// deleteOldVersions removes versions of a map that were superseded more than a grace ago, the oldest first and never the
// newest: putMap relies on that.
func (k *collector) deleteOldVersions(ctx context.Context, name string) error {
	listed, err := k.store.List(ctx, versionsPrefix(name), "", 0)
	if err != nil {
		return err
	}
	listed = slices.DeleteFunc(listed, func(e objects.Entry) bool {
		other, _, ok := parseVersionObject(e.Name)
		return !ok || other != name
	})
	for i := 0; i+1 < len(listed) && k.isGraceOver(listed[i+1].Made); i++ {
		if err := k.store.Delete(ctx, listed[i].Name); err != nil {
			return err
		}
	}
	return nil
}
