package maxsim

import "math/bits"

// Kind is the form of a list of pairs.
type Kind uint8

// The kinds of pairs.
const (
	// AllPairs pairs every query with the documents First to First+Count: [Nq, Count].
	AllPairs Kind = iota
	// CandidatePairs pairs every query with its K candidates: [Nq, K].
	CandidatePairs
	// ListedPairs pairs Queries[i] with Docs[i]: [n].
	ListedPairs
)

// Pairs select the query and the document of each score. The zero value pairs every query
// with every document.
type Pairs struct {
	Kind Kind
	// First and Count select the documents of AllPairs. Both 0 mean all documents.
	First, Count int
	// K is the number of candidates of a query. Docs has them, [Nq, K]. nil means that
	// document i·K+j is candidate j of query i.
	K int
	// Queries and Docs are the pairs of ListedPairs.
	Queries, Docs []int32
}

// All pairs every query with every document.
func All() Pairs { return Pairs{} }

// Range pairs every query with the documents first to first+count. Both 0 mean all
// documents.
func Range(first, count int) Pairs { return Pairs{First: first, Count: count} }

// Candidates pairs every query with k documents, docs [Nq, k].
func Candidates(k int, docs []int32) Pairs { return Pairs{Kind: CandidatePairs, K: k, Docs: docs} }

// OwnDocuments pairs query i with the documents i·k to i·k+k, which no other query has. With k = 1,
// it pairs query i with document i.
func OwnDocuments(k int) Pairs { return Pairs{Kind: CandidatePairs, K: k} }

// Listed pairs queries[i] with docs[i].
func Listed(queries, docs []int32) Pairs {
	return Pairs{Kind: ListedPairs, Queries: queries, Docs: docs}
}

// PairAt returns the query and the document of pair i. nd is the number of documents.
func (p *Pairs) PairAt(i, nd int) (query, doc int) {
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

// docsPerQuery returns the number of documents that AllPairs pairs with a query.
func (p *Pairs) docsPerQuery(nd int) int {
	if p.Count == 0 && p.First == 0 {
		return nd
	}
	return p.Count
}

// countPairs checks the pairs of nq queries and nd documents, and returns their number.
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
			return 0, shapeErrorf("candidates together with a list of queries")
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

// checkedProduct returns a·b. Negative numbers and results above 2⁶² are errors.
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

// checkNumbers checks that all entries of a list are numbers of n items, which errors call
// itemName.
func checkNumbers(itemName string, list []int32, n int) error {
	for i, v := range list {
		if v < 0 || int(v) >= n {
			return shapeErrorf("%s %d of pair %d is not in 0..%d", itemName, v, i, n-1)
		}
	}
	return nil
}
