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
	KindBadRequest                   // another thing in the request is wrong
	KindTooLarge                     // the request is larger than a collection takes
	KindNotSupported                 // this collection, or all of this catalog, cannot do it
	KindExists                       // there is a collection of the name
	KindDocumentNotFound             // the document is not in the collection
	KindNotFound                     // there is no collection of the name
	KindEmpty                        // the collection has no documents yet
	KindClosed                       // the index was removed or opened again while it was read
	KindLocked                       // another process changes the index
	KindClosing                      // the catalog is being closed
	KindOutcomeUnknown               // the last step failed: the change was made or was not
	KindDamaged                      // the index is damaged
)

// kindTable has the kinds of errors. An error can wrap several of them: the first that matches holds.
// What was changed, or could not be, goes before what was wrong with the request.
var kindTable = []struct {
	kind    Kind
	matches func(err error) bool
}{
	{KindPartlyDone, isType[*PartialError]},
	{KindUnreachable, unlessUnknown(is(ErrUnreachable))},
	{KindQueueFull, isType[*BusyError]},
	{KindDiskFull, unlessUnknown(is(syscall.ENOSPC, syscall.EDQUOT))},
	{KindNoAddressSpace, is(storage.ErrTooLarge)},
	{KindNoAddressSpace, unlessUnknown(is(syscall.ENOMEM))},
	{KindReopened, is(ErrReopened)},
	{KindBadTextQuery, is(keywords.ErrSyntax)},
	{KindBadDimension, func(err error) bool { return isType[*DocumentError](err) && errors.Is(err, index.ErrDimension) }},
	{KindBadRequest, isType[*DocumentError]},
	{KindBadRequest, is(condition.ErrUnknownField, condition.ErrSyntax, condition.ErrParameter)},
	{KindNotSupported, is(ErrUnsupported)},
	{KindBadRequest, is(ErrName, ErrConfig)},
	{KindExists, is(ErrExists)},
	{KindBadRequest, is(ErrSelection)},
	{KindTooLarge, is(ErrTooLarge)},
	{KindBadRequest, is(ErrMetadata)},
	{KindBadDimension, is(index.ErrDimension)},
	{KindDocumentNotFound, is(index.ErrNotFound, search.ErrUnknownID)},
	{KindBadRequest, is(search.ErrQuery, keywords.ErrTooLong, search.ErrOption, index.ErrOption)},
	{KindBadRequest, is(vectors.ErrShape, vectors.ErrValue, vectors.ErrID, storage.ErrModel)},
	{KindNotSupported, is(storage.ErrReadOnly)},
	{KindBadRequest, is(index.ErrTooManyValues, index.ErrNoTokens)},
	{KindNotFound, is(ErrUnknown)},
	{KindEmpty, is(ErrEmpty)},
	{KindClosed, is(storage.ErrClosed, search.ErrClosed)},
	{KindLocked, is(storage.ErrLocked)},
	{KindClosing, is(ErrClosed)},
	{KindOutcomeUnknown, is(storage.ErrOutcomeUnknown)},
	{KindDamaged, is(ErrDamaged, storage.ErrCorrupt)},
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

// is returns a function that reports whether an error is one of targets.
func is(targets ...error) func(error) bool {
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

// unlessUnknown restricts a condition to errors after which it is known that nothing was changed.
func unlessUnknown(matches func(error) bool) func(error) bool {
	return func(err error) bool { return matches(err) && !errors.Is(err, storage.ErrOutcomeUnknown) }
}
