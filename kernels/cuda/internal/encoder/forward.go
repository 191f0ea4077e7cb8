package encoder

import (
	"fmt"

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

func (p *pass) weightPtr(at int64) driver.Ptr {
	if at == none {
		return 0
	}
	return p.m.weights.At(at)
}

func (p *pass) workspacePtr(at int64) driver.Ptr {
	if at == none {
		return 0
	}
	return p.m.mem.At(at)
}

func (p *pass) slotPtr(at int64) driver.Ptr { return p.slot.Add(at) }

// run launches the kernels of all layers, from ids to unit vectors.
func (p *pass) run() error {
	m := p.m
	t, r := m.t, &m.memory
	post := m.config.NormPlace == transformer.PostNorm
	p.embedTokens()
	for i := range t.layers {
		y := &t.layers[i]
		// The norms that follow attention and the feed-forward part.
		middle, last := y.feedForwardNorm, m.normBefore(i+1)
		if post {
			middle, last = y.attentionNorm, y.feedForwardNorm
		}
		given := p.mixTokens(y)
		p.product(&y.output, given, r.delta)
		p.norm(r.delta, y.attentionOutputNorm, middle)
		p.multiply(epilogue(&m.config), &y.up, r.x, r.wide,
			&encoderGemmParams{curve: activations[m.config.Activation].curve})
		p.product(&y.down, r.wide, r.delta)
		p.norm(r.delta, y.feedForwardOutput, last)
	}
	p.runDenseHeads()
	return p.err
}

// mixTokens brings tokens together, by attention or a convolution, and says where the result lies.
func (p *pass) mixTokens(y *layer) int64 {
	m, r := p.m, &p.m.memory
	if y.angles != none && !m.turnsSeparately(y) {
		p.multiply("rotary", &y.qkv, r.x, r.qkv, &encoderGemmParams{
			positions: p.slotPtr(p.at.positions), angles: p.weightPtr(y.angles),
			turned: uint32((m.config.Heads + m.config.KeyHeads) * rotaryHead),
		})
	} else {
		p.product(&y.qkv, r.x, r.qkv)
	}
	if y.form.Convolution {
		p.convolve(y)
		return r.convolved
	}
	if m.turnsSeparately(y) {
		p.turnHeads(y)
	}
	p.attention(y)
	return r.context
}

// rotaryHead is the one size of a head that epilogues turn.
const rotaryHead = 64

// turnsSeparately reports whether queries and keys of a layer are turned, or normed, by a kernel of its
// own.
func (m *model) turnsSeparately(y *layer) bool {
	return y.queryNorm.gamma != none || y.keyNorm.gamma != none || y.angles != none && m.config.HeadSize != rotaryHead
}

// normBefore is the norm of PreNorm before a layer, or after the last.
func (m *model) normBefore(i int) norm {
	if i < len(m.t.layers) {
		return m.t.layers[i].attentionNorm
	}
	return m.t.final
}

// launchAfter launches a kernel behind the one before, unless one has failed; of few rows early,
// so that it is there when that one ends.
func launchAfter[T any](p *pass, name string, gx, gy, block, shared int, args *T) {
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

// embedTokens writes the input of the first layer. Embeddings of another size are normed in that.
func (p *pass) embedTokens() {
	m := p.m
	t, r := m.t, &m.memory
	streams := r.stream != none
	x, stream := r.x, r.stream
	if t.project != nil {
		x, stream = r.embedded, none
	}
	name := "encoder/encoder_embed"
	if t.embedding > fewColumns {
		name += "_wide"
	}
	// It follows a copy, which it cannot wait for itself.
	p.err = runtime.Launch(p.rt, name, runtime.CeilDiv(p.rows, 8), 1, 1, rowThreads, 0, &encoderEmbedParams{
		ids: p.slotPtr(p.at.ids), positions: p.slotPtr(p.at.positions), words: p.weightPtr(t.words), places: p.weightPtr(t.places),
		gamma: p.weightPtr(t.norm.gamma), beta: p.weightPtr(t.norm.beta), x: p.workspacePtr(x), stream: p.workspacePtr(stream),
		epsilon: m.config.Epsilon, rows: uint32(p.rows), hidden: uint32(m.config.EmbeddingSize()),
		width: uint32(t.embedding), rms: m.rmsNormFlag(),
	})
	first := noNorm
	if streams {
		first = m.normBefore(0)
	}
	switch {
	case t.project != nil && streams:
		p.product(t.project, r.embedded, r.delta)
		p.addAndNorm(r.delta, noNorm, first, true)
	case t.project != nil:
		p.product(t.project, r.embedded, r.x)
	case first.gamma != none:
		p.norm(none, noNorm, first)
	}
}

// rmsNormFlag is 1 for norms that do not subtract the mean.
func (m *model) rmsNormFlag() uint32 {
	if m.config.Norm == transformer.RMSNorm {
		return 1
	}
	return 0
}

// normBlocks are on a multiprocessor at a time; each fetches its next rows while it norms.
const normBlocks = 2

// norm adds the output of a sublayer, normed by post if that is a norm, and norms the sum.
func (p *pass) norm(delta int64, post, n norm) { p.addAndNorm(delta, post, n, false) }

// addAndNorm is norm; where the stream is fresh, it begins with delta.
func (p *pass) addAndNorm(delta int64, post, n norm, fresh bool) {
	m := p.m
	name := "encoder/encoder_norm"
	switch {
	case m.t.width > fewColumns:
		name += "_wide"
	case post.gamma != none:
		name += "_post"
	}
	blocks := min(runtime.CeilDiv(p.rows, 8), normBlocks*p.limits.multiprocessors)
	args := &encoderNormParams{
		delta: p.workspacePtr(delta), x: p.workspacePtr(m.memory.x), stream: p.workspacePtr(m.memory.stream), gamma: p.weightPtr(n.gamma), beta: p.weightPtr(n.beta),
		post: p.weightPtr(post.gamma), postBeta: p.weightPtr(post.beta), postEpsilon: post.epsilon,
		epsilon: n.epsilon, rows: uint32(p.rows), hidden: uint32(m.config.Hidden), width: uint32(m.t.width),
		rms: m.rmsNormFlag(),
	}
	if fresh {
		args.fresh = 1
	}
	launchAfter(p, name, blocks, 1, rowThreads, 0, args)
}

// product multiplies rows with a weight.
func (p *pass) product(w *matrix, a, out int64) { p.multiply("bias", w, a, out, &encoderGemmParams{}) }

// multiply is product with an epilogue, whose own parameters are in args.
func (p *pass) multiply(epilogue string, w *matrix, a, out int64, args *encoderGemmParams) {
	k := choose(p.limits, epilogue, p.rows, w.n, w.k)
	args.a, args.w, args.bias, args.out = p.workspacePtr(a), p.weightPtr(w.at), p.weightPtr(w.bias), p.workspacePtr(out)
	args.rows, args.n, args.k, args.stages = uint32(p.rows), uint32(w.n), uint32(w.k), k.stages
	launchAfter(p, k.name, k.gx, k.gy, k.block, k.shared, args)
}

// turnHeads norms and rotates heads of queries and keys.
func (p *pass) turnHeads(y *layer) {
	m := p.m
	c := &m.config
	lanes := powerOfTwo(c.HeadSize / turnColumns)
	units := p.rows * (c.Heads + c.KeyHeads)
	launchAfter(p, "encoder/encoder_turn", runtime.CeilDiv(units*lanes, rowThreads), 1, rowThreads, 0, &encoderTurnParams{
		qkv: p.workspacePtr(m.memory.qkv), positions: p.slotPtr(p.at.positions), angles: p.weightPtr(y.angles),
		query: p.weightPtr(y.queryNorm.gamma), queryBeta: p.weightPtr(y.queryNorm.beta), key: p.weightPtr(y.keyNorm.gamma),
		keyBeta: p.weightPtr(y.keyNorm.beta), epsilon: c.Epsilon, rows: uint32(p.rows), columns: uint32(y.qkv.n),
		heads: uint32(c.Heads), keyHeads: uint32(c.KeyHeads), size: uint32(c.HeadSize), stride: uint32(m.t.headColumns),
		rms: m.rmsNormFlag(),
	})
}

// turnColumns are those of a lane.
const turnColumns = 16

// convColumns are those of a block.
const convColumns = 256

// convolve computes the gated convolution of in, out and x.
func (p *pass) convolve(y *layer) {
	m := p.m
	args := &encoderConvParams{
		in: p.workspacePtr(m.memory.qkv), out: p.workspacePtr(m.memory.convolved), spans: p.slotPtr(p.at.spans),
		weights: p.weightPtr(y.taps), bias: p.weightPtr(y.tapsBias), nothing: p.weightPtr(y.qkv.bias),
		width: uint32(m.t.width), taps: uint32(y.form.Taps()), before: uint32(y.form.Before),
	}
	if y.form.ConvolveAll {
		args.all = 1
	}
	launchAfter(p, "encoder/encoder_conv", p.spans, runtime.CeilDiv(m.t.width, convColumns), rowThreads, 0, args)
}

// everywhere is a window without an end.
const everywhere = 1 << 30

// Heads of sharedHead columns have their queries in shared memory.
const (
	sharedHead  = 256
	sharedBytes = 3 * partQueries * (2*sharedHead + 16)
)

func (p *pass) attention(y *layer) {
	m := p.m
	c, d := &m.config, m.t.headColumns
	shared := 0
	if d == sharedHead {
		shared = sharedBytes
	}
	reach := func(n int) uint32 {
		if n == transformer.Unbounded {
			return everywhere
		}
		return uint32(min(n, everywhere))
	}
	launchAfter(p, fmt.Sprintf("encoder/encoder_attention_d%d", d), p.spans, c.Heads, attentionThreads, shared,
		&encoderAttentionParams{
			qkv: p.workspacePtr(m.memory.qkv), out: p.workspacePtr(m.memory.context), spans: p.slotPtr(p.at.spans),
			relative: p.weightPtr(m.t.relative), scale: c.Scale(),
			columns: uint32(y.qkv.n), width: uint32(y.output.k), keys: uint32(c.Heads * d), values: uint32(m.t.keys),
			share: uint32(c.Heads / c.KeyHeads), before: reach(y.form.Before), after: reach(y.form.After),
			zero: uint32(zeroDistance(c)),
		})
}

// runDenseHeads runs the dense heads, and makes unit vectors.
func (p *pass) runDenseHeads() {
	m := p.m
	r := &m.memory
	unit := encoderUnitParams{
		inHalf: p.workspacePtr(r.x), bad: p.slotPtr(p.at.bad), dim: uint32(m.about.Dim), stride: uint32(roundUp(m.about.Dim, tile)),
	}
	a := r.x
	for i := range m.t.heads {
		h := &m.t.heads[i]
		k := chooseTile(p.limits, "encoder/encoder_head", p.rows, h.n, h.k, 16)
		args := &encoderHeadParams{
			a: p.workspacePtr(a), w: p.weightPtr(h.at), bias: p.weightPtr(h.bias), rows: uint32(p.rows), n: uint32(h.n), k: uint32(h.k),
			activation: uint32(h.activation), stages: k.stages,
		}
		if h.weighted {
			added := &encoderHeadParams{
				a: args.a, w: p.weightPtr(h.residual.at), out: p.workspacePtr(r.sums[1]), rows: args.rows, n: args.n, k: args.k, stages: k.stages,
			}
			launchAfter(p, k.name, k.gx, k.gy, k.block, k.shared, added)
			args.add = added.out
		}
		if h.plain {
			args.addHalf = args.a
		}
		if i < len(m.t.heads)-1 {
			a = r.heads[i%2]
			args.outHalf = p.workspacePtr(a)
		} else {
			args.out = p.workspacePtr(r.sums[0])
			unit.in, unit.inHalf = args.out, 0
		}
		launchAfter(p, k.name, k.gx, k.gy, k.block, k.shared, args)
	}
	if !p.halves {
		unit.out, unit.count = p.slotPtr(p.at.out), uint32(p.rows)
		launchAfter(p, "encoder/encoder_unit", runtime.CeilDiv(p.rows, 8), 1, rowThreads, 0, &unit)
		return
	}
	for _, o := range p.outs {
		part := unit
		part.kept, part.outHalf, part.count = p.slotPtr(p.at.kept+4*int64(o.from)), o.to, uint32(o.n)
		launchAfter(p, "encoder/encoder_unit", runtime.CeilDiv(o.n, 8), 1, rowThreads, 0, &part)
	}
}

// The structs of src/encoder/encoder.cuh.

type encoderGemmParams struct {
	a, w, bias, out, positions, angles driver.Ptr
	rows, n, k, turned, stages         uint32
	curve                              [7]float32
}

type encoderHeadParams struct {
	a, w, bias, add, addHalf, out, outHalf driver.Ptr
	rows, n, k, activation, stages, _      uint32
}

type encoderEmbedParams struct {
	ids, positions, words, places, gamma, beta, x, stream driver.Ptr
	epsilon                                               float32
	rows, hidden, width, rms, _                           uint32
}

type encoderNormParams struct {
	delta, x, stream, gamma, beta, post, postBeta driver.Ptr
	epsilon, postEpsilon                          float32
	rows, hidden, width, rms, fresh, _            uint32
}

type encoderTurnParams struct {
	qkv, positions, angles, query, queryBeta, key, keyBeta driver.Ptr
	epsilon                                                float32
	rows, columns, heads, keyHeads, size, stride, rms      uint32
}

type encoderSpan struct{ first, length, attended, part uint32 }

type encoderAttentionParams struct {
	qkv, out, spans, relative                                   driver.Ptr
	scale                                                       float32
	columns, width, keys, values, share, before, after, zero, _ uint32
}

type encoderConvParams struct {
	in, out, spans, weights, bias, nothing driver.Ptr
	width, taps, before, all               uint32
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

// replayOrLaunch gives the device a pass of which all is known but what is in memory: as a graph,
// which is made of the second one of a kind, when the driver knows the kernels.
func (m *model) replayOrLaunch(rt *runtime.Runtime, key graphKey, work func() error) error {
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
