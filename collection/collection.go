// Package collection defines the interfaces of served collections, and what their callers pass and get. Package store
// implements them for a folder, or for indexes that are already open; package cluster for an object store that machines
// share. This package knows neither of them, nor HTTP.
//
//	[Catalog] → [Collection] → [Snapshot]   all collections, one of them, one state of it
//	[DocumentInput] → [StoredDocument]      a document as it is sent, and as it is read
//	[Selection]                             selects documents
//	[Config], [Growth], [Stats]             how a collection is kept, and its contents
//
// Package collectiontest tests that implementations do what these interfaces say. What only some of them can do is an
// interface of its own, which callers look for by a type assertion:
//
//	a [Catalog]       [ReadinessReporter], [DiskReporter], [PanicCounter], [Restorer], [Distributed], [Trainer]
//	a [Collection]    [Backuper], [Retrainer], [Verifier], [Compacter]
//	a [Snapshot]      [Explainer], [Keywords], [Faceter], [Traceable]
//
// A method of such an interface may still return [ErrUnsupported].
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

// Catalog holds the collections of a service by name. It is safe for concurrent use.
type Catalog interface {
	// Location returns where the collections are, such as a folder or an address, for messages.
	Location() string
	// Names returns the names of all collections, in order.
	Names() []string
	// Get returns a collection. The error is [ErrUnknown] if it does not exist.
	Get(name string) (Collection, error)
	// Create creates a collection without documents. It is durable when Create returns.
	Create(ctx context.Context, name string, c Config) (Collection, error)
	// Remove removes a collection. If the name does not exist, it does nothing.
	Remove(ctx context.Context, name string) (existed bool, err error)
}

// Collection is a collection of documents. When a method that changes it returns, the change is durable, and later
// snapshots show it.
type Collection interface {
	Name() string
	// Err returns why the collection cannot be used at all, nil if it can.
	Err() error
	Config() Config
	// SetMaxDocuments changes Config.MaxDocuments, and returns the new configuration. A nil maxDocuments means no
	// limit.
	SetMaxDocuments(ctx context.Context, maxDocuments *uint64) (Config, error)
	// Stats describes the collection, at little cost. It works for a collection without documents, too.
	Stats(ctx context.Context) (Stats, error)
	// Snapshot returns the present state. The error is [ErrEmpty] if there is nothing to search.
	Snapshot(ctx context.Context) (Snapshot, error)
	// Update stores documents, all of them or none.
	Update(ctx context.Context, docs []DocumentInput, o UpdateOptions) (Receipt, error)
	// Delete and UpdateMetadata return how many documents and passages they changed. The selection must have exactly
	// one criterion ([Selection.CheckExactlyOne]).
	Delete(ctx context.Context, chosen Selection) (index.Affected, error)
	UpdateMetadata(ctx context.Context, chosen Selection, set map[string]json.RawMessage) (index.Affected, error)
}

// UpdateOptions are the options of an update.
type UpdateOptions struct {
	// Replace lets a document replace the stored one with the same id. Otherwise a duplicate id is an error.
	Replace bool
	// Model describes the model of the vectors, nil if it is not known. A collection keeps the model of the
	// request that makes its index. Later requests with another model are refused ([storage.ErrModel]).
	Model *storage.Model
}

// Receipt is the result of an update.
type Receipt struct {
	// Numbers has the numbers of the documents and passages, in the order of the request. A number is given out once,
	// and never changes.
	Numbers []uint64
	// IDs has their ids, including those that the collection chose.
	IDs []string
	// Stored counts the documents and passages that were stored.
	Stored index.Affected
	// Generation is the generation of the index: another number means another codec.
	Generation uint64
	// Replaced counts the documents that were deleted because a document of the request has their id. A document of
	// passages counts once, and all of its passages are deleted, even those whose ids no new passage has.
	Replaced int
	// Empty counts the documents and passages of the request without vectors, which searches for vectors do not find.
	Empty int
	// Evicted counts the oldest documents, which were deleted because of Config.MaxDocuments. If updates share a
	// transaction, only the first one counts them.
	Evicted int
}

// Snapshot is one state of a collection, to be searched and read. It is safe for concurrent use until Close.
type Snapshot interface {
	Close() error
	Describe(ctx context.Context) (search.Description, error)
	// Dim returns the dimension of the vectors, 0 while it is not known.
	Dim() int
	// MaxHits returns how many documents a search may return.
	MaxHits() int
	// Filter returns a filter for Search that lets the documents of a selection through. A nil filter lets all through.
	Filter(ctx context.Context, s Selection) (*search.Filter, error)
	// Check returns an error for a faulty query. It does not search.
	Check(q *search.Query) error
	// Search answers queries with the same options. A query may have a filter in addition to that of the options. Hits
	// have no metadata; MetadataOf returns it.
	Search(ctx context.Context, qs []search.Query, o search.Options) ([]search.Result, error)
	// MetadataOf returns the metadata of a hit. The search must have had the option Payload.
	MetadataOf(h *search.Hit) (json.RawMessage, error)
	// Documents reads the documents of a selection with at most one criterion ([Selection.Check]): those of a list in
	// its order, others in the order of their numbers.
	Documents(ctx context.Context, s Selection, o ReadOptions) iter.Seq2[StoredDocument, error]
}

// ReadOptions say which documents of a selection are read, and which of their data.
type ReadOptions struct {
	// Limit is the maximum number of documents. 0 means all. Those at the beginning of the order are read.
	Limit int
	// From is the number at which reading begins, unless the selection is a list.
	From uint64
	// Metadata and Vectors say whether these are read, in addition to number and id.
	Metadata, Vectors bool
}

// HitNumber returns the number of a hit's document: the shard in the upper 32 bits, and the ordinal in the lower ones.
func HitNumber(h *search.Hit) uint64 { return uint64(h.Shard)<<32 | uint64(h.Ordinal) }

// Selection selects documents. A document has to meet all criteria that are not nil. A list without entries selects
// nothing, and the zero Selection selects all documents. Entries of a list that do not exist are ignored.
type Selection struct {
	Numbers []uint64 // numbers of documents
	IDs     []string // the id of a document of passages selects all its passages ([vectors.Passage])
	Where   *condition.Condition
}

// selectionJSON is the JSON form of a selection.
type selectionJSON struct {
	Numbers []uint64      `json:"numbers,omitzero"`
	Among   search.Filter `json:"among"`
}

// MarshalJSON writes the numbers, and the ids and the condition in the form of a [search.Filter].
func (s Selection) MarshalJSON() ([]byte, error) {
	return json.Marshal(selectionJSON{s.Numbers, search.Filter{IDs: s.IDs, Where: s.Where}})
}

// UnmarshalJSON reads what MarshalJSON writes. An unknown field is an error, since a newer program may mean a
// restriction by it.
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

// criteria returns how many of the fields are set.
func (s *Selection) criteria() (n int) {
	for _, isSet := range []bool{s.Numbers != nil, s.IDs != nil, s.Where != nil} {
		if isSet {
			n++
		}
	}
	return n
}

// SelectsAll reports whether the selection selects all documents.
func (s *Selection) SelectsAll() bool { return s.criteria() == 0 }

// Check returns [ErrSelection] if the selection has more than one criterion.
func (s *Selection) Check() error {
	if s.criteria() > 1 {
		return fmt.Errorf("%w: give document_ids, ids or a condition, and only one of them", ErrSelection)
	}
	return nil
}

// CheckExactlyOne returns [ErrSelection] unless the selection has exactly one criterion: an empty request must not
// delete all documents.
func (s *Selection) CheckExactlyOne() error {
	if s.SelectsAll() {
		return fmt.Errorf("%w: it is empty: give document_ids, ids or a condition", ErrSelection)
	}
	return s.Check()
}

// Stats describes a collection.
type Stats struct {
	Documents uint64 `json:"documents"`         // live ones
	Passages  uint64 `json:"passages"`          // in which some documents are stored
	Deleted   uint64 `json:"deleted_documents"` // deleted documents and passages; their numbers are not used again
	Tokens    uint64 `json:"tokens"`            // of live documents
	// Metadata counts the documents with metadata.
	Metadata   uint64         `json:"metadata"`
	Dim        int            `json:"dim"`             // 0 means not known yet
	Nbits      int            `json:"nbits"`           // bits a component at present, 0 without documents
	Centroids  int            `json:"centroids"`       // of the codec, 0 without documents
	Generation uint64         `json:"generation"`      // counts how often all vectors were encoded again
	Model      *storage.Model `json:"model,omitempty"` // of the vectors, nil if it is not known
	FileBytes  int64          `json:"file_bytes"`      // of the index
	Growth     GrowthStats    `json:"growth"`          // trainings
	// Defaults are the parameters of searches that set none, with the recall that was measured for them. Defaults
	// is nil if none are stored, or if those of shards differ.
	Defaults *storage.Defaults `json:"search_defaults,omitempty"`
	Queue    QueueStats        `json:"queue"`  // changes that wait to be written
	Counts   Counts            `json:"counts"` // since the collection was opened
	// Sampled is the recall of sampled questions, nil if none were sampled.
	Sampled *Sampled `json:"sampled,omitempty"`
}

// GrowthStats describes the training of a collection.
type GrowthStats struct {
	Stage Stage `json:"stage"` // how the collection is encoded at present
	// Training says that a training is running because the collection has grown. Failed is why the last one failed.
	Training bool        `json:"training"`
	Failed   string      `json:"training_failed,omitempty"`
	Drift    index.Drift `json:"drift"` // how well the codec fits later documents
	// Advice says why another training would help. "" means that it would not.
	Advice string `json:"advice,omitempty"`
}

// Counts counts what the writer of a collection has done since the collection was opened.
type Counts struct {
	Updates   uint64 `json:"updates"` // requests
	Documents uint64 `json:"documents"`
	Deletions uint64 `json:"deletions"` // requests
	Deleted   uint64 `json:"deleted"`   // documents
	Failed    uint64 `json:"failed"`    // requests
	Groups    uint64 `json:"groups"`    // transactions, approximately
	Trainings uint64 `json:"trainings"`
	// Compactions counts those that the writer began itself, and requested ones.
	Compactions uint64 `json:"compactions"`
	// Writing is the time that all of this has taken.
	Writing time.Duration `json:"writing_ns"`
}

// Add adds the counts of another collection, such as a shard.
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

// QueueStats describes the changes that wait to be written.
type QueueStats struct {
	Requests  int   `json:"requests"`  // waiting ones
	Documents int   `json:"documents"` // in these requests
	Bytes     int64 `json:"bytes"`     // of memory for them
}
