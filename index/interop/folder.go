package interop

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/jsontext"
)

// maxJSON limits the size of metadata files; real ones have a few kilobytes.
const maxJSON = 16 << 20

// errMissing reports that a file of the index folder is missing. It is not fs.ErrNotExist, because
// the folder exists.
var errMissing = errors.New("is missing")

// folder opens the files of an index folder for reading, and remembers the size, time and identity
// of each at its first opening.
type folder struct {
	dir   string
	watch files.Watch
}

func newFolder(dir string) *folder { return &folder{dir: dir} }

// hasFile reports whether the folder has a file of this name.
func (f *folder) hasFile(name string) bool {
	_, err := os.Stat(filepath.Join(f.dir, name))
	return err == nil
}

// openFile opens a regular file; opening anything else could block.
func (f *folder) openFile(name string) (*os.File, int64, error) {
	file, size, err := f.watch.Open(filepath.Join(f.dir, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, fmt.Errorf("%w: %s %w", ErrBroken, name, errMissing)
	case errors.Is(err, files.ErrNotRegular):
		return nil, 0, fmt.Errorf("%w: %s: %w", ErrBroken, name, errors.Unwrap(err))
	}
	return file, size, err
}

// unchanged returns an ErrChanged for the first file that has changed since it was opened.
func (f *folder) unchanged() error {
	err := f.watch.Unchanged()
	if c, ok := errors.AsType[*files.ChangedError](err); ok {
		return fmt.Errorf("%w: %s: %s", ErrChanged, c.Path, c.How)
	}
	return err
}

// object is a JSON object whose values are decoded on demand, so that an odd value of an unused key
// does no harm.
type object map[string]json.RawMessage

// readObject reads a complete JSON file.
func (f *folder) readObject(name string) (object, error) {
	file, _, err := f.openFile(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxJSON+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxJSON {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrBroken, name, maxJSON)
	}
	var o object
	if err := json.Unmarshal(jsontext.TrimByteOrderMark(text), &o); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrBroken, name, err)
	}
	return o, nil
}

// integer returns an integer of at least 0, and whether the key exists.
func (o object) integer(name, key string) (v int64, ok bool, err error) {
	raw, ok := o[key]
	if !ok || string(raw) == "null" {
		return 0, false, nil
	}
	if v, err := strconv.ParseInt(string(raw), 10, 64); err == nil && v >= 0 {
		return v, true, nil
	}
	// Python writes a whole float if the value came from a division.
	if x, err := strconv.ParseFloat(string(raw), 64); err == nil && x >= 0 && x <= 1<<53 && x == math.Trunc(x) {
		return int64(x), true, nil
	}
	return 0, false, fmt.Errorf("%w: %s: %s is %.40s, want an integer of at least 0", ErrBroken, name, key, raw)
}

// isTrue reports whether the value of a key is true.
func (o object) isTrue(key string) bool { return string(o[key]) == "true" }

// appendLengths appends the document lengths in a JSON array of integers to dst, and returns their
// sum.
func (f *folder) appendLengths(dst []int32, name string) ([]int32, int64, error) {
	file, _, err := f.openFile(name)
	if err != nil {
		return dst, 0, err
	}
	defer file.Close()
	b, err := files.SkipByteOrderMark(file)
	if err != nil {
		return dst, 0, err
	}
	dec := json.NewDecoder(b)
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return dst, 0, fmt.Errorf("%w: %s is not a JSON array", ErrBroken, name)
	}
	var sum int64
	for i := 0; dec.More(); i++ {
		t, err := dec.Token()
		if err != nil {
			return dst, 0, fmt.Errorf("%w: %s: document %d: %w", ErrBroken, name, i, err)
		}
		text, ok := t.(json.Number)
		n, err := strconv.ParseInt(string(text), 10, 32)
		if !ok || err != nil || n < 0 {
			return dst, 0, fmt.Errorf("%w: %s: document %d has length %.40v", ErrBroken, name, i, t)
		}
		dst = append(dst, int32(n))
		sum += n
	}
	if _, err := dec.Token(); err != nil {
		return dst, 0, fmt.Errorf("%w: %s is cut short: %w", ErrBroken, name, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return dst, 0, fmt.Errorf("%w: %s: data after the array", ErrBroken, name)
	}
	return dst, sum, nil
}
