package cuda

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/kernels"
)

// searchTask is a query on its way through the device: its scores by the scan,
// and the fine scores of the best of them.
type searchTask struct {
	at     *attachment
	corpus kernels.Corpus
	q      *kernels.DeviceQuery
	groups int
	want   int // documents that get a fine score
	docs   int // of the corpus

	// Filled by the device: the best by the scan, in order.
	ids    []uint32
	coarse []float32
	fine   []float32
	bound  float32 // of the error of coarse
	stats  kernels.DeviceStats
}

// joins reports whether two searches can share launches.
func (t *searchTask) joins(o *searchTask) bool {
	return t.at == o.at && t.docs == o.docs && t.corpus.Lineage() == o.corpus.Lineage() &&
		t.q.Probes == 0 && o.q.Probes == 0 && t.want <= maxTopK && o.want <= maxTopK &&
		same(t.q.Docs, o.q.Docs) && same(t.restriction(), o.restriction())
}

// restriction is the set of documents that may be returned.
func (t *searchTask) restriction() []uint64 {
	if t.q.Allowed != nil {
		return t.q.Allowed
	}
	live, _ := t.corpus.LiveSet()
	return live
}

// same reports whether two slices are one.
func same[T any](a, b []T) bool {
	return len(a) == len(b) && (a == nil) == (b == nil) && (len(a) == 0 || &a[0] == &b[0])
}

// margin is how many documents beyond k get a fine score, so that the error of
// the scan leaves the first k in no doubt.
func margin(k int) int { return k + k/4 + 28 }

// Search answers queries; see [kernels.Attachment].
func (a *attachment) Search(ctx context.Context, c kernels.Corpus, qs []kernels.DeviceQuery) ([]kernels.DeviceAnswer, error) {
	start := time.Now()
	docs := corpusDocs(c)
	answers := make([]kernels.DeviceAnswer, len(qs))
	pending := make([]*task, 0, len(qs))
	index := make([]int, 0, len(qs))
	for i := range qs {
		q := &qs[i]
		groups, err := checkQuery(c, q, docs)
		if err != nil {
			return nil, err
		}
		pending = append(pending, &task{ctx: ctx, search: &searchTask{
			at: a, corpus: c, q: q, groups: groups, want: min(margin(q.K), max(docs, 1)), docs: docs,
		}})
		index = append(index, i)
	}
	for len(pending) > 0 {
		if err := a.dev.enqueue(pending...); err != nil {
			return nil, err
		}
		if err := a.dev.waitAll(pending); err != nil {
			return nil, err
		}
		again := make([]bool, len(pending))
		each(len(pending), func(i int) {
			t := pending[i].search
			answers[index[i]].Docs, answers[index[i]].Scores, again[i] = t.order()
		})
		var more []*task
		var at []int
		for i, t := range pending {
			s := t.search
			ans := &answers[index[i]]
			s.stats.RefinedDocs = int64(len(s.ids))
			ans.Stats.Add(s.stats)
			next := &searchTask{at: a, corpus: c, q: s.q, groups: s.groups, want: s.want, docs: docs}
			switch {
			case s.q.Probes > 0 && len(s.ids) < s.q.K: // too few for an answer
				ans.Stats.Widened++
				all := *s.q
				all.Probes = 0
				next.q = &all
			case again[i] && s.want < min(maxTopK, docs):
				ans.Stats.Retried++
				next.want = min(4*s.want, maxTopK, docs)
			case again[i]:
				ans.Stats.InDoubt++
				continue
			default:
				continue
			}
			more = append(more, &task{ctx: ctx, search: next})
			at = append(at, index[i])
		}
		pending, index = more, at
	}
	for i := range answers {
		st := &answers[i].Stats
		st.Device, st.Searches = a.dev.info.Name, 1
		st.Times.Total = time.Since(start)
	}
	return answers, nil
}

// waitAll waits for every task and returns the first error.
func (d *Device) waitAll(tasks []*task) error {
	var first error
	for _, t := range tasks {
		if err := d.wait(t); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// each calls fn for 0 to n−1, on several goroutines where that pays.
func each(n int, fn func(i int)) {
	workers := min(n/8, runtime.GOMAXPROCS(0))
	if workers < 2 {
		for i := range n {
			fn(i)
		}
		return
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				fn(i)
			}
		})
	}
	wg.Wait()
}

func checkQuery(c kernels.Corpus, q *kernels.DeviceQuery, docs int) (groups int, err error) {
	dim := c.Codec().Dim()
	lq := len(q.Vectors) / dim
	switch {
	case lq == 0 || len(q.Vectors)%dim != 0:
		return 0, fmt.Errorf("%w: query of %d values, dimension %d", kernels.ErrShape, len(q.Vectors), dim)
	case q.Weights != nil && len(q.Weights) != lq:
		return 0, fmt.Errorf("%w: %d weights for %d query tokens", kernels.ErrShape, len(q.Weights), lq)
	case q.K < 1 || q.Probes < 0:
		return 0, fmt.Errorf("%w: k %d, %d probes", kernels.ErrShape, q.K, q.Probes)
	case q.Allowed != nil && len(q.Allowed) < (docs+63)/64:
		return 0, fmt.Errorf("%w: %d documents, %d words of allowed ones", kernels.ErrShape, docs, len(q.Allowed))
	case q.Docs != nil && q.Allowed != nil:
		return 0, fmt.Errorf("%w: both a list and a set of documents", kernels.ErrShape)
	}
	for i, d := range q.Docs {
		if int(d) >= docs || i > 0 && d <= q.Docs[i-1] {
			return 0, fmt.Errorf("%w: list of documents: %d at %d, of %d documents", kernels.ErrShape, d, i, docs)
		}
	}
	return ceilDiv(lq, columns), nil
}

func corpusDocs(c kernels.Corpus) int {
	n := c.Chunks()
	if n == 0 {
		return 0
	}
	first, off := c.ChunkDocs(n - 1)
	return int(first) + len(off) - 1
}

// fineError bounds the error of a fine score relative to the sum of
// |weight|·|q|: float32 products and sums of vectors of about unit length.
const fineError = 2e-5

// boundShare is the share of the bound that the error of a scan is taken to
// reach: all of it, but for scans with FP8 operands. Their bound adds up the
// largest error of every rounding; real ones cancel, the more the more tokens a
// query has. The share is what was seen with a margin, not a proof: over 1,800
// random shapes of all kinds the largest was 0.37, and 0.16 where the number of
// query tokens was noted (TestGPUAgainstOracle logs it). Should it be exceeded, a
// document whose score is within the error of the k-th may be missed.
func (s *shape) boundShare(tokens int) float64 {
	if s.mode <= halfMode {
		return 1
	}
	return 0.25 + 0.25/math.Sqrt(float64(tokens))
}

// order gives the K best by fine scores. doubtful says that a document that has
// none might belong among them.
func (t *searchTask) order() (docs []uint32, scores []float32, doubtful bool) {
	n := len(t.ids)
	at := make([]int, n)
	for i := range at {
		at[i] = i
	}
	slices.SortFunc(at, func(a, b int) int {
		switch {
		case t.fine[a] > t.fine[b]:
			return -1
		case t.fine[a] < t.fine[b]:
			return 1
		case t.ids[a] < t.ids[b]:
			return -1
		}
		return 1
	})
	k := min(t.q.K, n)
	docs, scores = make([]uint32, k), make([]float32, k)
	for i := range k {
		docs[i], scores[i] = t.ids[at[i]], t.fine[at[i]]
	}
	if n < t.want || n >= t.docs { // nothing is left out
		return docs, scores, false
	}
	// The k-th best fine score, and the most that a document without one can have.
	kth, most := float64(scores[k-1]), float64(t.coarse[n-1])+t.at.shape.boundShare(len(t.q.Vectors)/t.corpus.Codec().Dim())*float64(t.bound)
	return docs, scores, kth-fineError*t.magnitude() < most
}

// magnitude is the sum of |weight|·|q| of a query.
func (t *searchTask) magnitude() float64 {
	dim := t.corpus.Codec().Dim()
	sum := 0.0
	for s := range len(t.q.Vectors) / dim {
		square := 0.0
		for _, v := range t.q.Vectors[s*dim : (s+1)*dim] {
			square += float64(v) * float64(v)
		}
		w := 1.0
		if t.q.Weights != nil {
			w = math.Abs(float64(t.q.Weights[s]))
		}
		sum += w * math.Sqrt(square)
	}
	return sum
}

// putQuery writes the groups of a query, padded with zeros: vectors [32][dim]
// and weights [32] a group.
func putQuery(vectors, weights []byte, q *kernels.DeviceQuery, dim, groups int) {
	n := copy(vectors, float32Bytes(q.Vectors))
	clear(vectors[n : 4*groups*columns*dim])
	clear(weights[:4*groups*columns])
	for s := range len(q.Vectors) / dim {
		w := float32(1)
		if q.Weights != nil {
			w = q.Weights[s]
		}
		binary.LittleEndian.PutUint32(weights[4*s:], math.Float32bits(w))
	}
}
