package dense

import (
	"context"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// sides are the operands of a call of Chamfer or its gradients, and their rows on the device.
type sides struct {
	x, y operand
	work maxsim.ChamferWork
	rows [2]packedRows
}

// resolveSides returns the operands of a call that was validated as w.
func (b *backend) resolveSides(x, y maxsim.Operand, w maxsim.ChamferWork) (s sides, err error) {
	s.work = w
	if s.x, err = b.resolveOperand(x); err != nil {
		return s, err
	}
	s.y, err = b.resolveOperand(y)
	return s, err
}

// operands returns X and Y.
func (s *sides) operands() [2]*operand { return [2]*operand{&s.x, &s.y} }

// chamferPair returns a pair of items without the offsets of its keys.
func (s *sides) chamferPair(x, y int) denseChamferPair {
	return denseChamferPair{
		x:    uint64(s.x.first[x]),
		y:    uint64(s.y.first[y]),
		xLen: uint32(s.x.rowCount(x)),
		yLen: uint32(s.y.rowCount(y)),
	}
}

// chamfer is a call in progress.
type chamfer struct {
	sides
	limits callLimits
	call   *maxsim.ChamferCall
}

// Chamfer implements [maxsim.ChamferScorer].
func (b *backend) Chamfer(ctx context.Context, c *maxsim.ChamferCall) error {
	w, err := c.Check()
	if err != nil {
		return err
	}
	s, err := b.resolveSides(c.X, c.Y, w)
	if err != nil || w.Pairs == 0 {
		return err
	}
	x := &chamfer{sides: s, limits: b.limits, call: c}
	return b.submit(ctx, "distances of", x.run)
}

// chamferPieces has the offsets of the table and the results of a piece, and the plans by its number of
// pairs.
type chamferPieces struct {
	pairsPerPiece    int
	table, distances int64
	nearest          [2]int64 // −1 means not wanted
	in, out          int64    // bytes
	plans            map[int]*chamferPlan
	base             int64
	lists            [2][]int32
	strides          [2]int
}

// run computes all pieces of a call.
func (c *chamfer) run(ctx context.Context, rt *runtime.Runtime) error {
	pieces, err := c.beginPieces(ctx, rt)
	if err != nil {
		return err
	}
	pairs := make([]denseChamferPair, pieces.pairsPerPiece)
	for lo := 0; lo < c.work.Pairs; lo += pieces.pairsPerPiece {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.computePiece(rt, pieces, pairs[:min(pieces.pairsPerPiece, c.work.Pairs-lo)], lo); err != nil {
			return err
		}
	}
	return nil
}

// chamferShape returns the shape of a piece of n pairs.
func (c *chamfer) chamferShape(n int) chamferShape {
	return chamferShape{
		metric:  c.call.Metric,
		dim:     c.work.X.Dim,
		pairs:   n,
		rows:    [2]int{c.x.tokenCount(), c.y.tokenCount()},
		longest: [2]int{c.work.StrideX, c.work.StrideY},
		nearest: c.call.NearestX != nil || c.call.NearestY != nil,
	}
}

// beginPieces divides the pairs into pieces whose keys and results fit on the device, and copies the
// tokens there.
func (c *chamfer) beginPieces(ctx context.Context, rt *runtime.Runtime) (*chamferPieces, error) {
	pieces := &chamferPieces{
		nearest: [2]int64{-1, -1},
		lists:   [2][]int32{c.call.NearestX, c.call.NearestY},
		strides: [2]int{c.work.StrideX, c.work.StrideY},
		plans:   map[int]*chamferPlan{},
	}
	pieces.pairsPerPiece = min(max(c.limits.out/(4+20*(pieces.strides[0]+pieces.strides[1])), 1), c.work.Pairs)
	for _, n := range []int{pieces.pairsPerPiece, c.work.Pairs % pieces.pairsPerPiece} {
		if n == 0 {
			continue
		}
		plan, err := planChamfer(c.chamferShape(n), rt.Arch(), rt.Props.Shared, rt.FillingBlocks)
		if err != nil {
			return nil, err
		}
		pieces.plans[n] = plan
	}
	var in, out, scratch runtime.Arena
	lay, err := reserveOperands(&scratch, c.operands(), false)
	if err != nil {
		return nil, err
	}
	pieces.base = scratch.Append(pieces.plans[pieces.pairsPerPiece].bytes)
	pieces.table = reserveSlice(&in, make([]denseChamferPair, pieces.pairsPerPiece))
	pieces.distances = out.Append(4 * int64(pieces.pairsPerPiece))
	for i, list := range pieces.lists {
		if list != nil {
			pieces.nearest[i] = out.Append(4 * int64(pieces.pairsPerPiece) * int64(pieces.strides[i]))
		}
	}
	pieces.in, pieces.out = in.Size, out.Size
	sizes := runtime.WorkspaceSizes{In: pieces.in, Out: pieces.out, Scratch: scratch.Size}
	if err := rt.Work.Reserve(sizes); err != nil {
		return nil, err
	}
	c.rows, err = uploadOperands(ctx, rt, c.operands(), lay)
	return pieces, err
}

// preparePairs copies the table of the pairs from lo on to the device, and returns the parameters of
// the kernels.
func (c *chamfer) preparePairs(
	rt *runtime.Runtime, pieces *chamferPieces, pairs []denseChamferPair, lo int,
) (*denseChamferParams, error) {
	w, n := &rt.Work, len(pairs)
	for i := range pairs {
		x, y := c.call.PairAt(lo+i, c.work.Y.Len())
		pairs[i] = c.chamferPair(x, y)
		pairs[i].keyX, pairs[i].keyY = uint64(i*pieces.strides[0]), uint64(n*pieces.strides[0]+i*pieces.strides[1])
	}
	writeStructs(w.HostIn[pieces.table:], pairs)
	if err := rt.Driver.ToDevice(w.In.Ptr, w.HostIn[:pieces.in], rt.Stream); err != nil {
		return nil, err
	}
	p := &denseChamferParams{pairs: w.In.At(pieces.table), out: w.Out.At(pieces.distances)}
	for i := range p.side {
		r := &c.rows[i]
		p.side[i] = denseChamferSide{
			rows:   r.ptr,
			scale:  r.scale,
			bytes:  uint32(r.rowBytes),
			format: uint32(r.format),
		}
		if pieces.nearest[i] >= 0 {
			p.side[i].near = w.Out.At(pieces.nearest[i])
		}
	}
	if c.call.Mean {
		p.mean = 1
	}
	return p, nil
}

// computePiece computes the distances of the pairs from lo on.
func (c *chamfer) computePiece(rt *runtime.Runtime, pieces *chamferPieces, pairs []denseChamferPair, lo int) error {
	w, n := &rt.Work, len(pairs)
	p, err := c.preparePairs(rt, pieces, pairs, lo)
	if err != nil {
		return err
	}
	if err := pieces.plans[n].run(rt, w.Scratch.At(pieces.base), p); err != nil {
		return err
	}
	if err := rt.Driver.ToHost(w.HostOut[:pieces.out], w.Out.Ptr, rt.Stream); err != nil {
		return err
	}
	if err := rt.Sync(); err != nil {
		return err
	}
	copy(c.call.Distances[lo:], structsFrom[float32](w.HostOut[pieces.distances:], n))
	for i, list := range pieces.lists {
		if list != nil {
			copy(list[lo*pieces.strides[i]:], structsFrom[int32](w.HostOut[pieces.nearest[i]:], n*pieces.strides[i]))
		}
	}
	c.spreadNearest(lo, n)
	return nil
}

// spreadNearest converts the nearest tokens of n pairs from lo on to nearest rows.
func (c *chamfer) spreadNearest(lo, n int) {
	if !c.x.hasHoles && !c.y.hasHoles {
		return
	}
	for i := lo; i < lo+n; i++ {
		x, y := c.call.PairAt(i, c.work.Y.Len())
		if list := c.call.NearestX; list != nil {
			spreadRow(&c.x, &c.y, list[i*c.work.StrideX:(i+1)*c.work.StrideX], x, y)
		}
		if list := c.call.NearestY; list != nil {
			spreadRow(&c.y, &c.x, list[i*c.work.StrideY:(i+1)*c.work.StrideY], y, x)
		}
	}
}
