package compressed

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// span is the documents lo to hi (exclusive) of a chunk.
type span struct{ chunk, lo, hi int }

// piece is a set of whole documents that is copied to the device at once, some megabytes.
type piece struct {
	spans  []span
	docs   int64
	tokens int64
	tiles  int64
}

// maxPieceDocs bounds the documents of a piece. It matters for documents with few tokens only.
const maxPieceDocs = 1 << 20

// pieceCutter gathers documents into pieces of at most limit tokens, and as many
// documents. A longer document is a piece of its own.
type pieceCutter struct {
	limit  int64
	pieces []piece
}

// addDocument appends a document of n tokens. Its neighbour in the same chunk extends
// the span.
func (c *pieceCutter) addDocument(chunk, doc int, n int64) {
	last := len(c.pieces) - 1
	full := last >= 0 && (c.pieces[last].tokens+n > c.limit && c.pieces[last].docs > 0 ||
		c.pieces[last].docs >= min(c.limit, maxPieceDocs))
	if last < 0 || full {
		c.pieces = append(c.pieces, piece{})
		last++
	}
	p := &c.pieces[last]
	if s := len(p.spans) - 1; s >= 0 && p.spans[s].chunk == chunk && p.spans[s].hi == doc {
		p.spans[s].hi++
	} else {
		p.spans = append(p.spans, span{chunk, doc, doc + 1})
	}
	p.docs++
	p.tokens += n
	p.tiles += runtime.CeilDiv(n, tileTokens)
}

// addCorpus adds the documents of a corpus from an ordinal on.
func (c *pieceCutter) addCorpus(from kernels.Corpus, ordinal int64) {
	for i := range from.Chunks() {
		first, off := from.ChunkDocs(i)
		for d := int(max(ordinal-int64(first), 0)); d < len(off)-1; d++ {
			c.addDocument(i, d, int64(off[d+1]-off[d]))
		}
	}
}

// stageLayout has the offsets of the arrays of a piece in its staging memory.
type stageLayout struct {
	offsets, firstTile, ids, codes, factors, residuals, size int64
}

func (s *shape) stageLayout(docs, tokens int64) stageLayout {
	var a runtime.Arena
	return stageLayout{
		offsets:   a.Append(4 * (docs + 1)),
		firstTile: a.Append(4 * (docs + 1)),
		ids:       a.Append(4 * docs),
		codes:     a.Append(tokens * int64(s.codeBytes)),
		factors:   a.Append(2 * tokens),
		residuals: a.Append(tokens * int64(s.rowBytes)),
		size:      a.Size,
	}
}

// copyThreads is the number of goroutines that copy a piece from mapped pages: a single one is
// slower than the bus.
const copyThreads = 8

// fillStage writes a piece of the corpus into staging memory. Tile numbers start at tile.
func (s *shape) fillStage(dst []byte, offsets stageLayout, p *piece, from kernels.Corpus, tile uint32) error {
	le := binary.LittleEndian
	type copyJob struct {
		chunk       *kernels.Chunk
		token, from int64 // of the piece, of the chunk
		n           int64
	}
	var jobs []copyJob
	doc, token := int64(0), int64(0)
	writeOffsets := func() {
		le.PutUint32(dst[offsets.offsets+4*doc:], uint32(token))
		le.PutUint32(dst[offsets.firstTile+4*doc:], tile)
	}
	for _, sp := range p.spans {
		ch, err := from.Load(sp.chunk)
		if err != nil {
			return err
		}
		if ch.CodeBytes != s.codeBytes {
			return fmt.Errorf("%w: codes of %d bytes, %d expected", kernels.ErrShape, ch.CodeBytes, s.codeBytes)
		}
		first, off := from.ChunkDocs(sp.chunk)
		jobs = append(jobs, copyJob{ch, token, int64(off[sp.lo]), int64(off[sp.hi] - off[sp.lo])})
		for d := sp.lo; d < sp.hi; d++ {
			writeOffsets()
			le.PutUint32(dst[offsets.ids+4*doc:], first+uint32(d))
			n := off[d+1] - off[d]
			token += int64(n)
			tile += runtime.CeilDiv(n, tileTokens)
			doc++
		}
	}
	writeOffsets()

	copyArrays := func(j copyJob) error {
		return from.Guard(func() error {
			copyRange := func(to int64, src []byte, width int64) {
				copy(dst[to+j.token*width:to+(j.token+j.n)*width], src[j.from*width:(j.from+j.n)*width])
			}
			copyRange(offsets.codes, j.chunk.Codes, int64(s.codeBytes))
			copyRange(offsets.factors, j.chunk.Factors, 2)
			copyRange(offsets.residuals, j.chunk.Residuals, int64(s.rowBytes))
			return nil
		})
	}
	// Jobs of about a megabyte, so that one large chunk keeps all threads busy.
	jobTokens := max(int64(1<<20)/int64(s.rowBytes+8), 1)
	var parts []copyJob
	for _, j := range jobs {
		for ; j.n > jobTokens; j.n -= jobTokens {
			parts = append(parts, copyJob{j.chunk, j.token, j.from, jobTokens})
			j.token += jobTokens
			j.from += jobTokens
		}
		parts = append(parts, j)
	}
	return parallel.Do(context.Background(), len(parts), copyThreads, func(i int) error { return copyArrays(parts[i]) })
}

// fineError bounds the error of a fine score relative to the sum of
// |weight|·|q|: float32 sums of products of vectors of about unit length.
const fineError = 2e-5

// The slack is how far the k-th best fine score may be below the k-th best score of the
// scan, in errors of the scan. It is seldom more than firstSlack; if it is, the search is
// repeated with lastSlack, which covers the error of both scores.
const firstSlack, lastSlack = 0.25, 2.5

// rankFine returns the K best documents by fine scores. neededCapacity is the capacity that the
// list needs if it was too short, else 0. doubtful means that a document below the
// threshold of the list may be among the K best.
func (t *request) rankFine() (docs []uint32, scores []float32, neededCapacity int, doubtful bool) {
	buffer := make([]uint64, 2*len(t.ids))
	keys := buffer[:len(t.ids)] // ascending keys: descending scores, then ascending numbers
	for i, s := range t.fine {
		b := math.Float32bits(s + 0) // −0 is 0
		if b>>31 == 0 {
			b = ^b &^ (1 << 31)
		}
		keys[i] = uint64(b)<<32 | uint64(t.ids[i])
	}
	keys = sortKeys(keys, buffer[len(keys):])
	k := min(t.query.K, len(keys))
	docs, scores = make([]uint32, k), make([]float32, k)
	for i, key := range keys[:k] {
		b := uint32(key >> 32)
		if b>>31 == 0 {
			b = ^b &^ (1 << 31)
		}
		docs[i], scores[i] = uint32(key), math.Float32frombits(b)
	}
	if t.listedDocs > len(t.ids) {
		return docs, scores, t.listedDocs, false
	}
	return docs, scores, 0, k == t.query.K && scores[k-1] < t.threshold
}

// sortKeys sorts keys, with a buffer of the same length, and returns the slice that has the
// result. It distributes the keys to 256 equal steps between the smallest and the largest, and
// sorts each step: scores are spread, so that a step has few keys. This takes less than half of
// the time of one sort of all keys, whose branches are mispredicted.
func sortKeys(keys, buffer []uint64) []uint64 {
	if len(keys) < 32 {
		slices.Sort(keys)
		return keys
	}
	smallest, largest := keys[0], keys[0]
	for _, k := range keys {
		smallest, largest = min(smallest, k), max(largest, k)
	}
	shift := max(bits.Len64(largest-smallest)-8, 0)
	var ends [256]int // first counts, then the index of the next key of each step, finally its end
	for _, k := range keys {
		ends[(k-smallest)>>shift]++
	}
	sum := 0
	for i, n := range ends {
		ends[i] = sum
		sum += n
	}
	for _, k := range keys {
		i := (k - smallest) >> shift
		buffer[ends[i]] = k
		ends[i]++
	}
	begin := 0
	for _, e := range ends {
		if e-begin > 1 {
			slices.Sort(buffer[begin:e])
		}
		begin = e
	}
	return buffer
}

type topkFirstParams struct {
	scores, groupBegin, ids, nDev, allowed, docMax, bound, keys, clock driver.Ptr
	stride                                                             uint64
	n, k                                                               uint32
	idsStride                                                          uint64
	maxByEntry                                                         uint32
	deviations, slack                                                  float32
	_                                                                  uint32
}

type topkNextParams struct {
	keys, out, outIDs, outScores, outN driver.Ptr
	n, k                               uint32
}

type pickParams struct {
	scores, groupBegin, ids, nDev, allowed, docMax, bound, kth, outIDs, outScores, found, clock driver.Ptr
	stride                                                                                      uint64
	n, k, capacity, maxByEntry                                                                  uint32
	deviations, slack, error                                                                    float32
	_                                                                                           uint32
}

// pickCandidates launches the kernels that list, for each query, the documents that may be among the k best.
func (b *batch) pickCandidates(t target) error {
	if t.docs == 0 {
		return nil
	}
	p := &pickParams{
		scores:     b.scratchPtr(b.tmp.scores),
		groupBegin: b.groupBeginPtr(),
		ids:        t.ids,
		nDev:       t.listLenPtr,
		allowed:    t.allowed,
		docMax:     t.packed.docMax.Ptr,
		bound:      b.scratchPtr(b.tmp.bound),
		outIDs:     b.outputPtr(b.out.ids),
		outScores:  b.outputPtr(b.out.coarse),
		found:      b.outputPtr(b.out.found),
		stride:     uint64(t.docs),
		n:          uint32(t.docs),
		k:          uint32(b.k),
		capacity:   uint32(b.capacity),
		maxByEntry: t.maxByEntry,
		deviations: b.deviations,
		slack:      b.slack,
		error:      fineError,
	}
	gx := int(runtime.CeilDiv(t.docs, topkBlock))
	if gx == 1 {
		p.clock = b.clockAt(clockScanned)
		return launchChained(b, "pick", 1, b.queries, 1, 1024, 0, p)
	}
	err := runtime.Launch(b.rt, "topk_first", gx, b.queries, 1, 1024, 0, &topkFirstParams{
		scores:     p.scores,
		groupBegin: p.groupBegin,
		ids:        p.ids,
		nDev:       p.nDev,
		allowed:    p.allowed,
		docMax:     p.docMax,
		bound:      p.bound,
		keys:       b.scratchPtr(b.tmp.keys),
		clock:      b.clockAt(clockScanned),
		stride:     p.stride,
		n:          p.n,
		k:          p.k,
		maxByEntry: p.maxByEntry,
		deviations: p.deviations,
		slack:      p.slack,
	})
	if err != nil {
		return err
	}
	p.kth = b.scratchPtr(b.tmp.kth)
	if err := b.mergeTopK(b.scratchPtr(b.tmp.keys), b.scratchPtr(b.tmp.keys2), gx*b.k, b.queries, b.k, 0,
		p.kth); err != nil {
		return err
	}
	return runtime.Launch(b.rt, "collect", gx, b.queries, 1, 256, 0, p)
}

// mergeTopK reduces rows of n keys to the keep best, in order, with the buffers from and to in turn.
func (b *batch) mergeTopK(from, to driver.Ptr, n, rows, keep int, ids, scores driver.Ptr) error {
	for {
		gx := runtime.CeilDiv(n, topkBlock)
		p := &topkNextParams{
			keys: from,
			out:  to,
			n:    uint32(n),
			k:    uint32(keep),
		}
		if gx == 1 {
			p.outIDs, p.outScores = ids, scores
		}
		if err := runtime.Launch(b.rt, "topk_next", gx, rows, 1, 1024, 0, p); err != nil || gx == 1 {
			return err
		}
		from, to, n = to, from, gx*keep
	}
}
