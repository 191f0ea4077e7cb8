package dense

import (
	"context"
	"slices"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// batches are operands as batches; false where one is held, or compressed.
func batches(all ...maxsim.Operand) (b []*maxsim.Batch, ok bool) {
	for _, o := range all {
		x, ok := o.(*maxsim.Batch)
		if !ok || x.Tokens.Type == maxsim.Compressed {
			return nil, false
		}
		b = append(b, x)
	}
	return b, true
}

// read is n values of the device.
func read[T any](x *inPlace, p uint64, n int) []T {
	v := make([]T, n)
	if p == 0 {
		return v
	}
	if err := x.d.rt.Driver.ToHost(runtime.Bytes(v), driver.Ptr(p), x.stream); err != nil {
		panic(err)
	}
	if err := x.d.rt.Driver.Sync(x.stream); err != nil {
		panic(err)
	}
	return v
}

// pad copies what pairs have for n rows from where they have m.
func pad(to []int32, n int, from []int32, m int) {
	for i := range to {
		to[i] = -1
	}
	for p := range len(to) / max(n, 1) {
		copy(to[p*n:(p+1)*n], from[p*m:(p+1)*m])
	}
}

func (x *inPlace) Chamfer(ctx context.Context, c *maxsim.ChamferCall) error {
	w, err := c.Check()
	if err != nil || w.Pairs == 0 {
		return err
	}
	b, ok := batches(c.X, c.Y)
	if !ok {
		return x.Backend.(maxsim.ChamferScorer).Chamfer(ctx, c)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return x.with(func(*driver.Context, driver.Stream) error {
		q, _ := spreadOut(b[0], nil)
		d, _ := spreadOut(b[1], nil)
		call := &ChamferCall{
			Q: x.bring(q, q.MaxRows()), D: x.bring(d, d.MaxRows()), Pairs: x.pairs(&c.Pairs, w.Pairs, w.X.Len(), w.Y.Len()),
			Metric: c.Metric, Mean: c.Mean, Distances: uint64(x.alloc(4 * w.Pairs)),
		}
		if c.NearestX != nil {
			call.NearestQ = uint64(x.alloc(4 * w.Pairs * call.Q.Longest))
		}
		if c.NearestY != nil {
			call.NearestD = uint64(x.alloc(4 * w.Pairs * call.D.Longest))
		}
		call.Place.Stream = uint64(x.stream.Handle())
		if err := inWorkspace(x, call, &call.Place, x.d.ChamferWorkspace, x.d.Chamfer); err != nil {
			return err
		}
		copy(c.Distances, read[float32](x, call.Distances, w.Pairs))
		if c.NearestX != nil {
			pad(c.NearestX, w.StrideX, read[int32](x, call.NearestQ, w.Pairs*call.Q.Longest), call.Q.Longest)
		}
		if c.NearestY != nil {
			pad(c.NearestY, w.StrideY, read[int32](x, call.NearestD, w.Pairs*call.D.Longest), call.D.Longest)
		}
		return nil
	})
}

func (x *inPlace) ChamferGradients(ctx context.Context, g *maxsim.ChamferGradCall) error {
	w, err := g.Check()
	if err != nil {
		return err
	}
	b, ok := batches(g.X, g.Y)
	ok = ok && (g.DX == nil || b[0].Tokens.Type < maxsim.I8) && (g.DY == nil || b[1].Tokens.Type < maxsim.I8)
	if !ok {
		return x.Backend.(maxsim.ChamferScorer).ChamferGradients(ctx, g)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return x.with(func(*driver.Context, driver.Stream) error {
		q, _ := spreadOut(b[0], nil)
		d, _ := spreadOut(b[1], nil)
		call := &ChamferGradientCall{
			Q: x.bring(q, q.MaxRows()), D: x.bring(d, d.MaxRows()), Pairs: x.pairs(&g.Pairs, w.Pairs, w.X.Len(), w.Y.Len()),
			Metric: g.Metric, Mean: g.Mean, DQType: maxsim.F32, DDType: maxsim.F32,
		}
		for i, near := range [][]int32{g.NearestX, g.NearestY} {
			longest, stride := [2]int{call.Q.Longest, call.D.Longest}[i], [2]int{w.StrideX, w.StrideY}[i]
			all := slices.Repeat([]int32{-1}, w.Pairs*longest+1)
			for p := range w.Pairs {
				copy(all[p*longest:], near[p*stride:(p+1)*stride])
			}
			*[2]*uint64{&call.NearestQ, &call.NearestD}[i] = x.bytes(runtime.Bytes(all), 0)
		}
		if g.Upstream != nil {
			call.Upstream = x.bytes(runtime.Bytes(append(slices.Clone(g.Upstream), 0)), 0)
		}
		if g.DX != nil {
			call.DQ = uint64(x.alloc(4 * call.Q.Rows * call.Q.Dim))
		}
		if g.DY != nil {
			call.DD = uint64(x.alloc(4 * call.D.Rows * call.D.Dim))
		}
		call.Place.Stream = uint64(x.stream.Handle())
		if err := inWorkspace(x, call, &call.Place, x.d.ChamferGradientsWorkspace, x.d.ChamferGradients); err != nil {
			return err
		}
		for i, to := range []*maxsim.Gradient{g.DX, g.DY} {
			if to == nil {
				continue
			}
			n, from, as := [2]Batch{call.Q, call.D}[i], [2]uint64{call.DQ, call.DD}[i], []*maxsim.Batch{q, d}[i]
			all := read[float32](x, from, n.Rows*n.Dim)
			for item := range as.Len() {
				lo, _ := as.Span(item)
				first, end := b[i].Span(item)
				for r := range end - first {
					if b[i].IsToken(first + r) {
						to.Put(first+r, all[(lo+r)*n.Dim:(lo+r+1)*n.Dim])
					}
				}
			}
		}
		return nil
	})
}

func (x *inPlace) ScoreHead(ctx context.Context, c *maxsim.HeadCall) error {
	w, err := c.Check()
	if err != nil || w.Pairs == 0 {
		return err
	}
	b, ok := batches(c.Q, c.D)
	if !ok || c.Head.Weights.Type > maxsim.BF16 {
		return x.Backend.(maxsim.HeadScorer).ScoreHead(ctx, c)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return x.with(func(*driver.Context, driver.Stream) error {
		q, weights := spreadOut(b[0], c.Weights)
		d, _ := spreadOut(b[1], nil)
		call := &HeadCall{
			Q: x.bring(q, q.MaxRows()), D: x.bring(d, d.MaxRows()), Pairs: x.pairs(&c.Pairs, w.Pairs, w.Q.Len(), w.D.Len()),
			Normalize: c.Normalize,
			Head:      x.bytes(elementBytes(&c.Head.Weights), x.shift*c.Head.Weights.Type.Size()), HeadType: c.Head.Weights.Type,
			Scores: uint64(x.alloc(4 * w.Pairs)),
		}
		if weights != nil {
			call.QueryWeights = x.bytes(runtime.Bytes(weights), 0)
		}
		if c.Head.Bias != nil {
			call.Bias = x.bytes(runtime.Bytes(c.Head.Bias), 0)
		}
		call.Place.Stream = uint64(x.stream.Handle())
		if err := inWorkspace(x, call, &call.Place, x.d.ScoreHeadWorkspace, x.d.ScoreHead); err != nil {
			return err
		}
		copy(c.Scores, read[float32](x, call.Scores, w.Pairs))
		return nil
	})
}
