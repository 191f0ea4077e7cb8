package registry

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Formats are file formats, identified by the suffixes of files or by the content of a folder. The
// zero value is ready to use.
type Formats[T any] struct {
	mu      sync.RWMutex
	formats []format[T]
}

type format[T any] struct {
	value    T
	suffixes []string
	folder   func(path string) bool
}

// Add adds a format. Suffixes are in lower case, with the dot. folder, where set, reports whether a
// folder has the format. Add panics if another format has one of the suffixes.
func (f *Formats[T]) Add(v T, suffixes []string, folder func(path string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, other := range f.formats {
		for _, suffix := range suffixes {
			if slices.Contains(other.suffixes, suffix) {
				panic("registry: suffix " + suffix + " is read already")
			}
		}
	}
	f.formats = append(f.formats, format[T]{v, suffixes, folder})
}

// Find returns the format of a file or folder, if it is one of these.
func (f *Formats[T]) Find(path string) (v T, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if len(f.formats) == 0 {
		return v, false
	}
	suffix := strings.ToLower(filepath.Ext(path))
	info, err := os.Stat(path)
	folder := err == nil && info.IsDir()
	for _, x := range f.formats {
		if folder && x.folder != nil && x.folder(path) || !folder && slices.Contains(x.suffixes, suffix) {
			return x.value, true
		}
	}
	return v, false
}

// Suffixes returns the suffixes of all formats.
func (f *Formats[T]) Suffixes() (suffixes []string) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, x := range f.formats {
		suffixes = append(suffixes, x.suffixes...)
	}
	return suffixes
}
