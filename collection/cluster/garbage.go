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

// Garbage is objects that a map lists as retired, and entries and checkpoints that newer checkpoints replace. The
// collector first notes the time in the map, by the clock of the store, and deletes the objects after the grace. The
// coordinator of a collection does this, also for a removed collection. No object is ever deleted because another one
// is missing or cannot be read (I8: nothing goes because something is missing).

const (
	// buildGrace is how long a bulk build may take. No log of its collection is cut until then.
	buildGrace = 7 * 24 * time.Hour
	// leftoversInterval is how often the first node removes the remains of interrupted puts and old beats of nodes.
	// putGrace is how long a put may take.
	leftoversInterval = 6 * time.Hour
	putGrace          = 24 * time.Hour
	// collectionsAtOnce limits the collections that are collected concurrently, and shardsAtOnce the shards of each.
	collectionsAtOnce, shardsAtOnce = 8, 16
)

// garbageCollect collects the garbage of the collections that this node coordinates.
func (c *Cluster) garbageCollect(ctx context.Context) {
	warn := func(err error, message string, attributes ...any) {
		if err != nil && ctx.Err() == nil {
			c.log.Warn(message, append(attributes, "error", err)...)
		}
	}
	// Collect the collections that are due.
	var coordinated []*Map
	c.mu.Lock()
	for _, m := range c.maps {
		if m.readErr == nil && coordinator(c.nodes, m.ID) == c.node {
			coordinated = append(coordinated, m)
		}
	}
	first := c.nodes[0] == c.node
	c.mu.Unlock()
	due := slices.DeleteFunc(coordinated, func(m *Map) bool { return !c.claimIfDue("garbage of "+m.ID, c.cfg.Grace/2) })
	_ = parallel.Do(ctx, len(due), collectionsAtOnce, func(i int) error {
		err := (&collector{c.cfg.Store, c.cfg.Grace, c.storeTime()}).collect(ctx, due[i].Name)
		warn(err, "the garbage of a collection was not collected", "collection", due[i].Name)
		return nil
	})
	// The first node removes leftovers that belong to no collection.
	if first && c.claimIfDue("leftovers", min(leftoversInterval, 6*c.cfg.Grace)) {
		now := c.storeTime()
		_, err := c.cfg.Store.RemoveLeftovers(ctx, now.Add(-max(c.cfg.Grace, putGrace)))
		err = errors.Join(err, removeOldBeats(ctx, c.cfg.Store, now.Add(-c.cfg.Grace)))
		warn(err, "leftovers in the store were not removed")
	}
}

// removeOldBeats removes the beats of nodes that ended before a time. A living node replaces its own beat anyway.
func removeOldBeats(ctx context.Context, s objects.Store, before time.Time) error {
	return deleteEach(ctx, s, nodesPrefix, func(e objects.Entry) bool { return e.Made.Before(before) })
}

// deleteEach deletes the objects below a prefix for which isSelected returns true.
func deleteEach(ctx context.Context, s objects.Store, prefix string, isSelected func(objects.Entry) bool) error {
	return eachObject(ctx, s, prefix, func(e objects.Entry) error {
		if !isSelected(e) {
			return nil
		}
		return s.Delete(ctx, e.Name)
	})
}

// collector collects garbage. now is not later than the time of the store.
type collector struct {
	store objects.Store
	grace time.Duration
	now   time.Time
}

// isGraceOver reports whether more than the grace has passed since a time; the zero time means that it is not known.
func (k *collector) isGraceOver(since time.Time) bool {
	return !since.IsZero() && k.now.Sub(since) > k.grace
}

// collect collects the garbage of a collection, which may have been removed.
func (k *collector) collect(ctx context.Context, name string) error {
	// Note the time of newly retired entries.
	m, err := updateMapOrRemoved(ctx, k.store, name, func(m *Map) error {
		if k.now.IsZero() || !k.markRetired(m) {
			return errUnchanged
		}
		return nil
	})
	if errors.Is(err, collection.ErrUnknown) || unreadable(err) {
		return nil // without a readable map nothing may be deleted (I8)
	}
	if err != nil {
		return err
	}
	// Delete retired objects whose grace is over, and then their entries in the map.
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
	// Delete what newer checkpoints and newer maps replace.
	if err := k.cutLogs(ctx, m); err != nil {
		return err
	}
	return k.deleteOldVersions(ctx, name)
}

// markRetired notes the time in newly retired entries of a map, and gives up a bulk build that has taken too long. It
// reports whether the map has changed.
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
		if m.Retired[i].Shards == 0 { // otherwise its logs still take entries
			since(&m.Retired[i].Since)
		}
	}
	return changed
}

// deleteRetired deletes the objects of a retired generation or collection.
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

// cutLogs deletes the entries and checkpoints that newer checkpoints replace; [journal.SelectRemovable] decides which.
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
	// The entries of a shard are deleted one after the other, in their order. Shards are cut concurrently, because a
	// log could otherwise grow faster than it is cut.
	numbers := sortedKeys(shards)
	return parallel.Do(ctx, len(numbers), shardsAtOnce, func(i int) error {
		shard := numbers[i]
		before, removable := journal.SelectRemovable(shards[shard], generations, k.now, k.grace)
		for _, p := range removable {
			if err := k.store.Delete(ctx, p.Name); err != nil {
				return err
			}
		}
		if before == 0 || m.Building != nil { // a bulk build needs the log from its beginning on
			return nil
		}
		_, err := journal.New(k.store, m.ID, shard, journal.Options{Grace: k.grace}).Cut(ctx, before)
		return err
	})
}

// deleteOldVersions deletes versions of a map that were replaced more than a grace ago: the oldest first, and never the
// newest, which putMap relies on.
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
