package modeldir

import (
	"path"

	"github.com/plaid-ir/plaid/internal/human"
)

// Known is a published model that was checked to be read correctly.
type Known struct {
	// Name is the name at the model hub, or the folder of a model in plaid's repository.
	Name   string `json:"name"`
	Family Family `json:"family"`
	// Layers and Hidden are sizes of the transformer, and Dim is the dimension of the vectors.
	Layers int `json:"layers"`
	Hidden int `json:"hidden"`
	Dim    int `json:"dim"`
	// Parameters is about how many numbers the weights have.
	Parameters int64 `json:"parameters"`
	// Layout is the package that wrote the model's folder.
	Layout    string `json:"layout"`
	CheckedBy Check  `json:"checked"`
	// Shape is the tiny random model of plaid's tests, in encode/testdata/golden, that was run
	// instead of the model's own weights.
	Shape string `json:"shape,omitempty"`
}

// Check is the way in which a model was checked.
type Check string

// The checks, the strictest first.
const (
	// ByWeights means that the model itself was run, and that its vectors are those of its package.
	ByWeights Check = "weights"
	// ByShape means that random models of the same classes and settings were run, and that their
	// vectors are those of its package. Its own weights were not run.
	ByShape Check = "shape"
)

// The packages that write folders of models.
const (
	Stanford = "Stanford"
	PyLate   = "PyLate"
)

// KnownModels returns the published models that were checked to be read correctly, the smallest first.
func KnownModels() []Known {
	const million = 1_000_000
	edge := Known{Layers: 7, Hidden: 256, Dim: 48, Parameters: 17 * million}
	small := Known{Layers: 10, Hidden: 384, Dim: 64, Parameters: 32 * million}
	base := Known{Layers: 22, Hidden: 768, Dim: 128, Parameters: 149 * million}
	mmBERT := Known{Layers: 22, Hidden: 768, Dim: 128, Parameters: 307 * million}
	euro := Known{Layers: 12, Hidden: 768, Dim: 128, Parameters: 210 * million}
	liquid := Known{Layers: 16, Hidden: 1024, Dim: 128, Parameters: 350 * million}
	pylate := func(name string, family Family, shape string, m Known) Known {
		m.Name, m.Family, m.Shape, m.Layout, m.CheckedBy = name, family, shape, PyLate, ByShape
		return m
	}
	modern := func(name string, m Known) Known { return pylate(name, ModernBERT, "pylate-heads", m) }
	return []Known{
		{"docs/examples/quickstart/colbert-nano", BERT, 4, 192, 128, 4 * million, Stanford, ByWeights, ""},
		modern("mixedbread-ai/mxbai-edge-colbert-v0-17m", edge),
		modern("lightonai/LateOn-Code-edge", edge),
		modern("mixedbread-ai/mxbai-edge-colbert-v0-32m", small),
		{"answerdotai/answerai-colbert-small-v1", BERT, 12, 384, 96, 33 * million, Stanford, ByShape, "stanford"},
		{"colbert-ir/colbertv2.0", BERT, 12, 768, 128, 110 * million, Stanford, ByShape, "stanford"},
		modern("lightonai/GTE-ModernColBERT-v1", base),
		modern("lightonai/LateOn", base),
		modern("lightonai/LateOn-Code", base),
		modern("lightonai/ColBERT-Zero", base),
		modern("lightonai/Reason-ModernColBERT", base),
		modern("lightonai/Agent-ModernColBERT", base),
		modern("VAGOsolutions/SauerkrautLM-Multi-ModernColBERT", base),
		modern("VAGOsolutions/SauerkrautLM-Multi-Reason-ModernColBERT", base),
		pylate("VAGOsolutions/SauerkrautLM-EuroColBERT", EuroBERT, "pylate-eurobert", euro),
		pylate("VAGOsolutions/SauerkrautLM-Reason-EuroColBERT", EuroBERT, "pylate-eurobert", euro),
		pylate("lightonai/mLateOn", ModernBERT, "pylate-mmbert", mmBERT),
		pylate("LiquidAI/LFM2-ColBERT-350M", LFM2, "pylate-lfm2", liquid),
		pylate("LiquidAI/LFM2.5-ColBERT-350M", LFM2, "pylate-lfm25", liquid),
		{"jinaai/jina-colbert-v2", XLMR, 24, 1024, 128, 559 * million, Stanford, ByShape, "xlmr-rotary"},
	}
}

// NearestKnown returns the known model at the hub that a name misspells, or names with another
// organization. "" means that no known model is similar.
func NearestKnown(name string) string {
	best, minDistance := "", len(name)
	for _, m := range KnownModels() {
		if m.Name == name {
			return ""
		}
		if m.CheckedBy == ByWeights { // a folder of the repository
			continue
		}
		base := path.Base(m.Name)
		if d := human.Distance(path.Base(name), base); d < minDistance && d <= max(1, len(base)/5) {
			best, minDistance = m.Name, d
		}
	}
	return best
}
