package encoder

import (
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// pass is a batch on its way through the layers: what lies where.
type pass struct {
	m      *model
	rt     *runtime.Runtime
	limits limits
	rows   int // with those that a graph was given beyond
	spans  int
	halves bool // as halves, of the rows that are kept
	outs   []halvesOut
	at     layout
	slot   driver.Ptr
	err    error // the first one
}

// halvesOut is where the halves of n kept rows go, from one of them on.
type halvesOut struct {
	from, n int
	to      driver.Ptr
}

func (p *pass) weight(at int64) driver.Ptr {
	if at == none {
		return 0
	}
	return p.m.weights.At(at)
}

func (p *pass) room(at int64) driver.Ptr {
	if at == none {
		return 0
	}
	return p.m.mem.At(at)
}

func (p *pass) in(at int64) driver.Ptr { return p.slot.Add(at) }

// run launches the kernels of all layers, from ids to unit vectors.
func (p *pass) run() error {
	m := p.m
	t, r := m.t, &m.room
	p.embed()
	if n := m.normBefore(0); m.config.Family == transformer.ModernBERT && n.gamma != none {
		p.norm(none, n)
	}
	for i := range t.layers {
		y := &t.layers[i]
		// The norms that follow attention and the feed-forward part.
		epilogue, activation, middle, last := "rotary", "geglu", y.feedForwardNorm, m.normBefore(i+1)
		if m.config.Family == transformer.BERT {
			activation, middle, last = "gelu", y.attentionNorm, y.feedForwardNorm
		}
		if m.config.Learned() {
			epilogue = "bias"
		}
		p.product(epilogue, &y.qkv, r.x, r.qkv, y.angles)
		p.attention(y)
		p.product("bias", &y.output, r.context, r.delta, none)
		p.norm(r.delta, middle)
		p.product(activation, &y.up, r.x, r.wide, none)
		p.product("bias", &y.down, r.wide, r.delta, none)
		p.norm(r.delta, last)
	}
	p.heads()
	return p.err
}

// normBefore is the norm of ModernBERT before a layer, or after the last.
func (m *model) normBefore(i int) norm {
	if i < len(m.t.layers) {
		return m.t.layers[i].attentionNorm
	}
	return m.t.final
}

// follow launches a kernel behind the one before, unless one has failed; of few rows early,
// so that it is there when that one ends.
func follow[T any](p *pass, name string, gx, gy, block, shared int, args *T) {
	if p.err != nil {
		return
	}
	if p.err = runtime.Follow(p.rt, p.rows <= followRows, name, gx, gy, 1, block, shared, args); p.err != nil {
		p.err = fmt.Errorf("%s: %w", name, p.err)
	}
}

// rowThreads is the block of kernels that take eight rows, and attentionThreads that of
// attention, which takes up to partQueries queries.
const (
	rowThreads       = 256
	attentionThreads = 128
	partQueries      = 64
)

func (p *pass) embed() {
	m := p.m
	t := m.t
	// It follows a copy, which it cannot wait for itself.
	p.err = runtime.Launch(p.rt, "encoder/encoder_embed", runtime.CeilDiv(p.rows, 8), 1, 1, rowThreads, 0, &encoderEmbedParams{
		ids: p.in(p.at.ids), positions: p.in(p.at.positions), words: p.weight(t.words), places: p.weight(t.places),
		gamma: p.weight(t.norm.gamma), beta: p.weight(t.norm.beta), x: p.room(m.room.x), stream: p.room(m.room.stream),
		epsilon: m.config.Epsilon, rows: uint32(p.rows), hidden: uint32(m.config.Hidden), width: uint32(t.width),
	})
}

// normBlocks are on a multiprocessor at a time; each fetches its next rows while it norms.
const normBlocks = 2

// norm adds what a sublayer gave, and norms the sum.
func (p *pass) norm(delta int64, n norm) {
	m := p.m
	blocks := min(runtime.CeilDiv(p.rows, 8), normBlocks*p.limits.multiprocessors)
	follow(p, "encoder/encoder_norm", blocks, 1, rowThreads, 0, &encoderNormParams{
		delta: p.room(delta), x: p.room(m.room.x), stream: p.room(m.room.stream), gamma: p.weight(n.gamma), beta: p.weight(n.beta),
		epsilon: m.config.Epsilon, rows: uint32(p.rows), hidden: uint32(m.config.Hidden), width: uint32(m.t.width),
	})
}

// product multiplies rows with a weight.
func (p *pass) product(epilogue string, w *matrix, a, out, angles int64) {
	k := choose(p.limits, epilogue, p.rows, w.n, w.k, p.m.config.Hidden/p.m.config.Heads)
	args := &encoderGemmParams{
		a: p.room(a), w: p.weight(w.at), bias: p.weight(w.bias), out: p.room(out), rows: uint32(p.rows), n: uint32(w.n), k: uint32(w.k), stages: k.stages,
	}
	if epilogue == "rotary" {
		args.positions, args.angles = p.in(p.at.positions), p.weight(angles)
		args.half, args.turned = uint32(p.m.config.Hidden/p.m.config.Heads/2), uint32(2*p.m.t.width)
	}
	follow(p, k.name, k.gx, k.gy, k.block, k.shared, args)
}

func (p *pass) attention(y *layer) {
	m := p.m
	size := m.config.Hidden / m.config.Heads
	follow(p, fmt.Sprintf("encoder/encoder_attention_d%d", size), p.spans, m.config.Heads, attentionThreads, 0, &encoderAttentionParams{
		qkv: p.room(m.room.qkv), out: p.room(m.room.context), spans: p.in(p.at.spans), scale: float32(1 / math.Sqrt(float64(size))),
		width: uint32(m.t.width), window: uint32(y.window),
	})
}

// heads runs the dense heads, and makes unit vectors.
func (p *pass) heads() {
	m := p.m
	r := &m.room
	unit := encoderUnitParams{
		inHalf: p.room(r.x), bad: p.in(p.at.bad), dim: uint32(m.about.Dim), stride: uint32(roundUp(m.about.Dim, tile)),
	}
	a := r.x
	for i := range m.t.heads {
		h := &m.t.heads[i]
		k := chooseTile(p.limits, "encoder/encoder_head", p.rows, h.n, h.k, 16)
		args := &encoderHeadParams{
			a: p.room(a), w: p.weight(h.at), bias: p.weight(h.bias), rows: uint32(p.rows), n: uint32(h.n), k: uint32(h.k),
			activation: uint32(h.activation), stages: k.stages,
		}
		if h.weighted {
			added := &encoderHeadParams{
				a: args.a, w: p.weight(h.residual.at), out: p.room(r.sums[1]), rows: args.rows, n: args.n, k: args.k, stages: k.stages,
			}
			follow(p, k.name, k.gx, k.gy, k.block, k.shared, added)
			args.add = added.out
		}
		if h.plain {
			args.addHalf = args.a
		}
		if i < len(m.t.heads)-1 {
			a = r.heads[i%2]
			args.outHalf = p.room(a)
		} else {
			args.out = p.room(r.sums[0])
			unit.in, unit.inHalf = args.out, 0
		}
		follow(p, k.name, k.gx, k.gy, k.block, k.shared, args)
	}
	if !p.halves {
		unit.out, unit.count = p.in(p.at.out), uint32(p.rows)
		follow(p, "encoder/encoder_unit", runtime.CeilDiv(p.rows, 8), 1, rowThreads, 0, &unit)
		return
	}
	for _, o := range p.outs {
		part := unit
		part.kept, part.outHalf, part.count = p.in(p.at.kept+4*int64(o.from)), o.to, uint32(o.n)
		follow(p, "encoder/encoder_unit", runtime.CeilDiv(o.n, 8), 1, rowThreads, 0, &part)
	}
}

// The structs of src/encoder/encoder.cuh.

type encoderGemmParams struct {
	a, w, bias, out, positions, angles driver.Ptr
	rows, n, k, half, turned, stages   uint32
}

type encoderHeadParams struct {
	a, w, bias, add, addHalf, out, outHalf driver.Ptr
	rows, n, k, activation, stages, _      uint32
}

type encoderEmbedParams struct {
	ids, positions, words, places, gamma, beta, x, stream driver.Ptr
	epsilon                                               float32
	rows, hidden, width                                   uint32
}

type encoderNormParams struct {
	delta, x, stream, gamma, beta driver.Ptr
	epsilon                       float32
	rows, hidden, width           uint32
}

type encoderSpan struct{ first, length, attended, part uint32 }

type encoderAttentionParams struct {
	qkv, out, spans  driver.Ptr
	scale            float32
	width, window, _ uint32
}

type encoderUnitParams struct {
	in, inHalf, kept, out, outHalf, bad driver.Ptr
	count, dim, stride, _               uint32
}

// graphKey is all that the launches of a small pass depend on: numbers of rows and spans,
// rounded up, so that there are few graphs.
type graphKey struct{ rows, spans int }

// smallRows is up to how many rows a pass is a small one.
const smallRows = 256

// Rows of a small pass are rounded up to graphRows, its spans to a power of two. There are
// at most smallRows/graphRows · (1 + log₂ smallRows) graphs.
const graphRows = 32

func powerOfTwo(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// once gives the device a pass of which all is known but what is in memory: as a graph,
// which is made of the second one of a kind, when the driver knows the kernels.
func (m *model) once(rt *runtime.Runtime, key graphKey, work func() error) error {
	if m.noGraph {
		return work()
	}
	g, seen := m.graphs[key]
	if !seen {
		m.graphs[key] = driver.Graph{}
		return work()
	}
	if g == (driver.Graph{}) {
		var err error
		if g, err = rt.Driver.Capture(rt.Stream, work); err != nil {
			m.noGraph = true
			return work() // what is really wrong is wrong here too
		}
		m.graphs[key] = g
	}
	return rt.Driver.LaunchGraph(g, rt.Stream)
}
