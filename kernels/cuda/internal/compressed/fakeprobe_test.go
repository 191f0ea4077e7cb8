package compressed

import (
	"slices"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
)

func (k *fakeKernels) pickCentroids(f *drivertest.Fake, l *driver.Launch) {
	p := args[probePickParams](l)
	tick(f, p.clock, 3)
	n, picked := int(p.k), int(p.picked)
	for column := range int(l.Grid.X) {
		keys := make([]uint64, n)
		for i, v := range drivertest.Slice[float32](f, p.scores+driver.Ptr(4*column*n), n) {
			keys[i] = key(v, uint32(i))
		}
		slices.Sort(keys)
		ids := drivertest.Slice[uint32](f, p.ids+driver.Ptr(4*column*picked), picked)
		scores := drivertest.Slice[float32](f, p.outScores+driver.Ptr(4*column*picked), picked)
		for i := range picked {
			ids[i] = ^uint32(keys[n-1-i])
			scores[i] = drivertest.Slice[float32](f, p.scores+driver.Ptr(4*(column*n+int(ids[i]))), 1)[0]
		}
	}
}

// probing gives the columns of a query that probe, with the scores of their centroids.
func (k *fakeKernels) probing(f *drivertest.Fake, p *markParams, q int, use func(column int, weight float32, ids []uint32, scores []float32)) {
	b, n := k.groups(f, p.groupBegin, q), int(p.picked)
	for column := columns * int(b[0]); column < columns*int(b[1]); column++ {
		if w := drivertest.Slice[[4]float32](f, p.unit+driver.Ptr(16*column), 1)[0][3]; w > 0 {
			at := driver.Ptr(4 * column * n)
			use(column, w, drivertest.Slice[uint32](f, p.ids+at, n)[:p.n], drivertest.Slice[float32](f, p.scores+at, n))
		}
	}
}

func (k *fakeKernels) mark(f *drivertest.Fake, l *driver.Launch) {
	p := args[markParams](l)
	if l.Grid.X != p.queries {
		panic("probe_mark: a block a query")
	}
	words := int(p.bitWords)
	bits := drivertest.Slice[uint32](f, p.bits, (int(p.queries)+1)*words)
	for q := range int(p.queries) {
		b := k.groups(f, p.groupBegin, q)
		clear(drivertest.Slice[[4]float32](f, p.gainCols+driver.Ptr(16*columns*b[0]), columns*int(b[1]-b[0])))
		var n, gap, most float32
		k.probing(f, p, q, func(_ int, _ float32, ids []uint32, scores []float32) {
			for _, c := range ids {
				drivertest.Slice[uint32](f, p.marks+driver.Ptr(4*c), 1)[0] |= 1 << q
				bits[q*words+int(c/32)] |= 1 << (c % 32)
				bits[int(p.queries)*words+int(c/32)] |= 1 << (c % 32)
			}
			n, gap = n+1, gap+scores[p.n/2]-scores[p.picked-1]
		})
		gap *= unseenGap / max(n, 1)
		k.probing(f, p, q, func(_ int, w float32, _ []uint32, scores []float32) {
			most += w * (scores[0] - scores[p.picked-1] + gap)
		})
		k.probing(f, p, q, func(column int, w float32, _ []uint32, scores []float32) {
			col := drivertest.Slice[[4]float32](f, p.gainCols+driver.Ptr(16*column), 1)
			col[0] = [4]float32{1, 0, scores[p.picked-1], w / max(most, 1e-30)} // rows of the fake are plain
		})
		drivertest.Slice[float32](f, p.gaps+driver.Ptr(4*q), 1)[0] = gap
	}
}

// unseenGap is kUnseenGap.
const unseenGap = 5

// codesOf are the codes of a tile.
func codesOf(f *drivertest.Fake, codes driver.Ptr, bytes uint32, tile int) (of [tileTokens]uint32) {
	if bytes == 4 {
		copy(of[:], drivertest.Slice[uint32](f, codes+driver.Ptr(64*tile), tileTokens))
		return of
	}
	for i, c := range drivertest.Slice[uint16](f, codes+driver.Ptr(32*tile), tileTokens) {
		of[i] = uint32(c)
	}
	return of
}

func (k *fakeKernels) candidates(f *drivertest.Fake, l *driver.Launch) {
	p := args[candidateParams](l)
	bits := drivertest.Slice[uint32](f, p.bits, int(p.bitWords))
	for t := range int(p.tiles) {
		doc := drivertest.Slice[uint32](f, p.tileDoc+driver.Ptr(4*t), 1)[0] &^ (1 << 31)
		hits := &drivertest.Slice[uint32](f, p.hits+driver.Ptr(4*doc), 1)[0]
		for _, c := range codesOf(f, p.codes, p.codeBytes, t) {
			if bits[c/32]>>(c%32)&1 == 1 {
				*hits |= drivertest.Slice[uint32](f, p.marks+driver.Ptr(4*c), 1)[0]
			}
		}
	}
}

func (k *fakeKernels) gains(f *drivertest.Fake, l *driver.Launch) {
	p := args[gainParams](l)
	bits := drivertest.Slice[uint32](f, p.bits, int(p.bitWords))
	levels := drivertest.Slice[uint32](f, p.levels, gainLevels)
	gap := drivertest.Slice[float32](f, p.gap, 1)[0]
	cols := drivertest.Slice[[4]float32](f, p.gainCols, int(p.groups)*columns)
	rows := drivertest.Slice[uint16](f, p.sRows, int(p.groups*p.k)*columns)
	inv := drivertest.Slice[float32](f, p.invScale, int(p.k))
	n := int(drivertest.Slice[uint32](f, p.nDev, 1)[0])
	for i, doc := range drivertest.Slice[uint32](f, p.docs, n) {
		best := make([]float32, len(cols))
		first := drivertest.Slice[uint32](f, p.firstTile+driver.Ptr(4*doc), 2)
		for t := first[0]; t < first[1]; t++ {
			for _, c := range codesOf(f, p.codes, p.codeBytes, int(t)) {
				if bits[c/32]>>(c%32)&1 == 0 {
					continue
				}
				for j, col := range cols {
					s := kernels.F16ToF32(rows[rowOf(j/columns, int(c), int(p.k), 1)+j%columns])
					if inv != nil {
						s /= inv[c]
					}
					best[j] = max(best[j], s*col[0]+col[1]-col[2])
				}
			}
		}
		gain := float32(0)
		for j, col := range cols {
			if best[j] > 0 {
				gain += (best[j] + gap) * col[3]
			}
		}
		level := uint32(min(max(gain*gainLevels, 0), gainLevels-1))
		drivertest.Slice[uint32](f, p.gains+driver.Ptr(4*i), 1)[0] = level
		levels[level]++
	}
}

func (k *fakeKernels) cut(f *drivertest.Fake, l *driver.Launch) {
	p := args[cutParams](l)
	level, kept := gainLevels, uint32(0)
	levels := drivertest.Slice[uint32](f, p.levels, gainLevels)
	for level > 0 && kept+levels[level-1] <= p.most {
		level--
		kept += levels[level]
	}
	n := int(drivertest.Slice[uint32](f, p.nDev, 1)[0])
	gains := drivertest.Slice[uint32](f, p.gains, n)
	var docs []uint32
	for i, doc := range drivertest.Slice[uint32](f, p.docs, n) {
		if gains[i] >= uint32(level) {
			docs = append(docs, doc)
		}
	}
	copy(drivertest.Slice[uint32](f, p.list, int(p.most)), docs)
	drivertest.Slice[uint32](f, p.kept, 1)[0] = uint32(len(docs))
	k.walk(f, &listParams{
		docs: p.list, nDev: p.kept, firstTile: p.firstTile, walk: p.walk, posFirst: p.posFirst, posEnd: p.posEnd,
		tilesTotal: p.tilesTotal, n: p.most, walkCapacity: p.walkCapacity,
	})
}
