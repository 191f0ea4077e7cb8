package dense

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// inPlace is a backend whose scores are those of a Device: batches are brought to the device's
// memory and lie there as torch would have them. All else is the backend's.
type inPlace struct {
	maxsim.Backend
	d *Device
	// shift is the number of elements from an aligned address to data.
	shift  int
	stream driver.Stream
	mem    []driver.Mem
}

// besideBackend returns a backend whose scores are those of d.
func besideBackend(t testing.TB, d *Device, b maxsim.Backend) *inPlace {
	x := &inPlace{Backend: b, d: d}
	require.NoError(t, d.onStream(0, func() (err error) {
		x.stream, err = d.rt.Driver.NewStream()
		return err
	}))
	t.Cleanup(func() {
		require.NoError(t, d.onStream(0, func() error { return d.rt.Driver.FreeStream(x.stream) }))
		require.NoError(t, d.Close())
	})
	return x
}

// fakeInPlace is a fake device, of compute capability 9.0 if hopper.
func fakeInPlace(t testing.TB, hopper bool) (*inPlace, *drivertest.Fake) {
	f := runtimetest.Fake(hopperKernels())
	modules := runtimetest.Modules()
	if hopper {
		modules = runtimetest.Hopper(f)
	}
	return inPlaceOf(t, f, modules, runtimetest.Fake(fakeKernels())), f
}

// inPlaceOf scores on the device of a fake driver; all else is done by a backend of another driver.
func inPlaceOf(t testing.TB, f *drivertest.Fake, modules fs.FS, other *drivertest.Fake) *inPlace {
	t.Cleanup(func() { runtimetest.RequireNothingOut(t, f, nil) })
	infos, err := driver.Devices(f.API())
	require.NoError(t, err)
	d, err := NewDevice(f.API(), infos[0], modules)
	require.NoError(t, err)
	return besideBackend(t, d, New(runtimetest.OpenFake(t, other)))
}

// alloc takes memory that lasts until the end of a call.
func (x *inPlace) alloc(bytes int) driver.Ptr {
	m, err := x.d.rt.Driver.Alloc(int64(max(bytes, 1)) + 64)
	if err != nil {
		panic(err)
	}
	x.mem = append(x.mem, m)
	return m.Ptr
}

// bytes brings an array to the device; 0 where there is none.
func (x *inPlace) bytes(b []byte, shift int) uint64 {
	if b == nil {
		return 0
	}
	p := x.alloc(len(b) + shift).Add(int64(shift))
	if err := x.d.rt.Driver.ToDevice(p, b, x.stream); err != nil {
		panic(err)
	}
	return uint64(p)
}

func int32s(x []int) []byte {
	if x == nil {
		return nil
	}
	y := make([]int32, len(x))
	for i, v := range x {
		y[i] = int32(v)
	}
	return runtime.Bytes(y)
}

// spreadOut pads a packed batch that has a mask, which in place only padded ones have.
func spreadOut(b *maxsim.Batch, weights []float32) (*maxsim.Batch, []float32) {
	if b.Offsets == nil || b.Mask == nil {
		return b, weights
	}
	stride := b.MaxRows() + 2
	m := b.Tokens
	size := m.Type.Size() * m.Dim
	rows := b.Len() * stride
	to := make([]byte, rows*size)
	y := &maxsim.Batch{Tokens: maxsim.Matrix{Type: m.Type, Dim: m.Dim}, Layout: maxsim.Layout{Count: b.Len(),
		Stride: stride, Mask: make([]bool, rows)}}
	if m.Scales != nil {
		y.Tokens.Scales = make([]float32, rows)
	}
	if m.Zeros != nil {
		y.Tokens.Zeros = make([]int8, rows)
	}
	var w []float32
	if weights != nil {
		w = make([]float32, rows)
	}
	for i := range b.Len() {
		lo, hi := b.Span(i)
		for r := lo; r < hi; r++ {
			at := i*stride + r - lo
			copy(to[at*size:], elementBytes(&m)[r*size:(r+1)*size])
			y.Mask[at] = b.Mask[r]
			if m.Scales != nil {
				y.Tokens.Scales[at] = m.Scales[r]
			}
			if m.Zeros != nil {
				y.Tokens.Zeros[at] = m.Zeros[r]
			}
			if w != nil {
				w[at] = weights[r]
			}
		}
	}
	switch m.Type {
	case maxsim.F32:
		y.Tokens.F32 = structsFrom[float32](to, rows*m.Dim)
	case maxsim.F16, maxsim.BF16:
		y.Tokens.U16 = structsFrom[uint16](to, rows*m.Dim)
	case maxsim.I8:
		y.Tokens.I8 = structsFrom[int8](to, rows*m.Dim)
	default:
		y.Tokens.U8 = to
	}
	return y, w
}

// bring brings a batch to the device. Rows that are no tokens are NaN, where the type has it.
func (x *inPlace) bring(b *maxsim.Batch, longest int) Batch {
	m := b.Tokens
	data := slices.Clone(elementBytes(&m))
	y := Batch{Type: m.Type, Dim: m.Dim, Items: b.Len(), Rows: m.Rows(), Longest: longest, Stride: b.Stride}
	token := make([]bool, y.Rows)
	for i := range y.Items {
		lo, hi := b.Span(i)
		for r := lo; r < hi; r++ {
			token[r] = b.IsToken(r)
		}
	}
	for r, is := range token {
		if size := m.Type.Size() * m.Dim; !is && m.Type != maxsim.I8 {
			for i := range data[r*size : (r+1)*size] {
				data[r*size+i] = 0x7F + byte(m.Type.Size()/2*(i%m.Type.Size())*0x80) // NaN
			}
		}
	}
	if m.Scales != nil {
		y.Scales = x.bytes(runtime.Bytes(m.Scales), 0)
	}
	if m.Zeros != nil {
		y.Zeros = x.bytes(runtime.Bytes(m.Zeros), 0)
	}
	y.Data = x.bytes(data, x.shift*m.Type.Size())
	switch {
	case b.Offsets != nil:
		y.Offsets = x.bytes(int32s(b.Offsets), 0)
	case b.Mask != nil:
		y.MaskStride = b.Stride
		if len(b.Mask)%2 == 1 {
			y.MaskStride += 3
		}
		mask := make([]byte, y.Items*y.MaskStride)
		for r := range min(y.Items*b.Stride, y.Rows) {
			if token[r] {
				mask[r/b.Stride*y.MaskStride+r%b.Stride] = byte(1 + r%200)
			}
		}
		y.Mask = x.bytes(mask, 0)
	case b.Lengths != nil:
		y.Lengths = x.bytes(int32s(b.Lengths), 0)
	}
	return y
}

// pairs brings pairs to the device: those that a PairList has no kind for are listed.
func (x *inPlace) pairs(p *maxsim.Pairs, n, nq, nd int) PairList {
	switch {
	case p.Kind == maxsim.AllPairs && n == nq*nd:
		return PairList{}
	case p.Kind == maxsim.CandidatePairs && p.Docs == nil && p.K*nq == nd:
		return PairList{Kind: PairsOwn, Count: p.K}
	}
	queries, docs := make([]int32, n), make([]int32, n)
	for i := range n {
		var q, d int
		if p.Kind == maxsim.AllPairs {
			q, d = i/(n/nq), p.First+i%(n/nq)
		} else {
			q, d = p.PairAt(i, nd)
		}
		queries[i], docs[i] = int32(q), int32(d)
	}
	return PairList{Kind: PairsListed, Count: n, Queries: x.bytes(runtime.Bytes(queries), 0),
		Documents: x.bytes(runtime.Bytes(docs), 0)}
}

// scoreCall brings a call to the device, but for its workspace.
func (x *inPlace) scoreCall(c *maxsim.Call, w maxsim.Work) *ScoreCall {
	q, weights := spreadOut(c.Q.(*maxsim.Batch), c.Weights)
	d, _ := spreadOut(c.D.(*maxsim.Batch), nil)
	call := &ScoreCall{Q: x.bring(q, q.MaxRows()), D: x.bring(d, d.MaxRows()), Normalize: c.Normalize,
		Pairs: x.pairs(&c.Pairs, w.Pairs, w.Q.Len(), w.D.Len())}
	if weights != nil {
		call.Weights = x.bytes(runtime.Bytes(weights), 0)
	}
	call.Scores = uint64(x.alloc(4 * w.Pairs))
	if c.Argmax != nil {
		call.Argmax = uint64(x.alloc(4 * w.Pairs * call.Q.Longest))
	}
	call.Place.Stream = uint64(x.stream.Handle())
	return call
}

// with calls fn with the device, and frees what it took.
func (x *inPlace) with(fn func(c *driver.Context, s driver.Stream) error) error {
	return x.d.onStream(0, func() error {
		defer func() {
			_ = x.d.rt.Driver.Sync(x.stream)
			for _, m := range x.mem {
				_ = x.d.rt.Driver.Free(m)
			}
			x.mem = nil
		}()
		return fn(x.d.rt.Driver, x.stream)
	})
}

func (x *inPlace) Score(ctx context.Context, c *maxsim.Call) error {
	w, err := c.Check()
	if err != nil || w.Pairs == 0 {
		return err
	}
	for _, o := range []maxsim.Operand{c.Q, c.D} {
		if b, ok := o.(*maxsim.Batch); !ok || b.Tokens.Type == maxsim.Compressed {
			return x.Backend.Score(ctx, c)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return x.with(func(dc *driver.Context, s driver.Stream) error {
		call := x.scoreCall(c, w)
		if err := x.unlocked(func() error { return x.room(call) }); err != nil {
			return err
		}
		if err := x.unlocked(func() error { return x.d.Score(call) }); err != nil {
			return err
		}
		scores := make([]float32, w.Pairs)
		argmax := make([]int32, w.Pairs*call.Q.Longest)
		if err := dc.ToHost(runtime.Bytes(scores), driver.Ptr(call.Scores), s); err != nil {
			return err
		}
		if call.Argmax != 0 {
			if err := dc.ToHost(runtime.Bytes(argmax), driver.Ptr(call.Argmax), s); err != nil {
				return err
			}
		}
		if err := dc.Sync(s); err != nil {
			return err
		}
		copy(c.Scores, scores)
		for p := range w.Pairs {
			if c.Argmax != nil {
				copy(c.Argmax[p*w.Stride:(p+1)*w.Stride], argmax[p*call.Q.Longest:])
			}
		}
		return nil
	})
}

// room takes the workspace of a call.
func (x *inPlace) room(call *ScoreCall) error {
	bytes, err := x.d.ScoreWorkspace(call)
	if bytes > 0 {
		call.Place.Workspace, call.Place.WorkspaceBytes = uint64(x.alloc(int(bytes))), bytes
	}
	return err
}

// inWorkspace does a call of one of the device's methods with a workspace as large as the other one says.
func inWorkspace[C any](
	x *inPlace, call *C, place *Place, workspace func(*C) (int64, error), do func(*C) error,
) error {
	return x.unlocked(func() error {
		bytes, err := workspace(call)
		if err != nil {
			return err
		}
		place.Workspace, place.WorkspaceBytes = uint64(x.alloc(int(bytes))), bytes
		return do(call)
	})
}

// unlocked calls fn, which enters the device itself, between calls of with's function.
func (x *inPlace) unlocked(fn func() error) error {
	x.d.mu.Unlock()
	defer x.d.mu.Lock()
	return fn()
}

func (x *inPlace) Name() string { return fmt.Sprintf("%s in place", x.Backend.Name()) }

// Scores on the caller's memory are those of the oracle, with the kernel for any device and with
// those of sm_90a, whose rows lie as they want.
func TestInPlaceSuite(t *testing.T) {
	for _, hopper := range []bool{false, true} {
		for shift := range 2 {
			t.Run(fmt.Sprintf("hopper=%v/shift=%d", hopper, shift), func(t *testing.T) {
				x, _ := fakeInPlace(t, hopper)
				x.shift = shift
				o := maxsimtest.Options{MaxDim: 64, Brief: shift == 1}
				if !effort.Long() {
					o.MaxDim = 17
				}
				maxsimtest.Run(t, x, o)
			})
		}
	}
}

// The same in pieces and with documents cut into segments.
func TestInPlaceInPieces(t *testing.T) {
	for _, l := range []callLimits{{docs: 2000, part: 300, segment: 1 << 30}, {docs: 1 << 20, part: 1 << 20, segment: 4},
		{docs: 3000, part: 1000, segment: 2}} {
		for _, hopper := range []bool{false, true} {
			t.Run(fmt.Sprintf("%+v/hopper=%v", l, hopper), func(t *testing.T) {
				x, _ := fakeInPlace(t, hopper)
				x.d.limits = l
				maxsimtest.Run(t, x, maxsimtest.Options{MaxDim: 17, Brief: !effort.Long()})
			})
		}
	}
}
