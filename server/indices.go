package server

import (
	"errors"
	"fmt"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/search/quality"
)

// declareIn asks for a new index.
type declareIn struct {
	Name   string    `json:"name" doc:"1 to 128 of A-Z a-z 0-9 . _ -, not beginning or ending with a dot"`
	Config newConfig `json:"config,omitzero"`
}

// newConfig is a collection.Config with only optional fields.
type newConfig struct {
	Nbits            int     `json:"nbits,omitempty"`
	BatchSize        int     `json:"batch_size,omitempty" doc:"is kept and given back; the writer groups what waits"`
	Seed             *uint64 `json:"seed,omitempty" doc:"of trainings; default 42"`
	StartFromScratch int     `json:"start_from_scratch,omitempty"`
	MaxDocuments     *uint64 `json:"max_documents,omitempty"`
	Tokenizer        string  `json:"fts_tokenizer,omitempty" enum:"unicode61,trigram"`
	Binary           bool    `json:"binary,omitempty" doc:"one bit a component, whatever nbits says"`
}

// configOut has the configuration of an index.
type configOut struct {
	Name    string            `json:"name"`
	Config  collection.Config `json:"config"`
	Message string            `json:"message"`
}

type deletedOut struct {
	Deleted bool   `json:"deleted"`
	Name    string `json:"name"`
}

// infoOut describes an index.
type infoOut struct {
	Name          string  `json:"name"`
	Documents     int64   `json:"num_documents" doc:"all passages of one count as one"`
	Passages      int64   `json:"num_passages" doc:"in which some of them are stored"`
	Embeddings    uint64  `json:"num_embeddings" doc:"token vectors of all documents"`
	Partitions    int     `json:"num_partitions" doc:"centroids"`
	AverageLength float64 `json:"avg_doclen" doc:"token vectors a document"`
	Dimension     int     `json:"dimension"`
	HasMetadata   bool    `json:"has_metadata"`
	MetadataCount *uint64 `json:"metadata_count" doc:"documents that have metadata; null if none has"`
	MaxDocuments  *uint64 `json:"max_documents,omitempty"`
	// Found has the measured recall for each class of k, in words.
	Found   []string            `json:"found,omitempty"`
	Sampled *collection.Sampled `json:"sampled,omitempty"`
}

func indexRoutes() []route {
	const tag = "indices"
	return []route{
		typedRoute(route{
			method:      "GET",
			pattern:     "/indices",
			operationID: "list_indices",
			tag:         tag,
			permission:  Read,
			group:       groupLookup,
			summary:     "Names of the indexes that the token may read, in order; also of those without documents",
		},
			func(q *request, _ *noBody) ([]string, error) {
				return q.readableIndexes(), nil
			}),
		typedRoute(route{
			method:      "POST",
			pattern:     "/indices",
			operationID: "create_index",
			tag:         tag,
			permission:  Admin,
			group:       groupWrite,
			summary:     "Declare an index",
			codes:       []Code{CodeIndexExists, CodeNotSupported, CodeTooManyIndexes},
			doc:         "The index has no documents then, and is found by searches when it has some.",
			example:     `{"name": "papers", "config": {"nbits": 4}}`,
		}, createIndex),
		typedRoute(route{
			method:      "GET",
			pattern:     "/indices/{name}",
			operationID: "get_index",
			tag:         tag,
			permission:  Read,
			group:       groupLookup,
			summary:     "What an index holds",
			doc:         "An index without documents is not found.",
		}, getIndex),
		typedRoute(route{
			method:      "DELETE",
			pattern:     "/indices/{name}",
			operationID: "delete_index",
			tag:         tag,
			permission:  Admin,
			group:       groupWrite,
			summary:     "Remove an index and all that is in it",
			codes:       []Code{CodeNotSupported},
			doc:         "A name that is not there is no error: deleted is false then.",
		}, deleteIndex),
		typedRoute(route{
			method:      "PUT",
			pattern:     "/indices/{name}/config",
			operationID: "update_index_config",
			tag:         tag,
			permission:  Admin,
			group:       groupWrite,
			summary:     "Set the largest number of documents",
			codes:       []Code{CodeNotSupported},
			doc:         "After an update that goes beyond it the oldest documents are deleted; ids do not move.",
			example:     `{"max_documents": 10000}`,
		}, updateConfig),
		typedRoute(route{
			method:      "GET",
			pattern:     "/indices/{name}/stats",
			operationID: "get_index_stats",
			tag:         tag,
			permission:  Read,
			group:       groupLookup,
			summary:     "Growth, drift, queue, sizes and fields of an index",
		}, indexStats),
	}
}

// createIndex answers POST /indices.
func createIndex(q *request, in *declareIn) (configOut, error) {
	if !q.permitted(Admin, in.Name) {
		return configOut{}, problem(CodeForbidden, "the bearer token allows %s of this index; this needs %s",
			q.token.PermissionOn(in.Name), Admin)
	}
	if err := collection.CheckName(in.Name); err != nil {
		return configOut{}, err
	}
	done, err := q.reserveIndexName(in.Name)
	if err != nil {
		return configOut{}, err
	}
	defer done()
	c, err := q.server.collections.Create(q.ctx, in.Name, collection.Config(in.Config))
	if err != nil {
		return configOut{}, err
	}
	return configOut{in.Name, c.Config(), "index declared; it can be searched when it has documents"}, nil
}

// getIndex answers GET /indices/{name}.
func getIndex(q *request, _ *noBody) (infoOut, error) {
	var out infoOut
	err := q.withSnapshot(func(c collection.Collection, v collection.Snapshot) (err error) {
		out, err = indexInfo(q, c, v)
		return err
	})
	return out, err
}

// indexInfo describes a collection and its snapshot.
func indexInfo(q *request, c collection.Collection, v collection.Snapshot) (infoOut, error) {
	d, err := v.Describe(q.ctx)
	if err != nil {
		return infoOut{}, err
	}
	st, err := c.Stats(q.ctx)
	if err != nil {
		return infoOut{}, err
	}
	out := infoOut{
		Name:         c.Name(),
		Documents:    d.Docs,
		Passages:     d.Passages,
		Embeddings:   d.Tokens,
		Partitions:   d.Centroids,
		Dimension:    d.Dim,
		MaxDocuments: c.Config().MaxDocuments,
		Sampled:      st.Sampled,
	}
	if d.Docs > 0 {
		out.AverageLength = float64(d.Tokens) / float64(d.Docs)
	}
	if out.HasMetadata = st.Metadata > 0; out.HasMetadata {
		out.MetadataCount = &st.Metadata
	}
	if st.Defaults != nil {
		for _, c := range st.Defaults.Classes {
			found := quality.DescribeClass(c, st.Defaults.Passages)
			out.Found = append(out.Found, fmt.Sprintf("k ≤ %d: %s", c.K, found))
		}
	}
	return out, nil
}

// deleteIndex answers DELETE /indices/{name}.
func deleteIndex(q *request, _ *noBody) (deletedOut, error) {
	existed, err := q.server.collections.Remove(q.ctx, q.indexName())
	if err != nil {
		return deletedOut{}, err
	}
	q.server.metrics.removeIndex(q.indexName())
	return deletedOut{Deleted: existed, Name: q.indexName()}, nil
}

type configIn struct {
	MaxDocuments *uint64 `json:"max_documents,omitempty" doc:"null: no limit"`
}

// updateConfig answers PUT /indices/{name}/config.
func updateConfig(q *request, in *configIn) (configOut, error) {
	c, err := q.collection()
	if err != nil {
		return configOut{}, err
	}
	cfg, err := c.SetMaxDocuments(q.ctx, in.MaxDocuments)
	return configOut{c.Name(), cfg, "configuration updated"}, err
}

// statsOut has the figures of an index that cost little, also for an index without documents.
type statsOut struct {
	Name   string            `json:"name"`
	Config collection.Config `json:"config"`
	collection.Stats
}

// indexStats answers GET /indices/{name}/stats.
func indexStats(q *request, _ *noBody) (statsOut, error) {
	c, err := q.collection()
	if err != nil {
		return statsOut{}, err
	}
	st, err := c.Stats(q.ctx)
	return statsOut{c.Name(), c.Config(), st}, err
}

// collection returns the collection that the path names.
func (q *request) collection() (collection.Collection, error) {
	if err := collection.CheckName(q.indexName()); err != nil {
		return nil, err
	}
	return q.server.collections.Get(q.indexName())
}

// collectionAs returns the collection that the path names, and the same as a T: an interface for an
// operation that not all collections support. operation names it in the error.
func collectionAs[T any](q *request, operation string) (c collection.Collection, t T, err error) {
	if c, err = q.collection(); err != nil {
		return nil, t, err
	}
	t, ok := c.(T)
	if !ok {
		return nil, t, collection.Unsupported(operation)
	}
	return c, t, nil
}

// withSnapshot calls use with the collection that the path names, and its newest snapshot.
func (q *request) withSnapshot(use func(c collection.Collection, v collection.Snapshot) error) (err error) {
	c, err := q.collection()
	if err != nil {
		return err
	}
	v, err := c.Snapshot(q.ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	return use(c, v)
}
