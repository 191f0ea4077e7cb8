package modeldir

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/jsontext"
)

// maxJSON is the size in bytes of the largest file of settings that is read.
const maxJSON = 16 << 20

// file is a JSON object in a file, or an object within it. A nil file has no values.
type file struct {
	path    string
	section string // the key of the object within the file. "" means the whole file
	m       map[string]json.RawMessage
}

// openFile reads a file of settings. nil means that the file does not exist.
func openFile(path string) (*file, error) {
	b, err := readJSON(path)
	if err != nil || b == nil {
		return nil, err
	}
	return parse(path, b)
}

// readJSON reads a file, without the byte order mark that editors on Windows write. nil means that
// the file does not exist.
func readJSON(path string) ([]byte, error) {
	f, _, err := files.OpenInput(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &ModelError{Path: path, Err: pathless(err)}
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxJSON+1))
	if err != nil {
		return nil, &ModelError{Path: path, Err: pathless(err)}
	}
	return jsontext.TrimByteOrderMark(b), nil
}

// pathless returns an error without its path, which ModelError names.
func pathless(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// parse parses a JSON object.
func parse(path string, b []byte) (*file, error) {
	switch {
	case len(b) > maxJSON:
		return nil, Errorf(path, "", ErrConfig, "has more than %d bytes", maxJSON)
	case !utf8.Valid(b):
		return nil, Errorf(path, "", ErrConfig, "is not valid UTF-8")
	}
	f := &file{path: path}
	if err := json.Unmarshal(b, &f.m); err != nil {
		return nil, Errorf(path, "", ErrConfig, "is not a JSON object: %w", err)
	}
	if f.m == nil {
		return nil, Errorf(path, "", ErrConfig, "is null, not a JSON object")
	}
	return f, nil
}

// fieldPath returns the path of a key in the whole file, such as a.b.
func (f *file) fieldPath(key string) string {
	if f.section == "" {
		return key
	}
	return f.section + "." + key
}

// errorf returns a [ModelError] about the value of a key.
func (f *file) errorf(key string, kind error, format string, args ...any) error {
	return Errorf(f.path, f.fieldPath(key), kind, format, args...)
}

// rawValue returns the JSON of a value. nil means null or a missing key.
func (f *file) rawValue(key string) json.RawMessage {
	if f == nil {
		return nil
	}
	if raw := bytes.TrimSpace(f.m[key]); string(raw) != "null" {
		return raw
	}
	return nil
}

// hasKey reports whether the object has a key, even with null.
func (f *file) hasKey(key string) bool {
	if f == nil {
		return false
	}
	_, ok := f.m[key]
	return ok
}

// decodeValue decodes the value of a key. ok is false for null and for a missing key. want describes
// the expected value, for errors.
func decodeValue[T any](f *file, key, want string) (v T, ok bool, err error) {
	raw := f.rawValue(key)
	if raw == nil {
		return v, false, nil
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, false, f.errorf(key, ErrConfig, "is %s, want %s", abbreviate(raw), want)
	}
	return v, true, nil
}

func (f *file) stringValue(key string) (string, bool, error) {
	return decodeValue[string](f, key, "a string")
}
func (f *file) boolValue(key string) (bool, bool, error) {
	return decodeValue[bool](f, key, "true or false")
}
func (f *file) floatValue(key string) (float64, bool, error) {
	return decodeValue[float64](f, key, "a number")
}

// maxSize limits every size in a config, so that the product of two sizes does not overflow.
const maxSize = 1 << 24

// intValue reads a whole number from minimum to maxSize.
func (f *file) intValue(key string, minimum int) (int, bool, error) {
	x, ok, err := decodeValue[float64](f, key, "a whole number")
	if err != nil || !ok {
		return 0, false, err
	}
	if x != math.Trunc(x) || x < float64(minimum) || x > maxSize {
		return 0, false, f.errorf(key, ErrConfig, "is %s, want a whole number from %d to %d",
			abbreviate(f.rawValue(key)), minimum, maxSize)
	}
	return int(x), true, nil
}

// objectValue returns the object of a key. nil means null or a missing key.
func (f *file) objectValue(key string) (*file, error) {
	m, ok, err := decodeValue[map[string]json.RawMessage](f, key, "an object")
	if err != nil || !ok {
		return nil, err
	}
	return &file{f.path, f.fieldPath(key), m}, nil
}

// abbreviate returns a value for an error, at most 60 bytes.
func abbreviate(raw []byte) string {
	if len(raw) > 60 {
		return strings.ToValidUTF8(string(raw[:57]), "") + "..."
	}
	return string(raw)
}

// required returns a function that wraps a read, and returns an error for a missing value.
func required[T any](f *file, key string) func(v T, ok bool, err error) (T, error) {
	return func(v T, ok bool, err error) (T, error) {
		if err == nil && !ok {
			err = f.errorf(key, ErrConfig, "is missing")
		}
		return v, err
	}
}

// withDefault returns a function that wraps a read, and returns a default for a missing value.
func withDefault[T any](defaultValue T) func(v T, ok bool, err error) (T, error) {
	return func(v T, ok bool, err error) (T, error) {
		if err == nil && !ok {
			v = defaultValue
		}
		return v, err
	}
}

// firstError returns the first error that is not nil.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
