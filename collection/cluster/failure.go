package cluster

import (
	"context"
	"errors"
	"slices"
	"syscall"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/journal"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/keywords"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

var (
	// errNotHere: the node has not the shard, and is not to have it.
	errNotHere = errors.New("the shard is not here")
	// errGeneration: the node knows another generation of the collection.
	errGeneration = errors.New("another generation is searched")
	// errCutOff: the store does not answer the node, so that nothing can be changed there.
	errCutOff = errors.New("the object store has not answered")
)

// carried are the errors that keep their meaning from node to node. Those that are final are the fault
// of the request: no other node answers otherwise.
var carried = []struct {
	code  string
	is    error
	final bool
}{
	{"not here", errNotHere, false},
	{"generation", errGeneration, false},
	{"cut off", errCutOff, false},
	{"too busy", errTooBusy, false},
	{"message", errMessage, false},
	{"secret", errSecret, false},
	{"no route", errNoRoute, false},
	{"too large", collection.ErrTooLarge, true},
	{"taken", journal.ErrTaken, false},
	{"behind", journal.ErrBehind, false},
	{"fork", journal.ErrFork, false},
	{"log unknown", journal.ErrUnknown, false},
	{"undecided", store.ErrUndecided, false},
	{"sent long ago", store.ErrLate, false},
	{"failed", replica.ErrFailed, false},
	{"outcome unknown", storage.ErrOutcomeUnknown, false},
	{"corrupt", storage.ErrCorrupt, false},
	{"internal", storage.ErrInternal, false},
	{"closed file", storage.ErrClosed, false},
	{"large file", storage.ErrTooLarge, false},
	{"read-only", storage.ErrReadOnly, true},
	{"model", storage.ErrModel, true},
	{"no space", syscall.ENOSPC, false},
	{"quota", syscall.EDQUOT, false},
	{"memory", syscall.ENOMEM, false},
	{"cancelled", context.Canceled, false},
	{"late", context.DeadlineExceeded, false},
	{"name", collection.ErrName, true},
	{"config", collection.ErrConfig, true},
	{"exists", collection.ErrExists, true},
	{"unknown", collection.ErrUnknown, false},
	{"empty", collection.ErrEmpty, false},
	{"busy", collection.ErrBusy, false},
	{"ending", collection.ErrClosed, false},
	{"reopened", collection.ErrReopened, false},
	{"damaged", collection.ErrDamaged, false},
	{"unreachable", collection.ErrUnreachable, false},
	{"selection", collection.ErrSelection, true},
	{"unsupported", collection.ErrUnsupported, true},
	{"metadata", vectors.ErrPayload, true},
	{"text", vectors.ErrText, true},
	{"shape", vectors.ErrShape, true},
	{"format", vectors.ErrFormat, true},
	{"value", vectors.ErrValue, true},
	{"id", vectors.ErrID, true},
	{"dimension", index.ErrDimension, true},
	{"duplicate", index.ErrDuplicateID, true},
	{"passages", index.ErrPassages, true},
	{"too many", index.ErrTooMany, true},
	{"not found", index.ErrNotFound, true},
	{"index option", index.ErrOption, true},
	{"too many values", index.ErrTooManyValues, true},
	{"no tokens", index.ErrNoTokens, true},
	{"query", search.ErrQuery, true},
	{"option", search.ErrOption, true},
	{"unknown id", search.ErrUnknownID, true},
	{"closed search", search.ErrClosed, false},
	{"words option", keywords.ErrOption, true},
	{"words syntax", keywords.ErrSyntax, true},
	{"words length", keywords.ErrTooLong, true},
	{"field", condition.ErrUnknownField, true},
	{"condition", condition.ErrSyntax, true},
	{"parameter", condition.ErrParameter, true},
	{"complex", condition.ErrTooComplex, true},
}

// final reports whether an error is the fault of the request.
func final(err error) bool {
	for i := range carried {
		if carried[i].final && errors.Is(err, carried[i].is) {
			return true
		}
	}
	return false
}

// isAny reports whether an error is one of some.
func isAny(err error, some ...error) bool {
	return slices.ContainsFunc(some, func(is error) bool { return errors.Is(err, is) })
}

// failure is an error on its way.
type failure struct {
	Message string   `json:"message"`
	Codes   []string `json:"codes,omitempty"` // by [carried]
	// One of these at most, if the error has a type that says more.
	At    *spot                        `json:"at,omitempty"`
	Field *condition.UnknownFieldError `json:"field,omitempty"`
	Busy  *collection.BusyError        `json:"busy,omitempty"`
	Words *keywords.SyntaxError        `json:"words,omitempty"`
}

// spot is where in a request an error is: in a query, a document or a condition.
type spot struct {
	Query     *int     `json:"query,omitempty"`
	Document  *int     `json:"document,omitempty"`
	ID        string   `json:"id,omitempty"` // of the document
	Token     int      `json:"token,omitempty"`
	Condition *string  `json:"condition,omitempty"`
	Offset    int      `json:"offset,omitempty"` // in the condition
	Err       *failure `json:"err"`
}

func failureOf(err error) *failure {
	f := &failure{Message: err.Error()}
	for i := range carried {
		if errors.Is(err, carried[i].is) {
			f.Codes = append(f.Codes, carried[i].code)
		}
	}
	if e, ok := errors.AsType[*search.QueryError](err); ok {
		f.At = &spot{Query: &e.Index, Err: failureOf(e.Err)}
	} else if e, ok := errors.AsType[*collection.DocumentError](err); ok {
		f.At = &spot{Document: &e.Document, ID: e.ID, Token: e.Token, Err: failureOf(e.Err)}
	} else if e, ok := errors.AsType[*condition.Error](err); ok {
		f.At = &spot{Condition: &e.Condition, Offset: e.Offset, Err: failureOf(e.Err)}
	}
	f.Field, _ = errors.AsType[*condition.UnknownFieldError](err)
	f.Busy, _ = errors.AsType[*collection.BusyError](err)
	f.Words, _ = errors.AsType[*keywords.SyntaxError](err)
	return f
}

// err is the error that a failure was made of: its words, and what errors.Is and errors.As find in it.
func (f *failure) err() error {
	e := &remoteError{text: f.Message}
	if at := f.At; at != nil {
		cause := errMessage
		if at.Err != nil {
			cause = at.Err.err()
		}
		switch {
		case at.Query != nil:
			e.is = append(e.is, &search.QueryError{Index: *at.Query, Err: cause})
		case at.Document != nil:
			e.is = append(e.is, &collection.DocumentError{Document: *at.Document, ID: at.ID, Token: at.Token, Err: cause})
		case at.Condition != nil:
			offset := min(max(at.Offset, 0), len(*at.Condition))
			e.is = append(e.is, &condition.Error{Condition: *at.Condition, Offset: offset, Err: cause})
		}
	}
	if f.Field != nil {
		e.is = append(e.is, f.Field)
	}
	if f.Busy != nil {
		e.is = append(e.is, f.Busy)
	}
	if f.Words != nil {
		e.is = append(e.is, f.Words)
	}
	for i := range carried {
		if slices.Contains(f.Codes, carried[i].code) {
			e.is = append(e.is, carried[i].is)
		}
	}
	return e
}

// remoteError is an error of a node.
type remoteError struct {
	text string
	is   []error
}

func (e *remoteError) Error() string { return e.text }

func (e *remoteError) Unwrap() []error { return e.is }
