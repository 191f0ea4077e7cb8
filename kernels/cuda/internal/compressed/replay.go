package compressed

import (
	"unsafe"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
)

// replay is the work of a search of one query, kept as a graph: one call of the
// driver does all of it again for the next query of the same shape, which is in the
// same memory.
type replay struct {
	key   replayKey
	graph driver.Graph
	off   bool // the driver makes no graph of it
}

// replayKey is all that the work depends on, but for what is in memory.
type replayKey struct {
	in                           inLayout
	out                          outLayout
	tmp                          tmpLayout
	zeroed, size                 int64
	t                            target
	groups, k, room              int
	slack, deviations            float32
	words, codec                 driver.Ptr
	memIn, memOut, scratch, zero driver.Mem
	hostIn, hostOut              *byte
}

// keyOf is the key of a batch that copies size bytes to the device.
func (b *batch) keyOf(t target, size int64) replayKey {
	w := &b.rt.Work
	return replayKey{
		in: b.in, out: b.out, tmp: b.tmp, zeroed: b.zeroed, size: size, t: t, groups: b.groups, k: b.k, room: b.room,
		slack: b.slack, deviations: b.deviations, words: t.p.words.Ptr, codec: b.attachment.codec.Ptr,
		memIn: w.In, memOut: w.Out, scratch: w.Scratch, zero: w.Zeroed,
		hostIn: unsafe.SliceData(w.HostIn), hostOut: unsafe.SliceData(w.HostOut),
	}
}

// once gives the device the work of a batch: as a graph, where the batch before was
// one of the same key, whose launches the driver knows already.
func (b *batch) once(key replayKey, work func() error) error {
	r, c, st := &b.attachment.replay, b.rt.Driver, b.rt.Stream
	if b.queries > 1 || r.off {
		return work()
	}
	if r.key != key {
		err := c.FreeGraph(r.graph)
		*r = replay{key: key}
		if err != nil {
			return err
		}
		return work()
	}
	if r.graph == (driver.Graph{}) {
		var err error
		if r.graph, err = c.Capture(st, work); err != nil {
			r.off = true
			return work() // what is really wrong is wrong here too
		}
	}
	return c.LaunchGraph(r.graph, st)
}
