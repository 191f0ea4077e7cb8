package compressed

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// rankOnHost takes the place of rank where more documents are asked for than
// the device can rank. Such a batch has one query. It waits for the device.
func (b *batch) rankOnHost(t target) error {
	c, st := b.rt.Driver, b.rt.Stream
	scores, err := b.scores(t)
	if err != nil {
		return err
	}
	q := b.requests[0]
	numbers := q.q.Docs
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
		if err := b.rt.Driver.ToHost(runtime.Bytes(row), b.tmpAt(b.tmp.scores+4*int64(g)*t.docs), b.rt.Stream); err != nil {
			return nil, err
		}
		if err := b.rt.Sync(); err != nil {
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
	c, st := b.rt.Driver, b.rt.Stream
	if err := c.ToDevice(b.outAt(b.out.ids), runtime.Bytes(ids), st); err != nil {
		return err
	}
	return c.ToDevice(b.outAt(b.out.coarse), runtime.Bytes(scores), st)
}

// entry is a document with a score.
type entry struct {
	doc   uint32
	score float32
}

func byScore(a, b entry) int {
	switch {
	case a.score > b.score:
		return -1
	case a.score < b.score:
		return 1
	case a.doc < b.doc:
		return -1
	case a.doc > b.doc:
		return 1
	}
	return 0
}

// topOf keeps the k best of a list.
func topOf(list []entry, k int) []entry {
	slices.SortFunc(list, byScore)
	return list[:min(k, len(list))]
}
