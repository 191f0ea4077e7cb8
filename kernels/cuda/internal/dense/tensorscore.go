package dense

import (
	"errors"
	"fmt"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// ErrWorkspace: the workspace of a call is too small, or not aligned.
var ErrWorkspace = errors.New("unsuitable workspace")

// Score puts the work of a call into its stream.
//
// Errors: [kernels.ErrShape], [ErrWorkspace], [driver.ErrUnsupported], [driver.ErrOutOfMemory],
// [driver.ErrDeviceLost].
func (d *Device) Score(c *ScoreCall) error {
	pairs, err := c.checkCall()
	if err != nil || pairs == 0 {
		return err
	}
	return d.onStream(c.Place.Stream, func() error {
		if c.hasNoTokens() {
			return d.writeEmptyScores(c, pairs)
		}
		x, err := d.scorePlan(c)
		if err != nil {
			return err
		}
		p := x.score
		if err := c.Place.checkWorkspace(p.bytes); err != nil {
			return err
		}
		if err := d.uploadTables(x, &p.tables); err != nil {
			return err
		}
		d.score = scoreLaunch{
			d:      d,
			call:   *c,
			plan:   p,
			base:   driver.Ptr(c.Place.Workspace),
			tables: x.mem.Ptr,
		}
		err = d.score.run()
		d.score.call.head, d.score.head = nil, nil
		return err
	})
}

// ScoreWorkspace returns how many bytes of workspace the call needs.
func (d *Device) ScoreWorkspace(c *ScoreCall) (bytes int64, err error) {
	pairs, err := c.checkCall()
	if err != nil || pairs == 0 || c.hasNoTokens() {
		return 0, err
	}
	err = d.onStream(c.Place.Stream, func() error {
		x, err := d.scorePlan(c)
		if err == nil {
			bytes = x.score.bytes
		}
		return err
	})
	return bytes, err
}

// checkCall validates a call, and returns its number of pairs.
func (c *ScoreCall) checkCall() (pairs int, err error) {
	if pairs, err = checkSides(&c.Q, &c.D, &c.Pairs); err != nil || pairs == 0 {
		return pairs, err
	}
	if c.Scores == 0 {
		return 0, fmt.Errorf("%w: no scores to write", kernels.ErrShape)
	}
	return pairs, nil
}

// checkSides validates two batches and their pairs, and returns the number of pairs.
func checkSides(q, d *Batch, p *PairList) (pairs int, err error) {
	if err := q.checkOperand("queries"); err != nil {
		return 0, err
	}
	if err := d.checkOperand("documents"); err != nil {
		return 0, err
	}
	if q.Dim != d.Dim {
		return 0, fmt.Errorf("%w: queries of %d dimensions, documents of %d", kernels.ErrShape, q.Dim, d.Dim)
	}
	return p.countPairs(q, d)
}

// hasNoTokens reports whether no pair has tokens on both sides.
func (c *ScoreCall) hasNoTokens() bool {
	return c.Q.Items == 0 || c.D.Items == 0 || c.Q.Longest == 0 || c.D.Longest == 0 || c.Q.Rows == 0 || c.D.Rows == 0
}

// writeEmptyScores writes the scores of pairs without tokens.
func (d *Device) writeEmptyScores(c *ScoreCall, pairs int) error {
	if err := d.rt.Driver.Set(driver.Ptr(c.Scores), 0, 4*int64(pairs), d.rt.Stream); err != nil || c.Argmax == 0 {
		return err
	}
	return d.rt.Driver.Set(driver.Ptr(c.Argmax), 0xFF, 4*int64(pairs)*int64(c.Q.Longest), d.rt.Stream)
}

// checkWorkspace checks that a workspace has the bytes that a call needs, and is aligned.
func (p *Place) checkWorkspace(bytes int64) error {
	switch {
	case bytes == 0:
		return nil
	case p.WorkspaceBytes < bytes:
		return fmt.Errorf("%w: it has %d bytes, the call needs %d", ErrWorkspace, p.WorkspaceBytes, bytes)
	case p.Workspace == 0 || p.Workspace%runtime.ArenaAlign != 0:
		return fmt.Errorf("%w: its address %#x is not a multiple of %d", ErrWorkspace, p.Workspace, runtime.ArenaAlign)
	}
	return nil
}

// uploadTables copies the tables of a plan to the device, the first time. If the stream of the call is
// captured they stay there, else other plans may be evicted.
func (d *Device) uploadTables(x *cachedPlan, t *tables) (err error) {
	captured := x.pinned
	if !captured && d.rt.Stream != driver.StreamFromHandle(0) { // stream 0 cannot be captured
		if captured, err = d.rt.Driver.Capturing(d.rt.Stream); err != nil {
			return err
		}
	}
	if t != nil && t.Size > 0 {
		x.pinned = captured
		if x.mem.Ptr == 0 {
			host := make([]byte, t.Size)
			t.write(host)
			if err := d.plans.uploadTables(d.rt.Driver, d.tableStream, x, host); err != nil {
				return err
			}
		}
	}
	if x.mayEvict && !captured {
		x.mayEvict = false
		d.plans.evictOld(d.rt.Driver)
	}
	return nil
}

// scoreLaunch is a call whose work is being put into its stream. The device reuses one, so that a call
// does not allocate.
type scoreLaunch struct {
	d            *Device
	call         ScoreCall
	plan         *scorePlan
	base, tables driver.Ptr // workspace, and tables of the plan
	q, docs      packedRows
	weights      driver.Ptr
	head         *denseProjectParams
	// Parameters of kernels.
	params      denseParams
	fill        denseFillParams
	weightArgs  denseWeightsParams
	prepareArgs densePrepareParams
	// early means that the previous kernel is a preparation, so that the next one may start before it
	// ends. Each preparation waits for the previous one at its end, and the first one started after
	// all earlier work had ended.
	early bool
}

// launchPreparation starts a kernel that prepares operands or tables for the scoring kernel.
func launchPreparation[T any](s *scoreLaunch, name string, blocks int, args *T) error {
	err := runtime.LaunchAfter(s.d.rt, s.early, name, blocks, 1, 1, 256, 0, args)
	s.early = s.early || blocks > 0
	return err
}

// launchScoring starts the kernel that computes scores.
func launchScoring[T any](s *scoreLaunch, units int, args *T) error {
	k := &s.plan.kernel
	err := runtime.LaunchFunction(s.d.rt, s.early, s.plan.function, units/k.teams, k.block, k.shared, args)
	s.early = false
	return err
}

// packRows returns n rows of a batch from row first on. It packs them if their plan says so.
func (s *scoreLaunch) packRows(p *rowsPlan, b *Batch, first, n int) (packedRows, error) {
	r, x := p.packParams(b, s.base, first, n)
	if x == nil {
		return r, nil
	}
	return r, launchPreparation(s, "dense/dense_pack", x.blocks(), x)
}

// prepareDocs returns n rows of documents from row first on, packed or computed by the head if necessary.
func (s *scoreLaunch) prepareDocs(first, n int) (packedRows, error) {
	if s.head != nil {
		return s.computeTokens(first, n)
	}
	return s.packRows(&s.plan.d, &s.call.D, first, n)
}

// run launches the kernels of a call.
func (s *scoreLaunch) run() error {
	c, p, rt := &s.call, s.plan, s.d.rt
	if c.Argmax != 0 && c.Q.Offsets != 0 { // no kernel writes behind the end of shorter queries
		if err := rt.Driver.Set(driver.Ptr(c.Argmax), 0xFF, 4*int64(p.pairs)*int64(c.Q.Longest),
			rt.Stream); err != nil {
			return err
		}
	}
	if err := s.prepareQueries(); err != nil {
		return err
	}
	if !p.d.piecewise {
		var err error
		if s.docs, err = s.prepareDocs(0, c.D.Rows); err != nil {
			return err
		}
	}
	for i := range p.pieces {
		if err := s.computePiece(&p.pieces[i]); err != nil {
			return err
		}
	}
	return nil
}

// prepareQueries prepares queries, their weights and the weights of a head, with a single kernel if
// queries or the head are packed.
func (s *scoreLaunch) prepareQueries() error {
	c, p := &s.call, s.plan
	var queries, head *densePackParams
	s.q, queries = p.q.packParams(&c.Q, s.base, 0, c.Q.Rows)
	weights := s.weightParams()
	if p.head != nil {
		head = s.headPackParams()
	}
	if queries == nil && head == nil {
		if weights == nil {
			return nil
		}
		return launchPreparation(s, "dense/dense_weights", weights.blocks(), weights)
	}
	x := &s.prepareArgs
	*x = densePrepareParams{}
	blocks := 0
	if queries != nil {
		x.side[0], blocks = *queries, queries.blocks()
		if weights != nil {
			x.weights, weights = *weights, nil
		}
	}
	x.firstBlocks = uint32(blocks)
	if head != nil {
		x.side[1] = *head
		blocks += head.blocks()
	}
	if err := launchPreparation(s, "dense/dense_prepare", blocks, x); err != nil || weights == nil {
		return err
	}
	return launchPreparation(s, "dense/dense_weights", weights.blocks(), weights)
}

// weightParams sets the address of the weights of query rows, and returns the parameters of the kernel
// that computes them, or nil if they exist already.
func (s *scoreLaunch) weightParams() *denseWeightsParams {
	c, p := &s.call, s.plan
	switch {
	case p.ones >= 0:
		s.weights = s.tables.Add(p.ones)
		return nil
	case p.weights < 0:
		s.weights = driver.Ptr(c.Weights)
		return nil
	}
	s.weights = s.base.Add(p.weights)
	w := &s.weightArgs
	*w = denseWeightsParams{
		weights:    driver.Ptr(c.Weights),
		scale:      s.q.scaleFor(c.unitQueries()),
		out:        s.weights,
		n:          uint32(c.Q.Rows),
		stride:     uint32(max(c.Q.itemStride(), 1)),
		lengths:    driver.Ptr(c.Q.Lengths),
		mask:       driver.Ptr(c.Q.Mask),
		maskStride: uint64(c.Q.MaskStride),
		items:      uint32(c.Q.Items),
		longest:    uint32(c.Q.Longest),
	}
	return w
}

// computePiece puts the work of a piece into the stream.
func (s *scoreLaunch) computePiece(x *scorePiece) error {
	c, p, rt := &s.call, s.plan, s.d.rt
	t := &p.tablesBySize[x.tables]
	// 1. Documents, from their first row on.
	first := 0
	if c.D.Offsets == 0 && p.kind != PairsListed {
		first = x.doc * c.D.Stride
	}
	docs := s.docs.startingAt(first)
	if p.d.piecewise {
		var err error
		if docs, err = s.prepareDocs(first, x.rowSpan(&c.D)); err != nil {
			return err
		}
	}
	// 2. Addresses of operands, tables and results: scores, or parts of them.
	scores, argmax := driver.Ptr(c.Scores).Add(4*int64(x.out)), driver.Ptr(0)
	if c.Argmax != 0 {
		argmax = driver.Ptr(c.Argmax).Add(4 * int64(x.out) * int64(c.Q.Longest))
	}
	a := s.scoreParams(x, t, docs)
	a.out, a.arg = scores, argmax
	if p.part >= 0 {
		a.out = s.base.Add(p.part)
	}
	if p.segments > 1 {
		a.top, a.arg = s.base.Add(p.top), s.base.Add(p.arg)
	}
	// 3. Tables that depend on values in the device's memory.
	joins := s.tables.Add(t.joins)
	if p.fillsOnDevice() {
		f := s.fillParams(x, t, first)
		if f.nItems > 0 {
			a.items, a.units = f.items, f.units
			if a.mask = f.rowMask; a.mask == 0 {
				a.mask = f.dMask
			}
		}
		if f.nGroups > 0 {
			a.groups, joins = f.groups, f.joins
		}
		if err := launchPreparation(s, "dense/dense_fill", f.blocks(), f); err != nil {
			return err
		}
	}
	// 4. The kernel.
	if p.head != nil && p.head.fused {
		f := headParams(s.head, a, docs, c.Normalize)
		if !p.fillsOnDevice() && !p.head.hidden.prepared {
			f.ahead = 1
		}
		return launchScoring(s, t.nUnits, f)
	}
	if err := launchScoring(s, t.nUnits, a); err != nil {
		return err
	}
	// 5. Scores from sums of groups or maxima of segments.
	switch {
	case p.segments > 1:
		join := &denseJoinParams{
			top:     a.top,
			arg:     a.arg,
			weights: a.weights,
			joins:   joins,
			out:     scores,
			outArg:  argmax,
			pitch:   uint32(c.Q.Longest),
			segment: uint32(p.segment),
		}
		return join.run(rt, t.nJoins)
	case p.part >= 0:
		sum := &denseSumParams{
			part:   a.out,
			out:    scores,
			partAt: s.tables.Add(t.partAt),
			outAt:  s.tables.Add(t.outAt),
			groups: s.tables.Add(t.sumGroups),
			count:  s.tables.Add(t.sumCount),
		}
		return sum.run(rt, t.nSums, t.maxSum)
	}
	return nil
}

// scoreParams returns the parameters of the scoring kernel for a piece, with the tables that the host made.
func (s *scoreLaunch) scoreParams(x *scorePiece, t *scoreTables, docs packedRows) *denseParams {
	c, a, first := &s.call, &s.params, 0
	if c.Q.Offsets == 0 {
		first = x.query * c.Q.Stride
	}
	queries := s.q.startingAt(first)
	*a = denseParams{
		docs:        docs.ptr,
		docScale:    docs.scaleFor(c.Normalize),
		queries:     queries.ptr,
		weights:     s.weights.Add(4 * int64(first)),
		items:       s.tables.Add(t.items),
		groups:      s.tables.Add(t.groups),
		units:       s.tables.Add(t.units),
		rowBytes:    uint32(docs.rowBytes),
		queryBytes:  uint32(queries.rowBytes),
		docFormat:   uint32(docs.format),
		queryFormat: uint32(queries.format),
		dim:         uint32(c.D.Dim),
	}
	return a
}

// fillParams returns the parameters of dense_fill, which makes the tables of a piece. first is the first
// row of its documents.
func (s *scoreLaunch) fillParams(x *scorePiece, t *scoreTables, first int) *denseFillParams {
	c, p := &s.call, s.plan
	f := &s.fill
	*f = denseFillParams{
		unitsIn:     s.tables.Add(t.units),
		groupsIn:    s.tables.Add(t.groups),
		dStride:     uint64(c.D.Stride),
		dMaskStride: uint64(c.D.MaskStride),
		qStride:     uint64(c.Q.Stride),
		dItems:      uint32(c.D.Items),
		dLongest:    uint32(c.D.Longest),
		qItems:      uint32(c.Q.Items),
		qLongest:    uint32(c.Q.Longest),
		segment:     uint32(p.segment),
		segments:    uint32(p.segments),
		tokens:      uint32(p.kernel.tokens),
		perQuery:    uint32(p.perQuery),
		unitGroups:  uint32(p.kernel.groups),
		argPitch:    uint32(c.Q.Longest),
		runs:        uint32(t.runs),
		joinDocs:    uint32(x.docsPerQuery),
		joinPitch:   uint32(x.pitch),
		dRows:       uint32(c.D.Rows),
		qRows:       uint32(c.Q.Rows),
	}
	advance := func(base uint64, bytes int64) driver.Ptr {
		if base == 0 {
			return 0
		}
		return driver.Ptr(base).Add(bytes)
	}
	docs, queries := int64(x.doc), int64(x.query)
	if p.kind == PairsListed { // pieces are pairs, which may refer to all queries and documents
		docs, queries = 0, 0
		f.pairQ, f.pairD = advance(c.Pairs.Queries, 4*int64(x.out)), advance(c.Pairs.Documents, 4*int64(x.out))
		f.unitsIn, f.groupsIn, f.joinDocs, f.joinPitch = 0, 0, 1, 1
	}
	if p.fillItems {
		f.items, f.units = s.base.Add(p.items), s.base.Add(p.units)
		f.nItems, f.nUnits = uint32(t.nItems), uint32(t.nUnits)
		f.dOffsets, f.dLengths, f.dMask = advance(c.D.Offsets, 4*docs), advance(c.D.Lengths, 4*docs), advance(c.D.Mask,
			docs*int64(c.D.MaskStride))
		if p.rowMask >= 0 {
			f.rowMask = s.base.Add(p.rowMask + int64(first))
		}
	}
	if p.fillGroups {
		f.groups, f.joins, f.nGroups = s.base.Add(p.groups), s.base.Add(p.joins), uint32(t.nGroups)
		f.qOffsets = advance(c.Q.Offsets, 4*queries)
		if p.segments > 1 {
			f.nJoins = uint32(t.nJoins)
		}
	}
	return f
}
