package cuda

import (
	"encoding/binary"
	"math"

	"github.com/plaid-ir/plaid/kernels/cuda/driver"
)

// probe makes a list of the documents that may be returned and have a token in
// one of the best centroids of a query token, and makes it the target. A batch
// with probing has one query.
func (b *batch) probe(t *target) error {
	k, s, st, c := b.d.kernels, b.s, b.d.work.stream, b.d.ctx
	rows := b.groups * columns
	n := min(b.tasks[0].search.q.Probes, s.k, maxTopK)
	gx := ceilDiv(s.k, topkBlock)
	ids := b.tmpAt(b.tmp.probes)
	keys := ids + driver.Ptr(ceilDiv(4*rows*n, arenaAlign)*arenaAlign)
	keys2 := keys + driver.Ptr(ceilDiv(8*rows*gx*n, arenaAlign)*arenaAlign)
	k.args.topkFirst = topkFirstParams{scores: b.tmpAt(b.tmp.sFloat), keys: keys, stride: uint64(s.k), n: uint32(s.k), k: uint32(n)}
	if err := launch(k, "topk_first", gx, rows, 1, 1024, 0, st, &k.args.topkFirst); err != nil {
		return err
	}
	if err := b.merge(keys, keys2, gx*n, rows, n, ids, 0, 0); err != nil {
		return err
	}
	marks, hits := b.tmpAt(b.tmp.marks), b.tmpAt(b.tmp.hits)
	markBytes, hitWords := ceilDiv(int64(s.k), 32)*4, ceilDiv(t.docs, 32)
	if err := c.Set(marks, 0, markBytes, st); err != nil {
		return err
	}
	if err := c.Set(hits, 0, 4*hitWords, st); err != nil {
		return err
	}
	k.args.mark = markParams{ids: ids, weights: b.inAt(b.in.weights), bitmap: marks, columns: uint32(rows), picked: uint32(n), n: uint32(n)}
	if err := launch(k, "probe_mark", ceilDiv(n*rows, 256), 1, 1, 256, 0, st, &k.args.mark); err != nil {
		return err
	}
	shared := 0
	k.args.candidate = candidateParams{words: t.p.words.Ptr, tileDoc: t.p.tileDoc.Ptr, bitmap: marks, hits: hits, tiles: uint32(t.tiles), k: uint32(s.k)}
	if markBytes <= 48<<10 {
		shared, k.args.candidate.smem = int(markBytes), 1
	}
	blocks := min(8*k.props.Multiprocessors, int(ceilDiv(t.tiles, 16)))
	if err := launch(k, "candidates", blocks, 1, 1, 256, shared, st, &k.args.candidate); err != nil {
		return err
	}
	k.args.compact = compactParams{a: hits, b: t.allowed, list: b.tmpAt(b.tmp.found), n: b.outAt(b.out.cand), words: uint32(hitWords), capacity: uint32(t.docs)}
	if err := launch(k, "compact", int(ceilDiv(hitWords, 256)), 1, 1, 256, 0, st, &k.args.compact); err != nil {
		return err
	}
	t.ids, t.listLen = b.tmpAt(b.tmp.found), b.outAt(b.out.cand)
	return nil
}

// rankOnHost takes the place of rank where more documents are asked for than
// the device can rank. Such a batch has one query. It waits for the device.
func (b *batch) rankOnHost(t target) error {
	c, st := b.d.ctx, b.d.work.stream
	scores, err := b.scores(t)
	if err != nil {
		return err
	}
	q := b.tasks[0].search
	numbers := q.q.Docs
	if t.listLen != 0 {
		var count [4]byte
		if err := c.ToHost(count[:], t.listLen, st); err != nil {
			return err
		}
		if err := c.Sync(st); err != nil {
			return err
		}
		numbers = make([]uint32, binary.LittleEndian.Uint32(count[:]))
		if err := c.ToHost(uint32Bytes(numbers), t.ids, st); err != nil {
			return err
		}
		if err := c.Sync(st); err != nil {
			return err
		}
		scores = scores[:len(numbers)]
	}
	allowed := q.restriction()
	list := make([]entry, 0, len(scores))
	for i, s := range scores {
		doc := uint32(i)
		if numbers != nil {
			doc = numbers[i]
		}
		if allowed[doc/64]>>(doc%64)&1 == 1 {
			list = append(list, entry{doc, s})
		}
	}
	return b.putRanked(topOf(list, b.k))
}

// scores fetches the sums over the groups of the batch's one query.
func (b *batch) scores(t target) ([]float32, error) {
	sum := make([]float32, t.docs)
	row := sum
	for g := range b.groups {
		if g == 1 {
			row = make([]float32, t.docs)
		}
		if err := b.d.ctx.ToHost(float32Bytes(row), b.tmpAt(b.tmp.scores+4*int64(g)*t.docs), b.d.work.stream); err != nil {
			return nil, err
		}
		if err := b.d.ctx.Sync(b.d.work.stream); err != nil {
			return nil, err
		}
		if g > 0 {
			for i, v := range row {
				sum[i] += v
			}
		}
	}
	return sum, nil
}

// putRanked writes documents and their scores where rank leaves them.
func (b *batch) putRanked(list []entry) error {
	ids, scores := make([]uint32, b.k), make([]float32, b.k)
	for i := range ids {
		ids[i], scores[i] = noDocument, float32(math.Inf(-1))
		if i < len(list) {
			ids[i], scores[i] = list[i].doc, list[i].score
		}
	}
	c, st := b.d.ctx, b.d.work.stream
	if err := c.ToDevice(b.outAt(b.out.ids), uint32Bytes(ids), st); err != nil {
		return err
	}
	return c.ToDevice(b.outAt(b.out.coarse), float32Bytes(scores), st)
}
