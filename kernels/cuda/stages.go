package cuda

import (
	"github.com/plaid-ir/plaid/kernels/cuda/driver"
)

// prepare makes the operands of the scan from the queries: S and the rest.
func (b *batch) prepare(probing bool) error {
	k, s, st := b.d.kernels, b.s, b.d.work.stream
	a := b.a
	k.args.prep = prepParams{
		query: b.inAt(b.in.query), weights: b.inAt(b.in.weights), dimScale: a.array(a.at.dimScale),
		frags: b.tmpAt(b.tmp.frags), cols: b.tmpAt(b.tmp.cols), bound: b.outAt(b.out.bound), split: b.tmpAt(b.tmp.split),
		dim: uint32(s.dim), mode: uint32(s.mode), nbits: uint32(s.nbits), laneWords: uint32(s.lanes), fragStride: uint32(s.fragStride),
		step: s.step, sMax: s.sMax, factorMax: s.factorMax,
	}
	if err := launch(k, "prep_query", 4, b.groups, 1, 256, 0, st, &k.args.prep); err != nil {
		return err
	}
	k.args.centroid = centroidParams{
		centroids: a.array(a.at.centroids), split: b.tmpAt(b.tmp.split), cols: b.tmpAt(b.tmp.cols), invScale: a.array(a.at.invScale),
		sRows: b.tmpAt(b.tmp.sRows), k: uint32(s.k), dim: uint32(s.dim),
	}
	if s.mode > halfMode {
		k.args.centroid.halfRows = 1
	}
	if probing {
		k.args.centroid.sFloat = b.tmpAt(b.tmp.sFloat)
	}
	if err := launch(k, "centroid_scores", ceilDiv(s.k, 128), b.groups, 1, 256, 0, st, &k.args.centroid); err != nil {
		return err
	}
	return b.mark(atCentroids)
}

// scan writes a score for each group and entry of the target.
func (b *batch) scan(t target) error {
	k, s, st := b.d.kernels, b.s, b.d.work.stream
	blocks, err := b.blocks(t)
	if err != nil {
		return err
	}
	first := t.p.firstTile.Ptr
	p := &k.args.scan
	*p = scanParams{
		words: t.p.words.Ptr, rows: t.p.rows.Ptr, tileDoc: t.p.tileDoc.Ptr, docFirst: first, docEnd: first + 4,
		sRows: b.tmpAt(b.tmp.sRows), frags: b.tmpAt(b.tmp.frags), cols: b.tmpAt(b.tmp.cols), table: b.a.array(b.a.at.table),
		scores: b.tmpAt(b.tmp.scores), part: b.tmpAt(b.tmp.part), count: b.d.work.count.Ptr,
		sStride: uint64(columns * s.k), scoreStride: uint64(t.docs), nTiles: uint32(t.tiles),
		laneWords: uint32(s.lanes), fragStride: uint32(s.fragStride), dim: uint32(s.dim), nbits: uint32(s.nbits),
	}
	if t.list {
		total := b.tmpAt(b.tmp.total)
		if err := b.d.ctx.Set(total, 0, 4, st); err != nil {
			return err
		}
		k.args.list = listParams{
			docs: t.ids, nDev: t.listLen, firstTile: first, walk: b.tmpAt(b.tmp.walk),
			posFirst: b.tmpAt(b.tmp.posFirst), posEnd: b.tmpAt(b.tmp.posEnd), tilesTotal: total,
			n: uint32(t.docs), walkCapacity: uint32(t.tiles),
		}
		if err := launch(k, "list_tiles", int(ceilDiv(t.docs, 256)), 1, 1, 256, 0, st, &k.args.list); err != nil {
			return err
		}
		p.walk, p.nTilesDev, p.docFirst, p.docEnd = b.tmpAt(b.tmp.walk), total, b.tmpAt(b.tmp.posFirst), b.tmpAt(b.tmp.posEnd)
	}
	name, shared := s.scanKernel(t.list)
	return launch(k, name, blocks, b.groups, 1, scanThreads, shared, st, p)
}

// rank leaves the k best entries of each query in the output.
func (b *batch) rank(t target) error {
	k, st := b.d.kernels, b.d.work.stream
	if t.docs == 0 {
		return b.d.ctx.Set(b.outAt(b.out.ids), 0xFF, 4*int64(b.queries*b.k), st)
	}
	gx := int(ceilDiv(t.docs, topkBlock))
	k.args.topkFirst = topkFirstParams{
		scores: b.tmpAt(b.tmp.scores), groupBegin: b.inAt(b.in.begin), ids: t.ids, nDev: t.listLen, allowed: t.allowed,
		keys: b.tmpAt(b.tmp.keys), stride: uint64(t.docs), n: uint32(t.docs), k: uint32(b.k),
	}
	if err := launch(k, "topk_first", gx, b.queries, 1, 1024, 0, st, &k.args.topkFirst); err != nil {
		return err
	}
	return b.merge(b.tmpAt(b.tmp.keys), b.tmpAt(b.tmp.keys2), gx*b.k, b.queries, b.k,
		b.outAt(b.out.ids), b.outAt(b.out.coarse), b.outAt(b.out.n))
}

// merge reduces rows of n keys to the k best, in order.
func (b *batch) merge(from, to driver.Ptr, n, rows, keep int, ids, scores, count driver.Ptr) error {
	k, st := b.d.kernels, b.d.work.stream
	for {
		gx := ceilDiv(n, topkBlock)
		k.args.topkNext = topkNextParams{keys: from, out: to, n: uint32(n), k: uint32(keep)}
		if gx == 1 {
			k.args.topkNext.outIDs, k.args.topkNext.outScores, k.args.topkNext.outN = ids, scores, count
		}
		if err := launch(k, "topk_next", gx, rows, 1, 1024, 0, st, &k.args.topkNext); err != nil || gx == 1 {
			return err
		}
		from, to, n = to, from, gx*keep
	}
}

// fineBlocks is how many blocks fill a device with fine scores.
const fineBlocks = 4096

// fine scores the k best of each query in float32.
func (b *batch) fine(p *packed) error {
	k, s, a, st := b.d.kernels, b.s, b.a, b.d.work.stream
	if b.k == 0 {
		return nil
	}
	cells := b.queries * b.k
	if err := b.d.ctx.Set(b.tmpAt(b.tmp.best), 0, 4*int64(cells)*int64(b.most)*columns, st); err != nil {
		return err
	}
	k.args.fine = fineParams{
		words: p.words.Ptr, rows: p.rows.Ptr, firstTile: p.firstTile.Ptr,
		centroids: a.array(a.at.centroids), weightsTable: a.array(a.at.weights), dimScale: a.array(a.at.dimScale), centroidRatio: a.array(a.at.ratio),
		query: b.inAt(b.in.query), weights: b.inAt(b.in.weights), groupBegin: b.inAt(b.in.begin), ids: b.outAt(b.out.ids),
		best: b.tmpAt(b.tmp.best), scores: b.outAt(b.out.fine), factorMax: s.factorMax / s.aMax, aMax: s.aMax,
		n: uint32(b.k), dim: uint32(s.dim), nbits: uint32(s.nbits), laneWords: uint32(s.lanes), maxGroups: uint32(b.most),
	}
	// Enough blocks to fill the device and to share a long document, and not
	// many more than pay for collections in which such are rare.
	splits := max(ceilDiv(int(a.maxTiles), 16), ceilDiv(fineBlocks, cells))
	splits = max(min(splits, int(a.maxTiles), 1<<16/cells), 1)
	if err := launch(k, "fine", b.k, b.queries, splits, 128, 0, st, &k.args.fine); err != nil {
		return err
	}
	return launch(k, "fine_sum", ceilDiv(b.k, 8), b.queries, 1, 256, 0, st, &k.args.fine)
}
