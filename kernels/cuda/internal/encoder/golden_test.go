package encoder

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// encoding is a device that runs text encoders and nothing else.
type encoding struct {
	kernels.Device
	dev *runtime.Device
}

func (e encoding) Info() kernels.DeviceInfo { return e.dev.Info() }

func (e encoding) Transformer(ctx context.Context, c transformer.Config, w *transformer.Weights, o transformer.Options) (transformer.Model, error) {
	return New(ctx, e.dev, c, w, o)
}

// hopperFake is a fake device, which has wide tiles.
func hopperFake(t testing.TB) *runtime.Device {
	return runtimetest.OpenFakeHopper(t, runtimetest.Fake(fakeKernels()))
}

// openFolder opens a model's folder on a device.
func openFolder(t testing.TB, dir string, d *runtime.Device) *encode.Encoder {
	t.Helper()
	e, err := encode.Open(dir, &encode.Options{OpenedDevice: encoding{dev: d}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	require.Equal(t, encode.Device, e.Config().Backend)
	require.Equal(t, "f16", e.Config().Precision)
	return e
}

// nearGolden is how far 1 − cosine of a vector may be from what was recorded: tiny random
// models round more than those that were trained.
const nearGolden = 2e-5

// goldens is where tiny models are that published classes saved, with their vectors.
var goldens = filepath.Join("..", "..", "..", "..", "encode", "testdata", "golden")

func ofDevice(f *modeltest.ModelErrors) *float64 { return &f.Device }

// TestGolden: from text to vectors on a device, of folders that the real classes saved,
// against what these classes gave; see encode/testdata/golden/make.py and families.py.
func TestGolden(t *testing.T) {
	models := modeltest.Goldens()
	if effort.Brief() {
		models = models[:1]
	}
	requireGolden(t, models, hopperFake, func(name string, lowest float64) {
		modeltest.Record(t, goldens, name, ofDevice, 1-lowest)
	})
}

// TestGPUGolden: the same on a GPU.
func TestGPUGolden(t *testing.T) {
	d := runtimetest.OpenGPU(t)
	requireGolden(t, modeltest.Goldens(), func(testing.TB) *runtime.Device { return d }, func(string, float64) {})
}

// requireGolden holds the vectors that opened devices give of models against those recorded, and
// tells the lowest cosine of each.
func requireGolden(t *testing.T, models []modeltest.Golden, open func(testing.TB) *runtime.Device,
	tell func(name string, lowest float64)) {
	queries, documents := modeltest.GoldenTexts(t, goldens)
	var texts []encode.Text
	for _, s := range documents {
		texts = append(texts, encode.Text{Text: s})
	}
	for _, g := range models {
		if g.Foreign {
			continue
		}
		dir, z := g.Open(t, goldens)
		e := openFolder(t, dir, open(t))
		lowest := 1.0
		list, err := e.Queries(t.Context(), queries)
		require.NoError(t, err)
		for i, q := range list {
			lowest = min(lowest, least(t, modeltest.Floats(t, z, fmt.Sprint("query", i)), q.Vectors, e.Dim()))
		}
		i := 0
		for doc, err := range e.Documents(t.Context(), encode.Texts(texts...)) {
			require.NoError(t, err)
			lowest = min(lowest, least(t, modeltest.Floats(t, z, fmt.Sprint("document", i)), doc.Tokens, e.Dim()))
			i++
		}
		require.Equal(t, len(texts), i)
		t.Logf("%s: lowest cosine 1 − %.2g", g.Name, 1-lowest)
		require.Greater(t, lowest, 1-nearGolden, g.Name)
		tell(g.Name, lowest)
	}
}

// TestNano: a real model, on a device, against PyTorch in float32.
func TestNano(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "..", "docs", "examples", "quickstart", "colbert-nano")
	b, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	require.NoError(t, err)
	var texts []string
	require.NoError(t, json.Unmarshal(b, &texts))
	z := modeltest.OpenNPZ(t, filepath.Join(dir, "golden.npz"))
	e := openFolder(t, dir, hopperFake(t))
	worst := 0.0
	for i, text := range texts {
		if strings.TrimSpace(text) == "" {
			continue // it has no vectors
		}
		em, err := e.Query(t.Context(), text)
		require.NoError(t, err)
		lowest := least(t, modeltest.Floats(t, z, fmt.Sprintf("query%d.vectors", i)), em.Vectors, e.Dim())
		t.Logf("query %d: lowest cosine 1 − %.2g", i, 1-lowest)
		require.Greater(t, lowest, 0.99999)
		worst = max(worst, 1-lowest)
	}
	modeltest.Record(t, goldens, "colbert-nano", ofDevice, worst)
	// The fingerprint is its own, and tells which other precision is near it.
	exact, err := encode.Open(dir, nil)
	require.NoError(t, err)
	defer exact.Close()
	require.NotEqual(t, exact.Config().Fingerprint, e.Config().Fingerprint)
	require.Equal(t, exact.Config().Fingerprint, e.Config().Near)
	require.Equal(t, e.Config().Fingerprint, exact.Config().Near)
	require.Equal(t, "cuda:0", e.Config().Device.Device.Name)
}
