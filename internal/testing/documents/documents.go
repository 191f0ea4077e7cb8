// Package documents is a model of stored documents and their passages. Tests compare a package that
// stores documents with it: the contents after each change, and the report of
// the change. It is written without indexes, and imports none of these packages.
package documents

import (
	"cmp"
	"errors"
	"slices"
)

// Part is a document or passage that is stored under one ordinal.
type Part struct {
	ID string
	Of string // the document that it is a passage of. "" means that it is a document
	// N and Text stand for the other stored data.
	N    int
	Text string
}

// Document returns the id of the document that a part belongs to.
func (p *Part) Document() string { return cmp.Or(p.Of, p.ID) }

// Affected counts documents and passages as index.Affected does.
type Affected struct{ Documents, Passages int }

// Model holds the stored parts, oldest first. The zero value is empty.
type Model struct {
	Parts []Part
	// MaxDocuments limits the documents: an addition evicts the oldest ones. 0 means no limit.
	MaxDocuments int
}

// Clone returns a copy.
func (m *Model) Clone() *Model { return &Model{slices.Clone(m.Parts), m.MaxDocuments} }

// Documents returns the ids of all documents, oldest first.
func (m *Model) Documents() (ids []string) {
	for i := range m.Parts {
		if id := m.Parts[i].Document(); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Passages returns the number of passages.
func (m *Model) Passages() (n int) {
	for i := range m.Parts {
		if m.Parts[i].Of != "" {
			n++
		}
	}
	return n
}

// findPart returns the part with an id, or nil.
func (m *Model) findPart(id string) *Part {
	if i := slices.IndexFunc(m.Parts, func(part Part) bool { return part.ID == id }); i >= 0 {
		return &m.Parts[i]
	}
	return nil
}

// Select returns a function that reports whether a part belongs to ids. The id of a document includes all
// of its passages. missing are the ids that no part has.
func (m *Model) Select(ids ...string) (chosen func(*Part) bool, missing []string) {
	for _, id := range ids {
		if !slices.ContainsFunc(m.Parts, func(part Part) bool { return part.ID == id || part.Of == id }) {
			missing = append(missing, id)
		}
	}
	return func(part *Part) bool { return slices.Contains(ids, part.ID) || slices.Contains(ids, part.Of) }, missing
}

// Delete deletes the chosen parts. It counts the documents that have no more parts.
func (m *Model) Delete(chosen func(*Part) bool) (n Affected) {
	before := len(m.Documents())
	m.Parts = slices.DeleteFunc(slices.Clone(m.Parts), func(part Part) bool {
		if !chosen(&part) {
			return false
		}
		if part.Of != "" {
			n.Passages++
		}
		return true
	})
	n.Documents = before - len(m.Documents())
	return n
}

// Set sets N of the chosen parts. It counts their documents.
func (m *Model) Set(chosen func(*Part) bool, value int) (n Affected) {
	touched := map[string]bool{}
	m.Parts = slices.Clone(m.Parts)
	for i := range m.Parts {
		part := &m.Parts[i]
		if !chosen(part) {
			continue
		}
		part.N = value
		touched[part.Document()] = true
		if part.Of != "" {
			n.Passages++
		}
	}
	n.Documents = len(touched)
	return n
}

// Arrival is a part to store.
type Arrival struct {
	Part
	// Bare means that it has no payload, and keeps that of the part with its id, or of the
	// first passage of the document, if there is such a part.
	Bare bool
}

// Addition holds the options of Add.
type Addition struct {
	Replace bool     // a document replaces the one with its id, including all of its passages
	Delete  []string // the ids of documents to delete, except for those that are added
}

// Report counts what an addition did, as index.AddReport does.
type Report struct{ Docs, Replaced, Passages, Deleted, Evicted int }

// ErrTaken reports an id that exists, in the model or twice among the arrivals.
var ErrTaken = errors.New("an id is taken")

// Add stores parts, all of them or none.
func (m *Model) Add(arrivals []Arrival, how Addition) (r Report, err error) {
	// Complete bare arrivals.
	rows := make([]Part, len(arrivals))
	for i, a := range arrivals {
		rows[i] = a.Part
		if a.Bare {
			rows[i] = Part{ID: a.ID}
			if old := m.findPart(a.ID); old != nil {
				rows[i] = *old
			} else if first := slices.IndexFunc(m.Parts, func(part Part) bool { return part.Of == a.ID }); first >= 0 {
				rows[i].N = m.Parts[first].N // of its first passage
			}
		}
	}
	// An id belongs to one part, or to one document with consecutive passages.
	claimed, arriving := map[string]bool{}, map[string]bool{}
	for i := range rows {
		ids := []string{rows[i].ID}
		if of := rows[i].Of; of != "" {
			r.Passages++
			if i == 0 || rows[i-1].Of != of {
				ids = append(ids, of)
			}
		}
		for _, id := range ids {
			if claimed[id] {
				return Report{}, ErrTaken
			}
			claimed[id] = true
		}
		arriving[rows[i].Document()] = true
	}
	// Delete, replace, add, evict.
	after := m.Clone()
	deletedIDs := slices.DeleteFunc(slices.Clone(how.Delete), func(id string) bool { return arriving[id] })
	isDeleted, _ := m.Select(deletedIDs...)
	r.Deleted = after.Delete(isDeleted).Documents
	r.Docs = len(arriving)
	r.Replaced = after.Delete(func(part *Part) bool { return arriving[part.Document()] }).Documents
	if r.Replaced > 0 && !how.Replace {
		return Report{}, ErrTaken
	}
	for i := range after.Parts {
		if part := &after.Parts[i]; claimed[part.ID] || claimed[part.Of] {
			return Report{}, ErrTaken
		}
	}
	after.Parts = append(after.Parts, rows...)
	r.Evicted = after.Evict()
	*m = *after
	return r, nil
}

// Evict deletes the oldest documents beyond MaxDocuments, with all parts, and counts them.
func (m *Model) Evict() (documents int) {
	for ids := m.Documents(); m.MaxDocuments > 0 && len(ids) > m.MaxDocuments; ids = ids[1:] {
		m.Delete(func(part *Part) bool { return part.Document() == ids[0] })
		documents++
	}
	return documents
}
