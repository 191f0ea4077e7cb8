package storage

import (
	"encoding/binary"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// Names of buckets and keys; docs/format.md draws them.
var (
	rootBucket = []byte("plaid")

	keyFormat  = []byte("format")
	keyCurrent = []byte("current")
	keyStaging = []byte("staging")

	notePrefix = []byte("note-")

	keyHeader     = []byte("header")
	keyState      = []byte("state")
	keyTombstones = []byte("tombstones")

	bucketCodec        = []byte("codec")
	keyCentroids       = []byte("centroids")
	keyCutoffs         = []byte("cutoffs")
	keyDimScale        = []byte("dim-scale")
	keyCentroidScale   = []byte("centroid-scale")
	bucketChunks       = []byte("chunks")
	keyCodes           = []byte("codes")
	keyDocs            = []byte("docs")
	keyFactors         = []byte("factors")
	keyResiduals       = []byte("residuals")
	bucketIDs          = []byte("ids")
	bucketPayload      = []byte("payload")
	bucketPostings     = []byte("postings")
	bucketFields       = []byte("fields") // optional
	generationBuckets  = [][]byte{bucketCodec, bucketChunks, bucketIDs, bucketPayload, bucketPostings}
	generationPrefix   = []byte("g")
	magic              = []byte("plaidix\n")
	formatValueSize    = len(magic) + 4
	generationNameSize = len(generationPrefix) + 8
)

func generationName(n uint64) []byte {
	return binary.BigEndian.AppendUint64(append([]byte{}, generationPrefix...), n)
}

func noteKey(name string) []byte {
	return append(notePrefix[:len(notePrefix):len(notePrefix)], name...)
}

func isGeneration(name []byte) (uint64, bool) {
	if len(name) != generationNameSize || name[0] != generationPrefix[0] {
		return 0, false
	}
	return binary.BigEndian.Uint64(name[1:]), true
}

// writeFormat makes the frame of a new file.
func writeFormat(tx *bolt.Tx) error {
	root, err := tx.CreateBucketIfNotExists(rootBucket)
	if err != nil {
		return err
	}
	v := append([]byte{}, magic...)
	v = binary.LittleEndian.AppendUint16(v, FormatVersion)
	v = binary.LittleEndian.AppendUint16(v, FeatureVersion)
	return root.Put(keyFormat, seal(keyFormat, v))
}

func checkFormat(tx *bolt.Tx, path string) error {
	root := tx.Bucket(rootBucket)
	if root == nil {
		if k, _ := tx.Cursor().First(); k == nil { // a build died before it wrote anything
			return fmt.Errorf("%s: %w", path, ErrUnfinished)
		}
		return fmt.Errorf("%s: %w: a bbolt file of another program", path, ErrNotIndex)
	}
	v, ok := unseal(keyFormat, root.Get(keyFormat))
	if !ok || len(v) != formatValueSize || string(v[:len(magic)]) != string(magic) {
		return corrupt(path, nil, "format record")
	}
	if n := binary.LittleEndian.Uint16(v[len(magic):]); n > FormatVersion {
		return fmt.Errorf("%s: %w: it is format %d, this program reads up to %d", path, ErrVersion, n, FormatVersion)
	}
	return nil
}

// currentGeneration returns the number of the committed generation.
func currentGeneration(tx *bolt.Tx, path string) (uint64, error) {
	sealed := tx.Bucket(rootBucket).Get(keyCurrent)
	if sealed == nil {
		return 0, fmt.Errorf("%s: %w", path, ErrUnfinished)
	}
	v, ok := unseal(keyCurrent, sealed)
	if !ok || len(v) != 8 {
		return 0, corrupt(path, nil, "generation pointer")
	}
	return binary.LittleEndian.Uint64(v), nil
}
