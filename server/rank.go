package server

import (
	"encoding/json"
	"errors"

	"github.com/plaid-ir/plaid/search"
)

// byVectors ranks the k best documents for each task among those that are allowed.
func (q *request) byVectors(v View, tasks []task, in *common, f filtered, k int) ([]ranking, error) {
	o, err := in.Params.options(k)
	if err != nil {
		return nil, err
	}
	out := make([]ranking, len(tasks))
	if k == 0 { // nothing is wanted; the queries are checked all the same
		for i := range tasks {
			if err := v.Check(&tasks[i].query); err != nil {
				return nil, q.dimension(v, tasks, ofQuery(i, err))
			}
		}
		return out, nil
	}
	o.Filter, o.Payload = f.shared, in.metadata()
	qs := make([]search.Query, len(tasks))
	for i := range tasks {
		qs[i] = tasks[i].query
		qs[i].Filter = f.own[i]
	}
	ctx, end := q.span("search")
	results, err := v.Search(ctx, qs, o)
	end(err)
	if err != nil {
		return nil, q.dimension(v, tasks, err)
	}
	for i := range results {
		r := &results[i]
		q.s.metrics.searched(q.index(), &r.Stats)
		out[i] = ranking{hits: make([]rankedDoc, len(r.Hits)), stats: &r.Stats, metadata: func(j int) (json.RawMessage, error) { return v.Metadata(&r.Hits[j]) }}
		for j := range r.Hits {
			h := &r.Hits[j]
			out[i].hits[j] = rankedDoc{DocumentID(h), h.ID, float64(h.Score)}
		}
		if !r.Coverage.Complete() {
			out[i].coverage = &r.Coverage
		}
	}
	return out, nil
}

// dimension gives an error of the dimension its code.
func (q *request) dimension(v View, tasks []task, err error) error {
	var of *search.QueryError
	if !errors.As(err, &of) || of.Index >= len(tasks) {
		return err
	}
	if dim := tasks[of.Index].query.Dim; dim != v.Dim() {
		return problem(CodeDimension, "query %d has dimension %d, the index %d", of.Index, dim, v.Dim()).at(Where{Query: &of.Index})
	}
	return err
}
