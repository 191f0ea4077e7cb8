// Package condition implements the language of conditions over the metadata of documents, the part
// of SQL that follows WHERE:
//
//	year >= ? AND lang IN (?, ?) AND NOT title LIKE ?
//
// [Parse] parses a condition, [Expr.Bind] sets its parameters, and [Condition.Match] evaluates it
// for one document. Conditions have the truth that SQLite gives them: NULL makes a comparison
// unknown, numbers compare with text that looks like a number, and LIKE ignores the case of ASCII
// letters. docs/conditions.md has grammar and meaning.
//
// [Select] evaluates a condition over sets of documents, and an [Evaluation] over one document
// after another until a context ends.
package condition

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/errkind"
	"github.com/plaid-ir/plaid/internal/human"
)

// Errors of this package, each wrapped in an [*Error]; test with errors.Is.
var (
	// ErrSyntax reports a text that is not a condition.
	ErrSyntax = errkind.New(errkind.BadRequest, "not a condition")
	// ErrParameter reports too few or too many parameters, one of a type that cannot be compared,
	// or a bad pattern.
	ErrParameter = errkind.New(errkind.BadRequest, "bad parameter of a condition")
	// ErrUnknownField reports a field that no document has.
	ErrUnknownField = errkind.New(errkind.BadRequest, "unknown field")
	// ErrTooComplex reports a condition with more tests, words or pattern instructions than the
	// limits allow. It comes together with ErrSyntax or ErrParameter.
	ErrTooComplex = errors.New("too complex")
)

// Error describes a fault of a condition, and its position.
type Error struct {
	Condition string
	// Offset is the byte of Condition at the fault; the length of Condition means its end.
	Offset int
	// Err wraps a sentinel of this package.
	Err error
}

// UnknownFieldError names a field that no document has. It wraps [ErrUnknownField].
type UnknownFieldError struct {
	Field Field
	// Fields are the fields that documents have. It is nil if they were not looked up.
	Fields []Field
}

const shownFields = 10 // number of existing fields that an error lists

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

const shownChars = 20 // characters of a condition that an error shows

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

// Truth is the truth of a condition. The zero value is Unknown.
type Truth int8

// The three truths. A document matches if a condition is True for it.
const (
	False   Truth = -1
	Unknown Truth = 0
	True    Truth = 1
)

// truthFromBool returns True or False.
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
