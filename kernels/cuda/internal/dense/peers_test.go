package dense

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// Scores and gradients are those of the packages that eval/peers/dense.py runs, on their
// inputs, within the rounding of half precision.
func TestGPUPeers(t *testing.T) {
	folder := os.Getenv("PLAID_PEERS")
	if folder == "" {
		t.Skip("PLAID_PEERS is not set; eval/peers/dense.py writes the folder")
	}
	b := New(runtimetest.OpenGPU(t))
	for _, kind := range []string{"scores", "heads", "distances"} {
		t.Run(kind, func(t *testing.T) { peersOf(t, b, filepath.Join(folder, kind)) })
	}
}

func peersOf(t *testing.T, b maxsim.Backend, folder string) {
	text, err := os.ReadFile(filepath.Join(folder, "shapes.json"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("was not saved")
	}
	require.NoError(t, err)
	var shapes []peerShape
	require.NoError(t, json.Unmarshal(text, &shapes))
	for i, s := range shapes {
		read := func(name string) []byte {
			data, err := os.ReadFile(filepath.Join(folder, fmt.Sprintf("%d.%s", i, name)))
			require.NoError(t, err)
			return data
		}
		switch s.Kind {
		case "head":
			peersHead(t, b, &s, read)
			continue
		case "chamfer":
			peersChamfer(t, b, &s, read)
			continue
		}
		floats := func(name string) []float32 { x := read(name); return structsFrom[float32](x, len(x)/4) }
		tokens := func(name string, rows int) *maxsim.Batch {
			x := read(name)
			return maxsim.Padded(maxsim.Float16(structsFrom[uint16](x, len(x)/2), s.Dim), rows)
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

// peerShape is what eval/peers/dense.py says of its files.
type peerShape struct {
	Kind                        string
	Nq, Lq, Nd, Ld, Dim, Hidden int
}

func peersHead(t *testing.T, b maxsim.Backend, s *peerShape, read func(string) []byte) {
	t.Helper()
	half := func(name string, dim int) maxsim.Matrix {
		x := read(name)
		return maxsim.Float16(structsFrom[uint16](x, len(x)/2), dim)
	}
	bias, want := read("bias"), read("lik")
	c := &maxsim.HeadCall{
		Q: maxsim.Padded(half("q", s.Dim), s.Lq), D: maxsim.Padded(half("d", s.Hidden), s.Ld),
		Head:   maxsim.Head{Weights: half("w", s.Hidden), Bias: structsFrom[float32](bias, s.Dim)},
		Terms:  maxsim.Terms{Normalize: true},
		Scores: make([]float32, s.Nq*s.Nd),
	}
	require.NoError(t, maxsim.ScoreHead(ctx, b, c))
	// Theirs rounds token vectors to half precision.
	near(t, "scores of hidden states", structsFrom[float32](want, len(c.Scores)), c.Scores, 1e-3*float64(s.Lq), 0)
}

func peersChamfer(t *testing.T, b maxsim.Backend, s *peerShape, read func(string) []byte) {
	t.Helper()
	floats := func(name string) []float32 { x := read(name); return structsFrom[float32](x, len(x)/4) }
	x, y := maxsim.Single(maxsim.Float32(floats("q"), s.Dim)), maxsim.Single(maxsim.Float32(floats("d"), s.Dim))
	for _, metric := range []maxsim.Metric{maxsim.L1, maxsim.SquaredL2} {
		c := &maxsim.ChamferCall{X: x, Y: y, Metric: metric, Mean: true, Distances: make([]float32, 1), NearestX: make([]int32, s.Lq), NearestY: make([]int32, s.Ld)}
		require.NoError(t, maxsim.Chamfer(ctx, b, c))
		// Theirs are of squares and products, in fewer bits.
		near(t, fmt.Sprintf("distance %d", metric), floats(map[maxsim.Metric]string{maxsim.L1: "l1", maxsim.SquaredL2: "l2"}[metric]), c.Distances, 5e-3, 0)
		if metric == maxsim.L1 {
			continue
		}
		g := &maxsim.ChamferGradCall{X: x, Y: y, Metric: metric, Mean: true, NearestX: c.NearestX, NearestY: c.NearestY,
			DX: maxsimtest.NewGradient(x, maxsim.F32), DY: maxsimtest.NewGradient(y, maxsim.F32)}
		require.NoError(t, maxsim.ChamferGradients(ctx, b, g))
		near(t, "gradient of X", floats("dx"), g.DX.F32, 1e-4, 20)
		near(t, "gradient of Y", floats("dy"), g.DY.F32, 1e-4, 20)
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
