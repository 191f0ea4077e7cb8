package modeldir

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
)

// byOverride and byDefault are the origins of values that no file sets.
const (
	byOverride = "override"
	byDefault  = "default"
)

// resolver records the origins of values. The first file with a value
// decides. Another value in a later file is a contradiction.
type resolver struct {
	dir      string
	origin   map[string]string
	warnings []string
}

func (r *resolver) warnf(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf(format, args...))
}

// relativePath returns a path relative to the folder, as origins have it.
func (r *resolver) relativePath(path string) string {
	if rel, err := filepath.Rel(r.dir, path); err == nil {
		return filepath.ToSlash(rel)
	}
	return path
}

// setting is a value that files may set.
type setting[T any] struct {
	resolver *resolver
	name     string
	target   *T
	equal    func(a, b T) bool
	format   func(T) string
}

// newSetting returns a setting that stores its value in target.
func newSetting[T comparable](r *resolver, name string, target *T) setting[T] {
	equal := func(a, b T) bool { return a == b }
	return setting[T]{r, name, target, equal, func(v T) string { return fmt.Sprint(v) }}
}

// isSet reports whether the value is set.
func (s setting[T]) isSet() bool { return s.resolver.origin[s.name] != "" }

// set sets the value, even if it is set already.
func (s setting[T]) set(origin string, v T) { *s.target, s.resolver.origin[s.name] = v, origin }

// setByFile sets the value that key has in a file. If the value is set already, another value is
// an error, unless an override set it.
func (s setting[T]) setByFile(f *file, key string, v T) error {
	switch s.resolver.origin[s.name] {
	case byOverride:
		return nil
	case "":
		s.set(s.resolver.relativePath(f.path), v)
		return nil
	}
	if !s.equal(*s.target, v) {
		err := Errorf(f.path, f.fieldPath(key), ErrContradiction, "is %s, but %s says %s",
			s.format(v), s.resolver.origin[s.name], s.format(*s.target))
		return err.withSetting(s.name)
	}
	return nil
}

// setDefault sets the value if it is not set yet.
func (s setting[T]) setDefault(v T) {
	if !s.isSet() {
		s.set(byDefault, v)
	}
}

// setFromKeys sets the value by the keys that a file has. read reads a key.
func (s setting[T]) setFromKeys(f *file, read func(*file, string) (T, bool, error), keys ...string) error {
	for _, key := range keys {
		v, ok, err := read(f, key)
		if err == nil && ok {
			err = s.setByFile(f, key, v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// minLength is the minimum length of a text, in ids.
const minLength = 4

// lengthValue reads a length in ids.
func lengthValue(f *file, key string) (int, bool, error) { return f.intValue(key, minLength) }

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
