package dense

import (
	"fmt"
	"slices"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// batchKey has the properties of a batch that a plan depends on. All fields have the same size, without
// padding, so that it is compared and hashed as bytes.
type batchKey struct {
	kind, dim, items, rows, stride, longest, maskStride int
	set                                                 int // a bit of each array, and of its alignment
}

// planKey returns the properties of a batch that a plan depends on.
func (b *Batch) planKey() batchKey {
	return batchKey{
		int(b.Type), b.Dim, b.Items, b.Rows, b.Stride, b.Longest, b.MaskStride,
		conditionBits(b.Scales != 0, b.Zeros != 0, b.Offsets != 0, b.Lengths != 0, b.Mask != 0, b.Data%16 == 0),
	}
}

// conditionBits returns a number with a bit for each condition.
func conditionBits(conditions ...bool) (n int) {
	for _, c := range conditions {
		n *= 2
		if c {
			n++
		}
	}
	return n
}

// evenItems returns the items of a batch as if it were padded and had no lengths and no mask.
func (b *Batch) evenItems() evenSpans { return evenSpans{b.Items, b.Longest, b.Stride} }

// itemsShareRows reports whether items share rows.
func (b *Batch) itemsShareRows() bool { return b.Offsets == 0 && b.Items > 1 && b.Stride < b.Longest }

// lastRow returns the end of the rows that items may have.
func (b *Batch) lastRow() int {
	if b.Offsets != 0 || b.Items == 0 {
		return b.Rows
	}
	return (b.Items-1)*b.Stride + b.Longest
}

// matrix returns a matrix of the type of a batch, without values, to choose formats for.
func (b *Batch) matrix() *maxsim.Matrix {
	m := &maxsim.Matrix{Type: b.Type, Dim: b.Dim}
	if b.Zeros != 0 {
		m.Zeros = []int8{}
	}
	return m
}

// tensorLimits bound the workspace of a call, so that documents that are packed stay in the cache
// until they are scored.
var tensorLimits = callLimits{docs: stageBytes, part: 32 << 20, segment: 512}

// fusedPieceFactor is how many times larger the pieces of hidden states are for a fused kernel, whose
// blocks all read the weights before they score.
const fusedPieceFactor = 4

// scoreKey has the properties of a call that a plan depends on.
type scoreKey struct {
	q, d        batchKey
	kind, count int
	terms       int // a bit for each of normalization, weights, argmaxima and head
	head        headKey
}

// scorePlan is the plan for calls of one shape: kernel, pieces, tables, and the layout of the workspace.
type scorePlan struct {
	kind     PairKind
	pairs    int
	kernel   kernel
	function driver.Function
	q, d     rowsPlan
	head     *headPlan // nil means that documents are token vectors
	// The number of groups of a query, of rows of a segment, and of segments of a document.
	perQuery, segment, segments int
	// The device makes these tables, which depend on values in its memory.
	fillItems, fillGroups bool
	// Offsets in the workspace, −1 for arrays that are not needed.
	weights, part, top, arg              int64
	items, groups, units, joins, rowMask int64
	bytes                                int64
	ones                                 int64 // offset in the tables of weights that are all 1, or −1
	tables                               tables
	tablesBySize                         []scoreTables // of pieces, by size
	pieces                               []scorePiece
}

// fillsOnDevice reports whether the device makes tables.
func (p *scorePlan) fillsOnDevice() bool { return p.fillItems || p.fillGroups }

// maxHostTable bounds the items of a table that the host makes.
const maxHostTable = 1 << 20

// scorePlan returns the plan of a call from the cache, or makes it.
func (d *Device) scorePlan(c *ScoreCall) (*cachedPlan, error) {
	key := scoreKey{c.Q.planKey(), c.D.planKey(), int(c.Pairs.Kind), c.Pairs.Count,
		conditionBits(c.Normalize, c.Weights != 0, c.Argmax != 0, c.head != nil), c.head.planKey()}
	if x := findPlan(&d.plans, d.plans.scores, key); x != nil {
		return x, nil
	}
	p, err := d.newScorePlan(c)
	if err != nil {
		return nil, err
	}
	return keepPlan(&d.plans, &d.plans.scores, key, &cachedPlan{score: p}), nil
}

// newScorePlan makes the plan of a call.
func (d *Device) newScorePlan(c *ScoreCall) (*scorePlan, error) {
	if c.Q.itemsShareRows() && (c.Q.Lengths != 0 || c.Q.Mask != 0) {
		return nil, fmt.Errorf("%w: lengths or masks of queries that share rows", driver.ErrUnsupported)
	}
	maskStrideDiffers := c.D.Mask != 0 && c.D.Items > 1 && c.D.MaskStride != c.D.Stride
	if maskStrideDiffers && c.D.itemsShareRows() {
		return nil, fmt.Errorf("%w: masks of documents that share rows", driver.ErrUnsupported)
	}
	p := &scorePlan{
		kind:     c.Pairs.Kind,
		segments: 1,
		segment:  max(c.D.Longest, 1),
		weights:  -1,
		part:     -1,
		top:      -1,
		arg:      -1,
		rowMask:  -1,
		ones:     -1,
	}
	p.pairs, _ = c.Pairs.countPairs(&c.Q, &c.D)
	lengthsOnDevice := c.D.Offsets != 0 || c.D.Lengths != 0 || c.D.Mask != 0
	p.fillItems = lengthsOnDevice || p.kind == PairsListed || c.D.Items > maxHostTable
	p.fillGroups = c.Q.Offsets != 0 || p.kind == PairsListed
	if err := d.chooseKernels(p, c); err != nil {
		return nil, err
	}
	return p, d.layOut(p, c, maskStrideDiffers)
}

// chooseKernels chooses the formats and the kernels, and divides long documents into segments.
func (d *Device) chooseKernels(p *scorePlan, c *ScoreCall) (err error) {
	s := &shape{
		all:         p.kind == PairsAll,
		queryCount:  c.Q.Items,
		longest:     c.Q.Longest,
		tokens:      c.Q.Items * c.Q.Longest,
		argmax:      c.Argmax != 0,
		groupsAlone: p.kind == PairsListed || p.kind == PairsOwn && c.Pairs.Count < 4,
	}
	if p.kernel, err = d.chooseFormatsAndKernel(s, c); err != nil {
		return err
	}
	if d.cutDocuments(p, c) && !s.argmax {
		s.argmax = true // only these kernels return the maxima of segments
		if p.kernel, err = d.chooseFormatsAndKernel(s, c); err != nil {
			return err
		}
	}
	plain := p.kernel.takesAnyRows()
	p.q, p.d = c.Q.planRows(s.queries.format, plain, c.unitQueries()), c.D.planRows(s.docs.format, plain, c.Normalize)
	if c.head != nil {
		if err := d.chooseHead(p, c, s); err != nil {
			return err
		}
	}
	p.perQuery = runtime.CeilDiv(c.Q.Longest, p.kernel.tokens)
	p.function, err = d.rt.FindKernel(p.kernel.name, p.kernel.shared)
	return err
}

// chooseFormatsAndKernel chooses the formats of rows, and the scoring kernel. Float32 documents that are
// scored with few query tokens are not packed, if a kernel reads them as they are.
func (d *Device) chooseFormatsAndKernel(s *shape, c *ScoreCall) (k kernel, err error) {
	choose := func(docs, queries format) (kernel, error) {
		s.docs, s.queries = rowsOf(docs, c.D.Dim), rowsOf(queries, c.Q.Dim)
		return chooseKernel(d.rt, s)
	}
	if c.head != nil {
		s.fast = true
		return choose(split, split)
	}
	if s.hasFewQueryTokens() && c.D.Type == maxsim.F32 && rowBytes(f32, c.D.Dim) == 4*c.D.Dim && c.D.Data%16 == 0 {
		s.fast = true
		if k, err = choose(f32, f32); err != nil || !k.takesAnyRows() {
			return k, err
		}
	}
	docs, queries, fast := formatsFor(naturalFormat(c.D.matrix()), false, c.Q.matrix())
	s.fast = fast
	return choose(docs, queries)
}

// cutDocuments decides whether documents are divided into segments; see scoring.cutDocuments.
func (d *Device) cutDocuments(p *scorePlan, c *ScoreCall) bool {
	blocks := runtime.CeilDiv(c.Q.Longest, p.kernel.tokens)
	docs := p.pairs
	if p.kind == PairsAll {
		blocks *= c.Q.Items
		docs = c.D.Items
	}
	rows := docs * c.D.Longest
	if c.D.Offsets != 0 && p.kind != PairsListed {
		rows = min(rows, c.D.Rows)
	}
	segment := d.limits.segmentFor(c.D.Longest, rows*runtime.CeilDiv(blocks, p.kernel.groups), p.kernel.slots)
	if segment == 0 {
		return false
	}
	segments := runtime.CeilDiv(c.D.Longest, segment)
	// The number of segments is that of the longest document; most packed ones may be much shorter.
	if c.D.Offsets != 0 && docs*segments > 4*runtime.CeilDiv(rows, segment)+1<<14 {
		return false
	}
	p.segment, p.segments = segment, segments
	return segments > 1
}

// layOut divides a call into pieces, lays out the workspace and makes the tables. maskStrideDiffers means
// that the masks of documents have another stride than their rows, so that they are copied.
func (d *Device) layOut(p *scorePlan, c *ScoreCall, maskStrideDiffers bool) error {
	// 1. Queries and their weights.
	var a runtime.Arena
	if p.q.prepared {
		p.q.reserve(&a, &c.Q, c.Q.Rows, c.unitQueries())
	}
	p.reserveWeights(&a, c)
	// 2. Pieces, and the documents of the largest.
	p.d.piecewise = p.d.prepared && c.D.Offsets == 0 && p.kind != PairsListed
	shapes := p.cutPieces(c, p.maxPieceDocs(c, &d.limits))
	p.reserveDocs(&a, c, shapes)
	if maskStrideDiffers {
		p.rowMask = a.Append(int64(c.D.Rows))
	}
	// 3. Tables that the host makes.
	largest, err := p.makeTables(c, shapes)
	if err != nil {
		return err
	}
	// 4. Sums of groups, maxima of segments, and tables that the device makes.
	if p.givesParts() {
		p.part = a.Append(4 * int64(p.perQuery) * int64(shapes[0].queriesPerItem()) * int64(largest.nItems))
	}
	if top := p.topBytes(c) * int64(shapes[0].docs); top > 0 {
		p.top, p.arg = a.Append(top), a.Append(top)
	}
	if p.fillItems {
		p.items, p.units = a.Append(16*int64(largest.nItems)), a.Append(32*int64(largest.nUnits))
	}
	if p.fillGroups {
		p.groups, p.joins = a.Append(32*int64(largest.nGroups)), a.Append(32*int64(largest.nJoins))
	}
	p.bytes = a.Size
	return nil
}

// reserveWeights reserves memory for the weights of query rows, unless the caller's weights can be used
// directly. Weights that are all 1 are a table.
func (p *scorePlan) reserveWeights(a *runtime.Arena, c *ScoreCall) {
	scaled := c.unitQueries() || p.q.format == split || c.Q.Scales != 0
	switch {
	case scaled || c.Q.Lengths != 0 || c.Q.Mask != 0 || c.Weights == 0 && c.Q.Rows > maxHostTable:
		p.weights = a.Append(4 * int64(c.Q.Rows))
	case c.Weights == 0:
		p.ones = addTable(&p.tables, slices.Repeat([]float32{1}, c.Q.Rows))
	}
}

// givesParts reports whether the scoring kernel returns sums of groups or maxima of segments instead of
// scores.
func (p *scorePlan) givesParts() bool { return p.perQuery > 1 || p.segments > 1 }

// queriesPerDoc returns how many queries a document of a piece is scored with.
func (p *scorePlan) queriesPerDoc(c *ScoreCall) int64 {
	if p.kind == PairsAll {
		return int64(c.Q.Items)
	}
	return 1
}

// topBytes returns the size of the maxima of the segments of a document; their argmaxima have the same size.
func (p *scorePlan) topBytes(c *ScoreCall) int64 {
	if p.segments == 1 {
		return 0
	}
	return 4 * p.queriesPerDoc(c) * int64(p.segments) * int64(c.Q.Longest)
}

// maxPieceDocs returns the maximum of documents of a piece, or of pairs unless their kind is PairsAll.
func (p *scorePlan) maxPieceDocs(c *ScoreCall, l *callLimits) int {
	n := p.pairs
	if p.kind == PairsAll {
		n = c.D.Items
	}
	if p.givesParts() {
		part := 4*int64(p.perQuery)*p.queriesPerDoc(c)*int64(p.segments) + 2*p.topBytes(c)
		n = min(n, int(max(int64(l.part)/part, 1)))
	}
	if p.d.piecewise && c.D.Stride > 0 {
		rows := l.docs / p.d.rowBytes
		if p.head != nil && p.head.fused {
			rows *= fusedPieceFactor
		}
		n = min(n, max((rows-c.D.Longest)/c.D.Stride+1, 1))
	}
	return n
}

// reserveDocs reserves memory for documents: those of the largest piece if they are packed piece by piece.
func (p *scorePlan) reserveDocs(a *runtime.Arena, c *ScoreCall, pieces []scorePiece) {
	rows := c.D.Rows
	if p.d.piecewise {
		rows = 0
		for i := range pieces {
			rows = max(rows, pieces[i].rowSpan(&c.D))
		}
	}
	if p.head != nil {
		p.head.reserve(a, c, rows)
	}
	if p.d.prepared && (p.head == nil || !p.head.fused) {
		p.d.reserve(a, &c.D, rows, c.Normalize)
	}
}
