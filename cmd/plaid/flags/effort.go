package flags

import (
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
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
type Efforts struct{ probes, approx, exact []int }

// Register adds the flags.
func (e *Efforts) Register(f *pflag.FlagSet) {
	f.Var(Ints(&e.probes, 0), "probes", "centroids to probe for a query token, such as 1,2,4,8 (0: derived)")
	f.Var(Ints(&e.approx, 0), "approx", "documents that get an approximate score at most (0: derived)")
	f.Var(Ints(&e.exact, 0), "exact", "documents that get an exact score at most (0: derived)")
}

// Settings are all combinations for searches of k in an index of some centroids; none if no flag
// was given.
func (e *Efforts) Settings(k, centroids int) []quality.Setting {
	if e.probes == nil && e.approx == nil && e.exact == nil {
		return nil
	}
	return quality.Grid(k, centroids, e.probes, e.approx, e.exact)
}
