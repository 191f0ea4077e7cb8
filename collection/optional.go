package collection

import (
	"context"
	"io"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/keywords"
)

// ReadinessReporter is a [Catalog] that may be unreachable as a whole. Ready returns the reason, nil if the catalog is
// reachable. Load balancers use it to send requests elsewhere.
type ReadinessReporter interface {
	Ready() error
}

// DiskReporter is a [Catalog] on a disk. Disk reports whether the disk was full at the last write, and how many bytes
// are free if that is known.
type DiskReporter interface {
	Disk() (full bool, free uint64, known bool)
}

// PanicCounter is a [Catalog] that counts panics in background work, which no request's goroutine reports.
type PanicCounter interface {
	Panics() uint64
}

// Distributed is a [Catalog] on several nodes. Layout returns on which, as far as that is known.
type Distributed interface {
	Layout() Layout
}

// Layout describes which nodes have the shards of collections.
type Layout struct {
	Nodes       []Node      `json:"nodes"`
	Collections []Placement `json:"collections"`
}

// Node is a process with shards.
type Node struct {
	Name  string `json:"name"`
	Heard bool   `json:"heard"` // it has answered recently
}

// Placement describes where the shards of a collection are.
type Placement struct {
	Name       string  `json:"name"`
	Generation uint64  `json:"generation"` // 0 means that nothing is searched yet
	Replicas   int     `json:"replicas"`   // wanted for each shard
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
	State string `json:"state"` // "ready", or another state, see cluster.ReplicaStatus
}

// Restorer is a [Catalog] that fills collections from backups. A collection that does not exist is declared; one with
// documents is [ErrExists]. A failure leaves nothing behind.
type Restorer interface {
	// Restore reads an index file, such as [Backuper] writes.
	Restore(ctx context.Context, name string, in io.Reader) error
	// Import reads the index folder of another engine. Documents without ids get their row as an id.
	Import(ctx context.Context, name, dir string) (*index.ImportReport, error)
}

// Backuper is a [Collection] that writes its present state to a file, which is checked before its first byte is
// written.
type Backuper interface {
	Backup(ctx context.Context, out io.Writer) (*index.BackupReport, error)
}

// Retrainer is a [Collection] that trains itself again on its stored vectors, while searches and changes go on.
type Retrainer interface {
	Retrain(ctx context.Context) (*index.RetrainReport, error)
}

// Compacter is a [Collection] that rewrites itself without deleted documents, with its segments merged into one, to
// free disk space. Searches go on; changes wait.
type Compacter interface {
	// Compact returns the bytes of the collection before and after.
	Compact(ctx context.Context) (before, after int64, err error)
}

// Verifier is a [Collection] that reads and checks every byte of itself. The error wraps [storage.ErrCorrupt].
type Verifier interface {
	Verify(ctx context.Context) error
}

// Explainer is a [Snapshot] that explains what happens to a document in a search.
type Explainer interface {
	// Explain follows the document with an id through a search.
	Explain(ctx context.Context, q search.Query, id string, o search.Options) (*search.Explanation, error)
	// QueryTokens returns the vectors of a query in the form in which they are scored.
	QueryTokens(ctx context.Context, q *search.Query) ([]float32, error)
}

// Keywords is a [Snapshot] that ranks documents by the words of their metadata.
type Keywords interface {
	// SearchKeywords returns the best documents, the best first. Like the hits of a [Snapshot], they have no metadata;
	// MetadataOf returns it.
	SearchKeywords(ctx context.Context, q KeywordQuery) ([]search.Hit, error)
}

// Faceter is a [Snapshot] that counts the values of fields.
type Faceter interface {
	// Facets counts the values of fields in the documents of a selection, one field after the other. The memory of the
	// options is for all fields together: for counting one, and for the results of those before it.
	Facets(ctx context.Context, fields []condition.Field, s Selection, o index.FacetOptions) ([]*index.Facet, error)
}

// KeywordQuery is a search for words.
type KeywordQuery struct {
	Text string
	Mode keywords.Mode
	// K, Offset and MinScore select the page ([search.Page]).
	K, Offset int
	MinScore  *float64
	// Filters are of the snapshot; only documents that all of them let through are found. Nil entries are ignored.
	Filters []*search.Filter
	// Payload says that MetadataOf will be called for the hits.
	Payload bool
	// Statistics are those of the query in the whole collection, if the snapshot is one shard, nil otherwise.
	Statistics *keywords.Statistics
	// Passages above 0 groups hits into documents, each with at most that many of its best passages.
	Passages int
}

// Page returns the page of the ranking.
func (q *KeywordQuery) Page() search.Page {
	return search.Page{Offset: q.Offset, K: q.K, MinScore: q.MinScore}
}

// Traceable is a [Snapshot] whose searches can be compared with exhaustive ones.
type Traceable interface {
	// Tracer returns a searcher of the snapshot, which ends with it.
	Tracer() Tracer
}

// Tracer is a searcher that can follow a document through a search, such as a [search.Engine].
type Tracer interface {
	search.Searcher
	// Trace returns the stage that a document reaches.
	Trace(ctx context.Context, q search.Query, id string, o search.Options) (search.Stage, error)
}

// Trainer is a [Catalog] that says how its collections grow. Growth returns completed settings.
type Trainer interface {
	Growth() Growth
}
