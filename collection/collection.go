// Package collection has the words of collections that are served, whatever they are kept
// in: package store has them in a folder or over indexes that are open already, package cluster
// in an object store that machines share. It knows neither of these nor HTTP.
//
//	[Catalog] → [Collection] → [Snapshot]         what there is, one of it, one state of that
//	[DocumentInput] → [StoredDocument]                 what is sent, and what is found again
//	[Selection]                           which documents are meant
//	[Config], [Growth], [Stats]           how a collection is kept, and what is in it
//
// Every collection does what these interfaces say, which package collectiontest looks at.
// What some do beside that is an interface of its own, and who wants it asks for it:
//
//	of a [Catalog]          [Readier], [Disker], [Panicker], [Restorer], [Spread]
//	of a [Collection]   [Backuper], [Retrainer], [Verifier]
//	of a [Snapshot]         [Explainer], [Keywords], [Faceter], [Measured]
//
// What cannot be done after all is [ErrUnsupported].
package collection

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

// Catalog is the collections that a service has, by name. It is safe for concurrent use.
type Catalog interface {
	// Place says where they are: a folder, an address.
	Place() string
	// Names are those of all collections, in order.
	Names() []string
	// Get finds a collection. The error is [ErrUnknown] if there is none.
	Get(name string) (Collection, error)
	// Declare makes a collection without documents, durable when it returns.
	Declare(ctx context.Context, name string, c Config) (Collection, error)
	// Drop removes a collection. A name that is not there is no error.
	Drop(ctx context.Context, name string) (existed bool, err error)
}

// Collection is one of them. What its methods that change it return is durable, and is
// seen by views that are taken afterwards.
type Collection interface {
	Name() string
	// Err is why the collection cannot be used at all; nil if it can.
	Err() error
	Config() Config
	SetMaxDocuments(ctx context.Context, most *uint64) (Config, error)
	// Stats describes the collection, at little cost, also one without documents.
	Stats(ctx context.Context) (Stats, error)
	// View is what the collection is now; the error is [ErrEmpty] as long as there is
	// nothing to search.
	Snapshot(ctx context.Context) (Snapshot, error)
	Update(ctx context.Context, docs []DocumentInput, o UpdateOptions) (Receipt, error)
	// Delete and UpdateMetadata return how many documents and passages they changed. The selection
	// names these in exactly one way ([Selection.CheckOne]).
	Delete(ctx context.Context, chosen Selection) (index.Affected, error)
	UpdateMetadata(ctx context.Context, chosen Selection, set map[string]json.RawMessage) (index.Affected, error)
}

// UpdateOptions of an update.
type UpdateOptions struct {
	// Replace lets a document take the place of one with the same id, which is
	// deleted; otherwise that is an error.
	Replace bool
	// Model, where set, is what made the vectors. The first one that is named is kept
	// with the collection, if its index is made of the request that names it; later
	// requests that name another are refused ([storage.ErrModel]).
	Model *storage.Model
}

// Receipt says what an update did.
type Receipt struct {
	// Numbers of the documents and passages, in the order of the request. A number is given
	// out once, and never moves.
	Numbers []uint64
	// IDs of the same, including those that the collection chose.
	IDs []string
	// Stored counts the documents and passages that were stored.
	Stored index.Affected
	// Generation is that of the index: another number means another codec.
	Generation uint64
	// Replaced is how many documents were deleted because one that was sent has their id. One
	// of passages is one, and all of its passages are gone, those that no new one is called
	// like as well.
	Replaced int
	// Empty counts those of the request that have no vectors: searches for vectors do not find them.
	Empty int
	// Evicted is how many of the oldest documents were deleted. Updates that share a
	// transaction have them counted for the first of these, and have 0 otherwise.
	Evicted int
}

// Snapshot is one state of a collection, to search and to read. It is safe for concurrent use
// until Close.
type Snapshot interface {
	Close() error
	Describe(ctx context.Context) (search.Description, error)
	// Dim is the dimension of the vectors, 0 while there are none and it is not known.
	Dim() int
	// Most is how many documents a search may return at most.
	Most() int
	// Filter lets the documents of a selection through, for Search; nil: all.
	Filter(ctx context.Context, s Selection) (*search.Filter, error)
	// Check finds what is wrong with a query, without searching.
	Check(q *search.Query) error
	// Search answers queries with the same options. A query may have a filter beside that of
	// the options. Hits have metadata by MetadataOf alone.
	Search(ctx context.Context, qs []search.Query, o search.Options) ([]search.Result, error)
	// MetadataOf is what is stored beside a hit of a search with the option Payload.
	MetadataOf(h *search.Hit) (json.RawMessage, error)
	// Documents reads the documents of a selection in one way at most ([Selection.Check]),
	// in the order of its list, or else of their numbers.
	Documents(ctx context.Context, s Selection, o ReadOptions) iter.Seq2[StoredDocument, error]
}

// ReadOptions say how much is read.
type ReadOptions struct {
	// Limit is how many documents at most; 0: all. Of a list they are the first that are
	// there.
	Limit int
	// From is the number from which on documents are read, unless the selection is a list.
	From uint64
	// Metadata and Vectors are read beside number and id.
	Metadata, Vectors bool
}

// NumberOf is the document id of a hit: its ordinal in an index of one file, and above
// that in 32 bits the part that it is in.
func NumberOf(h *search.Hit) uint64 { return uint64(h.Shard)<<32 | uint64(h.Ordinal) }

// Selection says which documents are meant: those of which all holds that is given. What
// is nil restricts nothing, a list without entries lets nothing through, and the zero
// Selection means all documents. What a list names and is not there is passed over.
type Selection struct {
	Numbers []uint64 // document ids
	IDs     []string // names; that of a longer document means all its passages ([vectors.Passage])
	Where   *condition.Condition
}

// selectionJSON is the JSON form of a selection.
type selectionJSON struct {
	Numbers []uint64      `json:"numbers,omitzero"`
	Among   search.Filter `json:"among"`
}

// MarshalJSON writes the numbers, and ids and condition as a [search.Filter] has them.
func (s Selection) MarshalJSON() ([]byte, error) {
	return json.Marshal(selectionJSON{s.Numbers, search.Filter{IDs: s.IDs, Where: s.Where}})
}

// UnmarshalJSON reads what MarshalJSON writes. A field that is not known is an error, for one day it may be a
// restriction.
func (s *Selection) UnmarshalJSON(text []byte) error {
	var in selectionJSON
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return fmt.Errorf("%w: %w", ErrSelection, err)
	}
	*s = Selection{in.Numbers, in.Among.IDs, in.Among.Where}
	return nil
}

// criteria is how many of the fields are given.
func (s *Selection) criteria() (n int) {
	for _, given := range []bool{s.Numbers != nil, s.IDs != nil, s.Where != nil} {
		if given {
			n++
		}
	}
	return n
}

// All tells whether all documents are meant.
func (s *Selection) All() bool { return s.criteria() == 0 }

// Check refuses what is meant in more than one way, with [ErrSelection].
func (s *Selection) Check() error {
	if s.criteria() > 1 {
		return fmt.Errorf("%w: document ids, ids or a condition are possible, and one of them only", ErrSelection)
	}
	return nil
}

// CheckOne refuses beside that what means all documents: nobody deletes them by saying
// nothing.
func (s *Selection) CheckOne() error {
	if s.All() {
		return fmt.Errorf("%w: document ids, ids or a condition are needed", ErrSelection)
	}
	return s.Check()
}

// Stats describes a collection, at little cost.
type Stats struct {
	Documents uint64 `json:"documents"`         // live ones
	Passages  uint64 `json:"passages"`          // in which some of them are stored
	Deleted   uint64 `json:"deleted_documents"` // and passages: their numbers are not used again
	Tokens    uint64 `json:"tokens"`            // of live documents
	// Metadata is how many documents have some.
	Metadata   uint64         `json:"metadata"`
	Dim        int            `json:"dim"`             // 0: not known yet
	Nbits      int            `json:"nbits"`           // as they are kept now; 0: no documents yet, as the next two
	Centroids  int            `json:"centroids"`       // of the codec
	Generation uint64         `json:"generation"`      // counts how often all was coded anew
	Model      *storage.Model `json:"model,omitempty"` // what made the vectors; nil: nobody said
	FileBytes  int64          `json:"file_bytes"`      // of the index
	Growth     GrowthStats    `json:"growth"`          // from one codec to the next
	// Defaults are the parameters of searches that name none, and what these were seen to find;
	// nil: none are stored, or those of parts differ.
	Defaults *storage.Defaults `json:"search_defaults,omitempty"`
	Queue    QueueStats        `json:"queue"`  // what waits to be written
	Counts   Counts            `json:"counts"` // since the collection was opened
	// Sampled is what searches have found by questions that were sampled; nil: none were.
	Sampled *Sampled `json:"sampled,omitempty"`
}

// GrowthStats say how a collection is kept.
type GrowthStats struct {
	Stage Stage `json:"stage"` // how it is coded now
	// Training: a training runs because the collection has grown. Failed is why the last
	// one was given up.
	Training bool        `json:"training"`
	Failed   string      `json:"training_failed,omitempty"`
	Drift    index.Drift `json:"drift"` // how well the codec fits
	// Advice says why training anew would pay; "": it would not.
	Advice string `json:"advice,omitempty"`
}

// Counts are what the writer of a collection has done since it was opened.
type Counts struct {
	Updates   uint64 `json:"updates"` // requests
	Documents uint64 `json:"documents"`
	Deletions uint64 `json:"deletions"` // requests
	Deleted   uint64 `json:"deleted"`   // documents
	Failed    uint64 `json:"failed"`    // requests
	Groups    uint64 `json:"groups"`    // transactions, about
	Trainings uint64 `json:"trainings"`
	// Compactions are those that the writer began by itself, and those that were asked for.
	Compactions uint64 `json:"compactions"`
	// Writing is the time of all that.
	Writing time.Duration `json:"writing_ns"`
}

// Add adds the counts of another collection, such as a part of one.
func (c *Counts) Add(o Counts) {
	c.Updates += o.Updates
	c.Documents += o.Documents
	c.Deletions += o.Deletions
	c.Deleted += o.Deleted
	c.Failed += o.Failed
	c.Groups += o.Groups
	c.Trainings += o.Trainings
	c.Compactions += o.Compactions
	c.Writing += o.Writing
}

// QueueStats says what waits to be written.
type QueueStats struct {
	Requests  int   `json:"requests"`  // that wait
	Documents int   `json:"documents"` // in them
	Bytes     int64 `json:"bytes"`     // of memory that they hold
}
