package cpu_test

import (
	"testing"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cpu"
	"github.com/plaid-ir/plaid/kernels/kerneltest"
)

// anyDim chooses the backend of [cpu.TilesInGo] by the codec.
type anyDim struct{ kernels.Backend }

func (anyDim) Scorer(c *kernels.Codec) (kernels.Scorer, error) {
	return cpu.TilesInGo(max(c.Dim(), 1)).Scorer(c)
}

// TestTilesInGo runs the suite with the matrix products of tier amx in plain
// Go: what is left to be shown on a processor that has them is that they
// compute the same integers.
func TestTilesInGo(t *testing.T) { kerneltest.Run(t, anyDim{cpu.TilesInGo(128)}) }
