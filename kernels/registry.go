package kernels

import (
	"github.com/plaid-ir/plaid/internal/registry"
)

// EnvCPU is the environment variable that names the backend which Select("")
// returns, in place of the best one.
const EnvCPU = "PLAID_CPU"

var backends = new(registry.Registry[Backend])

// Register makes a backend available under its name; of those that this machine
// can run, the one with the highest rank is the best. It is called from the init
// function of the backend's package, and panics on a name taken twice.
func Register(b Backend, rank int) {
	if !backends.Add(b, rank) {
		panic("kernels: backend registered twice: " + b.Name())
	}
}

// Backends lists the registered names, sorted.
func Backends() []string { return backends.Names() }

// Select returns the backend of that name. "" stands for the one that the
// environment variable [EnvCPU] names, or else for the best one. A name that
// is not there, the variable's included, is an error that wraps
// [ErrUnavailable]; there is no fallback. Backends are there where their package
// is imported: kernels/cpu has those of the processor.
func Select(name string) (Backend, error) {
	return backends.Select(name, EnvCPU, "kernels/cpu", ErrUnavailable)
}
