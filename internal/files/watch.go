package files

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"
)

// Watch remembers what files looked like when they were opened for the first
// time. Its zero value is ready; its methods may be called from several
// goroutines.
type Watch struct {
	mu    sync.Mutex
	paths []string // in the order in which they were opened
	seen  map[string]fs.FileInfo
}

// ChangedError is a file that is not what it was when it was opened.
type ChangedError struct {
	Path string
	How  string
}

func (e *ChangedError) Error() string { return e.Path + ": changed while it was read: " + e.How }

// Open is [OpenInput], and remembers the file.
func (w *Watch) Open(path string) (*os.File, int64, error) {
	f, info, err := OpenInput(path)
	if err != nil {
		return nil, 0, err
	}
	w.note(path, info)
	return f, info.Size(), nil
}

// Stream is [Stream], and remembers a regular file.
func (w *Watch) Stream(ctx context.Context, path string) (io.ReadCloser, error) {
	s, err := Stream(ctx, path)
	if err != nil {
		return nil, err
	}
	if l, ok := s.(stream).Reader.(limited); ok {
		info, err := l.r.(*os.File).Stat()
		if err != nil {
			s.Close()
			return nil, err
		}
		w.note(path, info)
	}
	return s, nil
}

func (w *Watch) note(path string, info fs.FileInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.seen[path]; ok {
		return
	}
	if w.seen == nil {
		w.seen = map[string]fs.FileInfo{}
	}
	w.seen[path] = info
	w.paths = append(w.paths, path)
}

// Unchanged returns a [*ChangedError] for the first file whose size, time of
// modification or identity is another than when it was opened. What was read
// before is of one state of the files if it returns nil afterwards, as far as
// their times tell: two writes within one tick of the clock, a few milliseconds,
// have the same.
func (w *Watch) Unchanged() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, path := range w.paths {
		if how := difference(path, w.seen[path]); how != "" {
			return &ChangedError{path, how}
		}
	}
	return nil
}

func difference(path string, was fs.FileInfo) string {
	now, err := os.Stat(path)
	switch {
	case err != nil:
		if pe, ok := err.(*fs.PathError); ok {
			err = pe.Err
		}
		return err.Error()
	case !os.SameFile(was, now):
		return "another file took its place"
	case now.Size() != was.Size():
		return fmt.Sprintf("it had %d bytes, it has %d", was.Size(), now.Size())
	case !now.ModTime().Equal(was.ModTime()):
		return fmt.Sprintf("it was written at %s", now.ModTime().Format("2006-01-02 15:04:05.000"))
	}
	return ""
}

// Kept is a value that was read from files, and is read again when one of them changes. It
// is safe for concurrent use.
type Kept[T any] struct {
	paths []string
	read  func() (T, error)
	heard func(T, error)

	mu     sync.Mutex
	looked time.Time
	seen   []os.FileInfo // when value was read
	failed []os.FileInfo // when it could not be read; nil: it could
	value  T
}

// keptLook is how long a change of the files may go unseen.
const keptLook = time.Second

// Keep reads a value for the first time. heard is told what becomes of later readings: of a
// value, or of an error, with which the value before it stays, as while several files are
// replaced. The same files that fail again are tried again, and heard is not told of it.
func Keep[T any](read func() (T, error), heard func(T, error), paths ...string) (*Kept[T], error) {
	k := &Kept[T]{paths: paths, read: read, heard: heard, looked: time.Now()}
	k.seen = k.files()
	var err error
	k.value, err = read()
	return k, err
}

// Get is the value as the files are now, or were a second ago.
func (k *Kept[T]) Get() T {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := time.Now(); now.Sub(k.looked) >= keptLook {
		k.looked = now
		if is := k.files(); k.failed != nil || !slices.EqualFunc(is, k.seen, sameFile) {
			k.again(is, !slices.EqualFunc(is, k.failed, sameFile))
		}
	}
	return k.value
}

// Reload reads the files, changed or not.
func (k *Kept[T]) Reload() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.again(k.files(), true)
}

func (k *Kept[T]) again(is []os.FileInfo, tell bool) {
	v, err := k.read()
	if err != nil {
		k.failed = is
	} else {
		k.value, k.seen, k.failed, tell = v, is, nil, true
	}
	if tell {
		k.heard(v, err)
	}
}

// files are what the files look like; nil for one that is not there.
func (k *Kept[T]) files() []os.FileInfo {
	all := make([]os.FileInfo, len(k.paths))
	for i, path := range k.paths {
		if info, err := os.Stat(path); err == nil {
			all[i] = info
		}
	}
	return all
}

// sameFile reports whether a file is the one that was there: another one may have its size
// and time.
func sameFile(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
