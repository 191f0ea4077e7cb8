package index

import (
	"bytes"
	"fmt"
)

// Document is what an index holds of a document beside its vectors.
type Document struct {
	// ID is the name from outside, Ordinal the place in the order of insertion.
	ID      string
	Ordinal uint32
	// Tokens is how many token vectors it has.
	Tokens int
	// Payload is what is stored beside it; nil if nothing is.
	Payload []byte
}

// Has tells whether the index has a live document of this id now. For many ids take a
// [Snapshot] and ask its Ordinal.
func (ix *Index) Has(id string) (bool, error) {
	snap, err := ix.Snapshot()
	if err != nil {
		return false, err
	}
	defer snap.Close()
	_, ok, err := snap.Ordinal(id)
	return ok, err
}

// Get returns the document of an id as it is now, [ErrNotFound] if there is none. The
// result is the caller's.
func (ix *Index) Get(id string) (*Document, error) {
	snap, err := ix.Snapshot()
	if err != nil {
		return nil, err
	}
	defer snap.Close()
	d, err := snap.Get(id)
	if err != nil {
		return nil, err
	}
	d.Payload = bytes.Clone(d.Payload)
	return d, nil
}

// Get returns the document of an id, [ErrNotFound] if there is none. Its payload is
// valid until the snapshot is closed.
func (s *Snapshot) Get(id string) (*Document, error) {
	ordinal, ok, err := s.Ordinal(id)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%s: %w: %.100q", s.Path(), ErrNotFound, id)
	}
	return s.At(ordinal)
}

// At returns the live document of an ordinal, [ErrNotFound] if there is none. Its payload
// is valid until the snapshot is closed.
func (s *Snapshot) At(ordinal uint32) (*Document, error) {
	chunk, doc, ok := s.Locate(ordinal)
	if !ok || !s.Live(ordinal) {
		return nil, fmt.Errorf("%s: %w: ordinal %d", s.Path(), ErrNotFound, ordinal)
	}
	_, offsets := s.ChunkDocs(chunk)
	payload, err := s.Payload(ordinal)
	if err != nil {
		return nil, err
	}
	return &Document{ID: s.ID(ordinal), Ordinal: ordinal, Tokens: int(offsets[doc+1] - offsets[doc]), Payload: payload}, nil
}
