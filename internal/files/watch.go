package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"
)

// Watch detects changes of files since they were first opened. Its zero value is ready to use. It is
// safe for concurrent use.
//
// A file is unchanged if its content is: it may have been rewritten, or replaced by another file,
// with the same bytes. Small files and streams are compared by a hash. A large file for random access
// is compared with the file that replaced it; it counts as changed if it was written in place, or if
// it is closed.
type Watch struct {
	mu        sync.Mutex
	paths     []string // in the order in which they were opened
	seen      map[string]*watched
	nextCheck time.Time // when UnchangedSometimes checks again
}

// watched is a file that was opened.
type watched struct {
	file     *os.File
	streamed bool        // it is, or was, read from front to back
	opened   fs.FileInfo // its state when it was opened
	lastSame fs.FileInfo // the last state that had the same content

	mu          sync.Mutex
	hashedBytes int64 // bytes in hash, from the beginning of the file
	hash        maphash.Hash
}

// ChangedError reports a file that changed after it was opened.
type ChangedError struct {
	Path string
	How  string
}

func (e *ChangedError) Error() string { return e.Path + ": changed while it was read: " + e.How }

// Open is [OpenInput], and watches the file.
func (w *Watch) Open(path string) (*os.File, int64, error) {
	f, info, err := OpenInput(path)
	if err != nil {
		return nil, 0, err
	}
	opened := &watched{file: f, opened: info, lastSame: info}
	if size := info.Size(); size <= maxHashed { // it may be closed before it is compared
		if n, err := io.Copy(&opened.hash, io.NewSectionReader(f, 0, size)); err == nil && n == size {
			opened.hashedBytes, opened.streamed = n, true
		}
	}
	w.addFile(path, opened)
	return f, info.Size(), nil
}

// Stream is [Stream], and watches a regular file.
func (w *Watch) Stream(ctx context.Context, path string) (io.ReadCloser, error) {
	s, err := Stream(ctx, path)
	if err != nil {
		return nil, err
	}
	if l, ok := s.(stream).Reader.(cancellable); ok {
		f := l.r.(*os.File)
		info, err := f.Stat()
		if err != nil {
			s.Close()
			return nil, err
		}
		streamed := &watched{file: f, streamed: true, opened: info, lastSame: info}
		if w.addFile(path, streamed) {
			l.r = streamed
		}
		return stream{l, s.Close}, nil
	}
	return s, nil
}

// addFile watches a file, and returns false if its path is watched already.
func (w *Watch) addFile(path string, f *watched) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if was, ok := w.seen[path]; ok {
		if !was.streamed && !f.streamed && sameFile(was.opened, f.opened) {
			was.file = f.file // the earlier handle may be closed
		}
		return false
	}
	if w.seen == nil {
		w.seen = map[string]*watched{}
	}
	w.seen[path] = f
	w.paths = append(w.paths, path)
	return true
}

// Read reads a stream, and hashes the bytes.
func (f *watched) Read(p []byte) (int, error) {
	n, err := f.file.Read(p)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hashedBytes += int64(n)
	_, _ = f.hash.Write(p[:n])
	return n, err
}

// Unchanged returns a [*ChangedError] for the first file whose content changed after it was opened.
// If it returns nil, everything read so far belongs to one state of the files. A file is compared
// only if its size, time or identity differs, so a second write within one tick of the clock, a few
// milliseconds, is not detected.
func (w *Watch) Unchanged() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, path := range w.paths {
		f := w.seen[path]
		now, change := describeChange(path, f.lastSame)
		if change == "" {
			continue
		}
		if now == nil || !f.hasContent(path, now) {
			return &ChangedError{path, change}
		}
		f.lastSame = now
	}
	return nil
}

// LookInterval is the interval of [Watch.UnchangedSometimes]. It is a variable for tests.
var LookInterval = time.Second

// UnchangedSometimes calls Unchanged once a second, or less often if that is slow, and otherwise returns nil. It
// is for slow readers that must notice a change soon.
func (w *Watch) UnchangedSometimes() error {
	now := time.Now()
	w.mu.Lock()
	if w.nextCheck.IsZero() {
		w.nextCheck = now.Add(LookInterval)
	}
	due := !now.Before(w.nextCheck)
	w.mu.Unlock()
	if !due {
		return nil
	}
	err := w.Unchanged()
	end := time.Now()
	w.mu.Lock()
	w.nextCheck = end.Add(max(LookInterval, 10*end.Sub(now)))
	w.mu.Unlock()
	return err
}

// describeChange describes how a file differs from its earlier state. "" means that it does not.
// now is nil if the file does not exist.
func describeChange(path string, was fs.FileInfo) (now fs.FileInfo, how string) {
	now, err := os.Stat(path)
	switch {
	case err != nil:
		if pe, ok := err.(*fs.PathError); ok {
			err = pe.Err
		}
		return nil, err.Error()
	case !os.SameFile(was, now):
		return now, "another file took its place"
	case now.Size() != was.Size():
		return now, fmt.Sprintf("it had %d bytes, it has %d", was.Size(), now.Size())
	case !now.ModTime().Equal(was.ModTime()):
		return now, fmt.Sprintf("it was written at %s", now.ModTime().Format("2006-01-02 15:04:05.000"))
	}
	return now, ""
}

// maxHashed is the largest file for random access that Open hashes. It is a variable for tests.
var maxHashed int64 = 1 << 20

// maxCompared is the largest file for random access that is compared with its replacement.
const maxCompared = 4 << 30

// hasContent reports whether the file at a path has the bytes of the file that was opened.
func (f *watched) hasContent(path string, now fs.FileInfo) bool {
	size := f.opened.Size()
	if now.Size() != size || !now.Mode().IsRegular() {
		return false
	}
	f.mu.Lock()
	n, sum, seed := f.hashedBytes, f.hash.Sum64(), f.hash.Seed()
	f.mu.Unlock()
	in, info, err := OpenInput(path)
	if err != nil {
		return false
	}
	defer in.Close()
	var h maphash.Hash
	h.SetSeed(seed)
	if read, err := io.Copy(&h, io.LimitReader(in, n)); err != nil || read != n || h.Sum64() != sum {
		return false
	}
	if n == size {
		return true
	}
	openNow, err := f.file.Stat()
	switch {
	case err != nil: // the file is closed
		return false
	case os.SameFile(openNow, info):
		return f.streamed // the remaining bytes will be read from this file
	case !f.streamed && (size > maxCompared || openNow.Size() != size || !openNow.ModTime().Equal(f.opened.ModTime())):
		return false
	}
	return sameBytes(io.NewSectionReader(in, n, size-n), io.NewSectionReader(f.file, n, size-n))
}

// sameBytes reports whether two readers return the same bytes.
func sameBytes(a, b io.Reader) bool {
	var bufs [2][1 << 16]byte
	for {
		n, errA := io.ReadFull(a, bufs[0][:])
		m, errB := io.ReadFull(b, bufs[1][:])
		if !bytes.Equal(bufs[0][:n], bufs[1][:m]) {
			return false
		}
		if errA != nil || errB != nil {
			end := func(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
			return end(errA) && end(errB)
		}
	}
}

// WatchedValue is a value that was read from files, and is read again when one of them changes. It is safe
// for concurrent use.
type WatchedValue[T any] struct {
	paths  []string
	read   func() (T, error)
	report func(T, error)

	mu         sync.Mutex
	checkedAt  time.Time
	loadedFrom []os.FileInfo // the files when value was read
	failedFrom []os.FileInfo // the files when reading failed. It is nil after success
	value      T
}

// recheckAfter is how long a change of the files may go unnoticed.
const recheckAfter = time.Second

// WatchValue reads a value for the first time. report is called with the result of later readings: a
// value, or an error, which leaves the earlier value in place, as happens while several files are
// being replaced. The same files are read again after a failure, but report is not called again for
// them.
func WatchValue[T any](read func() (T, error), report func(T, error), paths ...string) (*WatchedValue[T], error) {
	k := &WatchedValue[T]{paths: paths, read: read, report: report, checkedAt: time.Now()}
	k.loadedFrom = k.stat()
	var err error
	k.value, err = read()
	return k, err
}

// Get returns the value for the files as they are now, or were a second ago.
func (k *WatchedValue[T]) Get() T {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := time.Now(); now.Sub(k.checkedAt) >= recheckAfter {
		k.checkedAt = now
		if current := k.stat(); k.failedFrom != nil || !slices.EqualFunc(current, k.loadedFrom, sameFile) {
			k.reload(current, !slices.EqualFunc(current, k.failedFrom, sameFile))
		}
	}
	return k.value
}

// Reload reads the files, even if they have not changed.
func (k *WatchedValue[T]) Reload() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reload(k.stat(), true)
}

// reload reads the value from files in the state current, and reports a new value, or an error if notify is set.
func (k *WatchedValue[T]) reload(current []os.FileInfo, notify bool) {
	v, err := k.read()
	if err != nil {
		k.failedFrom = current
	} else {
		k.value, k.loadedFrom, k.failedFrom, notify = v, current, nil, true
	}
	if notify {
		k.report(v, err)
	}
}

// stat returns the state of the files. nil for one that does not exist.
func (k *WatchedValue[T]) stat() []os.FileInfo {
	infos := make([]os.FileInfo, len(k.paths))
	for i, path := range k.paths {
		if info, err := os.Stat(path); err == nil {
			infos[i] = info
		}
	}
	return infos
}

// sameFile reports whether a file is unchanged. Another file may have the same size and time, so it
// compares identities, too.
func sameFile(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
