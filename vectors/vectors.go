// Package vectors reads and writes ragged token matrices: collections of
// documents (or queries) of which each is a matrix [tokens, dim] of float32.
//
// A collection is a [Source]: random access by document row, with lengths and
// ids known up front, and the vectors read in blocks when they are asked for,
// so that no corpus needs to fit in memory.
package vectors

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"

	"github.com/plaid-ir/plaid/internal/floats"
	"github.com/plaid-ir/plaid/kernels"
)

// Errors that [FileError] wraps; test with errors.Is.
var (
	// ErrFormat: a file is not what its suffix or header says, or is cut short; or a field of metadata
	// says what cannot be.
	ErrFormat = errors.New("malformed")
	// ErrShape: arrays that do not fit each other (lengths, dimension, rank).
	ErrShape = errors.New("shapes do not match")
	// ErrValue: a NaN or infinite component.
	ErrValue = errors.New("value is not finite")
	// ErrID: an id that is empty, duplicate, missing, too long, no UTF-8 or has a control character.
	ErrID = errors.New("bad id")
	// ErrChanged: a file is not what it was when it was opened.
	ErrChanged = errors.New("changed while it was read")
	// ErrNoLengths: an array [tokens, dim] does not tell where documents end. It is an
	// ErrShape, too.
	ErrNoLengths error = &subError{ErrShape, "lengths are missing"}
	// ErrSuffix: the name of a file does not tell its format. It is an ErrFormat, too.
	ErrSuffix error = &subError{ErrFormat, "unknown suffix"}
	// ErrType: numbers of another type than are wanted. It is an ErrFormat, too.
	ErrType error = &subError{ErrFormat, "wrong type"}
)

var errEmptyFile error = &subError{ErrFormat, "the file is empty"}

// subError is an error of a kind that its text does not name.
type subError struct {
	kind error
	text string
}

func (e *subError) Error() string { return e.text }
func (e *subError) Unwrap() error { return e.kind }

// FileError names the place of a fault. Fields that do not apply are −1 (or
// empty); [NewFileError] sets them so.
type FileError struct {
	Path  string
	ID    string // id of the document, if it is known
	Doc   int    // document row, from 0
	Token int    // token of the document
	Dim   int    // component of the vector
	Line  int    // line of a text file, from 1
	Query bool   // what it calls a document is a query
	Err   error
}

// NewFileError is a fault of the file as a whole; the caller fills in the
// fields that apply.
func NewFileError(path string, err error) *FileError {
	return &FileError{Path: path, Doc: -1, Token: -1, Dim: -1, Line: -1, Err: err}
}

// Error reads like: docs.npy: document 17, token 3, component 5: value is not finite: NaN.
func (e *FileError) Error() string {
	var place []string
	add := func(name string, n int) {
		if n >= 0 {
			place = append(place, fmt.Sprintf("%s %d", name, n))
		}
	}
	noun := "document"
	if e.Query {
		noun = "query"
	}
	add("line", e.Line)
	add(noun, e.Doc)
	if e.ID != "" {
		if e.Doc >= 0 {
			place[len(place)-1] += fmt.Sprintf(" (id %.80q)", e.ID)
		} else {
			place = append(place, fmt.Sprintf("%s with id %.80q", noun, e.ID))
		}
	}
	add("token", e.Token)
	add("component", e.Dim)
	var b strings.Builder
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	if len(place) > 0 {
		b.WriteString(strings.Join(place, ", ") + ": ")
	}
	if e.Err == nil {
		return b.String() + "unknown fault"
	}
	return b.String() + e.Err.Error()
}

// Unwrap gives the cause, which wraps one of the sentinels of this package or
// is an error of the operating system.
func (e *FileError) Unwrap() error { return e.Err }

// faultf is a fault of a whole file: the sentinel, then the reason.
func faultf(path string, sentinel error, format string, args ...any) *FileError {
	return NewFileError(path, fmt.Errorf("%w: %s", sentinel, fmt.Sprintf(format, args...)))
}

// inFile completes a fault found by code that does not know where it reads:
// places that are already set stay.
func inFile(err error, path string, doc, line int, id string) error {
	var fe *FileError
	if !errors.As(err, &fe) {
		fe = NewFileError(path, err)
	}
	if fe.Path == "" {
		fe.Path = path
	}
	if fe.Doc < 0 {
		fe.Doc = doc
	}
	if fe.Line < 0 {
		fe.Line = line
	}
	if fe.ID == "" {
		fe.ID = id
	}
	return fe
}

// checkFinite finds the first NaN or infinity of a document [tokens, dim].
func checkFinite(tokens []float32, dim int) error {
	if floats.Finite(tokens) {
		return nil
	}
	for i, v := range tokens {
		if math.Float32bits(v)&0x7f800000 == 0x7f800000 {
			fe := NewFileError("", fmt.Errorf("%w: %v", ErrValue, v))
			fe.Token, fe.Dim = i/dim, i%dim
			return fe
		}
	}
	return nil
}

// checkRange refuses document ranges that a source of n does not have.
func checkRange(path string, from, to, n int) error {
	if from < 0 || to > n || from > to {
		return faultf(path, ErrShape, "documents %d to %d asked of %d", from, to, n)
	}
	return nil
}

// eachDocument yields the documents from to to of n, up to the first with an error.
func eachDocument(ctx context.Context, path string, from, to, n int, yield func(Document, error) bool, document func(i int) (Document, error)) {
	err := checkRange(path, from, to, n)
	for i := from; i < to && err == nil; i++ {
		var doc Document
		if err = ctx.Err(); err == nil {
			doc, err = document(i)
		}
		if err == nil && !yield(doc, nil) {
			return
		}
	}
	if err != nil {
		yield(Document{}, err)
	}
}

// Document is one document or query.
type Document struct {
	ID string
	// Tokens is row-major, len(Tokens)/dim token vectors; it may be empty.
	Tokens []float32
	// Payload is what a search gives back with a hit; nil if there is none.
	Payload []byte
}

// Source is a collection of documents. Implementations are safe for use by one
// goroutine at a time.
type Source interface {
	// Dim is the dimension of every vector; 0 if there is not one vector.
	Dim() int
	// Len is the number of documents.
	Len() int
	// Rows is the number of token vectors of document i.
	Rows(i int) int
	// ID is the id of document i.
	ID(i int) string
	// Docs yields the documents from to to (exclusive), in order. The slices
	// of a document are valid until the next one is asked for. The first
	// error ends the sequence. NaN and Inf are errors ([ErrValue]). A file that
	// changed since it was opened is [ErrChanged], at the end of the sequence if
	// nothing else shows it: read to the end before using what was read.
	Docs(ctx context.Context, from, to int) iter.Seq2[Document, error]
	// Close releases files. It may be called twice.
	Close() error
}

// Picker is a Source for which it is dear to begin to read, as for one that makes vectors
// as they are asked for.
type Picker interface {
	Source
	// Pick yields the documents of these numbers, which ascend, as Docs does, in one go.
	Pick(ctx context.Context, docs []int) iter.Seq2[Document, error]
}

// Resident is a Source whose vectors may lie on a device, where a build on that device reads them.
type Resident interface {
	Source
	// Vectors returns those of all documents, one behind the other, or nil once they were dropped.
	Vectors() kernels.ResidentVectors
	// DropVectors frees them. Docs makes them again.
	DropVectors()
	// Bare yields documents as Docs does, without their tokens, until DropVectors is called.
	Bare(ctx context.Context, from, to int) iter.Seq2[Document, error]
}

// MaxIDBytes is the longest id, in bytes.
const MaxIDBytes = 4096
