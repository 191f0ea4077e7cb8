package collection

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/errkind"
	"github.com/plaid-ir/plaid/vectors"
)

// Errors of this package, in addition to those of index, storage and search; test with errors.Is.
var (
	// ErrName means that a collection cannot have the name.
	ErrName = errkind.New(errkind.BadRequest, "bad name of an index")
	// ErrConfig means that a setting is out of range.
	ErrConfig = errkind.New(errkind.BadRequest, "bad configuration")
	// ErrExists means that a collection exists, or has documents where it must have none.
	ErrExists = errkind.New(errkind.Exists, "index exists")
	// ErrUnknown means that no collection has the name, or that it was removed.
	ErrUnknown = errkind.New(errkind.NotFound, "no such collection")
	// ErrEmpty means that the collection has no documents yet.
	ErrEmpty = errkind.New(errkind.Empty, "collection has no documents yet")
	// ErrBusy means that the queue of the collection is full; see [BusyError].
	ErrBusy = errors.New("too much waits to be written")
	// ErrClosed means that the catalog was closed.
	ErrClosed = errkind.New(errkind.Closing, "store is closed")
	// ErrReopened means that long work was ended because the disk failed at the last step of a change, and the index
	// file had to be opened again. The work may be tried again.
	ErrReopened = errkind.New(errkind.Reopened, "given up: the index file had to be opened again")
	// ErrDamaged means that the collection cannot be opened. The error wraps the reason.
	ErrDamaged = errkind.New(errkind.Damaged, "collection cannot be opened")
	// ErrMetadata means that metadata of a document is not an object, has a bad key or is too large.
	ErrMetadata = vectors.ErrPayload
	// ErrUnreachable means that machines with a part of the collection do not answer. Nothing was changed.
	ErrUnreachable = errkind.New(errkind.Unreachable, "a part of the collection cannot be reached")
	// ErrSelection means that a selection has more criteria than possible, or none.
	ErrSelection = errkind.New(errkind.BadRequest, "bad selection")
	// ErrTooLarge means that a change or an answer is too large for one request. Nothing was changed.
	ErrTooLarge = errkind.New(errkind.TooLarge, "too large")
	// ErrUnsupported means that these collections cannot do something.
	ErrUnsupported = errkind.New(errkind.NotSupported, "this service cannot do that")
)

// BusyError is the [ErrBusy] of a full queue.
type BusyError struct {
	Documents  int           // waiting ones
	Bytes      int64         // waiting ones
	RetryAfter time.Duration // estimate of when there will be room
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%v: %d documents, %d bytes; try again in %v", ErrBusy, e.Documents, e.Bytes, e.RetryAfter)
}

// Kind classifies the error for [errkind.Of].
func (e *BusyError) Kind() errkind.Kind { return errkind.QueueFull }

// Unwrap returns [ErrBusy].
func (e *BusyError) Unwrap() error { return ErrBusy }

// PartialError means that a change was made in some shards of a collection but not, or not certainly, in others. Err is
// the reason; it wraps [storage.ErrOutcomeUnknown] if the other shards may have made the change.
type PartialError struct {
	// Documents has the indices in the request of the documents that were stored, in order, nil for other changes.
	Documents []int
	// Done counts the documents and passages that were changed.
	Done index.Affected
	Err  error
}

func (e *PartialError) Error() string {
	const maxShown = 20 // indices in the message
	var b strings.Builder
	fmt.Fprintf(&b, "the change was made in part: %d documents and %d passages", e.Done.Documents, e.Done.Passages)
	separator := "; stored are the documents "
	for _, index := range e.Documents[:min(len(e.Documents), maxShown)] {
		b.WriteString(separator + strconv.Itoa(index))
		separator = ", "
	}
	if n := len(e.Documents) - maxShown; n > 0 {
		fmt.Fprintf(&b, " and %d more", n)
	}
	return b.String() + " of the request: " + e.Err.Error()
}

// Kind classifies the error for [errkind.Of].
func (e *PartialError) Kind() errkind.Kind { return errkind.PartlyDone }

// Unwrap returns the cause.
func (e *PartialError) Unwrap() error { return e.Err }

// DocumentError says which document of a request is refused, and why. Err wraps [ErrMetadata], [vectors.ErrText],
// [vectors.ErrShape], [vectors.ErrValue], [vectors.ErrID], [index.ErrDimension] or [index.ErrDuplicateID]. Nothing of
// the request has taken effect.
type DocumentError struct {
	Document int    // index in the request
	ID       string // "" if the document has none
	Token    int    // −1 means that the fault is not in a token
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

// Kind classifies the error for [errkind.Of]: the fault of a document is the fault of its request.
func (e *DocumentError) Kind() errkind.Kind {
	if errors.Is(e.Err, index.ErrDimension) {
		return errkind.BadDimension
	}
	return errkind.BadRequest
}

// Unwrap returns the cause.
func (e *DocumentError) Unwrap() error { return e.Err }

// Unsupported returns the [ErrUnsupported] of an operation, whose name is for the message.
func Unsupported(operation string) error { return fmt.Errorf("%s: %w", operation, ErrUnsupported) }
