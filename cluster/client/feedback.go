package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/search"
)

// withFeedback answers a query that feedback has added to, as an engine does: all shards have one
// codec, so what it takes of documents is put together of what their shards say.
func (f *Client) withFeedback(ctx context.Context, q search.Query, o search.Options) (*search.Result, error) {
	if err := o.Feedback.Check(); err != nil {
		return nil, err
	}
	for {
		r, err := f.feedback(ctx, q, o)
		if !errors.Is(err, errFlipped) {
			return r, err
		}
	}
}

// errFlipped: another generation is searched than before, whose documents have other numbers.
var errFlipped = errors.New("another generation is searched")

func (f *Client) feedback(ctx context.Context, q search.Query, o search.Options) (*search.Result, error) {
	m, err := f.collection()
	if err != nil {
		return nil, err
	}
	flipped := func(err error) error {
		if now, merr := f.collection(); ctx.Err() == nil && merr == nil && now.Current.Number != m.Current.Number {
			return errFlipped
		}
		return err
	}
	if _, err := f.newAsk(ctx, m, q, o); err != nil { // what is wrong with it
		return nil, err
	}
	e := &evidence{f: f, m: m}
	var named [2][]search.Place
	for side, ids := range [][]string{o.Feedback.Like, o.Feedback.Unlike} {
		what := []string{"like", "unlike"}[side]
		if named[side], err = e.named(ctx, what, ids); err != nil {
			return nil, flipped(err)
		}
	}
	before, ranked := (*search.Result)(nil), []search.Hit(nil)
	if o.Feedback.Docs > 0 {
		if before, err = f.search(ctx, q, o.Feedback.First(o)); err != nil {
			return nil, err
		}
		if err := flipped(nil); err != nil {
			return nil, err
		}
		ranked = before.Hits
	}
	good, err := o.Feedback.Good(named[0], named[1], ranked)
	if err != nil {
		return nil, err
	}
	e.add(0, good)
	e.add(1, named[1])
	more, err := o.Feedback.Expand(ctx, &q, m.Current.Dim, e)
	if err != nil {
		return nil, flipped(err)
	}
	o.Feedback = nil
	r, err := f.search(ctx, more, o)
	if err == nil && before != nil {
		total := before.Stats
		total.Add(r.Stats)
		total.Queries = r.Stats.Queries
		r.Stats = total
	}
	return r, err
}

// evidence is that of the documents that are good, and of those that are bad: ordinals by shard.
type evidence struct {
	f    *Client
	m    *topology.Map
	docs [2]map[int][]uint32
	of   [2]int
}

var _ search.Evidence = (*evidence)(nil)

func (e *evidence) add(side int, places []search.Place) {
	e.docs[side], e.of[side] = map[int][]uint32{}, len(places)
	for _, p := range places {
		e.docs[side][p.Part] = append(e.docs[side][p.Part], p.Ordinal)
	}
}

// What one message has at most: so it, and its answer, stay below a megabyte, whatever the number
// of centroids.
var (
	maxFeedbackCodes = 1 << 15
	maxFeedbackIDs   = 1 << 18 // bytes, or one id
)

// ask has some shards asked, one message after another, and take called with the answer to the
// i-th of them, for one at a time.
func (e *evidence) ask(ctx context.Context, what func(s int) []*wire.FeedbackLook, take func(s, i int, a *wire.FeedbackFound) error) error {
	var mu sync.Mutex
	return e.f.each(e.m, func(s int) error {
		for i, l := range what(s) {
			found, err := e.f.look(ctx, e.m, s, &wire.Look{Feedback: l})
			if err != nil {
				return err
			}
			a := found.Feedback
			if a == nil || len(a.Centroids) > len(a.Docs) {
				return fmt.Errorf("shard %d: %w: nothing for feedback", s, wire.ErrMessage)
			}
			mu.Lock()
			err = take(s, i, a)
			mu.Unlock()
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// named are the documents that ids stand for; one that stands for none is
// [search.ErrUnknownID].
func (e *evidence) named(ctx context.Context, what string, ids []string) (places []search.Place, err error) {
	looks, sizes := map[int][]*wire.FeedbackLook{}, map[int]int{}
	for _, id := range unique(ids) {
		s := e.m.ShardOf(id)
		if sizes[s] += len(id); len(looks[s]) == 0 || sizes[s] > maxFeedbackIDs {
			looks[s], sizes[s] = append(looks[s], &wire.FeedbackLook{}), len(id)
		}
		l := looks[s][len(looks[s])-1]
		l.IDs = append(l.IDs, id)
	}
	missing := map[string]bool{}
	found := make([][]uint32, e.m.Shards())
	err = e.ask(ctx, func(s int) []*wire.FeedbackLook { return looks[s] }, func(s, _ int, a *wire.FeedbackFound) error {
		found[s] = append(found[s], a.Ordinals...)
		for _, id := range a.Missing {
			missing[id] = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if missing[id] {
			return nil, fmt.Errorf("%s: %w: %q", what, search.ErrUnknownID, id)
		}
	}
	for s, ordinals := range found {
		slices.Sort(ordinals) // two ids may stand for the same passage
		for _, o := range slices.Compact(ordinals) {
			places = append(places, search.Place{Part: s, Ordinal: o})
		}
	}
	return places, nil
}

func sideOf(bad bool) int {
	if bad {
		return 1
	}
	return 0
}

// look is what the shard of some of the documents is asked; nil: it has none.
func (e *evidence) look(bad bool, codes []uint32) func(s int) []*wire.FeedbackLook {
	side := sideOf(bad)
	return func(s int) []*wire.FeedbackLook {
		if len(e.docs[side][s]) == 0 {
			return nil
		}
		return []*wire.FeedbackLook{{Ordinals: e.docs[side][s], Tokens: search.FeedbackTokens(e.of[side]), Centroids: codes}}
	}
}

// Counts implements [search.Evidence].
func (e *evidence) Counts(ctx context.Context, bad bool) (docs map[uint32]int, of int, err error) {
	docs = map[uint32]int{}
	err = e.ask(ctx, e.look(bad, nil), func(_, _ int, a *wire.FeedbackFound) error {
		for i, code := range a.Centroids {
			docs[code] += int(a.Docs[i])
		}
		of += a.Of
		return nil
	})
	return docs, of, err
}

// Sums implements [search.Evidence]: shard by shard, in their order.
func (e *evidence) Sums(ctx context.Context, bad bool, codes []uint32) ([][]float32, error) {
	dim := e.m.Current.Dim
	parts := map[int][]byte{}
	err := e.ask(ctx, e.look(bad, codes), func(s, _ int, a *wire.FeedbackFound) error {
		if len(a.Sums) != 4*dim*len(codes) {
			return fmt.Errorf("shard %d: %w: sums of %d bytes", s, wire.ErrMessage, len(a.Sums))
		}
		parts[s] = a.Sums
		return nil
	})
	if err != nil {
		return nil, err
	}
	sums := make([]float32, dim*len(codes))
	for _, s := range slices.Sorted(maps.Keys(parts)) {
		for i := range sums {
			sums[i] += math.Float32frombits(binary.LittleEndian.Uint32(parts[s][4*i:]))
		}
	}
	return slices.Collect(slices.Chunk(sums, dim)), nil
}

// Frequencies implements [search.Evidence].
func (e *evidence) Frequencies(ctx context.Context, codes []uint32) (docs []uint64, live int64, err error) {
	docs = make([]uint64, len(codes))
	var looks []*wire.FeedbackLook
	for some := range slices.Chunk(codes, maxFeedbackCodes) {
		looks = append(looks, &wire.FeedbackLook{Centroids: some})
	}
	err = e.ask(ctx, func(int) []*wire.FeedbackLook { return looks }, func(s, i int, a *wire.FeedbackFound) error {
		if len(a.Docs) != len(looks[i].Centroids) {
			return fmt.Errorf("shard %d: %w: %d of %d centroids", s, wire.ErrMessage, len(a.Docs), len(looks[i].Centroids))
		}
		for j, n := range a.Docs {
			docs[i*maxFeedbackCodes+j] += n
		}
		if i == 0 {
			live += a.Live
		}
		return nil
	})
	return docs, live, err
}
