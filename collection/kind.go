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
	{KindUnreachable, withKnownOutcome(matchesAny(ErrUnreachable))},
	{KindQueueFull, isType[*BusyError]},
	{KindDiskFull, withKnownOutcome(matchesAny(syscall.ENOSPC, syscall.EDQUOT))},
	{KindNoAddressSpace, matchesAny(storage.ErrTooLarge)},
	{KindNoAddressSpace, withKnownOutcome(matchesAny(syscall.ENOMEM))},
	{KindReopened, matchesAny(ErrReopened)},
	{KindBadTextQuery, matchesAny(keywords.ErrSyntax)},
	{KindBadDimension, func(err error) bool {
		return isType[*DocumentError](err) && errors.Is(err, index.ErrDimension)
	}},
	{KindBadRequest, isType[*DocumentError]},
	{KindBadRequest, matchesAny(condition.ErrUnknownField, condition.ErrSyntax, condition.ErrParameter)},
	{KindNotSupported, matchesAny(ErrUnsupported)},
	{KindBadRequest, matchesAny(ErrName, ErrConfig)},
	{KindExists, matchesAny(ErrExists)},
	{KindBadRequest, matchesAny(ErrSelection)},
	{KindTooLarge, matchesAny(ErrTooLarge)},
	{KindBadRequest, matchesAny(ErrMetadata)},
	{KindBadDimension, matchesAny(index.ErrDimension)},
	{KindDocumentNotFound, matchesAny(index.ErrNotFound, search.ErrUnknownID)},
	{KindBadRequest, matchesAny(search.ErrQuery, keywords.ErrTooLong, search.ErrOption, index.ErrOption)},
	{KindBadRequest, matchesAny(vectors.ErrShape, vectors.ErrValue, vectors.ErrID, storage.ErrModel)},
	{KindNotSupported, matchesAny(storage.ErrReadOnly)},
	{KindBadRequest, matchesAny(index.ErrTooManyValues, index.ErrNoTokens)},
	{KindNotFound, matchesAny(ErrUnknown)},
	{KindEmpty, matchesAny(ErrEmpty)},
	{KindClosed, matchesAny(storage.ErrClosed, search.ErrClosed)},
	{KindLocked, matchesAny(storage.ErrLocked)},
	{KindClosing, matchesAny(ErrClosed)},
	{KindOutcomeUnknown, matchesAny(storage.ErrOutcomeUnknown)},
	{KindDamaged, matchesAny(ErrDamaged, storage.ErrCorrupt)},
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

// matchesAny returns a function that reports whether an error is one of targets.
func matchesAny(targets ...error) func(error) bool {
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
