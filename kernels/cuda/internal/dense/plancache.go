package dense

import (
	"container/list"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
)

// planCache keeps plans of calls, by the shapes that decide them, with their tables in the
// device's memory. The least recently used go first, except those whose addresses a captured
// stream has.
type planCache struct {
	plans map[any]*list.Element
	order list.List // of *cachedPlan, the last used in front
	bytes int64     // of tables
}

// Bounds of a planCache.
const (
	mostPlanBytes = 64 << 20
	mostPlans     = 1024
)

// cachedPlan is a plan with its tables.
type cachedPlan struct {
	key    any // comparable
	plan   any
	mem    driver.Mem // tables; empty until they are filled
	pinned bool       // a captured stream has the address of mem
}

// find returns the plan of a key; nil means that there is none.
func (s *planCache) find(key any) *cachedPlan {
	e, ok := s.plans[key]
	if !ok {
		return nil
	}
	s.order.MoveToFront(e)
	return e.Value.(*cachedPlan)
}

// put keeps a plan.
func (s *planCache) put(key, plan any) *cachedPlan {
	if s.plans == nil {
		s.plans = map[any]*list.Element{}
	}
	x := &cachedPlan{key: key, plan: plan}
	s.plans[key] = s.order.PushFront(x)
	return x
}

// fill copies the tables of a plan to the device, and waits for the copy.
func (s *planCache) fill(c *driver.Context, aside driver.Stream, x *cachedPlan, tables []byte) error {
	return c.Relaxed(func() (err error) {
		if x.mem, err = c.Alloc(int64(len(tables))); err != nil {
			return err
		}
		s.bytes += x.mem.Bytes
		if err := c.ToDevice(x.mem.Ptr, tables, aside); err != nil {
			return err
		}
		return c.Sync(aside)
	})
}

// evict drops the least recently used plans while there are too many. The one last used stays.
func (s *planCache) evict(c *driver.Context) {
	for e := s.order.Back(); e != nil && (s.bytes > mostPlanBytes || len(s.plans) > mostPlans); {
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
	delete(s.plans, x.key)
}

// clear drops all plans.
func (s *planCache) clear(c *driver.Context) {
	for e := s.order.Front(); e != nil; e = s.order.Front() {
		s.drop(c, e)
	}
}
