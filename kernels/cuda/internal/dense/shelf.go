package dense

import (
	"container/list"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
)

// shelf keeps plans of calls, by what their shapes decide, with their tables in the device's
// memory. Those that were not used for longest go first, but for those that a captured stream
// knows the addresses of.
type shelf struct {
	plans map[any]*list.Element
	order list.List // of *shelved, the last used in front
	bytes int64
}

// Bounds of what a shelf keeps.
const (
	shelfBytes = 64 << 20
	shelfPlans = 1024
)

type shelved struct {
	key    any // comparable
	plan   any
	mem    driver.Mem
	pinned bool // a captured stream knows the tables
	fresh  bool // no call that may free others has come since
}

// find returns the plan of a key, nil if there is none.
func (s *shelf) find(key any) *shelved {
	e, ok := s.plans[key]
	if !ok {
		return nil
	}
	s.order.MoveToFront(e)
	return e.Value.(*shelved)
}

// put keeps a plan.
func (s *shelf) put(key, plan any) *shelved {
	if s.plans == nil {
		s.plans = map[any]*list.Element{}
	}
	x := &shelved{key: key, plan: plan, fresh: true}
	s.plans[key] = s.order.PushFront(x)
	return x
}

// fill brings the tables of a plan to the device. What is bound to be used by streams in the
// order of the driver's calls may be used at once.
func (d *Device) fill(x *shelved, tables []byte) error {
	c := d.rt.Driver
	return c.Relaxed(func() error {
		mem, err := c.Alloc(int64(len(tables)))
		if err != nil {
			return err
		}
		if err = c.ToDevice(mem.Ptr, tables, d.aside); err == nil {
			err = c.Sync(d.aside)
		}
		if err != nil {
			_ = c.Free(mem)
			return err
		}
		x.mem = mem
		d.shelf.bytes += mem.Bytes
		return nil
	})
}

// tidy forgets plans that were not used for long, while there are too many.
func (d *Device) tidy() {
	s := &d.shelf
	for e := s.order.Back(); e != nil && (s.bytes > shelfBytes || len(s.plans) > shelfPlans); {
		x, before := e.Value.(*shelved), e.Prev()
		if !x.pinned && before != nil { // never the one in hand
			s.drop(d.rt.Driver, e)
		}
		e = before
	}
}

// drop frees a plan. The driver waits for what uses its tables.
func (s *shelf) drop(c *driver.Context, e *list.Element) {
	x := e.Value.(*shelved)
	_ = c.Relaxed(func() error { return c.Free(x.mem) })
	s.bytes -= x.mem.Bytes
	s.order.Remove(e)
	delete(s.plans, x.key)
}

func (s *shelf) clear(c *driver.Context) {
	for e := s.order.Front(); e != nil; e = s.order.Front() {
		s.drop(c, e)
	}
}
