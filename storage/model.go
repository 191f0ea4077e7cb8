package storage

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// ErrModel: vectors of another model than those of the index. What two models
// make of the same text has nothing in common, and scores between them mean
// nothing.
var ErrModel = errors.New("vectors of another model than those of the index")

// Model names what vectors were made with.
type Model struct {
	// Name is what a person knows it by, such as a folder.
	Name string `json:"name,omitempty"`
	// Fingerprint is equal for models that make the same vectors.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Precision and Settings are what the model needs beside its folder to make the
	// same vectors again, in the words of what encodes: nothing here reads them.
	Precision string `json:"precision,omitempty"`
	Settings  string `json:"settings,omitempty"`
	// Near is, of what made queries, the fingerprint of a model whose vectors agree with
	// these within what is of no matter to a search: the same one in another precision.
	Near string `json:"near,omitempty"`
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

// Check returns an error that wraps [ErrModel] if m and other are known to be two
// models: by their fingerprints where both have one, else by their names. Nothing
// is known of nil.
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

// CheckQueries is Check of what made queries, which may be near the model.
func (m *Model) CheckQueries(other *Model) error {
	if m != nil && other != nil && other.Near != "" && m.Fingerprint == other.Near {
		return nil
	}
	return m.Check(other)
}

// maxModel bounds the bytes of each part.
const maxModel = 4096

// Validate checks that the model has a name or a fingerprint, both fit to be shown.
func (m *Model) Validate() error {
	if m == nil {
		return nil
	}
	if m.Name == "" && m.Fingerprint == "" {
		return errors.New("a model without name and fingerprint")
	}
	for _, part := range []struct{ what, s string }{
		{"name", m.Name}, {"fingerprint", m.Fingerprint}, {"precision", m.Precision}, {"settings", m.Settings}, {"near", m.Near},
	} {
		if len(part.s) > maxModel || !utf8.ValidString(part.s) {
			return fmt.Errorf("a model's %s of %d bytes: at most %d of UTF-8 are possible", part.what, len(part.s), maxModel)
		}
		for _, r := range part.s {
			if unicode.IsControl(r) {
				return fmt.Errorf("a model's %s %q: control character %U", part.what, part.s, r)
			}
		}
	}
	return nil
}
