package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// writeFormat creates the root bucket of a new file, the frame, with its format record.
func writeFormat(tx *bolt.Tx) error {
	root, err := tx.CreateBucketIfNotExists(layout.RootBucket)
	if err != nil {
		return err
	}
	return putVersions(root, versions{FormatVersion, FeatureVersion})
}

// versions are the versions of a file; see [FormatVersion] and [FeatureVersion].
type versions struct{ format, feature uint16 }

// putVersions stores the format record: the magic bytes and the versions.
func putVersions(root *bolt.Bucket, v versions) error {
	record := append([]byte{}, layout.Magic...)
	record = binary.LittleEndian.AppendUint16(record, v.format)
	record = binary.LittleEndian.AppendUint16(record, v.feature)
	return root.Put(layout.KeyFormat, layout.Seal(layout.KeyFormat, record))
}

// readVersions reads the format record.
func readVersions(root *bolt.Bucket, path string) (v versions, err error) {
	record, ok := layout.Unseal(layout.KeyFormat, root.Get(layout.KeyFormat))
	magic := len(layout.Magic)
	if !ok || len(record) != layout.FormatValueSize || string(record[:magic]) != string(layout.Magic) {
		return v, corruptError(path, nil, "format record")
	}
	le := binary.LittleEndian
	return versions{format: le.Uint16(record[magic:]), feature: le.Uint16(record[magic+2:])}, nil
}

// checkFormat checks that the file is an index in the format of this program.
func checkFormat(tx *bolt.Tx, path string) error {
	root := tx.Bucket(layout.RootBucket)
	if root == nil {
		return noFrameError(tx, path)
	}
	v, err := readVersions(root, path)
	if err == nil && v.format != FormatVersion {
		err = fmt.Errorf("%s: %w: it is format %d, this program reads format %d",
			path, ErrVersion, v.format, FormatVersion)
	}
	return err
}

// noFrameError returns the error for a file without root bucket: [ErrUnfinished] if it is empty,
// [ErrCorrupt] if it has other content of an index, otherwise [ErrNotIndex].
func noFrameError(tx *bolt.Tx, path string) error {
	err := fmt.Errorf("%s: %w", path, ErrUnfinished) // a build died before it wrote anything
	ferr := tx.Cursor().Bucket().ForEach(func(k, value []byte) error {
		err = fmt.Errorf("%s: %w: a bbolt file of another program", path, ErrNotIndex)
		_, isGeneration := layout.GenerationNumber(k)
		b := tx.Bucket(k)
		isFrame := b != nil && bytes.HasPrefix(b.Get(layout.KeyFormat), layout.Magic) // under a damaged name
		if isGeneration || isFrame || string(k) == string(layout.RootBucket) {
			return corruptError(path, nil, "bucket %q is missing, and there is %s",
				layout.RootBucket, layout.ValueName([][]byte{k}))
		}
		return nil
	})
	if ferr != nil {
		return ferr
	}
	return err
}

// currentGeneration returns the number of the committed generation. Its error is [ErrUnfinished] only
// if a build was interrupted; otherwise a missing number means a damaged file.
func currentGeneration(tx *bolt.Tx, path string) (uint64, error) {
	root := tx.Bucket(layout.RootBucket)
	sealed, err := sealedFrameRecord(root, layout.KeyCurrent, path)
	if err != nil {
		return 0, err
	}
	if sealed == nil {
		staging, err := sealedFrameRecord(root, layout.KeyStaging, path)
		if err != nil {
			return 0, err
		}
		if g := anyGeneration(tx); g != nil && staging == nil {
			return 0, corruptError(path, nil, "the generation pointer is missing, and %s is there",
				layout.ValueName([][]byte{g}))
		}
		return 0, fmt.Errorf("%s: %w", path, ErrUnfinished)
	}
	v, ok := layout.Unseal(layout.KeyCurrent, sealed)
	if !ok || len(v) != 8 {
		return 0, corruptError(path, nil, "generation pointer")
	}
	return binary.LittleEndian.Uint64(v), nil
}

// anyGeneration returns the name of a bucket other than the root bucket, or nil.
func anyGeneration(tx *bolt.Tx) (name []byte) {
	_ = tx.ForEach(func(k []byte, _ *bolt.Bucket) error {
		if string(k) != string(layout.RootBucket) {
			name = k
		}
		return nil
	})
	return name
}

// sealedFrameRecord returns a record of the frame with its checksum, or nil if the frame has none. The
// error is [ErrCorrupt] if the record may be there under a damaged key: checksums cover keys, so that
// its checksum does not match the key that it has now.
func sealedFrameRecord(root *bolt.Bucket, key []byte, path string) (sealed []byte, err error) {
	if sealed = root.Get(key); sealed != nil {
		return sealed, nil
	}
	return nil, root.ForEach(func(k, value []byte) error {
		if _, ok := layout.Unseal(key, value); ok {
			return corruptError(path, nil, "record %q has the key %q", key, k)
		}
		if isFrameKey(k) && !(isNote(k) && isNote(key)) {
			return nil // a known record is checked when it is read; but a damaged key may be that of a note
		}
		if _, ok := layout.Unseal(k, value); !ok {
			return corruptError(path, layout.ErrChecksum, "record %q, which may be %q", k, key)
		}
		return nil
	})
}

// hasFrameRecord reports whether the committed frame has a record.
func (f *File) hasFrameRecord(key []byte) (found bool, err error) {
	err = f.handle.db.View(func(tx *bolt.Tx) error {
		sealed, err := sealedFrameRecord(tx.Bucket(layout.RootBucket), key, f.path)
		found = sealed != nil
		return err
	})
	return found, err
}

// readFrameJSON decodes a JSON record of the frame. ok is false if the frame has none. what describes
// the record in errors.
func readFrameJSON(tx *bolt.Tx, key []byte, path, what string, dst any) (ok bool, err error) {
	sealed, err := sealedFrameRecord(tx.Bucket(layout.RootBucket), key, path)
	if sealed == nil {
		return false, err
	}
	if err := decodeJSON(key, sealed, dst); err != nil {
		return false, corruptError(path, err, "%s", what)
	}
	return true, nil
}

// isFrameKey reports whether this program knows a key of the frame.
func isFrameKey(k []byte) bool {
	return slices.ContainsFunc(layout.FrameKeys, func(known []byte) bool { return bytes.Equal(k, known) }) || isNote(k)
}

// isNote reports whether a key of the frame is that of a note ([Tx.PutNote]).
func isNote(k []byte) bool { return bytes.HasPrefix(k, layout.NotePrefix) }
