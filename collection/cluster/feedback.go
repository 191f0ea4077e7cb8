package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/plaid-ir/plaid/search"
)

// evidenceAsk asks for one thing that feedback takes of shards: the documents that ids stand for (Named); the
// tokens of documents (Rows); their centroids, and in how many of them each is; the sums of their tokens with
// some centroids; or without documents, in how many of all some terms or centroids are.
type evidenceAsk struct {
	asked
	Named     map[int][]string `json:"named,omitzero"` // by shard
	Documents map[int][]uint32 `json:"documents,omitzero"`
	Of        int              `json:"of,omitempty"` // how many documents there are of all shards
	Rows      bool             `json:"rows,omitempty"`
	Centroids []uint32         `json:"centroids,omitzero"`
	Terms     []byte           `json:"terms,omitzero"`
	Tokens    uint64           `json:"tokens,omitempty"` // of the collection
}

type evidenceFound struct {
	answered
	Ordinals  []uint32    `json:"ordinals,omitzero"`
	Missing   []string    `json:"missing,omitzero"` // ids that stand for nothing
	Rows      []foundRows `json:"rows,omitzero"`
	Centroids []uint32    `json:"centroids,omitzero"`
	Counts    []uint64    `json:"counts,omitzero"` // of centroids or terms
	Of        int         `json:"of,omitempty"`    // documents that were counted: passages of one are one
	Sums      []byte      `json:"sums,omitzero"`   // [centroids, dimension]
}

func (f *evidenceFound) common() *answered { return &f.answered }

// foundRows are the first tokens of a document.
type foundRows struct {
	ID     string `json:"id"`
	Of     string `json:"of"` // its document, if it is a passage
	Tokens []byte `json:"tokens"`
}

// doEvidence reads what feedback takes of shards.
func (c *Cluster) doEvidence(ctx context.Context, in *evidenceAsk) (*answers[evidenceFound], error) {
	return eachShard(ctx, c, &in.asked, (*evidenceFound).common, nil, func(_ int, h *held,
		out *evidenceFound) (err error) {
		snap, shard := h.view.Snapshot(), h.shardAt.Shard
		for _, code := range in.Centroids {
			if int64(code) >= int64(snap.Header().Centroids) {
				return fmt.Errorf("%w: centroid %d of %d", errMessage, code, snap.Header().Centroids)
			}
		}
		// Those that were deleted since they were found count no more.
		live := slices.DeleteFunc(slices.Clone(in.Documents[shard]),
			func(o uint32) bool { return o >= snap.State().Docs || !snap.Live(o) })
		switch {
		case in.Named != nil:
			docs, missing, err := snap.Named(ctx, in.Named[shard])
			if err != nil {
				return err
			}
			filled, _ := snap.LiveSet() // without those that have no tokens, which nothing finds
			for it := docs.Iterator(); it.HasNext(); {
				if o := it.Next(); filled == nil || filled[o/64]>>(o%64)&1 == 1 {
					out.Ordinals = append(out.Ordinals, o)
				}
			}
			out.Missing = missing
		case in.Rows:
			for _, o := range live {
				d, err := search.ReadTerms(ctx, snap, shard, o, in.Of)
				if err != nil {
					return err
				}
				out.Rows = append(out.Rows, foundRows{d.ID, d.Of.ID, bytesOf(d.Tokens)})
			}
		case in.Documents != nil && in.Centroids == nil:
			docs := map[uint32]int{}
			if out.Of, err = search.Counts(ctx, snap, live, search.FeedbackTokens(in.Of), docs); err != nil {
				return err
			}
			for _, code := range sorted(docs) {
				out.Centroids, out.Counts = append(out.Centroids, code), append(out.Counts, uint64(docs[code]))
			}
		case in.Documents != nil:
			sums := make([]float32, len(in.Centroids)*snap.Dim())
			rows := slices.Collect(slices.Chunk(sums, snap.Dim()))
			err := search.Sums(ctx, snap, live, search.FeedbackTokens(in.Of), in.Centroids, rows)
			out.Sums = bytesOf(sums)
			return err
		case in.Terms != nil:
			terms, err := floatsOf(in.Terms)
			if err == nil && len(terms)%snap.Dim() != 0 {
				err = fmt.Errorf("%w: %d values of dimension %d", errMessage, len(terms), snap.Dim())
			}
			if err != nil {
				return err
			}
			out.Counts = make([]uint64, len(terms)/snap.Dim())
			return search.TermFrequencies(ctx, snap, terms, in.Tokens, out.Counts)
		default:
			out.Counts = make([]uint64, len(in.Centroids))
			return search.Frequencies(ctx, snap, in.Centroids, out.Counts)
		}
		return nil
	})
}

// withFeedback answers a query that feedback has added to, as an engine does: all shards have one codec, so
// that what it takes of documents is put together of what their shards say.
func (v *view) withFeedback(ctx context.Context, q search.Query, o search.Options) (*search.Result, error) {
	f := o.Feedback
	if err := v.Check(&q); err != nil {
		return nil, err
	}
	o.Feedback = nil
	last := func(q search.Query) (*search.Result, error) {
		r, err := v.some(ctx, []search.Query{q}, o)
		if err != nil {
			return nil, err
		}
		return &r[0], nil
	}
	if v.dim == 0 {
		return last(q)
	}
	d, err := v.Describe(ctx)
	if err != nil {
		return nil, err
	}
	e := &evidence{v: v, tokens: d.Tokens}
	var named [2][]search.Place
	for side, ids := range [][]string{f.Like, f.Unlike} {
		if named[side], err = e.named(ctx, []string{"like", "unlike"}[side], ids); err != nil {
			return nil, err
		}
	}
	var before []search.Result
	var ranked []search.Hit
	if f.Docs > 0 {
		if before, err = v.whole(ctx, []search.Query{q}, f.First(o)); err != nil {
			return nil, err
		}
		ranked = before[0].Hits
	}
	good, err := f.Good(named[0], named[1], ranked)
	if err != nil {
		return nil, err
	}
	for side, places := range [][]search.Place{good, named[1]} {
		e.docs[side], e.of[side] = map[int][]uint32{}, len(places)
		for _, p := range places {
			e.docs[side][p.Part] = append(e.docs[side][p.Part], p.Ordinal)
		}
	}
	var from search.Evidence = e
	if search.UsesOwnTerms(d.Centroids, d.Tokens) {
		from = &ownEvidence{search.OwnTerms{Dim: v.dim}, e}
	}
	more, err := f.Expand(ctx, &q, v.dim, from)
	if err != nil {
		return nil, err
	}
	cut := search.FitFeedback(&more, v.dim, len(q.Vectors), d.Centroids)
	r, err := last(more)
	if err != nil {
		return nil, err
	}
	r.Stats.FeedbackCut = cut
	if before != nil {
		total := before[0].Stats
		total.Add(r.Stats)
		total.Queries = r.Stats.Queries
		r.Stats = total
	}
	return r, nil
}

// evidence is that of the documents that are good, and of those that are bad: ordinals by shard.
type evidence struct {
	v      *view
	docs   [2]map[int][]uint32
	of     [2]int
	tokens uint64
}

// ask asks some shards.
func (e *evidence) ask(ctx context.Context, which func(*Map) []int, in evidenceAsk) (map[int]*evidenceFound, error) {
	_, found, err := all(ctx, e.v.s, "evidence", which, func(_ *Map, a *asked) any {
		in := in
		in.asked = *a
		return &in
	}, (*evidenceFound).common)
	return found, err
}

// ofSide asks the shards that have documents of a side.
func (e *evidence) ofSide(ctx context.Context, bad bool, in evidenceAsk) (map[int]*evidenceFound, error) {
	side := 0
	if bad {
		side = 1
	}
	in.Documents, in.Of = e.docs[side], e.of[side]
	return e.ask(ctx, func(*Map) []int { return sorted(e.docs[side]) }, in)
}

// named are the documents that ids stand for; one that stands for none is [search.ErrUnknownID].
func (e *evidence) named(ctx context.Context, what string, ids []string) (places []search.Place, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	by := map[int][]string{}
	for _, id := range ids {
		shard := e.v.m.shardOf(id)
		by[shard] = append(by[shard], id)
	}
	found, err := e.ask(ctx, func(*Map) []int { return sorted(by) }, evidenceAsk{Named: by})
	if err != nil {
		return nil, err
	}
	for _, shard := range sorted(found) {
		f := found[shard]
		if f.Docs == 0 {
			f.Missing = by[shard]
		}
		for _, id := range f.Missing {
			return nil, fmt.Errorf("%s: %w: %.100q", what, search.ErrUnknownID, id)
		}
		for _, o := range f.Ordinals {
			places = append(places, search.Place{Part: shard, Ordinal: o})
		}
	}
	return places, nil
}

// Counts implements [search.Evidence].
func (e *evidence) Counts(ctx context.Context, bad bool) (docs map[uint32]int, of int, err error) {
	found, err := e.ofSide(ctx, bad, evidenceAsk{})
	docs = map[uint32]int{}
	for shard, f := range found {
		if len(f.Counts) != len(f.Centroids) {
			return nil, 0, fmt.Errorf("shard %d: %w: counts of centroids", shard, errMessage)
		}
		for i, code := range f.Centroids {
			docs[code] += int(f.Counts[i])
		}
		of += f.Of
	}
	return docs, of, err
}

// Sums implements [search.Evidence]: shard by shard, in their order.
func (e *evidence) Sums(ctx context.Context, bad bool, codes []uint32) ([][]float32, error) {
	found, err := e.ofSide(ctx, bad, evidenceAsk{Centroids: codes})
	sums := make([]float32, e.v.dim*len(codes))
	for _, shard := range sorted(found) {
		part, ferr := floatsOf(found[shard].Sums)
		if ferr != nil || len(part) != len(sums) && found[shard].Docs > 0 {
			return nil, fmt.Errorf("shard %d: %w: sums of %d values", shard, errMessage, len(part))
		}
		for i, x := range part {
			sums[i] += x
		}
	}
	return slices.Collect(slices.Chunk(sums, e.v.dim)), err
}

// frequencies adds up what shards have counted of n terms or centroids.
func (e *evidence) frequencies(ctx context.Context, n int, in evidenceAsk) (docs []uint64, live int64, err error) {
	docs = make([]uint64, n)
	if n == 0 {
		return docs, 0, nil
	}
	found, err := e.ask(ctx, every, in)
	for shard, f := range maps.All(found) {
		if len(f.Counts) != n && f.Docs > 0 {
			return nil, 0, fmt.Errorf("shard %d: %w: %d of %d terms", shard, errMessage, len(f.Counts), n)
		}
		for i, of := range f.Counts {
			docs[i] += of
		}
		live += int64(f.Docs)
	}
	return docs, live, err
}

// Frequencies implements [search.Evidence].
func (e *evidence) Frequencies(ctx context.Context, codes []uint32) (docs []uint64, live int64, err error) {
	return e.frequencies(ctx, len(codes), evidenceAsk{Centroids: codes})
}

// ownEvidence has numbers of terms in place of centroids.
type ownEvidence struct {
	search.OwnTerms
	*evidence
}

// Counts implements [search.Evidence].
func (e *ownEvidence) Counts(ctx context.Context, bad bool) (docs map[uint32]int, of int, err error) {
	found, err := e.ofSide(ctx, bad, evidenceAsk{Rows: true})
	if err != nil {
		return nil, 0, err
	}
	var all []search.TermDocument
	for shard, f := range found {
		for _, r := range f.Rows {
			tokens, err := floatsOf(r.Tokens)
			if err == nil && len(tokens)%e.Dim != 0 {
				err = errMessage
			}
			if err != nil {
				return nil, 0, fmt.Errorf("shard %d: %w", shard, err)
			}
			all = append(all, search.TermDocument{ID: r.ID, Of: search.DocumentKey{Part: shard, ID: r.Of}, Tokens: tokens})
		}
	}
	docs, of = e.Count(bad, all)
	return docs, of, nil
}

// Sums implements [search.Evidence].
func (e *ownEvidence) Sums(ctx context.Context, bad bool, codes []uint32) ([][]float32, error) {
	return e.OwnTerms.Sums(ctx, bad, codes)
}

// Frequencies implements [search.Evidence].
func (e *ownEvidence) Frequencies(ctx context.Context, codes []uint32) (docs []uint64, live int64, err error) {
	return e.frequencies(ctx, len(codes), evidenceAsk{Terms: bytesOf(e.Terms(codes)), Tokens: e.tokens})
}
