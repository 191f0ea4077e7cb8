package command

import (
	"context"
	"errors"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	"github.com/plaid-ir/plaid/vectors"
)

// wholeDocs are documents that lie in memory as one matrix, because their file is
// mapped: nothing of it is read before it is scored.
type wholeDocs struct {
	all *maxsim.Batch
	// slice is the documents from to to.
	slice func(from, to int) *maxsim.Batch
	// check finds what is wrong with them; it reads them.
	check func(ctx context.Context, from, to int) error
	// unchanged is asked for before anything is made of what was read.
	unchanged func() error
	close     func() error
}

// wholeOf maps documents, or returns nil if they can only be read.
func wholeOf(src vectors.Source) (*wholeDocs, error) {
	m, err := vectors.Map(src)
	if m == nil || err != nil {
		return nil, err
	}
	tokens := maxsim.Float32(m.F32, m.Dim)
	switch {
	case m.Brain:
		tokens = maxsim.BFloat16(m.U16, m.Dim)
	case m.U16 != nil:
		tokens = maxsim.Float16(m.U16, m.Dim)
	}
	slice := func(from, to int) *maxsim.Batch {
		lo, hi := m.Starts[from], m.Starts[to]
		b := &maxsim.Batch{Tokens: tokens.Slice(lo, hi)}
		if m.Rows != nil { // padded
			b.Count, b.Lengths = to-from, m.Rows[from:to]
			b.Stride = (hi - lo) / max(b.Count, 1)
			return b
		}
		b.Offsets = make([]int, to-from+1)
		for i := range b.Offsets {
			b.Offsets[i] = m.Starts[from+i] - lo
		}
		return b
	}
	return &wholeDocs{all: slice(0, src.Len()), slice: slice, check: m.Check, unchanged: m.Unchanged, close: m.Close}, nil
}

// checked checks documents on several threads.
func (w *wholeDocs) checked(ctx context.Context, from, to, threads int) error {
	const piece = 64
	return parallel.Do(ctx, parallel.Blocks(to-from, piece), threads, func(i int) error {
		lo, hi := parallel.Block(i, to-from, piece)
		return w.check(ctx, from+lo, from+hi)
	})
}

// fault is err, or what is behind it: a file that changed.
func (w *wholeDocs) fault(err error) error {
	if changed := w.unchanged(); changed != nil && (err == nil || errors.Is(err, maxsim.ErrFault)) {
		return changed
	}
	return err
}

// scoreWhole scores mapped documents.
func (x *scoring) scoreWhole(ctx context.Context) error {
	if x.wanted != nil {
		return x.whole.fault(x.wholeWanted(ctx))
	}
	size := scoreBlock
	if x.onDevice {
		size = 16 * scoreBlockDevice // the backend has pieces of its own
	}
	b := x.whole.all
	for from := 0; from < b.Len(); {
		to := from + 1
		first, _ := b.Span(from)
		for ; to < b.Len(); to++ {
			if _, hi := b.Span(to); (hi-first)*b.Tokens.Dim > size {
				break
			}
		}
		err := x.whole.checked(ctx, from, to, x.flags.threads)
		if err == nil {
			err = x.scoreAll(ctx, x.whole.slice(from, to))
		}
		if err != nil {
			return x.whole.fault(err)
		}
		from = to
	}
	return x.whole.fault(nil)
}

// wholeWanted scores the documents that are wanted; nothing of others is read.
func (x *scoring) wholeWanted(ctx context.Context) (err error) {
	const most = 1 << 16 // pairs at a time
	docs := x.whole.all
	held, err := x.backend.Hold(ctx, docs, maxsim.HoldOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	var queries, items []int32
	score := func() error {
		err := x.pairs(ctx, held, queries, items, func(item int32) uint32 { return uint32(item) })
		queries, items = queries[:0], items[:0]
		return err
	}
	for i := range docs.Len() {
		wanted := x.wanted[x.docs.ID(i)]
		if lo, hi := docs.Span(i); len(wanted) == 0 || lo == hi || x.docs.Rows(i) == 0 {
			continue
		}
		if err := x.whole.check(ctx, i, i+1); err != nil {
			return err
		}
		for _, q := range wanted {
			queries, items = append(queries, q), append(items, int32(i))
		}
		if len(items) >= most {
			if err := score(); err != nil {
				return err
			}
		}
	}
	return score()
}
