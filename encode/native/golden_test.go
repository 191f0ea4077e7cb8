package native

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/engine"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/vectors"
)

// TestGolden: tiny models of both families, with heads of every kind, against
// an implementation in numpy, in float64.
func TestGolden(t *testing.T) {
	z := openNPZ(t, "testdata/golden.npz")
	for name, family := range map[string]Family{"bert": BERT, "modernbert": ModernBERT} {
		var texts [][]int32
		var attended []int
		var want []float32
		for i := range 5 {
			texts = append(texts, intsOf(t, z, fmt.Sprintf("text%d.ids", i)))
			attended = append(attended, int(intsOf(t, z, fmt.Sprintf("text%d.attended", i))[0]))
			want = append(want, floatsOf(t, z, fmt.Sprintf("text%d.%s", i, name))...)
		}
		b := batchOf(texts...)
		b.Attended = attended
		c, w := tiny(family)
		for _, tier := range Tiers() {
			d := difference(t, want, encode(t, newModel(t, c, w, Options{Tier: tier}), b))
			t.Logf("%s, %s: largest difference %.2g", name, tier, d)
			require.Less(t, d, 2e-6)
			d = difference(t, want, encode(t, newModel(t, c, w, Options{Tier: tier, Precision: Int8}), b))
			t.Logf("%s, %s, int8: largest difference %.2g", name, tier, d)
			require.Less(t, d, 0.1)
		}
	}
}

// nano reads the model of a folder of Hugging Face's kind.
func nano(t testing.TB) (Config, *Weights) {
	t.Helper()
	s, err := vectors.OpenSafetensors(nanoFile("model.safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	get := func(name string) []float32 { return floatsOf(t, s, name) }
	norm := func(name string) Norm { return Norm{Gamma: get(name + ".weight"), Beta: get(name + ".bias")} }
	linear := func(name string) Linear { return Linear{Weight: get(name + ".weight"), Bias: get(name + ".bias")} }
	c := Config{Family: BERT, Hidden: 192, Heads: 6, Intermediate: 768, MaxPositions: 512, Epsilon: 1e-12}
	w := &Weights{
		Words:     get("bert.embeddings.word_embeddings.weight"),
		Positions: get("bert.embeddings.position_embeddings.weight"),
		Types:     get("bert.embeddings.token_type_embeddings.weight"),
		Norm:      norm("bert.embeddings.LayerNorm"),
		Heads:     []Dense{{In: 192, Out: 128, Linear: Linear{Weight: get("linear.weight")}}},
	}
	for i := range 4 {
		name := fmt.Sprintf("bert.encoder.layer.%d.", i)
		w.Layers = append(w.Layers, Layer{
			AttentionNorm: norm(name + "attention.output.LayerNorm"),
			Query:         linear(name + "attention.self.query"), Key: linear(name + "attention.self.key"),
			Value: linear(name + "attention.self.value"), Output: linear(name + "attention.output.dense"),
			FeedForwardNorm: norm(name + "output.LayerNorm"),
			Up:              linear(name + "intermediate.dense"), Down: linear(name + "output.dense"),
		})
	}
	return c, w
}

// nanoTexts are queries and documents, and their vectors by PyTorch.
func nanoTexts(t testing.TB) (b engine.Batch, want []float32) {
	t.Helper()
	z := openNPZ(t, nanoFile("golden.npz"))
	var texts [][]int32
	for i := range 4 {
		for _, kind := range []string{"query", "document"} {
			texts = append(texts, intsOf(t, z, fmt.Sprintf("%s%d.ids", kind, i)))
			want = append(want, floatsOf(t, z, fmt.Sprintf("%s%d.vectors", kind, i))...)
		}
	}
	return batchOf(texts...), want
}

// TestNano: a real model against PyTorch in float32.
func TestNano(t *testing.T) {
	c, w := nano(t)
	b, want := nanoTexts(t)
	for _, tier := range Tiers() {
		if !effort.Long() && tier == "generic" {
			continue
		}
		d := difference(t, want, encode(t, newModel(t, c, w, Options{Tier: tier}), b))
		t.Logf("%s: largest difference %.3g", tier, d)
		require.Less(t, d, 3e-6)
		got := encode(t, newModel(t, c, w, Options{Tier: tier, Precision: Int8}), b)
		least, mean := cosines(want, got, 128)
		t.Logf("%s, int8: cosines, least %.5f, mean %.5f", tier, least, mean)
		require.Greater(t, least, 0.97)
		require.Greater(t, mean, 0.9985)
	}
}

// cosines of unit vectors.
func cosines(want, got []float32, dim int) (least, mean float64) {
	least = 1
	for i := 0; i < len(want); i += dim {
		s := 0.0
		for j := range dim {
			s += float64(want[i+j]) * float64(got[i+j])
		}
		least, mean = min(least, s), mean+s
	}
	return least, mean / float64(len(want)/dim)
}
