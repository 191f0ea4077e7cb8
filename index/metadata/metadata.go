// Package metadata keeps what is derived from the fields of payloads, so that conditions
// over them are answered without reading payloads: for each field its values in order,
// those in arrays among them, and for each value the documents that have it.
//
//	[Builder]   the payloads of a change → its runs, with the older ones that they take in
//	[Run]       a test of a condition → documents that pass
//	[Selector]  the runs of an index and a condition → documents that it is true of
//	[Counter]   the runs of an index and documents → how many have each value of a field
//
// A run is what one change of an index has written about some documents. Where two runs
// cover a document the newer one counts. Runs are small sets of keys and values;
// docs/formats.md has their bytes.
//
// What is kept of a field is bounded. Text of more than 40 bytes is kept as its first 32
// and a hash, so that it is found by equality, and by order up to what the beginning
// tells; a run has at most 1,000 fields, each of at most 8 keys; a document has at most
// 131,072 elements of arrays. What is beyond that has to be looked up in the payloads, and a
// Run says for which documents.
package metadata

import (
	"encoding/binary"
	"errors"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/storage"
)

// Limits of what is kept. They are variables so that tests meet them; a run is to be read
// with those that it was written with.
var (
	maxDepth     = 8
	maxFields    = 1000
	maxFieldName = 256      // bytes
	maxText      = 40       // bytes of text that is kept as it is
	textPrefix   = 32       // bytes of longer text
	maxMembers   = 1 << 17  // of the arrays of a document, together
	blockDocs    = 4096     // at most 1 << 15
	blockBytes   = 64 << 10 // of keys
	inlineBytes  = 2048

	// runMergePolicy is when a new run takes in those before it, by their documents.
	runMergePolicy = storage.MergePolicy{Largest: 1 << 16}
)

// ErrFormat: values that no Builder has written.
var ErrFormat = errors.New("malformed field data")

// Keys of the values of a run.
var keyHead = []byte("r")

func fieldKey(f condition.Field) []byte { return append([]byte("f"), f...) }

func blockKey(field, block uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte("b"), field), block)
}
