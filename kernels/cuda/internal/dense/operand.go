package dense

import (
	"context"
	"fmt"
	"sort"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// tokens lists the tokens of a batch, one after another. Padding and masked rows are left
// out: they are not copied to the device.
type tokens struct {
	shape maxsim.Shape
	first []int // the first token of each item, and the end
	// original is the row of the matrix of each token, where nil means that token i is row
	// base + i.
	original []int32
	base     int
	// hasHoles means that rows within a span are masked, so that a position in the span is not
	// the number of a token.
	hasHoles bool
}

// newTokens lists the tokens of a shape.
func newTokens(s maxsim.Shape) *tokens {
	t := &tokens{shape: s, first: make([]int, s.Len()+1)}
	n, next := 0, -1
	direct := s.Mask == nil
	for i := range s.Len() {
		lo, hi := s.Span(i)
		t.first[i] = n
		n += hi - lo
		if next < 0 {
			t.base, next = lo, lo
		}
		direct = direct && (lo == next || lo == hi)
		if lo < hi {
			next = hi
		}
	}
	t.first[s.Len()] = n
	if direct {
		return t
	}
	t.original = make([]int32, 0, n)
	for i := range s.Len() {
		lo, hi := s.Span(i)
		t.first[i] = len(t.original)
		for r := lo; r < hi; r++ {
			if s.IsToken(r) {
				t.original = append(t.original, int32(r))
			} else {
				t.hasHoles = true
			}
		}
	}
	t.first[s.Len()] = len(t.original)
	return t
}

// tokenCount returns the number of tokens of all items.
func (t *tokens) tokenCount() int { return t.first[len(t.first)-1] }

// The methods of [spans].
func (t *tokens) rowCount(i int) int { return t.first[i+1] - t.first[i] }
func (t *tokens) firstRow(i int) int { return t.first[i] }
func (t *tokens) itemCount() int     { return len(t.first) - 1 }

// sourceRow returns the row of a token in the matrix.
func (t *tokens) sourceRow(token int) int {
	if t.original == nil {
		return t.base + token
	}
	return int(t.original[token])
}

// positionInSpan returns the position of a token of an item in the item's span.
func (t *tokens) positionInSpan(item, token int) int {
	lo, _ := t.shape.Span(item)
	return t.sourceRow(t.first[item]+token) - lo
}

// tokenAtPosition returns the token of an item at a position of its span. It returns false if that row
// is masked.
func (t *tokens) tokenAtPosition(item, place int) (int, bool) {
	n := t.rowCount(item)
	token := sort.Search(n, func(i int) bool { return t.positionInSpan(item, i) >= place })
	return token, token < n && t.positionInSpan(item, token) == place
}

// forEachRun calls fn for the runs of consecutive rows of the matrix that make up the tokens lo to hi.
func (t *tokens) forEachRun(lo, hi int, fn func(row, n int)) {
	if t.original == nil {
		fn(t.base+lo, hi-lo)
		return
	}
	for lo < hi {
		n := 1
		for lo+n < hi && t.original[lo+n] == t.original[lo]+int32(n) {
			n++
		}
		fn(int(t.original[lo]), n)
		lo += n
	}
}

// longestItem returns the largest number of tokens of an item.
func (t *tokens) longestItem() int {
	longest := 0
	for i := 1; i < len(t.first); i++ {
		longest = max(longest, t.first[i]-t.first[i-1])
	}
	return longest
}

// stageBytes is how much of an operand is staged at a time.
const stageBytes = 32 << 20

// stagedArray is an array of a matrix that is copied to the device.
type stagedArray struct {
	data   []byte // nil means that the matrix does not have the array
	size   int    // bytes of a row
	offset int64  // in the staging memory
}

// stagedArrays returns the arrays of a matrix: elements, scales and zero points, or codes, residuals
// and factors.
func stagedArrays(m *maxsim.Matrix) [3]stagedArray {
	if m.Type == maxsim.Compressed {
		ch := m.Chunk
		return [3]stagedArray{
			{data: ch.Codes, size: ch.CodeBytes},
			{data: ch.Residuals, size: m.Codec.RowBytes()},
			{data: ch.Factors, size: 2},
		}
	}
	return [3]stagedArray{
		{data: elementBytes(m), size: m.Type.Size() * m.Dim},
		{data: runtime.Bytes(m.Scales), size: 4},
		{data: runtime.Bytes(m.Zeros), size: 1},
	}
}

// upload copies the tokens lo to hi of a batch to the device, and packs them into rows from the first of
// to on.
func upload(ctx context.Context, rt *runtime.Runtime, b *maxsim.Batch, t *tokens, to packedRows, lo, hi int) error {
	m := &b.Tokens
	arrays, size := stagedArrays(m), 0
	for _, p := range arrays {
		if p.data != nil {
			size += p.size
		}
	}
	if err := to.codec.uploadOnce(rt); err != nil {
		return err
	}
	rowsPerStage := max(stageBytes/max(size, 1), 1)
	for ; lo < hi; lo += rowsPerStage {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(rowsPerStage, hi-lo)
		var arena runtime.Arena
		for i := range arrays {
			if arrays[i].data != nil {
				arrays[i].offset = arena.Append(int64(n) * int64(arrays[i].size))
			}
		}
		st, err := rt.Stage(arena.Size, func(host []byte) error {
			stagedRows := 0
			t.forEachRun(lo, lo+n, func(row, n int) {
				for _, p := range arrays {
					if p.data != nil {
						runtime.CopyParallel(host[p.offset+int64(stagedRows*p.size):],
							p.data[row*p.size:(row+n)*p.size])
					}
				}
				stagedRows += n
			})
			return nil
		})
		if err != nil {
			return err
		}
		p := &densePackParams{
			rows:     to.ptr,
			scale:    to.scale,
			unit:     to.unit,
			inverse:  to.inverse,
			n:        uint32(n),
			dim:      uint32(m.Dim),
			source:   sourceNumber(m.Type),
			format:   uint32(to.format),
			rowBytes: uint32(to.rowBytes),
		}
		arrayPtrs := [3]*driver.Ptr{&p.in, &p.scales, &p.zeros}
		if m.Type == maxsim.Compressed {
			arrayPtrs[1], arrayPtrs[2] = &p.residuals, &p.factors
			p.codec = to.codec.params(m.Chunk)
		}
		for i, part := range arrays {
			if part.data != nil {
				*arrayPtrs[i] = st.Raw.Add(part.offset)
			}
		}
		if err := p.run(rt); err != nil {
			return err
		}
		if err := rt.Unstage(st); err != nil {
			return err
		}
		to = to.startingAt(n)
	}
	return nil
}

// heldBatch is a batch in the device's memory.
type heldBatch struct {
	dev    *runtime.Device
	rt     *runtime.Runtime
	tokens *tokens
	rows   packedRows
	mem    driver.Mem
}

// Shape implements [maxsim.Operand].
func (h *heldBatch) Shape() maxsim.Shape { return h.tokens.shape }

// Close implements [maxsim.PreparedBatch].
func (h *heldBatch) Close() error {
	_ = h.dev.FreeOwner(h)
	return nil
}

// Free gives the memory back on the device's goroutine.
func (h *heldBatch) Free() {
	if h.mem.Ptr == 0 {
		return
	}
	_ = h.rt.Driver.Free(h.mem)
	h.mem = driver.Mem{}
	h.rt.RemoveOwner(h)
}

// Prepare implements [maxsim.Backend]. A device has no approximate first stage, so that Screen has no
// effect.
func (b *backend) Prepare(ctx context.Context, batch *maxsim.Batch) (maxsim.PreparedBatch, error) {
	if batch == nil {
		return nil, fmt.Errorf("%w: no batch", kernels.ErrShape)
	}
	if err := batch.Validate(); err != nil {
		return nil, err
	}
	h := &heldBatch{dev: b.dev, tokens: newTokens(batch.Shape())}
	err := b.submit(ctx, "holding", func(ctx context.Context, rt *runtime.Runtime) (err error) {
		h.rt = rt
		f := naturalFormat(&batch.Tokens)
		var a runtime.Arena
		placeRows := reserveBatch(&a, f, batch, h.tokens.tokenCount(), true)
		rt.AddOwner(h)
		if h.mem, err = rt.Driver.Alloc(max(a.Size, 1)); err != nil {
			rt.RemoveOwner(h)
			return err
		}
		h.rows = placeRows(h.mem.Ptr)
		if err = recoverFaults(ctx, rt, func(ctx context.Context, rt *runtime.Runtime) error {
			if err := upload(ctx, rt, batch, h.tokens, h.rows, 0, h.tokens.tokenCount()); err != nil {
				return err
			}
			return rt.Sync() // the caller may change the batch after Hold, so that the copies must be done
		}); err != nil {
			rt.Drain()
			h.Free()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// operand is an operand of a call: either held or batch is set.
type operand struct {
	*tokens
	held  *heldBatch
	batch *maxsim.Batch
}

// resolveOperand returns an operand of this device. [maxsim.ErrForeign] means that another one holds it.
func (b *backend) resolveOperand(o maxsim.Operand) (operand, error) {
	switch x := o.(type) {
	case *maxsim.Batch:
		return operand{tokens: newTokens(x.Shape()), batch: x}, nil
	case *heldBatch:
		if x.dev == b.dev {
			return operand{tokens: x.tokens, held: x}, nil
		}
	}
	return operand{}, maxsim.ErrForeign
}

// closed reports whether the operand is a held batch that was closed.
func (s *operand) closed() bool { return s.held != nil && s.held.mem.Ptr == 0 }

// format returns the format of the rows: for a batch, the one in which they are uploaded.
func (s *operand) format() format {
	if s.held != nil {
		return s.held.rows.format
	}
	return naturalFormat(&s.batch.Tokens)
}

// reserveOperands reserves scratch memory for the operands that are not held, in the formats for
// gradients and distances. The functions that it returns give the rows for the address of the scratch
// memory; they are nil for held operands.
func reserveOperands(a *runtime.Arena, both [2]*operand, lengths bool) (lay [2]func(driver.Ptr) packedRows, err error) {
	for i, s := range both {
		if s.batch != nil {
			lay[i] = reserveBatch(a, s.formatFor(), s.batch, s.tokenCount(), lengths)
		} else if s.closed() {
			return lay, maxsim.ErrForeign
		}
	}
	return lay, nil
}

// uploadOperands copies the operands that are not held to the device, and returns the rows of both.
func uploadOperands(
	ctx context.Context, rt *runtime.Runtime, both [2]*operand, lay [2]func(driver.Ptr) packedRows,
) (r [2]packedRows, err error) {
	for i, s := range both {
		if s.held != nil {
			r[i] = s.held.rows
			continue
		}
		r[i] = lay[i](rt.Work.Scratch.Ptr)
		if err := upload(ctx, rt, s.batch, s.tokens, r[i], 0, s.tokenCount()); err != nil {
			return r, err
		}
	}
	return r, nil
}
