// Package cpu is the engine for compressed tokens on the processor: a backend for
// each tier that the processor can run ("generic" is plain Go on any), one goroutine
// a call. Tiers differ in the inner loops only; package tier has those. Import it to
// have the backends registered, as database drivers are.
//
// The files follow the data. Building an index: nearest.go chooses between filter.go
// (products of bytes), prune.go (bounds from tables) and all products. A query:
// scorer.go has what depends on the codec, query.go the vectors and S, probe.go the best
// centroids, screen.go what takes the place of most of S where there are many, approx.go
// the centroid-only score, maxsim.go the paths to MaxSim, whose tables are made by
// tables.go, levels.go and tiles.go; bound.go bounds the error of each.
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
	byteRow   = tier.ByteRow // the bytes of 32 query tokens
)

// Report says what the processor offers and what is used of it.
type Report struct {
	Arch     string   `json:"arch"`     // GOARCH
	Features []string `json:"features"` // instruction sets found that matter here
	Tiers    []string `json:"tiers"`    // backends that can run, slowest first
	Selected string   `json:"selected"` // the one that kernels.Select("") returns
	Stages   []Stage  `json:"stages"`   // what each stage uses
}

// Stage says which tier's inner loop a stage of the selected backend uses.
type Stage struct {
	Stage string `json:"stage"`
	Uses  string `json:"uses"`
}

// Describe reports on the processor with the backend of a name, or with the one that is
// used by itself. The error is that of [kernels.Select].
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
