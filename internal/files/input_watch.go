package files

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
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

// OpenInput is [OpenInput], remembered.
func (w *Watch) Open(path string) (*os.File, int64, error) {
	f, info, err := OpenInput(path)
	if err != nil {
		return nil, 0, err
	}
	w.note(path, info)
	return f, info.Size(), nil
}

// Stream is [Stream], remembered if it is a regular file.
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
