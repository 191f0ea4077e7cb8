package cuda

import (
	"context"
	"math"
	"sync"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/driver"
)

// nearestRows is how many vectors get their centroids in one launch at most.
const nearestRows = 1 << 16

// builder is a backend that finds nearest centroids on the device.
type builder struct {
	kernels.Backend // for everything else
	dev             *Device

	mu  sync.Mutex
	err error
}

// Builder returns a backend for index builds; see [kernels.Device]. Calls of
// Nearest by several goroutines with the same prepared centroids share
// launches, so that many small calls at once are as fast as a large one.
func (d *Device) Builder(cpu kernels.Backend) kernels.Builder {
	return &builder{Backend: cpu, dev: d}
}

// Name is that of the backend and the device.
func (b *builder) Name() string { return b.Backend.Name() + "+" + b.dev.info.Name }

// Err is the first error of the device; the processor has stood in since.
func (b *builder) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

func (b *builder) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
}

// Nearest is that of [kernels.Backend].
func (b *builder) Nearest(codes []uint32, scores []float32, centroids, x []float32, dim int) {
	p, release := b.Prepare(centroids, dim)
	defer release()
	p.Nearest(codes, scores, centroids, x, dim)
}

// Prepare uploads centroids; see [kernels.Preparer].
func (b *builder) Prepare(centroids []float32, dim int) (kernels.Backend, func()) {
	if b.Err() != nil || len(centroids) < dim {
		return b.Backend, func() {}
	}
	p := &prepared{builder: b, of: &centroids[0], k: len(centroids) / dim, dim: dim}
	err := b.dev.call(context.Background(), func() error {
		err := p.upload(centroids)
		if err != nil {
			p.free()
		}
		return err
	})
	if err != nil {
		b.fail(err)
		return b.Backend, func() {}
	}
	return p, func() {
		_ = b.dev.call(context.Background(), func() error { // a closed device has freed it
			p.free()
			return nil
		})
	}
}

// prepared is centroids on the device.
type prepared struct {
	*builder
	of            *float32 // the first of them
	k, dim, width int      // width of a row in half precision; 0: not used
	exact, half   driver.Mem
	cNorm, cError float32
}

// Prepare returns the same backend for the same centroids.
func (p *prepared) Prepare(centroids []float32, dim int) (kernels.Backend, func()) {
	if len(centroids) == p.k*p.dim && dim == p.dim && &centroids[0] == p.of {
		return p, func() {}
	}
	return p.builder.Prepare(centroids, dim)
}

type nearestTask struct {
	with   *prepared
	x      []float32
	codes  []uint32
	scores []float32
}

func (t *nearestTask) rows() int { return len(t.codes) }

// Nearest is that of [kernels.Backend]; centroids are those that were prepared.
func (p *prepared) Nearest(codes []uint32, scores []float32, centroids, x []float32, dim int) {
	n := min(len(codes), len(x)/dim)
	var tasks []*task
	for lo := 0; lo < n; lo += nearestRows {
		hi := min(lo+nearestRows, n)
		t := &nearestTask{with: p, x: x[lo*dim : hi*dim], codes: codes[lo:hi]}
		if scores != nil {
			t.scores = scores[lo:hi]
		}
		tasks = append(tasks, &task{ctx: context.Background(), nearest: t})
	}
	if len(tasks) == 0 {
		return
	}
	err := p.Err()
	if err == nil {
		if err = p.dev.enqueue(tasks...); err == nil {
			err = p.dev.waitAll(tasks)
		}
	}
	if err != nil {
		p.fail(err)
		p.Backend.Nearest(codes, scores, centroids, x, dim)
	}
}

// upload brings the centroids to the device.
func (p *prepared) upload(centroids []float32) (err error) {
	d := p.dev
	d.builders[p] = true
	st := d.work.stream
	if p.exact, err = d.ctx.Alloc(4 * int64(p.k*p.dim)); err != nil {
		return err
	}
	if err := d.ctx.ToDevice(p.exact.Ptr, float32Bytes(centroids[:p.k*p.dim]), st); err != nil {
		return err
	}
	switch {
	case p.dim <= 64:
		p.width = 64
	case p.dim <= 128:
		p.width = 128
	default:
		return d.ctx.Sync(st)
	}
	rows := ceilDiv(p.k, 128) * 128
	if p.half, err = d.ctx.Alloc(2 * int64(rows*p.width)); err != nil {
		return err
	}
	norms := make([]float32, 2*p.k)
	tmp, err := d.ctx.Alloc(8 * int64(p.k))
	if err != nil {
		return err
	}
	defer func() {
		if ferr := d.ctx.Free(tmp); err == nil {
			err = ferr
		}
	}()
	if err := p.toHalf(p.exact.Ptr, p.half.Ptr, tmp.Ptr, tmp.At(4*int64(p.k)), p.k, rows); err != nil {
		return err
	}
	if err := d.ctx.ToHost(float32Bytes(norms), tmp.Ptr, st); err != nil {
		return err
	}
	if err := d.ctx.Sync(st); err != nil {
		return err
	}
	for i := range p.k {
		p.cNorm, p.cError = max(p.cNorm, norms[i]), max(p.cError, norms[p.k+i])
	}
	p.cNorm, p.cError = up(p.cNorm), up(p.cError)
	return nil
}

// up is a little more than v, for what rounding took.
func up(v float32) float32 { return math.Nextafter32(v*(1+1e-5), float32(math.Inf(1))) }

func (p *prepared) toHalf(in, out, norms, errs driver.Ptr, n, rows int) error {
	k := p.dev.kernels
	k.args.half = halfParams{in: in, out: out, norms: norms, errors: errs, n: uint32(n), rows: uint32(rows), dim: uint32(p.dim), width: uint32(p.width)}
	return launch(k, "to_half", ceilDiv(rows, 8), 1, 1, 256, 0, p.dev.work.stream, &k.args.half)
}

func (p *prepared) free() {
	d := p.dev
	_ = d.ctx.Free(p.exact)
	_ = d.ctx.Free(p.half)
	p.exact, p.half = driver.Mem{}, driver.Mem{}
	delete(d.builders, p)
	if len(d.builders) == 0 && len(d.attachments) == 0 {
		d.work.release(d.ctx)
	}
}

// nearestBatch answers calls of Nearest with the same centroids. It waits for
// the device.
func (d *Device) nearestBatch(tasks []*task) error {
	p := tasks[0].nearest.with
	if p.exact.Ptr == 0 {
		return kernels.ErrDeviceClosed
	}
	n := 0
	for _, t := range tasks {
		n += t.nearest.rows()
	}
	rows := ceilDiv(n, 128) * 128
	var in, out, tmp arena
	x := in.take(4 * int64(n*p.dim))
	codes, scores := out.take(4*int64(n)), out.take(4*int64(n))
	half, norms, errs := tmp.take(2*int64(rows*p.width)), tmp.take(4*int64(n)), tmp.take(4*int64(n))
	slots := tmp.take(16 * 16 * int64(rows))
	w, c, st := &d.work, d.ctx, d.work.stream
	if err := w.reserve(c, in.size, out.size, tmp.size, 0); err != nil {
		return err
	}
	at := x
	for _, t := range tasks {
		at += copyWide(w.hostIn.Data[at:], float32Bytes(t.nearest.x))
	}
	if err := c.ToDevice(w.in.Ptr, w.hostIn.Data[:at], st); err != nil {
		return err
	}
	k := d.kernels
	a := &k.args.nearest
	*a = nearestParams{
		x: w.in.At(x), centroids: p.exact.Ptr, codes: w.out.At(codes), scores: w.out.At(scores),
		n: uint32(n), k: uint32(p.k), dim: uint32(p.dim), width: uint32(p.width), cNorm: p.cNorm, cError: p.cError,
	}
	if p.width == 0 {
		if err := launch(k, "nearest_any", ceilDiv(n, 32), 1, 1, 256, 0, st, a); err != nil {
			return err
		}
	} else {
		a.xHalf, a.cHalf, a.xNorms, a.xErrors, a.slots = w.scratch.At(half), p.half.Ptr, w.scratch.At(norms), w.scratch.At(errs), w.scratch.At(slots)
		if err := p.toHalf(a.x, a.xHalf, a.xNorms, a.xErrors, n, rows); err != nil {
			return err
		}
		name := "nearest64"
		if p.width == 128 {
			name = "nearest128"
		}
		if err := launch(k, name, ceilDiv(n, 128), 1, 1, 256, 512*p.width, st, a); err != nil {
			return err
		}
		if err := launch(k, "nearest_exact", ceilDiv(n, 8), 1, 1, 256, 0, st, a); err != nil {
			return err
		}
	}
	if err := c.ToHost(w.hostOut.Data[:out.size], w.out.Ptr, st); err != nil {
		return err
	}
	if err := c.Sync(st); err != nil {
		return err
	}
	row := int64(0)
	for _, t := range tasks {
		m := int64(t.nearest.rows())
		copy(uint32Bytes(t.nearest.codes), w.hostOut.Data[codes+4*row:codes+4*(row+m)])
		if t.nearest.scores != nil {
			copy(float32Bytes(t.nearest.scores), w.hostOut.Data[scores+4*row:scores+4*(row+m)])
		}
		row += m
	}
	return nil
}

// copyWide is copy by several goroutines, which one is too slow for.
func copyWide(dst, src []byte) int64 {
	const part = 1 << 20
	each(8*((len(src)+8*part-1)/(8*part)), func(i int) {
		n := 8 * ((len(src) + 8*part - 1) / (8 * part))
		lo, hi := len(src)*i/n, len(src)*(i+1)/n
		copy(dst[lo:hi], src[lo:hi])
	})
	return int64(len(src))
}
