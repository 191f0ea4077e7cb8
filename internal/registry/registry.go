// Package registry keeps what packages register by name when they are imported,
// as database drivers do, and finds the best of it.
package registry

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

// Registry has values by their names. The zero value is ready.
type Registry[T interface{ Name() string }] struct {
	mu  sync.RWMutex
	all map[string]ranked[T]
}

type ranked[T any] struct {
	value T
	rank  int
}

// Add adds a value under its name and reports whether that was free.
func (r *Registry[T]) Add(v T, rank int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, dup := r.all[v.Name()]; dup {
		return false
	}
	if r.all == nil {
		r.all = map[string]ranked[T]{}
	}
	r.all[v.Name()] = ranked[T]{v, rank}
	return true
}

// Names lists the names, sorted.
func (r *Registry[T]) Names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.all))
}

// Select returns the value of that name. "" stands for the one that the environment
// variable env names, or else for the one with the highest rank, of several the one
// whose name comes first. A name that is not there, the variable's included, is an
// error that wraps unavailable; home is the package whose import registers values.
func (r *Registry[T]) Select(name, env, home string, unavailable error) (v T, err error) {
	from := ""
	if name == "" {
		if name = os.Getenv(env); name != "" {
			from = " from " + env
		}
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if len(r.all) == 0 {
		return v, fmt.Errorf("%w: none is registered; import %s", unavailable, home)
	}
	if name == "" {
		return r.best(), nil
	}
	found, ok := r.all[name]
	if !ok {
		return v, fmt.Errorf("%w: %q%s (there is: %s)", unavailable, name, from, strings.Join(slices.Sorted(maps.Keys(r.all)), ", "))
	}
	return found.value, nil
}

func (r *Registry[T]) best() T {
	var top ranked[T]
	first := true
	for _, x := range r.all {
		if first || x.rank > top.rank || x.rank == top.rank && x.value.Name() < top.value.Name() {
			first, top = false, x
		}
	}
	return top.value
}
