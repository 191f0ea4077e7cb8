// Package metadata stores values derived from the fields of payloads, so that conditions are
// answered without reading payloads: for each field its values in order, including those in arrays,
// and for each value the documents that have it.
//
//	[Builder]   the payloads of a change → its runs, merged with older ones
//	[Run]       a test of a condition → documents that pass
//	[Selector]  the runs of an index and a condition → documents that match it
//	[Counter]   the runs of an index and documents → number with each value of a field
//
// A run has the values of some documents, as one change of an index has written them. If two runs
// cover a document, the newer one counts. Runs are small sets of keys and values; docs/formats.md
// has their format.
//
// The size of a field is bounded. A text of more than 40 bytes is stored as its first 32 and a
// hash: it is found by equality, and by order as far as the prefix decides. A run has at most 1,000
// fields, each with at most 8 keys; a document has at most 131,072 elements of arrays. Values
// beyond these limits must be looked up in the payloads, and a Run lists the documents that need
// this.
package metadata

import (
	"encoding/binary"
	"errors"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/storage"
)

// Limits of stored values. They are variables so that tests meet them; a run must be read with the
// limits with which it was written.
var (
	maxDepth     = 8
	maxFields    = 1000
	maxFieldName = 256      // bytes
	maxText      = 40       // bytes of a text that is stored completely
	textPrefix   = 32       // bytes of a longer text
	maxMembers   = 1 << 17  // of the arrays of a document, in sum
	blockDocs    = 4096     // at most 1<<15, see moreEntries
	blockBytes   = 64 << 10 // of keys
	inlineBytes  = 2048     // blocks of at most this size in sum are in the head

	// runMergePolicy decides by documents which of the previous runs a new one absorbs.
	runMergePolicy = storage.MergePolicy{Largest: 1 << 16}
)

// ErrFormat reports values that no Builder has written.
var ErrFormat = errors.New("malformed field data")

// Keys of the values of a run: the head, the head of each field, and the blocks of each field.
var keyHead = []byte("r")

func fieldKey(f condition.Field) []byte { return append([]byte("f"), f...) }

func blockKey(field, block uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte("b"), field), block)
}
