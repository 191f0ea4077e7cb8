package docs_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
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

// published are weights of no late-interaction model that were run, by families; lab/peers.md has them.
var published = map[string]string{"BERT": "all-MiniLM-L6-v2", "MPNet": "all-mpnet-base-v2", "Gemma 3": "Gemma 3 270M"}

// kind are the tiny models of a family.
type kind struct {
	name                     string
	classes, layouts, models []string
	found                    modeltest.ModelErrors // the largest of theirs
}

// TestModels: the table of models in encoder.md has the published models that plaid lists, then the
// families, with the figures that tests of the encoder recorded. -update writes it.
func TestModels(t *testing.T) {
	const root, cure = "../encode/testdata/golden", "go test ./%s -run 'Golden|Nano' -update"
	recorded := modeltest.ReadModelErrors(t, root)
	found := func(name string) modeltest.ModelErrors {
		f := recorded[name]
		require.NotNil(t, f, "%s is not recorded: "+cure, name, "encode")
		require.NotZero(t, f.Device, "%s is not recorded: "+cure, name, "kernels/cuda/internal/encoder")
		return *f
	}
	var b strings.Builder
	b.WriteString("| model, or class | form; package of the folder | run with | processor | card |\n")
	b.WriteString("| --- | --- | --- | --- | --- |\n")
	row := func(name, form, by string, f modeltest.ModelErrors) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", name, form, by, short(f.Processor), short(f.Device))
	}
	for _, m := range modeldir.KnownModels() {
		by, f := "its weights", modeltest.ModelErrors{}
		switch m.CheckedBy {
		case modeldir.ByWeights:
			f = found(path.Base(m.Name))
		case modeldir.ByShape:
			by, f = "`"+m.Shape+"`", found(m.Shape)
		}
		sizes := fmt.Sprintf("%d × %d, %d dimensions", m.Layers, m.Hidden, m.Dim)
		row(m.Name, fmt.Sprintf("%s, %s; %s", familyNames[m.Family], sizes, m.Layout), by, f)
	}
	for _, k := range kindsOf(t, root, found) {
		if name := published[k.name]; name != "" {
			k.models = append(k.models, name)
		}
		row("any "+list(k.classes), k.name+"; "+list(k.layouts), list(k.models), k.found)
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

// kindsOf are the families of the goldens.
func kindsOf(t *testing.T, root string, found func(name string) modeltest.ModelErrors) (kinds []*kind) {
	t.Helper()
	add := func(to *[]string, s string) {
		if !slices.Contains(*to, s) {
			*to = append(*to, s)
		}
	}
	for _, g := range modeltest.Goldens() {
		if g.Foreign {
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
		i := slices.IndexFunc(kinds, func(k *kind) bool { return k.name == familyNames[c.Kind] })
		if i < 0 {
			i, kinds = len(kinds), append(kinds, &kind{name: familyNames[c.Kind]})
		}
		k, f := kinds[i], found(g.Name)
		add(&k.classes, c.Architectures[0])
		add(&k.layouts, layoutOf(t, dir))
		k.models = append(k.models, "`"+g.Name+"`")
		k.found.Processor, k.found.Device = max(k.found.Processor, f.Processor), max(k.found.Device, f.Device)
	}
	return kinds
}

func list(words []string) string { return strings.Join(words, ", ") }

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
