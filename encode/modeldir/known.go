package modeldir

// Known is a published model that is known to be read rightly.
type Known struct {
	// Name is that of the model hub, or the folder of a model that is in plaid's repository.
	Name   string `json:"name"`
	Family Family `json:"family"`
	// Layers and Hidden are the sizes of the transformer, Dim that of the vectors.
	Layers int `json:"layers"`
	Hidden int `json:"hidden"`
	Dim    int `json:"dim"`
	// Parameters is how many numbers the weights are, about.
	Parameters int64 `json:"parameters"`
	// Layout is the package whose folders the model's is one of.
	Layout  string `json:"layout"`
	Checked Check  `json:"checked"`
}

// Check is how a model was checked.
type Check string

// The checks, the strictest first.
const (
	// ByWeights: its own weights were run, and the vectors are those of its package.
	ByWeights Check = "weights"
	// ByShape: random models of the same classes and settings were run, and the vectors are those
	// of its package. Its own weights were not.
	ByShape Check = "shape"
)

// The packages that folders are of.
const (
	Stanford = "Stanford"
	PyLate   = "PyLate"
)

// KnownModels are the published models that are known to be read rightly, the smallest first.
func KnownModels() []Known {
	const million = 1_000_000
	return []Known{
		{"docs/examples/quickstart/colbert-nano", BERT, 4, 192, 128, 4 * million, Stanford, ByWeights},
		{"mixedbread-ai/mxbai-edge-colbert-v0-17m", ModernBERT, 7, 256, 48, 17 * million, PyLate, ByShape},
		{"mixedbread-ai/mxbai-edge-colbert-v0-32m", ModernBERT, 10, 384, 64, 32 * million, PyLate, ByShape},
		{"answerdotai/answerai-colbert-small-v1", BERT, 12, 384, 96, 33 * million, Stanford, ByShape},
		{"colbert-ir/colbertv2.0", BERT, 12, 768, 128, 110 * million, Stanford, ByShape},
		{"lightonai/GTE-ModernColBERT-v1", ModernBERT, 22, 768, 128, 149 * million, PyLate, ByShape},
		{"lightonai/LateOn", ModernBERT, 22, 768, 128, 149 * million, PyLate, ByShape},
		{"jinaai/jina-colbert-v2", XLMR, 24, 1024, 128, 559 * million, Stanford, ByShape},
	}
}
