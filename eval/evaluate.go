package eval

import "fmt"

// Average selects the queries of a mean. The package comment compares the choices.
type Average int

const (
	// AverageJudged selects the queries of the qrels. Those missing from the run count 0.
	AverageJudged Average = iota
	// AverageEvaluated selects the queries in both the qrels and the run.
	AverageEvaluated
	// AverageRelevant selects the queries with a document of grade 1 or more, whatever the rel
	// parameter of a measure. Those missing from the run count 0.
	AverageRelevant
)

// String returns "judged", "evaluated" or "relevant".
func (a Average) String() string {
	switch a {
	case AverageEvaluated:
		return "evaluated"
	case AverageRelevant:
		return "relevant"
	}
	return "judged"
}

// Options are the options of [Evaluate]. The zero value uses trec_eval's order of hits and the mean
// over all judged queries.
type Options struct {
	Ties    Ties
	Average Average
	// ExcludeSelf deletes hits whose document id equals the query id, as BEIR does. If queries are
	// documents of the corpus (ArguAna, Quora), retrieve k+1 documents to keep k.
	ExcludeSelf bool
}

// Result is the result of an evaluation.
type Result struct {
	Measures []Measure     // in the order of Means
	Average  Average       // the queries of Means
	Means    []float64     // one a measure. 0 if Average has no query
	Queries  []QueryResult // every judged query, in the order of the qrels
	// Unjudged counts the queries of the run that have no judgement. They are ignored.
	Unjudged int
	// SelfFirst counts the queries whose first hit has the id of the query. If most do, the queries
	// are documents: see Options.ExcludeSelf.
	SelfFirst int
}

// QueryResult is the result of one judged query.
type QueryResult struct {
	Query  string    `json:"query"`  // its id
	Values []float64 `json:"-"`      // one a measure
	InRun  bool      `json:"in_run"` // false means missing from the run, so that all values are 0

	// Counts after ExcludeSelf. Grade 1 or more is relevant.
	Retrieved         int `json:"retrieved"`
	Relevant          int `json:"relevant"`           // documents that are judged relevant
	RelevantRetrieved int `json:"relevant_retrieved"` // those of them that were found
}

// Evaluate scores a run against judgements. Values and means are float64 sums in the order of the
// hits and of the queries, so that the same input gives the same bits. A [Measure] that was not
// made by [ParseMeasure] is an error that wraps [ErrMeasure]; qrels without a query give
// [ErrNothingJudged].
func Evaluate(qrels *Qrels, run *Run, measures []Measure, opts Options) (*Result, error) {
	if qrels == nil || qrels.Len() == 0 {
		return nil, ErrNothingJudged
	}
	if run == nil {
		run = new(Run)
	}
	for i, m := range measures {
		if m.family == nil {
			return nil, fmt.Errorf("%w: measure %d is the zero value", ErrMeasure, i)
		}
	}
	res := &Result{
		Measures: measures,
		Average:  opts.Average,
		Means:    make([]float64, len(measures)),
		Queries:  make([]QueryResult, 0, qrels.Len()),
	}
	for _, query := range qrels.queries {
		r := newRanking(qrels.judged[query], query, run.hits[query], opts)
		q := QueryResult{
			Query:             query,
			Values:            make([]float64, len(measures)),
			InRun:             run.Has(query),
			Retrieved:         len(r.grades),
			Relevant:          r.relevant(1),
			RelevantRetrieved: countFrom(r.grades, 1),
		}
		for i, m := range measures {
			q.Values[i] = m.family.score(m, r)
		}
		res.Queries = append(res.Queries, q)
		if r.selfFirst {
			res.SelfFirst++
		}
	}
	for _, query := range run.queries {
		if !qrels.Judged(query) {
			res.Unjudged++
		}
	}
	for i := range measures {
		res.Means[i] = res.Mean(i, opts.Average)
	}
	return res, nil
}

// Included reports whether an average includes the query.
func (q *QueryResult) Included(a Average) bool {
	switch a {
	case AverageEvaluated:
		return q.InRun
	case AverageRelevant:
		return q.Relevant > 0
	}
	return true
}

// Count returns the number of queries of an average.
func (r *Result) Count(a Average) int {
	n := 0
	for i := range r.Queries {
		if r.Queries[i].Included(a) {
			n++
		}
	}
	return n
}

// Values returns the values of measure i (an index in r.Measures) for the queries of an average, in
// the order of r.Queries.
func (r *Result) Values(i int, a Average) []float64 {
	values := make([]float64, 0, len(r.Queries))
	for j := range r.Queries {
		if r.Queries[j].Included(a) {
			values = append(values, r.Queries[j].Values[i])
		}
	}
	return values
}

// Mean returns the mean of measure i over the queries of an average, or 0 for no queries.
func (r *Result) Mean(i int, a Average) float64 {
	values := r.Values(i, a)
	if len(values) == 0 {
		return 0
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
