// Package condition has the language of conditions over the metadata of documents,
// the part of SQL that follows WHERE:
//
//	year >= ? AND lang IN (?, ?) AND NOT title LIKE ?
//
// [Parse] reads one, [Expr.Bind] gives it its parameters, and [Condition.Match] holds
// it against one document. What is true is what SQLite says is true: NULL makes a
// comparison unknown, numbers compare with text that looks like a number, LIKE does
// not tell the case of ASCII letters. docs/conditions.md has grammar and meaning.
//
// [Select] evaluates a condition over whatever stands for many documents at once, and an
// [Evaluation] one document after the other for as long as a context goes on.
package condition

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/human"
)

// Errors of this package, each in an [*Error]; test with errors.Is.
var (
	// ErrSyntax: a text that is no condition.
	ErrSyntax = errors.New("not a condition")
	// ErrParameter: too few or too many parameters, or one of a type that cannot be
	// compared, or a pattern that is none.
	ErrParameter = errors.New("bad parameter of a condition")
	// ErrUnknownField: a field that no document has.
	ErrUnknownField = errors.New("unknown field")
	// ErrTooComplex: a condition of more tests, words or instructions of patterns than are
	// possible. It comes with ErrSyntax or ErrParameter.
	ErrTooComplex = errors.New("too complex")
)

// Error says what is wrong with a condition, and where.
type Error struct {
	Condition string
	// Offset is the byte of Condition that the fault is at; its length: at the end.
	Offset int
	// Err wraps a sentinel of this package.
	Err error
}

// UnknownFieldError names a field that no document has. It wraps [ErrUnknownField].
type UnknownFieldError struct {
	Field Field
	// Fields are those that documents have; nil: they were not looked for.
	Fields []Field
}

const shownFields = 10 // of those that there are

func (e *UnknownFieldError) Error() string {
	text := fmt.Sprintf("%v %s", ErrUnknownField, e.Field)
	switch {
	case e.Fields == nil:
		return text
	case len(e.Fields) == 0:
		return text + ": no document has fields"
	}
	names := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		names[i] = string(f)
	}
	names = human.ByDistance(string(e.Field), names)
	more := ""
	if n := len(names) - shownFields; n > 0 {
		names, more = names[:shownFields], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%s (there are, nearest first: %s%s)", text, strings.Join(names, ", "), more)
}

// Unwrap returns ErrUnknownField.
func (e *UnknownFieldError) Unwrap() error { return ErrUnknownField }

// Limits of a condition.
const (
	// MaxText bounds the bytes of its text.
	MaxText = 4 << 20
	// MaxTests bounds the comparisons of a field with values; IN is one, however long.
	MaxTests = 10_000
	// MaxWords bounds the words and signs of its text, the values of IN and the commas
	// between them included.
	MaxWords = 1 << 19
	// MaxProgram bounds the instructions that the patterns of REGEXP become, together.
	MaxProgram = 1 << 16
)

const shownChars = 20 // characters of a condition before a fault

func (e *Error) Error() string {
	if e.Offset >= len(e.Condition) {
		return fmt.Sprintf("condition: %v, at its end", e.Err)
	}
	column := utf8.RuneCountInString(e.Condition[:e.Offset]) + 1
	shown := e.Condition[e.Offset:]
	for i, n := 0, 0; i < len(shown); n++ {
		if n == shownChars {
			shown = shown[:i] + "…"
			break
		}
		_, size := utf8.DecodeRuneInString(shown[i:])
		i += size
	}
	return fmt.Sprintf("condition: %v, at character %d: %q", e.Err, column, shown)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Truth is the value of a condition. The zero value is Unknown.
type Truth int8

// The three of them. A document matches if a condition is True of it.
const (
	False   Truth = -1
	Unknown Truth = 0
	True    Truth = 1
)

func truthFromBool(b bool) Truth {
	if b {
		return True
	}
	return False
}

func (t Truth) String() string {
	switch t {
	case True:
		return "true"
	case False:
		return "false"
	}
	return "unknown"
}
