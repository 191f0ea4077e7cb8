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

// Mode selects how the text of a query is read.
type Mode int

const (
	// Words reads any text as a list of words. No sign has a meaning.
	Words Mode = iota
	// Expression supports phrases ("in quotation marks"), prefixes (begin*), and required (+this)
	// and excluded (-that) items. See docs/keywords.md.
	Expression
)

// BM25 are the parameters of the score.
type BM25 struct {
	K1 float64 `json:"k1"` // how slowly further occurrences of a term lose weight. 0 means that only the first counts
	B  float64 `json:"b"`  // how much long documents are penalized, 0 to 1
}

// DefaultBM25 is the default of [Query].
var DefaultBM25 = BM25{K1: 1.2, B: 0.75}

// Query is a query by keywords.
type Query struct {
	Text string
	Mode Mode
	// K is how many documents to return at most; at least 1.
	K int
	// Filter, where not nil, has the ordinals that may be returned.
	Filter *roaring.Bitmap
	// BM25 are the parameters. nil means [DefaultBM25].
	BM25 *BM25
	// Statistics, where set, replaces the statistics of this index by the sum over all indexes that
	// are searched as one.
	Statistics *Statistics
}

// Statistics are the numbers of a collection that the score of a document depends on. They can be
// added up over several indexes that have the same settings and no document in common.
type Statistics struct {
	Docs   int    `json:"docs"`   // that have text
	Tokens uint64 `json:"tokens"` // of these documents
	// Found is how many documents match each part of the query.
	Found []int `json:"found"`
}

// Add adds the statistics of another index for the same query.
func (s *Statistics) Add(o *Statistics) error {
	if s.Found == nil && s.Docs == 0 {
		s.Found = make([]int, len(o.Found))
	}
	if len(o.Found) != len(s.Found) {
		return fmt.Errorf("%w: statistics of %d parts of a query and of %d", ErrOption, len(s.Found), len(o.Found))
	}
	s.Docs += o.Docs
	s.Tokens += o.Tokens
	for i, n := range o.Found {
		s.Found[i] += n
	}
	return nil
}

// Check returns an error for a query that an index with these settings would refuse. It ignores K.
func (q *Query) Check(s Settings) error {
	s, err := s.Check()
	if err == nil {
		_, err = parse(*q, s)
	}
	return err
}

// Statistics counts the matches of a query in this index, as Search does. It ignores K, Filter and
// BM25.
func (ix *Index) Statistics(ctx context.Context, q Query) (st Statistics, err error) {
	err = ix.withSnapshot(func(tx *bolt.Tx, snap *snapshot) error {
		units, err := parse(q, snap.state.Settings)
		if err != nil {
			return err
		}
		s := search{ctx: ctx, tx: tx, snapshot: snap, units: units}
		st = Statistics{Docs: snap.docs, Tokens: snap.tokens}
		st.Found, err = s.countMatches()
		return err
	})
	return st, err
}

// ScoredDocument is a document of a result.
type ScoredDocument struct {
	Ordinal uint32  `json:"ordinal"` // of the document
	Score   float32 `json:"score"`   // above 0
}

// Search returns the best documents, the highest score first and equal ones in the order of their
// ordinals. It returns fewer than K if fewer documents match. A text without terms matches nothing.
//
// Errors: [ErrOption], [ErrSyntax], [ErrTooLong], [ErrNotSynced], [ErrDamaged],
// [storage.ErrClosed], and that of the context.
func (ix *Index) Search(ctx context.Context, q Query) (hits []ScoredDocument, err error) {
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
	err = ix.withSnapshot(func(tx *bolt.Tx, snap *snapshot) error {
		units, err := parse(q, snap.state.Settings)
		if err != nil {
			return err
		}
		s := search{
			ctx:        ctx,
			tx:         tx,
			snapshot:   snap,
			bm25:       p,
			k:          q.K,
			filter:     q.Filter,
			units:      units,
			statistics: q.Statistics,
		}
		hits, err = s.rankDocuments()
		return err
	})
	return hits, err
}

// search is one query in one transaction.
type search struct {
	ctx    context.Context
	steps  int // since the last check of ctx
	tx     *bolt.Tx
	bm25   BM25
	k      int
	filter *roaring.Bitmap
	*snapshot

	units      []unit
	statistics *Statistics // nil means those of the snapshot
	found      [][]matches // by unit and segment
	keptBytes  int         // memory of found
	idf        []float64   // inverse document frequencies of units, times their weights
	slope      float64     // added to the denominator of BM25 for each token of a document

	best []topk.Scored
}

// Limits of a search, in addition to [MaxWords].
var (
	maxKeptBytes  = 16 << 20 // of matches of prefixes and phrases; further ones are dropped and found again
	stepsPerCheck = 1 << 14  // documents or positions between two checks of the context
)

// Bytes estimates the memory of a search in an index with this many documents: the scores of a
// segment and the best documents, matches of prefixes and phrases, and a block of the list of each
// word of a phrase.
func (q *Query) Bytes(docs int) int64 {
	const scoredBytes, matchBytes, blockBytes = 24, 8, 2 << 10
	n := int64(docs)
	total := scoredBytes * n
	if q.Mode == Expression {
		words := min(MaxWords, 1+len(q.Text)/2) // a word and a blank have at least two bytes
		total += matchBytes*n + min(int64(maxKeptBytes), matchBytes*n*int64(words)) + blockBytes*int64(words)
	}
	return total
}

// countSteps counts steps, and checks the context every stepsPerCheck of them.
func (s *search) countSteps(steps int) error {
	if s.steps += steps; s.steps < stepsPerCheck {
		return nil
	}
	s.steps = 0
	return s.ctx.Err()
}

// matches are the documents of a unit in a segment: a stored list, or docs with tfs, or nothing
// because docs did not fit in memory.
type matches struct {
	storedList
	stored  bool // storedList has the documents
	dropped bool // docs were too many to keep; find them again
	docs    []uint32
	tfs     []uint32
}

// rankDocuments returns the best documents.
func (s *search) rankDocuments() ([]ScoredDocument, error) {
	if s.docs == 0 || len(s.units) == 0 || s.filter != nil && s.filter.IsEmpty() {
		return nil, s.ctx.Err()
	}
	localCounts, err := s.countMatches()
	if err != nil {
		return nil, err
	}
	if s.statistics == nil {
		s.statistics = &Statistics{s.snapshot.docs, s.tokens, localCounts}
	}
	if len(s.statistics.Found) != len(s.units) {
		return nil, fmt.Errorf("%w: statistics of %d parts of a query that has %d",
			ErrOption, len(s.statistics.Found), len(s.units))
	}
	// Earlier statistics may count fewer documents than this index has now, or more documents with
	// a term than documents. Correct them: otherwise a score could be negative.
	docs, tokens := s.statistics.Docs, s.statistics.Tokens
	if docs < s.docs {
		docs, tokens = s.docs, s.tokens
	}
	s.slope = s.bm25.K1 * s.bm25.B * float64(docs) / float64(max(tokens, 1))
	s.idf = make([]float64, len(s.units))
	for u, n := range s.statistics.Found {
		df := max(n, localCounts[u])
		s.idf[u] = s.units[u].weight * math.Log1p((float64(max(docs, df)-df)+.5)/(float64(df)+.5))
	}
	for i := range s.segments {
		if err := s.scoreSegment(i); err != nil {
			return nil, err
		}
	}
	top := topk.Best(s.best, s.k)
	slices.SortFunc(top, topk.Order)
	hits := make([]ScoredDocument, len(top))
	for i, b := range top {
		hits[i] = ScoredDocument{Ordinal: b.Doc, Score: b.Score}
	}
	return hits, nil
}

// countMatches finds each unit in all segments, and returns how many live documents match it. It
// keeps the matches in s.found, up to maxKeptBytes.
func (s *search) countMatches() ([]int, error) {
	s.found = make([][]matches, len(s.units))
	counts := make([]int, len(s.units))
	for u := range s.units {
		s.found[u] = make([]matches, len(s.segments))
		for i := range s.segments {
			if err := s.ctx.Err(); err != nil {
				return nil, err
			}
			m, err := s.findInSegment(&s.units[u], &s.segments[i])
			if err != nil {
				return nil, err
			}
			n, err := s.countLive(&m, &s.segments[i])
			if err != nil {
				return nil, err
			}
			counts[u] += n
			if size := 4 * (cap(m.docs) + cap(m.tfs)); s.keptBytes+size <= maxKeptBytes {
				s.keptBytes += size
			} else {
				m = matches{dropped: true}
			}
			s.found[u][i] = m
		}
	}
	return counts, nil
}

// findInSegment finds a unit in a segment.
func (s *search) findInSegment(u *unit, g *segmentSnapshot) (m matches, err error) {
	b := segmentBucket(s.tx, g.ID)
	switch {
	case b == nil:
		return m, ErrDamaged
	case u.prefix:
		return s.findPrefix(b, u.terms[0], g)
	case len(u.terms) > 1:
		return s.findPhrase(b, u, g)
	}
	_, l, ok, err := lookUpTerm(b, g.ID, u.terms[0])
	return matches{storedList: l, stored: ok}, err
}

// countLive counts the live matches.
func (s *search) countLive(m *matches, g *segmentSnapshot) (n int, err error) {
	if m.stored && g.dead == nil {
		return m.storedList.docs, nil
	}
	err = s.visitMatches(m, nil, g, func(doc, _ uint32) {
		if g.dead == nil || !g.dead.Contains(doc) {
			n++
		}
	})
	return n, err
}

// findPrefix counts all terms that begin with a text as one term.
func (s *search) findPrefix(b *bolt.Bucket, text string, g *segmentSnapshot) (m matches, err error) {
	tfs := make([]uint32, len(g.segment.docs))
	r, err := readDict(b, g.ID, []byte(text))
	if err != nil {
		return m, err
	}
	for r.term != nil && bytes.HasPrefix(r.term, []byte(text)) {
		_, l, err := r.currentList()
		if err != nil {
			return m, err
		}
		term := matches{storedList: l, stored: true}
		if err := s.visitMatches(&term, nil, g, func(doc, tf uint32) { tfs[doc] += tf }); err != nil {
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

// visitUnit calls visit for the documents of unit u in segment i that are in a set. A nil set means
// all. It may also visit matches outside of the set.
func (s *search) visitUnit(u, i int, set []uint64, visit func(doc, tf uint32)) error {
	m, g := s.found[u][i], &s.segments[i]
	if m.dropped {
		var err error
		if m, err = s.findInSegment(&s.units[u], g); err != nil {
			return err
		}
	}
	return s.visitMatches(&m, set, g, visit)
}

// visitMatches is visitUnit for given matches. It only skips blocks of a list that have no document
// of the set.
func (s *search) visitMatches(m *matches, set []uint64, g *segmentSnapshot, visit func(doc, tf uint32)) error {
	if !m.stored {
		for i, d := range m.docs {
			visit(d, m.tfs[i])
		}
		return s.countSteps(len(m.docs))
	}
	r := m.reader()
	for {
		more, err := r.nextBlock(set, len(g.segment.docs))
		if err != nil || !more {
			return err
		}
		for i := range r.blockLen {
			visit(r.docs[i], r.tfs[i])
		}
		if err := s.countSteps(r.blockLen); err != nil {
			return err
		}
	}
}

// scorePool keeps memory for the scores of a segment between searches.
var scorePool = sync.Pool{New: func() any { return new([]float64) }}

// scoreSegment scores the documents of a segment.
func (s *search) scoreSegment(i int) error {
	g := &s.segments[i]
	allowed, anyAllowed, err := s.allowedInSegment(i)
	if err != nil || !anyAllowed {
		return err
	}
	docs := g.segment.docs
	pooled := scorePool.Get().(*[]float64)
	defer scorePool.Put(pooled)
	*pooled = slices.Grow((*pooled)[:0], len(docs))[:len(docs)]
	scores := *pooled
	clear(scores)
	var touched []uint32
	k1, constant, slope := s.bm25.K1, s.bm25.K1*(1-s.bm25.B), s.slope
	for u := range s.units {
		if s.units[u].occur == mustNot {
			continue
		}
		if err := s.ctx.Err(); err != nil {
			return err
		}
		idf := s.idf[u]
		err := s.visitUnit(u, i, allowed, func(doc, tf uint32) {
			if allowed != nil && !hasBit(allowed, doc) {
				return
			}
			if scores[doc] == 0 {
				touched = append(touched, doc)
			}
			gain := idf
			if k1 > 0 {
				// Each operation is rounded, not fused, so that all processors compute the same bits.
				gain = idf * float64(tf) / (float64(tf) + constant + float64(slope*float64(docs[doc].length)))
			}
			scores[doc] += gain
		})
		if err != nil {
			return err
		}
	}
	for _, d := range touched {
		s.best = append(s.best, topk.Scored{Doc: docs[d].ordinal, Score: float32(scores[d])})
	}
	if len(s.best) > s.k {
		s.best = topk.Best(s.best, s.k)
	}
	return nil
}

// allowedInSegment returns the documents that may be returned; a nil set means all of the segment.
// anyAllowed is false if no document is allowed.
func (s *search) allowedInSegment(i int) (set []uint64, anyAllowed bool, err error) {
	g := &s.segments[i]
	docs := g.segment.docs
	if len(docs) == 0 {
		return nil, false, nil
	}
	if s.filter != nil {
		set = make([]uint64, bitsetWords(len(docs)))
		it := s.filter.Iterator()
		it.AdvanceIfNeeded(docs[0].ordinal)
		for last := docs[len(docs)-1].ordinal; it.HasNext(); {
			o := it.Next()
			if o > last {
				break
			}
			if d, ok := g.localNumber(o); ok {
				set[d/64] |= 1 << (d % 64)
				anyAllowed = true
			}
		}
		if !anyAllowed {
			return nil, false, nil
		}
	}
	ensureSet := func() { // a new set has all documents
		if set == nil {
			set = make([]uint64, bitsetWords(len(docs)))
			for d := range set {
				set[d] = ^uint64(0)
			}
			if n := len(docs) % 64; n != 0 {
				set[len(set)-1] = 1<<n - 1
			}
		}
	}
	if g.dead != nil {
		ensureSet()
		for it := g.dead.Iterator(); it.HasNext(); {
			d := it.Next()
			set[d/64] &^= 1 << (d % 64)
		}
	}
	// Keep documents with all required units and without excluded ones.
	var matched []uint64
	for u := range s.units {
		if s.units[u].occur == may {
			continue
		}
		ensureSet()
		matched = slices.Grow(matched[:0], len(set))[:len(set)]
		clear(matched)
		err := s.visitUnit(u, i, set, func(doc, _ uint32) { matched[doc/64] |= 1 << (doc % 64) })
		if err != nil {
			return nil, false, err
		}
		for w := range set {
			if s.units[u].occur == must {
				set[w] &= matched[w]
			} else {
				set[w] &^= matched[w]
			}
		}
	}
	return set, set == nil || slices.ContainsFunc(set, func(w uint64) bool { return w != 0 }), nil
}
