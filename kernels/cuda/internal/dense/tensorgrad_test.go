package dense

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// card is a device for calls on memory of its own.
type card struct {
	t    testing.TB
	d    *Device
	mem  driver.Mem
	used runtime.Arena
}

// fakeCard is a card whose kernels are in Go.
func fakeCard(t testing.TB, bytes int64) *card {
	return cardOf(t, runtimetest.Fake(fakeKernels()), bytes)
}

// cardOf is the card of a fake driver.
func cardOf(t testing.TB, f *drivertest.Fake, bytes int64) *card {
	c := &card{t: t}
	infos, err := driver.Devices(f.API())
	require.NoError(t, err)
	c.d, err = NewDevice(f.API(), infos[0], runtimetest.Modules())
	require.NoError(t, err)
	c.begin(bytes)
	t.Cleanup(func() { runtimetest.RequireNothingOut(t, f, nil) })
	t.Cleanup(c.end)
	return c
}

func (c *card) begin(bytes int64) {
	require.NoError(c.t, c.d.onStream(0, func() (err error) {
		c.mem, err = c.d.rt.Driver.Alloc(bytes)
		return err
	}))
}

func (c *card) end() {
	require.NoError(c.t, c.d.onStream(0, func() error { return c.d.rt.Driver.Free(c.mem) }))
	require.NoError(c.t, c.d.Close())
}

// room takes memory of the card, off bytes behind an aligned address.
func (c *card) room(bytes, off int) uint64 {
	at := c.used.Append(int64(bytes+off)) + int64(off)
	require.LessOrEqual(c.t, c.used.Size, c.mem.Bytes)
	return uint64(c.mem.At(at))
}

// bring brings values to the card.
func bring[T any](c *card, x []T, off int) uint64 {
	if x == nil {
		return 0
	}
	b := runtime.Bytes(x)
	p := c.room(len(b), off)
	require.NoError(c.t, c.d.onStream(0, func() error { return c.d.rt.Driver.ToDevice(driver.Ptr(p), b, c.d.rt.Stream) }))
	return p
}

// get brings values back.
func get[T any](c *card, p uint64, n int) []T {
	x := make([]T, n)
	require.NoError(c.t, c.d.onStream(0, func() error {
		if err := c.d.rt.Driver.ToHost(runtime.Bytes(x), driver.Ptr(p), c.d.rt.Stream); err != nil {
			return err
		}
		return c.d.rt.Driver.Sync(c.d.rt.Stream)
	}))
	return x
}

// layout says how the items of one side of a test lie.
type layout struct {
	lengths []int
	packed  bool
	apart   int     // padded: rows from item to item, beyond the longest one
	lead    int     // rows in front of the first item
	tail    int     // rows behind the last one
	masked  float64 // share of the rows
}

// gradSide is a side of a test: a batch for the oracle, which the card has with NaN in all rows that are
// no tokens.
type gradSide struct {
	*maxsim.Batch
	at     Batch
	longer int // rows of the longest item, or more
}

func (c *card) side(rng *rand.Rand, l layout, kind maxsim.Type, affine bool, dim, off int) *gradSide {
	longest := 0
	for _, n := range l.lengths {
		longest = max(longest, n)
	}
	s := &gradSide{longer: longest, at: Batch{Type: kind, Dim: dim, Items: len(l.lengths)}}
	var lay maxsim.Layout
	rows := 0
	if l.packed {
		offsets, on := []int{l.lead}, []int32{int32(l.lead)}
		for i, n := range l.lengths {
			offsets = append(offsets, offsets[i]+n)
			on = append(on, int32(offsets[i+1]))
		}
		rows, s.longer = offsets[len(l.lengths)]+l.tail, longest+2
		lay.Offsets, s.at.Offsets = offsets, bring(c, on, 0)
	} else {
		s.at.Stride = longest + l.apart
		rows = len(l.lengths) * s.at.Stride
		lay = maxsim.Layout{Count: len(l.lengths), Stride: s.at.Stride, Lengths: l.lengths}
	}
	if l.masked > 0 {
		lay.Mask = make([]bool, rows)
		for i := range lay.Mask {
			lay.Mask[i] = rng.Float64() >= l.masked
		}
	}
	m := maxsimtest.RoundedTo(kind, maxsimtest.Normal(rng, rows*dim), dim, affine)
	s.Batch = &maxsim.Batch{Tokens: m, Layout: lay}
	token := make([]bool, rows)
	for i := range l.lengths {
		lo, hi := s.Span(i)
		for r := lo; r < hi; r++ {
			token[r] = s.IsToken(r)
		}
	}
	data := append([]byte(nil), elementBytes(&m)...)
	for r, is := range token {
		for i := r * dim; !is && i < (r+1)*dim; i++ {
			switch kind {
			case maxsim.F32:
				structsFrom[float32](data, rows*dim)[i] = float32(math.NaN())
			case maxsim.F16, maxsim.BF16:
				structsFrom[uint16](data, rows*dim)[i] = 0x7fff
			}
		}
	}
	s.at.Data, s.at.Rows, s.at.Longest = bring(c, data, off*kind.Size()), rows, s.longer
	s.at.Scales, s.at.Zeros = bring(c, m.Scales, 0), bring(c, m.Zeros, 0)
	return s
}

// gradTest is a case: argmaxima are any rows.
type gradTest struct {
	q, d         layout
	qType, dType maxsim.Type
	affine       bool
	dim, off     int // elements that data and gradients are from an aligned address
	pairs        maxsim.Pairs
	lost         int // listed: every lost-th pair names an item that is not there; 0: none does
	winStep      int // rows of documents that may win, from one to the next; 0: all may
	normalize    bool
	weights      bool
	upstream     bool
	out          [2]maxsim.Type
}

func (c *card) checkGradients(t *testing.T, rng *rand.Rand, x *gradTest) {
	t.Helper()
	c.used = runtime.Arena{}
	q, d := c.side(rng, x.q, x.qType, x.affine, x.dim, x.off), c.side(rng, x.d, x.dType, x.affine, x.dim, x.off)
	call := maxsimtest.NewCall(q.Batch, d.Batch, x.pairs, maxsim.Terms{Normalize: x.normalize})
	n, stride := len(call.Scores), q.MaxRows()
	argmax, there := call.Argmax, make([]int32, n*q.longer)
	queries, docs := make([]int32, n), make([]int32, n)
	for p := range n {
		qi, di := x.pairs.PairAt(p, d.Len())
		queries[p], docs[p] = int32(qi), int32(di)
		lost := x.lost > 0 && p%x.lost == 0
		if lost {
			queries[p], docs[p] = -1, int32(d.Len())
		}
		lo, hi := q.Span(qi)
		dlo, dhi := d.Span(di)
		for s := range stride {
			a := int32(-1)
			if r := lo + s; r < hi && q.IsToken(r) && dhi > dlo && !lost {
				for try := 0; try < 20 && a < 0; try++ {
					v := int(float64(dhi-dlo) * math.Pow(rng.Float64(), 3))
					if v -= v % max(x.winStep, 1); d.IsToken(dlo + v) {
						a = int32(v)
					}
				}
			}
			argmax[p*stride+s] = a
			if s < q.longer {
				there[p*q.longer+s] = a
			}
		}
		for s := stride; s < q.longer; s++ {
			there[p*q.longer+s] = -1
		}
	}
	g := &maxsim.GradCall{Q: q.Batch, D: d.Batch, Pairs: x.pairs, Terms: call.Terms, Argmax: argmax}
	if x.weights {
		g.Weights = maxsimtest.Normal(rng, q.Tokens.Rows())
		for i := 0; i < len(g.Weights); i += 3 {
			g.Weights[i] = 0
		}
	}
	if x.upstream {
		g.Upstream = maxsimtest.Normal(rng, n)
	}
	in := &GradientCall{
		Q: q.at, D: d.at, Pairs: PairList{Kind: PairsAll}, Normalize: x.normalize,
		Argmax: bring(c, there, 0), Weights: bring(c, g.Weights, 0), Upstream: bring(c, g.Upstream, 0), DQType: x.out[0], DDType: x.out[1],
	}
	switch {
	case x.pairs.Kind == maxsim.CandidatePairs && x.pairs.Docs == nil:
		in.Pairs = PairList{Kind: PairsOwn, Count: x.pairs.K}
	case x.pairs.Kind != maxsim.AllPairs:
		in.Pairs = PairList{Kind: PairsListed, Count: n, Queries: bring(c, queries, 0), Documents: bring(c, docs, 0)}
	}
	dq, dd := g.Oracle()
	var results [2][2]*maxsim.Gradient
	for again := range results {
		for i, s := range []*gradSide{q, d} {
			out := [2]*uint64{&in.DQ, &in.DD}[i]
			if *out = 0; x.out[i] != 0 {
				poison := make([]byte, s.Tokens.Rows()*x.dim*x.out[i].Size())
				for k := range poison {
					poison[k] = 0xff
				}
				*out = bring(c, poison, x.off*x.out[i].Size())
			}
		}
		bytes, err := c.d.GradientsWorkspace(in)
		require.NoError(t, err)
		in.Place = Place{Workspace: c.room(int(bytes), 0), WorkspaceBytes: bytes}
		require.NoError(t, c.d.Gradients(in))
		for i, s := range []*gradSide{q, d} {
			if x.out[i] == 0 {
				continue
			}
			got := maxsimtest.NewGradient(s.Batch, x.out[i])
			results[again][i] = got
			from := [2]uint64{in.DQ, in.DD}[i]
			if x.out[i] == maxsim.F32 {
				got.F32 = get[float32](c, from, len(got.F32))
			} else {
				got.U16 = get[uint16](c, from, len(got.U16))
			}
			maxsimtest.RequireGradient(t, [2]string{"queries", "documents"}[i], [2][]float64{dq, dd}[i], &got.Matrix, s.Batch, x.normalize)
		}
	}
	require.Equal(t, results[0], results[1])
}

// gradLayouts are layouts of three queries, and of six documents.
func gradLayouts(longQuery, longDoc int) (queries, docs []layout) {
	q, d := []int{longQuery, 0, 5}, []int{0, longDoc, 1, 13, 2, 5}
	full := func(n, v int) []int { return equal(n, v) }
	return []layout{
			{lengths: full(3, longQuery)}, {lengths: q, packed: true}, {lengths: q, packed: true, lead: 3, tail: 4},
			{lengths: q, masked: 0.3}, {lengths: full(3, 7), apart: 3}, {lengths: []int{0, 0, 0}, packed: true, tail: 3},
		}, []layout{
			{lengths: full(6, longDoc)}, {lengths: d, packed: true}, {lengths: d, packed: true, lead: 2, tail: 70},
			{lengths: d, masked: 0.3}, {lengths: full(6, 9), apart: 5}, {lengths: equal(6, 0), apart: 4},
		}
}

// testGradients: layouts, types, pairs, dimensions and where things lie, one of each at a time and
// all of them with each other in the long form.
func testGradients(t *testing.T, c *card, dims []int, longQuery, longDoc, share int) {
	rng := maxsimtest.Rand(90)
	queries, docs := gradLayouts(longQuery, longDoc)
	floats := []maxsim.Type{maxsim.F32, maxsim.F16, maxsim.BF16}
	n := 0
	for qi, q := range queries {
		for di, d := range docs {
			for _, dim := range dims {
				for pi, p := range []maxsim.Pairs{
					maxsim.All(), maxsim.OwnDocuments(2), maxsim.Listed([]int32{2, 0, 0, 2, 1, 0, 2, 0}, []int32{1, 1, 4, 1, 1, 0, 5, 1}), maxsim.Listed(nil, nil),
				} {
					if n++; n%share > 0 && !effort.Long() {
						continue
					}
					x := &gradTest{
						q: q, d: d, dim: dim, off: n / 3 % 5 % 2, pairs: p, lost: n % 7, normalize: n%3 == 0, weights: n%2 == 0, upstream: n%4 > 0,
						qType: floats[n%3], dType: floats[(n+n/5%2)%3], out: [2]maxsim.Type{floats[n/2%3], floats[n/3%3]},
					}
					switch n % 11 {
					case 0, 1:
						x.dType, x.affine, x.out[1] = maxsim.I8, n%11 == 0, 0
					case 2:
						x.dType, x.out[1] = maxsim.E4M3, 0
					case 3:
						x.qType, x.out[0] = maxsim.I8, 0
					case 4:
						x.out[0] = 0
					}
					if x.pairs.Kind != maxsim.ListedPairs {
						x.lost = 0
					}
					t.Run(fmt.Sprintf("q%d,d%d,dim%d,pairs%d,%s,%s,off%d,normalize=%v,%v", qi, di, dim, pi, x.qType, x.dType, x.off, x.normalize, x.out), func(t *testing.T) {
						c.checkGradients(t, rng, x)
					})
				}
			}
		}
	}
}

func TestGradientsInPlace(t *testing.T) {
	testGradients(t, fakeCard(t, 1<<24), []int{3, 8, 33, 132}, 40, 20, 5)
}

// What does not fit is refused.
func TestGradientsInPlaceRefused(t *testing.T) {
	c := fakeCard(t, 1<<20)
	rng := maxsimtest.Rand(92)
	q, d := c.side(rng, layout{lengths: equal(2, 3)}, maxsim.F16, false, 8, 0), c.side(rng, layout{lengths: equal(4, 5)}, maxsim.F16, false, 8, 0)
	good := GradientCall{Q: q.at, D: d.at, Argmax: c.room(96, 0), DQ: c.room(96, 0), DD: c.room(320, 0), DQType: maxsim.F16, DDType: maxsim.F16, Normalize: true}
	bytes, err := c.d.GradientsWorkspace(&good)
	require.NoError(t, err)
	require.EqualValues(t, 512, bytes)
	good.Place = Place{Workspace: c.room(512, 0), WorkspaceBytes: 512}
	for _, x := range []struct {
		name  string
		want  error
		spoil func(g *GradientCall)
	}{
		{"workspace", ErrWorkspace, func(g *GradientCall) { g.Place.WorkspaceBytes-- }},
		{"alignment", ErrWorkspace, func(g *GradientCall) { g.Place.Workspace++ }},
		{"argmax", kernels.ErrShape, func(g *GradientCall) { g.Argmax = 0 }},
		{"dimension", kernels.ErrShape, func(g *GradientCall) { g.Q.Dim = 4 }},
		{"gradient", kernels.ErrShape, func(g *GradientCall) { g.DD++ }},
		{"overlap", kernels.ErrShape, func(g *GradientCall) { g.D.Stride = 4 }},
		{"pairs", kernels.ErrShape, func(g *GradientCall) { g.Pairs = PairList{Kind: PairsOwn, Count: 3} }},
		{"constant", driver.ErrUnsupported, func(g *GradientCall) { g.Q.Type = maxsim.I8 }},
		{"type", driver.ErrUnsupported, func(g *GradientCall) { g.DQType = maxsim.E4M3 }},
	} {
		bad := good
		x.spoil(&bad)
		require.ErrorIs(t, c.d.Gradients(&bad), x.want, x.name)
	}
	good.DQ, good.DD = 0, 0
	require.NoError(t, c.d.Gradients(&good), "nothing to do")
}

// Gradients implements [maxsim.Backend] with the Device where it can.
func (x *inPlace) Gradients(ctx context.Context, g *maxsim.GradCall) error {
	w, err := g.Check()
	if err != nil || w.Pairs == 0 {
		return cmp.Or(err, x.Backend.Gradients(ctx, g))
	}
	var sides [2]*maxsim.Batch
	outs := [2]*maxsim.Gradient{g.DQ, g.DD}
	for i, o := range []maxsim.Operand{g.Q, g.D} {
		b, ok := o.(*maxsim.Batch)
		if !ok || b.Tokens.Type == maxsim.Compressed || outs[i] != nil && (outs[i].Add || b.Tokens.Type >= maxsim.I8) || ctx.Err() != nil {
			return x.Backend.Gradients(ctx, g)
		}
		sides[i] = b
	}
	return x.with(func(dc *driver.Context, s driver.Stream) error {
		q, weights := spreadOut(sides[0], g.Weights)
		d, _ := spreadOut(sides[1], nil)
		call := &GradientCall{Q: x.bring(q, q.MaxRows()), D: x.bring(d, d.MaxRows()), Normalize: g.Normalize, Pairs: x.pairs(&g.Pairs, w.Pairs, w.Q.Len(), w.D.Len())}
		if weights != nil {
			call.Weights = x.bytes(runtime.Bytes(weights), 0)
		}
		if g.Upstream != nil {
			call.Upstream = x.bytes(runtime.Bytes(g.Upstream), 0)
		}
		argmax := make([]int32, w.Pairs*call.Q.Longest)
		for i := range argmax {
			argmax[i] = -1
			if p, r := i/call.Q.Longest, i%call.Q.Longest; r < w.Stride {
				argmax[i] = g.Argmax[p*w.Stride+r]
			}
		}
		call.Argmax, call.Place.Stream = x.bytes(runtime.Bytes(argmax), 0), uint64(s.Handle())
		for i, b := range []*maxsim.Batch{q, d} {
			if outs[i] != nil {
				p := x.alloc(b.Tokens.Rows()*b.Tokens.Dim*outs[i].Type.Size() + 64).Add(int64(x.shift * outs[i].Type.Size()))
				*[2]*uint64{&call.DQ, &call.DD}[i], *[2]*maxsim.Type{&call.DQType, &call.DDType}[i] = uint64(p), outs[i].Type
			}
		}
		if err := inWorkspace(x, call, &call.Place, x.d.GradientsWorkspace, x.d.Gradients); err != nil {
			return err
		}
		for i, b := range []*maxsim.Batch{q, d} {
			if outs[i] == nil {
				continue
			}
			size := b.Tokens.Dim * outs[i].Type.Size()
			got, to := make([]byte, b.Tokens.Rows()*size), elementBytes(&outs[i].Matrix)
			if err := dc.ToHost(got, driver.Ptr([2]uint64{call.DQ, call.DD}[i]), s); err != nil {
				return err
			}
			if err := dc.Sync(s); err != nil {
				return err
			}
			if b == sides[i] {
				copy(to, got)
				continue
			}
			clear(to)
			for item := range b.Len() {
				lo, hi := sides[i].Span(item)
				copy(to[lo*size:hi*size], got[item*b.Stride*size:])
			}
		}
		return nil
	})
}
