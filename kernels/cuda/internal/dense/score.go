package dense

import (
	"context"
	"slices"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
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
	return b.submit(ctx, "scoring", s.run)
}

// scoring is a call in progress. Documents are processed piece by piece: while the device
// works on a piece, the host prepares the next one and copies the results of the previous
// one.
type scoring struct {
	call   *maxsim.Call
	size   maxsim.Work
	q, d   operand
	head   *head    // computes the token vectors of the documents, nil means that the caller has them
	rank   *ranking // keeps the best scores, nil means that all scores are copied to the caller
	work   *launchWork
	limits callLimits

	rt                      *runtime.Runtime
	shape                   shape
	kernel                  kernel
	placeQueries, placeDocs func(driver.Ptr) packedRows // by the address of the scratch memory
	weightsOffset           int64                       // in the scratch memory, as the next ones
	partOffset              int64
	topOffset, argOffset    int64      // of the maxima of segments
	dRows                   packedRows // of all documents, or of a piece
	uploadedRange           [2]int     // the documents in dRows, if they are uploaded piece by piece
	pairs                   pairOrder  // if not all queries are scored with all documents
	segment                 int        // rows of a segment, 0 means that documents are not divided
	segments                *tokens
	nonEmptyDocs            driver.Ptr // items of the documents with tokens, if documents are divided
	params                  *denseParams
	slots                   [2]slot
	slotsUsed               int
}

// slot is a part of the workspace for a piece that the device works on.
type slot struct {
	busy        bool
	piece       piece
	scores, arg int64 // in the page-locked memory
}

// newScoring returns a call that was validated as w.
func (b *backend) newScoring(c *maxsim.Call, w maxsim.Work) (*scoring, error) {
	s := &scoring{
		call:   c,
		size:   w,
		work:   &b.work,
		limits: b.limits,
	}
	var err error
	if s.q, err = b.resolveOperand(c.Q); err != nil {
		return nil, err
	}
	s.d, err = b.resolveOperand(c.D)
	return s, err
}

// chooseFormats chooses the formats of queries and documents.
func (s *scoring) chooseFormats() (q, d format) {
	d = split
	if s.head == nil {
		d = s.d.format()
	}
	if s.q.held != nil {
		q = s.q.held.rows.format
		s.shape.fast = q == d || d == e4m3 && q == f16
		return q, d
	}
	d, q, s.shape.fast = formatsFor(d, s.d.held != nil, &s.q.batch.Tokens)
	return q, d
}

// run computes all pieces of a call.
func (s *scoring) run(ctx context.Context, rt *runtime.Runtime) error {
	if err := s.prepareCall(ctx, rt); err != nil {
		return err
	}
	err := s.forEachPiece(func(p piece) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.uploadDocuments(ctx, p.lo, p.hi); err != nil {
			return err
		}
		slot, err := s.preparePiece(p)
		if err != nil {
			return err
		}
		if err := s.launch(); err != nil {
			return err
		}
		return s.fetchResults(slot)
	})
	if err != nil {
		return err
	}
	if s.rank != nil {
		return s.rank.collect(s)
	}
	return s.finishAll()
}

// prepareCall chooses the kernel, lays out the memory of a call, and copies the queries to
// the device.
func (s *scoring) prepareCall(ctx context.Context, rt *runtime.Runtime) (err error) {
	s.rt = rt
	if s.d.closed() || s.q.closed() {
		return maxsim.ErrForeign
	}
	// 1. Formats and kernels.
	qf, df := s.chooseFormats()
	dim := s.size.Q.Dim
	s.shape.docs, s.shape.queries = rowsOf(df, dim), rowsOf(qf, dim)
	s.shape.all, s.shape.argmax = s.call.Kind == maxsim.AllPairs, s.call.Argmax != nil
	s.shape.queryCount, s.shape.longest, s.shape.tokens = s.q.shape.Len(), s.q.longestItem(), s.q.tokenCount()
	if s.kernel, err = chooseKernel(rt, &s.shape); err != nil {
		return err
	}
	if err := s.cutDocuments(); err != nil {
		return err
	}
	if s.head != nil {
		if err := s.head.chooseKernel(s); err != nil {
			return err
		}
	}
	// 2. Memory.
	if !s.shape.all {
		s.pairs = newPairOrder(&s.call.Pairs, s.size.Pairs, s.d.shape.Len())
	}
	if err := s.layOut(qf, df); err != nil {
		return err
	}
	// 3. Operands that stay for all pieces.
	if err := s.uploadQueries(ctx, df); err != nil {
		return err
	}
	if s.placeDocs != nil {
		s.dRows = s.placeDocs(rt.Work.Scratch.Ptr)
	} else {
		s.dRows = s.d.held.rows
	}
	if s.head != nil {
		if err := s.head.uploadWeights(ctx, s); err != nil {
			return err
		}
	}
	if s.rank != nil {
		if err := s.rank.clearBest(s); err != nil {
			return err
		}
	}
	return rt.Sync() // the workspace may be reallocated, and the host writes it again
}

// layOut reserves the workspace: for operands that are uploaded, for weights, and for the
// results of the largest piece.
func (s *scoring) layOut(qf, df format) error {
	var scratch runtime.Arena
	if s.q.batch != nil {
		s.placeQueries = reserveBatch(&scratch, qf, s.q.batch, s.q.tokenCount(), s.unitQueries())
	}
	largest := s.largestPiece()
	if s.head != nil {
		s.head.reserve(&scratch, s, largest.rows)
	} else if s.d.batch != nil {
		s.placeDocs = reserveBatch(&scratch, df, s.d.batch, largest.rows, s.call.Normalize)
	}
	s.weightsOffset = scratch.Append(4 * int64(s.q.tokenCount()))
	s.partOffset = scratch.Append(largest.part)
	s.topOffset, s.argOffset = scratch.Append(largest.top), scratch.Append(largest.top)
	if s.rank != nil {
		s.rank.reserve(&scratch, s, largest.docs)
	}
	weights := int64(0)
	if s.call.Weights != nil {
		weights = 4 * int64(s.q.tokenCount())
	}
	return s.rt.Work.Reserve(runtime.WorkspaceSizes{In: weights, Scratch: scratch.Size})
}

// unitQueries reports whether queries are divided by their lengths. With a head only the token
// vectors that it computes are.
func (s *scoring) unitQueries() bool { return s.call.Normalize && s.head == nil }

// uploadQueries copies the queries and their weights to the device.
func (s *scoring) uploadQueries(ctx context.Context, df format) error {
	rt, w := s.rt, &s.rt.Work
	var queries packedRows
	if s.q.held != nil {
		queries = s.q.held.rows
	} else {
		queries = s.placeQueries(w.Scratch.Ptr)
		if err := upload(ctx, rt, s.q.batch, s.q.tokens, queries, 0, s.q.tokenCount()); err != nil {
			return err
		}
	}
	s.params = &denseParams{
		queries:     queries.ptr,
		weights:     w.Scratch.At(s.weightsOffset),
		queryFormat: uint32(queries.format),
		queryBytes:  uint32(queries.rowBytes),
		docFormat:   uint32(df),
		rowBytes:    uint32(s.shape.docs.rowBytes),
		dim:         uint32(s.size.Q.Dim),
	}
	p := &denseWeightsParams{
		scale: queries.scaleFor(s.unitQueries()),
		out:   s.params.weights,
		n:     uint32(s.q.tokenCount()),
	}
	if s.call.Weights != nil {
		weights := structsFrom[float32](w.HostIn, s.q.tokenCount())
		for i := range weights {
			weights[i] = s.call.Weights[s.q.sourceRow(i)]
		}
		if err := rt.Driver.ToDevice(w.In.Ptr, w.HostIn[:4*len(weights)], rt.Stream); err != nil {
			return err
		}
		p.weights = w.In.Ptr
	}
	return p.run(rt)
}

// uploadDocuments uploads the documents lo to hi, unless they are on the device.
func (s *scoring) uploadDocuments(ctx context.Context, lo, hi int) error {
	if s.placeDocs == nil || s.uploadedRange == [2]int{lo, hi} {
		return nil
	}
	s.uploadedRange = [2]int{lo, hi}
	if s.head != nil && !s.head.fused {
		return s.head.computeTokens(ctx, s, lo, hi)
	}
	return upload(ctx, s.rt, s.d.batch, s.d.tokens, s.dRows, s.d.first[lo], s.d.first[hi])
}

// firstToken returns the token of the first row of dRows.
func (s *scoring) firstToken(p piece) int {
	if s.placeDocs == nil {
		return 0
	}
	return s.d.first[p.lo]
}

// preparePiece copies the tables of a piece to the device, and returns its slot.
func (s *scoring) preparePiece(p piece) (*slot, error) {
	rt, w, stride := s.rt, &s.rt.Work, s.size.Stride
	// 1. A slot, once its last piece is done.
	which := s.slotsUsed % len(s.slots)
	slot := &s.slots[which]
	s.slotsUsed++
	if err := s.finishSlot(which); err != nil {
		return nil, err
	}
	// 2. Tables, and room for them and for results.
	n := s.makePieceTables(p)
	var in tables
	var out runtime.Arena
	items, groups, units := addTable(&in, s.work.items), addTable(&in, s.work.groups), addTable(&in, s.work.units)
	partAt, outAt := addTable(&in, s.work.partAt), addTable(&in, s.work.outAt)
	sumGroups, sumCount := addTable(&in, s.work.sumGroups), addTable(&in, s.work.sumCount)
	joins, nonEmptyDocs := addTable(&in, s.work.joins), addTable(&in, s.work.nonEmptyDocs)
	scores, arg := out.Append(4*int64(n)), int64(-1)
	if s.call.Argmax != nil {
		arg = out.Append(4 * int64(n) * int64(stride))
	}
	inOffset, outOffset, err := s.slotOffsets(which, in.Size, out.Size)
	if err != nil {
		return nil, err
	}
	host := w.HostIn[inOffset : inOffset+in.Size]
	in.write(host)
	table := w.In.At(inOffset)
	if err := rt.Driver.ToDevice(table, host, rt.Stream); err != nil {
		return nil, err
	}
	// 3. Addresses of the tables, and of the results: scores, or parts of them.
	slot.piece, slot.scores, slot.arg = p, outOffset+scores, -1
	if arg >= 0 {
		slot.arg = outOffset + arg
	}
	x := s.params
	x.docs, x.docScale = s.dRows.ptr, s.dRows.scaleFor(s.call.Normalize)
	x.items, x.groups, x.units = table.Add(items), table.Add(groups), table.Add(units)
	s.nonEmptyDocs = table.Add(nonEmptyDocs)
	x.out, x.arg, x.top = w.Out.At(slot.scores), 0, 0
	s.work.sums, s.work.join = nil, nil
	if s.work.part > 0 || s.segment > 0 {
		x.out = w.Scratch.At(s.partOffset)
	}
	switch {
	case s.segment > 0:
		x.top, x.arg = w.Scratch.At(s.topOffset), w.Scratch.At(s.argOffset)
		s.work.join = &denseJoinParams{
			top:     x.top,
			arg:     x.arg,
			weights: x.weights,
			joins:   table.Add(joins),
			out:     w.Out.At(slot.scores),
			pitch:   uint32(stride),
			segment: uint32(s.segment),
		}
		if slot.arg >= 0 {
			s.work.join.outArg = w.Out.At(slot.arg)
		}
	case s.work.part > 0:
		s.work.sums = &denseSumParams{
			part:   x.out,
			out:    w.Out.At(slot.scores),
			partAt: table.Add(partAt),
			outAt:  table.Add(outAt),
			groups: table.Add(sumGroups),
			count:  table.Add(sumCount),
		}
	}
	// 4. Results of pairs that no unit has.
	if s.work.gaps && s.segment == 0 {
		if err := rt.Driver.Set(w.Out.At(slot.scores), 0, 4*int64(n), rt.Stream); err != nil {
			return nil, err
		}
		if err := rt.Driver.Set(w.Scratch.At(s.partOffset), 0, 4*int64(s.work.part), rt.Stream); err != nil {
			return nil, err
		}
	}
	if slot.arg >= 0 {
		if s.segment == 0 {
			x.arg = w.Out.At(slot.arg)
		}
		return slot, rt.Driver.Set(w.Out.At(slot.arg), 0xFF, 4*int64(n)*int64(stride), rt.Stream) // −1
	}
	return slot, nil
}

// slotOffsets returns the offsets of a slot's tables and results, whose sizes are in and out. It grows
// the workspace if necessary.
func (s *scoring) slotOffsets(which int, in, out int64) (inOffset, outOffset int64, err error) {
	w := &s.rt.Work
	slotSize := func(device int64, host []byte) int64 {
		return min(device, int64(len(host))) / int64(len(s.slots)) / runtime.ArenaAlign * runtime.ArenaAlign
	}
	if slotSize(w.In.Bytes, w.HostIn) < in || slotSize(w.Out.Bytes, w.HostOut) < out {
		if err := s.finishAll(); err != nil {
			return 0, 0, err
		}
		if err := s.rt.Sync(); err != nil {
			return 0, 0, err
		}
		n := int64(len(s.slots))
		if err := w.Reserve(runtime.WorkspaceSizes{In: n * in, Out: n * out}); err != nil {
			return 0, 0, err
		}
	}
	return int64(which) * slotSize(w.In.Bytes, w.HostIn), int64(which) * slotSize(w.Out.Bytes, w.HostOut), nil
}

// launch launches the kernels that compute the scores of a prepared piece.
func (s *scoring) launch() error {
	k := &s.kernel
	if s.head != nil && s.head.fused {
		return s.head.launch(s)
	}
	if err := runtime.Launch(s.rt, k.name, len(s.work.units)/k.teams, 1, 1, k.block, k.shared, s.params); err != nil {
		return err
	}
	if s.work.join != nil {
		return s.work.join.run(s.rt, len(s.work.joins))
	}
	if s.work.sums == nil {
		return nil
	}
	return s.work.sums.run(s.rt, len(s.work.sumCount), int(slices.Max(s.work.sumCount)))
}
