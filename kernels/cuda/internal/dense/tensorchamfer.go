package dense

import (
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// ChamferCall is a computation of distances, as [maxsim.ChamferCall]: Q has the points X, D has Y.
type ChamferCall struct {
	Place              Place
	Q, D               Batch
	Pairs              PairList
	Metric             maxsim.Metric
	Mean               bool   // the mean of each direction instead of the sum
	Distances          uint64 // out, float32 [pairs]
	NearestQ, NearestD uint64 // out, int32 [pairs][Longest] of each side: nearest rows of the other; or 0
}

// ChamferGradientCall is a computation of the gradients of distances, as [maxsim.ChamferGradCall].
// Nearest rows are those of a ChamferCall with the same operands and pairs.
type ChamferGradientCall struct {
	Place              Place
	Q, D               Batch
	Pairs              PairList
	Metric             maxsim.Metric
	Mean               bool
	NearestQ, NearestD uint64
	Upstream           uint64 // float32 [pairs], the derivative of the loss by each distance; absent means 1
	// DQ and DD are the outputs: gradients of all rows, in the layout of Data; see GradientCall.
	DQ, DD         uint64
	DQType, DDType maxsim.Type
}

// pointSides is the common part of both calls: operands, pairs and the layout of the workspace.
type pointSides struct {
	side        [2]*Batch
	list        *PairList
	pairs       int
	plans       [2]rowsPlan
	tableOffset int64 // of pairs, in the workspace
	workOffset  int64 // of the kernels
	arena       runtime.Arena
}

// newPoints validates two sides, and lays out the workspace for their rows and their pairs.
func newPoints(q, d *Batch, p *PairList, metric maxsim.Metric) (x pointSides, err error) {
	x = pointSides{side: [2]*Batch{q, d}, list: p}
	if x.pairs, err = checkSides(q, d, p); err != nil {
		return x, err
	}
	if metric != maxsim.SquaredL2 && metric != maxsim.L1 {
		return x, fmt.Errorf("%w: there is no metric %d", kernels.ErrShape, metric)
	}
	for _, b := range x.side {
		if b.Mask != 0 && b.itemsShareRows() {
			return x, fmt.Errorf("%w: masks of sets that share rows", driver.ErrUnsupported)
		}
		if b.Mask != 0 && b.MaskStride > math.MaxUint32 {
			return x, fmt.Errorf("%w: a mask of %d bytes a set", driver.ErrUnsupported, b.MaskStride)
		}
	}
	if x.pairs > math.MaxInt32 {
		return x, fmt.Errorf("%w: distances of %d pairs", driver.ErrUnsupported, x.pairs)
	}
	for i, b := range x.side {
		x.plans[i] = b.planRows(naturalFormat(b.matrix()), true, false)
		if x.plans[i].prepared {
			x.plans[i].reserve(&x.arena, b, b.Rows, false)
		}
	}
	x.tableOffset = x.arena.Append(40 * int64(x.pairs))
	return x, nil
}

// chamferShape returns the shape of a call without nearest rows.
func (x *pointSides) chamferShape(metric maxsim.Metric) chamferShape {
	q, d := x.side[0], x.side[1]
	return chamferShape{
		metric:  metric,
		dim:     q.Dim,
		pairs:   x.pairs,
		rows:    [2]int{q.Rows, d.Rows},
		longest: [2]int{q.Longest, d.Longest},
	}
}

// packSides launches the kernels that pack the rows of both sides, and make the table of pairs.
func (x *pointSides) packSides(rt *runtime.Runtime, base driver.Ptr) (r [2]packedRows, err error) {
	p := &denseChamferPairsParams{
		pairs: base.Add(x.tableOffset),
		n:     uint32(x.pairs),
		kind:  uint32(x.list.Kind),
		count: uint32(x.list.Count),
	}
	lists := x.list.itemLists()
	for i, b := range x.side {
		if r[i], err = x.plans[i].packIfNeeded(rt, b, base, 0, b.Rows); err != nil {
			return r, err
		}
		p.side[i] = denseChamferItems{
			offsets: driver.Ptr(b.Offsets),
			lengths: driver.Ptr(b.Lengths),
			list:    lists[i],
			items:   uint32(b.Items),
			stride:  uint32(b.Stride),
			longest: uint32(b.Longest),
			rows:    uint32(b.Rows),
		}
	}
	return r, runtime.Launch(rt, "dense/dense_chamfer_pairs", runtime.CeilDiv(x.pairs, 256), 1, 1, 256, 0, p)
}

// chamferPlan validates a call, returns its launches, from the cache if possible, and lays out the
// workspace. The plan is nil if there are no pairs.
func (d *Device) chamferPlan(c *ChamferCall) (x pointSides, plan *chamferPlan, err error) {
	if x, err = newPoints(&c.Q, &c.D, &c.Pairs, c.Metric); err != nil || x.pairs == 0 {
		return x, nil, err
	}
	if c.Distances == 0 {
		return x, nil, fmt.Errorf("%w: no distances to write", kernels.ErrShape)
	}
	key := x.chamferShape(c.Metric)
	key.rows, key.nearest = [2]int{c.Q.lastRow(), c.D.lastRow()}, c.NearestQ != 0 || c.NearestD != 0
	if found := findPlan(&d.plans, d.plans.chamfers, key); found != nil {
		plan = found.chamfer
	} else if plan, err = planChamfer(key, d.rt.Arch(), d.rt.Props.Shared, d.rt.FillingBlocks); err != nil {
		return x, nil, err
	} else if err = d.uploadTables(keepPlan(&d.plans, &d.plans.chamfers, key, &cachedPlan{chamfer: plan}),
		nil); err != nil {
		return x, nil, err
	}
	x.workOffset = x.arena.Append(plan.bytes)
	return x, plan, nil
}

// ChamferWorkspace returns how many bytes of workspace the call needs.
func (d *Device) ChamferWorkspace(c *ChamferCall) (bytes int64, err error) {
	err = d.onStream(c.Place.Stream, func() error {
		x, _, err := d.chamferPlan(c)
		bytes = x.arena.Size
		return err
	})
	return bytes, err
}

// Chamfer puts the work of a call into its stream. Errors are those of Score.
func (d *Device) Chamfer(c *ChamferCall) error {
	return d.onStream(c.Place.Stream, func() error {
		x, plan, err := d.chamferPlan(c)
		if err != nil || x.pairs == 0 {
			return err
		}
		near := [2]uint64{c.NearestQ, c.NearestD}
		if c.Q.Longest+c.D.Longest == 0 || c.Q.Rows == 0 || c.D.Rows == 0 {
			for i, b := range x.side {
				if near[i] != 0 {
					if err := d.rt.Driver.Set(driver.Ptr(near[i]), 0xFF, 4*int64(x.pairs)*int64(b.Longest),
						d.rt.Stream); err != nil {
						return err
					}
				}
			}
			return d.rt.Driver.Set(driver.Ptr(c.Distances), 0, 4*int64(x.pairs), d.rt.Stream)
		}
		if err := c.Place.checkWorkspace(x.arena.Size); err != nil {
			return err
		}
		base := driver.Ptr(c.Place.Workspace)
		r, err := x.packSides(d.rt, base)
		if err != nil {
			return err
		}
		p := &denseChamferParams{pairs: base.Add(x.tableOffset), out: driver.Ptr(c.Distances)}
		if c.Mean {
			p.mean = 1
		}
		for i, b := range x.side {
			p.side[i] = denseChamferSide{
				rows:       r[i].ptr,
				scale:      r[i].scale,
				mask:       driver.Ptr(b.Mask),
				near:       driver.Ptr(near[i]),
				bytes:      uint32(r[i].rowBytes),
				format:     uint32(r[i].format),
				stride:     uint32(b.itemStride()),
				maskStride: uint32(b.MaskStride),
			}
		}
		return plan.run(d.rt, base.Add(x.workOffset), p)
	})
}

// plannedChamferGrad is a validated ChamferGradientCall with the layout of its workspace.
type plannedChamferGrad struct {
	pointSides
	plan  *chamferGradPlan
	lists pairListLayout
}

// planWorkspace validates a call, and lays out its workspace.
func (c *ChamferGradientCall) planWorkspace() (x plannedChamferGrad, err error) {
	if x.pointSides, err = newPoints(&c.Q, &c.D, &c.Pairs, c.Metric); err != nil {
		return x, err
	}
	if x.pairs > 0 && (c.NearestQ == 0 && c.Q.Longest > 0 || c.NearestD == 0 && c.D.Longest > 0) {
		return x, fmt.Errorf("%w: gradients without nearest rows", kernels.ErrShape)
	}
	for i, out := range [2]uint64{c.DQ, c.DD} {
		side, kind := [2]string{"queries", "documents"}[i], [2]maxsim.Type{c.DQType, c.DDType}[i]
		if err := x.side[i].checkGradient(side, out, kind); err != nil {
			return x, err
		}
	}
	if x.plan, err = planChamferGrad(x.chamferShape(c.Metric)); err != nil {
		return x, err
	}
	x.workOffset = x.arena.Append(x.plan.bytes)
	for i, b := range x.side {
		if c.Pairs.Kind == PairsListed && x.pairs > 0 {
			x.lists.reserve(&x.arena, i, b, x.pairs)
		}
	}
	return x, nil
}

// ChamferGradientsWorkspace returns how many bytes of workspace the call needs.
func (d *Device) ChamferGradientsWorkspace(c *ChamferGradientCall) (int64, error) {
	x, err := c.planWorkspace()
	return x.arena.Size, err
}

// ChamferGradients puts the work of a call into its stream. Results are the same bits each time.
// Errors are those of Score.
func (d *Device) ChamferGradients(c *ChamferGradientCall) error {
	x, err := c.planWorkspace()
	if err != nil || c.DQ == 0 && c.DD == 0 {
		return err
	}
	return d.onStream(c.Place.Stream, func() error {
		if x.pairs == 0 || c.Q.Longest == 0 || c.D.Longest == 0 || c.Q.Rows == 0 || c.D.Rows == 0 {
			return c.setZero(d.rt)
		}
		if err := c.Place.checkWorkspace(x.arena.Size); err != nil {
			return err
		}
		base := driver.Ptr(c.Place.Workspace)
		r, err := x.packSides(d.rt, base)
		if err != nil {
			return err
		}
		if err := x.lists.run(d.rt, base, x.list, x.pairs); err != nil {
			return err
		}
		return x.plan.run(d.rt, base.Add(x.workOffset), c.params(&x, base, r))
	})
}

// setZero writes the gradients of a call without points: zeros.
func (c *ChamferGradientCall) setZero(rt *runtime.Runtime) error {
	for i, b := range []*Batch{&c.Q, &c.D} {
		out, kind := [2]uint64{c.DQ, c.DD}[i], [2]maxsim.Type{c.DQType, c.DDType}[i]
		if out == 0 {
			continue
		}
		bytes := int64(b.Rows) * int64(b.Dim) * int64(kind.Size())
		if err := rt.Driver.Set(driver.Ptr(out), 0, bytes, rt.Stream); err != nil {
			return err
		}
	}
	return nil
}

// params returns the parameters of the kernels for both sides, whose rows are in r.
func (c *ChamferGradientCall) params(x *plannedChamferGrad, base driver.Ptr, r [2]packedRows) *denseChamferGradParams {
	p := &denseChamferGradParams{
		pairs:    base.Add(x.tableOffset),
		kind:     uint32(c.Pairs.Kind),
		count:    uint32(c.Pairs.Count),
		upstream: driver.Ptr(c.Upstream),
	}
	if c.Mean {
		p.mean = 1
	}
	near, outs, kinds := [2]uint64{c.NearestQ, c.NearestD}, [2]uint64{c.DQ, c.DD}, [2]maxsim.Type{c.DQType, c.DDType}
	for i, b := range x.side {
		lists := x.lists.sideParams(i, base, x.list)
		p.side[i] = denseChamferGradSide{
			rows:      r[i].ptr,
			scale:     r[i].scale,
			near:      driver.Ptr(near[i]),
			offsets:   driver.Ptr(b.Offsets),
			pairFirst: lists.first,
			pairList:  lists.pairs,
			out:       driver.Ptr(outs[i]),
			bytes:     uint32(r[i].rowBytes),
			format:    uint32(r[i].format),
			outType:   uint32(kinds[i]),
			items:     uint32(b.Items),
			stride:    uint32(b.itemStride()),
		}
	}
	return p
}
