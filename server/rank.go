package server

import (
	"errors"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
)

// rankByVectors ranks a page of the best documents for each task among those that are allowed.
func (q *request) rankByVectors(v collection.Snapshot, tasks []task, in *searchFields, f searchFilters, page search.Page) ([]ranking, error) {
	o, err := in.Params.searchOptions(page)
	if err != nil {
		return nil, err
	}
	out := make([]ranking, len(tasks))
	if page.K == 0 { // nothing is wanted; the queries are checked all the same
		for i := range tasks {
			if err := v.Check(&tasks[i].query); err != nil {
				return nil, q.dimensionError(v, tasks, queryError(i, err))
			}
		}
		return out, nil
	}
	o.Filter, o.Payload = f.shared, in.wantsMetadata() || in.Highlight
	o.Matches = in.Highlight && len(in.TextQuery) == 0 // else of those that both have brought
	if in.Group != "" {
		o.Group, o.Passages = search.Grouping(in.Group), in.passagesPerDocument()
	}
	if in.Feedback != nil {
		o.Feedback = in.Feedback.toFeedback()
	}
	qs := make([]search.Query, len(tasks))
	for i := range tasks {
		qs[i] = tasks[i].query
		qs[i].Filter = f.perQuery[i]
	}
	ctx, end := q.startStage("search")
	results, err := v.Search(ctx, qs, o)
	end(err)
	if err != nil {
		return nil, q.dimensionError(v, tasks, err)
	}
	for i := range results {
		r := &results[i]
		q.server.metrics.observeSearch(q.indexName(), &r.Stats)
		out[i] = newRanking(v, r.Hits)
		out[i].stats = &r.Stats
		if !r.Coverage.Complete() {
			out[i].coverage = &r.Coverage
		}
	}
	return out, nil
}

// dimensionError gives an error of the dimension its code.
func (q *request) dimensionError(v collection.Snapshot, tasks []task, err error) error {
	var of *search.QueryError
	if !errors.As(err, &of) || of.Index >= len(tasks) {
		return err
	}
	if dim := tasks[of.Index].query.Dim; v.Dim() != 0 && dim != v.Dim() {
		return problem(CodeDimension, "query %d has dimension %d, the index %d", of.Index, dim, v.Dim()).withPlace(Where{Query: &of.Index})
	}
	return err
}

// restriction says which documents may answer. What is given must all hold.
type restriction struct {
	Subset     *[]int64       `json:"subset,omitempty"`
	IDs        *[]string      `json:"ids,omitempty" doc:"the same by _id"`
	Condition  string         `json:"filter_condition,omitempty"`
	Parameters parametersJSON `json:"filter_parameters,omitempty" doc:"a value for each ?"`
}

// isSet tells whether anything is restricted.
func (r *restriction) isSet() bool {
	return r.Subset != nil || r.IDs != nil || r.Condition != "" || len(r.Parameters) > 0
}

// allowedDocuments are the documents that may answer; nil: all.
func (r *restriction) allowedDocuments(q *request, v collection.Snapshot) (*search.Filter, error) {
	if !r.isSet() {
		return nil, nil
	}
	all, err := r.selection(q)
	if err != nil {
		return nil, err
	}
	ctx, end := q.startStage("select")
	f, err := v.Filter(ctx, all)
	end(err)
	return f, err
}

// selection are the documents that may answer.
func (r *restriction) selection(q *request) (collection.Selection, error) {
	if len(r.Parameters) > 0 && r.Condition == "" {
		return collection.Selection{}, badRequest("filter_parameters without a filter_condition")
	}
	selection, err := q.selectionFromCondition(r.Condition, r.Parameters)
	if r.Subset != nil {
		selection.Numbers = validNumbers(*r.Subset)
	}
	if r.IDs != nil {
		selection.IDs = append([]string{}, *r.IDs...)
	}
	return selection, err
}

// preferNull has fields that no document has be NULL in conditions, as those are that some
// documents lack. Otherwise they are errors.
const (
	preferNull    = "unknown-fields=null"
	preferNullDoc = preferNull + ": fields that no document has are NULL in conditions, and no errors"
)

var conditionParam = param{headerPrefer, "header", "handling=lenient: fields of the body that are not known are no errors; " + preferNullDoc, object{"type": "string"}}

// selectionFromCondition are the documents that a condition is true of, which may have literals, and has
// a value for each "?"; without one they are all.
func (q *request) selectionFromCondition(text string, params parametersJSON) (s collection.Selection, err error) {
	switch {
	case text == "" && len(params) > 0:
		return s, badRequest("parameters without a condition")
	case text == "":
		return s, nil
	}
	e, err := condition.Parse(text)
	if err != nil {
		return s, err
	}
	values := make([]any, len(params))
	for i, p := range params {
		values[i] = p
	}
	if s.Where, err = e.Bind(values...); err == nil && q.prefers(preferNull) {
		s.Where = s.Where.Lenient()
	}
	return s, err
}

// validNumbers are those that can be some; never nil.
func validNumbers(ids []int64) []uint64 {
	could := make([]uint64, 0, len(ids))
	for _, id := range ids {
		if id >= 0 {
			could = append(could, uint64(id))
		}
	}
	return could
}
