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

// maxJSON is the size above which a file of settings is not read.
const maxJSON = 16 << 20

// file is a JSON object of a folder, or a part of one. A nil file has no values.
type file struct {
	path  string
	place string // of the part; "" for the whole
	m     map[string]json.RawMessage
}

// openFile reads a file of settings; one that is not there is nil.
func openFile(path string) (*file, error) {
	b, err := readJSON(path)
	if err != nil || b == nil {
		return nil, err
	}
	return parse(path, b)
}

// readJSON reads a file without the mark that editors of Windows begin files with; one that is not
// there is nil.
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
	return jsontext.WithoutMark(b), nil
}

// pathless drops the path, which ModelError names.
func pathless(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// parse reads a JSON object.
func parse(path string, b []byte) (*file, error) {
	switch {
	case len(b) > maxJSON:
		return nil, Faultf(path, "", ErrConfig, "has more than %d bytes", maxJSON)
	case !utf8.Valid(b):
		return nil, Faultf(path, "", ErrConfig, "is not valid UTF-8")
	}
	f := &file{path: path}
	if err := json.Unmarshal(b, &f.m); err != nil {
		return nil, Faultf(path, "", ErrConfig, "is no JSON object: %w", err)
	}
	if f.m == nil {
		return nil, Faultf(path, "", ErrConfig, "is null, not a JSON object")
	}
	return f, nil
}

func (f *file) field(key string) string {
	if f.place == "" {
		return key
	}
	return f.place + "." + key
}

func (f *file) faultf(key string, kind error, format string, args ...any) error {
	return Faultf(f.path, f.field(key), kind, format, args...)
}

// raw is a value as it stands; null and what is absent are nil.
func (f *file) raw(key string) json.RawMessage {
	if f == nil {
		return nil
	}
	if raw := bytes.TrimSpace(f.m[key]); string(raw) != "null" {
		return raw
	}
	return nil
}

// has says that the key is there, if only with null.
func (f *file) has(key string) bool {
	if f == nil {
		return false
	}
	_, ok := f.m[key]
	return ok
}

// value decodes a value; ok says that there is one.
func value[T any](f *file, key, want string) (v T, ok bool, err error) {
	raw := f.raw(key)
	if raw == nil {
		return v, false, nil
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, false, f.faultf(key, ErrConfig, "is %s, want %s", shown(raw), want)
	}
	return v, true, nil
}

func (f *file) text(key string) (string, bool, error) { return value[string](f, key, "a string") }
func (f *file) bool(key string) (bool, bool, error)   { return value[bool](f, key, "true or false") }
func (f *file) float(key string) (float64, bool, error) {
	return value[float64](f, key, "a number")
}

// maxSize bounds every size in a config, so that products of two stay in range.
const maxSize = 1 << 24

// int reads a whole number from least to maxSize.
func (f *file) int(key string, least int) (int, bool, error) {
	x, ok, err := value[float64](f, key, "a whole number")
	if err != nil || !ok {
		return 0, false, err
	}
	if x != math.Trunc(x) || x < float64(least) || x > maxSize {
		return 0, false, f.faultf(key, ErrConfig, "is %s, want a whole number from %d to %d", shown(f.raw(key)), least, maxSize)
	}
	return int(x), true, nil
}

// object is a part of the file, nil where there is none.
func (f *file) object(key string) (*file, error) {
	m, ok, err := value[map[string]json.RawMessage](f, key, "an object")
	if err != nil || !ok {
		return nil, err
	}
	return &file{f.path, f.field(key), m}, nil
}

// shown is a value for an error, cut short.
func shown(raw []byte) string {
	if len(raw) > 60 {
		return strings.ToValidUTF8(string(raw[:57]), "") + "..."
	}
	return string(raw)
}

// must makes a value that is missing an error.
func must[T any](f *file, key string) func(v T, ok bool, err error) (T, error) {
	return func(v T, ok bool, err error) (T, error) {
		if err == nil && !ok {
			err = f.faultf(key, ErrConfig, "is missing")
		}
		return v, err
	}
}

// orElse gives a value that is missing a default.
func orElse[T any](def T) func(v T, ok bool, err error) (T, error) {
	return func(v T, ok bool, err error) (T, error) {
		if err == nil && !ok {
			v = def
		}
		return v, err
	}
}

// firstError is the first that is not nil.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
