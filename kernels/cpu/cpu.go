// Package cpu scores compressed tokens on the processor. It has a backend for each tier
// of instructions that the processor can run; "generic", in plain Go, runs on any. Tiers
// differ only in the inner loops, which package tier has. A call uses one goroutine.
// Importing the package registers the backends, as database drivers are.
//
// The files follow the data.
//
//	building an index
//	  nearest.go    selects how nearest centroids are found
//	  filter.go     by products of bytes
//	  prune.go      by bounds from tables
//	a query
//	  scorer.go     everything that depends on the codec alone
//	  query.go      the vectors, and S = C·Qᵀ
//	  screen.go     S by products of bytes, where there are many centroids
//	  rows.go       the rows of S in float32 that documents then need
//	  probe.go      the best centroids
//	  approx.go     the centroid-only score
//	  maxsim.go     MaxSim: the algorithms, and the loop that they share
//	  tables.go     tables for it
//	  levels.go     integers for it, where weights are equally spaced
//	  tiles.go      matrix products for it, at level Fast
//	  finetiles.go  and at level Fine
//	  bound.go      error bounds of all of these
package cpu

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/internal/tier"
)

func init() {
	for rank, t := range tier.Available {
		kernels.Register(backend{t}, rank)
	}
}

// backend implements [kernels.Backend] with the loops of a tier.
type backend struct{ tier *tier.Tier }

// Name implements [kernels.Backend].
func (b backend) Name() string { return b.tier.Name }

type (
	tableRow  = tier.Row
	byteTable = tier.ByteTable
	byteRow   = tier.ByteRow
)

// Report describes the processor's instruction sets and the backend that uses them.
type Report struct {
	Arch     string   `json:"arch"`     // GOARCH
	Features []string `json:"features"` // instruction sets that were found and that a tier can use
	Tiers    []string `json:"tiers"`    // backends that can run, slowest first
	Selected string   `json:"selected"` // name of the selected backend
	Stages   []Stage  `json:"stages"`   // of the selected backend
}

// Stage names the tier whose inner loop a stage uses.
type Stage struct {
	Stage string `json:"stage"`
	Uses  string `json:"uses"`
}

// Describe reports on the processor and on the backend of this name. "" means the backend
// that [kernels.Select] returns for "". Errors are those of [kernels.Select].
func Describe(name string) (Report, error) {
	r := Report{Arch: runtime.GOARCH, Features: tier.Features()}
	for _, t := range tier.Available {
		r.Tiers = append(r.Tiers, t.Name)
	}
	b, err := kernels.Select(name)
	if err != nil {
		return r, err
	}
	r.Selected = b.Name()
	if b, ok := b.(backend); ok {
		for i, uses := range b.tier.Tokens.Uses {
			r.Stages = append(r.Stages, Stage{tier.StageNames[i], uses})
		}
	}
	return r, nil
}

func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "arch      %s\nfeatures  %s\ntiers     %s\nselected  %s\n",
		r.Arch, strings.Join(r.Features, " "), strings.Join(r.Tiers, " "), r.Selected)
	for _, s := range r.Stages {
		fmt.Fprintf(&b, "  %-18s %s\n", s.Stage, s.Uses)
	}
	return b.String()
}
