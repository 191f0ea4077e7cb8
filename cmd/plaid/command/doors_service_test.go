package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http/httptest"
	"strings"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/collection"
	collections "github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/documents"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/vectors"
)

// serviceDoor is that of HTTP.
type serviceDoor struct {
	texts
	dir    string
	store  *collections.Store
	server *server.Server
}

const served = "docs"

func newServiceDoor(t *rapid.T, dir string, p *documents.Model) door {
	ctx, d := context.Background(), &serviceDoor{dir: dir}
	require.NoError(t, d.open(ctx))
	most := uint64(mostMeets)
	_, err := d.store.Create(ctx, served, collection.Config{MaxDocuments: &most, Nbits: 2})
	require.NoError(t, err)
	p.MaxDocuments = mostMeets
	return d
}

func (d *serviceDoor) open(ctx context.Context) (err error) {
	d.store, err = collections.Open(ctx, d.dir, &collections.Options{
		Threads: 1, Growth: tinyGrowth, Derive: collections.DeriveKeywords(nil),
	})
	if err != nil {
		return err
	}
	d.server, err = server.New(d.store.Catalog(), tinyEncoder{}, &server.Options{Limits: server.Limits{Quick: -1, Work: -1}})
	return err
}

// tinyEncoder has a token for each word, and tells no tokens.
type tinyEncoder struct{}

func (tinyEncoder) Dim() int { return tinyDim }

func (tinyEncoder) Config() encode.Config {
	return encode.Config{
		Config:    modeldir.Config{Dir: "tiny", Query: modeldir.Role{Length: 32}, Document: modeldir.Role{Length: 300}},
		Precision: "f32", Fingerprint: "tiny",
	}
}

func (tinyEncoder) Queries(ctx context.Context, texts []string) ([]encode.Embedding, error) {
	all := make([]encode.Embedding, len(texts))
	for i, text := range texts {
		all[i].Vectors = vectorsOf(text, tinyDim)
	}
	return all, ctx.Err()
}

func (tinyEncoder) DocumentsReport(
	_ context.Context, texts iter.Seq2[encode.Text, error], _ *encode.Report,
) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		for text, err := range texts {
			d := vectors.Document{ID: text.ID, Tokens: vectorsOf(text.Full(), tinyDim), Payload: text.Payload}
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

func (tinyEncoder) Tokenize(encode.Role, string) ([]encode.Token, error) { return nil, nil }

// ask sends a request. refused reports that it was refused for an id that is taken.
func (d *serviceDoor) ask(ctx context.Context, method, path string, body, answer any) (refused bool, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return false, err
	}
	r := httptest.NewRequestWithContext(ctx, method, "http://localhost"+path, bytes.NewReader(text))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Prefer", "return=representation")
	w := httptest.NewRecorder()
	d.server.ServeHTTP(w, r)
	says := func(err error) bool { return strings.Contains(w.Body.String(), err.Error()) }
	switch {
	case w.Code >= 400 && w.Code < 500 && (says(index.ErrDuplicateID) || says(index.ErrPassages)):
		return true, nil
	case w.Code >= 300:
		return false, fmt.Errorf("%s %s: %d, %s", method, path, w.Code, w.Body)
	case answer == nil:
		return false, nil
	}
	return false, json.Unmarshal(w.Body.Bytes(), answer)
}

const indexPath = "/indices/" + served

func (d *serviceDoor) changes() map[string]func(*rapid.T, *documents.Model) change {
	return map[string]func(*rapid.T, *documents.Model) change{
		"update":          func(t *rapid.T, _ *documents.Model) change { return d.update(d.drawArrivals(t, names, false)) },
		"update texts":    func(t *rapid.T, _ *documents.Model) change { return d.updateTexts(t, 0) },
		"update passages": func(t *rapid.T, _ *documents.Model) change { return d.updateTexts(t, 4) },
		"delete":          func(t *rapid.T, _ *documents.Model) change { return d.delete(drawIDs(t, names)) },
		"delete where":    func(t *rapid.T, p *documents.Model) change { return d.delete(drawWhere(t, p, names)) },
		"delete numbers":  d.deleteNumbers,
		"set":             func(t *rapid.T, _ *documents.Model) change { return d.set(t, drawIDs(t, names)) },
		"set where":       func(t *rapid.T, p *documents.Model) change { return d.set(t, drawWhere(t, p, names)) },
		"most": func(t *rapid.T, _ *documents.Model) change {
			most := rapid.IntRange(1, mostMeets+1).Draw(t, "most")
			return change{
				once:  true, // no answer tells which one of two came last
				apply: func(p *documents.Model) outcome { p.MaxDocuments = most; return outcome{} },
				do: func(ctx context.Context) (outcome, error) {
					_, err := d.ask(ctx, "PUT", indexPath+"/config", map[string]any{"max_documents": most}, nil)
					return outcome{}, err
				},
			}
		},
		"open": func(*rapid.T, *documents.Model) change { // which deletes what an update has left beyond the limit
			return change{
				alone: true, apply: func(p *documents.Model) outcome { p.Evict(); return outcome{} },
				do: func(ctx context.Context) (outcome, error) { return outcome{}, errors.Join(d.close(), d.open(ctx)) },
			}
		},
	}
}

// stores is the change of an update.
func (d *serviceDoor) stores(arrivals []documents.Arrival, path string, body any) change {
	return change{
		apply: func(p *documents.Model) outcome {
			r, err := p.Add(arrivals, documents.Addition{Replace: true})
			return outcome{Refused: err != nil, Report: documents.Report{
				Docs: r.Docs, Passages: r.Passages, Replaced: r.Replaced, Evicted: r.Evicted,
			}}
		},
		do: func(ctx context.Context) (o outcome, err error) {
			var answer struct {
				Numbers                                []uint64 `json:"document_ids"`
				Documents, Passages, Replaced, Evicted int
			}
			o.Refused, err = d.ask(ctx, "POST", indexPath+path, body, &answer)
			if err == nil && !o.Refused && len(answer.Numbers) != len(arrivals) {
				err = fmt.Errorf("%d numbers for %d parts", len(answer.Numbers), len(arrivals))
			}
			o.Report = documents.Report{
				Docs: answer.Documents, Passages: answer.Passages, Replaced: answer.Replaced, Evicted: answer.Evicted,
			}
			return o, err
		},
	}
}

func rowsOf(v []float32) (rows [][]float32) {
	for i := 0; i < len(v); i += tinyDim {
		rows = append(rows, v[i:i+tinyDim])
	}
	return rows
}

func (d *serviceDoor) update(arrivals []documents.Arrival) change {
	var docs, metadata []any
	for _, a := range arrivals {
		docs = append(docs, map[string]any{"embeddings": rowsOf(vectorsOf(a.Text, tinyDim))})
		m := map[string]any{"_id": a.ID, "n": a.N, "text": a.Text}
		if a.Of != "" {
			_, n := vectors.SplitPassageID(a.ID)
			m[vectors.PassageField] = vectors.Passage{ParentID: a.Of, Number: n, Start: n, End: n + 1}
		}
		metadata = append(metadata, m)
	}
	return d.stores(arrivals, "/update", map[string]any{"documents": docs, "metadata": metadata})
}

func (d *serviceDoor) updateTexts(t *rapid.T, window int) change {
	body := map[string]any{"text_field": "text"}
	var docs []string
	var metadata []any
	var arrivals []documents.Arrival
	for range rapid.IntRange(1, 3).Draw(t, "documents") {
		id, n, text := rapid.SampledFrom(names).Draw(t, "id"), rapid.IntRange(1, 9).Draw(t, "n"), d.draw(t)
		docs, metadata = append(docs, text), append(metadata, map[string]any{"_id": id, "n": n})
		own := []documents.Arrival{{Part: documents.Part{ID: id, N: n, Text: text}}}
		if window > 0 {
			var err error
			own, err = partTexts(id, n, text, encode.Splitting{Window: window})
			require.NoError(t, err)
			body["window"] = window
		}
		arrivals = append(arrivals, own...)
	}
	body["documents"], body["metadata"] = docs, metadata
	return d.stores(arrivals, "/update_with_encoding", body)
}

// selected is a selection in a body.
func (d *serviceDoor) selected(s *selection) map[string]any {
	if s.ids != nil {
		return map[string]any{"ids": s.ids}
	}
	return map[string]any{"condition": s.where, "parameters": s.args}
}

// changed asks for a change of a selection. Nothing can be chosen as long as nothing was stored,
// and a condition over a field that no document has chooses nothing.
func (d *serviceDoor) changed(ctx context.Context, method, path string, body map[string]any) (o outcome, err error) {
	var answer struct{ Deleted, Updated, Passages int }
	_, err = d.ask(ctx, method, indexPath+path, body, &answer)
	for _, none := range []string{string(server.CodeIndexNotFound), condition.ErrUnknownField.Error()} {
		if err != nil && strings.Contains(err.Error(), none) {
			err = nil
		}
	}
	o.Affected = documents.Affected{Documents: answer.Deleted + answer.Updated, Passages: answer.Passages}
	return o, err
}

func (d *serviceDoor) delete(s selection) change {
	return change{
		apply: func(p *documents.Model) outcome { return outcome{Affected: s.deletes(p).Affected} },
		do: func(ctx context.Context) (outcome, error) {
			return d.changed(ctx, "DELETE", "/documents", d.selected(&s))
		},
	}
}

// deleteNumbers deletes some of what is there by numbers, which mean nothing else later.
func (d *serviceDoor) deleteNumbers(t *rapid.T, p *documents.Model) change {
	numbers, gone := []uint64{1 << 20}, map[string]bool{}
	stored, err := d.stored(context.Background())
	require.NoError(t, err)
	for i := range stored {
		if rapid.IntRange(0, 2).Draw(t, "number") == 0 {
			numbers = append(numbers, stored[i].number)
			gone[stored[i].Text] = true
		}
	}
	return change{
		apply: func(p *documents.Model) outcome {
			return outcome{Affected: p.Delete(func(part *documents.Part) bool { return gone[part.Text] })}
		},
		do: func(ctx context.Context) (outcome, error) {
			return d.changed(ctx, "DELETE", "/documents", map[string]any{"document_ids": numbers})
		},
	}
}

func (d *serviceDoor) set(t *rapid.T, s selection) change {
	n := rapid.IntRange(1, 9).Draw(t, "new n")
	body := d.selected(&s)
	body["updates"] = map[string]any{"n": n}
	return change{
		apply: func(p *documents.Model) outcome { return outcome{Affected: s.sets(p, n).Affected} },
		do: func(ctx context.Context) (outcome, error) {
			return d.changed(ctx, "POST", "/metadata/update", body)
		},
	}
}

type storedPart struct {
	documents.Part
	number uint64
}

// empty reports whether nothing was stored yet.
func (d *serviceDoor) empty(ctx context.Context) (bool, error) {
	c, err := d.store.Get(served)
	if err != nil {
		return false, err
	}
	v, err := c.Snapshot(ctx)
	if errors.Is(err, collection.ErrEmpty) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	return false, v.Close()
}

func (d *serviceDoor) stored(ctx context.Context) (all []storedPart, err error) {
	if none, err := d.empty(ctx); none || err != nil {
		return nil, err
	}
	var answer struct{ Metadata []json.RawMessage }
	if _, err := d.ask(ctx, "GET", indexPath+"/metadata", nil, &answer); err != nil {
		return nil, err
	}
	for _, m := range answer.Metadata {
		var keys struct {
			ID     string `json:"_id"`
			Number uint64 `json:"_subset_"`
		}
		if err := json.Unmarshal(m, &keys); err != nil {
			return nil, err
		}
		part, err := partOf(keys.ID, m)
		if err != nil {
			return nil, err
		}
		all = append(all, storedPart{part, keys.Number})
	}
	return all, nil
}

func (d *serviceDoor) parts(ctx context.Context) (parts []documents.Part, err error) {
	stored, err := d.stored(ctx)
	for i := range stored {
		parts = append(parts, stored[i].Part)
	}
	return parts, err
}

func (d *serviceDoor) count(ctx context.Context) (docs, passages int, err error) {
	c, err := d.store.Get(served)
	if err != nil {
		return 0, 0, err
	}
	stats, err := c.Stats(ctx)
	return int(stats.Documents), int(stats.Passages), err
}

// foundDocs is an answer to searches.
type foundDocs struct {
	Results []struct {
		IDs      []string
		Passages [][]struct{ ID string }
	}
}

func (d *serviceDoor) find(ctx context.Context, words []string) (ids [][]string, err error) {
	if none, err := d.empty(ctx); none || err != nil {
		return make([][]string, len(words)), err
	}
	var answer foundDocs
	body := map[string]any{"text_query": words, "metadata": false, "params": map[string]any{"top_k": 100}}
	_, err = d.ask(ctx, "POST", indexPath+"/search", body, &answer)
	for _, r := range answer.Results {
		ids = append(ids, r.IDs)
	}
	return ids, err
}

func (d *serviceDoor) grouped(ctx context.Context, how string) (groups []docHit, err error) {
	if none, err := d.empty(ctx); none || err != nil {
		return nil, err
	}
	var answer foundDocs
	query := map[string]any{"embeddings": rowsOf(vectorsOf("a question", tinyDim))}
	body := map[string]any{
		"queries": []any{query}, "group": how, "metadata": false, "params": map[string]any{"top_k": 100},
	}
	if _, err := d.ask(ctx, "POST", indexPath+"/search", body, &answer); err != nil {
		return nil, err
	}
	for _, r := range answer.Results {
		for i, id := range r.IDs {
			g := docHit{id: id}
			for _, p := range r.Passages[i] {
				g.passages = append(g.passages, p.ID)
			}
			groups = append(groups, g)
		}
	}
	return groups, nil
}

func (d *serviceDoor) close() error { return d.store.Close(context.Background()) }
