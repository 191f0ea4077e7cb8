package kernels

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

// EnvCPU is the environment variable that names the backend which Select("")
// returns, in place of the best one.
const EnvCPU = "PLAID_CPU"

var (
	registryMu sync.RWMutex
	registry   = map[string]registered{}
)

type registered struct {
	backend Backend
	rank    int
}

// Register makes a backend available under its name; of those that this machine
// can run, the one with the highest rank is the best. It is called from the init
// function of the backend's package, and panics on a name taken twice.
func Register(b Backend, rank int) {
	registryMu.Lock()
	defer registryMu.Unlock()
	if _, dup := registry[b.Name()]; dup {
		panic("kernels: backend registered twice: " + b.Name())
	}
	registry[b.Name()] = registered{b, rank}
}

// Backends lists the registered names, sorted.
func Backends() []string {
	registryMu.RLock()
	defer registryMu.RUnlock()
	return slices.Sorted(maps.Keys(registry))
}

// Select returns the backend of that name. "" stands for the one that the
// environment variable [EnvCPU] names, or else for the best one. A name that
// is not there, the variable's included, is an error that wraps
// [ErrUnavailable]; there is no fallback. Backends are there where their package
// is imported: kernels/cpu has those of the processor.
func Select(name string) (Backend, error) {
	from := ""
	if name == "" {
		if name = os.Getenv(EnvCPU); name != "" {
			from = " from " + EnvCPU
		}
	}
	registryMu.RLock()
	defer registryMu.RUnlock()
	if len(registry) == 0 {
		return nil, fmt.Errorf("%w: none is registered; import kernels/cpu", ErrUnavailable)
	}
	if name == "" {
		return best(), nil
	}
	r, ok := registry[name]
	if !ok {
		return nil, fmt.Errorf("%w: %q%s (there is: %s)", ErrUnavailable, name, from, strings.Join(slices.Sorted(maps.Keys(registry)), ", "))
	}
	return r.backend, nil
}

// best returns the backend with the highest rank, of several the one whose name
// comes first.
func best() Backend {
	var top registered
	for _, r := range registry {
		if b := top.backend; b == nil || r.rank > top.rank || r.rank == top.rank && r.backend.Name() < b.Name() {
			top = r
		}
	}
	return top.backend
}
