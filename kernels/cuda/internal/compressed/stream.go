package compressed

import (
	"encoding/binary"
	"math"
	"slices"
	"sort"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// streamed answers a batch on an index that does not fit: its pieces cross the
// bus one after another, the next one while one is scanned; the best of each
// are merged on the host. Then the best of all cross again for their fine
// scores. Results are those of a resident index.
func (b *batch) streamed() error {
	first := b.requests[0]
	from := first.corpus
	cut := cutter{limit: b.a.pieceTokens()}
	if first.q.Docs != nil {
		addDocs(&cut, from, first.q.Docs)
	} else {
		cut.docs(from, 0)
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
		w := &b.rt.Work
		if err := b.rt.Driver.ToHost(w.HostOut[:b.out.fine], w.Out.Ptr, b.rt.Stream); err != nil {
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
	for i, q := range b.requests {
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
	var next staged
	var err error
	for i := range pieces {
		if err := b.ended(); err != nil {
			return err
		}
		p := &pieces[i]
		if i == 0 {
			if next, err = b.a.stage(from, p, 0); err != nil {
				return err
			}
		}
		st := next
		b.a.part.docs, b.a.part.tiles = 0, 0
		if err := b.a.pack(st, p, b.a.part); err != nil {
			return err
		}
		then := func() error { return nil }
		if p.tiles > 0 {
			ids := st.Raw.Add(st.at.ids)
			if then, err = scan(target{p: b.a.part, docs: p.docs, tiles: p.tiles, ids: ids}, p); err != nil {
				return err
			}
		}
		if err := b.rt.Unstage(st.Staged); err != nil {
			return err
		}
		if err := b.rt.Mark(atScanned); err != nil {
			return err
		}
		if i+1 < len(pieces) {
			if next, err = b.a.stage(from, &pieces[i+1], 0); err != nil {
				return err
			}
		}
		if err := b.rt.SyncMark(atScanned); err != nil {
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
	host, le := b.rt.Work.HostOut, binary.LittleEndian
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
	allowed := b.requests[0].restriction()
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
	for _, t := range b.requests {
		docs = append(docs, t.ids...)
	}
	slices.Sort(docs)
	docs = slices.Compact(docs)
	cut := cutter{limit: b.a.pieceTokens()}
	addDocs(&cut, from, docs)
	w, le := &b.rt.Work, binary.LittleEndian
	local := make([]uint32, b.queries*b.k)
	base := 0 // of the piece in docs
	return b.pieces(from, cut.pieces, func(t target, p *piece) (func() error, error) {
		here := docs[base : base+int(p.docs)]
		base += int(p.docs)
		for i := range local {
			local[i] = noDocument
		}
		for q, t := range b.requests {
			for j, doc := range t.ids {
				if at, ok := slices.BinarySearch(here, doc); ok {
					local[q*b.k+j] = uint32(at)
				}
			}
		}
		if err := b.rt.Driver.ToDevice(b.outAt(b.out.ids), runtime.Bytes(local), b.rt.Stream); err != nil {
			return nil, err
		}
		if err := b.fine(t.p); err != nil {
			return nil, err
		}
		if err := b.rt.Driver.ToHost(w.HostOut[b.out.fine:b.out.size], w.Out.At(b.out.fine), b.rt.Stream); err != nil {
			return nil, err
		}
		return func() error {
			for q, t := range b.requests {
				for j := range t.ids {
					if at := int64(q*b.k + j); local[at] != noDocument {
						t.fine[j] = math.Float32frombits(le.Uint32(w.HostOut[b.out.fine+4*at:]))
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
		cut.cut(chunk, int(d-first), int64(off[d-first+1]-off[d-first]))
	}
}
