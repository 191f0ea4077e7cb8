package runtime

import (
	"fmt"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
)

// staging has the double buffer of large uploads: one piece is copied while the device
// processes the previous one.
type staging struct {
	host     [2]driver.HostMem // page-locked
	device   [2]driver.Mem
	copied   [2]driver.Event // the piece is on the device, and host may be written
	released [2]driver.Event // Stream does not read the piece on the device any more
	next     int             // the buffer of the next piece
}

// Staged is a piece that is being copied to the device.
type Staged struct {
	Raw  driver.Ptr // its address on the device
	slot int
}

// ReserveStaging makes the buffers at least bytes long.
func (rt *Runtime) ReserveStaging(bytes int64) (err error) {
	a, c := &rt.staging, rt.Driver
	for i := range a.host {
		if a.copied[i] == (driver.Event{}) {
			if a.copied[i], err = c.NewEvent(); err != nil {
				return err
			}
		}
		if a.released[i] == (driver.Event{}) {
			if a.released[i], err = c.NewEvent(); err != nil {
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
		if a.device[i].Bytes < bytes {
			_ = c.Free(a.device[i])
			a.device[i] = driver.Mem{}
			if a.device[i], err = c.Alloc(bytes); err != nil {
				return fmt.Errorf("staging: %w", err)
			}
		}
	}
	return nil
}

// Stage copies a piece of a number of bytes, which fill writes, to the device. Later work
// in Stream waits for the copy. Call Unstage after the last work that reads the piece.
func (rt *Runtime) Stage(bytes int64, fill func(host []byte) error) (Staged, error) {
	a, c := &rt.staging, rt.Driver
	if err := rt.ReserveStaging(bytes); err != nil {
		return Staged{}, err
	}
	i := a.next
	a.next ^= 1
	st := Staged{slot: i, Raw: a.device[i].Ptr}
	host := a.host[i].Data[:bytes]
	if err := c.SyncEvent(a.copied[i]); err != nil { // the copy before last has left the host's memory
		return st, err
	}
	if err := fill(host); err != nil {
		return st, err
	}
	if err := c.Wait(rt.Copies, a.released[i]); err != nil {
		return st, err
	}
	if err := c.ToDevice(st.Raw, host, rt.Copies); err != nil {
		return st, err
	}
	if err := c.Record(a.copied[i], rt.Copies); err != nil {
		return st, err
	}
	return st, c.Wait(rt.Stream, a.copied[i])
}

// Unstage makes the memory of a piece available again once Stream has done the work that it
// has received so far.
func (rt *Runtime) Unstage(st Staged) error {
	return rt.Driver.Record(rt.staging.released[st.slot], rt.Stream)
}

// freeBuffers frees the memory and the events.
func (a *staging) freeBuffers(c *driver.Context) {
	for i := range a.host {
		_ = c.HostFree(a.host[i])
		_ = c.Free(a.device[i])
		_ = c.FreeEvent(a.copied[i])
		_ = c.FreeEvent(a.released[i])
	}
	*a = staging{}
}
