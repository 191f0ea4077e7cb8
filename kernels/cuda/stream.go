package cuda

import (
	"encoding/binary"
	"math"
	"slices"
	"sort"

	"github.com/plaid-ir/plaid/kernels"
)

// streamed answers a batch on an index that does not fit: its pieces cross the
// bus one after another, the next one while one is scanned; the best of each
// are merged on the host. Then the best of all cross again for their fine
// scores. Results are those of a resident index.
func (b *batch) streamed() error {
	first := b.tasks[0].search
	from := first.corpus
	cut := cutter{limit: b.a.pieceTokens()}
	if first.q.Docs != nil {
		addDocs(&cut, from, first.q.Docs)
	} else {
		cut.chunks(from, 0, from.Chunks())
	}
	wide := b.k > maxTopK
	if err := b.reserve(b.room(), false, wide); err != nil {
		return err
	}
	tgt := target{}
	if err := b.upload(&tgt); err != nil {
		return err
	}
	if err := b.prepare(false); err != nil {
		return err
	}
	best := make([][]entry, b.queries)
	bytes, tiles := int64(0), int64(0)
	err := b.pieces(from, cut.pieces, func(t target, p *piece) (func() error, error) {
		bytes += b.s.stageLayout(p.docs, p.tokens).size
		tiles += p.tiles
		t.allowed = tgt.allowed
		if err := b.scan(t); err != nil {
			return nil, err
		}
		if wide {
			return func() error { return b.takeAll(best, t, p, from) }, nil
		}
		if err := b.rank(t); err != nil {
			return nil, err
		}
		w := &b.d.work
		if err := b.d.ctx.ToHost(w.hostOut.Data[:b.out.fine], w.out.Ptr, w.stream); err != nil {
			return nil, err
		}
		return func() error { b.takeBest(best); return nil }, nil
	})
	if err != nil {
		return err
	}
	if err := b.fetch(); err != nil {
		return err
	}
	for i, task := range b.tasks {
		q := task.search
		list := best[i][:min(len(best[i]), q.want)]
		q.ids, q.coarse, q.fine = make([]uint32, len(list)), make([]float32, len(list)), make([]float32, len(list))
		for j, e := range list {
			q.ids[j], q.coarse[j] = e.doc, e.score
		}
		q.bound = b.boundOf(i)
		q.stats.ScanTokens = tiles * tileTokens
		q.stats.Streamed = bytes / int64(b.queries)
	}
	return b.fineStreamed(from)
}

// room is a target as large as the largest piece.
func (b *batch) room() target { return target{docs: b.a.part.docCap, tiles: b.a.part.tileCap} }

// pieces brings one piece after the other to the device and has scan start
// work on it; what that returns is called when the work is done, while the next
// piece is on its way.
func (b *batch) pieces(from kernels.Corpus, pieces []piece, scan func(t target, p *piece) (func() error, error)) error {
	d := b.d
	var next staged
	var err error
	for i := range pieces {
		if err := b.ended(); err != nil {
			return err
		}
		p := &pieces[i]
		if i == 0 {
			if next, err = d.stage(b.s, from, p, 0); err != nil {
				return err
			}
		}
		st := next
		b.a.part.docs, b.a.part.tiles = 0, 0
		if err := d.pack(b.a, st, p, b.a.part); err != nil {
			return err
		}
		then := func() error { return nil }
		if p.tiles > 0 {
			ids := st.raw.Add(st.at.ids)
			if then, err = scan(target{p: b.a.part, docs: p.docs, tiles: p.tiles, ids: ids}, p); err != nil {
				return err
			}
		}
		if err := d.release(st); err != nil {
			return err
		}
		if err := b.mark(atScanned); err != nil {
			return err
		}
		if i+1 < len(pieces) {
			if next, err = d.stage(b.s, from, &pieces[i+1], 0); err != nil {
				return err
			}
		}
		if err := d.ctx.SyncEvent(d.work.event[atScanned]); err != nil {
			return err
		}
		if err := then(); err != nil {
			return err
		}
	}
	return nil
}

// takeBest merges what rank has left of a piece.
func (b *batch) takeBest(best [][]entry) {
	host, le := b.d.work.hostOut.Data, binary.LittleEndian
	for q := range best {
		n := int64(le.Uint32(host[b.out.n+4*int64(q):]))
		for j := range n {
			at := 4 * (int64(q*b.k) + j)
			best[q] = append(best[q], entry{le.Uint32(host[b.out.ids+at:]), math.Float32frombits(le.Uint32(host[b.out.coarse+at:]))})
		}
		best[q] = topOf(best[q], b.k)
	}
}

// takeAll merges all scores of a piece, of the batch's one query.
func (b *batch) takeAll(best [][]entry, t target, p *piece, from kernels.Corpus) error {
	scores, err := b.scores(t)
	if err != nil {
		return err
	}
	allowed := b.tasks[0].search.restriction()
	i := 0
	for _, sp := range p.spans {
		first, _ := from.ChunkDocs(sp.chunk)
		for d := sp.lo; d < sp.hi; d++ {
			doc := first + uint32(d)
			if allowed[doc/64]>>(doc%64)&1 == 1 {
				best[0] = append(best[0], entry{doc, scores[i]})
			}
			i++
		}
	}
	best[0] = topOf(best[0], b.k)
	return nil
}

// fineStreamed fills the fine scores of the searches.
func (b *batch) fineStreamed(from kernels.Corpus) error {
	var docs []uint32
	for _, t := range b.tasks {
		docs = append(docs, t.search.ids...)
	}
	slices.Sort(docs)
	docs = slices.Compact(docs)
	cut := cutter{limit: b.a.pieceTokens()}
	addDocs(&cut, from, docs)
	w, le := &b.d.work, binary.LittleEndian
	local := make([]uint32, b.queries*b.k)
	base := 0 // of the piece in docs
	return b.pieces(from, cut.pieces, func(t target, p *piece) (func() error, error) {
		here := docs[base : base+int(p.docs)]
		base += int(p.docs)
		for i := range local {
			local[i] = noDocument
		}
		for q, task := range b.tasks {
			for j, doc := range task.search.ids {
				if at, ok := slices.BinarySearch(here, doc); ok {
					local[q*b.k+j] = uint32(at)
				}
			}
		}
		if err := b.d.ctx.ToDevice(b.outAt(b.out.ids), uint32Bytes(local), w.stream); err != nil {
			return nil, err
		}
		if err := b.fine(t.p); err != nil {
			return nil, err
		}
		if err := b.d.ctx.ToHost(w.hostOut.Data[b.out.fine:b.out.size], w.out.At(b.out.fine), w.stream); err != nil {
			return nil, err
		}
		return func() error {
			for q, task := range b.tasks {
				for j := range task.search.ids {
					if at := int64(q*b.k + j); local[at] != noDocument {
						task.search.fine[j] = math.Float32frombits(le.Uint32(w.hostOut.Data[b.out.fine+4*at:]))
					}
				}
			}
			return nil
		}, nil
	})
}

// addDocs adds listed documents, ascending.
func addDocs(cut *cutter, from kernels.Corpus, docs []uint32) {
	chunk, end := -1, uint32(0)
	var first uint32
	var off []uint32
	for _, d := range docs {
		if chunk < 0 || d >= end {
			chunk = sort.Search(from.Chunks(), func(i int) bool {
				f, o := from.ChunkDocs(i)
				return f+uint32(len(o)-1) > d
			})
			first, off = from.ChunkDocs(chunk)
			end = first + uint32(len(off)-1)
		}
		cut.add(chunk, int(d-first), int64(off[d-first+1]-off[d-first]))
	}
}
