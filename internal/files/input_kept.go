package files

import (
	"os"
	"slices"
	"sync"
	"time"
)

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
		if is := k.files(); !slices.EqualFunc(is, k.seen, sameFile) {
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

// sameFile tells whether a file is the one that was there: another one may have its size
// and time.
func sameFile(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
