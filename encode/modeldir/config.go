package modeldir

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/plaid-ir/plaid/encode/tokenizer"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels/transformer"
	"github.com/plaid-ir/plaid/vectors/pool"
)

// Config holds the settings of a model, resolved from the files of its folder.
type Config struct {
	Dir      string   `json:"dir"`
	Backbone Backbone `json:"backbone"`
	// Dense are the heads of a folder of sentence-transformers, in order. Other
	// folders have their one head among the weights.
	Dense []Dense `json:"dense,omitempty"`
	// Dim is the dimension of the vectors. 0 means that only the weights determine it.
	Dim      int       `json:"dim"`
	Query    Role      `json:"query"`
	Document Role      `json:"document"`
	Expand   Expansion `json:"expansion"`
	// Skip are ids whose vectors are dropped. If Keep is not empty, only the vectors of its ids are
	// kept in documents.
	Skip []int32 `json:"skip"`
	Keep []int32 `json:"keep,omitempty"`
	// Pooling is the pooling of documents. nil means none.
	Pooling *pool.Hierarchy `json:"pooling,omitempty"`
	// LowerCase means that texts are lowered before the tokenizer's own steps.
	LowerCase bool `json:"lower_case"`

	// KeepSpace means that white space around a text stays, as in sentence-transformers 6.
	KeepSpace bool `json:"keep_space,omitempty"`

	// Weights are the files with the tensors: .safetensors, or the graph of [ReadGraph].
	Weights []string `json:"weights"`
	graph   bool     // Weights is the graph of [ReadGraph]
	// Origin names the file that each value comes from, or "override" or "default".
	Origin   map[string]string `json:"origin"`
	Warnings []string          `json:"warnings,omitempty"`

	Tokenizer *tokenizer.Tokenizer `json:"-"`
}

// Backbone is the transformer.
type Backbone struct {
	Family     Family `json:"family"`
	Vocabulary int    `json:"vocabulary"`
	Biases     Biases `json:"biases"`
	transformer.Config
}

// Biases holds which linear maps and norms have a bias.
type Biases struct {
	Attention   bool `json:"attention"`
	FeedForward bool `json:"feed_forward"`
	Convolution bool `json:"convolution"`
	Norms       bool `json:"norms"`
}

var allBiases = Biases{Attention: true, FeedForward: true, Norms: true}

// Dense is a head: y = activation(W·x + b). With a residual, x or R·x is added to y.
type Dense struct {
	In         int    `json:"in"`
	Out        int    `json:"out"`
	Bias       bool   `json:"bias"`
	Activation string `json:"activation"` // identity, relu, gelu, gelu_tanh, silu or tanh
	Residual   bool   `json:"residual"`
	Path       string `json:"path"` // of its tensors
}

// Role holds the settings of queries or of documents.
type Role struct {
	// Marker is the id after the first one, [CLS]; −1 means no marker, or one in Prompt.
	Marker int32 `json:"marker"`
	// Prompt is put before the text.
	Prompt string `json:"prompt,omitempty"`
	// Length is the largest length of a text in ids, with prompt, marker and special tokens.
	Length int `json:"length"`
	// Skip reports whether the vectors of the ids in Config.Skip are dropped.
	Skip bool `json:"skip"`
}

// Expansion fills queries up with mask tokens, whose vectors are used like those of other tokens.
type Expansion struct {
	On     bool  `json:"on"`
	Attend bool  `json:"attend"` // whether other tokens attend to mask tokens
	Mask   int32 `json:"mask"`   // the id of the mask token; −1 means that it has none
	Length int   `json:"length"` // ids of a query that is filled up
	// Longer means that queries may be longer than Length. Otherwise they are cut there.
	Longer bool `json:"longer,omitempty"`
}

// Override sets values that a folder leaves open or contradicts itself in. Nil
// means the value of the folder.
type Override struct {
	QueryMarker    *string   `json:"query_marker,omitempty"` // a token. "" means none
	DocumentMarker *string   `json:"document_marker,omitempty"`
	QueryPrompt    *string   `json:"query_prompt,omitempty"`
	DocumentPrompt *string   `json:"document_prompt,omitempty"`
	QueryLength    *int      `json:"query_length,omitempty"`
	DocumentLength *int      `json:"document_length,omitempty"`
	Expand         *bool     `json:"expand,omitempty"`
	Attend         *bool     `json:"attend,omitempty"`
	Mask           *string   `json:"mask,omitempty"`
	Skip           *[]string `json:"skip,omitempty"`
	LowerCase      *bool     `json:"lower_case,omitempty"`
}

// WithDefaults returns the override with nil values replaced by those of base.
func (o Override) WithDefaults(base *Override) *Override {
	setIfNil(&o.QueryMarker, base.QueryMarker)
	setIfNil(&o.DocumentMarker, base.DocumentMarker)
	setIfNil(&o.QueryPrompt, base.QueryPrompt)
	setIfNil(&o.DocumentPrompt, base.DocumentPrompt)
	setIfNil(&o.QueryLength, base.QueryLength)
	setIfNil(&o.DocumentLength, base.DocumentLength)
	setIfNil(&o.Expand, base.Expand)
	setIfNil(&o.Attend, base.Attend)
	setIfNil(&o.Mask, base.Mask)
	setIfNil(&o.Skip, base.Skip)
	setIfNil(&o.LowerCase, base.LowerCase)
	return &o
}

func setIfNil[T any](target **T, value *T) {
	if *target == nil {
		*target = value
	}
}

// ReadOverride reads a file with a JSON object that has the keys of [Override].
func ReadOverride(path string) (*Override, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, &ModelError{Path: path, Err: os.ErrNotExist}
	}
	o := new(Override)
	targets := map[string]any{
		"query_marker":    &o.QueryMarker,
		"document_marker": &o.DocumentMarker,
		"query_prompt":    &o.QueryPrompt,
		"document_prompt": &o.DocumentPrompt,
		"query_length":    &o.QueryLength,
		"document_length": &o.DocumentLength,
		"expand":          &o.Expand,
		"attend":          &o.Attend,
		"mask":            &o.Mask,
		"skip":            &o.Skip,
		"lower_case":      &o.LowerCase,
	}
	for _, key := range sortedKeys(f.m) {
		target, ok := targets[key]
		if !ok {
			return nil, f.errorf(key, ErrConfig, "is not known")
		}
		if err := json.Unmarshal(f.m[key], target); err != nil {
			return nil, f.errorf(key, ErrConfig, "is %s: %w", abbreviate(f.m[key]), err)
		}
	}
	return o, nil
}

// Tensors returns the paths of all files with tensors, or with the graph. [Read] only names these
// files.
func (c *Config) Tensors() []string {
	paths := slices.Clone(c.Weights)
	for _, d := range c.Dense {
		paths = append(paths, d.Path)
	}
	return paths
}

// Fingerprints returns, for each precision, a SHA-256 of everything that the vectors of documents
// depend on: the files of weights, the tokenizer, the settings, and the precision. The
// settings of queries are left out, since documents do not depend on them.
func (c *Config) Fingerprints(precisions ...string) ([]string, error) {
	// Settings without the values that the vectors of documents do not depend on.
	settings := *c
	settings.Dir, settings.Origin, settings.Warnings, settings.Weights = "", nil, nil, nil
	settings.Query, settings.Expand = Role{}, Expansion{}
	if !settings.Document.Skip {
		settings.Skip = nil
	}
	if c.graph {
		settings.Backbone = Backbone{} // the graph determines it
	}
	settings.Dense = slices.Clone(c.Dense)
	for i := range settings.Dense {
		settings.Dense[i].Path = ""
	}
	b, err := json.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("fingerprint: %w", err)
	}
	tokenizerSum := c.Tokenizer.Fingerprint()
	hashedContents := [][]byte{tokenizerSum[:], b}
	for _, path := range c.Tensors() {
		sum, err := hashFile(path)
		if err != nil {
			return nil, &ModelError{Path: path, Err: pathless(err)}
		}
		hashedContents = append(hashedContents, sum)
	}
	fingerprints := make([]string, len(precisions))
	for i, precision := range precisions {
		h := sha256.New()
		for _, b := range append([][]byte{[]byte("plaid model 2"), []byte(precision)}, hashedContents...) {
			h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(b))))
			h.Write(b)
		}
		fingerprints[i] = hex.EncodeToString(h.Sum(nil))
	}
	return fingerprints, nil
}

// hashFile returns the SHA-256 of a file.
func hashFile(path string) ([]byte, error) {
	f, _, err := files.OpenInput(filepath.Clean(path))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}
