package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"sync"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
)

// shardedSnapshot is a snapshot of a collection. It is not one state: each answer of a shard is of one state of that
// shard, and has at least the changes that this process knew when the snapshot was taken.
type shardedSnapshot struct {
	coll *shardedCollection
	m    *Map
	dim  int
	docs int64

	mu              sync.Mutex
	numberFilters   map[*search.Filter]collection.Selection // selections by numbers, of the filters made for them
	givenConditions map[*condition.Condition]bool           // conditions that were passed to Filter
}

var (
	_ collection.Snapshot  = (*shardedSnapshot)(nil)
	_ collection.Explainer = (*shardedSnapshot)(nil)
	_ collection.Faceter   = (*shardedSnapshot)(nil)
	_ collection.Keywords  = (*shardedSnapshot)(nil)
	_ collection.Traceable = (*shardedSnapshot)(nil)
)

// Close implements [collection.Snapshot].
func (v *shardedSnapshot) Close() error { return nil }

// Dim implements [collection.Snapshot].
func (v *shardedSnapshot) Dim() int { return v.dim }

// MaxHits implements [collection.Snapshot]. It is higher than the number of documents, since other processes may be
// adding some.
func (v *shardedSnapshot) MaxHits() int { return int(min(v.docs, math.MaxInt32/2)) + 1<<16 }

// Describe implements [collection.Snapshot].
func (v *shardedSnapshot) Describe(ctx context.Context) (search.Description, error) {
	m, descriptions, err := v.coll.describeShards(ctx)
	if err != nil {
		return search.Description{}, err
	}
	var d search.Description
	for shard := range m.Shards {
		p, name := descriptions[shard].Description, fmt.Sprintf("shard %d", shard)
		if p == nil { // it has no documents
			d.Shards = append(d.Shards, search.ShardDescription{Name: name})
			continue
		}
		d.Docs += p.Docs
		d.Passages += p.Passages
		d.Tokens += p.Tokens
		d.Centroids, d.Nbits, d.Backend, d.Threads, d.Device = p.Centroids, p.Nbits, p.Backend, p.Threads, p.Device
		d.Pool = max(d.Pool, p.Pool)
		d.Shards = append(d.Shards, search.ShardDescription{
			Name: name, Docs: p.Docs, Passages: p.Passages, Tokens: p.Tokens, Device: p.Device, Memory: p.Memory,
		})
	}
	if m.Shards == 1 {
		d.Shards = nil
	}
	d.Dim, d.Model, d.Generation = m.Current.Dim, m.Current.Model, m.Current.Number
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, m.ID) // the id of the collection, since numbers stay when it is encoded again
	d.Lineage = h.Sum64()
	return d, nil
}

// Filter implements [collection.Snapshot]. Shards evaluate its conditions and ids.
func (v *shardedSnapshot) Filter(_ context.Context, s collection.Selection) (*search.Filter, error) {
	if s.SelectsAll() {
		return nil, nil
	}
	f := &search.Filter{AllowMissing: true, Where: s.Where, IDs: s.IDs}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.givenConditions[s.Where] = true
	if s.Numbers != nil { // a filter cannot express numbers of shards: it matches nothing, and stands for its selection
		f.IDs = []string{}
		v.numberFilters[f] = s
	}
	return f, nil
}

// toFilterError returns an error of a condition as a collection in a folder would: that one finds the fault of a
// condition in Filter, before it searches, and the fault of any other condition in the first query that has it.
func (v *shardedSnapshot) toFilterError(query int, where *condition.Condition, err error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.givenConditions[where] || !errors.Is(err, condition.ErrUnknownField) {
		return err
	}
	return &search.QueryError{Index: query, Err: fmt.Errorf("filter: %w", err)}
}

// selectionOf returns the selection that a filter lets through.
func (v *shardedSnapshot) selectionOf(f *search.Filter) (collection.Selection, error) {
	if f == nil {
		return collection.Selection{}, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	s, byNumber := v.numberFilters[f]
	switch {
	case byNumber:
	case f.Docs != nil:
		return s, fmt.Errorf("%w: ordinals mean nothing in several shards", search.ErrOption)
	default:
		s = collection.Selection{IDs: f.IDs, Where: f.Where}
		if s.IDs == nil && s.Where == nil { // such a filter matches nothing
			s.IDs = []string{}
		}
	}
	return s, checkWhere(s.Where)
}

// Check returns an error for the faults of a query that can be found without a shard.
func (v *shardedSnapshot) Check(q *search.Query) error {
	dim := v.dim
	if dim == 0 { // vectors of any dimension are valid, and find nothing
		dim = max(q.Dim, 1)
	}
	if len(q.Vectors) == 0 || len(q.Vectors)%dim != 0 || v.dim != 0 && q.Dim != 0 && q.Dim != v.dim {
		return fmt.Errorf("%w: %d values of dimension %d; the collection has %d", search.ErrQuery, len(q.Vectors),
			q.Dim, v.dim)
	}
	return v.m.Current.Model.CheckQueries(q.Model)
}

// MetadataOf implements [collection.Snapshot]. The metadata came with the hit.
func (v *shardedSnapshot) MetadataOf(h *search.Hit) (json.RawMessage, error) {
	return json.RawMessage(h.Payload), nil
}

// Tracer implements [collection.Traceable]. Its searches may show later changes.
func (v *shardedSnapshot) Tracer() collection.Tracer { return tracedSnapshot{v} }

// tracedSnapshot is a snapshot as a searcher.
type tracedSnapshot struct{ *shardedSnapshot }

// Search implements [search.Searcher].
func (t tracedSnapshot) Search(ctx context.Context, q search.Query, o search.Options) (*search.Result, error) {
	r, err := t.shardedSnapshot.Search(ctx, []search.Query{q}, o)
	if err != nil {
		return nil, withoutQueryIndex(err)
	}
	return &r[0], nil
}

// SearchBatch implements [search.Searcher].
func (t tracedSnapshot) SearchBatch(ctx context.Context, qs []search.Query, o search.Options) ([]search.Result, error) {
	return t.shardedSnapshot.Search(ctx, qs, o)
}

// Trace implements [collection.Tracer].
func (t tracedSnapshot) Trace(ctx context.Context, q search.Query, id string, o search.Options) (search.Stage, error) {
	explanation, err := t.Explain(ctx, q, id, o)
	if err != nil {
		return search.StageReturned, err
	}
	return explanation.Stage, nil
}

// explainRequest asks for an explanation of a document in a search of its shard. Without Document it asks for the
// vectors of the query that are scored.
type explainRequest struct {
	searchRequest
	Document string `json:"document,omitempty"`
}

type explainAnswer struct {
	answerHead
	Explanation *search.Explanation `json:"explanation,omitempty"`
	Tokens      floats              `json:"tokens,omitzero"`
}

// doExplain explains a search of one shard.
func (c *Cluster) doExplain(ctx context.Context, target *shardTarget,
	in *explainRequest) (*answers[explainAnswer], error) {
	return eachShard(ctx, c, target, func(h *openShard, out *explainAnswer) error {
		qs, o, err := in.toQueries(ctx, target, h)
		if err != nil {
			return err
		}
		if len(qs) != 1 {
			return fmt.Errorf("%w: %d queries", errMessage, len(qs))
		}
		if in.Document == "" {
			out.Tokens, err = h.snapshot.QueryTokens(ctx, &qs[0])
			return err
		}
		out.Explanation, err = h.snapshot.Explain(ctx, qs[0], in.Document, o)
		return err
	})
}

// explainInShard asks the shard of a document for an explanation.
func (v *shardedSnapshot) explainInShard(ctx context.Context, q *search.Query, id string,
	o search.Options) (*explainAnswer, error) {
	r, err := v.newShardSearch([]search.Query{*q}, o)
	if err != nil {
		return nil, withoutQueryIndex(err)
	}
	selectShard := func(m *Map) []int { return []int{m.shardOf(id)} }
	m, answers, err := readAllShards[explainAnswer](ctx, v.coll, "explain", selectShard, &explainRequest{r.in, id})
	if err != nil {
		return nil, err
	}
	for _, where := range r.in.wheres() { // the shard ignores unknown fields, which other shards may know
		if err := v.coll.checkFields(ctx, where); err != nil {
			return nil, withoutQueryIndex(v.toFilterError(0, where, err))
		}
	}
	answer := answers[m.shardOf(id)]
	if answer.Explanation != nil {
		answer.Explanation.Shard = m.shardOf(id)
	}
	return answer, nil
}

// Explain implements [collection.Explainer]. The stage at which a document is dropped is that of a search of its shard
// alone, where it competes with fewer documents. Its rank, and whether it is returned, are those of a search of all
// shards.
func (v *shardedSnapshot) Explain(ctx context.Context, q search.Query, id string,
	o search.Options) (explanation *search.Explanation, err error) {
	if o.Group != "" || o.Feedback != nil || o.Offset != 0 || o.MinScore != nil {
		return nil, fmt.Errorf("%w: a search is explained without group, feedback, offset and least score",
			search.ErrOption)
	}
	if o.K == 0 {
		o.K = 10
	}
	o.Matches = false // the explanation has them anyway
	if err := o.Check(); err != nil {
		return nil, err
	}
	err = v.coll.withinOneGeneration(ctx, func() error {
		explanation, err = v.explainWithRank(ctx, q, id, o)
		return err
	})
	return explanation, err
}

// explainWithRank explains a document in its shard, and finds its rank among all shards.
func (v *shardedSnapshot) explainWithRank(ctx context.Context, q search.Query, id string,
	o search.Options) (*search.Explanation, error) {
	answer, err := v.explainInShard(ctx, &q, id, o)
	if err != nil {
		return nil, err
	}
	explanation := answer.Explanation
	if explanation == nil {
		return nil, fmt.Errorf("%w: %.100q", search.ErrUnknownID, id)
	}
	if explanation.Stage != search.StageReturned {
		return explanation, nil
	}
	r, err := v.Search(ctx, []search.Query{q}, o)
	if err != nil {
		return nil, err
	}
	// If the document has passages, this is the rank of the explained passage. A document that is not found gets 0.
	explanation.Rank = 1 + slices.IndexFunc(r[0].Hits, func(h search.Hit) bool { return h.ID == explanation.ID })
	if explanation.Rank == 0 {
		explanation.Stage = search.StageOutranked
	}
	if n := len(r[0].Hits); n > 0 {
		limit := float64(r[0].Hits[n-1].Score)
		explanation.StageLimit = &limit
	}
	return explanation, nil
}

// QueryTokens implements [collection.Explainer].
func (v *shardedSnapshot) QueryTokens(ctx context.Context, q *search.Query) ([]float32, error) {
	answer, err := v.explainInShard(ctx, q, "", search.Options{})
	if err != nil {
		return nil, err
	}
	if answer.Tokens == nil { // the shard has no documents
		return q.Vectors, nil
	}
	return answer.Tokens, nil
}
