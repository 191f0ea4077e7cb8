package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// writeFormat makes the frame of a new file.
func writeFormat(tx *bolt.Tx) error {
	root, err := tx.CreateBucketIfNotExists(layout.RootBucket)
	if err != nil {
		return err
	}
	return putVersions(root, versions{FormatVersion, FeatureVersion})
}

// versions are those of a file; see [FormatVersion] and [FeatureVersion].
type versions struct{ format, feature uint16 }

func putVersions(root *bolt.Bucket, n versions) error {
	v := append([]byte{}, layout.Magic...)
	v = binary.LittleEndian.AppendUint16(v, n.format)
	v = binary.LittleEndian.AppendUint16(v, n.feature)
	return root.Put(layout.KeyFormat, layout.Seal(layout.KeyFormat, v))
}

func readVersions(root *bolt.Bucket, path string) (n versions, err error) {
	v, ok := layout.Unseal(layout.KeyFormat, root.Get(layout.KeyFormat))
	if !ok || len(v) != layout.FormatValueSize || string(v[:len(layout.Magic)]) != string(layout.Magic) {
		return n, corrupt(path, nil, "format record")
	}
	le := binary.LittleEndian
	return versions{le.Uint16(v[len(layout.Magic):]), le.Uint16(v[len(layout.Magic)+2:])}, nil
}

func checkFormat(tx *bolt.Tx, path string) error {
	root := tx.Bucket(layout.RootBucket)
	if root == nil {
		return noFrame(tx, path)
	}
	n, err := readVersions(root, path)
	if err == nil && n.format != FormatVersion {
		err = fmt.Errorf("%s: %w: it is format %d, this program reads format %d", path, ErrVersion, n.format, FormatVersion)
	}
	return err
}

// noFrame says of a file in which the bucket of the frame is not found what it is.
func noFrame(tx *bolt.Tx, path string) error {
	err := fmt.Errorf("%s: %w", path, ErrUnfinished) // a build died before it wrote anything
	ferr := tx.Cursor().Bucket().ForEach(func(k, value []byte) error {
		err = fmt.Errorf("%s: %w: a bbolt file of another program", path, ErrNotIndex)
		_, generation := layout.GenerationNumber(k)
		b := tx.Bucket(k)
		if generation || string(k) == string(layout.RootBucket) || b != nil && bytes.HasPrefix(b.Get(layout.KeyFormat), layout.Magic) {
			return corrupt(path, nil, "bucket %q is missing, and there is %s", layout.RootBucket, layout.ValueName([][]byte{k}))
		}
		return nil
	})
	if ferr != nil {
		return ferr
	}
	return err
}

// currentGeneration returns the number of the committed generation. That there is none
// is said only of a file in which a build has begun and not ended.
func currentGeneration(tx *bolt.Tx, path string) (uint64, error) {
	root := tx.Bucket(layout.RootBucket)
	sealed, err := frameRecord(root, layout.KeyCurrent, path)
	if err != nil {
		return 0, err
	}
	if sealed == nil {
		staging, err := frameRecord(root, layout.KeyStaging, path)
		if err != nil {
			return 0, err
		}
		if g := anyGeneration(tx); g != nil && staging == nil {
			return 0, corrupt(path, nil, "the generation pointer is missing, and %s is there", layout.ValueName([][]byte{g}))
		}
		return 0, fmt.Errorf("%s: %w", path, ErrUnfinished)
	}
	v, ok := layout.Unseal(layout.KeyCurrent, sealed)
	if !ok || len(v) != 8 {
		return 0, corrupt(path, nil, "generation pointer")
	}
	return binary.LittleEndian.Uint64(v), nil
}

// anyGeneration is the name of a bucket beside the frame; nil if there is none.
func anyGeneration(tx *bolt.Tx) (name []byte) {
	_ = tx.ForEach(func(k []byte, _ *bolt.Bucket) error {
		if string(k) != string(layout.RootBucket) {
			name = k
		}
		return nil
	})
	return name
}

// frameRecord returns a record of the frame as it is stored, nil if there is none. A
// record whose key was damaged is not taken for one that was never there: it has a
// checksum that is not of the key that it has now.
func frameRecord(root *bolt.Bucket, key []byte, path string) (sealed []byte, err error) {
	if sealed = root.Get(key); sealed != nil {
		return sealed, nil
	}
	return nil, root.ForEach(func(k, value []byte) error {
		if _, ok := layout.Unseal(key, value); ok {
			return corrupt(path, nil, "record %q has the key %q", key, k)
		}
		if isFrameKey(k) && !(isNote(k) && isNote(key)) {
			return nil // what it is worth is seen where it is asked for
		}
		if _, ok := layout.Unseal(k, value); !ok {
			return corrupt(path, layout.ErrChecksum, "record %q, which may be %q", k, key)
		}
		return nil
	})
}

// has tells whether the committed frame has a record.
func (f *File) has(key []byte) (has bool, err error) {
	err = f.handle.db.View(func(tx *bolt.Tx) error {
		sealed, err := frameRecord(tx.Bucket(layout.RootBucket), key, f.path)
		has = sealed != nil
		return err
	})
	return has, err
}

// readRecord decodes a JSON record of the frame; ok is false if there is none. what is the
// record in words.
func readRecord(tx *bolt.Tx, key []byte, path, what string, dst any) (ok bool, err error) {
	sealed, err := frameRecord(tx.Bucket(layout.RootBucket), key, path)
	if sealed == nil {
		return false, err
	}
	if err := decodeJSON(key, sealed, dst); err != nil {
		return false, corrupt(path, err, "%s", what)
	}
	return true, nil
}

// isFrameKey tells whether a key is one of those that this program knows.
func isFrameKey(k []byte) bool {
	return slices.ContainsFunc(layout.FrameKeys, func(known []byte) bool { return bytes.Equal(k, known) }) || isNote(k)
}

func isNote(k []byte) bool { return bytes.HasPrefix(k, layout.NotePrefix) }
