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
	// errNotHere means that the node neither has the shard nor is a holder of it.
	errNotHere = errors.New("the shard is not on this node")
	// errGeneration means that the node has another generation of the collection.
	errGeneration = errors.New("another generation is searched")
	// errCutOff means that the node does not reach the store, so that it cannot make changes.
	errCutOff = errors.New("the object store has not answered")
)

// wireErrors are the errors that keep their identity between nodes. A final error is the fault of the request: every
// other node would answer the same.
var wireErrors = []struct {
	code  string
	err   error
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

// isFinal reports whether an error is the fault of the request.
func isFinal(err error) bool {
	for i := range wireErrors {
		if wireErrors[i].final && errors.Is(err, wireErrors[i].err) {
			return true
		}
	}
	return false
}

// wrapsAny reports whether an error wraps one of the targets.
func wrapsAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// failure is an error in an answer of a node.
type failure struct {
	Message string   `json:"message"`
	Codes   []string `json:"codes,omitempty"` // codes of [wireErrors]
	// At most one of these is set, if the error has a type with more information.
	At    *errorLocation               `json:"at,omitempty"`
	Field *condition.UnknownFieldError `json:"field,omitempty"`
	Busy  *collection.BusyError        `json:"busy,omitempty"`
	Words *keywords.SyntaxError        `json:"words,omitempty"`
}

// errorLocation says where in a request an error is: in a query, a document or a condition.
type errorLocation struct {
	Query     *int     `json:"query,omitempty"`
	Document  *int     `json:"document,omitempty"`
	ID        string   `json:"id,omitempty"` // of the document
	Token     int      `json:"token,omitempty"`
	Condition *string  `json:"condition,omitempty"`
	Offset    int      `json:"offset,omitempty"` // in the condition
	Err       *failure `json:"err"`
}

// newFailure returns an error in the form that is sent to other nodes.
func newFailure(err error) *failure {
	f := &failure{Message: err.Error()}
	for i := range wireErrors {
		if errors.Is(err, wireErrors[i].err) {
			f.Codes = append(f.Codes, wireErrors[i].code)
		}
	}
	if e, ok := errors.AsType[*search.QueryError](err); ok {
		f.At = &errorLocation{Query: &e.Index, Err: newFailure(e.Err)}
	} else if e, ok := errors.AsType[*collection.DocumentError](err); ok {
		f.At = &errorLocation{Document: &e.Document, ID: e.ID, Token: e.Token, Err: newFailure(e.Err)}
	} else if e, ok := errors.AsType[*condition.Error](err); ok {
		f.At = &errorLocation{Condition: &e.Condition, Offset: e.Offset, Err: newFailure(e.Err)}
	}
	f.Field, _ = errors.AsType[*condition.UnknownFieldError](err)
	f.Busy, _ = errors.AsType[*collection.BusyError](err)
	f.Words, _ = errors.AsType[*keywords.SyntaxError](err)
	return f
}

// toError returns an error with the text of the original, in which errors.Is and errors.As find the same.
func (f *failure) toError() error {
	e := &remoteError{text: f.Message}
	if location := f.At; location != nil {
		cause := errMessage
		if location.Err != nil {
			cause = location.Err.toError()
		}
		switch {
		case location.Query != nil:
			e.causes = append(e.causes, &search.QueryError{Index: *location.Query, Err: cause})
		case location.Document != nil:
			e.causes = append(e.causes, &collection.DocumentError{
				Document: *location.Document,
				ID:       location.ID,
				Token:    location.Token,
				Err:      cause,
			})
		case location.Condition != nil:
			offset := min(max(location.Offset, 0), len(*location.Condition))
			e.causes = append(e.causes, &condition.Error{Condition: *location.Condition, Offset: offset, Err: cause})
		}
	}
	if f.Field != nil {
		e.causes = append(e.causes, f.Field)
	}
	if f.Busy != nil {
		e.causes = append(e.causes, f.Busy)
	}
	if f.Words != nil {
		e.causes = append(e.causes, f.Words)
	}
	for i := range wireErrors {
		if slices.Contains(f.Codes, wireErrors[i].code) {
			e.causes = append(e.causes, wireErrors[i].err)
		}
	}
	return e
}

// remoteError is an error from another node.
type remoteError struct {
	text   string
	causes []error
}

func (e *remoteError) Error() string { return e.text }

func (e *remoteError) Unwrap() []error { return e.causes }
