package compressed

import (
	"math"
	"math/bits"
	"slices"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// fineError bounds the error of a fine score relative to the sum of
// |weight|·|q|: float32 sums of products of vectors of about unit length.
const fineError = 2e-5

// The slack is how far the k-th best fine score may be below the k-th best score of the
// scan, in errors of the scan. It is seldom more than firstSlack; if it is, the search is
// repeated with lastSlack. A search that is in doubt even then is counted as such.
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
