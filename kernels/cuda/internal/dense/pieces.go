package dense

import (
	"slices"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// callLimits bound the memory of a call on the device, in bytes, so that it does not grow with the
// call.
type callLimits struct {
	// docs bounds documents that are not held: those that are copied while the previous ones
	// are scored. projected bounds token vectors that are computed from hidden states: most of
	// them stay in the cache until they are scored.
	docs, projected int
	out             int // results
	part            int // sums of groups
	segment         int // minimum of a segment of a document, in tokens instead of bytes
}

var usualLimits = callLimits{
	docs:      2 * stageBytes,
	projected: 64 << 20,
	out:       64 << 20,
	part:      8 << 20,
	segment:   512,
}

// piece is a part of a call that fits on the device: the documents lo to hi with all queries, or
// pairs of these documents.
type piece struct {
	lo, hi int
	pairs  []int32 // sorted by query, nil if all queries are scored with all documents
}

// scores returns the number of scores of a piece.
func (p *piece) scores(s *scoring) int {
	if !s.shape.all {
		return len(p.pairs)
	}
	return (p.hi - p.lo) * s.q.shape.Len()
}

// pairOrder has the pairs of a call sorted by document, to divide them into pieces.
type pairOrder struct {
	query, doc func(i int) int
	byDoc      []int32
}

// newPairOrder sorts n pairs of a call with nd documents.
func newPairOrder(p *maxsim.Pairs, n, nd int) pairOrder {
	l := pairOrder{
		query: func(i int) int { q, _ := p.PairAt(i, nd); return q },
		doc:   func(i int) int { _, d := p.PairAt(i, nd); return d },
		byDoc: make([]int32, n),
	}
	for i := range l.byDoc {
		l.byDoc[i] = int32(i)
	}
	slices.SortStableFunc(l.byDoc, func(a, b int32) int { return l.doc(int(a)) - l.doc(int(b)) })
	return l
}

// pairsOfDocs returns the pairs of the documents lo to hi, sorted by query.
func (l *pairOrder) pairsOfDocs(lo, hi int) []int32 {
	from, _ := slices.BinarySearchFunc(l.byDoc, lo, func(i int32, doc int) int { return l.doc(int(i)) - doc })
	to, _ := slices.BinarySearchFunc(l.byDoc, hi, func(i int32, doc int) int { return l.doc(int(i)) - doc })
	pairs := slices.Clone(l.byDoc[from:to])
	slices.SortFunc(pairs, func(a, b int32) int {
		if d := l.query(int(a)) - l.query(int(b)); d != 0 {
			return d
		}
		return int(a - b)
	})
	return pairs
}

// queryGroups returns the number of groups of all queries; if not all are scored with the same
// documents, those of the longest query.
func (s *scoring) queryGroups() (n int) {
	if !s.shape.all {
		return runtime.CeilDiv(s.q.longestItem(), s.kernel.tokens)
	}
	for i := range s.q.shape.Len() {
		n += runtime.CeilDiv(s.q.rowCount(i), s.kernel.tokens)
	}
	return n
}

// forEachPiece calls visit for the pieces of a call, in order.
func (s *scoring) forEachPiece(visit func(p piece) error) error {
	nq, first := 1, 0
	end := s.d.shape.Len()
	if s.shape.all {
		nq, first = max(s.q.shape.Len(), 1), s.call.First
		end = first + s.size.Pairs/nq
	}
	maxResults := s.maxResultsPerQuery(nq)
	maxTokens := s.maxPieceTokens()
	for lo := first; lo < end; {
		hi := end
		if s.shape.all {
			hi = lo + documentsThatFit(s.work.resultStart, lo, end, maxResults)
		}
		if maxTokens > 0 {
			hi = lo + documentsThatFit(s.d.first, lo, hi, maxTokens)
		}
		if s.shape.all {
			if err := visit(piece{lo: lo, hi: hi}); err != nil {
				return err
			}
		} else if err := s.forEachPairPiece(lo, hi, maxResults, visit); err != nil {
			return err
		}
		lo = hi
	}
	return nil
}

// forEachPairPiece calls visit for pieces of the pairs of the documents lo to hi, with at most maxResults
// results each.
func (s *scoring) forEachPairPiece(lo, hi, maxResults int, visit func(p piece) error) error {
	pairs := s.pairs.pairsOfDocs(lo, hi)
	for len(pairs) > 0 {
		n, results := 0, 0
		for n < len(pairs) {
			if results += s.resultsPerQuery(s.pairs.doc(int(pairs[n]))); n > 0 && results > maxResults {
				break
			}
			n++
		}
		if err := visit(piece{lo: lo, hi: hi, pairs: pairs[:n]}); err != nil {
			return err
		}
		pairs = pairs[n:]
	}
	return nil
}

// documentsThatFit returns how many of the items lo to hi fit into limit together, at least one. Their
// sizes are the differences of first.
func documentsThatFit(first []int, lo, hi, limit int) int {
	n, _ := slices.BinarySearch(first[lo+1:hi+1], first[lo]+limit+1)
	return max(n, 1)
}

// resultsPerQuery returns how many results of a query the device stores for a document: one, or one for
// each segment.
func (s *scoring) resultsPerQuery(doc int) int {
	return s.work.resultStart[doc+1] - s.work.resultStart[doc]
}

// maxResultsPerQuery returns the maximum of results of each of nq queries in a piece.
func (s *scoring) maxResultsPerQuery(nq int) int {
	bytesPerResult := 4 // the score
	if s.call.Argmax != nil {
		bytesPerResult += 4 * s.size.Stride
	}
	if s.segment > 0 {
		bytesPerResult = 4 + 8*s.size.Stride
	}
	if s.rank != nil {
		bytesPerResult += 8
	}
	limit := max(s.limits.out/bytesPerResult/nq, 1)
	if s.q.longestItem() > s.kernel.tokens || s.segment > 0 {
		limit = min(limit, max(s.limits.part/4/max(s.queryGroups(), 1), 1))
	}
	return limit
}

// maxPieceTokens returns the maximum of document tokens in a piece, or 0 if all documents are on the
// device.
func (s *scoring) maxPieceTokens() int {
	switch {
	case s.head != nil && s.head.fused && s.d.held != nil:
		return 0
	case s.head != nil && s.head.fused:
		return max(s.limits.docs/s.head.hidden.rowBytes, 1)
	case s.head != nil:
		return max(s.limits.projected/s.shape.docs.rowBytes, 1)
	case s.d.batch != nil:
		return max(s.limits.docs/s.shape.docs.rowBytes, 1)
	}
	return 0
}

// pieceMaxima has the largest sizes of the pieces of a call.
type pieceMaxima struct {
	docs, rows int
	part, top  int64 // bytes
}

// largestPiece returns the largest sizes of the pieces, to reserve memory for.
func (s *scoring) largestPiece() (m pieceMaxima) {
	_ = s.forEachPiece(func(p piece) error {
		m.docs = max(m.docs, p.hi-p.lo)
		m.rows = max(m.rows, s.d.first[p.hi]-s.d.first[p.lo])
		results := s.work.resultStart[p.hi] - s.work.resultStart[p.lo]
		queries := s.q.shape.Len()
		if !s.shape.all {
			results, queries = 0, 1
			for _, i := range p.pairs {
				results += s.resultsPerQuery(s.pairs.doc(int(i)))
			}
		}
		if s.q.longestItem() > s.kernel.tokens || s.segment > 0 {
			m.part = max(m.part, 4*int64(max(s.queryGroups(), queries))*int64(results))
		}
		if s.segment > 0 {
			m.top = max(m.top, 4*int64(queries)*int64(results)*int64(s.size.Stride))
		}
		return nil
	})
	return m
}

// cutDocuments divides documents into segments if the device would wait for the longest
// one: if that has more than twice the average work of the units that run at the same
// time.
func (s *scoring) cutDocuments() error {
	nd := s.d.shape.Len()
	s.work.resultStart = countUpTo(s.work.resultStart, nd)
	lo, hi := 0, nd
	blocks := runtime.CeilDiv(s.queryGroups(), s.kernel.groups)
	longest, work := 0, 0
	if s.shape.all {
		lo = s.call.First
		hi = lo + s.size.Pairs/max(s.q.shape.Len(), 1)
		work = (s.d.first[hi] - s.d.first[lo]) * blocks
	} else {
		for i := range s.size.Pairs {
			_, doc := s.call.PairAt(i, nd)
			work += s.d.rowCount(doc) * blocks
		}
	}
	for i := lo; i < hi; i++ {
		longest = max(longest, s.d.rowCount(i))
	}
	if s.segment = s.limits.segmentFor(longest, work, s.kernel.slots); s.segment == 0 {
		return nil
	}
	s.segments = &tokens{first: []int{0}}
	for i := range nd {
		s.work.resultStart[i] = len(s.segments.first) - 1
		for r := 0; r < s.d.rowCount(i); r += s.segment {
			s.segments.first = append(s.segments.first, s.d.first[i]+min(r+s.segment, s.d.rowCount(i)))
		}
	}
	s.work.resultStart[nd] = len(s.segments.first) - 1
	if s.shape.argmax {
		return nil
	}
	s.shape.argmax = true // only these kernels return the maxima of segments
	var err error
	s.kernel, err = chooseKernel(s.rt, &s.shape)
	return err
}

// segmentFor returns the length of segments in tokens, given the length of the longest document and
// the tokens that all units multiply together, where 0 means that documents stay whole.
func (l *callLimits) segmentFor(longest, work, slots int) int {
	share := work / max(slots, 1)
	if longest < 2*l.segment || longest <= 2*share {
		return 0
	}
	return max(l.segment, runtime.CeilDiv(share, 64)*64)
}

// countUpTo returns the numbers 0 to n, in the memory of c.
func countUpTo(c []int, n int) []int {
	c = c[:0]
	for i := range n + 1 {
		c = append(c, i)
	}
	return c
}

// makePieceTables makes the tables of a piece, and returns how many scores it has.
func (s *scoring) makePieceTables(p piece) int {
	stride, base := s.size.Stride, s.firstToken(p)
	n := p.scores(s)
	s.work.joins, s.work.nonEmptyDocs = s.work.joins[:0], s.work.nonEmptyDocs[:0]
	if s.shape.all {
		if s.segment == 0 {
			s.work.pairAll(s.q.tokens, s.d.tokens, p.lo, p.hi, base, p.hi-p.lo, stride, &s.kernel)
			return n
		}
		lo, hi := s.work.resultStart[p.lo], s.work.resultStart[p.hi]
		s.work.pairAll(s.q.tokens, s.segments, lo, hi, base, hi-lo, stride, &s.kernel)
		for doc := p.lo; doc < p.hi && s.rank != nil; doc++ {
			if s.d.rowCount(doc) > 0 {
				s.work.nonEmptyDocs = append(s.work.nonEmptyDocs, denseItem{pos: uint32(doc - p.lo)})
			}
		}
		for q := range s.q.shape.Len() {
			for doc := p.lo; doc < p.hi; doc++ {
				s.addJoin(q, doc, q*(hi-lo)+s.work.resultStart[doc]-lo)
			}
		}
		return n
	}
	query, doc := s.pairs.query, s.pairs.doc
	if s.segment == 0 {
		s.work.pairListed(s.q.tokens, s.d.tokens, len(p.pairs), func(i int) (int, int) {
			return query(int(p.pairs[i])), doc(int(p.pairs[i]))
		}, base, stride, &s.kernel)
		return n
	}
	s.work.segmentPairs = s.work.segmentPairs[:0]
	for _, i := range p.pairs {
		q, d := query(int(i)), doc(int(i))
		s.addJoin(q, d, len(s.work.segmentPairs))
		for x := s.work.resultStart[d]; x < s.work.resultStart[d+1]; x++ {
			s.work.segmentPairs = append(s.work.segmentPairs, [2]uint32{uint32(q), uint32(x)})
		}
	}
	s.work.pairListed(s.q.tokens, s.segments, len(s.work.segmentPairs), func(i int) (int, int) {
		return int(s.work.segmentPairs[i][0]), int(s.work.segmentPairs[i][1])
	}, base, stride, &s.kernel)
	return n
}

// addJoin adds the pair of a query and a document, whose results of segments begin with number
// firstResult.
func (s *scoring) addJoin(query, doc, firstResult int) {
	s.work.joins = append(s.work.joins, denseJoin{
		first:    uint64(firstResult),
		out:      uint64(len(s.work.joins)),
		segments: uint32(s.resultsPerQuery(doc)),
		row:      uint32(s.q.first[query]),
		count:    uint32(s.q.rowCount(query)),
	})
}
