package encoder

import (
	"fmt"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// pass is a batch that goes through the layers, and where its input and output are.
type pass struct {
	m      *model
	rt     *runtime.Runtime
	limits deviceLimits
	rows   int // including the padding rows of a graph
	spans  int
	halves bool // the results are of half precision, for the kept rows only
	outs   []halvesOut
	layout slotLayout
	slot   driver.Ptr
	err    error // the first one
}

// halvesOut is the destination of the vectors of n kept rows in half precision, from kept row from on.
type halvesOut struct {
	from, n int
	to      driver.Ptr
}

// weightPtr returns the address of an array of the weights, 0 for noArray.
func (p *pass) weightPtr(offset int64) driver.Ptr {
	if offset == noArray {
		return 0
	}
	return p.m.weights.At(offset)
}

// workspacePtr returns the address of an array of the workspace, 0 for noArray.
func (p *pass) workspacePtr(offset int64) driver.Ptr {
	if offset == noArray {
		return 0
	}
	return p.m.workspace.At(offset)
}

// slotPtr returns the address of an offset in the slot of the pass.
func (p *pass) slotPtr(offset int64) driver.Ptr { return p.slot.Add(offset) }

// run launches the kernels of all layers, from ids to unit vectors.
func (p *pass) run() error {
	m := p.m
	t, r := m.tensors, &m.memory
	post := m.config.NormPlace == transformer.PostNorm
	p.embedTokens()
	for i := range t.layers {
		y := &t.layers[i]
		// The norms after attention and after the feed-forward layer.
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

// mixTokens computes attention or a convolution of a layer, and returns the offset of the result.
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

// rotaryHead is the only size of a head that epilogues can rotate.
const rotaryHead = 64

// rotatesSeparately reports whether a separate kernel rotates, or normalizes, the queries and keys of a
// layer.
func (m *model) rotatesSeparately(y *layer) bool {
	normalizes := y.queryNorm.gamma != noArray || y.keyNorm.gamma != noArray
	return normalizes || y.angles != noArray && m.config.HeadSize != rotaryHead
}

// normBefore returns the norm of PreNorm before layer i, or the final norm after the last layer.
func (m *model) normBefore(i int) norm {
	if i < len(m.tensors.layers) {
		return m.tensors.layers[i].attentionNorm
	}
	return m.tensors.final
}

// launchAfter launches a kernel that depends on the previous one, unless a launch has failed. In a pass of
// few rows it is launched early, so that no time passes between the two.
func launchAfter[T any](p *pass, name string, gx, gy, block, shared int, args *T) {
	if p.err != nil {
		return
	}
	if p.err = runtime.LaunchAfter(p.rt, p.rows <= followRows, name, gx, gy, 1, block, shared, args); p.err != nil {
		p.err = fmt.Errorf("%s: %w", name, p.err)
	}
}

// rowThreads is the block size of kernels that process eight rows. attentionThreads is that of
// attention, whose blocks process up to partQueries queries.
const (
	rowThreads       = 256
	attentionThreads = 128
	partQueries      = 64
)

// embedTokens computes the input of the first layer. Embeddings are normalized before they are projected
// to the hidden size.
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
	// It follows a copy, for which a kernel cannot wait, so that it is not launched early.
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

// rmsNormFlag returns 1 for norms that do not subtract the mean, else 0.
func (m *model) rmsNormFlag() uint32 {
	if m.config.Norm == transformer.RMSNorm {
		return 1
	}
	return 0
}

// normBlocks is how many blocks of the norm kernels run on a multiprocessor at the same time. A block
// loads its next rows while it normalizes the current ones.
const normBlocks = 2

// addAndNorm adds the output of a sublayer, normalized by post if that is a norm, to the stream, and
// normalizes the sum by n.
func (p *pass) addAndNorm(delta int64, post, n norm) { p.launchNorm(delta, post, n, false) }

// launchNorm is addAndNorm. With startsStream the stream is set to delta instead of adding to it.
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

// multiplyPlain multiplies rows with a weight and adds the bias.
func (p *pass) multiplyPlain(w *matrix, a, out int64) {
	p.multiplyRows("bias", w, a, out, &encoderGemmParams{})
}

// multiplyRows multiplies rows with a weight, and applies an epilogue, whose parameters are in args.
func (p *pass) multiplyRows(epilogue string, w *matrix, a, out int64, args *encoderGemmParams) {
	k := chooseKernel(p.limits, epilogue, p.rows, w.n, w.k)
	args.a, args.out = p.workspacePtr(a), p.workspacePtr(out)
	args.w, args.bias = p.weightPtr(w.weights), p.weightPtr(w.bias)
	args.rows, args.n, args.k, args.stages = uint32(p.rows), uint32(w.n), uint32(w.k), k.stages
	launchAfter(p, k.name, k.gx, k.gy, k.block, k.shared, args)
}

// rotateHeads normalizes and rotates the heads of queries and keys.
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

// rotaryLaneColumns is the number of columns of a lane of encoder_turn.
const rotaryLaneColumns = 16

// convBlockColumns is the number of columns of a block of encoder_conv.
const convBlockColumns = 256

// launchConvolution computes the gated convolution from in, out and x.
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

// unboundedReach is the reach of a window without an end, in tokens.
const unboundedReach = 1 << 30

// The attention kernel for heads of sharedHead columns keeps its queries in shared memory; the others
// keep them in registers.
const (
	sharedHead  = 256
	sharedBytes = 3 * partQueries * (2*sharedHead + 16)
)

// launchAttention computes the attention of a layer from its queries, keys and values.
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

// runDenseHeads computes the dense heads, and divides the vectors by their lengths.
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

// The parameter structs of src/encoder/encoder.cuh.

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

// graphKey has the numbers that the launches of a small pass depend on: rows and spans,
// rounded up so that there are few graphs.
type graphKey struct{ rows, spans int }

// smallRows is the maximum of rows of a small pass, which is launched as a graph.
const smallRows = 256

// Rows of a small pass are rounded up to graphRows, its spans to a power of two. There are
// at most smallRows/graphRows · (1 + log₂ smallRows) graphs.
const graphRows = 32

// powerOfTwo returns the smallest power of two that is at least n.
func powerOfTwo(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// replayOrLaunch launches a pass whose launches depend only on key. The first pass of a key is launched
// directly, which loads its kernels; the second one is captured as a graph, which later ones reuse.
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
			return work() // returns the error again unless only the capture failed
		}
		m.graphs[key] = g
	}
	return rt.Driver.LaunchGraph(g, rt.Stream)
}
