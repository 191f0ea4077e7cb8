package encoder

import (
	"math"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
)

// fakeNormed norms the first hidden values; those behind them become zero.
func fakeNormed(f *drivertest.Fake, x []float32, hidden uint32, gamma, beta driver.Ptr, epsilon float32,
	rms uint32) []float32 {
	if gamma == 0 {
		return x
	}
	var mean, square float64
	for _, v := range x[:hidden] {
		mean += float64(v) / float64(hidden)
	}
	if rms == 1 {
		mean = 0
	}
	for _, v := range x[:hidden] {
		square += (float64(v) - mean) * (float64(v) - mean)
	}
	inverse := 1 / math.Sqrt(square/float64(hidden)+float64(epsilon))
	g, b := drivertest.Slice[float32](f, gamma, len(x)), drivertest.Slice[float32](f, beta, len(x))
	y := make([]float32, len(x))
	for c := range y {
		if c < int(hidden) {
			y[c] = float32((float64(x[c]) - mean) * inverse)
		}
		y[c] *= g[c]
		if b != nil {
			y[c] += b[c]
		}
	}
	return y
}

// rowWidth holds the width of rows against what a lane has registers for.
func rowWidth(hidden, width uint32, wide bool) {
	demand(width == up(hidden, 64) && (wide && width <= maxColumns || width <= narrowColumns), "a row of %d values",
		width)
}

func rowLaunch(l *driver.Launch, rows uint32) {
	demand(l.Grid.X == (rows+7)/8 && l.Block.X == 256 && l.Shared == 0, "grid of rows")
}

func fakeEmbed(wide bool) drivertest.Kernel {
	return func(f *drivertest.Fake, l *driver.Launch) {
		p := (*encoderEmbedParams)(l.Args)
		rowLaunch(l, p.rows)
		rowWidth(p.hidden, p.width, wide)
		demand(!l.Early, "embed follows a copy")
		ids, positions := drivertest.Slice[uint32](f, p.ids, int(p.rows)),
			drivertest.Slice[uint32](f, p.positions, int(p.rows))
		x, stream := tiledOf(f, p.x, p.rows, p.width), drivertest.Slice[float32](f, p.stream, int(p.rows*p.width))
		for r := range int(p.rows) {
			row := make([]float32, p.width)
			for c, h := range drivertest.Slice[uint16](f, p.words+driver.Ptr(2*ids[r]*p.width), int(p.width)) {
				row[c] = kernels.F16ToF32(h)
			}
			if p.places != 0 {
				for c, h := range drivertest.Slice[uint16](f, p.places+driver.Ptr(2*positions[r]*p.width),
					int(p.width)) {
					row[c] += kernels.F16ToF32(h)
				}
			}
			row = fakeNormed(f, row, p.hidden, p.gamma, p.beta, p.epsilon, p.rms)
			for c, v := range row {
				x.set(r, c, v)
			}
			if stream != nil {
				copy(stream[r*int(p.width):], row)
			}
		}
	}
}

func fakeNorm(post, wide bool) drivertest.Kernel {
	return func(f *drivertest.Fake, l *driver.Launch) {
		p := (*encoderNormParams)(l.Args)
		// blocks take rows in turn
		demand(l.Grid.X >= 1 && l.Grid.X <= (p.rows+7)/8 && l.Block.X == 256 && l.Shared == 0, "grid of norms")
		rowWidth(p.hidden, p.width, wide)
		demand(post || p.post == 0, "a norm of what is added")
		demand(p.fresh == 0 || p.stream != 0 && p.delta != 0, "a fresh stream")
		x, stream := tiledOf(f, p.x, p.rows, p.width), drivertest.Slice[float32](f, p.stream, int(p.rows*p.width))
		for r := range int(p.rows) {
			row := x.row(r)
			if stream != nil {
				copy(row, stream[r*int(p.width):])
			}
			if p.fresh == 1 {
				clear(row)
			}
			if p.delta != 0 {
				delta := tiledOf(f, p.delta, p.rows, p.width).row(r)
				for c, v := range fakeNormed(f, delta, p.hidden, p.post, p.postBeta, p.postEpsilon, p.rms) {
					row[c] += v
				}
			}
			if stream != nil {
				copy(stream[r*int(p.width):], row)
			}
			for c, v := range fakeNormed(f, row, p.hidden, p.gamma, p.beta, p.epsilon, p.rms) {
				x.set(r, c, v)
			}
		}
	}
}

func fakeUnit(f *drivertest.Fake, l *driver.Launch) {
	p := (*encoderUnitParams)(l.Args)
	rowLaunch(l, p.count)
	demand(p.stride == up(p.dim, 64) && (p.in == 0) != (p.inHalf == 0) && (p.out == 0) != (p.outHalf == 0), "unit")
	out, halves := drivertest.Slice[float32](f, p.out, int(p.count*p.dim)), drivertest.Slice[uint16](f, p.outHalf, int(p.count*p.dim))
	kept, bad := drivertest.Slice[uint32](f, p.kept, int(p.count)), drivertest.Slice[uint32](f, p.bad, 1)
	for i := range int(p.count) {
		r := i
		if kept != nil {
			r = int(kept[i])
		}
		var row []float32
		if p.in != 0 {
			row = drivertest.Slice[float32](f, p.in+driver.Ptr(4*r*int(p.stride)), int(p.dim))
		} else {
			row = tiledOf(f, p.inHalf, uint32(r+1), p.stride).row(r)[:p.dim]
		}
		square := float32(0)
		for _, v := range row {
			square += v * v
		}
		if square-square != 0 {
			bad[0] = min(bad[0], uint32(r))
		}
		length := max(float32(math.Sqrt(float64(square))), 1e-12)
		for c, v := range row {
			if at := i*int(p.dim) + c; out != nil {
				out[at] = v / length
			} else {
				halves[at] = kernels.F16FromF32(v / length)
			}
		}
	}
}
