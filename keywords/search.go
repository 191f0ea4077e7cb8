package keywords

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/internal/topk"
)

// Mode says how the text of a query is read.
type Mode int

const (
	// Words takes any text as the words that are in it, each by itself. No sign has a
	// meaning.
	Words Mode = iota
	// Expression knows phrases ("in quotation marks"), prefixes (begin*), and what
	// must be there (+this) or not (-that). See docs/keywords.md.
	Expression
)

// BM25 are the parameters of the score.
type BM25 struct {
	K1 float64 `json:"k1"` // how soon more of a term counts no more; 0: at once
	B  float64 `json:"b"`  // how far the length of documents counts, 0 to 1
}

// DefaultBM25 is what [Query] means by nil.
var DefaultBM25 = BM25{K1: 1.2, B: 0.75}

// Query is a question to the keywords.
type Query struct {
	Text string
	Mode Mode
	// K is how many documents to return at most; at least 1.
	K int
	// Filter, where not nil, has the ordinals that may be returned.
	Filter *roaring.Bitmap
	// BM25 are the parameters; nil: [DefaultBM25].
	BM25 *BM25
}

// Hit is a document that was found.
type Hit struct {
	Ordinal uint32  `json:"ordinal"` // the document
	Score   float32 `json:"score"`   // above 0
}

// Search returns the best documents, the highest score first and equal ones in the
// order of their ordinals. Fewer than K are returned where fewer have a term of the
// query. A text without terms finds nothing.
//
// Errors: [ErrOption], [ErrSyntax], [ErrNotSynced], [ErrDamaged], [storage.ErrClosed],
// and that of the context.
func (ix *Index) Search(ctx context.Context, q Query) (hits []Hit, err error) {
	if q.K < 1 {
		return nil, fmt.Errorf("%w: %d documents", ErrOption, q.K)
	}
	p := DefaultBM25
	if q.BM25 != nil {
		p = *q.BM25
	}
	if !(p.K1 >= 0 && p.K1 <= math.MaxFloat32 && p.B >= 0 && p.B <= 1) {
		return nil, fmt.Errorf("%w: k1 %g, b %g", ErrOption, p.K1, p.B)
	}
	err = ix.view(func(tx *bolt.Tx, pic *picture) error {
		units, err := parse(q.Text, q.Mode, pic.state.Settings)
		if err != nil {
			return err
		}
		s := search{ctx: ctx, tx: tx, picture: pic, bm25: p, k: q.K, filter: q.Filter}
		hits, err = s.run(units)
		return err
	})
	return hits, err
}

type search struct {
	ctx    context.Context
	tx     *bolt.Tx
	bm25   BM25
	k      int
	filter *roaring.Bitmap
	*picture

	best []topk.Scored
}

// matches are the documents of a unit in a segment: a list as it is stored, or
// documents that were found.
type matches struct {
	list
	stored bool
	docs   []uint32
	tfs    []uint32
}

func (s *search) run(units []unit) ([]Hit, error) {
	if s.docs == 0 || len(units) == 0 || s.filter != nil && s.filter.IsEmpty() {
		return nil, s.ctx.Err()
	}
	found := make([][]matches, len(units)) // by unit and segment
	idf := make([]float64, len(units))
	for u := range units {
		df := 0
		found[u] = make([]matches, len(s.segments))
		for i := range s.segments {
			if err := s.ctx.Err(); err != nil {
				return nil, err
			}
			m, n, err := s.find(&units[u], &s.segments[i])
			if err != nil {
				return nil, err
			}
			found[u][i] = m
			df += n
		}
		idf[u] = units[u].weight * math.Log1p((float64(s.picture.docs)-float64(df)+.5)/(float64(df)+.5))
	}
	for i := range s.segments {
		if err := s.segment(i, units, found, idf); err != nil {
			return nil, err
		}
	}
	best := topk.Best(s.best, s.k)
	slices.SortFunc(best, topk.Order)
	hits := make([]Hit, len(best))
	for i, b := range best {
		hits[i] = Hit{Ordinal: b.Doc, Score: b.Score}
	}
	return hits, nil
}

// find looks a unit up in a segment, and counts the live documents that have it.
func (s *search) find(u *unit, g *shown) (m matches, df int, err error) {
	b := segmentBucket(s.tx, g.ID)
	if b == nil {
		return m, 0, errDamaged
	}
	switch {
	case u.prefix:
		m, err = s.prefix(b, u.terms[0], g)
	case len(u.terms) > 1:
		m, err = s.phrase(b, u, g)
	default:
		_, l, ok, err := lookup(b, g.ID, u.terms[0])
		if err != nil || !ok {
			return m, 0, err
		}
		m = matches{list: l, stored: true}
		if g.dead == nil {
			return m, l.docs, nil
		}
	}
	if err != nil {
		return m, 0, err
	}
	err = m.each(nil, g, func(doc, _ uint32) {
		if g.dead == nil || !g.dead.Contains(doc) {
			df++
		}
	})
	return m, df, err
}

// prefix counts all terms that begin with a text as one.
func (s *search) prefix(b *bolt.Bucket, text string, g *shown) (m matches, err error) {
	tfs := make([]uint32, len(g.segment.docs))
	r, err := readDict(b, g.ID, []byte(text))
	if err != nil {
		return m, err
	}
	for n := 1; bytes.HasPrefix(r.term, []byte(text)) && r.term != nil; n++ {
		if n%256 == 0 && s.ctx.Err() != nil {
			return m, s.ctx.Err()
		}
		_, l, err := r.list()
		if err != nil {
			return m, err
		}
		one := matches{list: l, stored: true}
		if err := one.each(nil, g, func(doc, tf uint32) { tfs[doc] += tf }); err != nil {
			return m, err
		}
		if err := r.advance(); err != nil {
			return m, err
		}
	}
	for doc, tf := range tfs {
		if tf > 0 {
			m.docs, m.tfs = append(m.docs, uint32(doc)), append(m.tfs, tf)
		}
	}
	return m, nil
}

// phrase finds the documents with all terms at their places, and counts how often.
func (s *search) phrase(b *bolt.Bucket, u *unit, g *shown) (m matches, err error) {
	docs := len(g.segment.docs)
	var at [][]posting
	for _, term := range u.terms {
		if err := s.ctx.Err(); err != nil {
			return m, err
		}
		key, l, ok, err := lookup(b, g.ID, term)
		if err != nil || !ok {
			return m, err
		}
		ps, err := l.all(make([]posting, 0, l.docs), key, docs)
		if err != nil {
			return m, err
		}
		at = append(at, ps)
	}
	var first, other []uint32
	next := make([]int, len(at))
	for _, p := range at[0] {
		first = p.appendPositions(first[:0])
		for t := 1; t < len(at) && len(first) > 0; t++ {
			for next[t] < len(at[t]) && at[t][next[t]].doc < p.doc {
				next[t]++
			}
			if next[t] == len(at[t]) {
				return m, nil
			}
			if at[t][next[t]].doc != p.doc {
				first = first[:0]
				break
			}
			other = at[t][next[t]].appendPositions(other[:0])
			first = slices.DeleteFunc(first, func(pos uint32) bool {
				_, ok := slices.BinarySearch(other, pos+u.places[t])
				return !ok
			})
		}
		if len(first) > 0 {
			m.docs, m.tfs = append(m.docs, p.doc), append(m.tfs, uint32(len(first)))
		}
	}
	return m, nil
}

// each calls fn for the documents, at least for those of a set; nil is all.
func (m *matches) each(set []uint64, g *shown, fn func(doc, tf uint32)) error {
	if !m.stored {
		for i, d := range m.docs {
			fn(d, m.tfs[i])
		}
		return nil
	}
	r := m.reader()
	for {
		more, err := r.next(set, len(g.segment.docs))
		if err != nil || !more {
			return err
		}
		for i := range r.n {
			fn(r.docs[i], r.tfs[i])
		}
	}
}

// sums are scores of the documents of a segment, kept between searches.
var sums = sync.Pool{New: func() any { return new([]float64) }}

// segment scores the documents of a segment.
func (s *search) segment(i int, units []unit, found [][]matches, idf []float64) error {
	g := &s.segments[i]
	allowed, any, err := s.allowed(i, units, found)
	if err != nil || !any {
		return err
	}
	docs := g.segment.docs
	pooled := sums.Get().(*[]float64)
	defer sums.Put(pooled)
	*pooled = slices.Grow((*pooled)[:0], len(docs))[:len(docs)]
	acc := *pooled
	clear(acc)
	var touched []uint32
	k1, flat := s.bm25.K1, s.bm25.K1*(1-s.bm25.B)
	slope := s.bm25.K1 * s.bm25.B * float64(s.picture.docs) / float64(s.tokens)
	for u := range units {
		if units[u].occur == mustNot {
			continue
		}
		if err := s.ctx.Err(); err != nil {
			return err
		}
		w := idf[u]
		err := found[u][i].each(allowed, g, func(doc, tf uint32) {
			if allowed != nil && !has(allowed, doc) {
				return
			}
			if acc[doc] == 0 {
				touched = append(touched, doc)
			}
			gain := w
			if k1 > 0 {
				gain = w * float64(tf) / (float64(tf) + flat + slope*float64(docs[doc].length))
			}
			acc[doc] += gain
		})
		if err != nil {
			return err
		}
	}
	for _, d := range touched {
		s.best = append(s.best, topk.Scored{Doc: docs[d].ordinal, Score: float32(acc[d])})
	}
	if len(s.best) > s.k {
		s.best = topk.Best(s.best, s.k)
	}
	return nil
}

// allowed is the set of documents that may be returned: nil for all of the segment.
func (s *search) allowed(i int, units []unit, found [][]matches) (set []uint64, any bool, err error) {
	g := &s.segments[i]
	docs := g.segment.docs
	if len(docs) == 0 {
		return nil, false, nil
	}
	if s.filter != nil {
		set = make([]uint64, setSize(len(docs)))
		it := s.filter.Iterator()
		it.AdvanceIfNeeded(docs[0].ordinal)
		for last := docs[len(docs)-1].ordinal; it.HasNext(); {
			o := it.Next()
			if o > last {
				break
			}
			if d, ok := g.local(o); ok {
				set[d/64] |= 1 << (d % 64)
				any = true
			}
		}
		if !any {
			return nil, false, nil
		}
	}
	full := func() {
		if set == nil {
			set = make([]uint64, setSize(len(docs)))
			for d := range set {
				set[d] = ^uint64(0)
			}
			if n := len(docs) % 64; n != 0 {
				set[len(set)-1] = 1<<n - 1
			}
		}
	}
	if g.dead != nil {
		full()
		for it := g.dead.Iterator(); it.HasNext(); {
			d := it.Next()
			set[d/64] &^= 1 << (d % 64)
		}
	}
	for u := range units {
		if units[u].occur == may {
			continue
		}
		full()
		these := make([]uint64, len(set))
		err := found[u][i].each(set, g, func(doc, _ uint32) { these[doc/64] |= 1 << (doc % 64) })
		if err != nil {
			return nil, false, err
		}
		for w := range set {
			if units[u].occur == must {
				set[w] &= these[w]
			} else {
				set[w] &^= these[w]
			}
		}
	}
	return set, set == nil || slices.ContainsFunc(set, func(w uint64) bool { return w != 0 }), nil
}
