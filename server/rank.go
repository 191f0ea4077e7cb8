package server

import (
	"context"
	"errors"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/server/store"
)

// byVectors ranks the k best documents for each task among those that are allowed.
func (q *request) byVectors(c *store.Collection, v *store.View, tasks []task, allowed []*roaring.Bitmap, p *paramsIn, k int) ([]ranking, error) {
	o, err := p.options(k)
	if err != nil {
		return nil, err
	}
	ranked := make([]ranking, len(tasks))
	if k == 0 { // nothing is wanted; the queries are checked all the same
		snap := v.Snapshot()
		for i := range tasks {
			if _, _, err := tasks[i].query.Tokens(snap); err != nil {
				return nil, q.dimension(v, tasks, ofQuery(i, err))
			}
		}
		return ranked, nil
	}
	ctx, end := q.span("search")
	results, err := searchEach(ctx, v, tasks, allowed, o)
	end(err)
	if err != nil {
		return nil, q.dimension(v, tasks, err)
	}
	for i := range results {
		r := &results[i]
		q.s.metrics.searched(c.Name(), &r.Stats)
		ranked[i] = ranking{make([]uint32, len(r.Hits)), make([]float64, len(r.Hits)), &r.Stats}
		for j, h := range r.Hits {
			ranked[i].documents[j], ranked[i].scores[j] = h.Ordinal, float64(h.Score)
		}
	}
	return ranked, nil
}

// dimension gives an error of the dimension its code.
func (q *request) dimension(v *store.View, tasks []task, err error) error {
	var of *search.QueryError
	if !errors.As(err, &of) || of.Index >= len(tasks) {
		return err
	}
	if dim := tasks[of.Index].query.Dim; dim != v.Dim() {
		return problem(CodeDimension, "query %d has dimension %d, the index %d", of.Index, dim, v.Dim()).at(Where{Query: &of.Index})
	}
	return err
}

// searchEach answers each task among the documents that are allowed to it.
func searchEach(ctx context.Context, v *store.View, tasks []task, allowed []*roaring.Bitmap, o search.Options) ([]search.Result, error) {
	qs := make([]search.Query, len(tasks))
	for i := range tasks {
		qs[i] = tasks[i].query
	}
	filters := map[*roaring.Bitmap]*search.Filter{nil: nil}
	for i := range qs {
		b := allowed[i]
		if _, made := filters[b]; !made {
			filters[b] = (&search.Filter{Docs: b}).Prepared()
		}
		qs[i].Filter = filters[b]
	}
	return v.SearchBatch(ctx, qs, o)
}

func explainAt(ctx context.Context, v *store.View, query search.Query, id string, o search.Options, allowed *roaring.Bitmap) (*search.Explanation, error) {
	if allowed != nil {
		o.Filter = &search.Filter{Docs: allowed}
	}
	return v.Explain(ctx, query, id, o)
}
