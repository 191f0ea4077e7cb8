package dense

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	"github.com/plaid-ir/plaid/kernels/maxsim/maxsimtest"
)

// Scores and gradients are those of the packages that peers/dense.py runs, on their
// inputs, within the rounding of half precision.
func TestGPUPeers(t *testing.T) {
	folder := os.Getenv("PLAID_PEERS")
	if folder == "" {
		t.Skip("PLAID_PEERS is not set; peers/dense.py writes the folder")
	}
	b := New(runtimetest.OpenGPU(t))
	text, err := os.ReadFile(filepath.Join(folder, "shapes.json"))
	require.NoError(t, err)
	var shapes []struct{ Nq, Lq, Nd, Ld, Dim int }
	require.NoError(t, json.Unmarshal(text, &shapes))
	for i, s := range shapes {
		read := func(name string) []byte {
			data, err := os.ReadFile(filepath.Join(folder, fmt.Sprintf("%d.%s", i, name)))
			require.NoError(t, err)
			return data
		}
		floats := func(name string) []float32 { x := read(name); return structs[float32](x, len(x)/4) }
		tokens := func(name string, rows int) *maxsim.Batch {
			x := read(name)
			return maxsim.Padded(maxsim.Float16(structs[uint16](x, len(x)/2), s.Dim), rows)
		}
		q, d := tokens("q", s.Lq), tokens("d", s.Ld)
		c := maxsimtest.NewCall(q, d, maxsim.All(), maxsim.Terms{})
		maxsimtest.Check(t, b, c, maxsimtest.Options{})
		for _, peer := range []string{"lik", "flash"} {
			// Their products are added in float32 as well, in another order.
			near(t, fmt.Sprintf("shape %d, scores of %s", i, peer), floats(peer), c.Scores, 2e-5*float64(s.Lq), 0)
		}
		g := &maxsim.GradCall{Q: q, D: d, Argmax: c.Argmax, Upstream: floats("upstream"), DQ: maxsimtest.NewGradient(q, maxsim.F32), DD: maxsimtest.NewGradient(d, maxsim.F32)}
		require.NoError(t, b.Gradients(ctx, g))
		for _, how := range []string{"push", "pull"} {
			// Theirs are rounded to half precision, of pull as they are added as well.
			allowed := map[string]float64{"push": 1e-3, "pull": 4e-3}[how]
			near(t, fmt.Sprintf("shape %d, %s, gradient of Q", i, how), floats(how+".dq"), g.DQ.F32, allowed, 2)
			near(t, fmt.Sprintf("shape %d, %s, gradient of D", i, how), floats(how+".dd"), g.DD.F32, allowed, 2)
		}
	}
}

// near demands that values differ by no more than allowed, absolutely or relative to
// what they are. Where two tokens have products that are equal but for rounding
// another may have won: a few of a thousand values may differ.
func near(t *testing.T, name string, want, got []float32, allowed float64, perMille int) {
	t.Helper()
	require.Len(t, got, len(want), name)
	far, worst := 0, 0.0
	for i, w := range want {
		diff := float64(got[i]) - float64(w)
		if diff = max(diff, -diff); !(diff <= allowed*max(1, float64(max(w, -w)))) {
			far++
			worst = max(worst, diff)
		}
	}
	require.LessOrEqual(t, far, len(want)*perMille/1000, "%s: %d of %d values differ, the farthest by %g", name, far, len(want), worst)
}
