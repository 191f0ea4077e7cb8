package index

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/documents"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/vectors"
)

// pictured is what a picture knows of a document with the payload of a round.
func pictured(t tb, id string, payload []byte) documents.Part {
	var p struct{ Round int }
	if payload != nil {
		require.NoError(t, json.Unmarshal(payload, &p))
	}
	part := documents.Part{ID: id, N: p.Round}
	passage, err := vectors.PassageFromPayload(id, payload)
	require.NoError(t, err)
	if passage != nil {
		part.Of = passage.ParentID
	}
	return part
}

func arrivalsOf(t tb, docs []vectors.Document) []documents.Arrival {
	all := make([]documents.Arrival, len(docs))
	for i, d := range docs {
		all[i] = documents.Arrival{Part: pictured(t, d.ID, d.Payload), Bare: d.Payload == nil}
	}
	return all
}

// checkDocuments compares what is there with a picture. A document is in one file.
func checkDocuments(t *rapid.T, snaps []*Snapshot, p *documents.Model) {
	var got []documents.Part
	names := map[string][]string{} // ids by document
	count := 0
	for _, s := range snaps {
		require.NoError(t, s.Verify(t.Context()))
		count += s.Documents()
		for o := range s.State().Docs {
			if !s.Live(o) {
				continue
			}
			part := pictured(t, s.ID(o), mustPayload(t, s, o))
			require.Equal(t, part.Of != "", s.Passages().Contains(o))
			names[s.DocumentOf(o)] = append(names[s.DocumentOf(o)], s.ID(o))
			got = append(got, part)
		}
	}
	want := slices.Clone(p.Parts)
	if len(snaps) > 1 { // there is no order
		for _, parts := range [][]documents.Part{got, want} {
			slices.SortFunc(parts, func(a, b documents.Part) int { return strings.Compare(a.ID, b.ID) })
		}
	}
	require.True(t, slices.Equal(want, got), "want %v, got %v", want, got)
	require.Equal(t, len(names), count)
	for name, ids := range names {
		var found []string
		for _, s := range snaps {
			parts, err := s.PassagesOf(name)
			require.NoError(t, err)
			if len(parts) > 0 {
				require.Empty(t, found, "document %s is in several files", name)
			}
			for _, o := range parts {
				found = append(found, s.ID(o))
			}
		}
		require.Equal(t, ids, found)
	}
	for i := range want {
		for _, s := range snaps {
			if want[i].Of != "" {
				parts, err := s.PassagesOf(want[i].ID)
				require.NoError(t, err)
				require.Empty(t, parts, "a passage is no document")
			}
		}
	}
}

// documentsModel is an index, or with set the files of a set, and a picture of it.
type documentsModel struct {
	*rapid.T
	p         documents.Model
	dir, path string
	ix        *Index
	set       *Shards
	round     int
}

// modelNames look like ids of passages.
var modelNames = []string{
	"a", "b", "c#7", "d", `"e" a longer name than forty bytes, which runs cut off`, "d#1", "b#0", "b#0#0",
}

// Random changes of documents against a picture of what should be there, in runs and stages of a
// few documents. Their ids look like those of passages.
func TestDocumentsModel(t *testing.T) {
	small(t)
	ram, runs := testenv.RAMDir(t), 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		m := &documentsModel{T: t, dir: filepath.Join(ram, fmt.Sprint("m", runs))}
		m.path = m.dir + ".plaid"
		seed := longer(t, 0, map[string]int{"c#7": 0, "c": 0, "x": 0}) // c#7 is no passage of c
		_, err := m.p.Add(arrivalsOf(t, seed), documents.Addition{})
		require.NoError(t, err)
		_, err = Build(t.Context(), m.path, fromDocs(t, 4, seed), &BuildOptions{Centroids: 2, Nbits: 2})
		require.NoError(t, err)
		m.ix, err = Open(t.Context(), m.path, &Options{Write: true})
		require.NoError(t, err)
		defer func() {
			if m.set != nil {
				require.NoError(t, m.set.Close())
			} else {
				require.NoError(t, m.ix.Close())
			}
		}()
		for m.round = 1; m.round <= 12; m.round++ {
			m.step()
			if m.set != nil {
				snap, err := m.set.Snapshot()
				require.NoError(t, err)
				checkDocuments(t, snap.Snapshots(), &m.p)
				require.NoError(t, snap.Close())
				continue
			}
			snap := taken(t, m.ix)
			checkDocuments(t, []*Snapshot{snap}, &m.p)
			require.NoError(t, snap.Close())
		}
	})
}

// one is an id of something that is there.
func (m *documentsModel) one() string { return rapid.SampledFrom(m.p.Parts).Draw(m.T, "part").ID }

func (m *documentsModel) name(what string) string {
	return rapid.SampledFrom(modelNames).Draw(m.T, what)
}

// step makes a change.
func (m *documentsModel) step() {
	type changer interface {
		Delete(ctx context.Context, ids []string) (Affected, []string, error)
		DeleteWhere(ctx context.Context, where *condition.Condition) (Affected, error)
		UpdatePayload(ctx context.Context, where *condition.Condition, set condition.Fields) (Affected, error)
		UpdateByID(ctx context.Context, ids []string, set condition.Fields) (Affected, []string, error)
	}
	var change changer = m.ix
	if m.set != nil {
		change = m.set
	}
	rounds := func(n int) condition.Fields { return condition.Fields{"round": json.RawMessage(fmt.Sprint(n))} }
	ctx := m.Context()
	ops := []string{"add", "add", "replace", "replace", "keep", "most", "delete", "where", "set", "name"}
	if m.set == nil {
		ops = append(ops, "compact", "retrain", "open")
	}
	if len(m.p.Parts) > 0 {
		ops = append(ops, "passage")
		if m.set == nil {
			ops = append(ops, "set one", "split")
		}
	}
	switch op := rapid.SampledFrom(ops).Draw(m.T, "op"); op {
	case "add", "replace", "keep", "most":
		m.add(op)
	case "delete":
		ids := []string{"nobody", m.name("of"), "x"}
		chosen, missing := m.p.Select(ids...)
		n := m.p.Delete(chosen)
		deleted, gotMissing, err := change.Delete(ctx, ids)
		require.NoError(m, err)
		require.Equal(m, n, documents.Affected(deleted))
		require.Equal(m, missing, gotMissing)
	case "passage":
		id := m.one()
		n := m.p.Delete(func(part *documents.Part) bool { return part.ID == id })
		deleted, err := change.DeleteWhere(ctx, bind(m, "_id = ?", id))
		require.NoError(m, err)
		require.Equal(m, n, documents.Affected(deleted))
	case "where":
		of := m.name("where")
		chosen, _ := m.p.Select(of)
		n := m.p.Delete(chosen)
		deleted, err := change.DeleteWhere(ctx, bind(m, "_id = ? OR _passage.of = ?", of, of))
		require.NoError(m, err)
		require.Equal(m, n, documents.Affected(deleted))
	case "set":
		all := bind(m, "1=1")
		n, err := change.UpdatePayload(ctx, all, rounds(100+m.round))
		require.NoError(m, err)
		require.Equal(m, m.p.Set(func(*documents.Part) bool { return true }, 100+m.round), documents.Affected(n))
		for _, key := range []string{"_Passage", "_subset_", "_Content_ID_", "_id"} {
			_, err = change.UpdatePayload(ctx, all, condition.Fields{key: json.RawMessage(`1`)})
			require.ErrorIs(m, err, ErrOption, key)
		}
	case "name":
		of := m.name("name")
		n, missing, err := change.UpdateByID(ctx, []string{of}, rounds(300+m.round))
		require.NoError(m, err)
		chosen, gone := m.p.Select(of)
		require.Equal(m, m.p.Set(chosen, 300+m.round), documents.Affected(n))
		require.Equal(m, gone, missing)
	case "set one":
		id := m.one()
		_, _, err := m.ix.SetPayload(ctx, map[string][]byte{id: fmt.Appendf(nil, `{"round":%d}`, 200+m.round)})
		require.NoError(m, err)
		m.p.Set(func(part *documents.Part) bool { return part.ID == id }, 200+m.round)
	case "compact":
		require.NoError(m, m.ix.Compact(ctx, nil))
	case "retrain":
		_, err := m.ix.Retrain(ctx, &RetrainOptions{Centroids: 2})
		if len(m.p.Parts) == 0 {
			require.ErrorIs(m, err, ErrNoTokens)
		} else {
			require.NoError(m, err)
		}
	case "split":
		m.split()
	case "open":
		require.NoError(m, m.ix.Close())
		var err error
		m.ix, err = Open(ctx, m.path, &Options{Write: true})
		require.NoError(m, err)
	}
}

// add adds documents, or those that replace others.
func (m *documentsModel) add(op string) {
	draw := map[string]int{}
	for range rapid.IntRange(1, 3).Draw(m.T, "documents") {
		draw[m.name("of")] = rapid.IntRange(0, 5).Draw(m.T, "passages")
	}
	docs := longer(m, m.round, draw)
	ids := map[string]bool{}
	for i := range docs {
		ids[docs[i].ID] = true
		if op == "keep" && rapid.Bool().Draw(m.T, "bare") {
			docs[i].Payload = nil
		}
	}
	if len(ids) < len(docs) {
		return // an id is twice in the source, which it refuses itself
	}
	o := AddOptions{Replace: op != "add", KeepPayload: op == "keep"}
	if op == "most" && m.set == nil {
		m.p.MaxDocuments = rapid.IntRange(1, 3).Draw(m.T, "most")
		most := uint64(m.p.MaxDocuments)
		o.MaxDocuments = &most
	}
	if rapid.Bool().Draw(m.T, "delete") {
		o.Delete = []string{"x", m.name("deleted"), "nobody"}
	}
	want, refused := m.p.Add(arrivalsOf(m, docs), documents.Addition{Replace: o.Replace, Delete: o.Delete})
	m.p.MaxDocuments = 0
	var r AddReport
	var err error
	if src := fromDocs(m, 4, docs); m.set == nil {
		var of *AddReport
		if of, err = m.ix.Add(m.Context(), src, &o); err == nil {
			r = *of
		}
	} else {
		var of *ShardsAddReport
		if of, err = m.set.Add(m.Context(), src, &o); err == nil {
			r = of.AddReport
		}
	}
	if refused != nil {
		require.True(m, errors.Is(err, ErrDuplicateID) || errors.Is(err, ErrPassages), "%v", err)
		return
	}
	require.NoError(m, err)
	require.Equal(m, want, documents.Report{
		Docs: r.Docs, Replaced: r.Replaced, Passages: r.Passages, Deleted: r.Deleted, Evicted: r.Evicted,
	})
}

// split goes on with several files.
func (m *documentsModel) split() {
	snap := taken(m, m.ix)
	how := rapid.SampledFrom([]SplitBy{ByHash, ByRange}).Draw(m.T, "how")
	parts, err := Split(m.Context(), snap, m.dir, 3, how, nil)
	require.NoError(m, err)
	var paths []string
	for _, p := range parts {
		paths = append(paths, p.Path)
	}
	require.NoError(m, errors.Join(snap.Close(), m.ix.Close()))
	m.set, err = OpenShards(m.Context(), paths, &Options{Write: true})
	require.NoError(m, err)
}
