package dense

import (
	"context"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// gradTokens is how many query tokens dense_grad_docs takes as one, and gradShared its
// shared memory (kPullShared of src/dense/dense.cuh).
const (
	gradTokens = 32
	gradShared = 58880
)

// Gradients implements [maxsim.Backend].
func (b *backend) Gradients(ctx context.Context, g *maxsim.GradCall) error {
	w, err := g.Check()
	if err != nil {
		return err
	}
	d := &grading{call: g, size: w}
	if d.q, err = b.side(g.Q); err != nil {
		return err
	}
	if d.d, err = b.side(g.D); err != nil {
		return err
	}
	if g.DQ == nil && g.DD == nil {
		return nil
	}
	if err := d.prepare(); err != nil {
		return err
	}
	return b.submit(ctx, "gradients of", d.run)
}

// grading is a call under way. All of its operands and argmaxima are on the device at
// once.
type grading struct {
	call *maxsim.GradCall
	size maxsim.Work
	q, d side

	lo, hi  int // documents that may get something
	items   []denseItem
	queries []denseGroup // one a query
	groups  []denseGroup // of gradTokens
	owner   []uint32     // the query of each token
	// Pairs of each query, and of each document, where not all are paired.
	byQuery, byDoc           [][2]uint32
	byQueryFirst, byDocFirst []uint64
	arg                      []int32

	rt         *runtime.Runtime
	weights    []float32
	query, doc *denseGradParams
	outQ, outD int64
}

// prepare makes the tables of a call, on the caller's goroutine.
func (d *grading) prepare() error {
	c, nd, stride := d.call, d.d.shape.Len(), d.size.Stride
	all := c.Kind == maxsim.AllPairs
	d.lo, d.hi = 0, nd
	n := 0 // documents of a query, of all pairs
	if all {
		n = d.size.Pairs / max(d.q.shape.Len(), 1)
		d.lo, d.hi = c.First, c.First+n
	}
	for i := d.lo; i < d.hi; i++ {
		d.items = append(d.items, denseItem{begin: uint64(d.d.first[i]), len: uint32(d.d.count(i)), pos: uint32(i - d.lo)})
	}
	groupOf := make([]int, d.q.shape.Len()+1)
	for i := range d.q.shape.Len() {
		g := denseGroup{row: uint32(d.q.first[i]), count: uint32(d.q.count(i)), argPitch: uint32(stride)}
		if all {
			g.out, g.arg = uint64(i)*uint64(n), uint64(i)*uint64(n)*uint64(stride)
		}
		d.queries = append(d.queries, g)
		groupOf[i] = len(d.groups)
		for r := 0; r < d.q.count(i); r += gradTokens {
			part := g
			part.row, part.arg, part.count = g.row+uint32(r), g.arg+uint64(r), min(g.count-uint32(r), gradTokens)
			d.groups = append(d.groups, part)
		}
		for range d.q.count(i) {
			d.owner = append(d.owner, uint32(i))
		}
	}
	groupOf[d.q.shape.Len()] = len(d.groups)
	if !all {
		d.listPairs(groupOf)
	}
	if c.Weights != nil {
		d.weights = make([]float32, d.q.rows())
		for i := range d.weights {
			d.weights[i] = c.Weights[d.q.row(i)]
		}
	}
	d.arg = c.Argmax
	if d.q.holes || d.d.holes {
		return d.gather()
	}
	return nil
}

// listPairs sorts pairs by query and by document.
func (d *grading) listPairs(groupOf []int) {
	nq, nd := d.q.shape.Len(), d.d.shape.Len()
	d.byQueryFirst, d.byDocFirst = make([]uint64, nq+1), make([]uint64, nd+1)
	for i := range d.size.Pairs {
		query, doc := d.call.At(i, nd)
		d.byQueryFirst[query+1]++
		d.byDocFirst[doc+1] += uint64(groupOf[query+1] - groupOf[query])
	}
	for _, first := range [][]uint64{d.byQueryFirst, d.byDocFirst} {
		for i := 1; i < len(first); i++ {
			first[i] += first[i-1]
		}
	}
	d.byQuery, d.byDoc = make([][2]uint32, d.byQueryFirst[nq]), make([][2]uint32, d.byDocFirst[nd])
	atQuery, atDoc := append([]uint64(nil), d.byQueryFirst...), append([]uint64(nil), d.byDocFirst...)
	for i := range d.size.Pairs {
		query, doc := d.call.At(i, nd)
		d.byQuery[atQuery[query]] = [2]uint32{uint32(doc), uint32(i)}
		atQuery[query]++
		for g := groupOf[query]; g < groupOf[query+1]; g++ {
			d.byDoc[atDoc[doc]] = [2]uint32{uint32(g), uint32(i)}
			atDoc[doc]++
		}
	}
}

// gather makes argmaxima from token to token of those from row to row.
func (d *grading) gather() error {
	stride, nd := d.size.Stride, d.d.shape.Len()
	d.arg = make([]int32, len(d.call.Argmax))
	for i := range d.size.Pairs {
		query, doc := d.call.At(i, nd)
		if err := gatherRow(&d.q, &d.d, d.arg[i*stride:(i+1)*stride], d.call.Argmax[i*stride:(i+1)*stride], query, doc, i); err != nil {
			return err
		}
	}
	return nil
}

// formatFor is how rows lie for gradients: as they are, but for batches of float32,
// of which nothing is lost.
func (s *side) formatFor() format {
	if f := s.format(); f != split || s.held != nil {
		return f
	}
	return f32
}

func (d *grading) run(ctx context.Context, rt *runtime.Runtime) error {
	if err := d.begin(ctx, rt); err != nil {
		return err
	}
	if err := d.launch(); err != nil {
		return err
	}
	w := &rt.Work
	if err := rt.Driver.ToHost(w.HostOut[:d.outBytes()], w.Out.Ptr, rt.Stream); err != nil {
		return err
	}
	if err := rt.Sync(); err != nil {
		return err
	}
	if d.call.DQ != nil {
		putGradient(d.call.DQ, d.q.tokens, 0, d.q.shape.Len(), structs[float32](w.HostOut[d.outQ:], d.q.rows()*d.size.Q.Dim))
	}
	if d.call.DD != nil {
		putGradient(d.call.DD, d.d.tokens, d.lo, d.hi, structs[float32](w.HostOut[d.outD:], d.docRows()*d.size.Q.Dim))
	}
	return nil
}

// docRows is the number of rows of the gradient of the documents.
func (d *grading) docRows() int { return d.d.first[d.hi] - d.d.first[d.lo] }

func (d *grading) outBytes() int64 {
	var out runtime.Arena
	if d.call.DQ != nil {
		d.outQ = out.Take(4 * int64(d.q.rows()) * int64(d.size.Q.Dim))
	}
	if d.call.DD != nil {
		d.outD = out.Take(4 * int64(d.docRows()) * int64(d.size.Q.Dim))
	}
	return out.Size
}

// begin brings all to the device.
func (d *grading) begin(ctx context.Context, rt *runtime.Runtime) error {
	d.rt = rt
	c, w, dim := d.call, &rt.Work, d.size.Q.Dim
	var in tables
	var scratch runtime.Arena
	both := [2]*side{&d.q, &d.d}
	lay, err := layBoth(&scratch, both, c.Normalize)
	if err != nil {
		return err
	}
	items, queries, groups, owner := add(&in, d.items), add(&in, d.queries), add(&in, d.groups), add(&in, d.owner)
	byQuery, byDoc := add(&in, d.byQuery), add(&in, d.byDoc)
	byQueryFirst, byDocFirst := add(&in, d.byQueryFirst), add(&in, d.byDocFirst)
	arg, weights, upstream := add(&in, d.arg), add(&in, d.weights), add(&in, c.Upstream)
	if err := w.Reserve(in.Size, d.outBytes(), scratch.Size, 0); err != nil {
		return err
	}
	in.write(w.HostIn)
	if err := rt.Driver.ToDevice(w.In.Ptr, w.HostIn[:in.Size], rt.Stream); err != nil {
		return err
	}
	r, err := bringBoth(ctx, rt, both, lay)
	if err != nil {
		return err
	}
	q, doc := &r[0], &r[1]
	p := denseGradParams{
		docs: doc.rows, docScale: doc.scaleFor(c.Normalize), queries: q.rows, queryScale: q.scaleFor(c.Normalize),
		arg: w.In.At(arg), items: w.In.At(items), rowGroup: w.In.At(owner),
		rowBytes: uint32(doc.rowBytes), queryBytes: uint32(q.rowBytes), docFormat: uint32(doc.format), queryFormat: uint32(q.format),
		dim: uint32(dim), nDocs: uint32(len(d.items)),
	}
	if c.Normalize {
		p.docInverse, p.queryInverse = doc.inverse, q.inverse
	}
	if d.weights != nil {
		p.weights = w.In.At(weights)
	}
	if c.Upstream != nil {
		p.upstream = w.In.At(upstream)
	}
	all := c.Kind == maxsim.AllPairs
	byQueries := p
	byQueries.groups, byQueries.nGroups = w.In.At(queries), uint32(len(d.queries))
	if !all {
		byQueries.pairs, byQueries.pairFirst = w.In.At(byQuery), w.In.At(byQueryFirst)
	}
	d.query, d.doc = nil, nil
	if c.DQ != nil {
		x := byQueries
		x.rows, x.out = uint32(d.q.rows()), w.Out.At(d.outQ)
		d.query = &x
	}
	if c.DD != nil {
		x := byQueries
		if !c.Push {
			x.groups, x.nGroups = w.In.At(groups), uint32(len(d.groups))
			if !all {
				x.pairs, x.pairFirst = w.In.At(byDoc), w.In.At(byDocFirst)
			}
		}
		// Rows are counted from the first of all documents.
		x.out = w.Out.At(d.outD) - driver.Ptr(4*d.d.first[d.lo]*dim)
		x.rows = uint32(d.d.rows())
		d.doc = &x
	}
	return nil
}

// launch computes the gradients.
func (d *grading) launch() error {
	rt := d.rt
	if d.query != nil {
		if err := runtime.Launch(rt, "dense/dense_grad_query_"+format(d.query.docFormat).name(), runtime.CeilDiv(d.q.rows(), 4), 1, 1, 128, 0, d.query); err != nil {
			return err
		}
	}
	if d.doc == nil {
		return nil
	}
	if !d.call.Push {
		return runtime.Launch(rt, "dense/dense_grad_docs_"+format(d.doc.queryFormat).name(), len(d.items), runtime.CeilDiv(d.d.longest(), 64), 1, 256, gradShared, d.doc)
	}
	if err := rt.Driver.Set(rt.Work.Out.At(d.outD), 0, 4*int64(d.docRows())*int64(d.size.Q.Dim), rt.Stream); err != nil {
		return err
	}
	most := len(d.items)
	if d.byQueryFirst != nil {
		for i := range d.queries {
			most = max(most, int(d.byQueryFirst[i+1]-d.byQueryFirst[i]))
		}
	}
	if err := runtime.Launch(rt, "dense/dense_push", len(d.queries), min(runtime.CeilDiv(most, 8), 1<<15), 1, 256, 0, d.doc); err != nil || d.doc.docInverse == 0 {
		return err
	}
	// Only rows that documents of the call have.
	x, first := *d.doc, d.d.first[d.lo]
	x.rows = uint32(d.docRows())
	x.out = rt.Work.Out.At(d.outD)
	x.docs += driver.Ptr(first) * driver.Ptr(x.rowBytes)
	x.docInverse += driver.Ptr(4 * first)
	if x.docScale != 0 {
		x.docScale += driver.Ptr(4 * first)
	}
	return runtime.Launch(rt, "dense/dense_lengths", runtime.CeilDiv(int(x.rows), 8), 1, 1, 256, 0, &x)
}

// putGradient writes the gradient of the items lo to hi, by several goroutines; rows
// that are no tokens of theirs get 0.
func putGradient(to *maxsim.Gradient, t *tokens, lo, hi int, from []float32) {
	first, n, dim := t.first[lo], t.first[hi]-t.first[lo], t.shape.Dim
	const block = 1 << 18 // values
	rows := max(block/dim, 1)
	spread := func(n int, fn func(i int)) {
		blocks := parallel.Blocks(n, rows)
		_ = parallel.Do(context.Background(), blocks, parallel.Threads(0, blocks), func(b int) error {
			lo, hi := parallel.Block(b, n, rows)
			for i := lo; i < hi; i++ {
				fn(i)
			}
			return nil
		})
	}
	if !to.Add && n < to.Rows() {
		zero := make([]float32, dim)
		spread(to.Rows(), func(r int) { to.Put(r, zero) })
	}
	spread(n, func(i int) { to.Put(t.row(first+i), from[i*dim:(i+1)*dim]) })
}
