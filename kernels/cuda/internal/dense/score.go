package dense

import (
	"context"
	"slices"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

const (
	// mostDocs is how many bytes of documents that are not held are on the device at
	// a time, mostOut of results, and mostPart of sums of groups.
	mostDocs = 256 << 20
	mostOut  = 256 << 20
	mostPart = 8 << 20
)

// Score implements [maxsim.Backend].
func (b *backend) Score(ctx context.Context, c *maxsim.Call) error {
	w, err := c.Check()
	if err != nil {
		return err
	}
	if w.Pairs == 0 {
		return nil
	}
	s, err := b.newScoring(c, w)
	if err != nil {
		return err
	}
	err = b.dev.Call(ctx, func(rt *runtime.Runtime) error {
		err := s.run(ctx, rt)
		if err != nil {
			rt.Drain()
		}
		return err
	})
	if err != nil {
		return b.fault("scoring", err)
	}
	return nil
}

// scoring is a call under way.
type scoring struct {
	call *maxsim.Call
	size maxsim.Work
	q, d side
	buf  *work

	rt         *runtime.Runtime
	shape      shape
	kernel     kernel
	layQ, layD func(driver.Ptr) rows
	weights    int64 // places in the scratch memory
	part       int64
	dRows      rows // of all documents, or of a piece
	params     *denseParams
	sums       *denseSumParams
}

func (b *backend) newScoring(c *maxsim.Call, w maxsim.Work) (*scoring, error) {
	s := &scoring{call: c, size: w, buf: &b.work}
	var err error
	if s.q, err = b.side(c.Q); err != nil {
		return nil, err
	}
	s.d, err = b.side(c.D)
	return s, err
}

// formats chooses how rows lie.
func (s *scoring) formats() (q, d format) {
	d = s.d.format()
	if s.q.held != nil {
		q = s.q.held.rows.format
		s.shape.fast = q == d || d == e4m3 && q == f16
		return q, d
	}
	if q, s.shape.fast = beside(d, &s.q.batch.Tokens); !s.shape.fast && s.d.held == nil {
		q, s.shape.fast = beside(split, &s.q.batch.Tokens)
		d = split
	}
	return q, d
}

func (s *scoring) run(ctx context.Context, rt *runtime.Runtime) error {
	if err := s.begin(ctx, rt); err != nil {
		return err
	}
	return s.pieces(func(lo, hi int) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.piece(ctx, lo, hi); err != nil {
			return err
		}
		if err := s.launch(); err != nil {
			return err
		}
		return s.fetch(lo, hi)
	})
}

// begin lays the memory of a call out, brings the queries to the device and chooses
// the kernel.
func (s *scoring) begin(ctx context.Context, rt *runtime.Runtime) (err error) {
	s.rt = rt
	if s.d.held != nil && s.d.held.mem.Ptr == 0 || s.q.held != nil && s.q.held.mem.Ptr == 0 {
		return maxsim.ErrForeign
	}
	qf, df := s.formats()
	dim, arg := s.size.Q.Dim, s.call.Argmax != nil
	s.shape.docs, s.shape.queries = rows{format: df, rowBytes: rowBytes(df, dim)}, rows{format: qf, rowBytes: rowBytes(qf, dim)}
	s.shape.all, s.shape.arg = s.call.Kind == maxsim.AllPairs, arg
	s.shape.queryCount, s.shape.longest, s.shape.tokens = s.q.shape.Len(), s.q.longest(), s.q.rows()
	if s.kernel, err = choose(rt, &s.shape); err != nil {
		return err
	}
	var scratch runtime.Arena
	if s.q.batch != nil {
		s.layQ = layRows(&scratch, qf, dim, s.q.rows(), qf.scaled(&s.q.batch.Tokens), s.call.Normalize)
	}
	if s.d.batch != nil {
		most := s.d.rows()
		if s.shape.all {
			most = 0
			_ = s.pieces(func(lo, hi int) error {
				most = max(most, s.d.first[hi]-s.d.first[lo])
				return nil
			})
		}
		s.layD = layRows(&scratch, df, dim, most, df.scaled(&s.d.batch.Tokens), s.call.Normalize)
	}
	s.weights = scratch.Take(4 * int64(s.q.rows()))
	s.part = scratch.Take(s.partBytes())
	weights := int64(0)
	if s.call.Weights != nil {
		weights = 4 * int64(s.q.rows())
	}
	w := &rt.Work
	if err := w.Reserve(weights, 0, scratch.Size, 0); err != nil {
		return err
	}
	var queries rows
	if s.q.held != nil {
		queries = s.q.held.rows
	} else {
		queries = s.layQ(w.Scratch.Ptr)
		if err := upload(ctx, rt, s.q.batch, s.q.tokens, queries, 0, s.q.rows()); err != nil {
			return err
		}
	}
	s.params = &denseParams{
		queries: queries.rows, weights: w.Scratch.At(s.weights), queryFormat: uint32(queries.format), queryBytes: uint32(queries.rowBytes),
		docFormat: uint32(df), rowBytes: uint32(s.shape.docs.rowBytes), dim: uint32(dim),
	}
	p := &denseWeightsParams{scale: queries.scaleFor(s.call.Normalize), out: s.params.weights, n: uint32(s.q.rows())}
	if weights > 0 {
		all := structs[float32](w.HostIn, s.q.rows())
		for i := range all {
			all[i] = s.call.Weights[s.q.row(i)]
		}
		if err := rt.Driver.ToDevice(w.In.Ptr, w.HostIn[:weights], rt.Stream); err != nil {
			return err
		}
		p.weights = w.In.Ptr
	}
	if err := runtime.Launch(rt, "dense/dense_weights", runtime.CeilDiv(s.q.rows(), 256), 1, 1, 256, 0, p); err != nil {
		return err
	}
	if s.d.held != nil {
		s.dRows = s.d.held.rows
	} else {
		s.dRows = s.layD(w.Scratch.Ptr)
		if !s.shape.all {
			if err := upload(ctx, rt, s.d.batch, s.d.tokens, s.dRows, 0, s.d.rows()); err != nil {
				return err
			}
		}
	}
	return rt.Sync() // the workspace may move, and is written again
}

// groupsOf is the number of groups of all queries.
func (s *scoring) groupsOf() (n int) {
	for i := range s.q.shape.Len() {
		n += runtime.CeilDiv(s.q.count(i), s.kernel.tokens)
	}
	return n
}

// partBytes is room for the sums of groups of any piece.
func (s *scoring) partBytes() (most int64) {
	if s.q.longest() <= s.kernel.tokens {
		return 0
	}
	groups := int64(s.groupsOf())
	if !s.shape.all {
		groups = int64(runtime.CeilDiv(s.q.longest(), s.kernel.tokens))
	}
	_ = s.pieces(func(lo, hi int) error {
		most = max(most, 4*groups*int64(hi-lo))
		return nil
	})
	return most
}

// pieces calls do for parts of a call that fit: documents lo to hi with all queries,
// or pairs lo to hi.
func (s *scoring) pieces(do func(lo, hi int) error) error {
	nq, perPair := s.q.shape.Len(), 4
	if s.call.Argmax != nil {
		perPair += 4 * s.size.Stride
	}
	if !s.shape.all {
		most := max(mostOut/perPair, 1)
		if s.q.longest() > s.kernel.tokens {
			most = min(most, max(mostPart/4/runtime.CeilDiv(s.q.longest(), s.kernel.tokens), 1))
		}
		for lo := 0; lo < s.size.Pairs; lo += most {
			hi := min(lo+most, s.size.Pairs)
			if err := do(lo, hi); err != nil {
				return err
			}
		}
		return nil
	}
	first := s.call.First
	end := first + s.size.Pairs/max(nq, 1)
	most := max(mostOut/perPair/max(nq, 1), 1)
	if s.q.longest() > s.kernel.tokens {
		most = min(most, max(mostPart/4/max(s.groupsOf(), 1), 1))
	}
	for lo := first; lo < end; {
		hi := min(lo+most, end)
		if s.d.batch != nil {
			room := mostDocs / s.shape.docs.rowBytes
			// The document that goes beyond is of the next piece, unless it is the first.
			fit, _ := slices.BinarySearch(s.d.first[lo+1:hi+1], s.d.first[lo]+room+1)
			hi = lo + max(fit, 1)
		}
		if err := do(lo, hi); err != nil {
			return err
		}
		lo = hi
	}
	return nil
}

// order lists the pairs lo to hi by their queries.
func (s *scoring) order(lo, hi int) []int {
	order := make([]int, hi-lo)
	for i := range order {
		order[i] = lo + i
	}
	if s.call.Kind == maxsim.ListedPairs {
		slices.SortStableFunc(order, func(a, b int) int { return int(s.call.Queries[a]) - int(s.call.Queries[b]) })
	}
	return order
}

// piece brings what a piece needs to the device.
func (s *scoring) piece(ctx context.Context, lo, hi int) error {
	rt, w, stride := s.rt, &s.rt.Work, s.size.Stride
	n := int64(hi - lo)
	if s.shape.all {
		base := 0
		if s.d.batch != nil {
			base = s.d.first[lo]
			if err := upload(ctx, rt, s.d.batch, s.d.tokens, s.dRows, base, s.d.first[hi]); err != nil {
				return err
			}
		}
		s.buf.all(s.q.tokens, s.d.tokens, lo, hi, base, stride, &s.kernel)
		n *= int64(s.q.shape.Len())
	} else {
		nd := s.d.shape.Len()
		s.buf.lists(s.q.tokens, s.d.tokens, func(i int) (int, int) { return s.call.At(i, nd) }, s.order(lo, hi), lo, 0, stride, &s.kernel)
	}
	var in, out runtime.Arena
	items, groups, units := place(&in, s.buf.items), place(&in, s.buf.groups), place(&in, s.buf.units)
	partAt, outAt := place(&in, s.buf.partAt), place(&in, s.buf.outAt)
	sumGroups, sumCount := place(&in, s.buf.sumGroups), place(&in, s.buf.sumCount)
	scores, arg := out.Take(4*n), int64(-1)
	if s.call.Argmax != nil {
		arg = out.Take(4 * n * int64(stride))
	}
	if err := w.Reserve(in.Size, out.Size, 0, 0); err != nil {
		return err
	}
	put(w.HostIn[items:], s.buf.items)
	put(w.HostIn[groups:], s.buf.groups)
	put(w.HostIn[units:], s.buf.units)
	put(w.HostIn[partAt:], s.buf.partAt)
	put(w.HostIn[outAt:], s.buf.outAt)
	put(w.HostIn[sumGroups:], s.buf.sumGroups)
	put(w.HostIn[sumCount:], s.buf.sumCount)
	if err := rt.Driver.ToDevice(w.In.Ptr, w.HostIn[:in.Size], rt.Stream); err != nil {
		return err
	}
	p := s.params
	p.docs, p.docScale = s.dRows.rows, s.dRows.scaleFor(s.call.Normalize)
	p.items, p.groups, p.units = w.In.At(items), w.In.At(groups), w.In.At(units)
	p.out, p.arg, s.sums = w.Out.At(scores), 0, nil
	if s.buf.part > 0 {
		p.out = w.Scratch.At(s.part)
		s.sums = &denseSumParams{part: p.out, out: w.Out.At(scores), partAt: w.In.At(partAt), outAt: w.In.At(outAt), groups: w.In.At(sumGroups), count: w.In.At(sumCount)}
	}
	if s.buf.gaps {
		if err := rt.Driver.Set(w.Out.At(scores), 0, 4*n, rt.Stream); err != nil {
			return err
		}
		if err := rt.Driver.Set(w.Scratch.At(s.part), 0, 4*int64(s.buf.part), rt.Stream); err != nil {
			return err
		}
	}
	if arg >= 0 {
		p.arg = w.Out.At(arg)
		return rt.Driver.Set(p.arg, 0xFF, 4*n*int64(stride), rt.Stream) // −1
	}
	return nil
}

// launch computes the scores of a piece.
func (s *scoring) launch() error {
	k := &s.kernel
	if err := runtime.Launch(s.rt, k.name, len(s.buf.units)/k.teams, 1, 1, k.block, k.shared, s.params); err != nil {
		return err
	}
	if s.sums == nil {
		return nil
	}
	most := slices.Max(s.buf.sumCount)
	return runtime.Launch(s.rt, "dense/dense_sum", len(s.buf.sumCount), runtime.CeilDiv(int(most), 256), 1, 256, 0, s.sums)
}

// fetch brings the results of a piece to the caller's memory.
func (s *scoring) fetch(lo, hi int) error {
	rt, w, stride := s.rt, &s.rt.Work, s.size.Stride
	n, nq := hi-lo, 1
	if s.shape.all {
		nq = s.q.shape.Len()
	}
	var out runtime.Arena
	scores, arg := out.Take(4*int64(n*nq)), int64(0)
	if s.call.Argmax != nil {
		arg = out.Take(4 * int64(n*nq) * int64(stride))
	}
	if err := rt.Driver.ToHost(w.HostOut[:out.Size], w.Out.Ptr, rt.Stream); err != nil {
		return err
	}
	if err := rt.Sync(); err != nil {
		return err
	}
	from, pitch := lo, 0 // of the first of these pairs, and from query to query
	if s.shape.all {
		from, pitch = lo-s.call.First, s.size.Pairs/nq
	}
	for q := range nq {
		put(runtime.Bytes(s.call.Scores[q*pitch+from:]), structs[float32](w.HostOut[scores+4*int64(q*n):], n))
		if s.call.Argmax == nil {
			continue
		}
		to := s.call.Argmax[(q*pitch+from)*stride : (q*pitch+from+n)*stride]
		copy(to, structs[int32](w.HostOut[arg+4*int64(q*n*stride):], n*stride))
		if !s.q.holes && !s.d.holes {
			continue
		}
		for i := range n {
			query, doc := s.call.At(q*pitch+from+i, s.d.shape.Len())
			s.spread(to[i*stride:(i+1)*stride], query, doc)
		}
	}
	return nil
}

// spread turns the argmaxima of a pair, from token to token, into those from row to
// row.
func (s *scoring) spread(arg []int32, query, doc int) {
	for r := range s.q.count(query) {
		if s.d.holes && arg[r] >= 0 {
			arg[r] = int32(s.d.place(doc, int(arg[r])))
		}
	}
	if !s.q.holes {
		return
	}
	end := len(arg)
	for r := s.q.count(query) - 1; r >= 0; r-- {
		v, at := arg[r], s.q.place(query, r)
		for i := at; i < end; i++ {
			arg[i] = -1
		}
		arg[at], end = v, at
	}
	for i := range end {
		arg[i] = -1
	}
}

// place takes room for a slice, and put copies it there.
func place[T any](a *runtime.Arena, s []T) int64 { return a.Take(int64(len(runtime.Bytes(s)))) }
func put[T any](to []byte, s []T)                { copy(to, runtime.Bytes(s)) }
