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

// searchRequest asks shards for the best documents of some queries.
type searchRequest struct {
	Queries []wireQuery          `json:"queries"`
	Only    collection.Selection `json:"only"`
	Options search.Options       `json:"options"` // without a filter, and the next two, which have no form in JSON
	Effort  float64              `json:"effort,omitempty"`
	Share   float64              `json:"share,omitempty"`
}

// latencyKind tells searches that take different times apart: by their mode, and the magnitude of their number. Pruned
// searches are joint.
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

// plainQuery is a query without its form in JSON, which is long.
type plainQuery search.Query

// wheres are the conditions of a search.
func (in *searchRequest) wheres() []*condition.Condition {
	all := []*condition.Condition{in.Only.Where}
	for i := range in.Queries {
		all = append(all, in.Queries[i].Only.Where)
	}
	return all
}

// searchAnswer are the results of a shard, one for each query.
type searchAnswer struct {
	answerHead
	Results []wireResult `json:"results,omitzero"`
}

type wireResult struct {
	Hits  []wireHit    `json:"hits,omitzero"`
	Stats search.Stats `json:"stats"`
	// More says that the shard may have other hits. None of them scores more than Floor.
	More  bool    `json:"more,omitempty"`
	Floor float32 `json:"floor,omitempty"`
}

// wireHit is a hit; payloads do not travel in it, since JSON would change their form.
type wireHit struct {
	search.Hit
	// Payloads are those of the hit, or of its passages; nil: there was no room.
	Payloads [][]byte `json:"payloads,omitzero"`
}

// lacksPayloads reports whether payloads are missing.
func (h *wireHit) lacksPayloads() bool { return len(h.Payloads) != max(len(h.Passages), 1) }

// toWireHit adds payloads to a hit, if they are wanted and there is room.
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

// passagesOf are the passages of a hit, or the hit itself.
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

// setPayloads gives a hit those of its passages, or its own.
func setPayloads(h *search.Hit, payloads [][]byte) {
	i := 0
	for p := range passagesOf(h) {
		p.Payload = payloads[i]
		i++
	}
	if len(h.Passages) > 0 {
		h.Payload = h.Passages[0].Payload
		if h.Passages[0].Passage != nil && h.Payload != nil {
			h.Payload = vectors.WholePayload(h.Payload)
		}
	}
}

// queriesAtOnce is how many queries of a batch have a deadline together.
const queriesAtOnce = 32

// Search implements [collection.Snapshot].
func (v *shardedSnapshot) Search(ctx context.Context, qs []search.Query, o search.Options) (results []search.Result, err error) {
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

// searchInChunks searches for queries, some at a time.
func (v *shardedSnapshot) searchInChunks(ctx context.Context, qs []search.Query, o search.Options) ([]search.Result, error) {
	var results []search.Result
	for chunk := range slices.Chunk(qs, queriesAtOnce) {
		found, err := v.searchChunk(ctx, chunk, o)
		if e, ok := errors.AsType[*search.QueryError](err); ok {
			err = &search.QueryError{Index: e.Index + len(results), Err: e.Err}
		}
		if err != nil {
			return nil, err
		}
		results = append(results, found...)
	}
	return results, nil
}

// searchChunk searches for some queries.
func (v *shardedSnapshot) searchChunk(ctx context.Context, qs []search.Query, o search.Options) ([]search.Result, error) {
	if o.Feedback != nil {
		results := make([]search.Result, len(qs))
		for i := range qs {
			r, err := v.withFeedback(ctx, qs[i], o)
			// Neither a condition that was given to Filter nor a shard that does not answer is the fault of a query.
			_, placed := errors.AsType[*search.QueryError](err)
			if isFinal(err) && (placed || !errors.Is(err, condition.ErrUnknownField)) {
				err = &search.QueryError{Index: i, Err: withoutQueryIndex(err)}
			}
			if err != nil {
				return nil, err
			}
			results[i] = *r
		}
		return results, nil
	}
	if o.InBlocks() {
		return search.Paged(o, func(o search.Options) ([]search.Result, error) { return v.searchFromBest(ctx, qs, o) })
	}
	return v.searchFromBest(ctx, qs, o)
}

// withoutQueryIndex is an error of the only query of a batch, without its place.
func withoutQueryIndex(err error) error {
	if e, ok := errors.AsType[*search.QueryError](err); ok {
		return e.Err
	}
	return err
}

// shardSearch is a search from the best hit on, of some queries.
type shardSearch struct {
	v            *shardedSnapshot
	in           searchRequest
	allowMissing bool // ids that name nothing are no error
}

// newShardSearch checks queries as far as that can be done here.
func (v *shardedSnapshot) newShardSearch(qs []search.Query, o search.Options) (*shardSearch, error) {
	r := &shardSearch{v: v, in: searchRequest{Options: o, Effort: o.Effort, Queries: make([]wireQuery, len(qs))}}
	r.in.Options.Filter = nil
	r.allowMissing = o.AllowMissing || o.Mode != search.Candidates
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

// candidateSelection are those of a search by candidates, as a selection.
func candidateSelection(o *search.Options) collection.Selection {
	return collection.Selection{IDs: append([]string{}, o.Candidates...)}
}

// shards are those that may have documents that all filters let through; all, if there is a condition, whose
// fields any shard may know.
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
	return []int{0} // which finds the faults of the query
}

// askShards asks shards for results of queries.
func (r *shardSearch) askShards(ctx context.Context, which func(*Map) []int, in *searchRequest) (m *Map, found map[int]*searchAnswer,
	missing map[int]error, err error) {
	if m, found, missing, err = readShards[searchAnswer](ctx, r.v.coll, "search", which, in); err != nil {
		return nil, nil, nil, err
	}
	for shard, f := range found {
		if f.Docs == 0 && f.Results == nil {
			f.Results = make([]wireResult, len(in.Queries))
		}
		if len(f.Results) != len(in.Queries) {
			return nil, nil, nil, fmt.Errorf("shard %d: %w: %d results of %d queries", shard, errMessage, len(f.Results),
				len(in.Queries))
		}
	}
	return m, found, missing, nil
}

// searchFromBest searches for queries from the best hit on.
func (v *shardedSnapshot) searchFromBest(ctx context.Context, qs []search.Query, o search.Options) ([]search.Result, error) {
	r, err := v.newShardSearch(qs, o)
	if err != nil {
		return nil, err
	}
	m, err := v.coll.currentMap(ctx)
	if err != nil {
		return nil, err
	}
	in := r.in
	if n := len(r.shards(m)); n > 1 && o.Group == "" {
		in.Share = 1 / float64(n)
	}
	m, found, missing, err := r.askShards(ctx, r.shards, &in)
	if err == nil {
		err = r.askDeeper(ctx, m, found, missing)
	}
	if err != nil {
		return nil, err
	}
	return r.mergeAnswers(ctx, m, found, missing)
}

// askDeeper asks shards again that may hide better hits than the last of all: they were asked for as many as
// they have by chance.
func (r *shardSearch) askDeeper(ctx context.Context, m *Map, found map[int]*searchAnswer, missing map[int]error) error {
	in, k := r.in, r.in.Options.K
	in.Queries = nil
	var queries []int
	hiding := map[int]bool{}
	for i := range r.in.Queries {
		var scores []float32
		for _, f := range found {
			for j := range f.Results[i].Hits {
				scores = append(scores, f.Results[i].Hits[j].Score)
			}
		}
		slices.SortFunc(scores, func(x, y float32) int { return cmp.Compare(y, x) })
		hides := false
		for shard, f := range found {
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
	now, deeper, unanswered, err := r.askShards(ctx, func(*Map) []int { return sortedKeys(hiding) }, &in)
	if err != nil {
		return err
	}
	if now.Current.Number != m.Current.Number {
		return errGeneration
	}
	for shard := range hiding {
		f := deeper[shard]
		if f == nil {
			delete(found, shard)
			missing[shard] = unanswered[shard]
			continue
		}
		for i, query := range queries {
			last := &f.Results[i].Stats
			stats := found[shard].Results[query].Stats
			stats.Add(*last)
			stats.Queries, stats.Allowed, stats.FilterMissing = last.Queries, last.Allowed, last.FilterMissing
			found[shard].Results[query] = f.Results[i]
			found[shard].Results[query].Stats = stats
		}
	}
	return nil
}

// mergeAnswers makes the results of those of shards.
func (r *shardSearch) mergeAnswers(ctx context.Context, m *Map, found map[int]*searchAnswer, missing map[int]error) (
	[]search.Result, error) {
	s, wanted := r.v.coll, r.shards(m)
	c := coverage(s, m, wanted, found, missing)
	if len(found) < len(wanted) && (!s.c.cfg.Partial || len(found) == 0) {
		return nil, s.missingError(ctx, c, missing)
	}
	if len(found) == len(wanted) { // a shard that does not answer may have the field
		for i, where := range r.in.wheres() {
			if err := checkAnsweredFields(ctx, s, where, found); err != nil {
				return nil, r.v.toFilterError(max(i-1, 0), where, err)
			}
		}
	}
	results, rankings := make([]search.Result, len(r.in.Queries)), make([][]wireHit, len(r.in.Queries))
	for i := range results {
		results[i].K, results[i].Coverage, results[i].Stats = r.in.Options.K, c, sumStats(m, found, i)
		if n := results[i].Stats.FilterMissing; n > 0 && !r.allowMissing && len(c.Missing) == 0 {
			return nil, &search.QueryError{Index: i, Err: fmt.Errorf("%w: %d of the ids that were given",
				search.ErrUnknownID, n)}
		}
		hits := map[int][]wireHit{}
		for shard, f := range found {
			hits[shard] = f.Results[i].Hits
		}
		rankings[i] = mergeHits(hits, r.in.Options.K)
	}
	complete, err := s.hitsWithPayloads(ctx, m, r.in.Options.Payload, rankings...)
	if err != nil {
		return nil, err
	}
	for i, hits := range complete {
		results[i].Hits = hits
		for j := range hits {
			if parts := results[i].Stats.Shards; parts != nil {
				parts[hits[j].Shard].Hits++
			}
		}
	}
	return results, nil
}

// sumStats adds up the figures of the search for a query in shards.
func sumStats(m *Map, found map[int]*searchAnswer, query int) (sum search.Stats) {
	if m.Shards > 1 {
		sum.Shards = make([]search.ShardStats, m.Shards)
		for shard := range sum.Shards {
			sum.Shards[shard].Shard = shard
		}
	}
	tokens, parts := 0, sum.Shards
	for _, shard := range sortedKeys(found) {
		st := found[shard].Results[query].Stats
		part := search.ShardStats{Allowed: st.Allowed, Candidates: st.Candidates, ExactDocs: st.ExactDocs}
		if len(st.Shards) > 0 { // it was searched with others
			part = st.Shards[0]
		}
		if parts != nil {
			part.Shard, part.Hits = shard, 0
			parts[shard] = part
		}
		st.Shards = nil
		tokens = max(tokens, st.QueryTokens)
		sum.Add(st)
	}
	sum.Queries, sum.QueryTokens = 1, tokens
	return sum
}

// mergeHits are the k best hits of shards.
func mergeHits(found map[int][]wireHit, k int) []wireHit {
	var hits []wireHit
	for shard, ofShard := range found {
		for _, h := range ofShard {
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

// sortedKeys are the keys of a map in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
