// Package layout defines the buckets and keys of an index file, and how its values are encoded and
// checksummed. Package storage, which writes index files and reads sound ones, and storage/wreck,
// which reads damaged ones, share it.
package layout

import (
	"encoding/binary"
	"strconv"
	"strings"
)

// Names of buckets and keys; docs/formats.md shows their tree.
var (
	RootBucket = []byte("plaid")

	KeyFormat  = []byte("format")
	KeyCurrent = []byte("current")
	KeyStaging = []byte("staging")

	KeyApplied  = []byte("applied")
	KeyBuilding = []byte("building")
	KeyDefaults = []byte("defaults")
	FrameKeys   = [][]byte{KeyFormat, KeyCurrent, KeyStaging, KeyApplied, KeyBuilding, KeyDefaults}

	NotePrefix = []byte("note-")

	KeyHeader      = []byte("header")
	KeyState       = []byte("state")
	KeyTombstones  = []byte("tombstones")
	KeyPayloadDocs = []byte("payload-docs")
	KeyPassages    = []byte("passages")

	BucketCodec        = []byte("codec")
	KeyCentroids       = []byte("centroids")
	KeyCutoffs         = []byte("cutoffs")
	KeyDimScale        = []byte("dim-scale")
	KeyCentroidScale   = []byte("centroid-scale")
	BucketChunks       = []byte("chunks")
	KeyCodes           = []byte("codes")
	KeyDocs            = []byte("docs")
	KeyFactors         = []byte("factors")
	KeyResiduals       = []byte("residuals")
	BucketIDs          = []byte("ids")
	BucketPayload      = []byte("payload")
	BucketPostings     = []byte("postings")
	BucketFields       = []byte("fields")
	GenerationBuckets  = [][]byte{BucketCodec, BucketChunks, BucketIDs, BucketPayload, BucketPostings, BucketFields}
	GenerationKeys     = [][]byte{KeyHeader, KeyState, KeyTombstones, KeyPayloadDocs, KeyPassages}
	CodecKeys          = [][]byte{KeyCentroids, KeyCutoffs, KeyDimScale, KeyCentroidScale}
	generationPrefix   = []byte("g")
	Magic              = []byte("plaidix\n")
	FormatValueSize    = len(Magic) + 4
	generationNameSize = len(generationPrefix) + 8
)

// GenerationName returns the name of the bucket of generation n.
func GenerationName(n uint64) []byte {
	return binary.BigEndian.AppendUint64(append([]byte{}, generationPrefix...), n)
}

// NoteKey returns the key of a note.
func NoteKey(name string) []byte {
	return append(NotePrefix[:len(NotePrefix):len(NotePrefix)], name...)
}

// GenerationNumber is the inverse of GenerationName. It returns false for other names.
func GenerationNumber(name []byte) (uint64, bool) {
	if len(name) != generationNameSize || name[0] != generationPrefix[0] {
		return 0, false
	}
	return binary.BigEndian.Uint64(name[1:]), true
}

// ValueName formats the path of a value for errors, such as chunks/3/codes.
func ValueName(path [][]byte) string {
	names := make([]string, len(path))
	for i, k := range path {
		if len(k) == 4 && k[0] < ' ' { // a number, see NumberKey; names have no control characters
			names[i] = strconv.FormatUint(uint64(binary.BigEndian.Uint32(k)), 10)
		} else {
			names[i] = strings.Trim(strconv.Quote(string(k)), `"`)
		}
	}
	return strings.Join(names, "/")
}
