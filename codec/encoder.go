package codec

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
)

// Encoder encodes many runs of tokens with one codec, on the processor or on a device,
// which holds what it needs of the codec until Close. It is for one goroutine at a time.
type Encoder struct {
	codec   *Quantizer
	threads int
	unit    bool
	backend kernels.Backend
	release func()

	// Of a device; nil: there is none, or it finds nearest centroids alone.
	device        kernels.TokenEncoder
	releaseDevice func()
	codes         []uint32
	factors       []int16
	errors        []float64
	scratch       encodeScratch
}

// NewEncoder prepares a backend (nil: the default one) for the codec; threads as of
// [Quantizer.Encode]. With unit, vectors are scaled to unit length first, as
// [Normalize] does. Errors are those of ctx and be, or wrap [ErrNoCutoffs] or
// [kernels.ErrUnavailable].
//
// A device that can encodes whole tokens. Those of codecs with a table of weights and of
// [Flat] codecs get only their nearest centroids there.
func (c *Quantizer) NewEncoder(ctx context.Context, threads int, be kernels.Backend, unit bool) (*Encoder, error) {
	e := &Encoder{codec: c, threads: threads, unit: unit}
	if err := e.prepare(ctx, be); err != nil {
		return nil, err
	}
	return e, nil
}

func (e *Encoder) prepare(ctx context.Context, be kernels.Backend) (err error) {
	c := e.codec
	uniform := c.kernel.Codebook.Uniform()
	if c.buckets == nil && !uniform {
		return ErrNoCutoffs
	}
	if be == nil {
		if be, err = kernels.Select(""); err != nil {
			return fmt.Errorf("codec: %w", err)
		}
	}
	centroids := c.Centroids() // not inside a worker: the others would wait
	if e.backend, e.release, err = kernels.Prepare(ctx, be, centroids, c.Dim); err != nil {
		return err
	}
	e.releaseDevice = func() {}
	if p, ok := e.backend.(kernels.EncoderPreparer); ok && uniform && !c.flat {
		if e.device, e.releaseDevice, err = p.PrepareEncoder(ctx, &c.kernel, centroids, e.unit); err != nil {
			e.release()
		}
	}
	return err
}

// Close gives back what a device holds.
func (e *Encoder) Close() {
	e.releaseDevice()
	e.release()
}

// Encode appends the rows of x as [Quantizer.Encode] does. An encoder that scales
// vectors may do so in x.
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
	codes, residuals, factors := dst.grow(c, n)
	e.codes, e.factors, e.errors = resize(e.codes, n), resize(e.factors, n), resize(e.errors, n)
	err := e.device.EncodeTokens(ctx, kernels.EncodedTokens{Codes: e.codes, Residuals: residuals, Factors: e.factors, Errors: e.errors}, x)
	if err == nil {
		err = e.encodeLeft(ctx, residuals, x)
	}
	if err != nil {
		dst.shrink(c, n)
		return err
	}
	// In blocks as on the processor, so that sums have the same bits.
	for i := range parallel.Blocks(n, blockRows) {
		lo, hi := parallel.Block(i, n, blockRows)
		var total blockTotal
		for t := lo; t < hi; t++ {
			if c.CodeBytes() == 2 {
				binary.LittleEndian.PutUint16(codes[2*t:], uint16(e.codes[t]))
			} else {
				binary.LittleEndian.PutUint32(codes[4*t:], e.codes[t])
			}
			binary.LittleEndian.PutUint16(factors[2*t:], uint16(e.factors[t]))
			if e.factors[t] == 0 {
				total.zero++
			}
			if math.Signbit(e.errors[t]) {
				total.clamped++
			}
			total.sumSq += math.Abs(e.errors[t])
		}
		total.addTo(dst)
	}
	return nil
}

// encodeLeft encodes the rows that a device could not encode.
func (e *Encoder) encodeLeft(ctx context.Context, residuals []byte, x []float32) error {
	c := e.codec
	rb := c.RowBytes()
	for t, code := range e.codes {
		if int64(code) < int64(c.K) {
			continue
		}
		row := x[t*c.Dim : (t+1)*c.Dim]
		if e.unit {
			Normalize(row, c.Dim)
		}
		if err := e.backend.Nearest(ctx, e.codes[t:t+1], nil, c.Centroids(), row, c.Dim); err != nil {
			return err
		}
		e.scratch.prepare(c)
		r := c.encodeToken(residuals[t*rb:(t+1)*rb], &e.scratch, row, e.codes[t])
		if e.factors[t], e.errors[t] = r.factor, r.error; r.clamped {
			e.errors[t] = -r.error
		}
	}
	return nil
}

// blockRows is the number of rows handed to a backend at once: enough to
// amortise the pass over the centroids. It is fixed, so that sums over blocks
// do not depend on the number of threads.
const blockRows = 2048

// workers is the number of goroutines that n items in blocks of that size
// deserve; threads below 1 means all processors.
func workers(n, size, threads int) int {
	return parallel.Threads(threads, parallel.Blocks(n, size))
}

// forBlocks calls fn for every block of size items of 0..n and waits for all of
// them. After an error or cancellation the remaining blocks are skipped.
func forBlocks(ctx context.Context, n, size, threads int, fn func(worker, block, lo, hi int) error) error {
	var p parallel.Pool
	return p.Run(ctx, parallel.Blocks(n, size), threads, parallel.Func(func(worker, i int) error {
		lo, hi := parallel.Block(i, n, size)
		return fn(worker, i, lo, hi)
	}))
}
