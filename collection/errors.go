package collection

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/vectors"
)

// Errors of this package, beside those of index, storage and search; test with
// errors.Is.
var (
	// ErrName: a name that a collection cannot have.
	ErrName = errors.New("bad name of an index")
	// ErrConfig: a setting out of range.
	ErrConfig = errors.New("bad configuration")
	// ErrExists: a collection of that name, or documents where there must be none.
	ErrExists = errors.New("index exists")
	// ErrUnknown: no collection of that name, any more or at all.
	ErrUnknown = errors.New("no such collection")
	// ErrEmpty: the collection has no documents yet.
	ErrEmpty = errors.New("collection has no documents yet")
	// ErrBusy: the queue of the collection is full; see [BusyError].
	ErrBusy = errors.New("too much waits to be written")
	// ErrClosed: the set of collections was closed.
	ErrClosed = errors.New("store is closed")
	// ErrReopened: what went on for long was given up, since the disk failed at the last
	// step of a change and the index file had to be opened again. It may be tried again.
	ErrReopened = errors.New("given up: the index file had to be opened again")
	// ErrDamaged: the collection cannot be opened. The error wraps why.
	ErrDamaged = errors.New("collection cannot be opened")
	// ErrMetadata: metadata of a document that is no object, has a bad key or is too
	// large.
	ErrMetadata = vectors.ErrPayload
	// ErrUnreachable: machines that have a part of the collection do not answer; nothing was changed.
	ErrUnreachable = errors.New("a part of the collection cannot be reached")
	// ErrSelection: documents are meant in more ways than are possible, or in none.
	ErrSelection = errors.New("bad selection")
	// ErrTooLarge: a change or an answer is larger than is possible at a time; nothing was changed.
	ErrTooLarge = errors.New("too large")
	// ErrUnsupported: what these collections do not do.
	ErrUnsupported = errors.New("this service cannot do that")
)

// BusyError is the [ErrBusy] of a full queue.
type BusyError struct {
	Documents  int           // that wait
	Bytes      int64         // that wait
	RetryAfter time.Duration // about when there will be room
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%v: %d documents, %d bytes; try again in %v", ErrBusy, e.Documents, e.Bytes, e.RetryAfter)
}

// Unwrap gives [ErrBusy].
func (e *BusyError) Unwrap() error { return ErrBusy }

// PartlyError is a change that was made in some shards of a collection and not in others, or not
// as far as is known. Err is why; it wraps [storage.ErrOutcomeUnknown] if the rest may have been made.
type PartlyError struct {
	// Documents are the places in the request of those that were stored, in order; nil of other changes.
	Documents []int
	// Done is what was changed.
	Done index.Affected
	Err  error
}

func (e *PartlyError) Error() string {
	const maxShown = 20 // places that are shown
	var b strings.Builder
	fmt.Fprintf(&b, "the change was made in part: %d documents and %d passages", e.Done.Documents, e.Done.Passages)
	for i, index := range e.Documents[:min(len(e.Documents), maxShown)] {
		b.WriteString([]string{", ", "; stored are the documents "}[max(0, 1-i)] + strconv.Itoa(index))
	}
	if n := len(e.Documents) - maxShown; n > 0 {
		fmt.Fprintf(&b, " and %d more", n)
	}
	return b.String() + " of the request: " + e.Err.Error()
}

// Unwrap gives the cause.
func (e *PartlyError) Unwrap() error { return e.Err }

// DocumentError says which document of a request is refused, and why: Err wraps
// [ErrMetadata], [vectors.ErrText], [vectors.ErrShape], [vectors.ErrValue],
// [vectors.ErrID], [index.ErrDimension] or [index.ErrDuplicateID]. Nothing of the
// request has taken effect.
type DocumentError struct {
	Document int    // place in the request, from 0
	ID       string // "" if none was given
	Token    int    // −1 where it is none
	Err      error
}

func (e *DocumentError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "document %d", e.Document)
	if e.ID != "" {
		fmt.Fprintf(&b, " (id %.80q)", e.ID)
	}
	if e.Token >= 0 {
		fmt.Fprintf(&b, ", token %d", e.Token)
	}
	return b.String() + ": " + e.Err.Error()
}

// Unwrap gives the cause.
func (e *DocumentError) Unwrap() error { return e.Err }

// Unsupported is the [ErrUnsupported] of something.
func Unsupported(what string) error { return fmt.Errorf("%s: %w", what, ErrUnsupported) }
