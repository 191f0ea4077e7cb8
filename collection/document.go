package collection

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/jsontext"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
)

// Document is a document to store. It must not change until the request that it is
// of has been answered.
type Document struct {
	// ID names it; "": the collection gives it a name, a folder of them its number in
	// decimal, followed by a hyphen and another number where a document has that name.
	ID string
	// Vectors is [tokens, Dim], row-major; they are scaled to unit length.
	Vectors []float32
	Dim     int
	// Metadata is a JSON object, or nothing. Its keys are any text but _subset_ and
	// _content_id_. A key _id must have the value ID, and is not kept.
	Metadata json.RawMessage
}

// Stored is a document as it is stored.
type Stored struct {
	Number uint64 // its document id, see [NumberOf]
	ID     string // its name
	// Of is the name of the document that this passage belongs to, and Passage its number; "" means
	// that this is a document.
	Of       string
	Passage  int
	Metadata json.RawMessage
	Vectors  []float32 // [tokens, dim], row-major
}

// CheckDocuments finds what can be wrong with one document, whatever is stored
// ([*DocumentError]). dim is that of the collection, 0 where it has none yet. It returns
// the documents as they are to be stored, which share the vectors.
func CheckDocuments(docs []Document, dim int) ([]Document, error) {
	checked := make([]Document, len(docs))
	seen := make(map[string]int, len(docs))
	for i, d := range docs {
		fault := func(token int, err error) error { return &DocumentError{i, d.ID, token, err} }
		if d.ID != "" {
			if err := vectors.CheckID(d.ID); err != nil {
				return nil, fault(-1, err)
			}
			if first, twice := seen[d.ID]; twice {
				return nil, fault(-1, fmt.Errorf("%w: document %d has the same", index.ErrDuplicateID, first))
			}
			seen[d.ID] = i
		}
		switch {
		case len(d.Vectors) == 0:
			return nil, fault(-1, ErrNoTokens)
		case d.Dim < 1 || d.Dim > kernels.MaxDim:
			return nil, fault(-1, fmt.Errorf("%w: dimension %d is not in 1..%d", vectors.ErrShape, d.Dim, kernels.MaxDim))
		case len(d.Vectors)%d.Dim != 0:
			return nil, fault(-1, fmt.Errorf("%w: %d values are no multiple of the dimension %d", vectors.ErrShape, len(d.Vectors), d.Dim))
		case dim == 0: // the first document decides
			dim = d.Dim
		case d.Dim != dim:
			return nil, fault(-1, fmt.Errorf("%w: %d, not %d", index.ErrDimension, d.Dim, dim))
		}
		for j, x := range d.Vectors {
			if math.Float32bits(x)&0x7f800000 == 0x7f800000 {
				return nil, fault(j/d.Dim, fmt.Errorf("%w: %v", vectors.ErrValue, x))
			}
		}
		var err error
		if d.Metadata, err = checkMetadata(d.Metadata, d.ID); err != nil {
			return nil, fault(-1, err)
		}
		checked[i] = d
	}
	return checked, nil
}

const idKey = "_id"

// checkMetadata returns the object without _id; nil for nothing, null and {}.
func checkMetadata(m json.RawMessage, id string) (json.RawMessage, error) {
	if m = bytes.TrimSpace(m); len(m) == 0 || string(m) == "null" {
		return nil, nil
	}
	if len(m) > MaxMetadata {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are possible", ErrMetadata, len(m), MaxMetadata)
	}
	fields, err := objectFields(m)
	if err != nil {
		return nil, err
	}
	at := -1
	for i, f := range fields {
		if f.key != idKey {
			if err := checkKey(f.key); err != nil {
				return nil, err
			}
			continue
		}
		var own string
		if json.Unmarshal(f.value, &own) != nil || own != id {
			return nil, fmt.Errorf("%w: %s is %s, and the document's id %q", ErrMetadata, idKey, f.value, id)
		}
		at = i
	}
	if at >= 0 {
		fields = slices.Delete(fields, at, at+1)
		m = object(fields)
	}
	if len(fields) == 0 {
		return nil, nil
	}
	return m, nil
}

// IDOf is the value of _id in metadata, if that has one; its case matters.
func IDOf(metadata json.RawMessage) (value json.RawMessage, there bool) {
	err := jsontext.Members(metadata, func(key string, v json.RawMessage) error {
		if key == idKey {
			value, there = v, true
		}
		return nil
	})
	if err != nil {
		return nil, false
	}
	return value, there
}

type field struct {
	key   string
	value json.RawMessage
}

// objectFields takes a JSON object apart, in order; a key twice is an error.
func objectFields(m json.RawMessage) (fields []field, err error) {
	if err = jsontext.Check(m, jsontext.Options{}); err == nil {
		seen := map[string]bool{}
		err = jsontext.Members(m, func(key string, value json.RawMessage) error {
			if seen[key] {
				return fmt.Errorf("key %q twice", key)
			}
			seen[key] = true
			fields = append(fields, field{key, value})
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMetadata, err)
	}
	return fields, nil
}

// object is that of the fields, in their order.
func object(fields []field) json.RawMessage {
	b := []byte{'{'}
	for i, f := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		name, _ := json.Marshal(f.key) // a string
		b = append(append(append(b, name...), ':'), f.value...)
	}
	return append(b, '}')
}

// checkKey refuses keys that stand for something else in answers. In conditions the case of
// a name does not matter.
func checkKey(key string) error {
	if strings.EqualFold(key, "_subset_") || strings.EqualFold(key, "_content_id_") || strings.EqualFold(key, idKey) {
		return fmt.Errorf("%w: key %q is reserved", ErrMetadata, key)
	}
	return nil
}

// MaxMetadata is the largest metadata of one document in bytes.
const MaxMetadata = 1 << 20

// CheckFields finds what is wrong with fields that are to be set ([ErrMetadata]).
func CheckFields(set map[string]json.RawMessage) error {
	size := 2
	for key, value := range set {
		if err := checkKey(key); err != nil {
			return err
		}
		if err := jsontext.Check(value, jsontext.Options{}); err != nil {
			return fmt.Errorf("%w: value of %q: %w", ErrMetadata, key, err)
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
