package docs_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
)

// familyNames are the names of families in prose.
var familyNames = map[modeldir.Family]string{
	modeldir.BERT: "BERT", modeldir.RoBERTa: "RoBERTa", modeldir.CamemBERT: "CamemBERT", modeldir.XLMR: "XLM-R",
	modeldir.JinaV3: "XLM-R", modeldir.DistilBERT: "DistilBERT", modeldir.MPNet: "MPNet", modeldir.ELECTRA: "ELECTRA",
	modeldir.ModernBERT: "ModernBERT", modeldir.EuroBERT: "EuroBERT", modeldir.Gemma3: "Gemma 3", modeldir.LFM2: "LFM2",
}

// TestModels: the table of models in encoder.md has the published models that plaid lists, then the tiny
// ones that no row above was checked by, with what the tests of the encoder recorded. -update writes it.
func TestModels(t *testing.T) {
	const root, cure = "../encode/testdata/golden", "go test ./%s -run 'Golden|Nano' -update"
	found := modeltest.ReadFound(t, root)
	var b strings.Builder
	b.WriteString("| model, or class | form; package of the folder | run with | processor | card |\n")
	b.WriteString("| --- | --- | --- | --- | --- |\n")
	row := func(name, form, by, key string) {
		f := found[key]
		require.NotNil(t, f, "%s is not recorded: "+cure, key, "encode")
		require.NotZero(t, f.Device, "%s is not recorded: "+cure, key, "kernels/cuda/internal/encoder")
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", name, form, by, short(f.Processor), short(f.Device))
	}
	shown := map[string]bool{}
	for _, m := range modeldir.KnownModels() {
		form := fmt.Sprintf("%s, %d × %d, %d dimensions; %s", familyNames[m.Family], m.Layers, m.Hidden, m.Dim, m.Layout)
		switch m.Checked {
		case modeldir.ByWeights:
			row(m.Name, form, "its weights", path.Base(m.Name))
		case modeldir.ByShape:
			row(m.Name, form, "`"+m.Shape+"`", m.Shape)
			shown[m.Shape] = true
		}
	}
	for _, g := range modeltest.Goldens() {
		if g.Foreign || shown[g.Name] {
			continue
		}
		dir, _ := g.Open(t, root)
		text, err := os.ReadFile(filepath.Join(dir, "config.json"))
		require.NoError(t, err)
		var c struct {
			Kind          modeldir.Family `json:"model_type"`
			Architectures []string        `json:"architectures"`
		}
		require.NoError(t, json.Unmarshal(text, &c))
		row("any "+c.Architectures[0], familyNames[c.Kind]+"; "+layoutOf(t, dir), "`"+g.Name+"`", g.Name)
	}
	page, err := os.ReadFile("encoder.md")
	require.NoError(t, err)
	const head = "| model, or class |"
	before, rest, ok := strings.Cut(string(page), head)
	require.True(t, ok, "encoder.md has no table of models")
	_, after, ok := strings.Cut(rest, "\n\n")
	require.True(t, ok)
	want := before + b.String() + "\n" + after
	if *modeltest.Update {
		require.NoError(t, os.WriteFile("encoder.md", []byte(want), 0o666))
		return
	}
	require.Equal(t, want, string(page), "go test ./docs -run TestModels -update")
}

// short is a number with two digits and no more of its exponent than is needed.
func short(x float64) string { return strings.ReplaceAll(fmt.Sprintf("%.1e", x), "e-0", "e-") }

// layoutOf is the package whose folders a folder is one of.
func layoutOf(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "config_sentence_transformers.json"))
	switch {
	case os.IsNotExist(err):
		return modeldir.Stanford
	case strings.Contains(string(text), "MultiVectorEncoder"):
		return "sentence-transformers"
	}
	require.NoError(t, err)
	return modeldir.PyLate
}
