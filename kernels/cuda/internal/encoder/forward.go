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
	limits deviceLimits
	rows   int // with those that a graph was given beyond
	spans  int
	halves bool // as halves, of the rows that are kept
	outs   []halvesOut
	layout slotLayout
	slot   driver.Ptr
	err    error // the first one
}

// halvesOut is where the halves of n kept rows go, from one of them on.
type halvesOut struct {
	from, n int
	to      driver.Ptr
}

func (p *pass) weightPtr(at int64) driver.Ptr {
	if at == noArray {
		return 0
	}
	return p.m.weights.At(at)
}

func (p *pass) workspacePtr(at int64) driver.Ptr {
	if at == noArray {
		return 0
	}
	return p.m.workspace.At(at)
}

func (p *pass) slotPtr(at int64) driver.Ptr { return p.slot.Add(at) }

// run launches the kernels of all layers, from ids to unit vectors.
func (p *pass) run() error {
	m := p.m
	t, r := m.tensors, &m.memory
	post := m.config.NormPlace == transformer.PostNorm
	p.embedTokens()
	for i := range t.layers {
		y := &t.layers[i]
		// The norms that follow attention and the feed-forward part.
		middle, last := y.feedForwardNorm, m.normBefore(i+1)
		if post {
			middle, last = y.attentionNorm, y.feedForwardNorm
		}
		mixed := p.mixTokens(y)
		p.multiplyPlain(&y.output, mixed, r.delta)
		p.addAndNorm(r.delta, y.attentionOutputNorm, middle)
		p.multiplyRows(epilogue(&m.config), &y.up, r.x, r.wide,
			&encoderGemmParams{curve: activations[m.config.Activation].curve})
		p.multiplyPlain(&y.down, r.wide, r.delta)
		p.addAndNorm(r.delta, y.feedForwardOutput, last)
	}
	p.runDenseHeads()
	return p.err
}

// mixTokens brings tokens together, by attention or a convolution, and says where the result lies.
func (p *pass) mixTokens(y *layer) int64 {
	m, r := p.m, &p.m.memory
	if y.angles != noArray && !m.rotatesSeparately(y) {
		p.multiplyRows("rotary", &y.qkv, r.x, r.qkv, &encoderGemmParams{
			positions: p.slotPtr(p.layout.positions), angles: p.weightPtr(y.angles),
			turned: uint32((m.config.Heads + m.config.KeyHeads) * rotaryHead),
		})
	} else {
		p.multiplyPlain(&y.qkv, r.x, r.qkv)
	}
	if y.form.Convolution {
		p.launchConvolution(y)
		return r.convolved
	}
	if m.rotatesSeparately(y) {
		p.rotateHeads(y)
	}
	p.launchAttention(y)
	return r.context
}

// rotaryHead is the one size of a head that epilogues turn.
const rotaryHead = 64

// rotatesSeparately reports whether queries and keys of a layer are turned, or normed, by a kernel of its
// own.
func (m *model) rotatesSeparately(y *layer) bool {
	return y.queryNorm.gamma != noArray || y.keyNorm.gamma != noArray || y.angles != noArray && m.config.HeadSize != rotaryHead
}

// normBefore is the norm of PreNorm before a layer, or after the last.
func (m *model) normBefore(i int) norm {
	if i < len(m.tensors.layers) {
		return m.tensors.layers[i].attentionNorm
	}
	return m.tensors.final
}

// launchAfter launches a kernel behind the one before, unless one has failed; of few rows early,
// so that it is there when that one ends.
func launchAfter[T any](p *pass, name string, gx, gy, block, shared int, args *T) {
	if p.err != nil {
		return
	}
	if p.err = runtime.LaunchAfter(p.rt, p.rows <= followRows, name, gx, gy, 1, block, shared, args); p.err != nil {
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
	t, r := m.tensors, &m.memory
	streams := r.stream != noArray
	x, stream := r.x, r.stream
	if t.project != nil {
		x, stream = r.embedded, noArray
	}
	name := "encoder/encoder_embed"
	if t.embedding > narrowColumns {
		name += "_wide"
	}
	// It follows a copy, which it cannot wait for itself.
	p.err = runtime.Launch(p.rt, name, runtime.CeilDiv(p.rows, 8), 1, 1, rowThreads, 0, &encoderEmbedParams{
		ids:       p.slotPtr(p.layout.ids),
		positions: p.slotPtr(p.layout.positions),
		words:     p.weightPtr(t.words),
		places:    p.weightPtr(t.positions),
		gamma:     p.weightPtr(t.norm.gamma),
		beta:      p.weightPtr(t.norm.beta),
		x:         p.workspacePtr(x),
		stream:    p.workspacePtr(stream),
		epsilon:   m.config.Epsilon,
		rows:      uint32(p.rows),
		hidden:    uint32(m.config.EmbeddingSize()),
		width:     uint32(t.embedding),
		rms:       m.rmsNormFlag(),
	})
	first := noNorm
	if streams {
		first = m.normBefore(0)
	}
	switch {
	case t.project != nil && streams:
		p.multiplyPlain(t.project, r.embedded, r.delta)
		p.launchNorm(r.delta, noNorm, first, true)
	case t.project != nil:
		p.multiplyPlain(t.project, r.embedded, r.x)
	case first.gamma != noArray:
		p.addAndNorm(noArray, noNorm, first)
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

// addAndNorm adds the output of a sublayer, normed by post if that is a norm, and norms the sum.
func (p *pass) addAndNorm(delta int64, post, n norm) { p.launchNorm(delta, post, n, false) }

// launchNorm is norm; where the stream is fresh, it begins with delta.
func (p *pass) launchNorm(delta int64, post, n norm, startsStream bool) {
	m := p.m
	name := "encoder/encoder_norm"
	switch {
	case m.tensors.width > narrowColumns:
		name += "_wide"
	case post.gamma != noArray:
		name += "_post"
	}
	blocks := min(runtime.CeilDiv(p.rows, 8), normBlocks*p.limits.multiprocessors)
	args := &encoderNormParams{
		delta:       p.workspacePtr(delta),
		x:           p.workspacePtr(m.memory.x),
		stream:      p.workspacePtr(m.memory.stream),
		gamma:       p.weightPtr(n.gamma),
		beta:        p.weightPtr(n.beta),
		post:        p.weightPtr(post.gamma),
		postBeta:    p.weightPtr(post.beta),
		postEpsilon: post.epsilon,
		epsilon:     n.epsilon,
		rows:        uint32(p.rows),
		hidden:      uint32(m.config.Hidden),
		width:       uint32(m.tensors.width),
		rms:         m.rmsNormFlag(),
	}
	if startsStream {
		args.fresh = 1
	}
	launchAfter(p, name, blocks, 1, rowThreads, 0, args)
}

// multiplyPlain multiplies rows with a weight.
func (p *pass) multiplyPlain(w *matrix, a, out int64) {
	p.multiplyRows("bias", w, a, out, &encoderGemmParams{})
}

// multiplyRows is product with an epilogue, whose own parameters are in args.
func (p *pass) multiplyRows(epilogue string, w *matrix, a, out int64, args *encoderGemmParams) {
	k := chooseKernel(p.limits, epilogue, p.rows, w.n, w.k)
	args.a, args.w, args.bias, args.out = p.workspacePtr(a), p.weightPtr(w.weights), p.weightPtr(w.bias), p.workspacePtr(out)
	args.rows, args.n, args.k, args.stages = uint32(p.rows), uint32(w.n), uint32(w.k), k.stages
	launchAfter(p, k.name, k.gx, k.gy, k.block, k.shared, args)
}

// rotateHeads norms and rotates heads of queries and keys.
func (p *pass) rotateHeads(y *layer) {
	m := p.m
	c := &m.config
	lanes := powerOfTwo(c.HeadSize / rotaryLaneColumns)
	units := p.rows * (c.Heads + c.KeyHeads)
	launchAfter(p, "encoder/encoder_turn", runtime.CeilDiv(units*lanes, rowThreads), 1, rowThreads, 0,
		&encoderTurnParams{
			qkv:       p.workspacePtr(m.memory.qkv),
			positions: p.slotPtr(p.layout.positions),
			angles:    p.weightPtr(y.angles),
			query:     p.weightPtr(y.queryNorm.gamma),
			queryBeta: p.weightPtr(y.queryNorm.beta),
			key:       p.weightPtr(y.keyNorm.gamma),
			keyBeta:   p.weightPtr(y.keyNorm.beta),
			epsilon:   c.Epsilon,
			rows:      uint32(p.rows),
			columns:   uint32(y.qkv.n),
			heads:     uint32(c.Heads),
			keyHeads:  uint32(c.KeyHeads),
			size:      uint32(c.HeadSize),
			stride:    uint32(m.tensors.headColumns),
			rms:       m.rmsNormFlag(),
		})
}

// rotaryLaneColumns are those of a lane.
const rotaryLaneColumns = 16

// convBlockColumns are those of a block.
const convBlockColumns = 256

// launchConvolution computes the gated convolution of in, out and x.
func (p *pass) launchConvolution(y *layer) {
	m := p.m
	args := &encoderConvParams{
		in:      p.workspacePtr(m.memory.qkv),
		out:     p.workspacePtr(m.memory.convolved),
		spans:   p.slotPtr(p.layout.spans),
		weights: p.weightPtr(y.taps),
		bias:    p.weightPtr(y.tapsBias),
		nothing: p.weightPtr(y.qkv.bias),
		width:   uint32(m.tensors.width),
		taps:    uint32(y.form.Taps()),
		before:  uint32(y.form.Before),
	}
	if y.form.ConvolveAll {
		args.all = 1
	}
	launchAfter(p, "encoder/encoder_conv", p.spans, runtime.CeilDiv(m.tensors.width, convBlockColumns), rowThreads,
		0, args)
}

// unboundedReach is a window without an end.
const unboundedReach = 1 << 30

// Heads of sharedHead columns have their queries in shared memory.
const (
	sharedHead  = 256
	sharedBytes = 3 * partQueries * (2*sharedHead + 16)
)

func (p *pass) launchAttention(y *layer) {
	m := p.m
	c, d := &m.config, m.tensors.headColumns
	shared := 0
	if d == sharedHead {
		shared = sharedBytes
	}
	reach := func(n int) uint32 {
		if n == transformer.Unbounded {
			return unboundedReach
		}
		return uint32(min(n, unboundedReach))
	}
	launchAfter(p, fmt.Sprintf("encoder/encoder_attention_d%d", d), p.spans, c.Heads, attentionThreads, shared,
		&encoderAttentionParams{
			qkv:      p.workspacePtr(m.memory.qkv),
			out:      p.workspacePtr(m.memory.context),
			spans:    p.slotPtr(p.layout.spans),
			relative: p.weightPtr(m.tensors.relative),
			scale:    c.Scale(),
			columns:  uint32(y.qkv.n),
			width:    uint32(y.output.k),
			keys:     uint32(c.Heads * d),
			values:   uint32(m.tensors.keyColumns),
			share:    uint32(c.Heads / c.KeyHeads),
			before:   reach(y.form.Before),
			after:    reach(y.form.After),
			zero:     uint32(zeroDistance(c)),
		})
}

// runDenseHeads runs the dense heads, and makes unit vectors.
func (p *pass) runDenseHeads() {
	m := p.m
	r := &m.memory
	unit := encoderUnitParams{
		inHalf: p.workspacePtr(r.x),
		bad:    p.slotPtr(p.layout.bad),
		dim:    uint32(m.about.Dim),
		stride: uint32(roundUp(m.about.Dim, tile)),
	}
	a := r.x
	for i := range m.tensors.heads {
		h := &m.tensors.heads[i]
		k := chooseTile(p.limits, "encoder/encoder_head", p.rows, h.n, h.k, 16)
		args := &encoderHeadParams{
			a:          p.workspacePtr(a),
			w:          p.weightPtr(h.weights),
			bias:       p.weightPtr(h.bias),
			rows:       uint32(p.rows),
			n:          uint32(h.n),
			k:          uint32(h.k),
			activation: uint32(h.activation),
			stages:     k.stages,
		}
		if h.weightedResidual {
			added := &encoderHeadParams{
				a:      args.a,
				w:      p.weightPtr(h.residual.weights),
				out:    p.workspacePtr(r.sums[1]),
				rows:   args.rows,
				n:      args.n,
				k:      args.k,
				stages: k.stages,
			}
			launchAfter(p, k.name, k.gx, k.gy, k.block, k.shared, added)
			args.add = added.out
		}
		if h.plainResidual {
			args.addHalf = args.a
		}
		if i < len(m.tensors.heads)-1 {
			a = r.heads[i%2]
			args.outHalf = p.workspacePtr(a)
		} else {
			args.out = p.workspacePtr(r.sums[0])
			unit.in, unit.inHalf = args.out, 0
		}
		launchAfter(p, k.name, k.gx, k.gy, k.block, k.shared, args)
	}
	if !p.halves {
		unit.out, unit.count = p.slotPtr(p.layout.out), uint32(p.rows)
		launchAfter(p, "encoder/encoder_unit", runtime.CeilDiv(p.rows, 8), 1, rowThreads, 0, &unit)
		return
	}
	for _, o := range p.outs {
		part := unit
		part.kept, part.outHalf, part.count = p.slotPtr(p.layout.kept+4*int64(o.from)), o.to, uint32(o.n)
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
	if m.graphsUnsupported {
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
			m.graphsUnsupported = true
			return work() // what is really wrong is wrong here too
		}
		m.graphs[key] = g
	}
	return rt.Driver.LaunchGraph(g, rt.Stream)
}
