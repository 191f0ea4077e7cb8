package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/fuse"
	"github.com/plaid-ir/plaid/search/keywords"
)

// mixer fuses results by vectors with those by words, or with those of a run.
type mixer struct {
	app    *app
	flags  *flags.Words
	snap   *index.Snapshot
	wanted search.Options // of the results in the end
	filter *roaring.Bitmap
	engine search.Searcher // tells what matched, where it is wanted

	texts map[string]string // of --text-queries
	run   *eval.Run         // of --fuse
}

// mixer reads what the flags name.
func (a *app) mixer(ctx context.Context, f *flags.Words, snap *index.Snapshot, o search.Options) (*mixer, error) {
	m := &mixer{app: a, flags: f, snap: snap, wanted: o}
	var err error
	if f.Run != "" {
		if m.run, err = f.ReadRun(ctx); err != nil {
			return nil, err
		}
	}
	if f.ByWords() && o.Filter != nil {
		if m.filter, err = o.Filter.Ordinals(ctx, snap); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// readTexts reads the file of --text-queries.
func (m *mixer) readTexts(ctx context.Context) (ids, texts []string, err error) {
	if m.flags.Texts == "" {
		return []string{"0"}, []string{m.flags.Text}, nil
	}
	if ids, texts, err = m.flags.ReadTexts(ctx, m.app.in); err != nil {
		return nil, nil, err
	}
	m.texts = make(map[string]string, len(ids))
	for i, id := range ids {
		m.texts[id] = texts[i]
	}
	return ids, texts, nil
}

// prepare makes sure that each query has its text.
func (m *mixer) prepare(ctx context.Context, q *queries) error {
	switch {
	case m.run != nil:
		missing, first := 0, ""
		for i := range q.Len() {
			if id := q.ID(i); !m.run.Has(id) {
				if missing++; missing == 1 {
					first = id
				}
			}
		}
		if missing > 0 {
			m.app.warn("%d of %d queries (%q is the first) are not in %s: nothing is fused with theirs", missing, q.Len(), first, m.flags.Run)
		}
	case m.flags.Texts != "":
		if _, _, err := m.readTexts(ctx); err != nil {
			return err
		}
		for i := range q.Len() {
			if id := q.ID(i); m.texts[id] == "" {
				return fmt.Errorf("query %q has no text in %s: %w", id, m.flags.Texts, errNotFound)
			}
		}
	case !m.flags.Hybrid && q.Len() != 1:
		return flags.Usagef("--text-query is for one query, and there are %d; give their texts with --text-queries", q.Len())
	}
	return nil
}

// text is what to search for with a query of a batch.
func (m *mixer) text(batch *querySet, i int) string {
	switch {
	case m.flags.Hybrid:
		return batch.words[i]
	case m.flags.Texts != "":
		return m.texts[batch.ids[i]]
	}
	return m.flags.Text
}

// both fuses the results of a batch with the other side. kw is nil for a run.
func (m *mixer) both(ctx context.Context, kw *keywords.Index, batch *querySet, results []search.Result) error {
	for i := range results {
		other, err := m.other(ctx, kw, batch, i)
		if err == nil {
			if other, err = m.flags.Fuse(search.Ranked(results[i].Hits), other, m.wanted.K); err == nil {
				results[i].Hits, err = m.hits(ctx, batch, i, other)
			}
		}
		if err != nil {
			return fmt.Errorf("query %q: %w", batch.label(i), err)
		}
	}
	return nil
}

// other is the side that is not of vectors.
func (m *mixer) other(ctx context.Context, kw *keywords.Index, batch *querySet, i int) (hits []search.RankedHit, err error) {
	if m.run == nil {
		found, err := m.words(ctx, kw, m.text(batch, i), fuse.Depth(m.wanted.K))
		return search.Ranked(found), err
	}
	for _, h := range m.run.Ranked(batch.ids[i], eval.TiesTREC) {
		ordinal, ok, err := m.snap.Ordinal(h.Doc)
		switch {
		case err != nil:
			return nil, err
		case ok:
			hits = append(hits, search.RankedHit{Hit: search.Hit{ID: h.Doc, Ordinal: ordinal}, Score: h.Score})
		case !m.wanted.AllowMissing:
			return nil, fmt.Errorf("%s: %w: %.100q (--allow-missing passes over it)", m.flags.Run, search.ErrUnknownID, h.Doc)
		}
	}
	return hits, nil
}

// words searches for a text: documents, or with a group documents of passages.
func (m *mixer) words(ctx context.Context, kw *keywords.Index, text string, k int) ([]search.Hit, error) {
	if m.wanted.Group == "" {
		return m.ranked(ctx, kw, text, k)
	}
	return search.RankGroups(k, m.wanted.Passages, m.snap.Len(), func(k int) ([]search.Hit, error) {
		ranked, err := m.ranked(ctx, kw, text, k)
		if err != nil {
			return nil, err
		}
		for i := range ranked {
			if ranked[i].Payload, err = m.snap.Payload(ranked[i].Ordinal); err != nil {
				return nil, err
			}
		}
		return ranked, nil
	})
}

// ranked are documents by the words of a text.
func (m *mixer) ranked(ctx context.Context, kw *keywords.Index, text string, k int) ([]search.Hit, error) {
	q := m.flags.Query(k)
	q.Text, q.Filter = text, m.filter
	found, err := kw.Search(ctx, q)
	switch {
	case errors.Is(err, keywords.ErrSyntax):
		err = flags.UsageError{Err: fmt.Errorf("%q: %w", text, err)}
	case errors.Is(err, keywords.ErrTooLong):
		err = flags.UsageError{Err: err}
	}
	hits := make([]search.Hit, len(found))
	for i, h := range found {
		hits[i] = search.Hit{ID: m.snap.ID(h.Ordinal), Ordinal: h.Ordinal, Score: h.Score}
	}
	return hits, err
}

// hits are results as those of vectors are.
func (m *mixer) hits(ctx context.Context, batch *querySet, i int, ranked []search.RankedHit) ([]search.Hit, error) {
	if batch.high != nil {
		err := search.MatchRanked(ranked, func(o search.Options) ([]search.Hit, error) {
			r, err := m.engine.Search(ctx, batch.qs[i], o)
			if err != nil {
				return nil, err
			}
			return r.Hits, nil
		})
		if err != nil {
			return nil, err
		}
	}
	hits := make([]search.Hit, len(ranked))
	for j := range ranked {
		h := &hits[j]
		*h = ranked[j].Hit
		h.Score = float32(ranked[j].Score)
		if m.wanted.Payload && m.wanted.Group == "" {
			var err error
			if h.Payload, err = m.snap.Payload(h.Ordinal); err != nil {
				return nil, err
			}
		}
	}
	return hits, nil
}

// fused answers queries with both sides; answer searches by vectors, with options that
// it is given, and hands each batch of results over before it is printed. It goes on
// where it was if it is called again.
func (a *app) fused(ctx context.Context, f *flags.Words, q *queries, snap *index.Snapshot, engine search.Searcher, o search.Options,
	answer func(search.Options, func(*querySet, []search.Result) error) error) error {
	m, err := a.mixer(ctx, f, snap, o)
	if err != nil {
		return err
	}
	if err := m.prepare(ctx, q); err != nil {
		return err
	}
	m.engine = engine
	o.K, o.Payload, o.Matches = fuse.Depth(o.K), o.Group != "", false // that is told of what both have brought
	use := func(kw *keywords.Index) error {
		return answer(o, func(batch *querySet, results []search.Result) error { return m.both(ctx, kw, batch, results) })
	}
	if m.run != nil {
		return use(nil)
	}
	return a.withKeywords(ctx, snap, nil, use)
}

// onlyWords searches where there are no vectors. shown, where it is set, makes queries of the texts
// and what finds their words in hits.
func (m *mixer) onlyWords(ctx context.Context, shown func(ids, texts []string, use func(*queries, search.Searcher) error) error, write hitWriter) error {
	ids, texts, err := m.readTexts(ctx)
	if err != nil {
		return err
	}
	if shown != nil {
		return shown(ids, texts, func(q *queries, engine search.Searcher) error {
			m.engine = engine
			return m.search(ctx, ids, texts, q, write)
		})
	}
	return m.search(ctx, ids, texts, nil, write)
}

// search searches for words. asked are the same texts as vectors; nil: they are not needed.
func (m *mixer) search(ctx context.Context, ids, texts []string, asked *queries, write hitWriter) error {
	next := 0 // what is printed is not printed again if the keywords are made anew
	return m.app.withKeywords(ctx, m.snap, nil, func(kw *keywords.Index) error {
		for next < len(ids) {
			end := min(next+batchQueries, len(ids))
			batch := &querySet{}
			if asked != nil {
				var err error
				if batch, err = asked.read(ctx, next, end); err != nil {
					return err
				}
			}
			batch.ids, batch.words = ids[next:end], texts[next:end]
			if m.flags.Texts == "" {
				batch.texts = texts[next:end]
			}
			results := make([]search.Result, end-next)
			for i := range results {
				found, err := m.words(ctx, kw, texts[next+i], m.wanted.K)
				if err == nil {
					results[i].Hits, err = m.hits(ctx, batch, i, search.Ranked(found))
				}
				if err != nil {
					return fmt.Errorf("query %q: %w", batch.label(i), err)
				}
			}
			if err := write(batch, results); err != nil {
				return fmt.Errorf("writing results: %w", err)
			}
			next = end
		}
		return nil
	})
}
