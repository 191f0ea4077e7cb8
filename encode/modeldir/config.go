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

// Config is all that a folder says about a model, resolved.
type Config struct {
	Dir      string   `json:"dir"`
	Backbone Backbone `json:"backbone"`
	// Dense are the heads of a folder of sentence-transformers, in order. Other
	// folders keep their one head among the weights.
	Dense []Dense `json:"dense,omitempty"`
	// Dim is the dimension of the vectors; 0 if only the weights know.
	Dim      int       `json:"dim"`
	Query    Role      `json:"query"`
	Document Role      `json:"document"`
	Expand   Expansion `json:"expansion"`
	// Skip are ids whose vectors are dropped, and Keep those of documents whose vectors are kept,
	// where it is not empty.
	Skip []int32 `json:"skip"`
	Keep []int32 `json:"keep,omitempty"`
	// Pooling is that of documents, or nil.
	Pooling *pool.Hierarchy `json:"pooling,omitempty"`
	// LowerCase says that texts are made lower case before the tokenizer's own steps.
	LowerCase bool `json:"lower_case"`

	// KeepSpace says that white space around a text stays, as in sentence-transformers 6.
	KeepSpace bool `json:"keep_space,omitempty"`

	// Weights are the files with the tensors: .safetensors, or the graph of [ReadGraph].
	Weights []string `json:"weights"`
	graph   bool
	// Origin tells for each value which file it comes from, or that it is a default.
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

// Biases are the maps that have a bias, and whether norms have one.
type Biases struct {
	Attention   bool `json:"attention"`
	FeedForward bool `json:"feed_forward"`
	Convolution bool `json:"convolution"`
	Norms       bool `json:"norms"`
}

var allBiases = Biases{Attention: true, FeedForward: true, Norms: true}

// Dense is a head: y = activation(W·x + b), and x or R·x added to it.
type Dense struct {
	In         int    `json:"in"`
	Out        int    `json:"out"`
	Bias       bool   `json:"bias"`
	Activation string `json:"activation"` // identity, relu, gelu, gelu_tanh, silu or tanh
	Residual   bool   `json:"residual"`
	Path       string `json:"path"` // of its tensors
}

// Role is what queries or documents have of their own.
type Role struct {
	// Marker is the id after the first one, [CLS]; −1 means that there is none, or that Prompt has it.
	Marker int32 `json:"marker"`
	// Prompt is put before the text.
	Prompt string `json:"prompt,omitempty"`
	// Length is that of the longest text in ids, with all that is put around it.
	Length int `json:"length"`
	// Skip says whether the vectors of the ids in Config.Skip are dropped.
	Skip bool `json:"skip"`
}

// Expansion fills queries up with mask tokens, whose vectors are used like others.
type Expansion struct {
	On     bool  `json:"on"`
	Attend bool  `json:"attend"` // whether mask tokens are attended to
	Mask   int32 `json:"mask"`   // their id; −1: there is none
	Length int   `json:"length"` // ids of a query that is filled up
	// Longer says that queries may be longer than Length; else it cuts them.
	Longer bool `json:"longer,omitempty"`
}

// Override decides what a folder leaves open or contradicts itself in. Nil
// values leave it to the folder.
type Override struct {
	QueryMarker    *string   `json:"query_marker,omitempty"` // as a token; "": none
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

// Over returns the override with what base decides where it says nothing itself.
func (o Override) Over(base *Override) *Override {
	pick(&o.QueryMarker, base.QueryMarker)
	pick(&o.DocumentMarker, base.DocumentMarker)
	pick(&o.QueryPrompt, base.QueryPrompt)
	pick(&o.DocumentPrompt, base.DocumentPrompt)
	pick(&o.QueryLength, base.QueryLength)
	pick(&o.DocumentLength, base.DocumentLength)
	pick(&o.Expand, base.Expand)
	pick(&o.Attend, base.Attend)
	pick(&o.Mask, base.Mask)
	pick(&o.Skip, base.Skip)
	pick(&o.LowerCase, base.LowerCase)
	return &o
}

func pick[T any](to **T, from *T) {
	if *to == nil {
		*to = from
	}
}

// ReadOverride reads a file of overrides, a JSON object with the keys of [Override].
func ReadOverride(path string) (*Override, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, &ModelError{Path: path, Err: os.ErrNotExist}
	}
	o, known := new(Override), map[string]any{}
	known["query_marker"], known["document_marker"] = &o.QueryMarker, &o.DocumentMarker
	known["query_prompt"], known["document_prompt"] = &o.QueryPrompt, &o.DocumentPrompt
	known["query_length"], known["document_length"] = &o.QueryLength, &o.DocumentLength
	known["expand"], known["attend"], known["mask"] = &o.Expand, &o.Attend, &o.Mask
	known["skip"], known["lower_case"] = &o.Skip, &o.LowerCase
	for _, key := range sortedKeys(f.m) {
		to, ok := known[key]
		if !ok {
			return nil, f.faultf(key, ErrConfig, "is not known")
		}
		if err := json.Unmarshal(f.m[key], to); err != nil {
			return nil, f.faultf(key, ErrConfig, "is %s: %w", shown(f.m[key]), err)
		}
	}
	return o, nil
}

// Tensors are the paths of all files with tensors, or with the graph: the files that [Read] names and
// does not read.
func (c *Config) Tensors() []string {
	paths := slices.Clone(c.Weights)
	for _, d := range c.Dense {
		paths = append(paths, d.Path)
	}
	return paths
}

// Fingerprints are, for each precision that vectors are computed in, a SHA-256 of all that those of
// documents depend on: the files of weights, the tokenizer, the settings, and the precision. The
// settings of queries are left out: with others, documents have the same vectors.
func (c *Config) Fingerprints(precisions ...string) ([]string, error) {
	same := *c // without what does not change vectors
	same.Dir, same.Origin, same.Warnings, same.Weights = "", nil, nil, nil
	same.Query, same.Expand = Role{}, Expansion{}
	if !same.Document.Skip {
		same.Skip = nil
	}
	if c.graph {
		same.Backbone = Backbone{} // a graph has it all, whoever runs it
	}
	same.Dense = slices.Clone(c.Dense)
	for i := range same.Dense {
		same.Dense[i].Path = ""
	}
	b, err := json.Marshal(same)
	if err != nil {
		return nil, fmt.Errorf("fingerprint: %w", err)
	}
	tokenizer := c.Tokenizer.Fingerprint()
	parts := [][]byte{tokenizer[:], b}
	for _, path := range c.Tensors() {
		sum, err := hashFile(path)
		if err != nil {
			return nil, &ModelError{Path: path, Err: pathless(err)}
		}
		parts = append(parts, sum)
	}
	all := make([]string, len(precisions))
	for i, precision := range precisions {
		h := sha256.New()
		for _, b := range append([][]byte{[]byte("plaid model 2"), []byte(precision)}, parts...) {
			h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(b))))
			h.Write(b)
		}
		all[i] = hex.EncodeToString(h.Sum(nil))
	}
	return all, nil
}

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
