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
	"sync"
)

// maxJSON bounds the metadata files that are read whole; real ones have a few kilobytes.
const maxJSON = 16 << 20

// folder opens the files of an index folder, read-only, and remembers what
// each one looked like before it was opened for the first time.
type folder struct {
	dir string

	mu   sync.Mutex
	seen map[string]fs.FileInfo
}

func newFolder(dir string) *folder {
	return &folder{dir: dir, seen: map[string]fs.FileInfo{}}
}

// has says whether name is there.
func (f *folder) has(name string) bool {
	_, err := os.Stat(filepath.Join(f.dir, name))
	return err == nil
}

// note stats a file that is about to be opened and returns its path. Anything
// but a regular file is refused: opening a pipe would block.
func (f *folder) note(name string) (string, error) {
	path := filepath.Join(f.dir, name)
	info, err := os.Stat(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("%w: %s is missing: %w", ErrBroken, name, fs.ErrNotExist)
		}
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%w: %s is not a regular file", ErrBroken, name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.seen[name]; !ok {
		f.seen[name] = info
	}
	return path, nil
}

func (f *folder) unchanged() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, was := range f.seen {
		now, err := os.Stat(filepath.Join(f.dir, name))
		switch {
		case err != nil:
			return fmt.Errorf("%w: %s: %w", ErrChanged, name, err)
		case now.Size() != was.Size():
			return fmt.Errorf("%w: %s had %d bytes, has %d", ErrChanged, name, was.Size(), now.Size())
		case !now.ModTime().Equal(was.ModTime()):
			return fmt.Errorf("%w: %s was written at %v", ErrChanged, name, now.ModTime())
		case !os.SameFile(was, now):
			return fmt.Errorf("%w: %s was replaced", ErrChanged, name)
		}
	}
	return nil
}

// object is a JSON object whose values are decoded one by one, so that an odd
// value of a key that nobody needs does no harm.
type object map[string]json.RawMessage

// object reads a JSON file whole.
func (f *folder) object(name string) (object, error) {
	path, err := f.note(name)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
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
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrBroken, name, err)
	}
	return o, nil
}

// int gives an integral number of at least 0 and whether the key is there.
func (o object) int(name, key string) (v int64, ok bool, err error) {
	raw, ok := o[key]
	if !ok || string(raw) == "null" {
		return 0, false, nil
	}
	if v, err := strconv.ParseInt(string(raw), 10, 64); err == nil && v >= 0 {
		return v, true, nil
	}
	// Python writes an integral float where a division made the value.
	if x, err := strconv.ParseFloat(string(raw), 64); err == nil && x >= 0 && x <= 1<<53 && x == math.Trunc(x) {
		return int64(x), true, nil
	}
	return 0, false, fmt.Errorf("%w: %s: %s is %.40s, want an integer of at least 0", ErrBroken, name, key, raw)
}

// bool says whether a key is there and true.
func (o object) bool(key string) bool { return string(o[key]) == "true" }

// lens appends the document lengths of a JSON array of integers to dst and
// returns the sum of the new ones.
func (f *folder) lens(dst []int32, name string) ([]int32, int64, error) {
	path, err := f.note(name)
	if err != nil {
		return dst, 0, err
	}
	file, err := os.Open(path)
	if err != nil {
		return dst, 0, err
	}
	defer file.Close()
	dec := json.NewDecoder(file)
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return dst, 0, fmt.Errorf("%w: %s is no JSON array", ErrBroken, name)
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
