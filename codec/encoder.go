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

	device        *deviceEncoder // nil if there is none, or it finds nearest centroids only
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
		d := &deviceEncoder{codec: c, threads: e.threads}
		if d.TokenEncoder, e.releaseDevice, err = p.PrepareEncoder(ctx, &c.kernel, centroids, e.unit); err != nil {
			e.release()
			return err
		}
		e.device = d
	}
	return nil
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
	to := e.device.room(dst, n)
	err := e.device.EncodeTokens(ctx, to, x)
	if err == nil {
		err = e.encodeLeft(ctx, to, x)
	}
	return e.device.settle(ctx, dst, n, err)
}

// Resident reports whether the encoder's device is the one that vectors lie on, and whole tokens
// are encoded there.
func (e *Encoder) Resident(v kernels.ResidentVectors) bool {
	b, ok := e.backend.(kernels.ResidentBuilder)
	if !ok || e.device == nil {
		return false
	}
	_, encodes := e.device.TokenEncoder.(kernels.ResidentEncoder)
	return encodes && b.Holds(v)
}

// EncodeResident is Encode of n vectors that lie on the device ([Encoder.Resident]), from first on.
func (e *Encoder) EncodeResident(ctx context.Context, dst *Block, v kernels.ResidentVectors, first, n int) error {
	to := e.device.room(dst, n)
	err := e.device.TokenEncoder.(kernels.ResidentEncoder).EncodeResident(ctx, to, v, first)
	return e.device.settle(ctx, dst, n, err)
}

// room is where n tokens go that are appended to a block.
func (d *deviceEncoder) room(dst *Block, n int) kernels.EncodedTokens {
	_, residuals, _ := dst.grow(d.codec, n)
	d.codes, d.factors, d.errors = resize(d.codes, n), resize(d.factors, n), resize(d.errors, n)
	return kernels.EncodedTokens{Codes: d.codes, Residuals: residuals, Factors: d.factors, Errors: d.errors}
}

// settle completes the block, or takes the n tokens back after an error.
func (d *deviceEncoder) settle(ctx context.Context, dst *Block, n int, err error) error {
	if err == nil {
		err = d.complete(ctx, dst, n)
	}
	if err != nil {
		dst.shrink(d.codec, n)
	}
	return err
}

func (d *deviceEncoder) complete(ctx context.Context, dst *Block, n int) error {
	c := d.codec
	codes, factors := dst.Codes[len(dst.Codes)-n*c.CodeBytes():], dst.Factors[len(dst.Factors)-2*n:]
	// In blocks as on the processor, so that sums have the same bits.
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
			if math.Signbit(d.errors[t]) {
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
		total.addTo(dst)
	}
	return nil
}

// encodeLeft encodes the rows that a device could not encode.
func (e *Encoder) encodeLeft(ctx context.Context, to kernels.EncodedTokens, x []float32) error {
	c := e.codec
	rb := c.RowBytes()
	for t, code := range to.Codes {
		if int64(code) < int64(c.K) {
			continue
		}
		row := x[t*c.Dim : (t+1)*c.Dim]
		if e.unit {
			Normalize(row, c.Dim)
		}
		if err := e.backend.Nearest(ctx, to.Codes[t:t+1], nil, c.Centroids(), row, c.Dim); err != nil {
			return err
		}
		s := &e.device.scratch
		s.prepare(c)
		r := c.encodeToken(to.Residuals[t*rb:(t+1)*rb], s, row, to.Codes[t])
		if to.Factors[t], to.Errors[t] = r.factor, r.error; r.clamped {
			to.Errors[t] = -r.error
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
