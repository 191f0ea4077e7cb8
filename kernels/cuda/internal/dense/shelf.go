package dense

import (
	"container/list"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
)

// shelf keeps plans of calls, by what their shapes decide, with their tables in the device's
// memory. Those that were not used for longest go first, but for those that a captured stream
// knows the addresses of.
type shelf struct {
	scores   map[scoreKey]*shelved
	chamfers map[chamferShape]*shelved
	order    list.List // of *shelved, the last used in front
	bytes    int64
}

// Bounds of what a shelf keeps.
const (
	shelfBytes = 64 << 20
	shelfPlans = 1024
)

type shelved struct {
	place   *list.Element
	forget  func()
	score   *scorePlan
	chamfer *chamferPlan
	mem     driver.Mem
	pinned  bool // a captured stream knows the tables
	fresh   bool // no call that may free others has come since
}

// find returns the plan of a key, nil if there is none.
func find[K comparable](s *shelf, plans map[K]*shelved, key K) *shelved {
	x := plans[key]
	if x != nil {
		s.order.MoveToFront(x.place)
	}
	return x
}

// keep keeps a plan.
func keep[K comparable](s *shelf, plans *map[K]*shelved, key K, x *shelved) *shelved {
	if *plans == nil {
		*plans = map[K]*shelved{}
	}
	(*plans)[key] = x
	x.place, x.forget, x.fresh = s.order.PushFront(x), func() { delete(*plans, key) }, true
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
		if err != nil { // the next call tries it again
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
	for e := s.order.Back(); e != nil && (s.bytes > shelfBytes || s.order.Len() > shelfPlans); {
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
	x.forget()
}

func (s *shelf) clear(c *driver.Context) {
	for e := s.order.Front(); e != nil; e = s.order.Front() {
		s.drop(c, e)
	}
}
