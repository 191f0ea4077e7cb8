package flags

import (
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/search"
)

// Effort are the flags for the budgets of a search, from which its speed and its
// recall follow. What is not given is derived from k.
type Effort struct{ Probes, Approx, Exact int }

// Register adds the flags.
func (e *Effort) Register(f *pflag.FlagSet) {
	f.Var(Int(&e.Probes, 0, 0), "probes", "centroids to probe for a query token (0: by k)")
	f.Var(Int(&e.Approx, 0, 0), "approx", "documents that get an approximate score at most (0: by k)")
	f.Var(Int(&e.Exact, 0, 0), "exact", "documents that get an exact score at most, at least k (0: by k)")
}

// Apply puts the budgets into the options of a search.
func (e *Effort) Apply(o *search.Options) {
	o.Probes, o.Approx, o.Exact = e.Probes, e.Approx, e.Exact
}

// Efforts are the same flags with lists, of which all combinations are measured.
type Efforts struct{ Probes, Approx, Exact []int }

// Register adds the flags.
func (e *Efforts) Register(f *pflag.FlagSet) {
	f.Var(Ints(&e.Probes, 0, 1, 2, 4, 8, 16, 32), "probes", "centroids to probe for a query token (0: derived)")
	f.Var(Ints(&e.Approx, 0, 0), "approx", "documents that get an approximate score at most (0: derived)")
	f.Var(Ints(&e.Exact, 0), "exact", "documents that get an exact score at most (0: derived; default 0 and 1, 2, 4, 8 times k)")
}
