// Package errkind classifies errors by what a caller can do about them. An error gets its kind where it is
// made: a sentinel by [New], a type by a method Kind. A service asks [Of], and need not know the errors of
// the packages below it.
package errkind

import (
	"errors"
	"syscall"
)

// Kind classifies an error.
type Kind int

// The kinds, in the order of precedence: Of returns the first if an error wraps several. A change that was
// made, or could not be made, goes before a fault of the request.
const (
	Unknown          Kind = iota // it says nothing about the request: a fault, or another package's error
	PartlyDone                   // a part of the change was made
	Unreachable                  // shards do not answer now
	QueueFull                    // too much waits to be written
	DiskFull                     // nothing was changed
	NoAddressSpace               // nothing was changed: the file cannot be mapped at a larger size
	Reopened                     // the disk failed, and the file was opened again: try again
	BadTextQuery                 // a query of keywords cannot be parsed
	BadDimension                 // vectors have another dimension than the index
	NotSupported                 // this collection, or all of this catalog, cannot do it
	Exists                       // there is a collection of the name
	TooLarge                     // the request is larger than a collection takes
	DocumentNotFound             // the document is not in the collection
	BadRequest                   // another thing in the request is wrong
	NotFound                     // no collection has the name
	Empty                        // the collection has no documents yet
	Closed                       // the index was removed or opened again while it was read
	Locked                       // another process changes the index
	Closing                      // the catalog is being closed
	OutcomeUnknown               // the last step failed: the change was made or was not
	Damaged                      // the index is damaged
	kinds
)

type sentinel struct {
	text string
	kind Kind
}

func (s *sentinel) Error() string { return s.text }

// Kind returns the kind that New was given.
func (s *sentinel) Kind() Kind { return s.kind }

// New returns an error with a text and a kind, to be a sentinel. Each call returns a different error.
func New(k Kind, text string) error { return &sentinel{text, k} }

// Of returns the kind of an error. An error with a method Kind() Kind decides for all that it wraps. The
// system's errors of full disks and of exhausted memory have kinds, too, unless the outcome is unknown:
// after [OutcomeUnknown] it is not certain that nothing was changed.
func Of(err error) Kind {
	var found [kinds]bool
	collect(err, &found)
	found[DiskFull] = errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
	found[NoAddressSpace] = found[NoAddressSpace] || errors.Is(err, syscall.ENOMEM)
	if found[OutcomeUnknown] {
		found[DiskFull], found[NoAddressSpace], found[Unreachable] = false, false, false
	}
	for k, ok := range found {
		if ok {
			return Kind(k)
		}
	}
	return Unknown
}

// collect sets the kinds of the errors in a tree.
func collect(err error, found *[kinds]bool) {
	switch e := err.(type) {
	case interface{ Kind() Kind }:
		found[e.Kind()] = true
	case interface{ Unwrap() error }:
		collect(e.Unwrap(), found)
	case interface{ Unwrap() []error }:
		for _, cause := range e.Unwrap() {
			collect(cause, found)
		}
	}
}
