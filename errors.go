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
	// ErrNotIndex means that the file is not a plaid index.
	ErrNotIndex = storage.ErrNotIndex
	// ErrUnfinished means that a build of the file was interrupted. Build it again.
	ErrUnfinished = storage.ErrUnfinished
	// ErrVersion means that the file has a newer format than this program reads.
	ErrVersion = storage.ErrVersion
	// ErrCorrupt means that the file is cut short, or that its bytes have changed.
	ErrCorrupt = storage.ErrCorrupt
	// ErrLocked means that the file is open elsewhere, in this process or another, in a way that excludes this one.
	ErrLocked = storage.ErrLocked
	// ErrExists means that an index exists already.
	ErrExists = storage.ErrExists
	// ErrReadOnly means that an index was opened for reading, and cannot be changed.
	ErrReadOnly = storage.ErrReadOnly
	// ErrClosed means that the index or the searcher was closed.
	ErrClosed = storage.ErrClosed
	// ErrOutcomeUnknown means that the disk failed in the last step of a change. Whether the change was made is known
	// when the index has been opened again.
	ErrOutcomeUnknown = storage.ErrOutcomeUnknown
	// ErrTooLarge means that the file would outgrow the address space that is mapped for it.
	ErrTooLarge = storage.ErrTooLarge
	// ErrSameFile means that a backup would overwrite its own index.
	ErrSameFile = index.ErrSameFile
	// ErrInternal is a fault of plaid, not of its caller or of a file.
	ErrInternal = storage.ErrInternal
)

// Errors of documents and queries.
var (
	// ErrNotFound means that no live document has an id, such as one that a filter names.
	ErrNotFound = index.ErrNotFound
	// ErrDuplicateID means that an id is in the index already, or twice in the input.
	ErrDuplicateID = index.ErrDuplicateID
	// ErrDimension means that vectors have another dimension than the index.
	ErrDimension = index.ErrDimension
	// ErrModel means that vectors are of another model than those of the index.
	ErrModel = storage.ErrModel
	// ErrTooMany means that there are more documents than an index has numbers for.
	ErrTooMany = index.ErrTooMany
	// ErrText means that a title or a text is not UTF-8.
	ErrText = vectors.ErrText
	// ErrTooLong means that a text is longer than the model reads.
	ErrTooLong = errors.New("the text is longer than the model reads")
	// ErrPayload means that a payload is not a JSON object, has a field that is not allowed, or is too large.
	ErrPayload = vectors.ErrPayload
	// ErrQuery means that a query has no tokens, too many, another dimension, or a value that is not finite.
	ErrQuery = search.ErrQuery
	// ErrOption means that an option of an index or of a search is out of range.
	ErrOption = index.ErrOption
)

// Errors of vectors, ids and conditions.
var (
	// ErrShape means that the shapes of arrays do not match.
	ErrShape = vectors.ErrShape
	// ErrValue means that a component is NaN or infinite.
	ErrValue = vectors.ErrValue
	// ErrID means that an id is empty, duplicate, missing, too long, not UTF-8 or has a control character.
	ErrID = vectors.ErrID
	// ErrSyntax means that a text is not a condition.
	ErrSyntax = condition.ErrSyntax
	// ErrParameter means that a value for a condition has no possible type, or that there are too few or too many.
	ErrParameter = condition.ErrParameter
	// ErrUnknownField means that a condition names a field that no document has.
	ErrUnknownField = condition.ErrUnknownField
	// ErrTooComplex means that a condition has more tests, words or pattern instructions than are allowed.
	ErrTooComplex = condition.ErrTooComplex
)

var (
	// ErrUnavailable means that this machine does not have a backend or a device.
	ErrUnavailable = kernels.ErrUnavailable
	// ErrDeviceMemory means that a device has too little free memory.
	ErrDeviceMemory = kernels.ErrDeviceMemory
)
