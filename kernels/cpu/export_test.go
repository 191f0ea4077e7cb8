package cpu

import (
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/internal/tier"
	"github.com/plaid-ir/plaid/kernels/internal/tiles"
	"github.com/plaid-ir/plaid/kernels/internal/tiletest"
)

// OwnFast says whether level Fast of a scorer is by products of bytes, whose
// integers are others than those of tables.
func OwnFast(s kernels.Scorer) bool {
	sc := s.(*scorer)
	return sc.tiles != nil || sc.loops.MaxLevels != nil && sc.codec.Codebook.Uniform() && !sc.hasNegativeScale
}

// TilesInGo is the portable backend, or avx512 where there is it, with level
// Fast by matrix products of bytes in plain Go, for one dimension.
func TilesInGo(dim int) kernels.Backend {
	own := *tier.Available[0]
	for _, t := range tier.Available {
		if t.Name == "avx512" {
			own = *t
		}
	}
	own.Name = "tiles in Go"
	own.Tokens.Tiles = func(c *tiles.Call) { tiletest.Rerank(c, dim) }
	own.Tokens.FineTiles = func(c *tiles.Fine) { tiletest.Fine(c, dim) }
	return backend{&own}
}
