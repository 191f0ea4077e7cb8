package collection

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/jsontext"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
)

// DocumentInput is a document to store. It must not change until its request has been answered.
type DocumentInput struct {
	// ID names the document. "" lets the collection choose an id. A folder chooses the number in decimal, followed by a
	// hyphen and another number if that id is in use.
	ID string
	// Vectors are [tokens, Dim], row-major. They are scaled to unit length. A document without vectors may have Dim 0.
	Vectors []float32
	Dim     int
	// Metadata is a JSON object or nothing; [vectors.CheckDocument] has the rules. A key _id is not kept.
	Metadata json.RawMessage
	// KeepMetadata says that a document without metadata keeps that of the document that it replaces
	// ([index.Snapshot.PayloadToKeep]).
	KeepMetadata bool
}

// StoredDocument is a document as it was stored.
type StoredDocument struct {
	Number uint64 // see [HitNumber]
	ID     string
	// Of is the id of the document that this passage belongs to, and Passage its number. An Of of "" means that this
	// is a document.
	Of       string
	Passage  int
	Metadata json.RawMessage
	Vectors  []float32 // [tokens, dim], row-major
}

// CheckDocuments returns a [*DocumentError] for the first fault that can be found without looking at stored documents:
// one that [vectors.CheckDocument] finds, or one of the vectors. dim is the dimension of the collection, 0 if it has
// none yet. It returns the documents in their stored form, which share the vectors.
func CheckDocuments(docs []DocumentInput, dim int) ([]DocumentInput, error) {
	checked := make([]DocumentInput, len(docs))
	seen := make(map[string]int, len(docs))
	for i, d := range docs {
		fault := func(token int, err error) error { return &DocumentError{i, d.ID, token, err} }
		if err := vectors.CheckDocument(vectors.Draft{ID: d.ID, Payload: d.Metadata}); err != nil {
			return nil, fault(-1, err)
		}
		if d.ID != "" {
			if first, twice := seen[d.ID]; twice {
				return nil, fault(-1, fmt.Errorf("%w: document %d has the same", index.ErrDuplicateID, first))
			}
			seen[d.ID] = i
		}
		switch {
		case len(d.Vectors) == 0 && d.Dim == 0: // fits any dimension
		case d.Dim < 1 || d.Dim > kernels.MaxDim:
			return nil, fault(-1, fmt.Errorf("%w: dimension %d is not in 1..%d",
				vectors.ErrShape, d.Dim, kernels.MaxDim))
		case len(d.Vectors)%d.Dim != 0:
			return nil, fault(-1, fmt.Errorf("%w: %d values are not a multiple of the dimension %d",
				vectors.ErrShape, len(d.Vectors), d.Dim))
		case dim == 0: // the first document sets it
			dim = d.Dim
		case d.Dim != dim:
			return nil, fault(-1, fmt.Errorf("%w: %d, not %d", index.ErrDimension, d.Dim, dim))
		}
		for j, x := range d.Vectors {
			const exponent = 0x7f800000 // all bits of the exponent are set in infinities and NaN
			if math.Float32bits(x)&exponent == exponent {
				return nil, fault(j/d.Dim, fmt.Errorf("%w: %v", vectors.ErrValue, x))
			}
		}
		var err error
		if d.Metadata, err = withoutID(d.Metadata); err != nil {
			return nil, fault(-1, err)
		}
		checked[i] = d
	}
	return checked, nil
}

// withoutID returns metadata without _id, in its stored form: nil for nothing, null and {}.
func withoutID(m json.RawMessage) (json.RawMessage, error) {
	if vectors.IsEmptyPayload(m) {
		return nil, nil
	}
	if m = bytes.TrimSpace(m); len(m) > MaxMetadata {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are possible", ErrMetadata, len(m), MaxMetadata)
	}
	if _, found := MetadataID(m); !found {
		return m, nil
	}
	out := []byte{'{'}
	err := jsontext.Members(m, func(key string, value json.RawMessage) error {
		if key != vectors.IDField {
			out = jsontext.AppendMember(out, key, value)
		}
		return nil
	})
	if out = append(out, '}'); vectors.IsEmptyPayload(out) {
		return nil, err
	}
	return out, err
}

// MetadataID returns the value of _id in metadata, if there is one. The key is case-sensitive.
func MetadataID(metadata json.RawMessage) (value json.RawMessage, found bool) {
	err := jsontext.Members(metadata, func(key string, v json.RawMessage) error {
		if key == vectors.IDField {
			value, found = v, true
		}
		return nil
	})
	if err != nil {
		return nil, false
	}
	return value, found
}

// MaxMetadata is the largest metadata of a document in bytes. It is less than [vectors.MaxPayload], because a whole
// request is in memory at once.
const MaxMetadata = 1 << 20

// CheckFields returns an error if fields cannot be set ([ErrMetadata]).
func CheckFields(set map[string]json.RawMessage) error {
	size := 2 // of the JSON object: braces, and for each field two quotes, a colon and a comma
	for key, value := range set {
		if err := vectors.CheckKey(key); err != nil {
			return err
		}
		size += len(key) + len(value) + 4
	}
	if err := condition.Fields(set).Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrMetadata, err)
	}
	if size > MaxMetadata {
		return fmt.Errorf("%w: %d bytes, at most %d are possible", ErrMetadata, size, MaxMetadata)
	}
	return nil
}
