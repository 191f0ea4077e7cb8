package compressed

import (
	"slices"
	"sort"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// searchStreamed answers a batch on an index that does not fit on the device. Its pieces are copied
// there one after another, each while the previous one is scanned, and the host merges the
// best documents of the pieces. Then the best of all are copied again for their fine
// scores. Results are those of a resident index. For example, an index of three pieces, and 8
// queries that want 100 documents each:
//
//	scanPieces     lists the 100 best of each piece for each query, and those in doubt
//	keepForFine    keeps the 100 best of the three pieces, and those in doubt
//	fineStreamed   copies these 800 or more documents again, once if queries share them
func (b *batch) searchStreamed() error {
	from := b.requests[0].corpus
	cut := pieceCutter{limit: b.attachment.maxPieceTokens()}
	if docs := b.requests[0].query.Docs; docs != nil {
		addListedDocuments(&cut, from, docs)
	} else {
		cut.addCorpus(from, 0)
	}
	// The host picks the candidates if a piece has more documents than the device can rank.
	wide := b.k > maxTopK && b.largestPiece().docs > topkBlock
	if err := b.reserve(b.largestPiece(), false, wide); err != nil {
		return err
	}
	tgt := target{}
	if err := b.uploadQueries(&tgt); err != nil {
		return err
	}
	if err := b.prepareQueries(false); err != nil {
		return err
	}
	bounds, err := b.fetchBounds()
	if err != nil {
		return err
	}
	lists := make([]candidateList, b.queries)
	for i := range lists {
		lists[i] = candidateList{wanted: b.k, slack: b.slack, bound: bounds[i]}
	}
	bytes, tiles, err := b.scanPieces(lists, from, cut.pieces, tgt.allowed, wide)
	if err != nil {
		return err
	}
	for i, q := range b.requests {
		q.keepForFine(&lists[i], b.capacity)
		q.stats.ScanTokens = tiles * tileTokens
		q.stats.Streamed = bytes / int64(b.queries)
	}
	if err := b.fineStreamed(from); err != nil {
		return err
	}
	for i, q := range b.requests {
		for j, e := range lists[i].candidates {
			if e.error > 0 {
				q.boundShare = max(q.boundShare, (q.fine[j]-e.score)/e.error)
			}
		}
	}
	return nil
}

// keepForFine selects the documents that get fine scores: the candidates on the list, up to capacity.
func (q *request) keepForFine(list *candidateList, capacity int) {
	list.keepCandidates()
	q.listedDocs, q.threshold = len(list.candidates), list.threshold
	list.candidates = list.candidates[:min(len(list.candidates), capacity)]
	q.ids, q.fine = make([]uint32, len(list.candidates)), make([]float32, len(list.candidates))
	for j, e := range list.candidates {
		q.ids[j] = e.doc
	}
}

// scanPieces adds the candidates of all pieces to the lists of the queries, and returns how many
// bytes and tiles were copied.
func (b *batch) scanPieces(
	lists []candidateList, from kernels.Corpus, pieces []piece, allowed driver.Ptr, wide bool,
) (bytes, tiles int64, err error) {
	err = b.forEachPiece(from, pieces, func(t target, p *piece) (func() error, error) {
		bytes += b.shape.stageLayout(p.docs, p.tokens).size
		tiles += p.tiles
		t.allowed = allowed
		if err := b.scanTarget(t); err != nil {
			return nil, err
		}
		if wide {
			return func() error { return b.addAllScored(&lists[0], 0, t, p, from) }, nil
		}
		w := &b.rt.Work
		if err := b.rt.Driver.Set(b.outputPtr(b.out.found), 0, 16*int64(b.queries), b.rt.Stream); err != nil {
			return nil, err
		}
		if err := b.pickCandidates(t); err != nil {
			return nil, err
		}
		if err := b.rt.Driver.ToHost(w.HostOut[:b.out.size], w.Out.Ptr, b.rt.Stream); err != nil {
			return nil, err
		}
		return func() error { return b.addListed(lists, t, p, from) }, nil
	})
	return bytes, tiles, err
}

// largestPiece returns a target as large as the largest piece, to reserve memory for.
func (b *batch) largestPiece() target {
	return target{docs: b.attachment.streamPiece.docCap, tiles: b.attachment.streamPiece.tileCap}
}

// forEachPiece copies one piece after another to the device, and calls scan to start
// work on it. The function that scan returns collects the results: it is called when that work is
// done, while the next piece is being copied. For two pieces:
//
//	stage 0                the copy to the device begins
//	pack 0, scan 0         wait for it on the device; the host goes on
//	stage 1                is copied while 0 is scanned
//	wait for scan 0        and collect its results
//	pack 1, scan 1, wait   no piece remains to be staged
func (b *batch) forEachPiece(
	from kernels.Corpus, pieces []piece, scan func(t target, p *piece) (func() error, error),
) error {
	var staged stagedPiece
	var collect func() error
	for i := range pieces {
		err := b.contextsErr()
		if err == nil && i == 0 {
			staged, err = b.attachment.stagePiece(from, &pieces[0], 0)
		}
		if err == nil {
			collect, err = b.startScan(staged, &pieces[i], scan)
		}
		if err == nil && i+1 < len(pieces) {
			staged, err = b.attachment.stagePiece(from, &pieces[i+1], 0)
		}
		if err == nil {
			err = b.rt.SyncPoint(clockScanned)
		}
		if err == nil {
			err = collect()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// startScan packs a staged piece, starts the scan, and records the point clockScanned at its end. It
// returns the function that collects the results.
func (b *batch) startScan(
	st stagedPiece, p *piece, scan func(t target, p *piece) (func() error, error),
) (collect func() error, err error) {
	part := b.attachment.streamPiece
	part.docs, part.tiles = 0, 0
	if err := b.attachment.packPiece(st, p, part); err != nil {
		return nil, err
	}
	collect = func() error { return nil }
	if p.tiles > 0 {
		ids := st.Raw.Add(st.offsets.ids)
		if collect, err = scan(target{
			packed:     part,
			docs:       p.docs,
			tiles:      p.tiles,
			ids:        ids,
			maxByEntry: 1,
		}, p); err != nil {
			return nil, err
		}
	}
	if err := b.rt.Unstage(st.Staged); err != nil {
		return nil, err
	}
	return collect, b.rt.RecordPoint(clockScanned)
}

// addListed adds the documents of a piece that pick has listed. If a list was too short, it adds all
// documents of the piece with their scores.
func (b *batch) addListed(lists []candidateList, t target, p *piece, from kernels.Corpus) error {
	host := b.rt.Work.HostOut
	for q := range lists {
		n, _, _ := b.pickResult(q)
		if n > b.capacity {
			if err := b.addAllScored(&lists[q], q, t, p, from); err != nil {
				return err
			}
			continue
		}
		coarse := make([][2]float32, n)
		copy(runtime.Bytes(coarse), host[b.out.coarse+8*int64(q*b.capacity):])
		for i, doc := range copyAnswers[uint32](b, b.out.ids, q, n) {
			lists[q].addScore(doc, coarse[i][0], coarse[i][1])
		}
		lists[q].keepCandidates()
	}
	return nil
}

// addAllScored adds all documents of a piece that may be returned, with their scores.
func (b *batch) addAllScored(list *candidateList, query int, t target, p *piece, from kernels.Corpus) error {
	scores, err := b.fetchScores(t, query)
	if err != nil {
		return err
	}
	allowed := b.requests[query].restriction()
	i := 0
	for _, sp := range p.spans {
		first, _ := from.ChunkDocs(sp.chunk)
		for d := sp.lo; d < sp.hi; d++ {
			doc := first + uint32(d)
			if allowed[doc/64]>>(doc%64)&1 == 1 {
				list.addScore(doc, scores[i], list.bound.error)
			}
			i++
		}
	}
	list.keepCandidates()
	return nil
}

// fineStreamed copies the listed documents of all queries to the device again, and sets their fine scores.
func (b *batch) fineStreamed(from kernels.Corpus) error {
	var docs []uint32
	for _, t := range b.requests {
		docs = append(docs, t.ids...)
	}
	slices.Sort(docs)
	docs = slices.Compact(docs)
	cut := pieceCutter{limit: b.attachment.maxPieceTokens()}
	addListedDocuments(&cut, from, docs)
	indexInPiece, indexInRequest := make([]uint32, b.queries*b.capacity), make([]int, b.queries*b.capacity)
	found := make([]uint32, 4*b.queries)
	base := 0 // of the piece in docs
	return b.forEachPiece(from, cut.pieces, func(t target, p *piece) (func() error, error) {
		inPiece := docs[base : base+int(p.docs)]
		base += int(p.docs)
		clear(found)
		for q, t := range b.requests {
			n := 0
			for j, doc := range t.ids {
				if i, ok := slices.BinarySearch(inPiece, doc); ok {
					indexInPiece[q*b.capacity+n], indexInRequest[q*b.capacity+n] = uint32(i), j
					n++
				}
			}
			found[4*q] = uint32(n)
		}
		c, st, w := b.rt.Driver, b.rt.Stream, &b.rt.Work
		if err := c.ToDevice(b.outputPtr(b.out.ids), runtime.Bytes(indexInPiece), st); err != nil {
			return nil, err
		}
		if err := c.ToDevice(b.outputPtr(b.out.found), runtime.Bytes(found), st); err != nil {
			return nil, err
		}
		if err := b.fineScores(t.packed, false); err != nil {
			return nil, err
		}
		if err := c.ToHost(w.HostOut[b.out.fine:b.out.coarse], w.Out.At(b.out.fine), st); err != nil {
			return nil, err
		}
		return func() error {
			for q, t := range b.requests {
				n := int(found[4*q])
				for i, s := range copyAnswers[float32](b, b.out.fine, q, n) {
					t.fine[indexInRequest[q*b.capacity+i]] = s
				}
			}
			return nil
		}, nil
	})
}

// addListedDocuments adds documents by their ordinals, which ascend.
func addListedDocuments(cut *pieceCutter, from kernels.Corpus, docs []uint32) {
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
		cut.addDocument(chunk, int(d-first), int64(off[d-first+1]-off[d-first]))
	}
}
