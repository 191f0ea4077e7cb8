package command

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/documents"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
	"github.com/plaid-ir/plaid/search"
)

// tinyGrowth trains collections of some dozens of words.
var tinyGrowth = collection.Growth{Flat: 30, Until: 90, Factor: 1.5}

// goDoor is that of Go programs.
type goDoor struct {
	texts
	path string
	o    plaid.Options
	how  encode.Splitting
	c    *plaid.Collection
}

// tinyModel opens a model that takes each word of these tests for a token.
func tinyModel(t *testing.T, dir string) *encode.Encoder {
	dir = filepath.Join(dir, "model")
	modeltest.Stanford(t, dir)
	e, err := encode.Open(dir, &encode.Options{Threads: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func newGoDoor(t *rapid.T, dir string, model *encode.Encoder) *goDoor {
	config := model.Config()
	d := &goDoor{path: filepath.Join(dir, "x.plaid"), how: encode.Splitting{Model: &config, Window: 4}}
	d.o = plaid.Options{Encoder: model, Passages: &d.how, Growth: tinyGrowth, Bits: 2}
	var err error
	d.c, err = plaid.Create(context.Background(), d.path, &d.o)
	require.NoError(t, err)
	return d
}

func (d *goDoor) changes() map[string]func(*rapid.T, *documents.Model) change {
	ix := func(do func(ctx context.Context, ix *index.Index) error) func(context.Context) error {
		return func(ctx context.Context) error {
			ix, err := d.c.Index()
			if err != nil {
				return err
			}
			return do(ctx, ix)
		}
	}
	return map[string]func(*rapid.T, *documents.Model) change{
		"add":          func(t *rapid.T, _ *documents.Model) change { return d.add(t, false) },
		"update":       func(t *rapid.T, _ *documents.Model) change { return d.add(t, true) },
		"delete":       func(t *rapid.T, _ *documents.Model) change { return d.delete(drawIDs(t, names)) },
		"delete where": func(t *rapid.T, p *documents.Model) change { return d.delete(drawWhere(t, p, names)) },
		"set":          func(t *rapid.T, _ *documents.Model) change { return d.set(t, drawIDs(t, names)) },
		"set where":    func(t *rapid.T, p *documents.Model) change { return d.set(t, drawWhere(t, p, names)) },
		"retrain": nothing(false, ix(func(ctx context.Context, ix *index.Index) error {
			_, err := ix.Retrain(ctx, &index.RetrainOptions{Centroids: 2})
			if errors.Is(err, index.ErrNoTokens) {
				return nil
			}
			return err
		})),
		"compact": nothing(false, ix(func(ctx context.Context, ix *index.Index) error { return ix.Compact(ctx, nil) })),
		"open": nothing(true, func(ctx context.Context) (err error) {
			if err := d.c.Close(); err != nil {
				return err
			}
			d.c, err = plaid.Open(ctx, d.path, &d.o)
			return err
		}),
	}
}

func (d *goDoor) add(t *rapid.T, replace bool) change {
	var docs []plaid.Document
	var arrivals []documents.Arrival
	for range rapid.IntRange(1, 3).Draw(t, "documents") {
		id, n, text := rapid.SampledFrom(names).Draw(t, "id"), rapid.IntRange(1, 10).Draw(t, "n"), d.draw(t)
		docs = append(docs, plaid.Document{ID: id, Text: text, Payload: fmt.Appendf(nil, `{"n":%d}`, n)})
		own, err := partTexts(id, n, text, d.how)
		require.NoError(t, err)
		arrivals = append(arrivals, own...)
	}
	return change{
		apply: func(p *documents.Model) outcome {
			_, err := p.Add(arrivals, documents.Addition{Replace: replace})
			return outcome{Refused: err != nil}
		},
		do: func(ctx context.Context) (outcome, error) {
			store := d.c.Add
			if replace {
				store = d.c.Update
			}
			_, err := store(ctx, docs...)
			return taken(outcome{}, err)
		},
	}
}

func selected(s *selection) plaid.Selection {
	return plaid.Selection{IDs: s.ids, Where: s.where, Args: s.args}
}

func (d *goDoor) delete(s selection) change {
	return change{
		apply: func(p *documents.Model) outcome { return outcome{Affected: s.deletes(p).Affected} },
		do: func(ctx context.Context) (outcome, error) {
			n, err := d.c.Delete(ctx, selected(&s))
			return affected(n, nil, err)
		},
	}
}

func (d *goDoor) set(t *rapid.T, s selection) change {
	n := rapid.IntRange(1, 9).Draw(t, "new n")
	return change{
		apply: func(p *documents.Model) outcome { return outcome{Affected: s.sets(p, n).Affected} },
		do: func(ctx context.Context) (outcome, error) {
			n, err := d.c.UpdatePayload(ctx, selected(&s), map[string]any{"n": n})
			return affected(n, nil, err)
		},
	}
}

func (d *goDoor) parts(ctx context.Context) (parts []documents.Part, err error) {
	ix, err := d.c.Index()
	if err != nil {
		return nil, err
	}
	snap, err := ix.Snapshot()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	return partsOf(ctx, snap)
}

func (d *goDoor) count(ctx context.Context) (docs, passages int, err error) {
	ix, err := d.c.Index()
	if err != nil {
		return 0, 0, err
	}
	snap, err := ix.Snapshot()
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	docs, err = d.c.Len(ctx)
	return docs, int(snap.Passages().GetCardinality()), err
}

func (d *goDoor) find(ctx context.Context, words []string) (ids [][]string, err error) {
	for _, w := range words {
		hits, err := d.c.Search(ctx, plaid.Query{Text: w, Keywords: true, K: 100, Group: plaid.EachPassage})
		if err != nil {
			return nil, err
		}
		var found []string
		for _, h := range hits {
			found = append(found, h.ID)
		}
		ids = append(ids, found)
	}
	return ids, nil
}

func (d *goDoor) grouped(ctx context.Context, how string) (groups []docHit, err error) {
	e, err := d.c.Encoder(ctx)
	if err != nil {
		return nil, err
	}
	v := slices.Repeat([]float32{1}, e.Dim())
	hits, err := d.c.Search(ctx, plaid.Query{Vectors: v, K: 100, Group: search.Grouping(how)})
	for _, h := range hits {
		g := docHit{id: h.ID}
		for _, p := range h.Passages {
			g.passages = append(g.passages, p.ID)
		}
		if len(h.Passages) == 0 { // it is stored as a whole
			g.passages = []string{h.ID}
		}
		groups = append(groups, g)
	}
	return groups, err
}

func (d *goDoor) close() error { return d.c.Close() }
