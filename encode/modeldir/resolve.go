package modeldir

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
)

// override and byDefault are origins that are no files.
const (
	byOverride = "override"
	byDefault  = "default"
)

// resolver collects what files say about values. The first that says something
// decides; one that says another thing is a contradiction.
type resolver struct {
	dir      string
	origin   map[string]string
	warnings []string
}

func (r *resolver) warnf(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf(format, args...))
}

// name is a path as origins have it: relative to the folder.
func (r *resolver) name(path string) string {
	if rel, err := filepath.Rel(r.dir, path); err == nil {
		return filepath.ToSlash(rel)
	}
	return path
}

// setting is a value that files may decide.
type setting[T any] struct {
	r     *resolver
	name  string
	to    *T
	equal func(a, b T) bool
	show  func(T) string
}

func settingOf[T comparable](r *resolver, name string, to *T) setting[T] {
	return setting[T]{r, name, to, func(a, b T) bool { return a == b }, func(v T) string { return fmt.Sprint(v) }}
}

// decided says whether something has set the value.
func (s setting[T]) decided() bool { return s.r.origin[s.name] != "" }

// set decides the value by something that is no file, or by what no file may contradict.
func (s setting[T]) set(origin string, v T) { *s.to, s.r.origin[s.name] = v, origin }

// say is what a file says.
func (s setting[T]) say(f *file, key string, v T) error {
	switch s.r.origin[s.name] {
	case byOverride:
		return nil
	case "":
		s.set(s.r.name(f.path), v)
		return nil
	}
	if !s.equal(*s.to, v) {
		err := Faultf(f.path, f.field(key), ErrContradiction, "is %s, but %s says %s", s.show(v), s.r.origin[s.name], s.show(*s.to))
		return err.decided(s.name)
	}
	return nil
}

// otherwise is the default.
func (s setting[T]) otherwise(v T) {
	if !s.decided() {
		s.set(byDefault, v)
	}
}

// from says what one of the keys of a file has, if it has it.
func (s setting[T]) from(f *file, read func(*file, string) (T, bool, error), keys ...string) error {
	for _, key := range keys {
		v, ok, err := read(f, key)
		if err == nil && ok {
			err = s.say(f, key, v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// shortest is the least length of a text, in ids.
const shortest = 4

// size reads a length in ids.
func size(f *file, key string) (int, bool, error) { return f.int(key, shortest) }

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
