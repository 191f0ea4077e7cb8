package eval

import (
	"errors"
	"fmt"
)

// Errors of this package; test with errors.Is. Those that concern a line of a
// file arrive inside a [LineError].
var (
	// ErrFormat: a line that is not what its format asks for.
	ErrFormat = errors.New("malformed line")
	// ErrDuplicate: a document, query or judgement that was given before.
	ErrDuplicate = errors.New("duplicate")
	// ErrMeasure: a name that is no measure, or a measure with parameters it lacks.
	ErrMeasure = errors.New("bad measure")
	// ErrNothingJudged: judgements without a single query.
	ErrNothingJudged = errors.New("no query is judged")
	// ErrUnpaired: values or results that cannot be compared query by query: other
	// queries, other judgements, other lengths.
	ErrUnpaired = errors.New("not paired")
	// ErrTooFewPairs: fewer than the 2 pairs that a significance test needs.
	ErrTooFewPairs = errors.New("too few pairs")
	// ErrParameter: an option or an argument out of its range.
	ErrParameter = errors.New("bad parameter")
)

// LineError is a fault in one line of a text file. It wraps its cause.
type LineError struct {
	File string
	Line int // from 1
	Err  error
}

func (e *LineError) Error() string {
	return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
}

// Unwrap makes errors.Is and errors.As find the cause.
func (e *LineError) Unwrap() error { return e.Err }

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
}

func badParameter(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrParameter, fmt.Sprintf(format, args...))
}

// shorten shortens a value for an error message.
func shorten[T ~string | ~[]byte](v T) string {
	const maxLen = 60
	if len(v) > maxLen {
		return string(v[:maxLen]) + "…"
	}
	return string(v)
}
