package runtime

import (
	"fmt"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
)

// staging brings pieces of a large upload to the device, one being copied while
// the one before it is worked on.
type staging struct {
	host        [2]driver.HostMem
	raw         [2]driver.Mem
	ready, used [2]driver.Event
	slot        int
}

// Staged is a piece on its way.
type Staged struct {
	Raw  driver.Ptr
	slot int
}

// ReserveStaging makes room for pieces of so many bytes.
func (rt *Runtime) ReserveStaging(bytes int64) (err error) {
	a, c := &rt.staging, rt.Driver
	for i := range a.host {
		if a.ready[i] == (driver.Event{}) {
			if a.ready[i], err = c.NewEvent(false); err != nil {
				return err
			}
		}
		if a.used[i] == (driver.Event{}) {
			if a.used[i], err = c.NewEvent(false); err != nil {
				return err
			}
		}
		if int64(len(a.host[i].Data)) < bytes {
			_ = c.HostFree(a.host[i])
			a.host[i] = driver.HostMem{}
			if a.host[i], err = c.HostAlloc(bytes); err != nil {
				return fmt.Errorf("staging: %w", err)
			}
		}
		if a.raw[i].Bytes < bytes {
			_ = c.Free(a.raw[i])
			a.raw[i] = driver.Mem{}
			if a.raw[i], err = c.Alloc(bytes); err != nil {
				return fmt.Errorf("staging: %w", err)
			}
		}
	}
	return nil
}

// Stage copies a piece of so many bytes, which fill writes, to the device. What
// comes after on Stream finds it there; Unstage must follow the last use.
func (rt *Runtime) Stage(bytes int64, fill func(host []byte) error) (Staged, error) {
	a, c := &rt.staging, rt.Driver
	if err := rt.ReserveStaging(bytes); err != nil {
		return Staged{}, err
	}
	i := a.slot
	a.slot ^= 1
	st := Staged{slot: i, Raw: a.raw[i].Ptr}
	host := a.host[i].Data[:bytes]
	if err := c.SyncEvent(a.ready[i]); err != nil { // the copy before last has left the host's memory
		return st, err
	}
	if err := fill(host); err != nil {
		return st, err
	}
	if err := c.Wait(rt.Copies, a.used[i]); err != nil {
		return st, err
	}
	if err := c.ToDevice(st.Raw, host, rt.Copies); err != nil {
		return st, err
	}
	if err := c.Record(a.ready[i], rt.Copies); err != nil {
		return st, err
	}
	return st, c.Wait(rt.Stream, a.ready[i])
}

// Unstage lets the memory of a piece be used again, after what Stream has been
// given so far.
func (rt *Runtime) Unstage(st Staged) error {
	return rt.Driver.Record(rt.staging.used[st.slot], rt.Stream)
}

func (a *staging) freeBuffers(c *driver.Context) {
	for i := range a.host {
		_ = c.HostFree(a.host[i])
		_ = c.Free(a.raw[i])
		_ = c.FreeEvent(a.ready[i])
		_ = c.FreeEvent(a.used[i])
	}
	*a = staging{}
}
