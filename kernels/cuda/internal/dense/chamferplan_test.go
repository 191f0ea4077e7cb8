package dense

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// Plans name kernels that are in the sources, and stay within what a block and a grid may
// have.
func TestChamferPlans(t *testing.T) {
	files, err := filepath.Glob("../../src/dense/chamfer*.cuh")
	require.NoError(t, err)
	var text strings.Builder
	for _, name := range files {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		text.Write(data)
	}
	source := text.String()
	require.Contains(t, source, "constexpr int kChamferChain = "+strconv.Itoa(chamferChain)+";")
	there := func(name string) bool {
		name = strings.TrimPrefix(name, "dense/")
		if few, ok := strings.CutPrefix(name, "dense_chamfer_few_"); ok {
			return strings.Contains(source, "PLAID_CHAMFER_FEW("+few[len("l2_d"):]+")\n")
		}
		return strings.Contains(source, " "+name+"(const __grid_constant__")
	}
	for _, shared := range []int{99 << 10, 163 << 10, 227 << 10} {
		for _, arch := range []string{"80", "90a"} {
			for _, metric := range []maxsim.Metric{maxsim.SquaredL2, maxsim.L1} {
				for _, dim := range []int{1, 3, 4, 5, 8, 9, 32, 33, 96, 128, 129, 1000, 4096} {
					for _, longest := range [][2]int{{1, 1}, {5, 3000}, {100_000, 7}, {200_000, 300_000}} {
						s := chamferShape{metric: metric, dim: dim, pairs: 3, longest: longest, nearest: true}
						s.rows = [2]int{3 * longest[0], longest[1]}
						p, err := planChamfer(s, arch, shared, func(string, int, int) (int, error) { return 264, nil })
						require.NoError(t, err)
						for _, l := range p.launches {
							require.True(t, there(l.name), l.name)
							require.LessOrEqual(t, l.shared, shared, l.name)
							require.Positive(t, min(l.grid[0], l.grid[1], l.grid[2]), l.name)
							require.Less(t, max(l.grid[1], l.grid[2]), 1<<16, l.name)
						}
						require.Equal(t, "dense/dense_chamfer_sum", p.launches[len(p.launches)-1].name)
					}
				}
			}
		}
	}
}
