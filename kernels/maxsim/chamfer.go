package maxsim

import (
	"context"
	"fmt"
)

// Metric is a distance of two vectors.
type Metric uint8

// The metrics.
const (
	SquaredL2 Metric = iota // Σ (x−y)²
	L1                      // Σ |x−y|
)

// ChamferCall has the arguments and results of [ChamferScorer.Chamfer]. The distance of a pair of
// X and Y is
//
//	Σ_{x∈X} min_{y∈Y} δ(x, y) + Σ_{y∈Y} min_{x∈X} δ(x, y)
//
// With Mean, each sum is divided by the number of its tokens. Masked tokens are left out;
// if one side has no tokens, the distance is 0.
type ChamferCall struct {
	X, Y Operand
	Pairs
	Metric  Metric
	Mean    bool
	Threads int // as in [Terms]
	// Distances receives the distance of each pair.
	Distances []float32
	// NearestX, unless nil, receives for each pair and each row of X the nearest row
	// of Y, as [Call.Argmax]: [pairs, MaxRows of X]. NearestY likewise for rows of Y.
	NearestX, NearestY []int32
}

// ChamferGradCall has the arguments and results of [ChamferScorer.ChamferGradients], the
// gradients of the distances of a ChamferCall. The gradient of |x−y| is 0 where both are
// equal.
type ChamferGradCall struct {
	X, Y Operand
	Pairs
	Metric             Metric
	Mean               bool
	Threads            int
	NearestX, NearestY []int32
	Upstream           []float32 // as in [GradCall]
	DX, DY             *Gradient
}

// ChamferScorer is a [Backend] that computes Chamfer distances.
type ChamferScorer interface {
	Chamfer(ctx context.Context, c *ChamferCall) error
	ChamferGradients(ctx context.Context, g *ChamferGradCall) error
}

// Chamfer computes distances on a backend. The error wraps [ErrUnsupported] if the backend
// does not implement [ChamferScorer].
func Chamfer(ctx context.Context, b Backend, c *ChamferCall) error {
	if x, ok := b.(ChamferScorer); ok {
		return x.Chamfer(ctx, c)
	}
	return fmt.Errorf("%w: Chamfer distances on %s", ErrUnsupported, b.Name())
}

// ChamferGradients computes gradients of distances on a backend, as [Chamfer] does.
func ChamferGradients(ctx context.Context, b Backend, g *ChamferGradCall) error {
	if x, ok := b.(ChamferScorer); ok {
		return x.ChamferGradients(ctx, g)
	}
	return fmt.Errorf("%w: Chamfer distances on %s", ErrUnsupported, b.Name())
}

// ChamferWork is the size of a checked call.
type ChamferWork struct {
	X, Y             Shape
	Pairs            int
	StrideX, StrideY int // numbers of nearest rows of a pair
}

// Check checks the call as [Call.Check] does.
func (c *ChamferCall) Check() (ChamferWork, error) {
	const nearestRequired = false
	w, err := checkChamfer(c.X, c.Y, &c.Pairs, c.Metric, c.NearestX, c.NearestY, nearestRequired)
	if err == nil && len(c.Distances) != w.Pairs {
		err = shapeErrorf("%d distances for %d pairs", len(c.Distances), w.Pairs)
	}
	return w, err
}

// Check checks the call as [GradCall.Check] does.
func (g *ChamferGradCall) Check() (ChamferWork, error) {
	const nearestRequired = true
	w, err := checkChamfer(g.X, g.Y, &g.Pairs, g.Metric, g.NearestX, g.NearestY, nearestRequired)
	if err != nil {
		return w, err
	}
	if g.Upstream != nil && len(g.Upstream) != w.Pairs {
		return w, shapeErrorf("%d upstream values for %d pairs", len(g.Upstream), w.Pairs)
	}
	if err := g.DX.checkShape("X", &w.X); err != nil {
		return w, err
	}
	if err := g.DY.checkShape("Y", &w.Y); err != nil {
		return w, err
	}
	work := Work{Q: w.X, D: w.Y, Pairs: w.Pairs}
	if err := work.checkWinners(&g.Pairs, g.NearestX, w.StrideX, ofQueryRows); err != nil {
		return w, err
	}
	return w, work.checkWinners(&g.Pairs, g.NearestY, w.StrideY, ofDocumentRows)
}

// checkChamfer checks metric, operands, pairs and the lengths of nearest rows, which may be
// nil unless required.
func checkChamfer(
	x, y Operand, p *Pairs, m Metric, nearestX, nearestY []int32, required bool,
) (w ChamferWork, err error) {
	if m > L1 {
		return w, shapeErrorf("metric %d; want %d or %d", m, SquaredL2, L1)
	}
	work, err := checkOperands(x, y, p, &Terms{})
	if err != nil {
		return w, err
	}
	w = ChamferWork{work.Q, work.D, work.Pairs, work.Stride, work.D.MaxRows()}
	for _, side := range []struct {
		list   []int32
		stride int
	}{{nearestX, w.StrideX}, {nearestY, w.StrideY}} {
		if side.list == nil && !required {
			continue
		}
		work.Stride = side.stride
		if err := work.checkArgmax(side.list); err != nil {
			return w, err
		}
	}
	return w, nil
}
