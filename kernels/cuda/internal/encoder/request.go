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

// maxPasses is the maximum of full passes in a batch of requests. Other requests for the device wait
// for all of them.
const maxPasses = 4

// request is a call of Encode, EncodeHalves or EncodeResident. Waiting requests of the same kind share
// passes.
type request struct {
	runtime.Ticket
	model       *model
	batch       *transformer.Batch
	dst         []float32
	halves      bool    // the vectors are of half precision, for the kept ids only
	kept        []int32 // of halves
	halvesDst   []byte
	vectors     *resident.Vectors // of EncodeResident, instead of halvesDst
	firstVector int               // the number of the first vector in vectors
	failed      bool
}

// Joins implements [runtime.Request].
func (r *request) Joins(other runtime.Request) bool {
	o, ok := other.(*request)
	return ok && o.model == r.model && o.halves == r.halves && o.vectors == r.vectors
}

// BatchShare implements [runtime.Request]: it returns the number of tokens.
func (r *request) BatchShare() int { return len(r.batch.IDs) }

// BatchLimit implements [runtime.Request]: it returns the tokens of maxPasses full passes.
func (r *request) BatchLimit() int { return maxPasses * r.model.memory.tokens }

// failWith ends the request with an error: its other texts are skipped.
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

// textRange is a range of texts of a request, first to last, whose rows in a pass begin at row.
type textRange struct {
	r           *request
	first, last int
	row         int
}

// rowCount returns the number of tokens of the texts.
func (s *textRange) rowCount() int { return s.r.batch.Offsets[s.last] - s.r.batch.Offsets[s.first] }

// keptRange returns the range of the request's kept ids that are within these texts.
func (s *textRange) keptRange() (first, last int) {
	first, _ = slices.BinarySearch(s.r.kept, int32(s.r.batch.Offsets[s.first]))
	last, _ = slices.BinarySearch(s.r.kept, int32(s.r.batch.Offsets[s.last]))
	return first, last
}

// passContent is the content of a pass that is under way in a slot.
type passContent struct {
	ranges      []textRange
	rows, spans int
	kept        int // rows whose vectors come as halves
	layout      slotLayout
}

// resultBytes returns how many bytes of a slot are copied from the device for a pass of a number of rows.
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

// passQueue runs the passes of some requests: while the device computes one, the vectors of the previous
// one are copied to the host, and the next one is laid out.
type passQueue struct {
	m         *model
	rt        *runtime.Runtime
	limits    deviceLimits
	halves    bool              // kind of the requests
	vectors   *resident.Vectors // where halves stay, nil if they are copied to the host
	remaining []textRange
	inFlight  [2]*passContent
	spans     []encoderSpan
}

// run computes all passes, and returns once the device has finished the last one.
func (w *passQueue) run() error {
	for i := 0; ; i++ {
		if err := w.finishSlot(i % 2); err != nil {
			return err
		}
		l := w.nextPass()
		if l == nil {
			// The last pass may return texts that have to be computed again.
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

// nextPass removes texts from remaining, as many as fit into a pass. It returns nil if none remain.
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
		part.row, part.last = l.rows, s.first
		offsets := s.r.batch.Offsets
		for part.last < s.last && l.rows+offsets[part.last+1]-offsets[s.first] <= w.m.memory.tokens {
			part.last++
		}
		if part.last == s.first {
			break // the next text does not fit into this pass
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

// launch lays out a pass in slot i and launches it. A small pass is launched as a graph if it is the
// first, so that no other is under way, and returns float32.
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
	// The slot is written again only after finishSlot has waited for this copy.
	return nil
}

// halvesTargets returns the destinations of the vectors of a pass: the slot, or the resident vectors of
// each range.
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

// makeSpans sets the spans of a pass, those of long texts first. For a graph their number is rounded up to
// a power of two: with a span of the padding rows, and with repetitions of the last span, which
// compute the same result twice.
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
					attended: uint32(b.AttendedLength(i)),
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

// writeInput writes the input of a pass to the page-locked memory of its slot.
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

// finishSlot waits until the vectors of a slot are on the host, and copies them to their requests.
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
	halves := 0 // kept rows of the previous ranges
	for _, part := range l.ranges {
		b := part.r.batch
		first, last := part.keptRange()
		begin := 2 * dim * halves
		halves += last - first
		lo, n := b.Offsets[part.first], part.rowCount()
		// bad is the first row that is not finite. The ranges behind it are computed again,
		// without the request that failed.
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
