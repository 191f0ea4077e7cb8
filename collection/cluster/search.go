package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/bits"
	"slices"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// searchRequest asks shards for the best documents of queries.
type searchRequest struct {
	Queries []wireQuery          `json:"queries"`
	Only    collection.Selection `json:"only"`
	// Options has no filter. Effort and Share are two of its fields, which have no form in JSON.
	Options search.Options `json:"options"`
	Effort  float64        `json:"effort,omitempty"`
	Share   float64        `json:"share,omitempty"`
}

// latencyKind groups searches that take about the same time: by mode, and by the order of magnitude of the number of
// queries. Pruned searches are joint: a node computes the centroid scores once for all its shards.
func (in *searchRequest) latencyKind() (name string, joint bool) {
	return fmt.Sprintf("/%d/%d", in.Options.Mode, bits.Len(uint(len(in.Queries)))), in.Options.Mode == search.Pruned
}

// wireQuery is a query without a filter.
type wireQuery struct {
	plainQuery
	Vectors floats `json:",omitzero"`
	Weights floats `json:",omitzero"`
	Only    collection.Selection
}

// plainQuery is a query without its JSON methods, whose form is long.
type plainQuery search.Query

// wheres returns the conditions of a search: that of all queries, and one of each query. They may be nil.
func (in *searchRequest) wheres() []*condition.Condition {
	conditions := []*condition.Condition{in.Only.Where}
	for i := range in.Queries {
		conditions = append(conditions, in.Queries[i].Only.Where)
	}
	return conditions
}

// searchAnswer has the results of a shard, one for each query.
type searchAnswer struct {
	answerHead
	Results []wireResult `json:"results,omitzero"`
}

// wireResult is the result of a query in one shard.
type wireResult struct {
	Hits  []wireHit    `json:"hits,omitzero"`
	Stats search.Stats `json:"stats"`
	// More says that the shard may have further hits. Their scores are at most Floor.
	More  bool    `json:"more,omitempty"`
	Floor float32 `json:"floor,omitempty"`
}

// wireHit is a hit. Payloads are encoded separately, since JSON would change their form.
type wireHit struct {
	search.Hit
	// Payloads are those of the hit's passages, or its own. They are nil if they did not fit into the answer.
	Payloads [][]byte `json:"payloads,omitzero"`
}

// lacksPayloads reports whether the payloads did not fit into the answer.
func (h *wireHit) lacksPayloads() bool { return len(h.Payloads) != max(len(h.Passages), 1) }

// toWireHit returns a hit with its payloads, if they are wanted and remaining bytes allow it.
func (h *openShard) toWireHit(hit *search.Hit, payload bool, remaining *int) (wireHit, error) {
	out := wireHit{Hit: *hit}
	if !payload {
		return out, nil
	}
	var payloads [][]byte
	for p := range passagesOf(hit) {
		payload, err := h.snapshot.MetadataOf(p)
		if err != nil {
			return out, err
		}
		*remaining -= len(payload)
		payloads = append(payloads, payload)
	}
	if *remaining >= 0 {
		out.Payloads = payloads
	}
	return out, nil
}

// passagesOf returns the passages of a hit, or the hit itself if it has none.
func passagesOf(h *search.Hit) iter.Seq[*search.Hit] {
	return func(yield func(*search.Hit) bool) {
		if len(h.Passages) == 0 {
			yield(h)
			return
		}
		for i := range h.Passages {
			if !yield(&h.Passages[i]) {
				return
			}
		}
	}
}

// setPayloads sets the payloads of the passages of a hit, or its own.
func setPayloads(h *search.Hit, payloads [][]byte) {
	i := 0
	for p := range passagesOf(h) {
		p.Payload = payloads[i]
		i++
	}
	if len(h.Passages) > 0 {
		h.Payload = h.Passages[0].Payload
		if h.Passages[0].Passage != nil && h.Payload != nil {
			h.Payload = vectors.DocumentPayload(h.Payload)
		}
	}
}

// queriesAtOnce is how many queries of a batch share one deadline.
const queriesAtOnce = 32

// Search implements [collection.Snapshot].
func (v *shardedSnapshot) Search(ctx context.Context, qs []search.Query,
	o search.Options) (results []search.Result, err error) {
	if o.K == 0 {
		o.K = 10
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	err = v.coll.withinOneGeneration(ctx, func() error {
		results, err = v.searchInChunks(ctx, qs, o)
		return err
	})
	return results, err
}

// searchInChunks searches for queries, queriesAtOnce at a time.
func (v *shardedSnapshot) searchInChunks(ctx context.Context, qs []search.Query,
	o search.Options) ([]search.Result, error) {
	var results []search.Result
	for chunk := range slices.Chunk(qs, queriesAtOnce) {
		chunkResults, err := v.searchChunk(ctx, chunk, o)
		if e, ok := errors.AsType[*search.QueryError](err); ok {
			err = &search.QueryError{Index: e.Index + len(results), Err: e.Err}
		}
		if err != nil {
			return nil, err
		}
		results = append(results, chunkResults...)
	}
	return results, nil
}

// searchChunk searches for a chunk of queries: with feedback, in blocks, or directly.
func (v *shardedSnapshot) searchChunk(ctx context.Context, qs []search.Query,
	o search.Options) ([]search.Result, error) {
	if o.Feedback != nil {
		results := make([]search.Result, len(qs))
		for i := range qs {
			r, err := v.withFeedback(ctx, qs[i], o)
			// The error belongs to the query, except for an unknown field in a condition of Filter, and a shard that
			// does not answer.
			_, hasIndex := errors.AsType[*search.QueryError](err)
			if isFinal(err) && (hasIndex || !errors.Is(err, condition.ErrUnknownField)) {
				err = &search.QueryError{Index: i, Err: withoutQueryIndex(err)}
			}
			if err != nil {
				return nil, err
			}
			results[i] = *r
		}
		return results, nil
	}
	if o.NeedsPaging() {
		return search.Paged(o, func(o search.Options) ([]search.Result, error) { return v.searchFromBest(ctx, qs, o) })
	}
	return v.searchFromBest(ctx, qs, o)
}

// withoutQueryIndex returns the cause of a [search.QueryError], for callers with one query.
func withoutQueryIndex(err error) error {
	if e, ok := errors.AsType[*search.QueryError](err); ok {
		return e.Err
	}
	return err
}

// shardSearch is a search of queries in the shards, from the best hit on.
type shardSearch struct {
	v            *shardedSnapshot
	in           searchRequest
	allowMissing bool // ids that name no document are no error
}

// newShardSearch checks queries, as far as that is possible without shards.
func (v *shardedSnapshot) newShardSearch(qs []search.Query, o search.Options) (*shardSearch, error) {
	r := &shardSearch{v: v, in: searchRequest{Options: o, Effort: o.Effort, Queries: make([]wireQuery, len(qs))}}
	r.in.Options.Filter = nil
	r.allowMissing = o.AllowMissing || o.Mode != search.Candidates
	// toSelection converts a filter, and clears allowMissing if one of the filters has ids that must exist.
	toSelection := func(f *search.Filter) (collection.Selection, error) {
		s, err := v.selectionOf(f)
		r.allowMissing = r.allowMissing && (f == nil || f.AllowMissing || s.IDs == nil)
		return s, err
	}
	var err error
	if r.in.Only, err = toSelection(o.Filter); err != nil {
		return nil, err
	}
	for i := range qs {
		selection, err := toSelection(qs[i].Filter)
		if err == nil {
			err = v.Check(&qs[i])
		}
		if err != nil {
			return nil, &search.QueryError{Index: i, Err: err}
		}
		r.in.Queries[i] = wireQuery{plainQuery(qs[i]), qs[i].Vectors, qs[i].Weights, selection}
		r.in.Queries[i].Filter = nil
	}
	return r, nil
}

// candidateSelection returns the candidates of the options as a selection.
func candidateSelection(o *search.Options) collection.Selection {
	return collection.Selection{IDs: append([]string{}, o.Candidates...)}
}

// shards returns the shards that may have documents that all filters let through. With a condition it returns all
// shards, since any of them may know its fields.
func (r *shardSearch) shards(m *Map) []int {
	if slices.ContainsFunc(r.in.wheres(), func(c *condition.Condition) bool { return c != nil }) {
		return allShards(m)
	}
	s := r.in.Only
	if r.in.Options.Mode == search.Candidates && s.IDs == nil {
		s = candidateSelection(&r.in.Options)
	}
	if shards := newSplitSelection(&s, m.Shards).shardNumbers(); len(shards) > 0 {
		return shards
	}
	return []int{0} // the request itself may be faulty, which a shard has to find out
}

// askShards asks shards for results of queries, and checks their number.
func (r *shardSearch) askShards(ctx context.Context, selectShards func(*Map) []int,
	in *searchRequest) (m *Map, byShard map[int]*searchAnswer, missing map[int]error, err error) {
	if m, byShard, missing, err = readShards[searchAnswer](ctx, r.v.coll, "search", selectShards, in); err != nil {
		return nil, nil, nil, err
	}
	for shard, f := range byShard {
		if f.Docs == 0 && f.Results == nil {
			f.Results = make([]wireResult, len(in.Queries))
		}
		if len(f.Results) != len(in.Queries) {
			return nil, nil, nil, fmt.Errorf("shard %d: %w: %d results of %d queries", shard, errMessage,
				len(f.Results), len(in.Queries))
		}
	}
	return m, byShard, missing, nil
}

// searchFromBest searches for queries from the best hit on.
func (v *shardedSnapshot) searchFromBest(ctx context.Context, qs []search.Query,
	o search.Options) ([]search.Result, error) {
	r, err := v.newShardSearch(qs, o)
	if err != nil {
		return nil, err
	}
	m, err := v.coll.currentMap(ctx)
	if err != nil {
		return nil, err
	}
	// Ask each shard for its share of the hits.
	in := r.in
	if n := len(r.shards(m)); n > 1 && o.Group == "" {
		in.Share = 1 / float64(n)
	}
	m, byShard, missing, err := r.askShards(ctx, r.shards, &in)
	if err == nil {
		err = r.askDeeper(ctx, m, byShard, missing)
	}
	if err != nil {
		return nil, err
	}
	return r.mergeAnswers(ctx, m, byShard, missing)
}

// askDeeper asks some shards for all hits. At first they were asked only for as many hits as they have on average. A
// shard hides hits if those that it did not return may score higher than the last hit of all.
func (r *shardSearch) askDeeper(ctx context.Context, m *Map, byShard map[int]*searchAnswer,
	missing map[int]error) error {
	// Find the queries and the shards for which that is so.
	in, k := r.in, r.in.Options.K
	in.Queries = nil
	var queries []int
	hiding := map[int]bool{}
	for i := range r.in.Queries {
		var scores []float32
		for _, f := range byShard {
			for j := range f.Results[i].Hits {
				scores = append(scores, f.Results[i].Hits[j].Score)
			}
		}
		slices.SortFunc(scores, func(x, y float32) int { return cmp.Compare(y, x) })
		hides := false
		for shard, f := range byShard {
			if r := &f.Results[i]; r.More && (len(scores) < k || r.Floor >= scores[k-1]) {
				hides, hiding[shard] = true, true
			}
		}
		if hides {
			queries, in.Queries = append(queries, i), append(in.Queries, r.in.Queries[i])
		}
	}
	if len(queries) == 0 {
		return nil
	}
	// Ask these shards again, and replace their results. The statistics count both searches.
	newMap, deeper, unanswered, err := r.askShards(ctx, func(*Map) []int { return sortedKeys(hiding) }, &in)
	if err != nil {
		return err
	}
	if newMap.Current.Number != m.Current.Number {
		return errGeneration
	}
	for shard := range hiding {
		f := deeper[shard]
		if f == nil {
			delete(byShard, shard)
			missing[shard] = unanswered[shard]
			continue
		}
		for i, query := range queries {
			deeperStats := &f.Results[i].Stats
			stats := byShard[shard].Results[query].Stats
			stats.Add(*deeperStats)
			stats.Queries, stats.Allowed = deeperStats.Queries, deeperStats.Allowed
			stats.FilterMissing = deeperStats.FilterMissing
			byShard[shard].Results[query] = f.Results[i]
			byShard[shard].Results[query].Stats = stats
		}
	}
	return nil
}

// mergeAnswers merges the results of the shards.
func (r *shardSearch) mergeAnswers(ctx context.Context, m *Map, byShard map[int]*searchAnswer,
	missing map[int]error) ([]search.Result, error) {
	s, shards := r.v.coll, r.shards(m)
	// Check that enough shards have answered, and that the fields of conditions exist.
	c := coverage(s, m, shards, byShard, missing)
	if len(byShard) < len(shards) && (!s.c.cfg.Partial || len(byShard) == 0) {
		return nil, s.missingError(ctx, c, missing)
	}
	if len(byShard) == len(shards) { // otherwise a missing shard may know the fields
		for i, where := range r.in.wheres() {
			if err := checkAnsweredFields(ctx, s, where, byShard); err != nil {
				return nil, r.v.toFilterError(max(i-1, 0), where, err)
			}
		}
	}
	// Merge the hits of each query.
	results, rankings := make([]search.Result, len(r.in.Queries)), make([][]wireHit, len(r.in.Queries))
	for i := range results {
		results[i].K, results[i].Coverage, results[i].Stats = r.in.Options.K, c, sumStats(m, byShard, i)
		if n := results[i].Stats.FilterMissing; n > 0 && !r.allowMissing && len(c.Missing) == 0 {
			err := fmt.Errorf("%w: %d of the given ids", search.ErrUnknownID, n)
			return nil, &search.QueryError{Index: i, Err: err}
		}
		hits := map[int][]wireHit{}
		for shard, f := range byShard {
			hits[shard] = f.Results[i].Hits
		}
		rankings[i] = mergeHits(hits, r.in.Options.K)
	}
	// Complete the payloads.
	complete, err := s.hitsWithPayloads(ctx, m, r.in.Options.Payload, rankings...)
	if err != nil {
		return nil, err
	}
	for i, hits := range complete {
		results[i].Hits = hits
		for j := range hits {
			if shardStats := results[i].Stats.Shards; shardStats != nil {
				shardStats[hits[j].Shard].Hits++
			}
		}
	}
	return results, nil
}

// sumStats adds up the statistics of a query in the shards.
func sumStats(m *Map, byShard map[int]*searchAnswer, query int) (sum search.Stats) {
	if m.Shards > 1 {
		sum.Shards = make([]search.ShardStats, m.Shards)
		for shard := range sum.Shards {
			sum.Shards[shard].Shard = shard
		}
	}
	tokens := 0
	for _, shard := range sortedKeys(byShard) {
		st := byShard[shard].Results[query].Stats
		shardStats := search.ShardStats{Allowed: st.Allowed, Candidates: st.Candidates, ExactDocs: st.ExactDocs}
		if len(st.Shards) > 0 { // the shard was searched together with others
			shardStats = st.Shards[0]
		}
		if sum.Shards != nil {
			shardStats.Shard, shardStats.Hits = shard, 0 // hits are counted after the merge
			sum.Shards[shard] = shardStats
		}
		st.Shards = nil
		tokens = max(tokens, st.QueryTokens)
		sum.Add(st)
	}
	sum.Queries, sum.QueryTokens = 1, tokens
	return sum
}

// mergeHits returns the k best hits of the shards.
func mergeHits(byShard map[int][]wireHit, k int) []wireHit {
	var hits []wireHit
	for shard, shardHits := range byShard {
		for _, h := range shardHits {
			h.Shard, h.Passages = shard, slices.Clone(h.Passages)
			for i := range h.Passages {
				h.Passages[i].Shard = shard
			}
			hits = append(hits, h)
		}
	}
	slices.SortFunc(hits, func(x, y wireHit) int {
		return cmp.Or(cmp.Compare(y.Score, x.Score), cmp.Compare(x.Shard, y.Shard), cmp.Compare(x.Ordinal, y.Ordinal))
	})
	return hits[:min(k, len(hits))]
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
