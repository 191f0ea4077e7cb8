package server

import (
	"errors"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/search"
)

// byVectors ranks the k best documents for each task among those that are allowed.
func (q *request) byVectors(v collection.View, tasks []task, in *common, f filtered, k int) ([]ranking, error) {
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
	o.Filter, o.Payload = f.shared, in.metadata() || in.Highlight
	o.Matches = in.Highlight && len(in.TextQuery) == 0 // else of those that both have brought
	if in.Group != "" {
		o.Group, o.Passages = search.Grouping(in.Group), in.passages()
	}
	if in.Feedback != nil {
		o.Feedback = in.Feedback.options()
	}
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
		out[i] = rankingOf(v, r.Hits)
		out[i].stats = &r.Stats
		if !r.Coverage.Complete() {
			out[i].coverage = &r.Coverage
		}
	}
	return out, nil
}

// dimension gives an error of the dimension its code.
func (q *request) dimension(v collection.View, tasks []task, err error) error {
	var of *search.QueryError
	if !errors.As(err, &of) || of.Index >= len(tasks) {
		return err
	}
	if dim := tasks[of.Index].query.Dim; dim != v.Dim() {
		return problem(CodeDimension, "query %d has dimension %d, the index %d", of.Index, dim, v.Dim()).at(Where{Query: &of.Index})
	}
	return err
}
