package dense

import (
	"fmt"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// GradientCall is a computation of the gradients of scores, as [maxsim.GradCall]. Argmaxima are those of
// a ScoreCall with the same operands, pairs and terms. They are −1 for rows of queries that are not
// tokens, so that lengths and masks are not read.
type GradientCall struct {
	Place     Place
	Q, D      Batch
	Pairs     PairList
	Weights   uint64 // float32 [Q.Rows]; absent means 1
	Normalize bool
	Argmax    uint64 // int32 [pairs][Q.Longest]
	Upstream  uint64 // float32 [pairs], the derivative of the loss by each score; absent means 1
	// DQ and DD are the outputs: gradients of all rows of Q and D, in the layout of Data, as float32,
	// float16 or bfloat16. Rows that are not tokens get 0. 0 means not wanted. Operands of integers or
	// FP8 are constants, which have no gradient.
	DQ, DD         uint64
	DQType, DDType maxsim.Type
}

// gradPlan is the layout of the workspace of a call: offsets by side, −1 for arrays that are not needed.
type gradPlan struct {
	runtime.Arena
	pairs         int
	inverse, unit [2]int64
	lists         pairListLayout
}

// planWorkspace validates a call, and lays out its workspace.
func (c *GradientCall) planWorkspace() (p gradPlan, err error) {
	if p.pairs, err = checkSides(&c.Q, &c.D, &c.Pairs); err != nil {
		return p, err
	}
	if p.pairs > 0 && c.Q.Longest > 0 && c.Argmax == 0 {
		return p, fmt.Errorf("%w: gradients without argmaxima", kernels.ErrShape)
	}
	outs, kinds := [2]uint64{c.DQ, c.DD}, [2]maxsim.Type{c.DQType, c.DDType}
	for i, b := range [2]*Batch{&c.Q, &c.D} {
		if err := b.checkGradient([2]string{"queries", "documents"}[i], outs[i], kinds[i]); err != nil {
			return p, err
		}
		p.inverse[i], p.unit[i] = -1, -1
		if c.Normalize {
			p.inverse[i] = p.Append(4 * int64(b.Rows))
			if p.unit[i] = p.inverse[i]; b.Scales != 0 {
				p.unit[i] = p.Append(4 * int64(b.Rows))
			}
		}
		if outs[i] != 0 && c.Pairs.Kind == PairsListed && p.pairs > 0 {
			p.lists.reserve(&p.Arena, i, b, p.pairs)
		}
	}
	return p, nil
}

// GradientsWorkspace returns how many bytes of workspace the call needs.
func (d *Device) GradientsWorkspace(c *GradientCall) (int64, error) {
	p, err := c.planWorkspace()
	return p.Size, err
}

// Gradients puts the work of a call into its stream. Each row of a gradient has one writer, and
// contributions are added in an order that the shapes decide: results are the same bits each time.
// Errors are those of Score.
func (d *Device) Gradients(c *GradientCall) error {
	p, err := c.planWorkspace()
	if err != nil {
		return err
	}
	if err := c.Place.checkWorkspace(p.Size); err != nil {
		return err
	}
	if c.DQ == 0 && c.DD == 0 {
		return nil
	}
	return d.onStream(c.Place.Stream, func() error { return c.run(d, &p) })
}

// run launches the kernels of a validated call.
func (c *GradientCall) run(d *Device, p *gradPlan) error {
	rt := d.rt
	if err := c.lengths(rt, p); err != nil {
		return err
	}
	if err := p.lists.run(rt, c.workspacePtr(0), &c.Pairs, p.pairs); err != nil {
		return err
	}
	return launchGradients(rt, c.params(&d.grad, p), p.pairs)
}

// workspacePtr returns an address in the workspace, 0 for a negative offset.
func (c *GradientCall) workspacePtr(offset int64) driver.Ptr {
	if offset < 0 {
		return 0
	}
	return driver.Ptr(c.Place.Workspace) + driver.Ptr(offset)
}

// lengths computes the inverse lengths of all rows.
func (c *GradientCall) lengths(rt *runtime.Runtime, p *gradPlan) error {
	for i, b := range []*Batch{&c.Q, &c.D} {
		if p.inverse[i] < 0 {
			continue
		}
		x := &densePackParams{
			in:      driver.Ptr(b.Data),
			scales:  driver.Ptr(b.Scales),
			zeros:   driver.Ptr(b.Zeros),
			inverse: c.workspacePtr(p.inverse[i]),
			n:       uint32(b.Rows),
			dim:     uint32(b.Dim),
			source:  sourceNumber(b.Type),
			format:  uint32(b.Type),
		}
		if p.unit[i] != p.inverse[i] {
			x.unit = c.workspacePtr(p.unit[i])
		}
		if err := x.run(rt); err != nil {
			return err
		}
	}
	return nil
}

// params sets x to the parameters of the kernels, which read both sides in the caller's memory.
func (c *GradientCall) params(x *denseGradParams, p *gradPlan) *denseGradParams {
	*x = denseGradParams{
		weights:  driver.Ptr(c.Weights),
		upstream: driver.Ptr(c.Upstream),
		arg:      driver.Ptr(c.Argmax),
		pitch:    uint32(c.Q.Longest),
		dim:      uint32(c.Q.Dim),
		kind:     uint32(c.Pairs.Kind),
		count:    uint32(c.Pairs.Count),
	}
	if c.Pairs.Kind == PairsAll {
		x.count = uint32(c.D.Items)
	}
	outs, kinds := [2]uint64{c.DQ, c.DD}, [2]maxsim.Type{c.DQType, c.DDType}
	items := c.Pairs.itemLists()
	for i, s := range []*denseGradSide{&x.q, &x.d} {
		b := [2]*Batch{&c.Q, &c.D}[i]
		*s = denseGradSide{
			rows:     driver.Ptr(b.Data),
			scale:    driver.Ptr(b.Scales),
			zeros:    driver.Ptr(b.Zeros),
			offsets:  driver.Ptr(b.Offsets),
			out:      driver.Ptr(outs[i]),
			outType:  uint32(kinds[i]),
			nRows:    uint64(b.Rows),
			items:    uint32(b.Items),
			longest:  uint32(b.Longest),
			stride:   uint32(b.itemStride()),
			format:   uint32(b.Type),
			rowBytes: uint32(b.Dim * b.Type.Size()),
		}
		if c.Normalize {
			s.scale, s.inverse = c.workspacePtr(p.unit[i]), c.workspacePtr(p.inverse[i])
		}
		if c.Pairs.Kind == PairsListed {
			l := p.lists.sideParams(i, c.workspacePtr(0), &c.Pairs)
			s.pairItem, s.pairFirst, s.pairs = items[i], l.first, l.pairs
		}
		if p.pairs == 0 || b.Longest == 0 {
			s.items = 0
		}
	}
	return x
}
