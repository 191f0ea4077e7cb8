package maxsim

import "math/bits"

// Kind says how pairs are given.
type Kind uint8

// The kinds of pairs.
const (
	// AllPairs is every query with the documents First to First+Count: [Nq, Count].
	AllPairs Kind = iota
	// CandidatePairs is K documents for each query: [Nq, K].
	CandidatePairs
	// ListedPairs is Queries[i] with Docs[i]: [n].
	ListedPairs
)

// Pairs say which query is scored with which document. The zero value is every
// query with every document.
type Pairs struct {
	Kind Kind
	// First and Count are the documents of AllPairs; Count 0 and First 0: all.
	First, Count int
	// K is the number of candidates of a query. Docs has them, [Nq, K]; where it is
	// nil, document i·K+j is candidate j of query i.
	K int
	// Queries and Docs are the pairs of ListedPairs.
	Queries, Docs []int32
}

// All is every query with every document.
func All() Pairs { return Pairs{} }

// Range is every query with the documents first to first+count. Both 0 stand for
// all documents.
func Range(first, count int) Pairs { return Pairs{First: first, Count: count} }

// Candidates is k documents for each query, docs [Nq, k].
func Candidates(k int, docs []int32) Pairs { return Pairs{Kind: CandidatePairs, K: k, Docs: docs} }

// Own is k documents of its own for each query: documents i·k to i·k+k for query i.
// With k 1, it is query i with document i.
func Own(k int) Pairs { return Pairs{Kind: CandidatePairs, K: k} }

// Listed is queries[i] with docs[i].
func Listed(queries, docs []int32) Pairs {
	return Pairs{Kind: ListedPairs, Queries: queries, Docs: docs}
}

// At is query and document of pair i, of nd documents.
func (p *Pairs) At(i, nd int) (query, doc int) {
	switch p.Kind {
	case CandidatePairs:
		if p.Docs == nil {
			return i / p.K, i
		}
		return i / p.K, int(p.Docs[i])
	case ListedPairs:
		return int(p.Queries[i]), int(p.Docs[i])
	}
	n := p.docsPerQuery(nd)
	return i / n, p.First + i%n
}

// docsPerQuery is the number of documents of AllPairs.
func (p *Pairs) docsPerQuery(nd int) int {
	if p.Count == 0 && p.First == 0 {
		return nd
	}
	return p.Count
}

// countPairs checks the pairs against nq queries and nd documents and counts them.
func (p *Pairs) countPairs(nq, nd int) (int, error) {
	switch p.Kind {
	case AllPairs:
		n := p.docsPerQuery(nd)
		if p.First < 0 || n < 0 || p.First > nd || n > nd-p.First {
			return 0, shapeErrorf("documents %d to %d of %d", p.First, p.First+n, nd)
		}
		return checkedProduct(nq, n)
	case CandidatePairs:
		n, err := checkedProduct(nq, p.K)
		switch {
		case err != nil:
			return 0, err
		case p.Queries != nil:
			return 0, shapeErrorf("queries are listed beside candidates")
		case p.Docs == nil && n != nd:
			return 0, shapeErrorf("%d documents for %d queries with %d of their own", nd, nq, p.K)
		case p.Docs != nil && n != len(p.Docs):
			return 0, shapeErrorf("%d candidates for %d queries with %d each", len(p.Docs), nq, p.K)
		}
		return n, checkNumbers("document", p.Docs, nd)
	case ListedPairs:
		if len(p.Queries) != len(p.Docs) {
			return 0, shapeErrorf("pairs of %d queries and %d documents", len(p.Queries), len(p.Docs))
		}
		if err := checkNumbers("query", p.Queries, nq); err != nil {
			return 0, err
		}
		return len(p.Docs), checkNumbers("document", p.Docs, nd)
	}
	return 0, shapeErrorf("pairs of kind %d", p.Kind)
}

func checkedProduct(a, b int) (int, error) {
	if a < 0 || b < 0 {
		return 0, shapeErrorf("%d × %d pairs", a, b)
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > 1<<62 {
		return 0, shapeErrorf("%d × %d pairs", a, b)
	}
	return int(lo), nil
}

func checkNumbers(what string, list []int32, n int) error {
	for i, v := range list {
		if v < 0 || int(v) >= n {
			return shapeErrorf("%s %d of pair %d is not in 0..%d", what, v, i, n-1)
		}
	}
	return nil
}
