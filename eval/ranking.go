package eval

import (
	"cmp"
	"math"
	"slices"
)

// Ties says how the hits of a query are put in order.
type Ties int

const (
	// TiesTREC is the order of trec_eval up to 9.0.8: scores rounded to float32,
	// the highest first, equal ones by document id, the greatest in byte order
	// first. The rank column is ignored.
	TiesTREC Ties = iota
	// TiesTREC10 is the order of trec_eval from 10.0 on: as [TiesTREC], with
	// scores as float64.
	TiesTREC10
	// TiesRank is the order of the rank column, and of the file where ranks are
	// equal. Scores are ignored.
	TiesRank
)

// String returns "trec", "trec10" or "rank".
func (t Ties) String() string {
	switch t {
	case TiesTREC10:
		return "trec10"
	case TiesRank:
		return "rank"
	}
	return "trec"
}

// compared is what a score is compared by. TiesRank has no use for it.
func (t Ties) compared(h ScoredDocument) float64 {
	if t == TiesTREC10 {
		return h.Score
	}
	return float64(float32(h.Score))
}

// sort puts hits in order, in place, and returns them.
func (t Ties) sort(hits []ScoredDocument) []ScoredDocument {
	order := func(a, b ScoredDocument) int {
		return cmp.Or(cmp.Compare(t.compared(b), t.compared(a)), cmp.Compare(b.Doc, a.Doc))
	}
	if t == TiesRank {
		order = func(a, b ScoredDocument) int { return cmp.Compare(a.Rank, b.Rank) }
	}
	slices.SortStableFunc(hits, order)
	return hits
}

// unjudged is the grade of a hit without a judgement. Negative grades, which
// trec_eval also takes as unjudged, keep their value; no grade is this low ([Qrels.Add]).
const unjudged = math.MinInt32

// ranking is one query as the measures see it.
type ranking struct {
	grades []int // of the hits, in order; [unjudged] where there is no judgement
	ideal  []int // of all judged documents, highest first

	selfFirst bool // the first hit has the id of the query
}

// withoutSelf drops, in place, a hit whose id is that of the query.
func withoutSelf(hits []ScoredDocument, query string) []ScoredDocument {
	return slices.DeleteFunc(hits, func(h ScoredDocument) bool { return h.Doc == query })
}

// newRanking orders the hits of a query and looks up their grades.
func newRanking(js *judgements, query string, hits []ScoredDocument, opts Options) ranking {
	hits = slices.Clone(hits)
	if opts.ExcludeSelf {
		hits = withoutSelf(hits, query)
	}
	opts.Ties.sort(hits)
	r := ranking{
		grades:    make([]int, len(hits)),
		ideal:     make([]int, 0, len(js.docs)),
		selfFirst: len(hits) > 0 && hits[0].Doc == query,
	}
	for i, h := range hits {
		if grade, ok := js.grades[h.Doc]; ok {
			r.grades[i] = grade
		} else {
			r.grades[i] = unjudged
		}
	}
	for _, grade := range js.grades {
		r.ideal = append(r.ideal, grade)
	}
	slices.SortFunc(r.ideal, func(a, b int) int { return cmp.Compare(b, a) })
	return r
}

// firstGrades returns the grades of the first k hits, or of all when k is 0.
func (r ranking) firstGrades(k int) []int {
	if k == 0 {
		return r.grades
	}
	return r.grades[:min(k, len(r.grades))]
}

// relevant returns the number of judged documents of grade rel or more.
func (r ranking) relevant(rel int) int { return countFrom(r.ideal, rel) }

// countFrom returns how many grades are rel or more.
func countFrom(grades []int, rel int) int {
	n := 0
	for _, grade := range grades {
		if grade >= rel {
			n++
		}
	}
	return n
}
