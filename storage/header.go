package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/errkind"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// FormatVersion is the version of the file format. A program refuses a file of
// another version.
const FormatVersion = 4

// FeatureVersion grows when older files stay readable but a rebuild would improve them.
const FeatureVersion = 1

// Header describes the codec of a generation and how it was trained. It does not change
// over the life of the generation.
type Header struct {
	Dim          int     `json:"dim"`
	Nbits        int     `json:"nbits"`
	Centroids    int     `json:"centroids"`
	CentroidType string  `json:"centroid_type"` // bf16, f16 or f32
	Step         float32 `json:"step,omitempty"`
	// Grid and GridScale are the table codebook of an imported index: weight b
	// is GridScale · Grid[b].
	Grid      []int   `json:"grid,omitempty"`
	GridScale float32 `json:"grid_scale,omitempty"`
	FactorMax float32 `json:"factor_max"`
	// Arrays is the number of arrays that the codec has in the file, so that a lost one is
	// detected. [Tx.NewGeneration] sets it.
	Arrays int `json:"arrays"`
	// Normalize means that vectors are scaled to unit length before they are encoded.
	Normalize bool `json:"normalize"`
	// Model is the model that computed the vectors, or nil if it is unknown.
	Model *Model `json:"model,omitempty"`
	Build Build  `json:"build"`
}

// Build records how the codec was trained, or where it was imported from.
type Build struct {
	Source     string `json:"source"` // "vectors", or the engine that an index was imported from
	Seed       uint64 `json:"seed"`
	Iterations int    `json:"iterations"`
	SampleDocs int    `json:"sample_docs"`
	SampleRows int    `json:"sample_tokens"`
	// Tokens is the number of tokens in the index when the codec was trained. 0 means unknown.
	Tokens uint64 `json:"tokens,omitempty"`
	// Pool is the factor by which the tokens of a document were pooled before they were encoded;
	// 0 means that they were not pooled. Added documents are pooled in the same way.
	Pool int `json:"pool,omitempty"`
	// PoolBy is how tokens to pool were selected: "" for similar ones, or a pool.Method.
	PoolBy string `json:"pool_by,omitempty"`
	// RMSE is the root mean square error of the decoded vectors of the sample.
	RMSE float64 `json:"rmse,omitempty"`
	// WeightChange is the largest change of a bucket weight by an import.
	WeightChange float64 `json:"weight_change,omitempty"`
}

// Segment is the addition of one commit: consecutive documents with postings of their own.
type Segment struct {
	ID       uint32 `json:"id"`
	FirstDoc uint32 `json:"first_doc"`
	Docs     uint32 `json:"docs"`
	Tokens   uint64 `json:"tokens"`
	// Chunks are the numbers of its chunks, in document order.
	Chunks []uint32 `json:"chunks"`
	// Blocks is the number of its posting blocks, so that a lost one is detected.
	Blocks int `json:"blocks"`
}

// State is the commit point of a generation. Content beyond its counters was staged by a writer
// that has not committed it.
type State struct {
	Docs       uint32 `json:"docs"` // ordinals assigned, deleted documents included
	Live       uint32 `json:"live"`
	Tokens     uint64 `json:"tokens"` // tokens stored, those of deleted documents included
	LiveTokens uint64 `json:"live_tokens"`
	Clamped    uint64 `json:"clamped"` // tokens whose factor is beyond FactorMax
	// AddedTokens were added since the codec was trained, AddedSumSq is the sum of
	// ‖x − v̂‖² over them.
	AddedTokens uint64  `json:"added_tokens,omitempty"`
	AddedSumSq  float64 `json:"added_sum_sq,omitempty"`
	// PayloadUpdates counts the commits that changed payloads of documents that had
	// been committed before.
	PayloadUpdates uint64    `json:"payload_updates,omitempty"`
	NextChunk      uint32    `json:"next_chunk"`
	NextSegment    uint32    `json:"next_segment"`
	Segments       []Segment `json:"segments"`
	// FieldRuns are the runs of data derived from the fields of payloads, older ones first. Each
	// live document is in at least one.
	FieldRuns    []FieldRun `json:"field_runs,omitempty"`
	NextFieldRun uint32     `json:"next_field_run,omitempty"`
	// PayloadDocs is the number of live documents with a payload, so that a lost bitmap of them
	// is detected. [Generation.PutDocSets] sets it.
	PayloadDocs uint32 `json:"payload_docs,omitempty"`
	// Passages is the number of live ordinals that are passages, PassageParents the number of
	// documents that they belong to. [Generation.PutDocSets] sets the first.
	Passages       uint32 `json:"passages,omitempty"`
	PassageParents uint32 `json:"passage_parents,omitempty"`
}

// Documents returns the number of live documents. All passages of a document count as one.
func (s *State) Documents() uint32 { return s.Live - s.Passages + s.PassageParents }

// FieldRun is a run of derived data, which package metadata reads and writes.
type FieldRun struct {
	ID uint32 `json:"id"`
	// Docs is the number of documents that it covers, deleted ones included.
	Docs uint32 `json:"docs"`
	// Values is the number of its values, so that a lost one is detected.
	Values int `json:"values"`
}

// Limits of one index.
const (
	MaxDocs      = layout.MaxDocs // 2³²−2
	MaxCentroids = 1 << 24
)

// Validate checks that the header describes a codec. Its error does not name a file.
func (h *Header) Validate() error {
	switch {
	case h.Dim < 1 || h.Dim > kernels.MaxDim:
		return fmt.Errorf("dimension %d", h.Dim)
	case h.Centroids < 1 || h.Centroids > MaxCentroids:
		return fmt.Errorf("%d centroids", h.Centroids)
	case !(h.FactorMax > 0):
		return fmt.Errorf("largest factor %g", h.FactorMax)
	}
	if _, err := layout.ParseFloatType(h.CentroidType); err != nil {
		return err
	}
	if err := h.Model.Validate(); err != nil {
		return err
	}
	cb, err := h.Codebook()
	if err != nil {
		return err
	}
	return cb.Validate()
}

// Codebook returns the codebook of the codec.
func (h *Header) Codebook() (kernels.Codebook, error) {
	cb := kernels.Codebook{Nbits: h.Nbits, Step: h.Step, Scale: h.GridScale}
	for _, g := range h.Grid {
		if g < math.MinInt16 || g > math.MaxInt16 {
			return cb, fmt.Errorf("table weight %d does not fit 16 bits", g)
		}
		cb.Grid = append(cb.Grid, int16(g))
	}
	return cb, nil
}

// EmptyCodec returns the codec without the arrays that are stored separately.
func (h *Header) EmptyCodec() (c kernels.Codec, err error) {
	c.FactorMax = h.FactorMax
	c.Centroids.K, c.Centroids.Dim = h.Centroids, h.Dim
	if c.Centroids.Type, err = layout.ParseFloatType(h.CentroidType); err != nil {
		return c, err
	}
	c.Codebook, err = h.Codebook()
	return c, err
}

// Validate checks that segments and counters agree, so that readers can index
// by them.
func (s *State) Validate() error {
	next := uint32(0)
	tokens := uint64(0)
	for _, seg := range s.Segments {
		if seg.FirstDoc != next || seg.Docs > s.Docs-next {
			return fmt.Errorf("segment %d holds documents %d to %d, %d expected next",
				seg.ID, seg.FirstDoc, seg.FirstDoc+seg.Docs, next)
		}
		next += seg.Docs
		tokens += seg.Tokens
		if seg.ID >= s.NextSegment {
			return fmt.Errorf("segment %d of %d", seg.ID, s.NextSegment)
		}
		for _, c := range seg.Chunks {
			if c >= s.NextChunk {
				return fmt.Errorf("chunk %d of %d", c, s.NextChunk)
			}
		}
	}
	for _, r := range s.FieldRuns {
		if r.ID >= s.NextFieldRun {
			return fmt.Errorf("field run %d of %d", r.ID, s.NextFieldRun)
		}
	}
	if s.PayloadDocs > s.Live {
		return fmt.Errorf("%d payloads of %d live documents", s.PayloadDocs, s.Live)
	}
	if s.Passages > s.Live || s.PassageParents > s.Passages || (s.Passages > 0) != (s.PassageParents > 0) {
		return fmt.Errorf("%d passages of %d documents among %d live ordinals", s.Passages, s.PassageParents, s.Live)
	}
	if next != s.Docs || tokens != s.Tokens || s.Live > s.Docs || s.LiveTokens > s.Tokens {
		return fmt.Errorf("counters %d/%d documents, %d/%d tokens", next, s.Docs, tokens, s.Tokens)
	}
	return nil
}

// encodeJSON returns v as JSON, followed by its checksum under the key.
func encodeJSON(key []byte, v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return layout.Seal(key, b), nil
}

// decodeJSON verifies and decodes a value of encodeJSON.
func decodeJSON(key, sealed []byte, v any) error {
	b, ok := layout.Unseal(key, sealed)
	if !ok {
		return layout.ErrChecksum
	}
	return json.Unmarshal(b, v)
}

// ErrModel means that vectors come from another model than those of the index. The vectors of two
// models have nothing in common, and scores between them mean nothing.
var ErrModel = errkind.New(errkind.BadRequest, "vectors of another model than those of the index")

// Model identifies the model that computed vectors.
type Model struct {
	// Name is the name that a person knows it by, such as a folder.
	Name string `json:"name,omitempty"`
	// Fingerprint is equal for models that compute the same vectors.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Precision and Settings are needed in addition to the folder of the model to compute the
	// same vectors again. Only the encoder reads them.
	Precision string `json:"precision,omitempty"`
	Settings  string `json:"settings,omitempty"`
	// NearFingerprint is set for the model of queries only: the fingerprint of a model whose vectors
	// differ from these by less than a search notices, such as the same one in another precision.
	NearFingerprint string `json:"near,omitempty"`
}

func (m Model) String() string {
	switch {
	case m.Name == "":
		return "model " + m.Fingerprint
	case m.Fingerprint == "":
		return fmt.Sprintf("model %q", m.Name)
	}
	return fmt.Sprintf("model %q (%.12s)", m.Name, m.Fingerprint)
}

// Check returns an error that wraps [ErrModel] if m and other are known to differ: by their
// fingerprints if both have one, otherwise by their names. A nil model is unknown, and never differs.
func (m *Model) Check(other *Model) error {
	if m == nil || other == nil {
		return nil
	}
	same := m.Fingerprint == other.Fingerprint
	if m.Fingerprint == "" || other.Fingerprint == "" {
		same = m.Name == "" || other.Name == "" || m.Name == other.Name
	}
	if same {
		return nil
	}
	return fmt.Errorf("%w: %v, the index has %v", ErrModel, other, m)
}

// CheckQueries is [Model.Check] for the model of queries, which may also be a near one
// (Model.NearFingerprint).
func (m *Model) CheckQueries(other *Model) error {
	if m != nil && other != nil && other.NearFingerprint != "" && m.Fingerprint == other.NearFingerprint {
		return nil
	}
	return m.Check(other)
}

// maxModelBytes is the maximum number of bytes of each field of a [Model].
const maxModelBytes = 4096

// Validate checks that the model has a name or a fingerprint, and that all fields can be printed.
func (m *Model) Validate() error {
	if m == nil {
		return nil
	}
	if m.Name == "" && m.Fingerprint == "" {
		return errors.New("a model without name and fingerprint")
	}
	for _, field := range []struct{ name, value string }{
		{"name", m.Name},
		{"fingerprint", m.Fingerprint},
		{"precision", m.Precision},
		{"settings", m.Settings},
		{"near", m.NearFingerprint},
	} {
		if len(field.value) > maxModelBytes || !utf8.ValidString(field.value) {
			return fmt.Errorf("a model's %s of %d bytes: at most %d of UTF-8 are possible",
				field.name, len(field.value), maxModelBytes)
		}
		for _, r := range field.value {
			if unicode.IsControl(r) {
				return fmt.Errorf("a model's %s %q: control character %U", field.name, field.value, r)
			}
		}
	}
	return nil
}
