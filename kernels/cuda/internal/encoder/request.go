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

// mostPasses is how many full passes are asked of a device in one go: what else it is
// asked for waits for them.
const mostPasses = 4

// request is a call of Encode, of EncodeHalves, or of EncodeResident. Those of a kind that wait
// at the same time share passes.
type request struct {
	runtime.Ticket
	m       *model
	batch   *transformer.Batch
	dst     []float32
	halves  bool
	kept    []int32 // of halves
	bytes   []byte
	vectors *resident.Vectors // of EncodeResident, in place of bytes
	first   int               // of these
	failed  bool
}

// Joins implements [runtime.Request].
func (r *request) Joins(other runtime.Request) bool {
	o, ok := other.(*request)
	return ok && o.m == r.m && o.halves == r.halves && o.vectors == r.vectors
}

// Size implements [runtime.Request]: in tokens.
func (r *request) Size() int { return len(r.batch.IDs) }

// Room implements [runtime.Request].
func (r *request) Room() int { return mostPasses * r.m.room.tokens }

// fail is the end of the request.
func (r *request) fail(err error) {
	r.failed = true
	r.Fail(err)
}

// Run implements [runtime.Request].
func (r *request) Run(rt *runtime.Runtime, batch []runtime.Request) error {
	w := &work{m: r.m, rt: rt, limits: limitsOf(rt), halves: r.halves, vectors: r.vectors}
	rows := 0
	for _, b := range batch {
		r := b.(*request)
		w.left = append(w.left, share{r: r, last: r.batch.Texts()})
		rows = max(rows, r.first+len(r.kept))
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

// share is some texts of a request, in a pass from a row on.
type share struct {
	r           *request
	first, last int
	row         int
}

func (s *share) rows() int { return s.r.batch.Offsets[s.last] - s.r.batch.Offsets[s.first] }

// kept says which of the ids that are kept are of the share's texts.
func (s *share) kept() (first, last int) {
	first, _ = slices.BinarySearch(s.r.kept, int32(s.r.batch.Offsets[s.first]))
	last, _ = slices.BinarySearch(s.r.kept, int32(s.r.batch.Offsets[s.last]))
	return first, last
}

// load is what is under way in a slot.
type load struct {
	shares      []share
	rows, spans int
	kept        int // rows whose vectors come as halves
	at          layout
}

// bytes are what comes from the device.
func (w *work) bytes(l *load, rows int) int64 {
	head, dim := l.at.out-l.at.bad, int64(w.m.about.Dim)
	switch {
	case w.vectors != nil:
		return head
	case w.halves:
		return head + 2*int64(l.kept)*dim
	}
	return head + 4*int64(rows)*dim
}

// work is passes for some requests: while the device computes one, the vectors of the one
// before leave it, and the next one is laid out.
type work struct {
	m       *model
	rt      *runtime.Runtime
	limits  limits
	halves  bool              // kind of the requests
	vectors *resident.Vectors // where halves stay; nil if they come to the host
	left    []share
	under   [2]*load
	spans   []encoderSpan
}

func (w *work) run() error {
	for i := 0; ; i++ {
		if err := w.land(i % 2); err != nil {
			return err
		}
		l := w.next()
		if l == nil {
			// What lands last may leave something to be done again.
			if err := w.land((i + 1) % 2); err != nil {
				return err
			}
			if l = w.next(); l == nil {
				return nil
			}
		}
		if err := w.launch(i%2, l, i == 0); err != nil {
			return err
		}
	}
}

// next takes texts for a pass, as many as there is room for; nil: there are none.
func (w *work) next() *load {
	l := &load{}
	for len(w.left) > 0 {
		s := &w.left[0]
		if err := s.r.Context().Err(); err != nil && !s.r.failed {
			s.r.fail(context.Cause(s.r.Context()))
		}
		if s.r.failed || s.first == s.last {
			w.left = w.left[1:]
			continue
		}
		part := *s
		part.row = l.rows
		for part.last = s.first; part.last < s.last && l.rows+s.r.batch.Offsets[part.last+1]-s.r.batch.Offsets[s.first] <= w.m.room.tokens; part.last++ {
		}
		if part.last == s.first {
			break // the next text has room in the next pass
		}
		s.first = part.last
		if n := part.rows(); n > 0 {
			first, last := part.kept()
			l.shares = append(l.shares, part)
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
func (w *work) launch(i int, l *load, first bool) error {
	m, rt, s := w.m, w.rt, &w.m.slots[i]
	c := rt.Driver
	rows := l.rows
	graph := first && rows <= smallRows && !w.halves
	if graph {
		rows = roundUp(rows, graphRows)
	}
	w.cut(l, rows, graph)
	l.spans, l.at = len(w.spans), m.layoutFor(rows, len(w.spans), l.kept)
	w.fill(s.in.Data, l, rows)
	p := &pass{m: m, rt: rt, limits: w.limits, rows: rows, spans: l.spans, halves: w.halves, at: l.at, slot: s.at}
	p.outs = w.outs(l, p.in(l.at.out))
	work := func() error {
		p.err = nil
		if err := c.ToDevice(s.at, s.in.Data[:l.at.out], rt.Stream); err != nil {
			return err
		}
		return p.run()
	}
	w.under[i] = l
	out := s.out.Data[:w.bytes(l, l.rows)]
	if graph {
		out = s.out.Data[:w.bytes(l, rows)]
		err := m.once(rt, graphKey{rows, l.spans}, func() error {
			if err := work(); err != nil {
				return err
			}
			return c.ToHost(out, s.at.Add(l.at.bad), rt.Stream)
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
	if err := c.ToHost(out, s.at.Add(l.at.bad), rt.Copies); err != nil {
		return err
	}
	if err := c.Record(s.copied, rt.Copies); err != nil {
		return err
	}
	// The slot's memory is written again by what Stream is given after the landing.
	return nil
}

// outs says where the halves of a pass go: to the slot, or each share's to its own place.
func (w *work) outs(l *load, slot driver.Ptr) (outs []halvesOut) {
	if w.vectors == nil {
		return []halvesOut{{n: l.kept, to: slot}}
	}
	from := 0
	for _, s := range l.shares {
		first, last := s.kept()
		outs = append(outs, halvesOut{from, last - first, w.vectors.At(s.r.first + first)})
		from += last - first
	}
	return outs
}

// cut makes the spans of a pass, those of long texts first. A graph's are rounded up, with
// one of rows that are no text's, and repetitions, which compute the same twice.
func (w *work) cut(l *load, rows int, graph bool) {
	w.spans = w.spans[:0]
	for _, s := range l.shares {
		b := s.r.batch
		for i := s.first; i < s.last; i++ {
			n := b.Length(i)
			for part := range runtime.CeilDiv(n, partQueries) {
				w.spans = append(w.spans, encoderSpan{
					first: uint32(s.row + b.Offsets[i] - b.Offsets[s.first]), length: uint32(n), attended: uint32(b.Attends(i)), part: uint32(part),
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

// fill writes what a pass is given.
func (w *work) fill(host []byte, l *load, rows int) {
	ids, positions := values[int32](host, l.at.ids, rows), values[uint32](host, l.at.positions, rows)
	for _, s := range l.shares {
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
	kept := values[uint32](host, l.at.kept, l.kept)[:0]
	for _, s := range l.shares {
		first, last := s.kept()
		for _, id := range s.r.kept[first:last] {
			kept = append(kept, uint32(s.row+int(id)-s.r.batch.Offsets[s.first]))
		}
	}
	copy(values[encoderSpan](host, l.at.spans, len(w.spans)), w.spans)
	values[uint32](host, l.at.bad, 1)[0] = math.MaxUint32
}

// land waits until the vectors of a slot are here, and gives them to whom they belong.
func (w *work) land(i int) error {
	l, s := w.under[i], &w.m.slots[i]
	if l == nil {
		return nil
	}
	w.under[i] = nil
	if err := w.rt.Driver.SyncEvent(s.copied); err != nil {
		return err
	}
	dim := w.m.about.Dim
	out := s.out.Data[l.at.out-l.at.bad:]
	bad := values[uint32](s.out.Data, 0, 1)[0]
	halves := 0 // of the shares before
	for _, part := range l.shares {
		b := part.r.batch
		first, last := part.kept()
		at := 2 * dim * halves
		halves += last - first
		lo, n := b.Offsets[part.first], part.rows()
		// Of several bad rows only the first is known: what comes after it is computed again,
		// without the text that it is of.
		switch in := int64(bad) - int64(part.row); {
		case bad >= uint32(l.rows) || in >= int64(n):
		case in >= 0:
			part.r.fail(fmt.Errorf("token %d of the batch: %w", lo+int(in), transformer.ErrNotFinite))
			continue
		default:
			w.left = append(w.left, part)
			continue
		}
		if w.vectors != nil {
			continue
		}
		if w.halves {
			runtime.CopyWide(part.r.bytes[2*dim*first:2*dim*last], out[at:at+2*dim*(last-first)])
			continue
		}
		runtime.CopyWide(runtime.Bytes(part.r.dst[lo*dim:(lo+n)*dim]), out[4*part.row*dim:4*(part.row+n)*dim])
	}
	return nil
}
