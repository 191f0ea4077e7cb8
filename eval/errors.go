package eval

import (
	"errors"
	"fmt"
)

// Errors of this package; test with errors.Is. Those that concern a line of a
// file arrive inside a [LineError].
var (
	// ErrFormat reports a line that violates its format.
	ErrFormat = errors.New("malformed line")
	// ErrDuplicate reports a document, query or judgement that occurs twice.
	ErrDuplicate = errors.New("duplicate")
	// ErrMeasure reports an unknown measure, or an unknown parameter of a measure.
	ErrMeasure = errors.New("bad measure")
	// ErrNothingJudged reports judgements without queries.
	ErrNothingJudged = errors.New("no query is judged")
	// ErrUnpaired reports values or results that cannot be compared query by query, because their
	// queries, judgements or lengths differ.
	ErrUnpaired = errors.New("not paired")
	// ErrTooFewPairs reports fewer than the 2 pairs that a significance test needs.
	ErrTooFewPairs = errors.New("too few pairs")
	// ErrParameter reports an option or an argument that is out of range.
	ErrParameter = errors.New("bad parameter")
)

// LineError is an error in one line of a text file. It wraps its cause.
type LineError struct {
	File string
	Line int // from 1
	Err  error
}

func (e *LineError) Error() string {
	return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
}

// Unwrap returns the cause.
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
