package cpu

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/internal/tier"
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
	for _, t := range tier.All {
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
