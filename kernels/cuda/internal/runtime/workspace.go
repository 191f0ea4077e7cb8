package runtime

import (
	"fmt"
	"unsafe"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
)

// Workspace is the memory of the current batch. It grows when a batch needs more, and is
// kept as long as the device has an owner of memory.
type Workspace struct {
	HostIn, HostOut  []byte // page-locked, for copies to In and from Out
	In, Out, Scratch driver.Mem
	// Zeroed is all zeros before each launch; kernels leave it so.
	Zeroed driver.Mem

	rt                  *Runtime
	lockedIn, lockedOut driver.HostMem
}

// WorkspaceSizes are the sizes of the parts of a workspace that a batch needs, in bytes.
type WorkspaceSizes struct{ In, Out, Scratch, Zeroed int64 }

// Reserve makes each part at least as large as sizes. The device must not have unfinished work
// that uses the workspace.
func (w *Workspace) Reserve(sizes WorkspaceSizes) (err error) {
	c := w.rt.Driver
	for _, m := range []struct {
		mem   *driver.Mem
		bytes int64
		zero  bool
	}{
		{mem: &w.In, bytes: sizes.In},
		{mem: &w.Out, bytes: sizes.Out},
		{mem: &w.Scratch, bytes: sizes.Scratch},
		{mem: &w.Zeroed, bytes: sizes.Zeroed, zero: true},
	} {
		if m.mem.Bytes >= m.bytes {
			continue
		}
		grown := max(m.bytes, min(m.mem.Bytes*3/2, m.bytes+64<<20))
		if err := c.Free(*m.mem); err != nil {
			return err
		}
		*m.mem = driver.Mem{}
		if *m.mem, err = c.Alloc(grown); err != nil {
			return fmt.Errorf("workspace: %w", err)
		}
		if m.zero {
			if err := c.Set(m.mem.Ptr, 0, grown, w.rt.Stream); err != nil {
				return err
			}
		}
	}
	for _, m := range []struct {
		mem   *driver.HostMem
		data  *[]byte
		bytes int64
	}{{&w.lockedIn, &w.HostIn, sizes.In}, {&w.lockedOut, &w.HostOut, sizes.Out}} {
		if int64(len(m.mem.Data)) >= m.bytes {
			continue
		}
		if err := c.HostFree(*m.mem); err != nil {
			return err
		}
		*m.mem, *m.data = driver.HostMem{}, nil
		if *m.mem, err = c.HostAlloc(m.bytes * 3 / 2); err != nil {
			return fmt.Errorf("workspace: %w", err)
		}
		*m.data = m.mem.Data
	}
	return nil
}

// HostInPtr and HostOutPtr return the device addresses of bytes of HostIn and HostOut.
// Page-locked memory has the same address on the device and on the host.
func (w *Workspace) HostInPtr(offset int64) driver.Ptr  { return hostPtr(w.HostIn, offset) }
func (w *Workspace) HostOutPtr(offset int64) driver.Ptr { return hostPtr(w.HostOut, offset) }

// hostPtr returns the device address of a byte of page-locked memory.
func hostPtr(b []byte, offset int64) driver.Ptr {
	return driver.Ptr(uintptr(unsafe.Pointer(&b[offset])))
}

// Release frees the workspace. The device must not have unfinished work that uses it.
func (w *Workspace) Release() {
	for _, m := range []*driver.Mem{&w.In, &w.Out, &w.Scratch, &w.Zeroed} {
		_ = w.rt.Driver.Free(*m)
		*m = driver.Mem{}
	}
	for _, m := range []*driver.HostMem{&w.lockedIn, &w.lockedOut} {
		_ = w.rt.Driver.HostFree(*m)
		*m = driver.HostMem{}
	}
	w.HostIn, w.HostOut = nil, nil
}
