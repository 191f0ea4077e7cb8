package encoder

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/resident"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// maxPasses is how many full passes are asked of a device in one go: what else it is
// asked for waits for them.
const maxPasses = 4

// request is a call of Encode, of EncodeHalves, or of EncodeResident. Those of a kind that wait
// at the same time share passes.
type request struct {
	runtime.Ticket
	model       *model
	batch       *transformer.Batch
	dst         []float32
	halves      bool
	kept        []int32 // of halves
	halvesDst   []byte
	vectors     *resident.Vectors // of EncodeResident, in place of bytes
	firstVector int               // of these
	failed      bool
}

// Joins implements [runtime.Request].
func (r *request) Joins(other runtime.Request) bool {
	o, ok := other.(*request)
	return ok && o.model == r.model && o.halves == r.halves && o.vectors == r.vectors
}

// BatchShare implements [runtime.Request]: in tokens.
func (r *request) BatchShare() int { return len(r.batch.IDs) }

// BatchLimit implements [runtime.Request].
func (r *request) BatchLimit() int { return maxPasses * r.model.memory.tokens }

// failWith is the end of the request.
func (r *request) failWith(err error) {
	r.failed = true
	r.Fail(err)
}

// Run implements [runtime.Request].
func (r *request) Run(rt *runtime.Runtime, batch []runtime.Request) error {
	w := &passQueue{
		m:       r.model,
		rt:      rt,
		limits:  limitsFor(rt),
		halves:  r.halves,
		vectors: r.vectors,
	}
	rows := 0
	for _, b := range batch {
		r := b.(*request)
		w.remaining = append(w.remaining, textRange{r: r, last: r.batch.Texts()})
		rows = max(rows, r.firstVector+len(r.kept))
	}
	if r.vectors != nil {
		if err := r.vectors.Grow(rows); err != nil {
			return err
		}
	}
	err := w.run()
	if err != nil {
		rt.Drain()
	}
	return err
}

// textRange is some texts of a request, in a pass from a row on.
type textRange struct {
	r           *request
	first, last int
	row         int
}

func (s *textRange) rowCount() int { return s.r.batch.Offsets[s.last] - s.r.batch.Offsets[s.first] }

// keptRange says which of the ids that are kept are of the share's texts.
func (s *textRange) keptRange() (first, last int) {
	first, _ = slices.BinarySearch(s.r.kept, int32(s.r.batch.Offsets[s.first]))
	last, _ = slices.BinarySearch(s.r.kept, int32(s.r.batch.Offsets[s.last]))
	return first, last
}

// passContent is what is under way in a slot.
type passContent struct {
	ranges      []textRange
	rows, spans int
	kept        int // rows whose vectors come as halves
	layout      slotLayout
}

// resultBytes are what comes from the device.
func (w *passQueue) resultBytes(l *passContent, rows int) int64 {
	head, dim := l.layout.out-l.layout.bad, int64(w.m.about.Dim)
	switch {
	case w.vectors != nil:
		return head
	case w.halves:
		return head + 2*int64(l.kept)*dim
	}
	return head + 4*int64(rows)*dim
}

// passQueue is passes for some requests: while the device computes one, the vectors of the one
// before leave it, and the next one is laid out.
type passQueue struct {
	m         *model
	rt        *runtime.Runtime
	limits    deviceLimits
	halves    bool              // kind of the requests
	vectors   *resident.Vectors // where halves stay; nil if they come to the host
	remaining []textRange
	inFlight  [2]*passContent
	spans     []encoderSpan
}

func (w *passQueue) run() error {
	for i := 0; ; i++ {
		if err := w.finishSlot(i % 2); err != nil {
			return err
		}
		l := w.nextPass()
		if l == nil {
			// What lands last may leave something to be done again.
			if err := w.finishSlot((i + 1) % 2); err != nil {
				return err
			}
			if l = w.nextPass(); l == nil {
				return nil
			}
		}
		if err := w.launch(i%2, l, i == 0); err != nil {
			return err
		}
	}
}

// nextPass takes texts for a pass, as many as there is room for; nil: there are none.
func (w *passQueue) nextPass() *passContent {
	l := &passContent{}
	for len(w.remaining) > 0 {
		s := &w.remaining[0]
		if err := s.r.Context().Err(); err != nil && !s.r.failed {
			s.r.failWith(context.Cause(s.r.Context()))
		}
		if s.r.failed || s.first == s.last {
			w.remaining = w.remaining[1:]
			continue
		}
		part := *s
		part.row = l.rows
		for part.last = s.first; part.last < s.last && l.rows+s.r.batch.Offsets[part.last+1]-s.r.batch.Offsets[s.first] <= w.m.memory.tokens; part.last++ {
		}
		if part.last == s.first {
			break // the next text has room in the next pass
		}
		s.first = part.last
		if n := part.rowCount(); n > 0 {
			first, last := part.keptRange()
			l.ranges = append(l.ranges, part)
			l.rows += n
			l.kept += last - first
		}
	}
	if l.rows == 0 {
		return nil
	}
	return l
}

// launch lays a pass out in a slot and gives it to the device. A small one that nothing
// is under way with is a graph.
func (w *passQueue) launch(i int, l *passContent, first bool) error {
	m, rt, s := w.m, w.rt, &w.m.slots[i]
	c := rt.Driver
	rows := l.rows
	graph := first && rows <= smallRows && !w.halves
	if graph {
		rows = roundUp(rows, graphRows)
	}
	w.makeSpans(l, rows, graph)
	l.spans, l.layout = len(w.spans), m.newSlotLayout(rows, len(w.spans), l.kept)
	w.writeInput(s.in.Data, l, rows)
	p := &pass{
		m:      m,
		rt:     rt,
		limits: w.limits,
		rows:   rows,
		spans:  l.spans,
		halves: w.halves,
		layout: l.layout,
		slot:   s.ptr,
	}
	p.outs = w.halvesTargets(l, p.slotPtr(l.layout.out))
	work := func() error {
		p.err = nil
		if err := c.ToDevice(s.ptr, s.in.Data[:l.layout.out], rt.Stream); err != nil {
			return err
		}
		return p.run()
	}
	w.inFlight[i] = l
	out := s.out.Data[:w.resultBytes(l, l.rows)]
	if graph {
		out = s.out.Data[:w.resultBytes(l, rows)]
		err := m.replayOrLaunch(rt, graphKey{rows, l.spans}, func() error {
			if err := work(); err != nil {
				return err
			}
			return c.ToHost(out, s.ptr.Add(l.layout.bad), rt.Stream)
		})
		if err != nil {
			return err
		}
		return c.Record(s.copied, rt.Stream)
	}
	if err := work(); err != nil {
		return err
	}
	if err := c.Record(s.computed, rt.Stream); err != nil {
		return err
	}
	if err := c.Wait(rt.Copies, s.computed); err != nil {
		return err
	}
	if err := c.ToHost(out, s.ptr.Add(l.layout.bad), rt.Copies); err != nil {
		return err
	}
	if err := c.Record(s.copied, rt.Copies); err != nil {
		return err
	}
	// The slot's memory is written again by what Stream is given after the landing.
	return nil
}

// halvesTargets says where the halves of a pass go: to the slot, or each share's to its own place.
func (w *passQueue) halvesTargets(l *passContent, slot driver.Ptr) (outs []halvesOut) {
	if w.vectors == nil {
		return []halvesOut{{n: l.kept, to: slot}}
	}
	from := 0
	for _, s := range l.ranges {
		first, last := s.keptRange()
		outs = append(outs, halvesOut{from, last - first, w.vectors.RowPtr(s.r.firstVector + first)})
		from += last - first
	}
	return outs
}

// makeSpans makes the spans of a pass, those of long texts first. A graph's are rounded up, with
// one of rows that are no text's, and repetitions, which compute the same twice.
func (w *passQueue) makeSpans(l *passContent, rows int, graph bool) {
	w.spans = w.spans[:0]
	for _, s := range l.ranges {
		b := s.r.batch
		for i := s.first; i < s.last; i++ {
			n := b.Length(i)
			for part := range runtime.CeilDiv(n, partQueries) {
				w.spans = append(w.spans, encoderSpan{
					first:    uint32(s.row + b.Offsets[i] - b.Offsets[s.first]),
					length:   uint32(n),
					attended: uint32(b.Attends(i)),
					part:     uint32(part),
				})
			}
		}
	}
	slices.SortStableFunc(w.spans, func(a, b encoderSpan) int { return cmp.Compare(b.length, a.length) })
	if !graph {
		return
	}
	if n := uint32(rows - l.rows); n > 0 {
		w.spans = append(w.spans, encoderSpan{first: uint32(l.rows), length: n, attended: n})
	}
	for n := powerOfTwo(len(w.spans)); len(w.spans) < n; {
		w.spans = append(w.spans, w.spans[len(w.spans)-1])
	}
}

// writeInput writes what a pass is given.
func (w *passQueue) writeInput(host []byte, l *passContent, rows int) {
	ids, positions := valuesAt[int32](host, l.layout.ids, rows), valuesAt[uint32](host, l.layout.positions, rows)
	for _, s := range l.ranges {
		b := s.r.batch
		copy(ids[s.row:], b.IDs[b.Offsets[s.first]:b.Offsets[s.last]])
		row := s.row
		for i := s.first; i < s.last; i++ {
			for j := range b.Length(i) {
				positions[row] = uint32(j)
				row++
			}
		}
	}
	clear(ids[l.rows:])
	clear(positions[l.rows:])
	kept := valuesAt[uint32](host, l.layout.kept, l.kept)[:0]
	for _, s := range l.ranges {
		first, last := s.keptRange()
		for _, id := range s.r.kept[first:last] {
			kept = append(kept, uint32(s.row+int(id)-s.r.batch.Offsets[s.first]))
		}
	}
	copy(valuesAt[encoderSpan](host, l.layout.spans, len(w.spans)), w.spans)
	valuesAt[uint32](host, l.layout.bad, 1)[0] = math.MaxUint32
}

// finishSlot waits until the vectors of a slot are here, and gives them to whom they belong.
func (w *passQueue) finishSlot(i int) error {
	l, s := w.inFlight[i], &w.m.slots[i]
	if l == nil {
		return nil
	}
	w.inFlight[i] = nil
	if err := w.rt.Driver.SyncEvent(s.copied); err != nil {
		return err
	}
	dim := w.m.about.Dim
	out := s.out.Data[l.layout.out-l.layout.bad:]
	bad := valuesAt[uint32](s.out.Data, 0, 1)[0]
	halves := 0 // of the shares before
	for _, part := range l.ranges {
		b := part.r.batch
		first, last := part.keptRange()
		begin := 2 * dim * halves
		halves += last - first
		lo, n := b.Offsets[part.first], part.rowCount()
		// Of several bad rows only the first is known: what comes after it is computed again,
		// without the text that it is of.
		switch badRow := int64(bad) - int64(part.row); {
		case bad >= uint32(l.rows) || badRow >= int64(n):
		case badRow >= 0:
			part.r.failWith(fmt.Errorf("token %d of the batch: %w", lo+int(badRow), transformer.ErrNotFinite))
			continue
		default:
			w.remaining = append(w.remaining, part)
			continue
		}
		if w.vectors != nil {
			continue
		}
		if w.halves {
			runtime.CopyParallel(part.r.halvesDst[2*dim*first:2*dim*last], out[begin:begin+2*dim*(last-first)])
			continue
		}
		runtime.CopyParallel(runtime.Bytes(part.r.dst[lo*dim:(lo+n)*dim]), out[4*part.row*dim:4*(part.row+n)*dim])
	}
	return nil
}
