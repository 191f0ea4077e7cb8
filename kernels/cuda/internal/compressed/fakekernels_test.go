package compressed

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
)

// fakeKernels does in Go what the kernels do, on the arrays of plaid.cuh. What
// only kernels look at (frags, cols, parts) is kept beside them; rows of S are
// half precision, so that scans err as they may.
type fakeKernels struct {
	mu      sync.Mutex
	queries map[driver.Ptr]*fakeQuery // by frags, and by parts
	last    driver.Ptr                // frags of the batch at hand
	sides   []int                     // groups side by side, of each scan
	silent  atomic.Bool               // answers that the host watches for do not come
}

type fakeQuery struct {
	vectors, weights  []float32 // [groups][32][dim], [groups][32]
	dim, nbits, lanes int
	dimScale          []float32
	step, factorMax   float32
	tableScale        float32
	centroidUp        float32
	table             bool
}

// noDocument is the number of no document.
const noDocument = 0xFFFFFFFF

func newFake() (*drivertest.Fake, *fakeKernels) {
	k := &fakeKernels{queries: map[driver.Ptr]*fakeQuery{}}
	return runtimetest.Fake(k.table()), k
}

func args[T any](l *driver.Launch) *T { return (*T)(l.Args) }

func (k *fakeKernels) table() map[string]drivertest.Kernel {
	t := map[string]drivertest.Kernel{
		"pack": k.pack, "prep_query": k.prep, "centroid_scores": k.centroids, "list_tiles": k.list,
		"topk_first": k.topkFirst, "topk_next": k.topkNext, "pick": k.pick, "collect": k.collect,
		"probe_mark": k.mark, "candidates": k.candidates, "compact": k.compact, "gains": k.gains, "probe_pick": k.pickCentroids, "cut": k.cut,
	}
	for _, n := range []string{"1", "2", "4", "8"} {
		t["fine_b"+n], t["fine_t"+n] = k.fine, k.fine
	}
	for _, name := range []string{"b1", "b2", "b4", "b8", "b1_w1", "b2_w1", "b2_w2", "b4_w2", "b4_w4", "table", "f1_w1", "f2_w1", "f2_w2", "f4_w2", "f4_w4"} {
		t["scan_"+name], t["scan_"+name+"_list"] = k.scan(false, 1), k.scan(true, 1)
		if name[0] == 'f' {
			t["scan_"+name+"_x2"], t["scan_"+name+"_x4"] = k.scan(false, 2), k.scan(false, 4)
		}
	}
	return t
}

func (k *fakeKernels) pack(f *drivertest.Fake, l *driver.Launch) {
	p := args[packParams](l)
	first := drivertest.Slice[uint32](f, p.firstTile, int(p.docs)+1)
	off := drivertest.Slice[uint32](f, p.offsets, int(p.docs)+1)
	n := int(off[p.docs])
	res := drivertest.Slice[byte](f, p.residuals, n*int(p.rowBytes))
	factors := drivertest.Slice[int16](f, p.factors, n)
	width := 16 * int(p.laneWords)
	for d := range int(p.docs) {
		for tile := first[d]; tile < first[d+1]; tile++ {
			at := p.docBase + uint32(d)
			if tile+1 == first[d+1] {
				at |= 1 << 31
			}
			drivertest.Slice[uint32](f, p.tileDoc+driver.Ptr(4*tile), 1)[0] = at
			words := drivertest.Slice[uint32](f, p.words+driver.Ptr(8*16*int(tile)), 32)
			most := &drivertest.Slice[float32](f, p.docMax+driver.Ptr(4*(int(p.docBase)+d)), 1)[0]
			rows := drivertest.Slice[byte](f, p.rows+driver.Ptr(16*width*int(tile)), 16*width)
			clear(rows)
			for i := range 16 {
				t := min(int(off[d])+16*int(tile-first[d])+i, int(off[d+1])-1)
				var code uint32
				if p.codeBytes == 2 {
					code = uint32(drivertest.Slice[uint16](f, p.codes+driver.Ptr(2*t), 1)[0])
				} else {
					code = drivertest.Slice[uint32](f, p.codes+driver.Ptr(4*t), 1)[0]
				}
				if slot := 16*int(tile) + i; p.codeBytes == 2 {
					drivertest.Slice[uint16](f, p.codeList+driver.Ptr(2*slot), 1)[0] = uint16(code)
				} else {
					drivertest.Slice[uint32](f, p.codeList+driver.Ptr(4*slot), 1)[0] = code
				}
				v := float32(factors[t]) / 32767
				if p.centroidScale != 0 {
					v *= drivertest.Slice[float32](f, p.centroidScale+driver.Ptr(4*code), 1)[0]
				}
				words[2*i], words[2*i+1] = code*64, math.Float32bits(v)
				*most = max(*most, float32(math.Abs(float64(v))))
				copy(rows[i*width:], res[t*int(p.rowBytes):(t+1)*int(p.rowBytes)])
			}
		}
	}
}

func (k *fakeKernels) prep(f *drivertest.Fake, l *driver.Launch) {
	p := args[prepParams](l)
	g := int(l.Grid.Y)
	q := &fakeQuery{
		vectors: slices.Clone(drivertest.Slice[float32](f, p.query, g*columns*int(p.dim))),
		weights: slices.Clone(drivertest.Slice[float32](f, p.weights, g*columns)),
		dim:     int(p.dim), nbits: int(p.nbits), lanes: int(p.laneWords), step: p.step, factorMax: p.factorMax, table: p.mode == tableMode, tableScale: p.tableScale, centroidUp: p.centroidUp,
		dimScale: slices.Clone(drivertest.Slice[float32](f, p.dimScale, int(p.dim))),
	}
	drivertest.Slice[uint32](f, p.frags, g*int(p.fragStride)) // there is room
	drivertest.Slice[float32](f, p.cols, g*columns*4)
	drivertest.Slice[uint64](f, p.parts, g*4*(int(p.laneWords)*32/int(p.nbits)/4)*128)
	for i, unit := range drivertest.Slice[[4]float32](f, p.unit, g*columns) {
		unit[3] = q.weights[i]
		drivertest.Slice[[4]float32](f, p.unit, g*columns)[i] = unit
	}
	clear(drivertest.Slice[uint32](f, p.zeros, int(p.zeroWords)))
	tick(f, p.clock, 1)
	k.mu.Lock()
	k.queries[p.frags], k.queries[p.parts], k.last = q, q, p.frags
	k.mu.Unlock()
	bound := drivertest.Slice[[4]float32](f, p.bound, g*columns)
	for i := range bound {
		v := q.vectors[i*q.dim:][:q.dim]
		size := float32(math.Abs(float64(q.weights[i])) * math.Sqrt(float64(dotf(v, v))))
		e := size * p.factorMax * p.sMax * 1e-3
		bound[i] = [4]float32{e, e / 2, e * e / 100 * drivertest.Slice[float32](f, p.alike, g*columns)[i], size}
	}
}

// shape is as much of the codec's as says how centroids lie.
func (q *fakeQuery) shape() *shape { return &shape{nbits: q.nbits, lanes: q.lanes} }

// centroid reads a centroid out of its row.
func (q *fakeQuery) centroid(f *drivertest.Fake, v []float32, at driver.Ptr, i int) {
	s := q.shape()
	row := drivertest.Slice[uint16](f, at+driver.Ptr(2*i*s.centroidStride()), s.centroidStride())
	for j := range v {
		v[j] = kernels.F16ToF32(row[s.centroidIndex(j)]) / q.centroidUp
	}
}

// tick notes a time.
func tick(f *drivertest.Fake, clock driver.Ptr, at uint64) {
	if clock != 0 {
		drivertest.Slice[uint64](f, clock, 1)[0] = at * 1000
	}
}

func dotf(a, b []float32) float32 {
	sum := float32(0)
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

func (k *fakeKernels) query(p driver.Ptr) *fakeQuery {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.queries[p]
}

// operands are the queries of the batch at hand, from that on whose operands are at p.
func (k *fakeKernels) operands(p driver.Ptr, stride int) *fakeQuery {
	k.mu.Lock()
	defer k.mu.Unlock()
	group := int(p-k.last) / (4 * stride)
	from := *k.queries[k.last]
	from.vectors, from.weights = from.vectors[group*columns*from.dim:], from.weights[group*columns:]
	return &from
}

func (k *fakeKernels) centroids(f *drivertest.Fake, l *driver.Launch) {
	p := args[centroidParams](l)
	q := k.query(p.parts)
	if int(p.laneDims) != q.shape().laneDims() {
		panic("centroid_scores: dimensions of a lane")
	}
	tick(f, p.clock, 2)
	n := int(p.k)
	g := int(l.Grid.Y)
	rows := drivertest.Slice[uint16](f, p.sRows, (g+int(p.side)-1)/int(p.side)*int(p.side)*n*columns)
	inv := drivertest.Slice[float32](f, p.invScale, n)
	sf := drivertest.Slice[float32](f, p.sFloat, g*columns*n)
	if p.maxima != 0 {
		drivertest.Slice[float32](f, p.maxima, g*columns*((n+centroidsPerMaximum-1)/centroidsPerMaximum)) // there is room
	}
	v := make([]float32, q.dim)
	for i := range n {
		q.centroid(f, v, p.centroids, i)
		for col := range g * columns {
			s := dotf(v, q.vectors[col*q.dim:][:q.dim])
			if sf != nil {
				sf[col*n+i] = s
			}
			if inv != nil {
				s *= inv[i]
			}
			rows[rowOf(col/columns, i, n, int(p.side))+col%columns] = kernels.F16FromF32(s)
		}
	}
}

func (k *fakeKernels) list(f *drivertest.Fake, l *driver.Launch) {
	k.walk(f, args[listParams](l))
}

func (k *fakeKernels) walk(f *drivertest.Fake, p *listParams) {
	n := int(p.n)
	if p.nDev != 0 {
		n = int(drivertest.Slice[uint32](f, p.nDev, 1)[0])
	}
	docs := drivertest.Slice[uint32](f, p.docs, n)
	walk := drivertest.Slice[uint32](f, p.walk, 2*int(p.walkCapacity))
	from, end := drivertest.Slice[uint32](f, p.posFirst, n), drivertest.Slice[uint32](f, p.posEnd, n)
	at := drivertest.Slice[uint32](f, p.tilesTotal, 1)
	for i, d := range docs {
		first := drivertest.Slice[uint32](f, p.firstTile+driver.Ptr(4*d), 2)
		from[i] = at[0]
		for t := first[0]; t < first[1]; t++ {
			last := uint32(0)
			if t+1 == first[1] {
				last = 1 << 31
			}
			walk[2*at[0]], walk[2*at[0]+1] = t, uint32(i)|last
			at[0]++
		}
		end[i] = at[0]
	}
}

// rowOf is where the row of a centroid is, of k ones, for a group.
func rowOf(group, centroid, k, side int) int {
	return ((group/side*k+centroid)*side + group%side) * columns
}

func (k *fakeKernels) scan(list bool, side int) drivertest.Kernel {
	return func(f *drivertest.Fake, l *driver.Launch) {
		k.sides = append(k.sides, side)
		k.scanAny(f, l, list, side)
	}
}

func (k *fakeKernels) scanAny(f *drivertest.Fake, l *driver.Launch, list bool, side int) {
	p := args[scanParams](l)
	tick(f, p.clock, 4)
	q := k.operands(p.frags, int(p.fragStride))
	g, sets := int(p.groups), int(l.Grid.Y)
	if sets != (g+side-1)/side {
		panic("scan: sets of groups")
	}
	warps := int(l.Grid.X) * int(l.Block.X) / 32
	drivertest.Slice[uint32](f, p.part, sets*warps*2*columns*max(side/2, 1)) // there is room
	for _, c := range drivertest.Slice[uint32](f, p.count, sets*warps) {
		if c != 0 {
			panic("scan: count is not zero")
		}
	}
	n := int(p.nTiles)
	if p.nTilesDev != 0 {
		n = int(drivertest.Slice[uint32](f, p.nTilesDev, 1)[0])
	}
	k0 := int(p.sStride) / columns
	rows := drivertest.Slice[uint16](f, p.sRows, sets*side*k0*columns)
	width := 16 * q.lanes
	weights := make([]float32, 1<<q.nbits)
	for b := range weights {
		weights[b] = q.step * (float32(b) - float32(len(weights)-1)/2)
	}
	if q.table {
		for b, h := range drivertest.Slice[uint16](f, p.table, len(weights)) {
			weights[b] = q.step * kernels.F16ToF32(h)
		}
	}
	best := make([]float32, g*columns)
	reset := func() {
		for i := range best {
			best[i] = float32(math.Inf(-1))
		}
	}
	reset()
	residual := make([]float32, q.dim)
	for i := range n {
		tile, entry := uint32(i), uint32(0)
		if list {
			w := drivertest.Slice[uint32](f, p.walk+driver.Ptr(8*i), 2)
			tile, entry = w[0], w[1]
		} else {
			entry = drivertest.Slice[uint32](f, p.tileDoc+driver.Ptr(4*i), 1)[0]
		}
		words := drivertest.Slice[uint32](f, p.words+driver.Ptr(128*int(tile)), 32)
		bytes := drivertest.Slice[byte](f, p.rows+driver.Ptr(16*width*int(tile)), 16*width)
		for t := range 16 {
			code, factor := int(words[2*t]/64), math.Float32frombits(words[2*t+1])
			decode(residual, bytes[t*width:], q.nbits, weights, q.dimScale)
			for col := range best {
				s := kernels.F16ToF32(rows[rowOf(col/columns, code, k0, side)+col%columns])
				best[col] = max(best[col], factor*(s+dotf(residual, q.vectors[col*q.dim:][:q.dim])))
			}
		}
		if entry>>31 == 1 {
			for j := range g {
				sum := float32(0)
				for col := range columns {
					if w := q.weights[j*columns+col]; w != 0 {
						sum += w * q.factorMax * best[j*columns+col]
					}
				}
				drivertest.Slice[float32](f, p.scores+driver.Ptr(4*(uint64(j)*p.scoreStride+uint64(entry&^(1<<31)))), 1)[0] = sum
			}
			reset()
		}
	}
}

func decode(dst []float32, row []byte, nbits int, weights, dimScale []float32) {
	for j := range dst {
		dst[j] = weights[int(row[j*nbits/8])>>(j*nbits%8)&(1<<nbits-1)]
		if dimScale != nil {
			dst[j] *= dimScale[j]
		}
	}
}

func key(score float32, number uint32) uint64 {
	b := math.Float32bits(score)
	if b>>31 == 1 {
		b = ^b
	} else {
		b |= 1 << 31
	}
	return uint64(b)<<32 | uint64(^number)
}

func (k *fakeKernels) fine(f *drivertest.Fake, l *driver.Launch) {
	p := args[fineParams](l)
	all := k.query(p.parts)
	dim, width, capacity := all.dim, 16*int(p.laneWords), int(p.capacity)
	table := drivertest.Slice[uint16](f, p.table, 2<<all.nbits) // nil but for tables
	weights := make([]float32, 1<<all.nbits)
	for i := range weights {
		if all.table {
			weights[i] = (kernels.F16ToF32(table[i]) + kernels.F16ToF32(table[len(weights)+i])) / all.tableScale
		} else {
			weights[i] = (float32(i) - float32(len(weights)-1)/2) * all.step
		}
	}
	if l.Grid.Z > 1 { // there is room
		drivertest.Slice[float32](f, p.part, int(l.Grid.Y)*capacity*int(l.Grid.Z)*int(p.maxGroups)*columns)
	}
	for _, n := range drivertest.Slice[uint32](f, p.count, int(l.Grid.Y)*capacity) {
		if n != 0 {
			panic("fine: count is not zero")
		}
	}
	tick(f, p.clock, 6)
	v, c := make([]float32, dim), make([]float32, dim)
	for q := range int(l.Grid.Y) {
		b := k.groups(f, p.groupBegin, q)
		g := int(b[1] - b[0])
		query := all.vectors[int(b[0])*columns*dim:][:g*columns*dim]
		units := drivertest.Slice[[4]float32](f, p.unit+driver.Ptr(16*int(b[0])*columns), g*columns)
		found := drivertest.Slice[uint32](f, p.found+driver.Ptr(16*q), 4)
		for i := range min(int(found[0]), capacity) {
			id := drivertest.Slice[uint32](f, p.ids+driver.Ptr(4*(q*capacity+i)), 1)[0]
			out := &drivertest.Slice[float32](f, p.scores+driver.Ptr(4*(q*capacity+i)), 1)[0]
			*out = 0
			first := drivertest.Slice[uint32](f, p.firstTile+driver.Ptr(4*id), 2)
			best := make([]float32, g*columns)
			for j := range best {
				best[j] = float32(math.Inf(-1))
			}
			for t := 16 * int(first[0]); t < 16*int(first[1]); t++ {
				word := drivertest.Slice[uint32](f, p.words+driver.Ptr(8*t), 2)
				code := int(word[0] / 64)
				factor, a := math.Float32frombits(word[1])*p.factorMax, float32(1)
				if p.centroidRatio != 0 {
					ratio := drivertest.Slice[float32](f, p.centroidRatio+driver.Ptr(4*code), 1)[0]
					factor, a = factor/ratio, ratio*p.aMax
				}
				decode(v, drivertest.Slice[byte](f, p.rows+driver.Ptr(width*t), width), all.nbits, weights, all.dimScale)
				all.centroid(f, c, p.centroids, code)
				for j := range v {
					v[j] = v[j]*a + c[j]
				}
				for col := range best {
					best[col] = max(best[col], factor*dotf(v, query[col*dim:][:dim]))
				}
			}
			if first[0] == first[1] {
				continue
			}
			for col := range best {
				if w := units[col][3]; w != 0 {
					*out += w * best[col]
				}
			}
			if p.coarse == 0 {
				continue
			}
			c := drivertest.Slice[[2]float32](f, p.coarse+driver.Ptr(8*(q*capacity+i)), 1)[0]
			if c[1] > 0 {
				share := max(*out-c[0], 0) / c[1]
				found[3] = max(found[3], math.Float32bits(share))
			}
		}
	}
	if p.clock != 0 {
		tick(f, p.clock+8, 7)
	}
	if p.host != 0 && !k.silent.Load() {
		n := int(p.outWords)
		drivertest.Slice[uint32](f, p.done, 1)
		copy(drivertest.Slice[[16]byte](f, p.host, n), drivertest.Slice[[16]byte](f, p.out, n))
		(*atomic.Uint32)(unsafe.Pointer(&drivertest.Slice[uint32](f, p.host+driver.Ptr(16*n), 1)[0])).Store(1)
	}
}

// groups are those of a query, the first and the one after the last.
func (k *fakeKernels) groups(f *drivertest.Fake, begin driver.Ptr, query int) []uint32 {
	if begin == 0 {
		return []uint32{uint32(query), uint32(query) + 1}
	}
	return drivertest.Slice[uint32](f, begin+driver.Ptr(4*query), 2)
}

func (k *fakeKernels) compact(f *drivertest.Fake, l *driver.Launch) {
	p := args[compactParams](l)
	n := &drivertest.Slice[uint32](f, p.n, 1)[0]
	allowed := drivertest.Slice[uint32](f, p.allowed, (int(p.docs)+31)/32)
	hits := drivertest.Slice[uint32](f, p.hits, int(p.docs))
	for i := int(p.docs) - 1; i >= 0; i-- {
		if hits[i]>>p.query&1 == 1 && allowed[i/32]>>(i%32)&1 == 1 {
			drivertest.Slice[uint32](f, p.list+driver.Ptr(4**n), 1)[0] = uint32(i)
			*n++
		}
	}
}
