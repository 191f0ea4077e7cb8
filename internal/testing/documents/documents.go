// Package documents is a picture of documents and their passages, for tests to compare a room
// with that stores them: what ought to be there after each change, and what the change ought to
// say that it did. It looks at everything one by one, and imports none of these rooms.
package documents

import (
	"cmp"
	"errors"
	"slices"
)

// Part is what is stored under one ordinal: a document, or a passage of one.
type Part struct {
	ID string
	Of string // the document that it is a passage of. "" means that it is a document
	// N and Text stand for what else is stored.
	N    int
	Text string
}

// Document is the id of the document that a part belongs to.
func (p *Part) Document() string { return cmp.Or(p.Of, p.ID) }

// Affected counts documents and passages as index.Affected does.
type Affected struct{ Documents, Passages int }

// Picture is what is stored, in the order in which it came. The zero value has nothing.
type Picture struct {
	Parts []Part
	// Most is the number of documents that an addition leaves. 0 means all.
	Most int
}

// Clone is a copy.
func (p *Picture) Clone() *Picture { return &Picture{slices.Clone(p.Parts), p.Most} }

// Documents are the ids of all documents, the oldest first.
func (p *Picture) Documents() (ids []string) {
	for i := range p.Parts {
		if id := p.Parts[i].Document(); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Passages is the number of parts that are passages.
func (p *Picture) Passages() (n int) {
	for i := range p.Parts {
		if p.Parts[i].Of != "" {
			n++
		}
	}
	return n
}

// find returns the part of an id, or nil.
func (p *Picture) find(id string) *Part {
	if i := slices.IndexFunc(p.Parts, func(part Part) bool { return part.ID == id }); i >= 0 {
		return &p.Parts[i]
	}
	return nil
}

// Named chooses what ids stand for: that of a document stands for all of its passages. missing
// are the ids that stand for nothing.
func (p *Picture) Named(ids ...string) (chosen func(*Part) bool, missing []string) {
	for _, id := range ids {
		if !slices.ContainsFunc(p.Parts, func(part Part) bool { return part.ID == id || part.Of == id }) {
			missing = append(missing, id)
		}
	}
	return func(part *Part) bool { return slices.Contains(ids, part.ID) || slices.Contains(ids, part.Of) }, missing
}

// Delete deletes the parts that are chosen. Its documents are those that have no part left.
func (p *Picture) Delete(chosen func(*Part) bool) (n Affected) {
	before := len(p.Documents())
	p.Parts = slices.DeleteFunc(slices.Clone(p.Parts), func(part Part) bool {
		if !chosen(&part) {
			return false
		}
		if part.Of != "" {
			n.Passages++
		}
		return true
	})
	n.Documents = before - len(p.Documents())
	return n
}

// Set sets N of the parts that are chosen. Its documents are those of these parts.
func (p *Picture) Set(chosen func(*Part) bool, value int) (n Affected) {
	touched := map[string]bool{}
	p.Parts = slices.Clone(p.Parts)
	for i := range p.Parts {
		part := &p.Parts[i]
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

// Arrival is a part that is to be stored.
type Arrival struct {
	Part
	// Bare means that it comes without a payload and keeps that of the part with its id, or of the
	// first passage of the document. Where there is none it is a document without anything.
	Bare bool
}

// Addition says how parts are stored.
type Addition struct {
	Replace bool     // a document takes the place of the one with its id, with all of its passages
	Delete  []string // what these ids stand for goes, but for documents that are added
}

// Report counts what an addition did, as index.AddReport does.
type Report struct{ Docs, Replaced, Passages, Deleted, Evicted int }

// ErrTaken means that an id is taken, in the picture or among what comes.
var ErrTaken = errors.New("an id is taken")

// Add stores parts, all of them or none.
func (p *Picture) Add(arrivals []Arrival, how Addition) (r Report, err error) {
	rows := make([]Part, len(arrivals))
	for i, a := range arrivals {
		rows[i] = a.Part
		if a.Bare {
			rows[i] = Part{ID: a.ID}
			if old := p.find(a.ID); old != nil {
				rows[i] = *old
			} else if at := slices.IndexFunc(p.Parts, func(part Part) bool { return part.Of == a.ID }); at >= 0 {
				rows[i].N = p.Parts[at].N // of passages
			}
		}
	}
	// An id is that of one part, or of one document whose passages come in a row.
	claimed, comes := map[string]bool{}, map[string]bool{}
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
		comes[rows[i].Document()] = true
	}
	after := p.Clone()
	gone, _ := p.Named(slices.DeleteFunc(slices.Clone(how.Delete), func(id string) bool { return comes[id] })...)
	r.Deleted = after.Delete(gone).Documents
	r.Docs = len(comes)
	r.Replaced = after.Delete(func(part *Part) bool { return comes[part.Document()] }).Documents
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
	*p = *after
	return r, nil
}

// Evict deletes the oldest documents beyond Most, whole, and counts them.
func (p *Picture) Evict() (documents int) {
	for ids := p.Documents(); p.Most > 0 && len(ids) > p.Most; ids = ids[1:] {
		p.Delete(func(part *Part) bool { return part.Document() == ids[0] })
		documents++
	}
	return documents
}
