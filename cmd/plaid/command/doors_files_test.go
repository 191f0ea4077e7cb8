package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/documents"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/keywords"
	"github.com/plaid-ir/plaid/vectors"
)

// filesDoor is that of an index file, or of several.
type filesDoor struct {
	texts
	paths []string
	names []string // of documents
	dim   int
	ix    *index.Index // nil means several
	set   *index.Shards
}

// newFileDoor makes an index file. "page#1" is no passage of "page" there.
func newFileDoor(t *rapid.T, dir string, p *documents.Model) door {
	d := &filesDoor{paths: []string{filepath.Join(dir, "x.plaid")}, names: names, dim: tinyDim}
	var all []documents.Arrival
	for _, id := range []string{"page", "page#1", "x"} {
		all = append(all, documents.Arrival{Part: documents.Part{ID: id, N: 1, Text: d.draw(t)}})
	}
	_, err := p.Add(all, documents.Addition{})
	require.NoError(t, err)
	src, err := sourceOf(all, d.dim)
	require.NoError(t, err)
	_, err = index.Build(context.Background(), d.paths[0], src, &index.BuildOptions{Centroids: 2, Nbits: 2})
	require.NoError(t, err)
	require.NoError(t, d.open(context.Background()))
	return d
}

// newFilesDoor splits an index file into three.
func newFilesDoor(t *rapid.T, dir string, p *documents.Model) door {
	ctx, one := context.Background(), newFileDoor(t, dir, p).(*filesDoor)
	snap, err := one.ix.Snapshot()
	require.NoError(t, err)
	how := rapid.SampledFrom([]index.SplitBy{index.ByHash, index.ByRange}).Draw(t, "how")
	parts, err := index.Split(ctx, snap, filepath.Join(dir, "several"), 3, how, nil)
	require.NoError(t, err)
	require.NoError(t, errors.Join(snap.Close(), one.close()))
	d := &severalDoor{filesDoor{texts: one.texts, names: one.names, dim: one.dim}}
	for _, part := range parts {
		d.paths = append(d.paths, part.Path)
	}
	require.NoError(t, d.open(ctx))
	return d
}

// severalDoor is that of several files, which have no order of documents.
type severalDoor struct{ filesDoor }

func (d *severalDoor) sorted() {}

func (d *severalDoor) parts(ctx context.Context) ([]documents.Part, error) {
	parts, err := d.filesDoor.parts(ctx)
	return arranged(d, parts), err
}

func (d *filesDoor) open(ctx context.Context) (err error) {
	if o := (&index.Options{Write: true}); len(d.paths) == 1 {
		d.ix, err = index.Open(ctx, d.paths[0], o)
	} else {
		d.set, err = index.OpenShards(ctx, d.paths, o)
	}
	return err
}

// sourceOf has vectors and payloads of parts.
func sourceOf(arrivals []documents.Arrival, dim int) (vectors.Source, error) {
	docs := make([]vectors.Document, len(arrivals))
	for i, a := range arrivals {
		docs[i] = vectors.Document{ID: a.ID, Tokens: vectorsOf(a.Text, dim)}
		if a.Bare {
			continue
		}
		payload, err := payloadOfPart(&a.Part)
		if err != nil {
			return nil, err
		}
		docs[i].Payload = payload
	}
	return vectors.FromDocuments(dim, docs)
}

func payloadOfPart(part *documents.Part) ([]byte, error) {
	payload, err := json.Marshal(map[string]any{"n": part.N, "text": part.Text})
	if err != nil || part.Of == "" {
		return payload, err
	}
	_, n := vectors.SplitPassageID(part.ID)
	own := vectors.Passage{ParentID: part.Of, Number: n, Start: 10 * n, End: 10*n + 10}
	return own.Payload(payload)
}

// drawArrivals draws documents, some in passages whose numbers have gaps. With bare some parts come
// without a payload.
func (x *texts) drawArrivals(t *rapid.T, names []string, bare bool) (arrivals []documents.Arrival) {
	for range rapid.IntRange(1, 3).Draw(t, "documents") {
		whole := documents.Part{ID: rapid.SampledFrom(names).Draw(t, "id"), N: rapid.IntRange(1, 9).Draw(t, "n")}
		n := rapid.IntRange(0, 3).Draw(t, "passages")
		for i := range max(1, n) {
			part := whole
			if part.Text = x.draw(t); n > 0 {
				part.Of, part.ID = whole.ID, fmt.Sprintf("%s#%d", whole.ID, i)
			}
			arrivals = append(arrivals, documents.Arrival{Part: part, Bare: bare && rapid.Bool().Draw(t, "bare")})
		}
	}
	return arrivals
}

// changer is what an index and a set have in common.
type changer interface {
	Delete(ctx context.Context, ids []string) (index.Affected, []string, error)
	DeleteWhere(ctx context.Context, where *condition.Condition) (index.Affected, error)
	UpdatePayload(ctx context.Context, where *condition.Condition, set condition.Fields) (index.Affected, error)
	UpdateByID(ctx context.Context, ids []string, set condition.Fields) (index.Affected, []string, error)
}

func (d *filesDoor) changer() changer {
	if d.ix != nil {
		return d.ix
	}
	return d.set
}

func (d *filesDoor) changes() map[string]func(*rapid.T, *documents.Model) change {
	all := map[string]func(*rapid.T, *documents.Model) change{
		"add":          func(t *rapid.T, _ *documents.Model) change { return d.add(t, false, false, 0) },
		"replace":      func(t *rapid.T, _ *documents.Model) change { return d.add(t, true, false, 0) },
		"keep":         func(t *rapid.T, _ *documents.Model) change { return d.add(t, true, true, 0) },
		"delete":       func(t *rapid.T, _ *documents.Model) change { return d.delete(drawIDs(t, d.names)) },
		"delete where": func(t *rapid.T, p *documents.Model) change { return d.delete(drawWhere(t, p, d.names)) },
		"set":          func(t *rapid.T, _ *documents.Model) change { return d.setN(t, drawIDs(t, d.names)) },
		"set where":    func(t *rapid.T, p *documents.Model) change { return d.setN(t, drawWhere(t, p, d.names)) },
		"open":         nothing(true, func(ctx context.Context) error { return errors.Join(d.close(), d.open(ctx)) }),
	}
	if d.ix == nil {
		return all
	}
	all["most"] = func(t *rapid.T, _ *documents.Model) change { return d.add(t, true, false, mostMeets) }
	all["most, keep"] = func(t *rapid.T, _ *documents.Model) change { return d.add(t, true, true, mostMeets) }
	all["compact"] = nothing(false, func(ctx context.Context) error { return d.ix.Compact(ctx, nil) })
	all["retrain"] = nothing(false, func(ctx context.Context) error {
		_, err := d.ix.Retrain(ctx, &index.RetrainOptions{Centroids: 2})
		if errors.Is(err, index.ErrNoTokens) {
			return nil
		}
		return err
	})
	return all
}

func (d *filesDoor) add(t *rapid.T, replace, keep bool, most int) change {
	arrivals := d.drawArrivals(t, d.names, keep)
	o := index.AddOptions{Replace: replace, KeepPayload: keep}
	if rapid.Bool().Draw(t, "delete") {
		o.Delete = []string{"x", rapid.SampledFrom(d.names).Draw(t, "deleted"), "nobody"}
	}
	if limit := uint64(most); most > 0 {
		o.MaxDocuments = &limit
	}
	return change{
		apply: func(p *documents.Model) outcome {
			p.MaxDocuments = most
			r, err := p.Add(arrivals, documents.Addition{Replace: replace, Delete: o.Delete})
			p.MaxDocuments = 0
			return outcome{Refused: err != nil, Report: r}
		},
		do: func(ctx context.Context) (outcome, error) {
			src, err := sourceOf(arrivals, d.dim)
			if err != nil { // an id is twice in it, which a source refuses itself
				return outcome{Refused: errors.Is(err, vectors.ErrID)}, nil
			}
			var r *index.AddReport
			if d.ix != nil {
				r, err = d.ix.Add(ctx, src, &o)
			} else if of, oerr := d.set.Add(ctx, src, &o); oerr != nil {
				err = oerr
			} else {
				r = &of.AddReport
			}
			if err != nil {
				return taken(outcome{}, err)
			}
			return outcome{Report: documents.Report{
				Docs: r.Docs, Replaced: r.Replaced, Passages: r.Passages, Deleted: r.Deleted, Evicted: r.Evicted,
			}}, nil
		},
	}
}

func (d *filesDoor) delete(s selection) change {
	return change{apply: s.deletes, do: func(ctx context.Context) (outcome, error) {
		if s.ids != nil {
			return affected(d.changer().Delete(ctx, s.ids))
		}
		where, err := s.condition()
		if err != nil {
			return outcome{}, err
		}
		n, err := d.changer().DeleteWhere(ctx, where)
		return affected(n, nil, err)
	}}
}

func (d *filesDoor) setN(t *rapid.T, s selection) change {
	n := rapid.IntRange(1, 9).Draw(t, "new n")
	fields := condition.Fields{"n": json.RawMessage(fmt.Sprint(n))}
	return change{
		apply: func(p *documents.Model) outcome { return s.sets(p, n) },
		do: func(ctx context.Context) (outcome, error) {
			if s.ids != nil {
				return affected(d.changer().UpdateByID(ctx, s.ids, fields))
			}
			where, err := s.condition()
			if err != nil {
				return outcome{}, err
			}
			n, err := d.changer().UpdatePayload(ctx, where, fields)
			return affected(n, nil, err)
		},
	}
}

// snapshots shows what is there.
func (d *filesDoor) snapshots(show func(...*index.Snapshot) error) error {
	if d.ix != nil {
		snap, err := d.ix.Snapshot()
		if err != nil {
			return err
		}
		return errors.Join(show(snap), snap.Close())
	}
	snap, err := d.set.Snapshot()
	if err != nil {
		return err
	}
	return errors.Join(show(snap.Snapshots()...), snap.Close())
}

func (d *filesDoor) parts(ctx context.Context) (parts []documents.Part, err error) {
	err = d.snapshots(func(snaps ...*index.Snapshot) (err error) {
		parts, err = partsOf(ctx, snaps...)
		return err
	})
	return parts, err
}

func (d *filesDoor) count(context.Context) (docs, passages int, err error) {
	err = d.snapshots(func(snaps ...*index.Snapshot) error {
		for _, s := range snaps {
			docs += s.Documents()
			passages += int(s.Passages().GetCardinality())
		}
		return nil
	})
	return docs, passages, err
}

func (d *filesDoor) find(ctx context.Context, words []string) (ids [][]string, err error) {
	ids = make([][]string, len(words))
	err = d.snapshots(func(snaps ...*index.Snapshot) error {
		for _, s := range snaps {
			if err := findIn(ctx, s, words, ids); err != nil {
				return err
			}
		}
		return nil
	})
	return ids, err
}

// findIn adds the hits of words in one file.
func findIn(ctx context.Context, s *index.Snapshot, words []string, ids [][]string) (err error) {
	kw, err := keywords.Open(ctx, keywords.Path(s.Path()), &keywords.Options{Write: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kw.Close()) }()
	if err := kw.Sync(ctx, s); err != nil {
		return err
	}
	for i, w := range words {
		hits, err := kw.Search(ctx, keywords.Query{Text: w, K: 100})
		if err != nil {
			return err
		}
		for _, h := range hits {
			ids[i] = append(ids[i], s.ID(h.Ordinal))
		}
	}
	return nil
}

func (d *filesDoor) grouped(ctx context.Context, how string) (groups []docHit, err error) {
	var s search.Searcher
	if d.ix != nil {
		s, err = search.New(ctx, d.ix, &search.EngineOptions{Threads: 1})
	} else {
		s, err = search.NewMulti(ctx, d.set, &search.MultiOptions{Threads: 1})
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return groupsOf(ctx, s, d.dim, how)
}

// groupsOf are documents that a searcher finds.
func groupsOf(ctx context.Context, s search.Searcher, dim int, how string) (groups []docHit, err error) {
	q := search.Query{Vectors: make([]float32, dim), Dim: dim}
	q.Vectors[0] = 1
	r, err := s.Search(ctx, q, search.Options{K: 100, Group: search.Grouping(how), Passages: 3})
	if err != nil {
		return nil, err
	}
	for _, h := range r.Hits {
		g := docHit{id: h.ID}
		for _, p := range h.Passages {
			g.passages = append(g.passages, p.ID)
		}
		groups = append(groups, g)
	}
	return groups, nil
}

func (d *filesDoor) close() error {
	if d.ix != nil {
		return d.ix.Close()
	}
	return d.set.Close()
}
