package encode

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/plaid-ir/plaid/internal/floats"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/transformer"
	"github.com/plaid-ir/plaid/vectors"
)

// residentEncoding encodes the texts of a collection while they are read, and leaves the vectors
// on the device.
type residentEncoding struct {
	e       *Encoder
	vectors kernels.ResidentVectors
	ctx     context.Context // of the caller
	call    *call
	cancel  context.CancelFunc
	filling *chunk   // takes further texts; nil means that none is begun
	waiting []*chunk // submitted, oldest first
	free    []*chunk // done, for reuse
	rows    int      // vectors of the texts so far
	full    bool     // the encoding was abandoned

	payloads *payloads
}

// beginResident begins an encoding whose vectors stay on the device. nil means that the encoder
// cannot do that: it has no device, or the device no such feature.
func (e *Encoder) encodeResident(ctx context.Context) (*residentEncoding, error) {
	l, ok := e.backend.(*local)
	if !ok {
		return nil, nil
	}
	d, ok := l.engine.(*onDevice)
	if !ok {
		return nil, nil
	}
	keeper, ok := d.Model.(transformer.Keeper)
	if !ok {
		return nil, nil
	}
	if err := e.begin(); err != nil {
		return nil, err
	}
	p, err := newPayloads("")
	if err != nil {
		e.notKept(err)
		e.done()
		return nil, nil
	}
	v, err := keeper.NewVectors(ctx)
	if err != nil {
		e.done()
		return nil, errors.Join(err, p.close())
	}
	k := &residentEncoding{e: e, vectors: v, payloads: p, ctx: ctx, call: &call{role: Document, keep: v}}
	k.call.ctx, k.cancel = context.WithCancel(ctx)
	return k, nil
}

// warnNotResident logs why vectors do not stay on the device: texts are encoded again then.
func (e *Encoder) notKept(err error) {
	if log := e.options.Logger; log != nil {
		log.Warn("vectors do not stay on the device", "error", err)
	}
}

// abandon ends the encoding early, when the device or the disk with the payloads is full.
func (k *residentEncoding) giveUp(err error) {
	k.full = true
	k.e.notKept(err)
}

// addText adds a text, whose payload is stored aside and which has kept vectors. After abandon it
// does nothing.
func (k *residentEncoding) add(t entry, payload []byte, kept int) error {
	if k.full {
		return nil
	}
	if err := k.payloads.add(payload); err != nil {
		k.giveUp(err)
		return nil
	}
	c := k.filling
	if c == nil {
		if n := len(k.free); n > 0 {
			c, k.free = k.free[n-1], k.free[:n-1]
		} else {
			c = new(chunk)
		}
		clear(c.texts)
		c.texts, c.batch.IDs = c.texts[:0], c.batch.IDs[:0]
		c.err, c.first, c.done = nil, k.rows, make(chan struct{})
		k.filling = c
	}
	c.texts = append(c.texts, t)
	c.batch.IDs = append(c.batch.IDs, t.seq.ids...)
	k.rows += kept
	if !k.e.backend.full(c) {
		return nil
	}
	return k.submit(k.e.ahead())
}

// submit hands the filled chunk to the workers, and waits until at most limit chunks are
// submitted and not done.
func (k *residentEncoding) submit(left int) error {
	if c := k.filling; c != nil {
		k.e.workers.submit(k.call, c)
		k.waiting, k.filling = append(k.waiting, c), nil
	}
	for len(k.waiting) > left && !k.full {
		c := k.waiting[0]
		select {
		case <-c.done:
		case <-k.ctx.Done():
			return k.ctx.Err()
		}
		k.waiting = k.waiting[1:]
		switch {
		case c.panic != nil:
			panic(c.panic)
		case errors.Is(c.err, kernels.ErrDeviceMemory):
			k.giveUp(c.err)
		case c.err != nil:
			return c.err
		}
		k.free = append(k.free, c)
	}
	return nil
}

// finish waits for the vectors and returns them with the payloads, which the caller owns then.
// Both are nil if the encoding was abandoned or has no vectors.
func (k *residentEncoding) end() (kernels.ResidentVectors, *payloads, error) {
	err := k.submit(0)
	if err == nil && !k.full {
		if ferr := k.payloads.flush(); ferr != nil {
			k.giveUp(ferr)
		}
	}
	if err == nil && !k.full && k.rows > 0 {
		v, p := k.vectors, k.payloads
		k.vectors, k.payloads = nil, nil
		return v, p, nil
	}
	return nil, nil, err
}

// close ends the call, and releases vectors that finish has not returned, also after a panic.
func (k *residentEncoding) close() {
	if k == nil {
		return
	}
	k.cancel()
	k.e.workers.leave(k.call)
	k.e.done()
	if k.vectors != nil {
		k.vectors.Release()
		_ = k.payloads.close() // an unnamed file, which close removes
	}
}

// computeResident encodes a chunk and leaves its vectors on the device.
func (l *local) computeResident(ctx context.Context, c *chunk, b *joined) error {
	keeper, ok := l.engine.(*onDevice).Model.(transformer.Keeper)
	if !ok {
		return fmt.Errorf("%w: vectors stay on no device", errors.ErrUnsupported)
	}
	l.noteKept(b, c)
	return keeper.EncodeResident(ctx, c.of.keep, c.first, b.Batch, b.kept)
}

// fromDeviceRows is how many vectors are read from the device at a time; a document with more is
// read at once.
const fromDeviceRows = 1 << 14

// readFromDevice yields the documents of ascending rows, whose vectors it reads from the device in
// groups of at most fromDeviceRows.
func (c *Collection) fromDevice(
	ctx context.Context, v kernels.ResidentVectors, rows []int,
) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		var numbers []uint32
		var halves []byte
		var x []float32
		doc, first := 0, 0                           // a document, and the row of its first vector on the device
		for n := 0; len(rows) > 0; rows = rows[n:] { // n documents a group
			numbers = numbers[:0]
			for n = 0; n < len(rows) && (n == 0 || len(numbers)+c.Rows(rows[n]) <= fromDeviceRows); n++ {
				for ; doc < rows[n]; doc++ {
					first += c.Rows(doc)
				}
				for i := range c.Rows(doc) {
					numbers = append(numbers, uint32(first+i))
				}
			}
			values := len(numbers) * v.Dim()
			halves, x = slices.Grow(halves[:0], 2*values)[:2*values], slices.Grow(x[:0], values)[:values]
			if err := v.Read(ctx, halves, numbers); err != nil {
				yield(vectors.Document{}, err)
				return
			}
			floats.DecodeFloat16(x, halves)
			rest := x
			for _, row := range rows[:n] {
				d := vectors.Document{ID: c.ID(row), Tokens: rest[:c.Rows(row)*v.Dim()]}
				rest = rest[len(d.Tokens):]
				var err error
				if d.Payload, err = c.payloads.get(row); err != nil {
					yield(vectors.Document{}, err)
					return
				}
				if !yield(d, nil) {
					return
				}
			}
		}
	}
}
