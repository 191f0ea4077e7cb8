package server

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/server/store"
)

// Indexes are what a service serves: those of a folder ([Folder]), or others that are
// put in their place ([NewOver]), such as the collections of a cluster.
//
// Errors are those of package store, search and condition, and what they are answered
// with is decided by their kind. One that is a [*Problem] is answered as it is;
// [NotSupported] is that of what cannot be done.
type Indexes interface {
	// Place says where they are: a folder, an address.
	Place() string
	// Names are those of all indexes, in order.
	Names() []string
	// Get finds an index. The error is [store.ErrUnknown] if there is none.
	Get(name string) (Index, error)
	// Declare makes an index without documents, durable when it returns.
	Declare(ctx context.Context, name string, c store.Config) (Index, error)
	// Drop removes an index. A name that is not there is no error.
	Drop(ctx context.Context, name string) (existed bool, err error)
}

// Readier are indexes that may be out of reach as a whole: Ready is why, nil if they are
// not. Requests are sent elsewhere meanwhile, where that is looked at (/readyz).
type Readier interface {
	Ready() error
}

// Index is one of them. What its methods that change it return is durable, and is seen by
// views that are taken afterwards.
type Index interface {
	Name() string
	// Err is why the index cannot be used at all; nil if it can.
	Err() error
	Config() store.Config
	SetMaxDocuments(ctx context.Context, most *uint64) (store.Config, error)
	// Stats describes the index, at little cost, also one without documents.
	Stats(ctx context.Context) (store.Stats, error)
	// View is what the index is now; the error is [store.ErrEmpty] as long as there is
	// nothing to search.
	View(ctx context.Context) (View, error)
	Update(ctx context.Context, docs []store.Document, o store.UpdateOptions) (Receipt, error)
	// Delete and UpdateMetadata return how many documents there were.
	Delete(ctx context.Context, chosen store.Selection) (int, error)
	UpdateMetadata(ctx context.Context, chosen store.Selection, set map[string]json.RawMessage) (int, error)
}

// Receipt says what an update did.
type Receipt struct {
	// Documents are the document ids, and IDs the names, in the order of the request.
	Documents []uint64
	IDs       []string
	// Generation is that of the index, Evicted how many of the oldest documents were deleted.
	Generation uint64
	Evicted    int
}

// View searches and reads an index.
type View interface {
	Close() error
	Describe(ctx context.Context) (search.Description, error)
	// Dim is the dimension of the vectors.
	Dim() int
	// Most is how many documents a search may return at most.
	Most() int
	// Filter lets through what a restriction does, for Search; nil: all documents.
	Filter(ctx context.Context, r Restriction) (*search.Filter, error)
	// Check finds what is wrong with a query, without searching.
	Check(q *search.Query) error
	// Search answers queries with the same options. A query may have a filter beside that of
	// the options. The place of a hit is its [DocumentID].
	Search(ctx context.Context, qs []search.Query, o search.Options) ([]search.Result, error)
	// Metadata is what is stored beside a hit of a search with the option Payload.
	Metadata(h *search.Hit) (json.RawMessage, error)
	// Documents reads documents. Ids that name none are passed over. The order is that of the
	// selection's list, and otherwise that of their ids.
	Documents(ctx context.Context, o Wanted) iter.Seq2[Document, error]
}

// Explainer is a View that tells what became of a document in a search.
type Explainer interface {
	// Explain tells it of the document of a name.
	Explain(ctx context.Context, q search.Query, id string, o search.Options) (*search.Explanation, error)
	// Tokens are the vectors of a query that are scored, as they are scored.
	Tokens(ctx context.Context, q *search.Query) ([]float32, error)
}

// Restriction says which documents may answer. What is given must all hold; what is nil or
// empty restricts nothing, and a list without entries lets nothing through.
type Restriction struct {
	Documents []uint64
	IDs       []string
	Condition string
	Params    []any // a value for each "?" of the condition
}

// Wanted says which documents to read, and what of them.
type Wanted struct {
	// Chosen are the documents; nil: all. Its ordinals are document ids.
	Chosen *store.Selection
	// Limit is how many at most; 0: all. Of a list they are the first that are there.
	Limit             int
	Metadata, Vectors bool
}

// Document is a document as it is stored.
type Document struct {
	Document uint64 // its id
	ID       string // its name
	Metadata json.RawMessage
	Vectors  []float32 // [tokens, dim], row-major
}

// DocumentID is the document id of a hit: its ordinal in an index of one file, and above
// that in 32 bits the part that it is in.
func DocumentID(h *search.Hit) uint64 { return uint64(h.Part)<<32 | uint64(h.Ordinal) }

// NotSupported is the error of what the indexes of a service cannot do.
func NotSupported(what string) *Problem {
	return problem(CodeNotSupported, "%s: the indexes of this service cannot do that", what)
}
