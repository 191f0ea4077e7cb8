package collection

import (
	"errors"
	"syscall"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/keywords"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Kind classifies an error of a collection by what its caller can do about it, so that a service need
// not know the errors of each package below. [KindOf] returns it.
type Kind int

// The kinds of errors.
const (
	KindUnknown          Kind = iota // it says nothing about the request: a fault, or another package's error
	KindPartlyDone                   // a part of the change was made
	KindUnreachable                  // shards do not answer now
	KindQueueFull                    // too much waits to be written: [BusyError]
	KindDiskFull                     // nothing was changed
	KindNoAddressSpace               // nothing was changed: the file cannot be mapped at a larger size
	KindReopened                     // the disk failed, and the file was opened again: try again
	KindBadTextQuery                 // a query of keywords cannot be parsed
	KindBadDimension                 // vectors have another dimension than the index
	KindBadRequest                   // something else in the request is wrong
	KindTooLarge                     // the request is larger than a collection accepts
	KindNotSupported                 // this collection, or all of this catalog, cannot do it
	KindExists                       // a collection has the name
	KindDocumentNotFound             // the document is not in the collection
	KindNotFound                     // no collection has the name
	KindEmpty                        // the collection has no documents yet
	KindClosed                       // the index was removed or opened again while it was read
	KindLocked                       // another process changes the index
	KindClosing                      // the catalog is being closed
	KindOutcomeUnknown               // the last step failed: the change was made or was not
	KindDamaged                      // the index is damaged
)

// kindTable has the kinds of errors. If an error matches several rows, the first counts: a row about the effect of a
// change comes before one about a fault of the request.
var kindTable = []struct {
	kind    Kind
	matches func(err error) bool
}{
	{KindPartlyDone, isType[*PartialError]},
	{KindUnreachable, withKnownOutcome(isAny(ErrUnreachable))},
	{KindQueueFull, isType[*BusyError]},
	{KindDiskFull, withKnownOutcome(isAny(syscall.ENOSPC, syscall.EDQUOT))},
	{KindNoAddressSpace, isAny(storage.ErrTooLarge)},
	{KindNoAddressSpace, withKnownOutcome(isAny(syscall.ENOMEM))},
	{KindReopened, isAny(ErrReopened)},
	{KindBadTextQuery, isAny(keywords.ErrSyntax)},
	{KindBadDimension, func(err error) bool {
		return isType[*DocumentError](err) && errors.Is(err, index.ErrDimension)
	}},
	{KindBadRequest, isType[*DocumentError]},
	{KindBadRequest, isAny(condition.ErrUnknownField, condition.ErrSyntax, condition.ErrParameter)},
	{KindNotSupported, isAny(ErrUnsupported)},
	{KindBadRequest, isAny(ErrName, ErrConfig)},
	{KindExists, isAny(ErrExists)},
	{KindBadRequest, isAny(ErrSelection)},
	{KindTooLarge, isAny(ErrTooLarge)},
	{KindBadRequest, isAny(ErrMetadata)},
	{KindBadDimension, isAny(index.ErrDimension)},
	{KindDocumentNotFound, isAny(index.ErrNotFound, search.ErrUnknownID)},
	{KindBadRequest, isAny(search.ErrQuery, keywords.ErrTooLong, search.ErrOption, index.ErrOption)},
	{KindBadRequest, isAny(vectors.ErrShape, vectors.ErrValue, vectors.ErrID, storage.ErrModel)},
	{KindNotSupported, isAny(storage.ErrReadOnly)},
	{KindBadRequest, isAny(index.ErrTooManyValues, index.ErrNoTokens)},
	{KindNotFound, isAny(ErrUnknown)},
	{KindEmpty, isAny(ErrEmpty)},
	{KindClosed, isAny(storage.ErrClosed, search.ErrClosed)},
	{KindLocked, isAny(storage.ErrLocked)},
	{KindClosing, isAny(ErrClosed)},
	{KindOutcomeUnknown, isAny(storage.ErrOutcomeUnknown)},
	{KindDamaged, isAny(ErrDamaged, storage.ErrCorrupt)},
}

// KindOf returns the kind of an error of this package or of those below it.
func KindOf(err error) Kind {
	for _, row := range kindTable {
		if row.matches(err) {
			return row.kind
		}
	}
	return KindUnknown
}

// isAny returns a function that reports whether an error is one of targets.
func isAny(targets ...error) func(error) bool {
	return func(err error) bool {
		for _, target := range targets {
			if errors.Is(err, target) {
				return true
			}
		}
		return false
	}
}

// isType reports whether an error is, or wraps, one of type E.
func isType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// withKnownOutcome restricts a condition to errors after which it is known that nothing was changed.
func withKnownOutcome(matches func(error) bool) func(error) bool {
	return func(err error) bool { return matches(err) && !errors.Is(err, storage.ErrOutcomeUnknown) }
}
