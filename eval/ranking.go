package eval

import (
	"cmp"
	"math"
	"slices"
)

// Ties selects the order of the hits of a query.
type Ties int

const (
	// TiesTREC is the order of trec_eval up to 9.0.8: by score rounded to float32, the highest
	// first, and then by document id, the greatest in byte order first. It ignores the rank column.
	TiesTREC Ties = iota
	// TiesTREC10 is the order of trec_eval from 10.0 on: that of [TiesTREC] with float64 scores.
	TiesTREC10
	// TiesRank is the order of the rank column; hits of equal rank keep the order of the file. It
	// ignores scores.
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

// orderScore returns the score by which a hit is ordered. TiesRank does not use it.
func (t Ties) orderScore(h ScoredDocument) float64 {
	if t == TiesTREC10 {
		return h.Score
	}
	return float64(float32(h.Score))
}

// sort sorts hits in place, and returns them.
func (t Ties) sort(hits []ScoredDocument) []ScoredDocument {
	order := func(a, b ScoredDocument) int {
		return cmp.Or(cmp.Compare(t.orderScore(b), t.orderScore(a)), cmp.Compare(b.Doc, a.Doc))
	}
	if t == TiesRank {
		order = func(a, b ScoredDocument) int { return cmp.Compare(a.Rank, b.Rank) }
	}
	slices.SortStableFunc(hits, order)
	return hits
}

// unjudged is the grade of a hit without a judgement. Negative grades, which trec_eval treats as
// unjudged, too, keep their value; no grade is this low ([Qrels.Add]).
const unjudged = math.MinInt32

// ranking has the hits of one query for the measures.
type ranking struct {
	grades []int // of the hits, in order; [unjudged] for hits without a judgement
	ideal  []int // of all judged documents, highest first

	selfFirst bool // the first hit has the id of the query
}

// withoutSelf deletes, in place, the hit whose id is that of the query.
func withoutSelf(hits []ScoredDocument, query string) []ScoredDocument {
	return slices.DeleteFunc(hits, func(h ScoredDocument) bool { return h.Doc == query })
}

// newRanking sorts the hits of a query and looks up their grades.
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

// firstGrades returns the grades of the first k hits, or of all if k is 0.
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
