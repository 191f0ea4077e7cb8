package codec

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
)

// Encoder encodes tokens with one codec in many calls, on the processor or on a device. The device keeps
// the arrays of the codec until Close. It is for one goroutine at a time.
type Encoder struct {
	codec   *Quantizer
	threads int
	unit    bool
	backend kernels.Backend
	release func()

	device        *deviceEncoder // nil if no device can encode whole tokens
	releaseDevice func()
}

// deviceEncoder encodes whole tokens on a device.
type deviceEncoder struct {
	kernels.TokenEncoder
	codec   *Quantizer
	threads int
	codes   []uint32
	factors []int16
	errors  []float64
	scratch encodeScratch
}

// NewEncoder prepares a backend, nil means the default one, for the codec. threads is as in
// [Quantizer.Encode]. unit means that vectors are scaled to unit length first, as by [Normalize]. Errors are
// those of ctx and be, or wrap [ErrNoCutoffs] or [kernels.ErrUnavailable].
//
// A device encodes whole tokens if it can. For codecs with a table of weights, and for [NewFlat] codecs, it only
// finds the nearest centroids.
func (c *Quantizer) NewEncoder(ctx context.Context, threads int, be kernels.Backend, unit bool) (*Encoder, error) {
	e := &Encoder{codec: c, threads: threads, unit: unit}
	if err := e.prepareBackend(ctx, be); err != nil {
		return nil, err
	}
	return e, nil
}

// prepareBackend prepares the backend. After an error nothing has to be released.
func (e *Encoder) prepareBackend(ctx context.Context, be kernels.Backend) (err error) {
	// Check that the codec can encode.
	c := e.codec
	uniform := c.kernel.Codebook.Uniform()
	if c.buckets == nil && !uniform { // buckets are made of cutoffs; uniform levels need none
		return ErrNoCutoffs
	}
	if be == nil {
		if be, err = kernels.Select(""); err != nil {
			return fmt.Errorf("codec: %w", err)
		}
	}
	// Give the centroids to the backend.
	centroids := c.Centroids() // decodes them once, before workers start: later they would wait for the first of them
	if e.backend, e.release, err = kernels.Prepare(ctx, be, centroids, c.Dim); err != nil {
		return err
	}
	// Give the codec to a device that encodes whole tokens.
	e.releaseDevice = func() {}
	if p, ok := e.backend.(kernels.EncoderPreparer); ok && uniform && !c.flat {
		d := &deviceEncoder{codec: c, threads: e.threads}
		if d.TokenEncoder, e.releaseDevice, err = p.PrepareEncoder(ctx, &c.kernel, centroids, e.unit); err != nil {
			e.release()
			return err
		}
		e.device = d
	}
	return nil
}

// Close frees the memory on a device.
func (e *Encoder) Close() {
	e.releaseDevice()
	e.release()
}

// Encode appends the rows of x, as [Quantizer.Encode] does. An encoder that scales vectors may change x.
func (e *Encoder) Encode(ctx context.Context, dst *Block, x []float32) error {
	c := e.codec
	if len(x)%c.Dim != 0 {
		return fmt.Errorf("%w: %d values are no whole vectors of dimension %d", ErrShape, len(x), c.Dim)
	}
	n := len(x) / c.Dim
	if e.device == nil {
		dst.job.x, dst.job.backend, dst.job.unit = x, e.backend, e.unit
		return c.runJob(ctx, dst, n, e.threads)
	}
	tokens := e.device.appendTokens(dst, n)
	err := e.device.EncodeTokens(ctx, tokens, x)
	if err == nil {
		err = e.encodeSkippedRows(ctx, tokens, x)
	}
	return e.device.completeOrRemove(ctx, dst, n, err)
}

// CanEncodeResident reports whether the vectors are on the device of the encoder, and the device encodes whole
// tokens.
func (e *Encoder) CanEncodeResident(v kernels.ResidentVectors) bool {
	b, ok := e.backend.(kernels.ResidentBuilder)
	if !ok || e.device == nil {
		return false
	}
	_, encodes := e.device.TokenEncoder.(kernels.ResidentEncoder)
	return encodes && b.HasVectors(v)
}

// EncodeResident is Encode for n vectors on the device ([Encoder.CanEncodeResident]), from first on.
func (e *Encoder) EncodeResident(ctx context.Context, dst *Block, v kernels.ResidentVectors, first, n int) error {
	tokens := e.device.appendTokens(dst, n)
	err := e.device.TokenEncoder.(kernels.ResidentEncoder).EncodeResident(ctx, tokens, v, first)
	return e.device.completeOrRemove(ctx, dst, n, err)
}

// appendTokens appends n tokens to a block, and returns the memory into which the device encodes them.
func (d *deviceEncoder) appendTokens(dst *Block, n int) kernels.EncodedTokens {
	_, residuals, _ := dst.appendTokens(d.codec, n)
	d.codes, d.factors, d.errors = resize(d.codes, n), resize(d.factors, n), resize(d.errors, n)
	return kernels.EncodedTokens{Codes: d.codes, Residuals: residuals, Factors: d.factors, Errors: d.errors}
}

// completeOrRemove completes the last n tokens of the block, or removes them after an error of the device.
func (d *deviceEncoder) completeOrRemove(ctx context.Context, dst *Block, n int, err error) error {
	if err == nil {
		err = d.storeTokens(ctx, dst, n)
	}
	if err != nil {
		dst.removeTokens(d.codec, n)
	}
	return err
}

// storeTokens stores codes and factors of the last n tokens in the block, and adds their totals.
func (d *deviceEncoder) storeTokens(ctx context.Context, dst *Block, n int) error {
	c := d.codec
	codes, factors := dst.Codes[len(dst.Codes)-n*c.CodeBytes():], dst.Factors[len(dst.Factors)-2*n:]
	// Sum in the same blocks as on the processor, so that sums have the same bits.
	totals := make([]blockTotal, parallel.Blocks(n, blockRows))
	err := forBlocks(ctx, n, blockRows, d.threads, func(_, block, lo, hi int) error {
		total := &totals[block]
		for t := lo; t < hi; t++ {
			if c.CodeBytes() == 2 {
				binary.LittleEndian.PutUint16(codes[2*t:], uint16(d.codes[t]))
			} else {
				binary.LittleEndian.PutUint32(codes[4*t:], d.codes[t])
			}
			binary.LittleEndian.PutUint16(factors[2*t:], uint16(d.factors[t]))
			if d.factors[t] == 0 {
				total.zero++
			}
			if math.Signbit(d.errors[t]) { // the device marks a clamped factor by the sign of the error
				total.clamped++
			}
			total.sumSq += math.Abs(d.errors[t])
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, total := range totals {
		total.addToBlock(dst)
	}
	return nil
}

// encodeSkippedRows encodes the rows that the device could not encode.
func (e *Encoder) encodeSkippedRows(ctx context.Context, tokens kernels.EncodedTokens, x []float32) error {
	c := e.codec
	rowBytes := c.RowBytes()
	for t, code := range tokens.Codes {
		if int64(code) < int64(c.K) { // a code of K or more marks such a row
			continue
		}
		row := x[t*c.Dim : (t+1)*c.Dim]
		if e.unit {
			Normalize(row, c.Dim)
		}
		if err := e.backend.Nearest(ctx, tokens.Codes[t:t+1], nil, c.Centroids(), row, c.Dim); err != nil {
			return err
		}
		s := &e.device.scratch
		s.allocate(c)
		r := c.encodeToken(tokens.Residuals[t*rowBytes:(t+1)*rowBytes], s, row, tokens.Codes[t])
		if tokens.Factors[t], tokens.Errors[t] = r.factor, r.squaredError; r.clamped {
			tokens.Errors[t] = -r.squaredError
		}
	}
	return nil
}

// blockRows is the number of rows that a backend gets at a time, which is enough to amortise the pass over
// the centroids. It is constant, so that sums over blocks do not depend on the number of threads.
const blockRows = 2048

// workers returns the number of goroutines for n items in blocks of the given size. threads below 1 means
// all processors.
func workers(n, size, threads int) int {
	return parallel.Threads(threads, parallel.Blocks(n, size))
}

// forBlocks calls visit for every block of size items of 0..n, in several goroutines, and waits for them.
// After an error or cancellation it skips the remaining blocks.
func forBlocks(ctx context.Context, n, size, threads int, visit func(worker, block, lo, hi int) error) error {
	var p parallel.Pool
	return p.Run(ctx, parallel.Blocks(n, size), threads, parallel.Func(func(worker, i int) error {
		lo, hi := parallel.Block(i, n, size)
		return visit(worker, i, lo, hi)
	}))
}
