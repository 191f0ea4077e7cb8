package dense

import (
	"math"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// padded is items of as many rows, all of them tokens.
func padded(kind maxsim.Type, dim, n, rows int) *maxsim.Batch {
	b := maxsimtest.Side{Type: kind, Lengths: equal(n, rows)}.Batch(maxsimtest.Rand(uint64(n)), dim)
	b.Layout = maxsim.Layout{Count: n, Stride: rows}
	return b
}

// prepared is a call whose memory is on the device, with its size.
func (x *inPlace) prepared(t testing.TB, c *maxsim.Call) (call *ScoreCall, w maxsim.Work) {
	w, err := c.Check()
	require.NoError(t, err)
	require.NoError(t, x.d.onStream(0, func() error {
		call = x.scoreCall(c, w)
		return x.unlocked(func() error { return x.room(call) })
	}))
	t.Cleanup(func() { require.NoError(t, x.with(func(*driver.Context, driver.Stream) error { return nil })) })
	return call, w
}

// results are the scores of a call on the device.
func (x *inPlace) results(t testing.TB, call *ScoreCall, n int) []float32 {
	scores := make([]float32, n)
	require.NoError(t, x.d.onStream(0, func() error {
		if err := x.d.rt.Driver.ToHost(runtime.Bytes(scores), driver.Ptr(call.Scores), x.stream); err != nil {
			return err
		}
		return x.d.rt.Driver.Sync(x.stream)
	}))
	return scores
}

func newInPlaceCall(q, d *maxsim.Batch, arg bool) *maxsim.Call {
	c := maxsimtest.NewCall(q, d, maxsim.All(), maxsim.Terms{})
	if !arg {
		c.Argmax = nil
	}
	return c
}

// A call of a shape that was there before is one launch, and takes and copies nothing; with
// lengths it is two.
func TestInPlaceLaunches(t *testing.T) {
	for _, hopper := range []bool{false, true} {
		x, f := fakeInPlace(t, hopper)
		for _, c := range []struct {
			lengths []int
			want    []string
		}{
			{nil, []string{"cuLaunchKernel"}},
			{[]int{3, 0, 7}, []string{"cuLaunchKernel", "cuLaunchKernel"}},
		} {
			q, d := padded(maxsim.F16, 128, 2, 16), padded(maxsim.F16, 128, 3, 7)
			d.Lengths = c.lengths
			call, _ := x.prepared(t, newInPlaceCall(q, d, false))
			require.NoError(t, x.d.Score(call))
			var did []string
			f.Fail = func(op string) driver.Result {
				if op != "cuCtxGetCurrent" && op != "cuCtxSetCurrent" && op != "cuStreamIsCapturing" {
					did = append(did, op)
				}
				return driver.Success
			}
			require.NoError(t, x.d.Score(call))
			f.Fail = nil
			require.Equal(t, c.want, did)
		}
	}
}

// A capture may be the first call of a shape; what it launches works as long as the device
// does, however many shapes come after.
func TestInPlaceCapture(t *testing.T) {
	x, _ := fakeInPlace(t, true)
	checkCapture(t, x)
}

func checkCapture(t *testing.T, x *inPlace) {
	q, d := padded(maxsim.F16, 128, 2, 32), padded(maxsim.F16, 128, 5, 70)
	d.Lengths = []int{70, 1, 0, 64, 65}
	c := newInPlaceCall(q, d, true)
	call, w := x.prepared(t, c)
	want, _ := c.Oracle()
	var g driver.Graph
	require.NoError(t, x.d.onStream(0, func() (err error) {
		g, err = x.d.rt.Driver.Capture(x.stream, func() error { return x.unlocked(func() error { return x.d.Score(call) }) })
		return err
	}))
	for n := range 20 {
		other, _ := x.prepared(t, newInPlaceCall(padded(maxsim.F16, 128, 1, 2), padded(maxsim.F16, 128, n+1, 3), false))
		require.NoError(t, x.d.Score(other))
		x.d.plans.bytes += maxPlanBytes // as if it were full
		require.NoError(t, x.d.onStream(0, func() error { x.d.plans.evictOld(x.d.rt.Driver); return nil }))
		x.d.plans.bytes -= maxPlanBytes
		require.LessOrEqual(t, x.d.plans.order.Len(), 2)
	}
	for range 2 {
		require.NoError(t, x.d.onStream(0, func() error {
			if err := x.d.rt.Driver.Set(driver.Ptr(call.Scores), 0xFF, 4*int64(w.Pairs), x.stream); err != nil {
				return err
			}
			return x.d.rt.Driver.LaunchGraph(g, x.stream)
		}))
		for i, v := range x.results(t, call, w.Pairs) {
			require.InDelta(t, want[i], v, 0.05, "pair %d", i)
		}
	}
	require.NoError(t, x.d.onStream(0, func() error { return x.d.rt.Driver.FreeGraph(g) }))
}

// Pairs that name no query or document score 0, and read nothing.
func TestInPlacePairsOutOfRange(t *testing.T) {
	x, _ := fakeInPlace(t, true)
	q, d := padded(maxsim.F16, 128, 2, 16), padded(maxsim.F16, 128, 3, 7)
	c := maxsimtest.NewCall(q, d, maxsim.Listed([]int32{0, 1, 0, 1}, []int32{2, 0, 1, 1}), maxsim.Terms{})
	call, w := x.prepared(t, c)
	bad := []int32{0, -1, 7, 1}
	require.NoError(t, x.d.onStream(0, func() error {
		return x.d.rt.Driver.ToDevice(driver.Ptr(call.Pairs.Queries), runtime.Bytes(bad), x.stream)
	}))
	bad = []int32{2, 0, 1, 1 << 30}
	require.NoError(t, x.d.onStream(0, func() error {
		return x.d.rt.Driver.ToDevice(driver.Ptr(call.Pairs.Documents), runtime.Bytes(bad), x.stream)
	}))
	require.NoError(t, x.d.Score(call))
	want, _ := c.Oracle()
	got := x.results(t, call, w.Pairs)
	require.InDelta(t, want[0], got[0], 0.05)
	require.Equal(t, []float32{0, 0, 0}, got[1:])
}

// Calls that do not fit are errors that say why, and leave the device as it was.
func TestInPlaceErrors(t *testing.T) {
	x, f := fakeInPlace(t, true)
	q, d := padded(maxsim.F16, 128, 2, 16), padded(maxsim.F16, 128, 4, 7)
	d.Lengths = []int{3, 0, 7, 1}
	call, _ := x.prepared(t, newInPlaceCall(q, d, true))
	for name, c := range map[string]struct {
		change func(c *ScoreCall)
		want   error
	}{
		"type":                {func(c *ScoreCall) { c.Q.Type = 9 }, kernels.ErrShape},
		"dimensions":          {func(c *ScoreCall) { c.Q.Dim, c.D.Dim = 0, 0 }, kernels.ErrShape},
		"other dimensions":    {func(c *ScoreCall) { c.Q.Dim = 64 }, kernels.ErrShape},
		"negative":            {func(c *ScoreCall) { c.D.Items = -1 }, kernels.ErrShape},
		"too few rows":        {func(c *ScoreCall) { c.D.Rows = 27 }, kernels.ErrShape},
		"many rows":           {func(c *ScoreCall) { c.D.Rows = 1 << 31 }, kernels.ErrShape},
		"zero points":         {func(c *ScoreCall) { c.D.Zeros = c.D.Data }, kernels.ErrShape},
		"alignment":           {func(c *ScoreCall) { c.D.Data++ }, kernels.ErrShape},
		"no data":             {func(c *ScoreCall) { c.D.Data = 0 }, kernels.ErrShape},
		"lengths and mask":    {func(c *ScoreCall) { c.D.Mask = c.D.Lengths }, kernels.ErrShape},
		"lengths and offsets": {func(c *ScoreCall) { c.D.Offsets = c.D.Lengths }, kernels.ErrShape},
		"a narrow mask": {func(c *ScoreCall) { c.D.Mask, c.D.Lengths, c.D.MaskStride = c.D.Lengths, 0, 6 },
			kernels.ErrShape},
		"own":                   {func(c *ScoreCall) { c.Pairs = PairList{Kind: PairsOwn, Count: 3} }, kernels.ErrShape},
		"no list":               {func(c *ScoreCall) { c.Pairs = PairList{Kind: PairsListed, Count: 3} }, kernels.ErrShape},
		"kind of pairs":         {func(c *ScoreCall) { c.Pairs.Kind = 5 }, kernels.ErrShape},
		"no scores":             {func(c *ScoreCall) { c.Scores = 0 }, kernels.ErrShape},
		"small workspace":       {func(c *ScoreCall) { c.Place.WorkspaceBytes-- }, ErrWorkspace},
		"workspace is not even": {func(c *ScoreCall) { c.Place.Workspace += 16 }, ErrWorkspace},
		"queries share rows":    {func(c *ScoreCall) { c.Q.Stride, c.Q.Lengths = 0, c.D.Lengths }, driver.ErrUnsupported},
		"documents share rows": {func(c *ScoreCall) {
			c.D.Stride, c.D.Mask, c.D.Lengths, c.D.MaskStride = 0, c.D.Lengths, 0, 7
		}, driver.ErrUnsupported},
	} {
		bad := *call
		c.change(&bad)
		require.ErrorIs(t, x.d.Score(&bad), c.want, name)
	}
	require.NoError(t, x.d.Score(call))
	for _, op := range []string{"cuMemAlloc", "cuMemcpyHtoDAsync", "cuStreamSynchronize", "cuLaunchKernel",
		"cuStreamIsCapturing", "cuCtxGetCurrent", "cuThreadExchangeStreamCaptureMode"} {
		fresh, _ := x.prepared(t, newInPlaceCall(q, padded(maxsim.F16, 128, len(op), 7), false))
		f.Fail = func(call string) driver.Result {
			if call == op {
				return driver.OutOfMemory
			}
			return driver.Success
		}
		require.ErrorIs(t, x.d.Score(fresh), driver.ErrOutOfMemory, op)
		f.Fail = nil
		require.NoError(t, x.d.Score(fresh), op)
	}
}

// Threads may call at a time, each has the context afterwards that it had before, and rows that
// are shared (a stride of 0) are scored.
func TestInPlaceThreads(t *testing.T) {
	x, f := fakeInPlace(t, true)
	q, d := padded(maxsim.F16, 128, 2, 16), padded(maxsim.F16, 128, 4, 7)
	c := newInPlaceCall(q, d, false)
	call, w := x.prepared(t, c)
	want, _ := c.Oracle()
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	for _, before := range []driver.ContextHandle{0, 1 << 40} {
		require.NoError(t, driver.SetCurrent(f.API(), before))
		require.NoError(t, x.d.Score(call))
		after, err := driver.Current(f.API())
		require.NoError(t, err)
		require.Equal(t, before, after)
	}
	require.NoError(t, driver.SetCurrent(f.API(), 0))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				if err := x.d.Score(call); err != nil {
					panic(err)
				}
			}
		})
	}
	all.Wait()
	got := x.results(t, call, w.Pairs)
	for i := range got {
		require.InDelta(t, want[i], got[i], 0.05)
	}
	call.D.Stride = 0
	require.NoError(t, x.roomAgain(call))
	require.NoError(t, x.d.Score(call))
	shared := x.results(t, call, w.Pairs)
	require.Equal(t, []float32{got[0], got[0], got[0], got[0]}, shared[:4])
}

// roomAgain is room of a call that was changed.
func (x *inPlace) roomAgain(call *ScoreCall) error {
	return x.d.onStream(0, func() error { return x.unlocked(func() error { return x.room(call) }) })
}

// Sums of many groups come in pieces, whose results lie apart.
func TestInPlaceSumsInPieces(t *testing.T) {
	x, _ := fakeInPlace(t, true)
	x.d.limits.part = 4000
	q, d := padded(maxsim.F16, 128, 3, 70), padded(maxsim.F16, 128, 50, 2)
	for _, kind := range []maxsim.Pairs{maxsim.All(), maxsim.Listed([]int32{0, 2}, []int32{49, 3})} {
		for _, arg := range []bool{false, true} {
			c := maxsimtest.NewCall(q, d, kind, maxsim.Terms{})
			if !arg {
				c.Argmax = nil
			}
			maxsimtest.Check(t, x, c, maxsimtest.Options{})
		}
	}
}

// What a query row that is no token holds is of no matter.
func TestInPlaceNaN(t *testing.T) {
	x, _ := fakeInPlace(t, true)
	q, d := padded(maxsim.F32, 16, 2, 5), padded(maxsim.F32, 16, 2, 5)
	q.Mask = make([]bool, 10)
	for _, r := range []int{0, 3, 4, 6} {
		q.Mask[r] = true
	}
	c := newInPlaceCall(q, d, true)
	require.NoError(t, x.Score(t.Context(), c)) // bring makes the others NaN
	for _, v := range c.Scores {
		require.False(t, math.IsNaN(float64(v)))
	}
	require.True(t, slices.Contains(c.Argmax, -1))
	maxsimtest.Check(t, x, c, maxsimtest.Options{})
}

// Hidden states of one query are scored as they are read, all at once or some at a time, of all
// layouts.
func TestInPlaceHead(t *testing.T) {
	x, _ := fakeInPlace(t, true)
	checkHeads(t, x)
}

// headLayouts are documents of up to 70 tokens of 7 · 70 rows; those of the mask have holes.
func headLayouts() []maxsim.Layout {
	lengths, offsets := []int{70, 0, 3, 64, 65, 1, 70}, []int{0, 70, 70, 73, 137, 202, 203, 273}
	prefix, holes := make([]bool, 7*70), make([]bool, 7*70)
	for i, n := range lengths {
		for j := range n {
			prefix[70*i+j], holes[70*i+j] = true, (i+j)%3 > 0
		}
	}
	return []maxsim.Layout{
		{Count: 7, Stride: 70}, {Count: 7, Stride: 70, Lengths: lengths}, {Count: 7, Stride: 70, Mask: prefix},
		{Count: 7, Stride: 70, Mask: holes}, {Offsets: offsets},
	}
}

func checkHeads(t *testing.T, x *inPlace) {
	layouts := headLayouts()
	for k, kind := range []maxsim.Type{maxsim.F16, maxsim.BF16, maxsim.F32} {
		for i, shape := range []struct{ hidden, dim, lq int }{{64, 40, 32}, {100, 70, 5}, {128, 128, 1}, {64, 130, 9}} {
			for j, layout := range layouts {
				if i > 0 && (i+j+k)%3 > 0 {
					continue
				}
				for _, room := range []int{stageBytes, 6000} {
					x.d.limits.docs = room
					rng := maxsimtest.Rand(uint64(shape.dim))
					q, d := padded(maxsim.F32, shape.dim, 1, shape.lq), padded(kind, shape.hidden, 7, 70)
					if d.Layout = layout; layout.Offsets != nil {
						d.Tokens = padded(kind, shape.hidden, 1, 273).Tokens
					}
					if shape.lq > 5 { // rows that are no tokens become NaN
						q.Lengths = []int{shape.lq - 2}
					}
					w := padded(kind, shape.hidden, 1, shape.dim).Tokens
					c := &maxsim.HeadCall{Q: q, D: d, Head: maxsim.Head{Weights: w, Bias: maxsimtest.Normal(rng, shape.dim)},
						Scores: make([]float32, 7)}
					c.Normalize = (i+j)%2 > 0
					require.NoError(t, x.ScoreHead(t.Context(), c))
					for doc, want := range c.Oracle() {
						require.InDelta(t, want, c.Scores[doc], 1e-4*(1+math.Abs(want)), "%s, %v, layout %d, document %d",
							kind, shape, j, doc)
					}
				}
			}
		}
	}
}

// What a call needs is prepared by as few launches as there can be, and each launch after them
// begins early, where it can wait; the first of a call, and what follows other kernels, do not.
func TestInPlaceEarly(t *testing.T) {
	for _, hopper := range []bool{true, false} {
		x, f := fakeInPlace(t, hopper)
		var launched []string
		ahead := uint32(2)
		for name, run := range f.Kernels {
			f.Kernels[name] = func(f *drivertest.Fake, l *driver.Launch) {
				kind := name
				switch {
				case strings.HasPrefix(name, "dense_head"):
					kind, ahead = "dense_head", (*denseHeadParams)(l.Args).ahead
				case strings.HasPrefix(name, "dense_rows"):
					kind = "dense_rows"
				}
				if l.Early {
					kind += " early"
				}
				launched = append(launched, kind)
				run(f, l)
			}
		}
		score := func(q, d *maxsim.Batch) []string {
			launched = nil
			require.NoError(t, x.Score(t.Context(), newInPlaceCall(q, d, false)))
			return launched
		}
		q, d := padded(maxsim.F16, 64, 1, 9), padded(maxsim.F16, 64, 3, 70)
		if !hopper {
			d.Lengths = []int{70, 2, 0}
			require.Equal(t, []string{"dense_fill", "dense_any"}, score(q, d))
			continue
		}
		require.Equal(t, []string{"dense_rows"}, score(q, d))
		d.Lengths = []int{70, 2, 0}
		require.Equal(t, []string{"dense_fill", "dense_rows early"}, score(q, d))
		require.Equal(t, []string{"dense_prepare", "dense_pack early", "dense_rows early"},
			score(padded(maxsim.F32, 64, 1, 9), padded(maxsim.BF16, 64, 3, 70)))

		for i, layout := range headLayouts() {
			for _, kind := range []maxsim.Type{maxsim.F16, maxsim.F32} {
				d := padded(kind, 64, 7, 70)
				d.Layout = layout
				if layout.Offsets != nil {
					d.Tokens = padded(kind, 64, 1, 273).Tokens
				}
				want := []string{"dense_prepare"}
				if kind == maxsim.F32 {
					want = append(want, "dense_pack early")
				}
				if i > 0 {
					want = append(want, "dense_fill early")
				}
				launched, ahead = nil, 2
				require.NoError(t, x.ScoreHead(t.Context(), &maxsim.HeadCall{
					Q: q, D: d, Head: maxsim.Head{Weights: padded(kind, 64, 1, 64).Tokens}, Scores: make([]float32, 7),
				}))
				require.Equal(t, append(want, "dense_head early"), launched, "%s, layout %d", kind, i)
				require.Equal(t, i == 0 && kind == maxsim.F16, ahead == 1)
			}
		}
	}
}
