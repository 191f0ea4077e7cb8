package modeltest

import (
	"encoding/json"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/vectors"
)

// Golden is a tiny model in a folder of encode/testdata/golden that a published class saved, with
// the vectors that such a class computed.
type Golden struct {
	Name   string // of the file of vectors
	Folder string
	Over   string // a folder whose files replace those of Folder
	// Change holds changes of config.json.
	Change map[string]any
	// Foreign means that another package than the folder's computed the vectors.
	Foreign bool
}

// Goldens returns the models whose vectors are those of texts.json.
func Goldens() []Golden {
	var list []Golden
	for _, name := range []string{
		"pylate-bert", "pylate-heads", "pylate-attend", "stanford", "sentence-bert", "sentence-modernbert",
		"xlmr", "xlmr-rotary", "roberta", "camembert", "distilbert", "mpnet", "electra-narrow",
		"eurobert", "eurobert-biased", "gemma", "mmbert", "lfm2", "lfm2-biased",
	} {
		list = append(list, Golden{Name: name, Folder: name})
	}
	for _, name := range []string{"pylate-bert", "pylate-heads", "pylate-attend", "stanford"} {
		list = append(list, Golden{Name: name + "-sentence", Folder: name, Foreign: true})
	}
	for _, name := range []string{
		"roberta", "camembert", "distilbert", "mpnet", "electra-narrow", "eurobert", "gemma", "mmbert", "lfm2",
	} {
		list = append(list, Golden{Name: "pylate-" + name, Folder: name, Over: "pylate-" + name})
	}
	list = append(list, Golden{Name: "pylate-lfm25", Folder: "lfm2", Over: "pylate-lfm25"})
	type change = map[string]any
	return append(list,
		Golden{Name: "electra", Folder: "sentence-bert", Change: change{
			"model_type": "electra", "architectures": []string{"ElectraModel"},
			"embedding_size": 32, "hidden_act": "tanh"}},
		Golden{Name: "gemma-causal", Folder: "gemma", Change: change{
			"use_bidirectional_attention": false, "sliding_window": 5}},
		Golden{Name: "lfm25", Folder: "lfm2", Change: change{"architectures": []string{"Lfm2BidirectionalModel"}}})
}

// Open returns the folder of the model, and its vectors. root is the path of encode/testdata/golden.
func (g Golden) Open(t testing.TB, root string) (dir string, z *vectors.NPZ) {
	t.Helper()
	dir = filepath.Join(root, g.Folder)
	if g.Over != "" || g.Change != nil {
		dir = t.TempDir()
		copyOver(t, dir, filepath.Join(root, g.Folder))
	}
	if g.Over != "" {
		copyOver(t, dir, filepath.Join(root, g.Over))
	}
	if g.Change != nil {
		Edit(t, filepath.Join(dir, "config.json"), g.Change)
	}
	return dir, OpenNPZ(t, filepath.Join(root, "golden-"+g.Name+".npz"))
}

// copyOver copies the files of a folder, and replaces existing files.
func copyOver(t testing.TB, to, from string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		name, err := filepath.Rel(from, path)
		require.NoError(t, err)
		WriteFile(t, filepath.Join(to, name), b)
		return nil
	}))
}

// GoldenTexts returns the queries and documents of the vectors.
func GoldenTexts(t testing.TB, root string) (queries, documents []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "texts.json"))
	require.NoError(t, err)
	var texts struct{ Queries, Documents []string }
	require.NoError(t, json.Unmarshal(b, &texts))
	return texts.Queries, texts.Documents
}

// Update makes tests record their figures.
var Update = flag.Bool("update", false, "record what is found, for the table of models in docs/encoder.md")

// ModelErrors has the figures of a model: the largest difference of a value of its vectors from those of
// its package, on the processor, and the largest 1 − cosine on a device.
type ModelErrors struct {
	Processor float64 `json:"processor"`
	Device    float64 `json:"device,omitempty"`
}

// ReadModelErrors reads the recorded figures, by the names of goldens.
func ReadModelErrors(t testing.TB, root string) map[string]*ModelErrors {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "found.json"))
	require.NoError(t, err)
	var figures map[string]*ModelErrors
	require.NoError(t, json.Unmarshal(b, &figures))
	return figures
}

// Record requires that a figure of a model, which selectFigure selects, is within half of the recorded one, or records
// it with two digits.
func Record(t testing.TB, root, name string, selectFigure func(f *ModelErrors) *float64, x float64) {
	t.Helper()
	figures := ReadModelErrors(t, root)
	if figures[name] == nil {
		figures[name] = new(ModelErrors)
	}
	recorded := selectFigure(figures[name])
	if !*Update {
		require.InEpsilon(t, *recorded, x, .5, "%s: go test -run Golden -update records what is found", name)
		return
	}
	*recorded, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'e', 1, 64), 64)
	b := []byte("{")
	for i, name := range slices.Sorted(maps.Keys(figures)) {
		line, err := json.Marshal(figures[name])
		require.NoError(t, err)
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, "\n  "+strconv.Quote(name)+": "...), line...)
	}
	WriteFile(t, filepath.Join(root, "found.json"), append(b, "\n}\n"...))
}
