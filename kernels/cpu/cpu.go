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
// tables.go, levels.go and tiles.go; bound.go bounds the error of each. calls.go cuts the
// work in calls of loops.
package cpu

import (
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/internal/tier"
)

func init() {
	for rank, t := range tier.All {
		kernels.Register(backend{t}, rank)
	}
}

// backend implements [kernels.Backend] with the loops of a tier.
type backend struct{ tier *tier.Tier }

// Name implements [kernels.Backend].
func (b backend) Name() string { return b.tier.Name }

type (
	row       = tier.Row
	byteTable = tier.ByteTable
	row4      = tier.Row4 // the bytes of 32 query tokens
)
