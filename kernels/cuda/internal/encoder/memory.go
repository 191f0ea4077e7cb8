package encoder

import (
	"fmt"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

const (
	// defaultTokens is the maximum of tokens of a batch if there is enough memory: several
	// times as many as fill the largest devices.
	defaultTokens = 32 << 10
	// memoryReserve is the memory of the device that stays free if no limit is given.
	memoryReserve = 256 << 20
)

// batchMemory has the offsets of the arrays of a batch in the workspace, in bytes.
type batchMemory struct {
	tokens              int // maximum of a batch
	x, qkv, wide, delta int64
	context, convolved  int64    // output of attention and of convolutions; noArray without such layers
	embedded            int64    // noArray if embeddings have the hidden size
	stream              int64    // noArray with PostNorm
	heads               [2]int64 // outputs of dense heads in half precision, in turn
	sums                [2]int64 // outputs of dense heads in float32
	slots               [2]int64 // input and output of a pass
	size                int64
}

// totalBytes returns the size of the workspace.
func (r *batchMemory) totalBytes() int64 { return r.size }

// layOutBatch lays out the workspace for batches of a number of tokens.
func (m *model) layOutBatch(tokens int) batchMemory {
	t, a := m.tensors, runtime.Arena{}
	n := int64(roundUp(tokens, passRows))
	width, wide := int64(t.width), int64(t.wide)
	r := batchMemory{
		tokens:    tokens,
		stream:    noArray,
		context:   noArray,
		convolved: noArray,
		embedded:  noArray,
	}
	columns, attends, convolves := 0, false, false
	for i := range t.layers {
		y := &t.layers[i]
		columns, attends, convolves = max(columns, y.qkv.n), attends || !y.form.Convolution,
			convolves || y.form.Convolution
	}
	r.x, r.qkv = a.Append(2*n*width), a.Append(2*n*int64(columns))
	// Matrices do not share memory, so that their padding columns stay zero.
	if attends {
		r.context = a.Append(2 * n * int64(roundUp(m.config.Heads*t.headColumns, tile)))
	}
	if convolves {
		r.convolved = a.Append(2 * n * width)
	}
	if t.project != nil {
		r.embedded = a.Append(2 * n * int64(t.embedding))
	}
	r.wide, r.delta = a.Append(2*n*wide), a.Append(2*n*width)
	if m.config.NormPlace != transformer.PostNorm {
		r.stream = a.Append(4 * n * width)
	}
	if len(t.heads) > 0 {
		for i := range r.heads {
			r.heads[i] = a.Append(2 * n * int64(t.widestHead))
			r.sums[i] = a.Append(4 * n * int64(t.widestHead))
		}
	}
	for i := range r.slots {
		r.slots[i] = a.Append(m.largestSlotLayout(tokens).size)
	}
	r.size = a.Size
	return r
}

// maxBatchTokens returns the maximum of tokens of a batch: that of the options, or as many as the
// memory has room for.
func (m *model) maxBatchTokens(rt *runtime.Runtime, o transformer.Options) (int, error) {
	limit := o.Memory
	free, _, err := rt.Driver.MemInfo()
	if err != nil {
		return 0, err
	}
	if limit == 0 {
		limit = max(int64(free)-memoryReserve, int64(free)/2)
	}
	minTokens := max(m.config.MaxPositions, smallRows)
	if o.Tokens > 0 {
		minTokens = min(max(o.Tokens, 1), defaultTokens)
	}
	for tokens := max(defaultTokens, minTokens); ; tokens = max(tokens/2, minTokens) {
		if o.Tokens > 0 {
			tokens = minTokens
		}
		r := m.layOutBatch(tokens)
		if need := m.tensors.bytes + r.totalBytes(); need <= limit {
			return tokens, nil
		} else if tokens == minTokens {
			return 0, fmt.Errorf("%w: %d bytes of weights and %d for a batch of %d tokens; there are %d",
				driver.ErrOutOfMemory, m.tensors.bytes, r.totalBytes(), minTokens, limit)
		}
	}
}

// slotLayout has the offsets of the input and the output of a pass in its slot. The arrays from ids to bad
// are copied to the device, those from bad on are copied back.
type slotLayout struct{ ids, positions, spans, kept, bad, out, size int64 }

// newSlotLayout lays out a slot for a pass of a number of tokens, spans and kept rows.
func (m *model) newSlotLayout(tokens, spans, kept int) slotLayout {
	var a runtime.Arena
	return slotLayout{
		ids:       a.Append(4 * int64(tokens)),
		positions: a.Append(4 * int64(tokens)),
		spans:     a.Append(16 * int64(spans)),
		kept:      a.Append(4 * int64(kept)),
		bad:       a.Append(4),
		out:       a.Append(4 * int64(tokens) * int64(m.about.Dim)),
		size:      a.Size,
	}
}

// largestSlotLayout returns the largest layout of a pass: each token may be a text with a span of its
// own, and the spans of graphs are rounded up.
func (m *model) largestSlotLayout(tokens int) slotLayout {
	return m.newSlotLayout(roundUp(tokens, graphRows), max(tokens, 2*smallRows), tokens)
}

// slot has the memory and the events of one of two passes that are under way.
type slot struct {
	ptr      driver.Ptr
	in, out  driver.HostMem
	computed driver.Event // the device has the vectors
	copied   driver.Event // the host has them
}

// allocate allocates the host memory and the events of slot i.
func (s *slot) allocate(c *driver.Context, m *model, i int) (err error) {
	largest := m.largestSlotLayout(m.memory.tokens)
	s.ptr = m.workspace.At(m.memory.slots[i])
	if s.in, err = c.HostAlloc(largest.out); err != nil {
		return fmt.Errorf("page-locked memory: %w", err)
	}
	if s.out, err = c.HostAlloc(largest.size - largest.bad); err != nil {
		return fmt.Errorf("page-locked memory: %w", err)
	}
	if s.computed, err = c.NewEvent(); err != nil {
		return err
	}
	s.copied, err = c.NewEvent()
	return err
}

// release frees the host memory and the events.
func (s *slot) release(c *driver.Context) {
	_ = c.HostFree(s.in)
	_ = c.HostFree(s.out)
	_ = c.FreeEvent(s.computed)
	_ = c.FreeEvent(s.copied)
	*s = slot{}
}
