package plaid

import (
	"errors"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Errors of index files.
var (
	// ErrNotIndex: the file is not a plaid index.
	ErrNotIndex = storage.ErrNotIndex
	// ErrUnfinished: a build of this file was interrupted; building again just works.
	ErrUnfinished = storage.ErrUnfinished
	// ErrVersion: the file has a newer format than this program knows.
	ErrVersion = storage.ErrVersion
	// ErrCorrupt: the file is cut short or its bytes have changed.
	ErrCorrupt = storage.ErrCorrupt
	// ErrLocked: the file is open elsewhere, in this process or another, in a way that
	// excludes this one.
	ErrLocked = storage.ErrLocked
	// ErrExists: an index is there already.
	ErrExists = storage.ErrExists
	// ErrReadOnly: a change of an index that was opened for reading.
	ErrReadOnly = storage.ErrReadOnly
	// ErrClosed: the index, or the searcher, has been closed.
	ErrClosed = storage.ErrClosed
	// ErrOutcomeUnknown: the disk failed in the last step of a change, which was made or
	// was not; opening the index again tells.
	ErrOutcomeUnknown = storage.ErrOutcomeUnknown
	// ErrTooLarge: the file would outgrow the address space that is mapped for it.
	ErrTooLarge = storage.ErrTooLarge
	// ErrSameFile: a backup onto the index itself.
	ErrSameFile = index.ErrSameFile
	// ErrInternal: a fault of plaid, not of its caller or of a file.
	ErrInternal = storage.ErrInternal
)

// Errors of documents and queries.
var (
	// ErrNotFound: no live document has the id, also of one that a filter names.
	ErrNotFound = index.ErrNotFound
	// ErrDuplicateID: an id that is in the index, or twice in the input.
	ErrDuplicateID = index.ErrDuplicateID
	// ErrDimension: vectors of another dimension than the index.
	ErrDimension = index.ErrDimension
	// ErrModel: vectors of another model than those of the index.
	ErrModel = storage.ErrModel
	// ErrTooMany: more documents than an index has numbers for.
	ErrTooMany = index.ErrTooMany
	// ErrText: a title or a text that is not UTF-8.
	ErrText = vectors.ErrText
	// ErrTooLong: a text longer than the model reads.
	ErrTooLong = errors.New("the text is longer than the model reads")
	// ErrPayload: a payload that is no JSON object, has a field that is not possible, or is
	// too large.
	ErrPayload = vectors.ErrPayload
	// ErrQuery: a query without tokens, with too many, of another dimension, or with a
	// value that is not finite.
	ErrQuery = search.ErrQuery
	// ErrOption: an option out of range, of an index or of a search.
	ErrOption = index.ErrOption
)

// Errors of vectors, ids and conditions.
var (
	// ErrShape: arrays that do not fit each other.
	ErrShape = vectors.ErrShape
	// ErrValue: a NaN or infinite component.
	ErrValue = vectors.ErrValue
	// ErrID: an id that is empty, duplicate, missing, too long, no UTF-8 or has a control
	// character.
	ErrID = vectors.ErrID
	// ErrSyntax: a text that is no condition.
	ErrSyntax = condition.ErrSyntax
	// ErrParameter: a value of a condition that is none, or too few or many of them.
	ErrParameter = condition.ErrParameter
	// ErrUnknownField: a condition names a field that no document has.
	ErrUnknownField = condition.ErrUnknownField
	// ErrTooComplex: a condition of more tests, words or instructions of patterns than are
	// possible.
	ErrTooComplex = condition.ErrTooComplex
)

var (
	// ErrUnavailable: a backend or a device that this machine does not have.
	ErrUnavailable = kernels.ErrUnavailable
	// ErrDeviceMemory: a device has too little memory left for what is asked of it.
	ErrDeviceMemory = kernels.ErrDeviceMemory
)
