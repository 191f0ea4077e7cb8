package dense

import (
	"fmt"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// Sizes of the blocks of the kernels in src/dense/chamfer*.cuh.
const (
	chamferFew            = 8     // maximum of dimensions of dense_chamfer_few
	chamferTile           = 64    // rows of X, and of Y, of dense_chamfer_l1 and _l2
	chamferTileWide       = 128   // the same of dense_chamfer_product
	chamferTileFew        = 1024  // rows of X of dense_chamfer_few
	chamferGroup          = 32    // rows of Y of dense_chamfer_few
	chamferStreamed       = 82944 // bytes of shared memory of dense_chamfer_product
	chamferResident       = 50176 // the same of _resident, besides the rows of X
	chamferMaxResidentRow = 512   // maximum of bytes of a row of X with _resident
	chamferPartRows       = 256   // rows of a block of dense_chamfer_sum
	chamferChain          = 32    // longest chain of a row in dense_chamfer_grad; _long has longer ones
	chamferMaxParts       = 1<<16 - 1
)

// chamferShape has the properties of a call that decide how distances, or their gradients, are computed.
type chamferShape struct {
	metric  maxsim.Metric
	dim     int
	pairs   int    // of a launch
	rows    [2]int // all rows of X and of Y
	longest [2]int // maximum of rows of an item
	nearest bool   // nearest rows are wanted; not used by gradients
}

// launch is a kernel with its grid.
type launch struct {
	name          string
	grid          [3]int
	block, shared int
}

// chamferPlan has the launches of a call in order, and the offsets of its arrays in the
// workspace. It does not depend on values in device memory.
type chamferPlan struct {
	shape                               chamferShape
	launches                            []launch
	pointBytes                          int    // bytes of a converted row, 0 means that rows are read as they are
	products                            uint32 // kernel of products: 0 none, 1 dense_chamfer_product, 2 _wide
	keys, seconds, doubt, counts, parts int64
	done                                int64
	points, norms                       [2]int64
	bytes                               int64 // of the workspace
}

// fillingBlocks returns how many blocks of a kernel the device runs at the same time.
type fillingBlocks func(name string, threads, shared int) (int, error)

// planChamfer returns the plan for device code of an architecture, whose blocks may have shared bytes of
// shared memory.
func planChamfer(s chamferShape, arch string, shared int, filling fillingBlocks) (*chamferPlan, error) {
	p := &chamferPlan{shape: s}
	var a runtime.Arena
	keys := s.pairs * (s.longest[0] + s.longest[1])
	p.keys = a.Append(8 * int64(keys))
	p.done = a.Append(4 * int64(s.pairs))
	parts, err := chamferParts(s.longest)
	if err != nil {
		return nil, err
	}
	p.parts = a.Append(16 * int64(s.pairs) * int64(parts))
	isFew := s.dim <= chamferFew
	if !isFew && s.metric == maxsim.SquaredL2 {
		if p.products = 1; arch == "90a" {
			p.products = 2
		}
	}
	switch {
	case isFew && s.dim <= 4:
		p.pointBytes = 16
	case isFew:
		p.pointBytes = 32
	case p.products > 0:
		p.pointBytes = rowBytes(split, s.dim)
		p.seconds, p.doubt = a.Append(4*int64(keys)), a.Append(4*int64(keys))
		p.counts = a.Append(8*int64(s.pairs) + 8)
		for i := range p.norms {
			p.norms[i] = a.Append(8 * int64(s.rows[i]))
		}
	}
	for i := range p.points {
		p.points[i] = a.Append(int64(s.rows[i]) * int64(p.pointBytes))
	}
	p.bytes = a.Size

	perBlock := 256 // rows of dense_chamfer_rows
	if p.products > 0 {
		perBlock = 8
	}
	p.addLaunch("dense_chamfer_rows", 256, 0,
		min(max(runtime.CeilDiv(max(s.rows[0], s.rows[1]), perBlock), 1), 4096), 2, 1)
	metric := [...]string{maxsim.SquaredL2: "l2", maxsim.L1: "l1"}[s.metric]
	points := s.longest[0] + s.longest[1]
	switch {
	case isFew:
		d := map[bool]int{true: max(s.dim, 3), false: chamferFew}[s.dim <= 4]
		err = p.addTiles(filling, fmt.Sprintf("dense_chamfer_few_%s_d%d", metric, d), 128, 0, chamferTileFew,
			chamferGroup)
		if s.nearest {
			p.addLaunch("dense_chamfer_find", 256, 0, s.pairs, min(runtime.CeilDiv(points, 8), chamferMaxParts), 1)
		}
	case p.products > 0:
		name, bytes := [...]string{"", "dense_chamfer_product", "dense_chamfer_wide"}[p.products], chamferStreamed
		resident := chamferResident + chamferTileWide*p.pointBytes
		if p.pointBytes <= chamferMaxResidentRow && resident <= shared {
			name, bytes = name+"_resident", resident
		}
		err = p.addTiles(filling, name, 256, bytes, chamferTileWide, chamferTileWide)
		p.addLaunch("dense_chamfer_resolve", 256, 0, s.pairs, min(runtime.CeilDiv(points, 8), chamferMaxParts), 1)
		if err == nil {
			var slots int
			slots, err = filling("dense/dense_chamfer_l2", 128, 0)
			tiles := runtime.CeilDiv(max(s.longest[0], s.longest[1]), chamferTile)
			p.addLaunch("dense_chamfer_l2", 128, 0, s.pairs, 2, min(max(2*slots/s.pairs, 1), tiles, chamferMaxParts))
		}
	default:
		err = p.addTiles(filling, "dense_chamfer_l1", 128, 0, chamferTile, chamferTile)
	}
	p.addLaunch("dense_chamfer_sum", 256, 0, s.pairs, parts, 1)
	return p, err
}

// chamferParts returns how many blocks a kernel with a thread for each row has for a pair.
func chamferParts(longest [2]int) (int, error) {
	n := runtime.CeilDiv(longest[0], chamferPartRows) + runtime.CeilDiv(longest[1], chamferPartRows)
	if n > chamferMaxParts {
		return 0, fmt.Errorf("%w: distances of %d points from %d", driver.ErrUnsupported, longest[0], longest[1])
	}
	return n, nil
}

// addLaunch adds the launch of a kernel with the grid x, y, z.
func (p *chamferPlan) addLaunch(name string, block, shared int, x, y, z int) {
	p.launches = append(p.launches, launch{"dense/" + name, [3]int{x, y, z}, block, shared})
}

// addTiles adds a kernel whose blocks process a tile of x rows of X and a run of tiles of y rows of Y. It
// has several times as many blocks as run at the same time, so that the last ones end together.
func (p *chamferPlan) addTiles(filling fillingBlocks, name string, block, shared, x, y int) error {
	slots, err := filling("dense/"+name, block, shared)
	if err != nil {
		return err
	}
	n := p.shape.pairs
	along, across := min(runtime.CeilDiv(p.shape.longest[0], x), 1<<15), runtime.CeilDiv(p.shape.longest[1], y)
	p.addLaunch(name, block, shared, n, along, min(across, max(4*slots/(n*max(along, 1)), 1), 1<<15))
	return nil
}

// run launches the kernels, with the workspace from base on. The caller sets operands, pairs,
// results and mean in callParams.
func (p *chamferPlan) run(rt *runtime.Runtime, base driver.Ptr, callParams *denseChamferParams) error {
	s, x := &p.shape, *callParams
	x.keys, x.done, x.parts = base.Add(p.keys), base.Add(p.done), base.Add(p.parts)
	x.nKeys = uint64(s.pairs * (s.longest[0] + s.longest[1]))
	x.nPairs, x.dim, x.pointBytes = uint32(s.pairs), uint32(s.dim), uint32(p.pointBytes)
	x.l1 = uint32(s.metric)
	for i := range x.side {
		x.side[i].n, x.side[i].pitch = uint32(s.rows[i]), uint32(s.longest[i])
		if x.side[i].stride == 0 {
			x.side[i].mask = 0 // the items have no rows
		}
		if p.pointBytes > 0 {
			x.side[i].points = base.Add(p.points[i])
		}
		if p.products > 0 {
			x.side[i].norms = base.Add(p.norms[i])
		}
	}
	if p.products > 0 {
		x.products = p.products
		x.seconds, x.doubt, x.counts = base.Add(p.seconds), base.Add(p.doubt), base.Add(p.counts)
		if err := rt.Driver.Set(x.counts, 0, 8*int64(s.pairs)+8, rt.Stream); err != nil {
			return err
		}
	}
	for _, l := range p.launches {
		if err := runtime.Launch(rt, l.name, l.grid[0], l.grid[1], l.grid[2], l.block, l.shared, &x); err != nil {
			return err
		}
	}
	return nil
}

// chamferGradPlan has the offsets of the arrays of gradients in the workspace. The first zero bytes must
// be zero.
type chamferGradPlan struct {
	shape  chamferShape
	counts int64
	head   [2]int64
	chains int64
	zero   int64
	next   [2]int64
	bytes  int64
}

// planChamferGrad lays out the workspace of gradients.
func planChamferGrad(s chamferShape) (*chamferGradPlan, error) {
	if _, err := chamferParts(s.longest); err != nil {
		return nil, err
	}
	p := &chamferGradPlan{shape: s}
	var a runtime.Arena
	p.counts = a.Append(8 * int64(s.pairs))
	for i := range p.head {
		p.head[i] = a.Append(4 * int64(s.pairs) * int64(s.longest[i]))
	}
	// The rows with a chain of more than chamferChain: a count, and the rows.
	maxChains := s.pairs * (s.longest[0] + s.longest[1]) / (chamferChain + 1)
	p.chains = a.Append(4 + 4*int64(maxChains))
	p.zero = p.chains + 4
	for i := range p.next {
		p.next[i] = a.Append(4 * int64(s.pairs) * int64(s.longest[i]))
	}
	p.bytes = a.Size
	return p, nil
}

// run launches the kernels, as that of chamferPlan.
func (p *chamferGradPlan) run(rt *runtime.Runtime, base driver.Ptr, callParams *denseChamferGradParams) error {
	s, x := &p.shape, *callParams
	x.counts, x.chains = base.Add(p.counts), base.Add(p.chains)
	x.nPairs, x.dim = uint32(s.pairs), uint32(s.dim)
	for i := range x.side {
		x.side[i].head, x.side[i].next = base.Add(p.head[i]), base.Add(p.next[i])
		x.side[i].n, x.side[i].pitch = uint64(s.rows[i]), uint32(s.longest[i])
		x.side[i].stride = max(x.side[i].stride, 1) // is 0 for items without rows, or with offsets
	}
	if err := rt.Driver.Set(base, 0, p.zero, rt.Stream); err != nil {
		return err
	}
	across := runtime.CeilDiv(max(s.longest[0], s.longest[1]), 256)
	if err := runtime.Launch(rt, "dense/dense_chamfer_list", s.pairs, across, 2, 256, 0, &x); err != nil {
		return err
	}
	metric := [...]string{maxsim.SquaredL2: "l2", maxsim.L1: "l1"}[s.metric]
	name, rows := "dense/dense_chamfer_grad_"+metric, 4
	if s.dim <= chamferFew {
		name, rows = name+"_few", 16
	}
	if err := runtime.Launch(rt, name, runtime.CeilDiv(max(s.rows[0], s.rows[1]), rows), 2, 1, 128, 0, &x); err != nil {
		return err
	}
	return runtime.Launch(rt, "dense/dense_chamfer_grad_long_"+metric, 2*rt.Props.Multiprocessors, 1, 1, 256, 0, &x)
}
