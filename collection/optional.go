package collection

import (
	"context"
	"io"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/keywords"
)

// Readier is a [Catalog] that may be out of reach as a whole: Ready is why, nil if it is not.
// Requests are sent elsewhere meanwhile, where that is looked at.
type Readier interface {
	Ready() error
}

// Disker is a [Catalog] on a disk: whether it was full when something was last written, and
// how many bytes are free, if that is known.
type Disker interface {
	Disk() (full bool, free uint64, known bool)
}

// Panicker is a [Catalog] that counts the panics in work that is no request's own goroutine.
type Panicker interface {
	Panics() uint64
}

// Spread is a [Catalog] on several nodes: Layout says on which, as far as it is known now.
type Spread interface {
	Layout() Layout
}

// Layout says where the shards of collections are.
type Layout struct {
	Nodes       []Node      `json:"nodes"`
	Collections []Placement `json:"collections"`
}

// Node is a process that has shards.
type Node struct {
	Name  string `json:"name"`
	Heard bool   `json:"heard"` // of lately
}

// Placement is where the shards of a collection are.
type Placement struct {
	Name       string  `json:"name"`
	Generation uint64  `json:"generation"` // 0: nothing is searched yet
	Replicas   int     `json:"replicas"`   // that each shard is to have
	Shards     []Shard `json:"shards"`
}

// Shard is a part of a collection.
type Shard struct {
	Documents uint64    `json:"documents"`
	Replicas  []Replica `json:"replicas"`
}

// Replica is a shard on a node.
type Replica struct {
	Node  string `json:"node"`
	State string `json:"state"` // "ready", or what it does instead
}

// Restorer is a [Catalog] that fills collections from what was stored elsewhere. A collection
// that is not there is declared; one that has documents is [ErrExists]. Whatever fails
// leaves nothing behind.
type Restorer interface {
	// Restore reads an index file, such as [Backuper] writes.
	Restore(ctx context.Context, name string, in io.Reader) error
	// Import reads the index folder of another engine. Documents without ids are named by
	// their row.
	Import(ctx context.Context, name, dir string) (*index.ImportReport, error)
}

// Backuper is a [Collection] that writes itself to a file, as it is now. The file is
// checked before its first byte is written.
type Backuper interface {
	Backup(ctx context.Context, out io.Writer) (*index.BackupReport, error)
}

// Retrainer is a [Collection] that trains itself anew, on what is stored, beside searches
// and changes.
type Retrainer interface {
	Retrain(ctx context.Context) (*index.RetrainReport, error)
}

// Compacter is a [Collection] that writes itself without the deleted documents, with its segments merged into
// one, and gives the space back. Searches go on; changes wait.
type Compacter interface {
	// Compact returns the bytes of the collection before and after.
	Compact(ctx context.Context) (before, after int64, err error)
}

// Verifier is a [Collection] that looks at every byte of itself; the error wraps
// [storage.ErrCorrupt].
type Verifier interface {
	Verify(ctx context.Context) error
}

// Explainer is a [Snapshot] that tells what became of a document in a search.
type Explainer interface {
	// Explain tells it of the document of a name.
	Explain(ctx context.Context, q search.Query, id string, o search.Options) (*search.Explanation, error)
	// QueryTokens are the vectors of a query that are scored, as they are scored.
	QueryTokens(ctx context.Context, q *search.Query) ([]float32, error)
}

// Keywords is a [Snapshot] that ranks documents by the words of their metadata.
type Keywords interface {
	// SearchKeywords returns the best documents, the best first; as those of [Snapshot] they
	// have metadata by MetadataOf.
	SearchKeywords(ctx context.Context, q KeywordQuery) ([]search.Hit, error)
}

// Faceter is a [Snapshot] that counts the values of fields.
type Faceter interface {
	// Facets counts those of the documents of a selection, for one field after another. The
	// memory of the options is for all fields together: those of one while they are counted,
	// and what is returned of the fields before it.
	Facets(ctx context.Context, fields []condition.Field, s Selection, o index.FacetOptions) ([]*index.Facet, error)
}

// KeywordQuery is a search by words.
type KeywordQuery struct {
	Text string
	Mode keywords.Mode
	// K, Offset and MinScore are the page that is wanted ([search.Page]).
	K, Offset int
	MinScore  *float64
	// Filters, where not nil, are of the view; what all of them let through may answer.
	Filters []*search.Filter
	// Payload says that metadata of the hits is wanted.
	Payload bool
	// Statistics, where set, are those of the query in a collection of which the view is a part.
	Statistics *keywords.Statistics
	// Passages above 0 groups hits into documents, each with at most that many of its best
	// passages.
	Passages int
}

// Page is the part of the ranking that is wanted.
func (q *KeywordQuery) Page() search.Page {
	return search.Page{Offset: q.Offset, K: q.K, MinScore: q.MinScore}
}

// Measured is a [Snapshot] whose searches can be held against exhaustive ones.
type Measured interface {
	// Traced searches the view, and ends with it.
	Traced() Traced
}

// Traced is a searcher that can follow a document through a search, such as a
// [search.Engine].
type Traced interface {
	search.Searcher
	// Trace finds the stage that a document comes to.
	Trace(ctx context.Context, q search.Query, id string, o search.Options) (search.Stage, error)
}

// Trainer is a [Catalog] that says how its collections grow; it has completed what it was given.
type Trainer interface {
	Growth() Growth
}
