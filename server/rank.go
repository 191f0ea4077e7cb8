package server

import (
	"errors"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
)

// rankByVectors ranks a page of the best allowed documents for each task.
func (q *request) rankByVectors(
	v collection.Snapshot, tasks []task, in *searchFields, f searchFilters, page search.Page,
) ([]ranking, error) {
	o, err := in.Params.searchOptions(page)
	if err != nil {
		return nil, err
	}
	out := make([]ranking, len(tasks))
	if page.K == 0 { // there are no hits on the page, but queries that are wrong are errors
		for i := range tasks {
			if err := v.Check(&tasks[i].query); err != nil {
				return nil, q.dimensionError(v, tasks, queryError(i, err))
			}
		}
		return out, nil
	}

	// Search.
	o.Filter, o.Payload = f.shared, in.wantsMetadata() || in.Highlight
	o.Matches = in.Highlight && len(in.TextQuery) == 0 // with text_query newHighlighter finds them, for fewer hits
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

// dimensionError replaces the error of a query that has another dimension than the index by one with
// [CodeDimension]; other errors it returns as they are.
func (q *request) dimensionError(v collection.Snapshot, tasks []task, err error) error {
	var failed *search.QueryError
	if !errors.As(err, &failed) || failed.Index >= len(tasks) {
		return err
	}
	if dim := tasks[failed.Index].query.Dim; v.Dim() != 0 && dim != v.Dim() {
		return problem(CodeDimension, "query %d has dimension %d, the index %d", failed.Index, dim, v.Dim()).
			withPlace(Where{Query: &failed.Index})
	}
	return err
}

// restriction restricts the documents that a search may find to those that meet all of its fields.
type restriction struct {
	Subset     *[]int64       `json:"subset,omitempty"`
	IDs        *[]string      `json:"ids,omitempty" doc:"the same by _id"`
	Condition  string         `json:"filter_condition,omitempty"`
	Parameters parametersJSON `json:"filter_parameters,omitempty" doc:"a value for each ?"`
}

// hasRestriction reports whether the restriction has a field.
func (r *restriction) hasRestriction() bool {
	return r.Subset != nil || r.IDs != nil || r.Condition != "" || len(r.Parameters) > 0
}

// allowedDocuments returns the filter of the documents that may be found, or nil if all may.
func (r *restriction) allowedDocuments(q *request, v collection.Snapshot) (*search.Filter, error) {
	if !r.hasRestriction() {
		return nil, nil
	}
	selection, err := r.selection(q)
	if err != nil {
		return nil, err
	}
	ctx, end := q.startStage("select")
	f, err := v.Filter(ctx, selection)
	end(err)
	return f, err
}

// selection returns the documents that may be found.
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

// preferNull is a client's preference about fields of a condition that no document has: they are NULL, like
// fields that only some documents lack. Without the preference they are errors.
const (
	preferNull    = "unknown-fields=null"
	preferNullDoc = preferNull + ": fields that no document has are NULL in conditions, and no errors"
)

var conditionParam = param{headerPrefer, "header", "handling=lenient: fields of the body that are not known are no " +
	"errors; " + preferNullDoc, object{"type": "string"}}

// selectionFromCondition returns the documents for which a condition holds; params has the value for each
// "?" in it. Without a condition it selects all documents.
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

// validNumbers returns the document ids that are not negative, which no document has. The result is never
// nil: a Selection with nil Numbers would select all documents.
func validNumbers(ids []int64) []uint64 {
	numbers := make([]uint64, 0, len(ids))
	for _, id := range ids {
		if id >= 0 {
			numbers = append(numbers, uint64(id))
		}
	}
	return numbers
}
