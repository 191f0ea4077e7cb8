// Package vectors reads and writes collections of documents (or queries). Each document is a matrix
// [tokens, dim] of float32, with any number of tokens.
//
// A collection is a [Source], with random access by document row. It knows lengths and ids when it is
// opened, and reads vectors in blocks when they are needed, so that a corpus need not fit in memory.
package vectors

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"

	"github.com/plaid-ir/plaid/internal/errkind"
	"github.com/plaid-ir/plaid/internal/floats"
	"github.com/plaid-ir/plaid/kernels"
)

// Errors that [FileError] wraps; test with errors.Is.
var (
	// ErrFormat means that the content of a file contradicts its suffix or header, that the file is cut
	// short, or that a field of metadata is invalid.
	ErrFormat = errors.New("malformed")
	// ErrShape means that arrays do not match each other (lengths, dimension, rank).
	ErrShape = errkind.New(errkind.BadRequest, "shapes do not match")
	// ErrValue means that a component is NaN or infinite.
	ErrValue = errkind.New(errkind.BadRequest, "value is not finite")
	// ErrID means that an id is empty, duplicate, missing, too long, not UTF-8, or has a control
	// character.
	ErrID = errkind.New(errkind.BadRequest, "bad id")
	// ErrChanged means that a file has changed since it was opened.
	ErrChanged = errors.New("changed while it was read")
	// ErrNoLengths means that an array [tokens, dim] has no lengths of documents. It wraps ErrShape.
	ErrNoLengths error = &subError{ErrShape, "lengths are missing"}
	// ErrSuffix means that the name of a file does not determine its format. It wraps ErrFormat.
	ErrSuffix error = &subError{ErrFormat, "unknown suffix"}
	// ErrType means that an array has numbers of a wrong type. It wraps ErrFormat.
	ErrType error = &subError{ErrFormat, "wrong type"}
)

var errEmptyFile error = &subError{ErrFormat, "the file is empty"}

// subError wraps an error whose text it does not repeat.
type subError struct {
	kind error
	text string
}

func (e *subError) Error() string { return e.text }
func (e *subError) Unwrap() error { return e.kind }

// FileError is an error with its location in a file. Fields that do not apply are −1, or empty;
// [NewFileError] sets them so.
type FileError struct {
	Path  string
	ID    string // id of the document, if it is known
	Doc   int    // document row, from 0
	Token int    // token of the document
	Dim   int    // component of the vector
	Line  int    // line of a text file, from 1
	Query bool   // the text says query in place of document
	Err   error
}

// NewFileError returns an error of a file. The caller sets other fields that apply.
func NewFileError(path string, err error) *FileError {
	return &FileError{Path: path, Doc: -1, Token: -1, Dim: -1, Line: -1, Err: err}
}

// Error reads like: docs.npy: document 17, token 3, component 5: value is not finite: NaN.
func (e *FileError) Error() string {
	var location []string
	add := func(name string, n int) {
		if n >= 0 {
			location = append(location, fmt.Sprintf("%s %d", name, n))
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
			location[len(location)-1] += fmt.Sprintf(" (id %.80q)", e.ID)
		} else {
			location = append(location, fmt.Sprintf("%s with id %.80q", noun, e.ID))
		}
	}
	add("token", e.Token)
	add("component", e.Dim)
	var b strings.Builder
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	if len(location) > 0 {
		b.WriteString(strings.Join(location, ", ") + ": ")
	}
	if e.Err == nil {
		return b.String() + "unknown fault"
	}
	return b.String() + e.Err.Error()
}

// Unwrap returns the cause, which wraps one of the sentinels of this package or is an error of the
// operating system.
func (e *FileError) Unwrap() error { return e.Err }

// faultf returns an error of a file that wraps a sentinel and adds a reason.
func faultf(path string, sentinel error, format string, args ...any) *FileError {
	return NewFileError(path, fmt.Errorf("%w: %s", sentinel, fmt.Sprintf(format, args...)))
}

// inFile adds the location to an error of code that does not know it. Fields of a [FileError] that are
// set already stay.
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

// checkFinite returns [ErrValue] for the first NaN or infinity of a document [tokens, dim].
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

// checkRange checks that a source of n documents has those from from on and before to.
func checkRange(path string, from, to, n int) error {
	if from < 0 || to > n || from > to {
		return faultf(path, ErrShape, "documents %d to %d asked of %d", from, to, n)
	}
	return nil
}

// eachDocument yields the documents from from on and before to, of n, until the first error. read reads
// document i.
func eachDocument(
	ctx context.Context, path string, from, to, n int,
	yield func(Document, error) bool, read func(i int) (Document, error),
) {
	err := checkRange(path, from, to, n)
	for i := from; i < to && err == nil; i++ {
		var doc Document
		if err = ctx.Err(); err == nil {
			doc, err = read(i)
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
	// Tokens is len(Tokens)/dim token vectors, row-major. It may be empty.
	Tokens []float32
	// Payload is returned by searches with the document. nil means no payload.
	Payload []byte
}

// Source is a collection of documents. Implementations are safe for use by one
// goroutine at a time.
type Source interface {
	// Dim returns the dimension of all vectors, or 0 if there are no vectors.
	Dim() int
	// Len returns the number of documents.
	Len() int
	// Rows returns the number of token vectors of document i.
	Rows(i int) int
	// ID returns the id of document i.
	ID(i int) string
	// Docs yields the documents from from on and before to, in order. The slices of a document are
	// valid until the next one is yielded. The first error ends the sequence. NaN and Inf are errors
	// ([ErrValue]). If a file has changed since it was opened, the last error is [ErrChanged], perhaps
	// after all documents: read to the end before using them.
	Docs(ctx context.Context, from, to int) iter.Seq2[Document, error]
	// Close releases files. It may be called twice.
	Close() error
}

// Selector is a Source for which each call of Docs is expensive, such as one that computes vectors when
// they are read.
type Selector interface {
	Source
	// Select yields selected documents in one sequence, as Docs does. docs ascends.
	Select(ctx context.Context, docs []int) iter.Seq2[Document, error]
}

// Resident is a Source whose vectors may be in the memory of a device, for a build on that device.
type Resident interface {
	Source
	// Vectors returns the vectors of all documents, one after another, or nil after DropVectors.
	Vectors() kernels.ResidentVectors
	// DropVectors frees them. Docs then computes them again.
	DropVectors()
	// DocsWithoutTokens yields documents without their tokens, otherwise as Docs does, until DropVectors is called.
	DocsWithoutTokens(ctx context.Context, from, to int) iter.Seq2[Document, error]
}

// MaxIDBytes is the maximum length of an id, in bytes.
const MaxIDBytes = 4096
