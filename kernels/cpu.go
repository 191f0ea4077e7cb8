package kernels

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// tiers are the backends that this processor can run, slowest first.
var tiers = append([]*prims{&portable}, simdTiers()...)

func init() {
	for _, p := range tiers {
		Register(cpu{p})
	}
}

// EnvCPU is the environment variable that names the backend which Select("")
// returns, in place of the best one.
const EnvCPU = "PLAID_CPU"

// defaultName is the name that "" stands for, and where it comes from if not
// from here.
func defaultName() (name, from string) {
	if name := os.Getenv(EnvCPU); name != "" {
		return name, " from " + EnvCPU
	}
	return tiers[len(tiers)-1].name, ""
}

// CPUReport says what the processor offers and what is used of it.
type CPUReport struct {
	Arch     string     `json:"arch"`
	Features []string   `json:"features"` // instruction sets found that matter here
	Tiers    []string   `json:"tiers"`    // backends that can run, slowest first
	Selected string     `json:"selected"` // the one that Select("") returns
	Stages   []CPUStage `json:"stages"`
}

// CPUStage says which tier's inner loop a stage of the selected backend uses.
type CPUStage struct {
	Stage string `json:"stage"`
	Uses  string `json:"uses"`
}

// CPU reports on the processor. The error is that of Select("").
func CPU() (CPUReport, error) {
	r := CPUReport{Arch: runtime.GOARCH, Features: cpuFeatures()}
	for _, p := range tiers {
		r.Tiers = append(r.Tiers, p.name)
	}
	b, err := Select("")
	if err != nil {
		return r, err
	}
	r.Selected = b.Name()
	c, ok := b.(cpu)
	if !ok {
		return r, nil
	}
	for i, stage := range stageNames {
		uses := c.p.uses[i]
		if uses == "" {
			uses = "generic"
		}
		r.Stages = append(r.Stages, CPUStage{stage, uses})
	}
	return r, nil
}

func (r CPUReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "arch      %s\nfeatures  %s\ntiers     %s\nselected  %s\n",
		r.Arch, strings.Join(r.Features, " "), strings.Join(r.Tiers, " "), r.Selected)
	for _, s := range r.Stages {
		fmt.Fprintf(&b, "  %-18s %s\n", s.Stage, s.Uses)
	}
	return b.String()
}

// Stages of a backend, as the report lists them.
const (
	stageScores = iota
	stageApprox
	stageFast
	stageFine
	stageNearest
	stages
)

var stageNames = [stages]string{"centroid scores", "approximate score", "maxsim fast", "maxsim fine", "nearest centroid"}
