package compressed

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// pickOnHost takes the place of pick where more documents are asked for than
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
	if t.listLen != 0 {
		var count [4]byte
		if err := c.ToHost(count[:], t.listLen, st); err != nil {
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
	l := listing{wanted: b.k, slack: b.slack, bound: bounds[0]}
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
	return b.putListed(l)
}

// fetchScores fetches the sums over the groups of a query.
func (b *batch) fetchScores(t target, query int) ([]float32, error) {
	sum := make([]float32, t.docs)
	row := sum
	for g := b.groupBegin[query]; g < b.groupBegin[query+1]; g++ {
		if g == b.groupBegin[query]+1 {
			row = make([]float32, t.docs)
		}
		if err := b.rt.Driver.ToHost(runtime.Bytes(row), b.scratchPtr(b.tmp.scores+4*int64(g)*t.docs), b.rt.Stream); err != nil {
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

// putListed writes what pick would.
func (b *batch) putListed(l listing) error {
	n := min(len(l.list), b.capacity)
	ids, coarse := make([]uint32, n), make([]float32, 2*n)
	for i, e := range l.list[:n] {
		ids[i], coarse[2*i], coarse[2*i+1] = e.doc, e.score, e.error
	}
	found := []uint32{uint32(len(l.list)), math.Float32bits(l.limit), math.Float32bits(l.bound.error), 0}
	c, st := b.rt.Driver, b.rt.Stream
	if err := c.ToDevice(b.outputPtr(b.out.ids), runtime.Bytes(ids), st); err != nil {
		return err
	}
	if err := c.ToDevice(b.outputPtr(b.out.coarse), runtime.Bytes(coarse), st); err != nil {
		return err
	}
	return c.ToDevice(b.outputPtr(b.out.found), runtime.Bytes(found), st)
}

// bound is the largest error of a query's scores by the scan, and of its fine
// scores.
type bound struct{ error, fine float32 }

// fetchBounds fetches the bounds of the queries. It waits for the device.
func (b *batch) fetchBounds() ([]bound, error) {
	of := make([][4]float32, b.groups*columns)
	if err := b.rt.Driver.ToHost(runtime.Bytes(of), b.scratchPtr(b.tmp.bound), b.rt.Stream); err != nil {
		return nil, err
	}
	if err := b.rt.Sync(); err != nil {
		return nil, err
	}
	out := make([]bound, b.queries)
	for q := range out {
		var sum [4]float64
		for _, column := range of[b.groupBegin[q]*columns : b.groupBegin[q+1]*columns] {
			for i, v := range column {
				sum[i] += float64(v)
			}
		}
		e := sum[0]
		if b.deviations >= 0 {
			e = min(e, sum[1]+float64(b.deviations)*math.Sqrt(sum[2]))
		}
		out[q] = bound{runtime.Above(float32(e)), fineError * float32(sum[3])}
	}
	return out, nil
}

// entry is a document with its score by the scan, and the most by which that errs.
type entry struct {
	doc          uint32
	score, error float32
}

// listing is what pick makes of scores, for scores that come to the host.
type listing struct {
	wanted int
	slack  float32
	bound  bound
	list   []entry
	limit  float32 // after prune
}

func (l *listing) addScore(doc uint32, score, error float32) {
	if score == score { // NaN is never among the best
		l.list = append(l.list, entry{doc, score, error})
	}
}

// keepCandidates leaves the documents that can be among the k best.
func (l *listing) keepCandidates() {
	l.limit = float32(math.Inf(-1))
	if len(l.list) >= l.wanted {
		low := make([]float32, len(l.list))
		for i, e := range l.list {
			low[i] = e.score - l.slack*e.error
		}
		slices.Sort(low)
		l.limit = low[len(low)-l.wanted]
	}
	l.list = slices.DeleteFunc(l.list, func(e entry) bool { return !(e.score+e.error+l.bound.fine >= l.limit) })
}
