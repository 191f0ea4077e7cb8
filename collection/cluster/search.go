package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/bits"
	"slices"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// searchAsk asks shards for the best documents of some queries.
type searchAsk struct {
	asked
	Queries []askedQuery   `json:"queries"`
	Options search.Options `json:"options"` // without a filter, and the next two, which have no form in JSON
	Effort  float64        `json:"effort,omitempty"`
	Share   float64        `json:"share,omitempty"`
	Where   *search.Filter `json:"where,omitempty"`
	// Candidates of shards.
	Candidates map[int][]string `json:"candidates,omitzero"`
}

// kind tells searches that take different times apart: by their mode, and the magnitude of their number.
func (in *searchAsk) kind() string {
	return fmt.Sprintf("/%d/%d", in.Options.Mode, bits.Len(uint(len(in.Queries))))
}

// askedQuery is a query on its way.
type askedQuery struct {
	Vectors []byte          `json:"vectors"`
	Dim     int             `json:"dim,omitempty"`
	Mask    []bool          `json:"mask,omitzero"`
	Weights []byte          `json:"weights,omitzero"`
	Model   *storage.Model  `json:"model,omitempty"`
	Where   *search.Filter  `json:"where,omitempty"`
	Only    map[int]*chosen `json:"only,omitzero"` // in shards
}

// searchFound is what a shard has found, for each query.
type searchFound struct {
	answered
	Results []foundResult `json:"results,omitzero"`
}

func (f *searchFound) common() *answered { return &f.answered }

type foundResult struct {
	Hits  []foundHit   `json:"hits,omitzero"`
	Stats search.Stats `json:"stats"`
	// More says that the shard may have other hits, none of which scores more than Floor.
	More  bool    `json:"more,omitempty"`
	Floor float32 `json:"floor,omitempty"`
}

// foundHit is a hit; payloads do not travel in it, since JSON would change their form.
type foundHit struct {
	search.Hit
	// Payloads are those of the hit, or of its passages; nil: there was no room.
	Payloads [][]byte `json:"payloads,omitzero"`
}

// query is the query as a shard takes it.
func (q *askedQuery) query(ctx context.Context, h *held) (out search.Query, err error) {
	out = search.Query{Dim: q.Dim, Mask: q.Mask, Model: q.Model}
	if out.Vectors, err = floatsOf(q.Vectors); err != nil {
		return out, err
	}
	if out.Weights, err = floatsOf(q.Weights); err != nil {
		return out, err
	}
	if err := h.lookFor(ctx, q.Where); err != nil {
		return out, err
	}
	only := q.Only[h.shardAt.Shard]
	if q.Only != nil && only == nil {
		only = &chosen{IDs: []string{}}
	}
	out.Filter, err = h.filter(ctx, only, q.Where)
	return out, err
}

// filter lets documents of a shard through; nil: all.
func (h *held) filter(ctx context.Context, only *chosen, where *search.Filter) (*search.Filter, error) {
	s := shardAt{Only: only}
	switch {
	case only != nil && only.Ordinals != nil:
		return h.view.Filter(ctx, s.selection(lenient(where)))
	case only != nil && only.IDs != nil:
		return &search.Filter{IDs: only.IDs, Where: lenient(where), AllowMissing: true}, nil
	case where != nil:
		return search.Where(lenient(where)), nil
	}
	return nil, nil
}

// options are those of the search of a shard.
func (in *searchAsk) options(ctx context.Context, h *held) (o search.Options, err error) {
	o = in.Options
	o.Effort, o.Share, o.AllowMissing, o.Payload = in.Effort, in.Share, true, false
	if o.Mode == search.Candidates {
		if o.Candidates = in.Candidates[h.shardAt.Shard]; o.Candidates == nil {
			o.Candidates = []string{}
		}
	}
	o.Filter, err = h.filter(ctx, h.Only, in.Where)
	return o, err
}

// doSearch searches shards.
func (c *Cluster) doSearch(ctx context.Context, in *searchAsk) (*answers[searchFound], error) {
	if len(in.Shards) > 1 && c.c.Index.Device == nil && !in.byOrdinal() {
		return c.searchTogether(ctx, in)
	}
	return eachShard(ctx, c, &in.asked, (*searchFound).common, in.Where, func(_ int, h *held, out *searchFound) error {
		o, err := in.options(ctx, h)
		if err != nil {
			return err
		}
		qs := make([]search.Query, len(in.Queries))
		for i := range qs {
			if qs[i], err = in.Queries[i].query(ctx, h); err != nil {
				return err
			}
		}
		results, err := h.view.Search(ctx, qs, o)
		if err != nil {
			return err
		}
		room := mostRead / len(in.Shards)
		out.Results = make([]foundResult, len(results))
		for i := range results {
			r, to := &results[i], &out.Results[i]
			floor, more := r.Floor()
			to.Stats, to.More, to.Floor, to.Hits = r.Stats, in.Share > 0 && more, floor, make([]foundHit, len(r.Hits))
			for j := range r.Hits {
				to.Hits[j].Hit = r.Hits[j]
				if !in.Options.Payload {
					continue
				}
				if err := h.attach(&to.Hits[j], &room); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// attach adds payloads to a hit, if there is room.
func (h *held) attach(hit *foundHit, room *int) error {
	var payloads [][]byte
	for p := range passagesOf(&hit.Hit) {
		payload, err := h.view.MetadataOf(p)
		if err != nil {
			return err
		}
		*room -= len(payload)
		payloads = append(payloads, payload)
	}
	if *room >= 0 {
		hit.Payloads = payloads
	}
	return nil
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

// Search implements [collection.View].
func (v *view) Search(ctx context.Context, qs []search.Query, o search.Options) ([]search.Result, error) {
	if o.K == 0 {
		o.K = 10
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	var all []search.Result
	for some := range slices.Chunk(qs, queriesAtOnce) {
		results, err := v.some(ctx, some, o)
		if e, ok := errors.AsType[*search.QueryError](err); ok {
			err = &search.QueryError{Index: e.Index + len(all), Err: e.Err}
		}
		if err != nil {
			return nil, err
		}
		all = append(all, results...)
	}
	return all, nil
}

// some searches for some queries.
func (v *view) some(ctx context.Context, qs []search.Query, o search.Options) ([]search.Result, error) {
	if o.Feedback != nil {
		results := make([]search.Result, len(qs))
		for i := range qs {
			r, err := v.withFeedback(ctx, qs[i], o)
			if err != nil {
				return nil, queryError(i, err)
			}
			results[i] = *r
		}
		return results, nil
	}
	if o.InBlocks() {
		return search.Paged(o, func(o search.Options) ([]search.Result, error) { return v.whole(ctx, qs, o) })
	}
	return v.whole(ctx, qs, o)
}

// queryError is the error of a query of a batch; that shards do not answer is no fault of a query.
func queryError(i int, err error) error {
	if e, ok := errors.AsType[*search.QueryError](err); ok {
		err = e.Err
	} else if !final(err) {
		return err
	}
	return &search.QueryError{Index: i, Err: err}
}

// limits are the filters of a search, taken apart.
type limits struct {
	common  collection.Selection
	own     []collection.Selection // of queries
	where   *search.Filter
	wheres  []*search.Filter
	missing bool // ids that name nothing are no error
}

func (v *view) limits(qs []search.Query, o *search.Options) (l limits, err error) {
	l.missing = o.AllowMissing || o.Mode != search.Candidates
	take := func(f *search.Filter) (collection.Selection, *search.Filter, error) {
		s, err := v.selectionOf(f)
		if err != nil || f == nil {
			return s, nil, err
		}
		l.missing = l.missing && (f.AllowMissing || s.IDs == nil)
		where, err := whereOf(s.Where)
		return s, where, err
	}
	if l.common, l.where, err = take(o.Filter); err != nil {
		return l, err
	}
	l.own, l.wheres = make([]collection.Selection, len(qs)), make([]*search.Filter, len(qs))
	for i := range qs {
		if l.own[i], l.wheres[i], err = take(qs[i].Filter); err != nil {
			return l, &search.QueryError{Index: i, Err: err}
		}
	}
	return l, nil
}

// shards that may have documents that all filters let through; all, where a condition is to be looked at.
func (l *limits) shards(m *Map, o *search.Options) []int {
	sel := l.common
	if o.Mode == search.Candidates && sel.IDs == nil {
		sel.IDs = o.Candidates
	}
	if sel.IDs == nil && sel.Numbers == nil || sel.Where != nil || slices.ContainsFunc(l.wheres,
		func(f *search.Filter) bool { return f != nil }) {
		return every(m)
	}
	if parts := sorted(m.split(&sel)); len(parts) > 0 {
		return parts
	}
	return []int{0} // which says what is wrong with the query
}

// ranking is a search from the best hit on, of some queries.
type ranking struct {
	v  *view
	qs []search.Query
	o  search.Options
	l  limits
	in searchAsk // what is the same for all shards
}

// ranking checks queries as far as that can be done here.
func (v *view) ranking(qs []search.Query, o search.Options) (r *ranking, err error) {
	r = &ranking{v: v, qs: qs, o: o}
	if r.l, err = v.limits(qs, &o); err != nil {
		return nil, err
	}
	for i := range qs {
		if err := v.Check(&qs[i]); err != nil {
			return nil, &search.QueryError{Index: i, Err: err}
		}
	}
	r.in = searchAsk{Options: o, Effort: o.Effort, Where: r.l.where}
	r.in.Options.Filter, r.in.Options.Candidates = nil, nil
	return r, nil
}

// ask makes the request for some of the queries.
func (r *ranking) ask(share float64, queries []int) func(*Map, *asked) any {
	return func(m *Map, a *asked) any {
		in := r.in
		in.asked, in.Share, in.Queries = *a, share, make([]askedQuery, len(queries))
		if r.l.common.IDs != nil || r.l.common.Numbers != nil {
			in.restrict(m.split(&r.l.common))
		}
		if r.o.Mode == search.Candidates {
			in.Candidates = map[int][]string{}
			for shard, part := range m.split(&collection.Selection{IDs: r.o.Candidates}) {
				in.Candidates[shard] = part.IDs
			}
		}
		for i, of := range queries {
			q := &r.qs[of]
			in.Queries[i] = askedQuery{
				Vectors: bytesOf(q.Vectors), Dim: q.Dim, Mask: q.Mask, Weights: bytesOf(q.Weights), Model: q.Model,
				Where: r.l.wheres[of],
			}
			if own := &r.l.own[of]; own.IDs != nil || own.Numbers != nil {
				in.Queries[i].Only = m.split(own)
			}
		}
		return &in
	}
}

// whole searches for queries from the best hit on.
func (v *view) whole(ctx context.Context, qs []search.Query, o search.Options) ([]search.Result, error) {
	r, err := v.ranking(qs, o)
	if err != nil {
		return nil, err
	}
	queries := make([]int, len(qs))
	for i := range queries {
		queries[i] = i
	}
	for range 4 {
		which := func(m *Map) []int { return r.l.shards(m, &o) }
		share := 0.0
		first, err := v.s.current(ctx)
		if err != nil {
			return nil, err
		}
		if n := len(which(first)); n > 1 && o.Group == "" {
			share = 1 / float64(n)
		}
		m, parts, missing, err := read(ctx, v.s, "search", which, r.ask(share, queries), (*searchFound).common)
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			if p.Results == nil && p.Docs == 0 {
				p.Results = make([]foundResult, len(qs))
			}
			if len(p.Results) != len(qs) {
				return nil, fmt.Errorf("shard %d: %w: %d results of %d queries", p.Shard, errMessage, len(p.Results), len(qs))
			}
		}
		flipped, err := r.deeper(ctx, m, parts, missing)
		if err != nil {
			return nil, err
		}
		if !flipped {
			return r.merge(ctx, m, which(m), parts, missing)
		}
	}
	return nil, fmt.Errorf("%w: %q is encoded anew again and again", collection.ErrUnreachable, v.s.name)
}

// deeper asks shards again that may hide better hits than the last of all: they were asked for as many as
// they have by chance. flipped says that the generation has changed meanwhile.
func (r *ranking) deeper(ctx context.Context, m *Map, parts map[int]*searchFound,
	missing map[int]error) (flipped bool, err error) {
	var queries []int
	hiding := map[int]bool{}
	for i := range r.qs {
		var scores []float32
		for _, p := range parts {
			for j := range p.Results[i].Hits {
				scores = append(scores, p.Results[i].Hits[j].Score)
			}
		}
		slices.SortFunc(scores, func(x, y float32) int { return cmp.Compare(y, x) })
		hides := false
		for shard, p := range parts {
			if f := &p.Results[i]; f.More && (len(scores) < r.o.K || f.Floor >= scores[r.o.K-1]) {
				hides, hiding[shard] = true, true
			}
		}
		if hides {
			queries = append(queries, i)
		}
	}
	if len(queries) == 0 {
		return false, nil
	}
	again := func(*Map) []int { return sorted(hiding) }
	now, deeper, lost, err := read(ctx, r.v.s, "search", again, r.ask(0, queries), (*searchFound).common)
	if err != nil {
		return false, err
	}
	if now.Current.Number != m.Current.Number {
		return true, nil
	}
	for shard := range hiding {
		p := deeper[shard]
		if p == nil || len(p.Results) != len(queries) {
			delete(parts, shard)
			missing[shard] = lost[shard]
			continue
		}
		for i, of := range queries {
			stats := parts[shard].Results[of].Stats
			stats.Add(p.Results[i].Stats)
			last := &p.Results[i].Stats
			stats.Queries, stats.Allowed, stats.FilterMissing = last.Queries, last.Allowed, last.FilterMissing
			p.Results[i].Stats = stats
			parts[shard].Results[of] = p.Results[i]
		}
	}
	return false, nil
}

// merge makes the results of those of shards.
func (r *ranking) merge(ctx context.Context, m *Map, wanted []int, parts map[int]*searchFound,
	missing map[int]error) ([]search.Result, error) {
	s := r.v.s
	there := func(shard int) bool { return parts[shard] != nil }
	if len(parts) < len(wanted) && (!s.c.c.Partial || len(parts) == 0) {
		return nil, s.unanswered(ctx, m, wanted, there, missing)
	}
	if len(parts) == len(wanted) { // a shard that does not answer may have the field
		for i := -1; i < len(r.qs); i++ {
			where := r.l.common.Where
			if i >= 0 {
				where = r.l.own[i].Where
			}
			if known(where, parts, (*searchFound).common) == nil {
				continue
			}
			if err := s.checkFields(ctx, where); err != nil {
				return nil, fmt.Errorf("filter: %w", err)
			}
		}
	}
	c := search.Coverage{Parts: m.Shards}
	for shard := range m.Shards {
		docs := s.docs(shard)
		if c.Of += docs; parts[shard] != nil || !slices.Contains(wanted, shard) { // that returns no document anyway
			c.Docs += docs
			continue
		}
		c.Missing = append(c.Missing, missingPart(shard, docs, missing[shard]))
	}
	results := make([]search.Result, len(r.qs))
	var bare []*search.Hit
	for i := range results {
		to := &results[i]
		to.K, to.Coverage = r.o.K, c
		if m.Shards > 1 {
			to.Stats.Parts = make([]search.PartStats, m.Shards)
		}
		tokens, partStats := 0, to.Stats.Parts
		hits := map[int][]foundHit{}
		for _, shard := range sorted(parts) {
			found := &parts[shard].Results[i]
			st := found.Stats
			of := search.PartStats{Allowed: st.Allowed, Candidates: st.Candidates, ExactDocs: st.ExactDocs}
			if len(st.Parts) > 0 { // it was searched with others
				of = st.Parts[0]
			}
			st.Parts = nil
			tokens = max(tokens, st.QueryTokens)
			to.Stats.Add(st)
			if partStats != nil {
				of.Hits = 0
				partStats[shard] = of
			}
			hits[shard] = found.Hits
		}
		for shard := range partStats {
			partStats[shard].Part = shard
		}
		to.Stats.Queries, to.Stats.QueryTokens = 1, tokens
		if n := to.Stats.FilterMissing; n > 0 && !r.l.missing && len(c.Missing) == 0 {
			return nil, &search.QueryError{Index: i, Err: fmt.Errorf("%w: %d of the ids that were given",
				search.ErrUnknownID, n)}
		}
		var lacking []*search.Hit
		to.Hits, lacking = merged(hits, r.o.K, r.o.Payload)
		bare = append(bare, lacking...)
		for j := range to.Hits {
			if partStats != nil {
				partStats[to.Hits[j].Part].Hits++
			}
		}
	}
	if err := s.payloads(ctx, bare); err != nil {
		return nil, err
	}
	for i := range results {
		results[i].Hits = slices.DeleteFunc(results[i].Hits, func(h search.Hit) bool { return h.Part < 0 })
	}
	return results, nil
}

// merged are the k best hits of shards, and those of them that lack the payload that is wanted.
func merged(found map[int][]foundHit, k int, payload bool) (hits []search.Hit, bare []*search.Hit) {
	var all []foundHit
	for shard, hits := range found {
		for _, h := range hits {
			h.Part, h.Passages = shard, slices.Clone(h.Passages)
			for i := range h.Passages {
				h.Passages[i].Part = shard
			}
			all = append(all, h)
		}
	}
	slices.SortFunc(all, func(x, y foundHit) int {
		return cmp.Or(cmp.Compare(y.Score, x.Score), cmp.Compare(x.Part, y.Part), cmp.Compare(x.Ordinal, y.Ordinal))
	})
	hits = make([]search.Hit, min(k, len(all)))
	for i := range hits {
		h := &hits[i]
		switch *h = all[i].Hit; {
		case !payload:
		case len(all[i].Payloads) == max(len(h.Passages), 1):
			setPayloads(h, all[i].Payloads)
		default:
			bare = append(bare, h)
		}
	}
	return hits, bare
}

// payloads reads those of hits that did not fit into an answer. A hit of which a document was deleted
// meanwhile gets a part below 0.
func (s *shards) payloads(ctx context.Context, bare []*search.Hit) error {
	if len(bare) == 0 {
		return nil
	}
	numbers := map[uint64]bool{}
	for _, h := range bare {
		for p := range passagesOf(h) {
			numbers[collection.NumberOf(p)] = true
		}
	}
	found := map[uint64]json.RawMessage{}
	err := s.documents(ctx, collection.Selection{Numbers: sorted(numbers)}, collection.ReadOptions{Metadata: true},
		func(d collection.Stored) bool {
			found[d.Number] = d.Metadata
			return true
		})
	for _, h := range bare {
		var payloads [][]byte
		gone := false
		for p := range passagesOf(h) {
			payload, there := found[collection.NumberOf(p)]
			payloads, gone = append(payloads, payload), gone || !there
		}
		if setPayloads(h, payloads); gone {
			h.Part = -1
		}
	}
	return err
}

// sorted are the keys of a map in order.
func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
