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
// [Select] evaluates a condition over whatever stands for many documents at once.
package condition

import (
	"errors"
	"fmt"
	"unicode/utf8"
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
)

// Error says what is wrong with a condition, and where.
type Error struct {
	Condition string
	// Offset is the byte of Condition that the fault is at; its length: at the end.
	Offset int
	// Err wraps a sentinel of this package.
	Err error
}

const shownAround = 20 // characters of a condition before a fault

func (e *Error) Error() string {
	if e.Offset >= len(e.Condition) {
		return fmt.Sprintf("condition: %v, at its end", e.Err)
	}
	column := utf8.RuneCountInString(e.Condition[:e.Offset]) + 1
	rest := e.Condition[e.Offset:]
	for i, n := 0, 0; i < len(rest); n++ {
		if n == shownAround {
			rest = rest[:i] + "…"
			break
		}
		_, size := utf8.DecodeRuneInString(rest[i:])
		i += size
	}
	return fmt.Sprintf("condition: %v, at character %d: %q", e.Err, column, rest)
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

func truthOf(b bool) Truth {
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
