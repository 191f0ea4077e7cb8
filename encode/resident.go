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
	encoder   *Encoder
	vectors   kernels.ResidentVectors
	ctx       context.Context // of the caller
	call      *encodeCall
	cancel    context.CancelFunc
	filling   *chunk   // takes further texts. nil means that no chunk is begun
	submitted []*chunk // submitted, oldest first
	free      []*chunk // done, for reuse
	rows      int      // vectors of the texts so far
	abandoned bool     // the encoding was abandoned

	payloads *payloads
}

// beginResident begins an encoding whose vectors stay on the device. nil means that the encoder
// cannot do that: it has no device, or the device no such feature.
func (e *Encoder) beginResident(ctx context.Context) (*residentEncoding, error) {
	l, ok := e.backend.(*local)
	if !ok {
		return nil, nil
	}
	d, ok := l.engine.(*onDevice)
	if !ok {
		return nil, nil
	}
	model, ok := d.Model.(transformer.ResidentModel)
	if !ok {
		return nil, nil
	}
	if err := e.beginCall(); err != nil {
		return nil, err
	}
	p, err := newPayloads("")
	if err != nil {
		e.warnNotResident(err)
		e.endCall()
		return nil, nil
	}
	v, err := model.NewVectors(ctx)
	if err != nil {
		e.endCall()
		return nil, errors.Join(err, p.close())
	}
	k := &residentEncoding{
		encoder:  e,
		vectors:  v,
		payloads: p,
		ctx:      ctx,
		call:     &encodeCall{role: Document, resident: v},
	}
	k.call.ctx, k.cancel = context.WithCancel(ctx)
	return k, nil
}

// warnNotResident logs why vectors do not stay on the device: texts are encoded again then.
func (e *Encoder) warnNotResident(err error) {
	if log := e.options.Logger; log != nil {
		log.Warn("vectors do not stay on the device", "error", err)
	}
}

// abandon ends the encoding early, when the device or the disk with the payloads is full.
func (k *residentEncoding) abandon(err error) {
	k.abandoned = true
	k.encoder.warnNotResident(err)
}

// addText adds a text with kept vectors to the current chunk, and stores its payload. It submits the
// chunk when it is full. After abandon it does nothing.
func (k *residentEncoding) addText(t chunkText, payload []byte, kept int) error {
	if k.abandoned {
		return nil
	}
	if err := k.payloads.add(payload); err != nil {
		k.abandon(err)
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
		c.err, c.firstRow, c.done = nil, k.rows, make(chan struct{})
		k.filling = c
	}
	c.texts = append(c.texts, t)
	c.batch.IDs = append(c.batch.IDs, t.seq.ids...)
	k.rows += kept
	if !k.encoder.backend.isFull(c) {
		return nil
	}
	return k.submit(k.encoder.maxChunks())
}

// submit hands the filled chunk to the workers, and waits until at most limit chunks are
// submitted and not done.
func (k *residentEncoding) submit(limit int) error {
	if c := k.filling; c != nil {
		k.encoder.workers.submit(k.call, c)
		k.submitted, k.filling = append(k.submitted, c), nil
	}
	for len(k.submitted) > limit && !k.abandoned {
		c := k.submitted[0]
		select {
		case <-c.done:
		case <-k.ctx.Done():
			return k.ctx.Err()
		}
		k.submitted = k.submitted[1:]
		switch {
		case c.panic != nil:
			panic(c.panic)
		case errors.Is(c.err, kernels.ErrDeviceMemory):
			k.abandon(c.err)
		case c.err != nil:
			return c.err
		}
		k.free = append(k.free, c)
	}
	return nil
}

// finish waits for the vectors and returns them with the payloads, which the caller owns then.
// Both are nil if the encoding was abandoned or has no vectors.
func (k *residentEncoding) finish() (kernels.ResidentVectors, *payloads, error) {
	err := k.submit(0)
	if err == nil && !k.abandoned {
		if ferr := k.payloads.flush(); ferr != nil {
			k.abandon(ferr)
		}
	}
	if err == nil && !k.abandoned && k.rows > 0 {
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
	k.encoder.workers.cancelWaiting(k.call)
	k.encoder.endCall()
	if k.vectors != nil {
		k.vectors.Release()
		_ = k.payloads.close() // an unnamed file, which close removes
	}
}

// computeResident encodes a chunk and leaves its vectors on the device.
func (l *local) computeResident(ctx context.Context, c *chunk, b *engineBatch) error {
	model, ok := l.engine.(*onDevice).Model.(transformer.ResidentModel)
	if !ok {
		return fmt.Errorf("%w: vectors stay on no device", errors.ErrUnsupported)
	}
	l.setKept(b, c)
	return model.EncodeResident(ctx, c.call.resident, c.firstRow, b.Batch, b.kept)
}

// deviceReadRows is how many vectors are read from the device at a time; a document with more is
// read at once.
const deviceReadRows = 1 << 14

// readFromDevice yields the documents of ascending rows, whose vectors it reads from the device in
// groups of at most deviceReadRows.
func (c *Collection) readFromDevice(
	ctx context.Context, v kernels.ResidentVectors, rows []int,
) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		var deviceRows []uint32
		var halves []byte
		var x []float32
		doc, first := 0, 0                           // a document, and the row of its first vector on the device
		for n := 0; len(rows) > 0; rows = rows[n:] { // n: documents of the group
			deviceRows = deviceRows[:0]
			for n = 0; n < len(rows) && (n == 0 || len(deviceRows)+c.Rows(rows[n]) <= deviceReadRows); n++ {
				for ; doc < rows[n]; doc++ {
					first += c.Rows(doc)
				}
				for i := range c.Rows(doc) {
					deviceRows = append(deviceRows, uint32(first+i))
				}
			}
			values := len(deviceRows) * v.Dim()
			halves, x = slices.Grow(halves[:0], 2*values)[:2*values], slices.Grow(x[:0], values)[:values]
			if err := v.Read(ctx, halves, deviceRows); err != nil {
				yield(vectors.Document{}, err)
				return
			}
			floats.DecodeFloat16(x, halves)
			remaining := x
			for _, row := range rows[:n] {
				d := vectors.Document{ID: c.ID(row), Tokens: remaining[:c.Rows(row)*v.Dim()]}
				remaining = remaining[len(d.Tokens):]
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
