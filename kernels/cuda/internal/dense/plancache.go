package dense

import (
	"container/list"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
)

// planCache keeps plans of calls, by the shapes that decide them, with their tables in the
// device's memory. The least recently used go first, except those whose addresses a captured
// stream has.
type planCache struct {
	scores   map[scoreKey]*cachedPlan
	chamfers map[chamferShape]*cachedPlan
	order    list.List // of *cachedPlan, the last used in front
	bytes    int64     // of tables
}

// Bounds of a planCache.
const (
	mostPlanBytes = 64 << 20
	mostPlans     = 1024
)

// cachedPlan is a plan with its tables.
type cachedPlan struct {
	place   *list.Element
	forget  func()
	score   *scorePlan   // or chamfer
	chamfer *chamferPlan // has no tables
	mem     driver.Mem   // tables; empty until they are filled
	pinned  bool         // a captured stream has the address of mem
	fresh   bool         // no call that may drop others has come since
}

// find returns the plan of a key; nil means that there is none.
func find[K comparable](s *planCache, plans map[K]*cachedPlan, key K) *cachedPlan {
	x := plans[key]
	if x != nil {
		s.order.MoveToFront(x.place)
	}
	return x
}

// keep keeps a plan.
func keep[K comparable](s *planCache, plans *map[K]*cachedPlan, key K, x *cachedPlan) *cachedPlan {
	if *plans == nil {
		*plans = map[K]*cachedPlan{}
	}
	(*plans)[key] = x
	x.place, x.forget, x.fresh = s.order.PushFront(x), func() { delete(*plans, key) }, true
	return x
}

// fill copies the tables of a plan to the device, and waits for the copy.
func (s *planCache) fill(c *driver.Context, aside driver.Stream, x *cachedPlan, tables []byte) error {
	return c.Relaxed(func() error {
		mem, err := c.Alloc(int64(len(tables)))
		if err != nil {
			return err
		}
		if err = c.ToDevice(mem.Ptr, tables, aside); err == nil {
			err = c.Sync(aside)
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

// evict drops the least recently used plans while there are too many. The one last used stays.
func (s *planCache) evict(c *driver.Context) {
	for e := s.order.Back(); e != nil && (s.bytes > mostPlanBytes || s.order.Len() > mostPlans); {
		before := e.Prev()
		if !e.Value.(*cachedPlan).pinned && before != nil {
			s.drop(c, e)
		}
		e = before
	}
}

// drop frees a plan. The driver waits for work that uses its tables.
func (s *planCache) drop(c *driver.Context, e *list.Element) {
	x := e.Value.(*cachedPlan)
	_ = c.Relaxed(func() error { return c.Free(x.mem) })
	s.bytes -= x.mem.Bytes
	s.order.Remove(e)
	x.forget()
}

// clear drops all plans.
func (s *planCache) clear(c *driver.Context) {
	for e := s.order.Front(); e != nil; e = s.order.Front() {
		s.drop(c, e)
	}
}
