package dense

import (
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// slotMarks is the first of the runtime's points that mark the ends of the work of slots.
const slotMarks = 2

// fetchResults copies the results of a slot to page-locked memory, or passes them to the ranking on
// the device.
func (s *scoring) fetchResults(slot *slot) error {
	rt, w := s.rt, &s.rt.Work
	slot.busy = true
	which := (s.slotsUsed - 1) % len(s.slots)
	if s.rank != nil {
		if err := s.rank.mergeScores(s, slot); err != nil {
			return err
		}
		return rt.RecordPoint(slotMarks + which)
	}
	var out runtime.Arena
	n := int64(slot.piece.scores(s))
	out.Append(4 * n)
	if slot.arg >= 0 {
		out.Append(4 * n * int64(s.size.Stride))
	}
	if err := rt.Driver.ToHost(w.HostOut[slot.scores:slot.scores+out.Size], w.Out.At(slot.scores),
		rt.Stream); err != nil {
		return err
	}
	return rt.RecordPoint(slotMarks + which)
}

// finishSlot waits for the piece of a slot, if it has one, and copies its results to the
// caller.
func (s *scoring) finishSlot(which int) error {
	slot := &s.slots[which]
	if !slot.busy {
		return nil
	}
	slot.busy = false
	if err := s.rt.SyncPoint(slotMarks + which); err != nil {
		return err
	}
	if s.rank == nil {
		s.copyResults(slot)
	}
	return nil
}

// finishAll finishes all slots, in their order.
func (s *scoring) finishAll() error {
	for range s.slots {
		if err := s.finishSlot(s.slotsUsed % len(s.slots)); err != nil {
			return err
		}
		s.slotsUsed++
	}
	return nil
}

// copyResults copies the results of a slot to the caller's memory.
func (s *scoring) copyResults(slot *slot) {
	w, stride := &s.rt.Work, s.size.Stride
	p := slot.piece
	n := p.scores(s)
	scores := structsFrom[float32](w.HostOut[slot.scores:], n)
	var arg []int32
	if slot.arg >= 0 {
		arg = structsFrom[int32](w.HostOut[slot.arg:], n*stride)
	}
	copyPair := func(from, to int) {
		s.call.Scores[to] = scores[from]
		if arg == nil {
			return
		}
		row := s.call.Argmax[to*stride : (to+1)*stride]
		copy(row, arg[from*stride:(from+1)*stride])
		if s.q.hasHoles || s.d.hasHoles {
			query, doc := s.call.PairAt(to, s.d.shape.Len())
			spreadRow(&s.q, &s.d, row, query, doc)
		}
	}
	if !s.shape.all {
		for i, pair := range p.pairs {
			copyPair(i, int(pair))
		}
		return
	}
	nq, nd := s.q.shape.Len(), p.hi-p.lo
	pitch := s.size.Pairs / nq
	for q := range nq {
		to := q*pitch + p.lo - s.call.First
		if arg == nil {
			copy(s.call.Scores[to:], scores[q*nd:(q+1)*nd])
			continue
		}
		for i := range nd {
			copyPair(q*nd+i, to+i)
		}
	}
}

// spreadRow converts the argmaxima of a pair in place: from tokens, by numbers of tokens, to rows of
// the query, by rows of the document. Rows without a token get −1.
func spreadRow(q, d *operand, arg []int32, query, doc int) {
	for r := range q.rowCount(query) {
		if d.hasHoles && arg[r] >= 0 {
			arg[r] = int32(d.positionInSpan(doc, int(arg[r])))
		}
	}
	if !q.hasHoles {
		return
	}
	end := len(arg)
	for r := q.rowCount(query) - 1; r >= 0; r-- {
		v, position := arg[r], q.positionInSpan(query, r)
		for i := position; i < end; i++ {
			arg[i] = -1
		}
		arg[position], end = v, position
	}
	for i := range end {
		arg[i] = -1
	}
}
