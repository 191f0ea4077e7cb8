package server

import (
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
)

// restriction says which documents may answer. What is given must all hold.
type restriction struct {
	Subset     *[]int64       `json:"subset,omitempty" doc:"document ids that may be returned; an empty list lets none through, ids that are not there are passed over"`
	IDs        *[]string      `json:"ids,omitempty" doc:"the same by _id"`
	Condition  string         `json:"filter_condition,omitempty" doc:"condition over the metadata; values are literals, or ? with a parameter each"`
	Parameters parametersJSON `json:"filter_parameters,omitempty" doc:"a value for each ?"`
}

// restricts tells whether anything is restricted.
func (r *restriction) restricts() bool {
	return r.Subset != nil || r.IDs != nil || r.Condition != "" || len(r.Parameters) > 0
}

// allowed are the documents that may answer; nil: all.
func (r *restriction) allowed(q *request, v collection.View) (*search.Filter, error) {
	if !r.restricts() {
		return nil, nil
	}
	all, err := r.selection(q)
	if err != nil {
		return nil, err
	}
	ctx, end := q.span("select")
	f, err := v.Filter(ctx, all)
	end(err)
	return f, err
}

// selection are the documents that may answer.
func (r *restriction) selection(q *request) (collection.Selection, error) {
	if len(r.Parameters) > 0 && r.Condition == "" {
		return collection.Selection{}, bad("filter_parameters without a filter_condition")
	}
	all, err := q.selected(r.Condition, r.Parameters)
	if r.Subset != nil {
		all.Numbers = documentIDs(*r.Subset)
	}
	if r.IDs != nil {
		all.IDs = append([]string{}, *r.IDs...)
	}
	return all, err
}

// preferNull has fields that no document has be NULL in conditions, as those are that some
// documents lack. Otherwise they are errors.
const (
	preferNull    = "unknown-fields=null"
	preferNullDoc = preferNull + ": fields that no document has are NULL in conditions, and no errors"
)

var conditionParam = param{headerPref, "header", "handling=lenient: fields of the body that are not known are no errors; " + preferNullDoc, object{"type": "string"}}

// selected are the documents that a condition is true of, which may have literals, and has
// a value for each "?"; without one they are all.
func (q *request) selected(text string, params parametersJSON) (s collection.Selection, err error) {
	if text == "" {
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
	if s.Where, err = e.Bind(values...); err == nil && q.wants(preferNull) {
		s.Where = s.Where.Lenient()
	}
	return s, err
}

// documentIDs are those that can be some; never nil.
func documentIDs(ids []int64) []uint64 {
	could := make([]uint64, 0, len(ids))
	for _, id := range ids {
		if id >= 0 {
			could = append(could, uint64(id))
		}
	}
	return could
}
