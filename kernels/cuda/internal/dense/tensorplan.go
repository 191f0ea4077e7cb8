package dense

import (
	"fmt"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// batchKey is what a plan depends on of a batch.
type batchKey struct {
	kind                                           maxsim.Type
	dim, items, rows, stride, longest, maskStride  int
	scales, zeros, offsets, lengths, mask, aligned bool
}

func (b *Batch) key() batchKey {
	return batchKey{
		b.Type, b.Dim, b.Items, b.Rows, b.Stride, b.Longest, b.MaskStride,
		b.Scales != 0, b.Zeros != 0, b.Offsets != 0, b.Lengths != 0, b.Mask != 0, b.Data%16 == 0,
	}
}

// even is the items of a batch as far as its shape says.
func (b *Batch) even() even { return even{b.Items, b.Longest, b.Stride} }

// several reports whether rows belong to more than one item.
func (b *Batch) several() bool { return b.Offsets == 0 && b.Items > 1 && b.Stride < b.Longest }

// matrix is what formats are chosen by.
func (b *Batch) matrix() *maxsim.Matrix {
	m := &maxsim.Matrix{Type: b.Type, Dim: b.Dim}
	if b.Zeros != 0 {
		m.Zeros = []int8{}
	}
	return m
}

// tensorLimits bound what of a call is in the workspace at a time: documents that are packed
// stay in the cache until they are scored.
var tensorLimits = limits{docs: stageBytes, part: 32 << 20, segment: 512}

// headPieces is how many times as many hidden states are packed at a time, for a kernel whose
// blocks all read the weights first.
const headPieces = 4

// scoreKey is what the plan of a call depends on.
type scoreKey struct {
	q, d                    batchKey
	kind                    PairKind
	count                   int
	normalize, weights, arg bool
	head                    headKey
}

// scorePlan is how a call is done: which kernel, what lies where in the workspace, what is on
// the device at a time, and the tables.
type scorePlan struct {
	kind     PairKind
	pairs    int
	kernel   kernel
	function driver.Function
	q, d     placed
	head     *placedHead // nil: documents are token vectors
	// Groups of a query, rows of a segment and segments of a document.
	perQuery, segment, segments int
	// What only the device knows.
	fillItems, fillGroups bool
	// Places in the workspace, −1 of what there is not.
	weights, part, top, arg              int64
	items, groups, units, joins, rowMask int64
	bytes                                int64
	ones                                 int64 // place in the tables
	tables                               tables
	made                                 []scoreTables
	pieces                               func(do func(*scorePiece) error) error
}

func (p *scorePlan) fills() bool { return p.fillItems || p.fillGroups }

// scorePiece is a part of a call that is on the device at a time.
type scorePiece struct {
	tables         int // which
	query, queries int // first query, and how many
	doc, docs      int
	each, pitch    int // documents of a query, and how far apart the results of queries are
	out            int // first pair
}

// scoreTables is where the tables of a piece are.
type scoreTables struct {
	items, groups, units, partAt, outAt, sumGroups, sumCount, joins int64
	nItems, nGroups, nUnits, nSums, mostSum, nJoins, runs           int
}

// mostTable is how many items a table has that the host makes, at most.
const mostTable = 1 << 20

// scorePlan finds the plan of a call, or makes it.
func (d *Device) scorePlan(c *ScoreCall) (*cachedPlan, error) {
	key := scoreKey{c.Q.key(), c.D.key(), c.Pairs.Kind, c.Pairs.Count, c.Normalize, c.Weights != 0, c.Argmax != 0,
		c.head.key()}
	if x := d.plans.find(key); x != nil {
		return x, nil
	}
	p, err := d.newScorePlan(c)
	if err != nil {
		return nil, err
	}
	return d.plans.put(key, p), nil
}

func (d *Device) newScorePlan(c *ScoreCall) (*scorePlan, error) {
	if c.Q.several() && (c.Q.Lengths != 0 || c.Q.Mask != 0) {
		return nil, fmt.Errorf("%w: lengths or masks of queries that share rows", driver.ErrUnsupported)
	}
	apart := c.D.Mask != 0 && c.D.Items > 1 && c.D.MaskStride != c.D.Stride
	if apart && c.D.several() {
		return nil, fmt.Errorf("%w: masks of documents that share rows", driver.ErrUnsupported)
	}
	p := &scorePlan{kind: c.Pairs.Kind, segments: 1, segment: max(c.D.Longest, 1), weights: -1, part: -1, top: -1,
		arg: -1, rowMask: -1, ones: -1}
	p.pairs, _ = c.Pairs.pairs(&c.Q, &c.D)
	p.fillItems = c.D.Offsets != 0 || c.D.Lengths != 0 || c.D.Mask != 0 || p.kind == PairsListed || c.D.Items > mostTable
	p.fillGroups = c.Q.Offsets != 0 || p.kind == PairsListed
	if err := d.chooseFor(p, c); err != nil {
		return nil, err
	}
	return p, d.layOut(p, c, apart)
}

// chooseFor chooses formats and the kernel, and cuts long documents.
func (d *Device) chooseFor(p *scorePlan, c *ScoreCall) (err error) {
	s := &shape{
		all: p.kind == PairsAll, queryCount: c.Q.Items, longest: c.Q.Longest, tokens: c.Q.Items * c.Q.Longest,
		arg:   c.Argmax != 0,
		alone: p.kind == PairsListed || p.kind == PairsOwn && c.Pairs.Count < 4,
	}
	if p.kernel, err = d.chooseFormats(s, c); err != nil {
		return err
	}
	if d.cut(p, c) && !s.arg {
		s.arg = true // those kernels give the maxima
		if p.kernel, err = d.chooseFormats(s, c); err != nil {
			return err
		}
	}
	plain := p.kernel.plain()
	p.q, p.d = c.Q.place(s.queries.format, plain, c.Normalize), c.D.place(s.docs.format, plain, c.Normalize)
	if c.head != nil {
		if err := d.chooseHead(p, c, s); err != nil {
			return err
		}
	}
	p.perQuery = runtime.CeilDiv(c.Q.Longest, p.kernel.tokens)
	p.function, err = d.rt.Kernel(p.kernel.name, p.kernel.shared)
	return err
}

// chooseFormats chooses how rows lie, and the kernel. Float32 documents of few query tokens stay
// where they are, if a kernel takes them.
func (d *Device) chooseFormats(s *shape, c *ScoreCall) (k kernel, err error) {
	in := func(df, qf format) {
		s.docs, s.queries = rows{format: df, rowBytes: rowBytes(df, c.D.Dim)}, rows{format: qf,
			rowBytes: rowBytes(qf, c.Q.Dim)}
	}
	if c.head != nil {
		qf, _ := beside(split, c.Q.matrix())
		in(split, qf)
		s.fast = true
		return choose(d.rt, s)
	}
	in(f32, f32)
	if s.few() && c.D.Type == maxsim.F32 && s.docs.rowBytes == 4*c.D.Dim && c.D.Data%16 == 0 {
		s.fast = true
		if k, err = choose(d.rt, s); err != nil || !k.plain() {
			return k, err
		}
	}
	df := natural(c.D.matrix())
	var qf format
	if qf, s.fast = beside(df, c.Q.matrix()); !s.fast {
		qf, s.fast = beside(split, c.Q.matrix())
		df = split
	}
	in(df, qf)
	return choose(d.rt, s)
}

// cut decides whether documents are cut into segments; see scoring.cutDocuments.
func (d *Device) cut(p *scorePlan, c *ScoreCall) bool {
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
	// Of packed documents few may be long.
	if c.D.Offsets != 0 && docs*segments > 4*runtime.CeilDiv(rows, segment)+1<<14 {
		return false
	}
	p.segment, p.segments = segment, segments
	return segments > 1
}

// layOut cuts a call into pieces, lays the workspace out and makes the tables.
func (d *Device) layOut(p *scorePlan, c *ScoreCall, apart bool) error {
	var a runtime.Arena
	if p.q.prepared {
		p.q.lay(&a, &c.Q, c.Q.Rows, c.Normalize)
	}
	switch scaled := c.Normalize || p.q.format == split || c.Q.Scales != 0; {
	case scaled || c.Q.Lengths != 0 || c.Q.Mask != 0 || c.Weights == 0 && c.Q.Rows > mostTable:
		p.weights = a.Take(4 * int64(c.Q.Rows))
	case c.Weights == 0:
		ones := make([]float32, c.Q.Rows)
		for i := range ones {
			ones[i] = 1
		}
		p.ones = add(&p.tables, ones)
	}
	// Sums of groups, or maxima of segments, a document of a piece.
	queries := 1
	if p.kind == PairsAll {
		queries = c.Q.Items
	}
	partly := p.perQuery > 1 || p.segments > 1
	part := 4 * int64(p.perQuery) * int64(queries) * int64(p.segments)
	top := 4 * int64(queries) * int64(p.segments) * int64(c.Q.Longest)
	if p.segments == 1 {
		top = 0
	}
	most := p.pairs
	if p.kind == PairsAll {
		most = c.D.Items
	}
	if partly {
		most = min(most, int(max(int64(d.limits.part)/(part+2*top), 1)))
	}
	p.d.piecewise = p.d.prepared && c.D.Offsets == 0 && p.kind != PairsListed
	rows := c.D.Rows
	if p.d.piecewise {
		room := d.limits.docs / p.d.rowBytes
		if p.head != nil && p.head.fused {
			room *= headPieces
		}
		if c.D.Stride > 0 {
			most = min(most, max((room-c.D.Longest)/c.D.Stride+1, 1))
		}
	}
	shapes := p.cutPieces(c, most)
	if p.d.piecewise {
		rows = 0
		for _, x := range shapes {
			rows = max(rows, (x.docs-1)*c.D.Stride+c.D.Longest)
		}
	}
	if p.head != nil {
		p.head.lay(&a, c, rows)
	}
	if p.d.prepared && (p.head == nil || !p.head.fused) {
		p.d.lay(&a, &c.D, rows, c.Normalize)
	}
	if apart {
		p.rowMask = a.Take(int64(c.D.Rows))
	}
	var n scoreTables // the largest
	for i := range shapes {
		t := p.table(c, &shapes[i])
		p.made = append(p.made, t)
		n.nItems, n.nGroups, n.nUnits, n.nJoins = max(n.nItems, t.nItems), max(n.nGroups, t.nGroups), max(n.nUnits,
			t.nUnits), max(n.nJoins, t.nJoins)
	}
	if most := max(n.nItems, n.nGroups, n.nUnits, n.nJoins); most >= 1<<31 {
		return fmt.Errorf("%w: %d pairs need tables of %d", driver.ErrUnsupported, p.pairs, most)
	}
	if partly {
		p.part = a.Take(4 * int64(p.perQuery) * int64(shapes[0].groupsOf()) * int64(n.nItems))
	}
	if p.segments > 1 {
		p.top, p.arg = a.Take(top*int64(shapes[0].docs)), a.Take(top*int64(shapes[0].docs))
	}
	if p.fillItems {
		p.items, p.units = a.Take(16*int64(n.nItems)), a.Take(32*int64(n.nUnits))
	}
	if p.fillGroups {
		p.groups, p.joins = a.Take(32*int64(n.nGroups)), a.Take(32*int64(n.nJoins))
	}
	p.bytes = a.Size
	return nil
}

// groupsOf is how many queries have results at each item of a piece.
func (x *scorePiece) groupsOf() int {
	if x.each == x.docs {
		return x.queries
	}
	return 1
}

// cutPieces decides what comes at a time, of at most so many documents or pairs, and returns a
// piece of each size, the largest first. The pieces refer to these by number.
func (p *scorePlan) cutPieces(c *ScoreCall, most int) (shapes []scorePiece) {
	var walk func(do func(scorePiece) error) error
	nq, each := c.Q.Items, c.Pairs.Count
	switch {
	case p.kind == PairsAll:
		walk = func(do func(scorePiece) error) error {
			return inPieces(c.D.Items, most, func(lo, n int) error {
				return do(scorePiece{queries: nq, doc: lo, docs: n, each: n, pitch: c.D.Items, out: lo})
			})
		}
	case p.kind == PairsListed:
		walk = func(do func(scorePiece) error) error {
			return inPieces(p.pairs, most, func(lo, n int) error {
				return do(scorePiece{queries: n, doc: lo, docs: n, each: 1, pitch: 1, out: lo})
			})
		}
	case each <= most:
		walk = func(do func(scorePiece) error) error {
			return inPieces(nq, most/each, func(lo, n int) error {
				return do(scorePiece{query: lo, queries: n, doc: lo * each, docs: n * each, each: each, pitch: each,
					out: lo * each})
			})
		}
	default:
		walk = func(do func(scorePiece) error) error {
			return inPieces(nq, 1, func(q, _ int) error {
				return inPieces(each, most, func(lo, n int) error {
					return do(scorePiece{query: q, queries: 1, doc: q*each + lo, docs: n, each: n, pitch: each, out: q*each + lo})
				})
			})
		}
	}
	number := map[int]int{} // by documents
	_ = walk(func(x scorePiece) error {
		if _, ok := number[x.docs]; !ok {
			number[x.docs] = len(shapes)
			shapes = append(shapes, x)
		}
		return nil
	})
	p.pieces = func(do func(*scorePiece) error) error {
		return walk(func(x scorePiece) error {
			x.tables = number[x.docs]
			return do(&x)
		})
	}
	return shapes
}

// inPieces calls do for pieces of at most so many of n, the largest first.
func inPieces(n, most int, do func(lo, n int) error) error {
	for lo := 0; lo < n; lo += most {
		if err := do(lo, min(most, n-lo)); err != nil {
			return err
		}
	}
	return nil
}

// table makes the tables of a piece, but for what the device makes.
func (p *scorePlan) table(c *ScoreCall, x *scorePiece) (t scoreTables) {
	w, k, stride := &work{}, &p.kernel, c.Q.Longest
	if p.kind == PairsListed {
		t.nItems, t.nGroups, t.nJoins = x.docs*p.segments, x.docs*p.perQuery, x.docs
		t.nUnits = t.nItems * runtime.CeilDiv(p.perQuery, k.groups)
		if p.perQuery > 1 && p.segments == 1 {
			w.partAt, w.outAt = []uint64{0}, []uint64{0}
			w.sumGroups, w.sumCount = []uint32{uint32(p.perQuery)}, []uint32{uint32(x.docs)}
		}
		p.place(&t, w, x.docs)
		return t
	}
	q := c.Q.even()
	q.n = x.queries
	docs := spans(even{x.docs, c.D.Longest, c.D.Stride})
	if p.segments > 1 {
		docs = evenSegments{even{x.docs, c.D.Longest, c.D.Stride}, p.segment}
	}
	all := x.each == x.docs
	switch {
	case all && p.segments > 1:
		w.all(q, docs, 0, docs.len(), 0, docs.len(), stride, k)
	case all:
		w.all(q, docs, 0, docs.len(), 0, x.pitch, stride, k)
	default:
		per := x.each * p.segments
		w.lists(q, docs, docs.len(), func(i int) (int, int) { return i / per, i }, 0, stride, k)
	}
	t.nItems, t.nGroups, t.nUnits = len(w.items), len(w.groups), len(w.units)
	if p.segments > 1 {
		t.nJoins = x.queries * x.each
		w.partAt, w.outAt, w.sumGroups, w.sumCount = nil, nil, nil, nil
		for i := range t.nJoins {
			query := i / x.each
			w.joins = append(w.joins, denseJoin{
				first: uint64(i) * uint64(p.segments), out: uint64(query)*uint64(x.pitch) + uint64(i%x.each),
				segments: uint32(p.segments),
				row:      uint32(q.begin(query)), count: uint32(q.rows),
			})
		}
	} else if all && c.D.Offsets != 0 {
		t.runs = w.numberRuns()
	}
	if p.fillItems {
		w.items = nil
	}
	if p.fillGroups {
		w.joins = nil
	}
	p.place(&t, w, x.docs)
	return t
}

// numberRuns makes the units' items numbers of runs, and returns how many runs there are.
func (w *work) numberRuns() int {
	number := map[uint32]uint32{}
	for i, at := range w.cuts {
		number[uint32(at)] = uint32(i)
	}
	for i := range w.units {
		if u := &w.units[i]; u.begin < u.end {
			u.begin, u.end = number[u.begin], number[u.end]
		}
	}
	return len(w.cuts) - 1
}

// place puts tables among those of the plan.
func (p *scorePlan) place(t *scoreTables, w *work, most int) {
	in := &p.tables
	t.items, t.groups, t.units = add(in, w.items), add(in, w.groups), add(in, w.units)
	t.partAt, t.outAt, t.sumGroups, t.sumCount = add(in, w.partAt), add(in, w.outAt), add(in, w.sumGroups), add(in,
		w.sumCount)
	t.joins = add(in, w.joins)
	t.nSums, t.mostSum = len(w.sumCount), most
}
