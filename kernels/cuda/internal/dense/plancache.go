package dense

import (
	"container/list"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
)

// planCache keeps the plans of calls, by the shapes that they depend on, with their tables in device
// memory. It evicts the least recently used ones, except those whose addresses a captured
// stream has.
type planCache struct {
	scores   map[scoreKey]*cachedPlan
	chamfers map[chamferShape]*cachedPlan
	order    list.List // of *cachedPlan, the last used in front
	bytes    int64     // of tables
}

// Bounds of a planCache.
const (
	maxPlanBytes = 64 << 20
	maxPlans     = 1024
)

// cachedPlan is a plan of scores or of distances, with its tables.
type cachedPlan struct {
	element  *list.Element
	forget   func()
	score    *scorePlan   // or chamfer
	chamfer  *chamferPlan // has no tables
	mem      driver.Mem   // tables; empty until they are filled
	pinned   bool         // a captured stream has the address of mem
	mayEvict bool         // eviction is due: no call since the plan was added could evict others
}

// findPlan returns the plan of a key, and marks it as used, or nil if the cache does not have it.
func findPlan[K comparable](s *planCache, plans map[K]*cachedPlan, key K) *cachedPlan {
	x := plans[key]
	if x != nil {
		s.order.MoveToFront(x.element)
	}
	return x
}

// keepPlan adds a plan to the cache.
func keepPlan[K comparable](s *planCache, plans *map[K]*cachedPlan, key K, x *cachedPlan) *cachedPlan {
	if *plans == nil {
		*plans = map[K]*cachedPlan{}
	}
	(*plans)[key] = x
	x.element, x.forget, x.mayEvict = s.order.PushFront(x), func() { delete(*plans, key) }, true
	return x
}

// uploadTables copies the tables of a plan to the device, and waits for the copy.
func (s *planCache) uploadTables(c *driver.Context, stream driver.Stream, x *cachedPlan, tables []byte) error {
	return c.Relaxed(func() error {
		mem, err := c.Alloc(int64(len(tables)))
		if err != nil {
			return err
		}
		if err = c.ToDevice(mem.Ptr, tables, stream); err == nil {
			err = c.Sync(stream)
		}
		if err != nil { // the next call tries it again
			_ = c.Free(mem)
			return err
		}
		x.mem = mem
		s.bytes += mem.Bytes
		return nil
	})
}

// evictOld evicts the least recently used plans until the bounds hold. The one last used stays.
func (s *planCache) evictOld(c *driver.Context) {
	for e := s.order.Back(); e != nil && (s.bytes > maxPlanBytes || s.order.Len() > maxPlans); {
		previous := e.Prev()
		if !e.Value.(*cachedPlan).pinned && previous != nil {
			s.freePlan(c, e)
		}
		e = previous
	}
}

// freePlan removes a plan and frees its tables. The driver waits for work that uses them.
func (s *planCache) freePlan(c *driver.Context, e *list.Element) {
	x := e.Value.(*cachedPlan)
	_ = c.Relaxed(func() error { return c.Free(x.mem) })
	s.bytes -= x.mem.Bytes
	s.order.Remove(e)
	x.forget()
}

// freeAll removes all plans.
func (s *planCache) freeAll(c *driver.Context) {
	for e := s.order.Front(); e != nil; e = s.order.Front() {
		s.freePlan(c, e)
	}
}
