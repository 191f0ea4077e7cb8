package server

import (
	"errors"
	"fmt"
	"time"

	"github.com/plaid-ir/plaid/condition"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/keywords"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/server/store"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// collection is the one that the path names.
func (q *request) collection() (Index, error) {
	if err := store.CheckName(q.index()); err != nil {
		return nil, err
	}
	return q.s.indexes.Get(q.index())
}

// view calls use with the newest state of the collection that the path names.
func (q *request) view(use func(c Index, v View) error) (err error) {
	c, err := q.collection()
	if err != nil {
		return err
	}
	v, err := c.View(q.ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	return use(c, v)
}

// ofStore is the problem of an error of the store and of what is below it; nil if it
// says nothing about the request.
func ofStore(err error) *Problem {
	var busy *store.BusyError
	var doc *store.DocumentError
	var cond *condition.Error
	var query *search.QueryError
	switch {
	case errors.As(err, &query): // wraps one of the others
		p := ofStore(query.Err)
		if p == nil {
			return nil
		}
		if p.Details == nil {
			p.Details = &Where{}
		}
		p.Details.Query, p.Message = &query.Index, fmt.Sprintf("query %d: %s", query.Index, p.Message)
		return p
	case errors.As(err, &busy):
		// Its text names no index: clients take a 503 with "model" in it for another error.
		return problem(CodeBusy, "too much waits to be written: %d documents, %d bytes", busy.Documents, busy.Bytes).after(busy.RetryAfter)
	case errors.Is(err, store.ErrReopened):
		return problem(CodeBusy, "the disk failed, and the file was opened again; try again").after(time.Second)
	case errors.Is(err, keywords.ErrSyntax):
		p := problem(CodeBadRequest, "text_query: %w", err)
		var at *keywords.SyntaxError
		if errors.As(err, &at) {
			p.at(Where{Position: &at.Offset})
		}
		return p
	case errors.As(err, &doc):
		w := Where{Document: &doc.Document, ID: doc.ID}
		if doc.Token >= 0 {
			w.Token = &doc.Token
		}
		code := CodeBadRequest
		if errors.Is(err, index.ErrDimension) {
			code = CodeDimension
		}
		return problem(code, "%w", err).at(w)
	case errors.Is(err, condition.ErrUnknownField), errors.Is(err, condition.ErrSyntax), errors.Is(err, condition.ErrParameter):
		p := problem(CodeBadRequest, "%w", err)
		if errors.As(err, &cond) {
			p.at(Where{Position: &cond.Offset})
		}
		return p
	}
	for _, known := range []struct {
		is   error
		code Code
	}{
		{store.ErrName, CodeBadRequest},
		{store.ErrConfig, CodeBadRequest},
		{store.ErrExists, CodeIndexExists},
		{store.ErrSelection, CodeBadRequest},
		{store.ErrMetadata, CodeBadRequest},
		{index.ErrDimension, CodeDimension},
		{index.ErrNotFound, CodeDocumentNotFound},
		{search.ErrUnknownID, CodeDocumentNotFound},
		{search.ErrQuery, CodeBadRequest},
		{search.ErrOption, CodeBadRequest},
		{index.ErrOption, CodeBadRequest},
		{vectors.ErrShape, CodeBadRequest},
		{vectors.ErrValue, CodeBadRequest},
		{vectors.ErrID, CodeBadRequest},
		{storage.ErrModel, CodeBadRequest},
		{index.ErrNoTokens, CodeBadRequest},
	} {
		if errors.Is(err, known.is) {
			return problem(known.code, "%w", err)
		}
	}
	internal := func(code Code, text string) *Problem {
		p := problem(code, "%s: the log of the service has it under this request id", text)
		p.err = err
		return p
	}
	switch {
	case errors.Is(err, store.ErrUnknown):
		p := problem(CodeIndexNotFound, "index not found")
		p.err = err
		return p
	case errors.Is(err, store.ErrEmpty):
		p := problem(CodeIndexNotFound, "index not found: it is declared and has no documents yet")
		p.err = err
		return p
	case errors.Is(err, store.ErrClosed), errors.Is(err, search.ErrClosed):
		return problem(CodeBusy, "the service is ending").after(time.Second)
	case errors.Is(err, storage.ErrOutcomeUnknown):
		return internal(CodeOutcomeUnknown, "the disk failed at the last step: the change was made or was not; look before you repeat it")
	case errors.Is(err, store.ErrDamaged), errors.Is(err, storage.ErrCorrupt):
		return internal(CodeCorrupt, "the index is damaged")
	}
	return nil
}

// restriction says which documents may answer. What is given must all hold.
type restriction struct {
	Subset     *[]int64  `json:"subset,omitempty" doc:"document ids that may be returned; an empty list lets none through, ids that are not there are passed over"`
	IDs        *[]string `json:"ids,omitempty" doc:"the same by _id"`
	Condition  string    `json:"filter_condition,omitempty" doc:"condition over the metadata, with ? for values"`
	Parameters []any     `json:"filter_parameters,omitempty" doc:"a value for each ?"`
}

// restricts tells whether anything is restricted.
func (r *restriction) restricts() bool {
	return r.Subset != nil || r.IDs != nil || r.Condition != ""
}

// allowed are the documents that may answer; nil: all.
func (r *restriction) allowed(q *request, v View) (*search.Filter, error) {
	if len(r.Parameters) > 0 && r.Condition == "" {
		return nil, bad("filter_parameters without a filter_condition")
	}
	if !r.restricts() {
		return nil, nil
	}
	all := Restriction{Condition: r.Condition, Params: r.Parameters}
	if r.Subset != nil {
		all.Documents = documentIDs(*r.Subset)
	}
	if r.IDs != nil {
		all.IDs = append([]string{}, *r.IDs...)
	}
	ctx, end := q.span("select")
	f, err := v.Filter(ctx, all)
	end(err)
	return f, err
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

// plural is a number and what there is of it.
func plural(n int, what string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}
