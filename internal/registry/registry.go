// Package registry stores values that packages register by name when they are imported, as database
// drivers do, and finds the best of them.
package registry

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

// Registry has values by name. The zero value is ready to use.
type Registry[T interface{ Name() string }] struct {
	mu     sync.RWMutex
	byName map[string]ranked[T]
}

type ranked[T any] struct {
	value T
	rank  int
}

// Add adds a value under its name and reports whether the name was free.
func (r *Registry[T]) Add(v T, rank int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, dup := r.byName[v.Name()]; dup {
		return false
	}
	if r.byName == nil {
		r.byName = map[string]ranked[T]{}
	}
	r.byName[v.Name()] = ranked[T]{v, rank}
	return true
}

// Names returns the names, sorted.
func (r *Registry[T]) Names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.byName))
}

// Select returns the value with a name. "" means the name in the environment variable env or, if
// that is not set, the value with the highest rank, by name among equals. An unknown name, also one
// from env, is an error that wraps unavailable. home is the package whose import registers values.
func (r *Registry[T]) Select(name, env, home string, unavailable error) (v T, err error) {
	origin := ""
	if name == "" {
		if name = os.Getenv(env); name != "" {
			origin = " from " + env
		}
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if len(r.byName) == 0 {
		return v, fmt.Errorf("%w: none is registered; import %s", unavailable, home)
	}
	if name == "" {
		return r.highestRanked(), nil
	}
	found, ok := r.byName[name]
	if !ok {
		return v, fmt.Errorf("%w: %q%s (there is: %s)",
			unavailable, name, origin, strings.Join(slices.Sorted(maps.Keys(r.byName)), ", "))
	}
	return found.value, nil
}

func (r *Registry[T]) highestRanked() T {
	var best ranked[T]
	first := true
	for _, x := range r.byName {
		if first || x.rank > best.rank || x.rank == best.rank && x.value.Name() < best.value.Name() {
			first, best = false, x
		}
	}
	return best.value
}
