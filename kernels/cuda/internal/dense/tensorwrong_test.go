package dense

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// What only the device sees is not checked by the host. Whatever is there, nothing is read or
// written but what a call has given; the fake device panics where something is.

func TestInPlaceWrong(t *testing.T) {
	for _, hopper := range []bool{false, true} {
		x, _ := fakeInPlace(t, hopper)
		checkWrong(t, x)
	}
}

func TestGPUInPlaceWrong(t *testing.T) { checkWrong(t, gpuInPlace(t)) }

// ints brings numbers to the device.
func (x *inPlace) ints(v ...int32) uint64 { return x.bytes(runtime.Bytes(v), 0) }

func checkWrong(t *testing.T, x *inPlace) {
	rng := maxsimtest.Rand(7)
	side := func(n, rows, dim int) Batch {
		m := maxsimtest.Side{Type: maxsim.F16, Lengths: equal(n, rows)}.Batch(rng, dim).Tokens
		return Batch{Data: x.bytes(elementBytes(&m), 0), Type: maxsim.F16, Dim: dim, Items: n, Rows: n * rows, Stride: rows,
			Longest: rows}
	}
	offsets := [][]int32{{-5, 3, 1 << 30, 2}, {7, 6, -1, 1 << 30}, {0, 1 << 30, 1 << 30, 4}, {-1 << 31, -1, 0, 1<<31 - 1}}
	for _, packed := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
		for _, wrong := range offsets {
			require.NoError(t, x.with(func(*driver.Context, driver.Stream) error {
				q, d := side(3, 5, 64), side(3, 70, 64)
				for i, b := range []*Batch{&q, &d} {
					if packed[i] {
						b.Offsets = x.ints(wrong...)
					}
				}
				for _, pairs := range []PairList{{}, {Kind: PairsOwn, Count: 1}, {Kind: PairsListed, Count: 5,
					Queries: x.ints(0, -1, 2, 3, 1<<30), Documents: x.ints(1<<30, 2, -1, 1, -1<<31)}} {
					n := map[PairKind]int{PairsAll: 9, PairsOwn: 3, PairsListed: 5}[pairs.Kind]
					x.scoreWrong(t, &q, &d, pairs, n)
					x.chamferWrong(t, &q, &d, pairs, n)
				}
				return nil
			}))
		}
	}
}

// scoreWrong scores n pairs, and computes gradients.
func (x *inPlace) scoreWrong(t *testing.T, q, d *Batch, pairs PairList, n int) {
	stream := Place{Stream: uint64(x.stream.Handle())}
	call := &ScoreCall{Place: stream, Q: *q, D: *d, Pairs: pairs, Scores: uint64(x.alloc(4 * n)),
		Argmax: uint64(x.alloc(4 * n * q.Longest))}
	require.NoError(t, x.unlocked(func() error {
		if err := x.room(call); err != nil {
			return err
		}
		return x.d.Score(call)
	}))
	scores, argmax := read[float32](x, call.Scores, n), read[int32](x, call.Argmax, n*q.Longest)
	if pairs.Kind == PairsListed { // none of them names both
		require.Equal(t, make([]float32, n), scores)
		for _, a := range argmax {
			require.Equal(t, int32(-1), a)
		}
	}
	for _, a := range argmax { // offsets in disorder may leave documents out of all units
		require.True(t, a >= -1 && int(a) < d.Longest || pairs.Kind == PairsAll && d.Offsets != 0, a)
	}
	g := &GradientCall{Place: stream, Q: *q, D: *d, Pairs: pairs, Argmax: call.Argmax, DQType: maxsim.F32,
		DDType: maxsim.F32, DQ: uint64(x.alloc(4 * q.Rows * q.Dim)), DD: uint64(x.alloc(4 * d.Rows * d.Dim))}
	require.NoError(t, inWorkspace(x, g, &g.Place, x.d.GradientsWorkspace, x.d.Gradients))
	_ = read[float32](x, g.DD, d.Rows*d.Dim)
}

// chamferWrong computes n distances, and gradients.
func (x *inPlace) chamferWrong(t *testing.T, q, d *Batch, pairs PairList, n int) {
	stream := Place{Stream: uint64(x.stream.Handle())}
	call := &ChamferCall{Place: stream, Q: *q, D: *d, Pairs: pairs, Distances: uint64(x.alloc(4 * n)),
		NearestQ: uint64(x.alloc(4 * n * q.Longest)), NearestD: uint64(x.alloc(4 * n * d.Longest))}
	require.NoError(t, inWorkspace(x, call, &call.Place, x.d.ChamferWorkspace, x.d.Chamfer))
	if distances := read[float32](x, call.Distances, n); pairs.Kind == PairsListed {
		require.Equal(t, make([]float32, n), distances)
	}
	g := &ChamferGradientCall{Place: stream, Q: *q, D: *d, Pairs: pairs, NearestQ: call.NearestQ, NearestD: call.NearestD,
		DQType: maxsim.F32, DDType: maxsim.F32, DQ: uint64(x.alloc(4 * q.Rows * q.Dim)),
		DD: uint64(x.alloc(4 * d.Rows * d.Dim))}
	require.NoError(t, inWorkspace(x, g, &g.Place, x.d.ChamferGradientsWorkspace, x.d.ChamferGradients))
	_ = read[float32](x, g.DD, d.Rows*d.Dim)
}

// A mask has bytes for the longest rows of an item, whatever is between items and behind them; and
// what a row holds that is no token, be it the first one, is of no matter.
func checkMasks(t *testing.T, x *inPlace) {
	for _, dim := range []int{3, 40} {
		require.NoError(t, x.with(func(*driver.Context, driver.Stream) error {
			const items, longest, stride, tail = 2, 3, 5000, 3000
			rows := (items-1)*stride + longest + tail
			values := make([]float32, rows*dim)
			for i := range values {
				values[i] = 1e30
			}
			for item := range items {
				for r := 1; r < longest; r++ {
					for k := range dim {
						values[(item*stride+r)*dim+k] = float32(item + r)
					}
				}
			}
			b := Batch{Data: x.bytes(runtime.Bytes(values), 0), Type: maxsim.F32, Dim: dim, Items: items, Rows: rows,
				Stride: stride, Longest: longest, Mask: x.bytes([]byte{0, 1, 1, 0, 1, 1}, 0), MaskStride: longest}
			call := &ChamferCall{Q: b, D: b, Distances: uint64(x.alloc(16)), NearestQ: uint64(x.alloc(48)),
				Place: Place{Stream: uint64(x.stream.Handle())}}
			require.NoError(t, inWorkspace(x, call, &call.Place, x.d.ChamferWorkspace, x.d.Chamfer))
			// Points 1, 2 and 2, 3 of each dimension.
			require.Equal(t, []float32{0, 2 * float32(dim), 2 * float32(dim), 0}, read[float32](x, call.Distances, 4))
			require.Equal(t, []int32{-1, 1, 2, -1, 1, 1, -1, 2, 2, -1, 1, 2}, read[int32](x, call.NearestQ, 12))
			return nil
		}))
	}
}

func TestInPlaceChamferMasks(t *testing.T) {
	x, _ := fakeInPlace(t, true)
	checkMasks(t, x)
}

func TestGPUInPlaceChamferMasks(t *testing.T) { checkMasks(t, gpuInPlace(t)) }

// More points than a kernel has blocks for are an error that says so.
func TestInPlaceChamferMost(t *testing.T) {
	x, _ := fakeInPlace(t, true)
	b := Batch{Data: 256, Type: maxsim.F32, Dim: 3, Items: 1, Rows: 1 << 24, Longest: 1 << 24}
	few := b
	few.Rows, few.Longest = 9, 9
	_, err := x.d.ChamferWorkspace(&ChamferCall{Q: b, D: few, Distances: 256})
	require.ErrorIs(t, err, driver.ErrUnsupported)
	_, err = x.d.ChamferGradientsWorkspace(&ChamferGradientCall{Q: few, D: b, NearestQ: 256, NearestD: 256})
	require.ErrorIs(t, err, driver.ErrUnsupported)
	b.Items, b.Rows, b.Longest = 1<<16, 1<<16, 1
	b.Stride = 1
	_, err = x.d.ChamferWorkspace(&ChamferCall{Q: b, D: b, Distances: 256})
	require.ErrorIs(t, err, driver.ErrUnsupported)
}

// Plans without tables are forgotten, too, and tables that did not come to the device are not
// used by the next call.
func TestInPlaceShelf(t *testing.T) {
	x, f := fakeInPlace(t, false)
	require.NoError(t, x.with(func(*driver.Context, driver.Stream) error {
		q := Batch{Data: uint64(x.alloc(64)), Type: maxsim.F32, Dim: 4, Items: 1, Rows: 1, Longest: 1}
		call := &ScoreCall{Q: q, D: q, Weights: q.Data, Scores: uint64(x.alloc(4 * 2 * maxPlans)),
			Pairs: PairList{Kind: PairsListed, Queries: uint64(x.alloc(8 * maxPlans)),
				Documents: uint64(x.alloc(8 * maxPlans))}}
		for n := range maxPlans + 20 {
			call.Pairs.Count = n%40 + 1
			call.Q.Stride = n / 40 // a shape of its own
			require.NoError(t, x.unlocked(func() error {
				if err := x.room(call); err != nil {
					return err
				}
				return x.d.Score(call)
			}))
		}
		require.Equal(t, maxPlans, x.d.plans.order.Len())
		return nil
	}))
	for _, op := range []string{"cuMemcpyHtoDAsync", "cuStreamSynchronize"} {
		c := newInPlaceCall(padded(maxsim.F16, 64, 2, 16), padded(maxsim.F16, 64, 4+len(op), 7), false)
		call, w := x.prepared(t, c)
		f.Fail = func(call string) driver.Result {
			if call == op {
				return driver.OutOfMemory
			}
			return driver.Success
		}
		require.ErrorIs(t, x.d.Score(call), driver.ErrOutOfMemory)
		f.Fail = nil
		require.NoError(t, x.d.Score(call))
		want, _ := c.Oracle()
		for i, v := range x.results(t, call, w.Pairs) {
			require.InDelta(t, want[i], v, 0.05, op)
		}
	}
}

// Documents that share rows are read where they are, for the gradients of queries.
func TestInPlaceGradientsOfWindows(t *testing.T) {
	x, _ := fakeInPlace(t, false)
	require.NoError(t, x.with(func(*driver.Context, driver.Stream) error {
		q := Batch{Data: x.bytes(runtime.Bytes([]float32{1}), 0), Type: maxsim.F32, Dim: 1, Items: 1, Rows: 1, Longest: 1}
		d := Batch{Data: x.bytes(runtime.Bytes([]float32{1, 20, 300, 4000}), 0), Type: maxsim.F32, Dim: 1, Items: 3, Rows: 4,
			Stride: 1, Longest: 2}
		g := &GradientCall{Place: Place{Stream: uint64(x.stream.Handle())}, Q: q, D: d, Argmax: x.ints(1, 0, 1),
			DQ: uint64(x.alloc(4)), DQType: maxsim.F32}
		require.NoError(t, x.unlocked(func() error { return x.d.Gradients(g) }))
		require.Equal(t, []float32{20 + 20 + 4000}, read[float32](x, g.DQ, 1))
		return nil
	}))
}

// The first call of all may be one that is captured: what it loads and takes is allowed.
func checkFirstCaptured(t *testing.T, x *inPlace) {
	q, d := padded(maxsim.F16, 128, 2, 32), padded(maxsim.F16, 128, 5, 70)
	d.Lengths = []int{70, 1, 0, 64, 65}
	c := newInPlaceCall(q, d, true)
	w, err := c.Check()
	require.NoError(t, err)
	want, _ := c.Oracle()
	require.NoError(t, x.with(func(dc *driver.Context, s driver.Stream) error {
		call := x.scoreCall(c, w)
		call.Place.Workspace, call.Place.WorkspaceBytes = uint64(x.alloc(1<<20)), 1<<20
		g, err := dc.Capture(s, func() error { return x.unlocked(func() error { return x.d.Score(call) }) })
		require.NoError(t, err)
		require.NoError(t, dc.LaunchGraph(g, s))
		for i, v := range read[float32](x, call.Scores, w.Pairs) {
			require.InDelta(t, want[i], v, 0.05, "pair %d", i)
		}
		return dc.FreeGraph(g)
	}))
}

func TestInPlaceFirstCaptured(t *testing.T) {
	x, _ := fakeInPlace(t, true)
	checkFirstCaptured(t, x)
}

func TestGPUInPlaceFirstCaptured(t *testing.T) { checkFirstCaptured(t, gpuInPlace(t)) }
