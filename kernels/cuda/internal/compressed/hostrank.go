package compressed

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// pickOnHost picks the candidates of a query on the host, if it wants more documents than
// the device can rank. Such a batch has one query. It waits for the device.
func (b *batch) pickOnHost(t target) error {
	c, st := b.rt.Driver, b.rt.Stream
	bounds, err := b.fetchBounds()
	if err != nil {
		return err
	}
	scores, err := b.fetchScores(t, 0)
	if err != nil {
		return err
	}
	q := b.requests[0]
	numbers := q.query.Docs
	if t.listLenPtr != 0 {
		var count [4]byte
		if err := c.ToHost(count[:], t.listLenPtr, st); err != nil {
			return err
		}
		if err := b.rt.Sync(); err != nil {
			return err
		}
		numbers = make([]uint32, binary.LittleEndian.Uint32(count[:]))
		if err := c.ToHost(runtime.Bytes(numbers), t.ids, st); err != nil {
			return err
		}
		if err := b.rt.Sync(); err != nil {
			return err
		}
		scores = scores[:len(numbers)]
	}
	l := candidateList{wanted: b.k, slack: b.slack, bound: bounds[0]}
	allowed := q.restriction()
	for i, s := range scores {
		doc := uint32(i)
		if numbers != nil {
			doc = numbers[i]
		}
		if allowed[doc/64]>>(doc%64)&1 == 1 {
			l.addScore(doc, s, l.bound.error)
		}
	}
	l.keepCandidates()
	return b.writeListing(l)
}

// fetchScores copies the scores of a query, summed over its groups, from the device. It waits for it.
func (b *batch) fetchScores(t target, query int) ([]float32, error) {
	sum := make([]float32, t.docs)
	row := sum
	for g := b.groupBegin[query]; g < b.groupBegin[query+1]; g++ {
		if g == b.groupBegin[query]+1 {
			row = make([]float32, t.docs)
		}
		if err := b.rt.Driver.ToHost(runtime.Bytes(row), b.scratchPtr(b.tmp.scores+4*int64(g)*t.docs),
			b.rt.Stream); err != nil {
			return nil, err
		}
		if err := b.rt.Sync(); err != nil {
			return nil, err
		}
		if g > b.groupBegin[query] {
			for i, v := range row {
				sum[i] += v
			}
		}
	}
	return sum, nil
}

// writeListing writes a list to the device as pick does.
func (b *batch) writeListing(l candidateList) error {
	n := min(len(l.candidates), b.capacity)
	ids, coarse := make([]uint32, n), make([]float32, 2*n)
	for i, e := range l.candidates[:n] {
		ids[i], coarse[2*i], coarse[2*i+1] = e.doc, e.score, e.error
	}
	found := []uint32{uint32(len(l.candidates)), math.Float32bits(l.threshold), math.Float32bits(l.bound.error), 0}
	c, st := b.rt.Driver, b.rt.Stream
	if err := c.ToDevice(b.outputPtr(b.out.ids), runtime.Bytes(ids), st); err != nil {
		return err
	}
	if err := c.ToDevice(b.outputPtr(b.out.coarse), runtime.Bytes(coarse), st); err != nil {
		return err
	}
	return c.ToDevice(b.outputPtr(b.out.found), runtime.Bytes(found), st)
}

// bound has the bounds of the errors of a query's scores: those of the scan, and the fine scores.
type bound struct{ error, fine float32 }

// fetchBounds copies the bounds of the queries from the device. It waits for it.
func (b *batch) fetchBounds() ([]bound, error) {
	columnBounds := make([][4]float32, b.groups*columns)
	if err := b.rt.Driver.ToHost(runtime.Bytes(columnBounds), b.scratchPtr(b.tmp.bound), b.rt.Stream); err != nil {
		return nil, err
	}
	if err := b.rt.Sync(); err != nil {
		return nil, err
	}
	out := make([]bound, b.queries)
	for q := range out {
		var sum [4]float64
		for _, column := range columnBounds[b.groupBegin[q]*columns : b.groupBegin[q+1]*columns] {
			for i, v := range column {
				sum[i] += float64(v)
			}
		}
		e := sum[0]
		if b.deviations >= 0 {
			e = min(e, sum[1]+float64(b.deviations)*math.Sqrt(sum[2]))
		}
		out[q] = bound{runtime.RoundUp(float32(e)), fineError * float32(sum[3])}
	}
	return out, nil
}

// candidate is a document with its score of the scan, and the bound of the error of that score.
type candidate struct {
	doc          uint32
	score, error float32
}

// candidateList lists candidates on the host as the kernel pick does on the device.
type candidateList struct {
	wanted     int
	slack      float32
	bound      bound
	candidates []candidate
	threshold  float32 // lowest score to keep, set by keepCandidates
}

// addScore appends a document, unless its score is NaN.
func (l *candidateList) addScore(doc uint32, score, error float32) {
	if score == score { // false for NaN
		l.candidates = append(l.candidates, candidate{doc, score, error})
	}
}

// keepCandidates sets the threshold, and removes the documents that cannot be among the wanted best.
func (l *candidateList) keepCandidates() {
	l.threshold = float32(math.Inf(-1))
	if len(l.candidates) >= l.wanted {
		low := make([]float32, len(l.candidates))
		for i, e := range l.candidates {
			low[i] = e.score - l.slack*e.error
		}
		slices.Sort(low)
		l.threshold = low[len(low)-l.wanted]
	}
	l.candidates = slices.DeleteFunc(l.candidates,
		func(e candidate) bool { return !(e.score+e.error+l.bound.fine >= l.threshold) })
}
