package tokenizer

import (
	"errors"
	"fmt"
)

// Errors of this package; test with errors.Is.
var (
	// ErrTokenizer: a tokenizer.json is damaged, or says what is not understood.
	ErrTokenizer = errors.New("tokenizer is not understood")
	// ErrText: a text cannot be tokenized.
	ErrText = errors.New("text cannot be tokenized")
)

// Error says which part of which tokenizer.json is wrong. It wraps [ErrTokenizer].
type Error struct {
	Path  string // the file; empty if it was not read from one
	Field string // place within it, like pre_tokenizer.pretokenizers[1].type; empty for the whole
	Err   error
}

// Error reads like: m/tokenizer.json: normalizer.type: "Nmt" is not known.
func (e *Error) Error() string {
	msg := ""
	for _, s := range []string{e.Path, e.Field} {
		if s != "" {
			msg += s + ": "
		}
	}
	return msg + e.Err.Error()
}

// Unwrap makes errors.Is find ErrTokenizer and the cause.
func (e *Error) Unwrap() []error { return []error{ErrTokenizer, e.Err} }

func faultf(field, format string, args ...any) *Error {
	return &Error{Field: field, Err: fmt.Errorf(format, args...)}
}
