package cuda

import (
	"fmt"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/driver"
)

// Points in a batch between which time is taken.
const (
	atStart = iota
	atUploaded
	atCentroids
	atProbed
	atScanned
	atRanked
	atEnd
	events
)

// workspace is the memory of the batch at hand. It grows as batches need and is
// kept.
type workspace struct {
	stream, copy driver.Stream
	event        [events]driver.Event
	hostIn       driver.HostMem
	hostOut      driver.HostMem
	in, out      driver.Mem
	scratch      driver.Mem
	count        driver.Mem // of scans: zero between launches
}

func (w *workspace) open(c *driver.Context) (err error) {
	if w.stream, err = c.NewStream(); err != nil {
		return err
	}
	if w.copy, err = c.NewStream(); err != nil {
		return err
	}
	for i := range w.event {
		if w.event[i], err = c.NewEvent(true); err != nil {
			return err
		}
	}
	return nil
}

func (w *workspace) close(c *driver.Context) {
	w.release(c)
	for _, e := range w.event {
		_ = c.FreeEvent(e)
	}
	_ = c.FreeStream(w.copy)
	_ = c.FreeStream(w.stream)
}

// release frees the memory, not the streams.
func (w *workspace) release(c *driver.Context) {
	for _, m := range []*driver.Mem{&w.in, &w.out, &w.scratch, &w.count} {
		_ = c.Free(*m)
		*m = driver.Mem{}
	}
	for _, m := range []*driver.HostMem{&w.hostIn, &w.hostOut} {
		_ = c.HostFree(*m)
		*m = driver.HostMem{}
	}
}

// reserve makes the memory at least so large. The device must have nothing to
// do that uses it.
func (w *workspace) reserve(c *driver.Context, in, out, scratch, count int64) (err error) {
	for _, m := range []struct {
		mem   *driver.Mem
		bytes int64
		zero  bool
	}{{&w.in, in, false}, {&w.out, out, false}, {&w.scratch, scratch, false}, {&w.count, count, true}} {
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
			if err := c.Set(m.mem.Ptr, 0, grown, w.stream); err != nil {
				return err
			}
		}
	}
	for _, m := range []struct {
		mem   *driver.HostMem
		bytes int64
	}{{&w.hostIn, in}, {&w.hostOut, out}} {
		if int64(len(m.mem.Data)) >= m.bytes {
			continue
		}
		if err := c.HostFree(*m.mem); err != nil {
			return err
		}
		*m.mem = driver.HostMem{}
		if *m.mem, err = c.HostAlloc(m.bytes * 3 / 2); err != nil {
			return fmt.Errorf("workspace: %w", err)
		}
	}
	return nil
}

// assembler brings pieces to the device, one being copied while the one before
// it is worked on.
type assembler struct {
	host        [2]driver.HostMem
	raw         [2]driver.Mem
	ready, used [2]driver.Event
	slot        int
}

// reserve makes room for pieces of so many bytes.
func (a *assembler) reserve(c *driver.Context, bytes int64) (err error) {
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

func (a *assembler) free(c *driver.Context) {
	for i := range a.host {
		_ = c.HostFree(a.host[i])
		_ = c.Free(a.raw[i])
		_ = c.FreeEvent(a.ready[i])
		_ = c.FreeEvent(a.used[i])
	}
	*a = assembler{}
}

// staged is a piece on its way.
type staged struct {
	slot int
	raw  driver.Ptr
	at   stageLayout
}

// stage copies a piece to the device. What comes after on the main stream finds
// it there; release must follow the last use.
func (d *Device) stage(s *shape, from kernels.Corpus, p *piece, tile uint32) (staged, error) {
	a, c, w := &d.asm, d.ctx, &d.work
	at := s.stageLayout(p.docs, p.tokens)
	if err := a.reserve(c, at.size); err != nil {
		return staged{}, err
	}
	i := a.slot
	a.slot ^= 1
	st := staged{slot: i, raw: a.raw[i].Ptr, at: at}
	if err := c.SyncEvent(a.ready[i]); err != nil { // the copy before last has left the host's memory
		return st, err
	}
	if err := s.stage(a.host[i].Data[:at.size], at, p, from, tile); err != nil {
		return st, err
	}
	if err := c.Wait(w.copy, a.used[i]); err != nil {
		return st, err
	}
	if err := c.ToDevice(a.raw[i].Ptr, a.host[i].Data[:at.size], w.copy); err != nil {
		return st, err
	}
	if err := c.Record(a.ready[i], w.copy); err != nil {
		return st, err
	}
	return st, c.Wait(w.stream, a.ready[i])
}

func (d *Device) release(st staged) error { return d.ctx.Record(d.asm.used[st.slot], d.work.stream) }

// pack brings a staged piece into the layout of the scans, behind the documents
// that are there.
func (d *Device) pack(a *attachment, st staged, p *piece, dst *packed) error {
	k := d.kernels
	if p.tiles > 0 {
		k.args.pack = packParams{
			codes: st.raw + driver.Ptr(st.at.codes), factors: st.raw + driver.Ptr(st.at.factors), residuals: st.raw + driver.Ptr(st.at.residuals),
			offsets: st.raw + driver.Ptr(st.at.offsets), firstTile: st.raw + driver.Ptr(st.at.firstTile), centroidScale: a.array(a.at.ratio),
			words: dst.words.Ptr, rows: dst.rows.Ptr, tileDoc: dst.tileDoc.Ptr,
			docs: uint32(p.docs), docBase: uint32(dst.docs), tiles: uint32(p.tiles),
			codeBytes: uint32(a.shape.codeBytes), rowBytes: uint32(a.shape.rowBytes), laneWords: uint32(a.shape.lanes),
		}
		if err := launch(k, "pack", int(ceilDiv(p.tiles, 8)), 1, 1, 256, 0, d.work.stream, &k.args.pack); err != nil {
			return err
		}
	}
	err := d.ctx.OnDevice(dst.firstTile.At(4*dst.docs), st.raw+driver.Ptr(st.at.firstTile), 4*(p.docs+1), d.work.stream)
	if err != nil {
		return err
	}
	dst.docs += p.docs
	dst.tiles += p.tiles
	return a.shape.clearSpare(d.ctx, dst, d.work.stream)
}
