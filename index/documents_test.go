package index

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// longer are documents of passages, n of each; of 0 the document itself.
func longer(t tb, round int, passages map[string]int) (docs []vectors.Document) {
	rng := 0
	for _, of := range slices.Sorted(maps.Keys(passages)) {
		rng++
		plain := fmt.Appendf(nil, `{"round":%d}`, round)
		if passages[of] == 0 {
			docs = append(docs, vectors.Document{ID: of, Tokens: []float32{1, 2, 3, float32(rng)}, Payload: plain})
		}
		for n := range passages[of] {
			p := vectors.Passage{Of: of, Number: n, Start: 10 * n, End: 10*n + 10}
			payload, err := p.Payload(plain)
			require.NoError(t, err)
			docs = append(docs, vectors.Document{ID: p.ID(), Tokens: []float32{1, float32(n), 3, float32(rng)}, Payload: payload})
		}
	}
	return docs
}

func bind(t tb, text string, params ...any) *condition.Condition {
	e, err := condition.Parse(text)
	require.NoError(t, err)
	c, err := e.Bind(params...)
	require.NoError(t, err)
	return c
}

// held is a document of a picture: when it came, and of which one it is a passage.
type held struct {
	round int
	of    string
}

// notes puts documents of a round into a picture.
func notes(t tb, want map[string]held, docs []vectors.Document, round int) {
	for _, d := range docs {
		h := held{round: round}
		p, err := vectors.PassageOf(d.ID, d.Payload)
		require.NoError(t, err)
		if p != nil {
			h.of = p.Of
		}
		want[d.ID] = h
	}
}

// checkDocuments compares what is there with a picture. A document is in one file.
func checkDocuments(t *rapid.T, snaps []*Snapshot, want map[string]held) {
	got := map[string]held{}
	names := map[string][]string{} // ids by document
	for _, s := range snaps {
		for o := range s.State().Docs {
			if !s.Live(o) {
				continue
			}
			var p struct{ Round int }
			raw := mustPayload(t, s, o)
			require.NoError(t, json.Unmarshal(raw, &p))
			require.NotContains(t, got, s.ID(o))
			notes(t, got, []vectors.Document{{ID: s.ID(o), Payload: raw}}, p.Round)
			require.Equal(t, got[s.ID(o)].of != "", s.Passages().Contains(o))
			names[s.DocumentOf(o)] = append(names[s.DocumentOf(o)], s.ID(o))
		}
	}
	require.Equal(t, want, got)
	documents := 0
	for _, s := range snaps {
		documents += s.Documents()
	}
	require.Equal(t, len(names), documents)
	for name, ids := range names {
		var found []string
		for _, s := range snaps {
			parts, err := s.Parts(name)
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
	for id, h := range want {
		if h.of == "" {
			continue
		}
		for _, s := range snaps {
			parts, err := s.Parts(id)
			require.NoError(t, err)
			require.Empty(t, parts, "a passage is no document")
		}
	}
}

func mustPayload(t tb, s *Snapshot, o uint32) []byte {
	if !s.Live(o) {
		return nil
	}
	p, err := s.Payload(o)
	require.NoError(t, err)
	return p
}

// admitted is the picture after documents were added, and those that they replaced; ok is false if they
// have to be refused.
func admitted(want map[string]held, docs []vectors.Document, came map[string]held, replace bool) (after map[string]held, replaced map[string]bool, ok bool) {
	claims := map[string]bool{}
	last := ""
	for _, d := range docs {
		ids := []string{d.ID}
		if of := came[d.ID].of; of != "" && of != last {
			ids = append(ids, of)
		}
		last = came[d.ID].of
		for _, id := range ids {
			if claims[id] {
				return nil, nil, false
			}
			claims[id] = true
		}
	}
	after, replaced = maps.Clone(want), map[string]bool{}
	for id, h := range want {
		name := cmp.Or(h.of, id)
		for _, d := range docs {
			if cmp.Or(came[d.ID].of, d.ID) == name {
				delete(after, id)
				replaced[name] = true
			}
		}
	}
	for id, h := range after {
		if claims[id] || claims[h.of] {
			return nil, nil, false
		}
	}
	maps.Copy(after, came)
	return after, replaced, replace || len(replaced) == 0
}

// Random changes of documents against a picture of what should be there. Their ids look like those of
// passages.
func TestDocumentsModel(t *testing.T) {
	small(t)
	names := []string{"a", "b", "c#7", "d", "\"e\" a longer name than forty bytes, which runs cut off", "d#1", "b#0", "b#0#0"}
	ram, runs := testenv.RAMDir(t), 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		dir := filepath.Join(ram, fmt.Sprint("m", runs))
		want := map[string]held{}
		seed := longer(t, 0, map[string]int{"c#7": 0, "c": 0, "x": 0}) // c#7 is no passage of c
		notes(t, want, seed, 0)
		order := []string{"c", "c#7", "x"} // of documents, by age
		path := dir + ".plaid"
		_, err := Build(t.Context(), path, fromDocs(t, 4, seed), &BuildOptions{Centroids: 2, Nbits: 2})
		require.NoError(t, err)
		ix, err := Open(t.Context(), path, &Options{Write: true})
		require.NoError(t, err)
		var set *Set
		defer func() {
			if set != nil {
				require.NoError(t, set.Close())
			} else {
				require.NoError(t, ix.Close())
			}
		}()
		drop := func(ids ...string) (gone Affected) { // ids leave the picture
			before := namesOf(want)
			for _, id := range ids {
				if want[id].of != "" {
					gone.Passages++
				}
				delete(want, id)
			}
			after := namesOf(want)
			order = slices.DeleteFunc(order, func(name string) bool { return !after[name] })
			gone.Documents = len(before) - len(after)
			return gone
		}
		partsOf := func(name string) (ids []string) { // or itself, of a passage
			for id, h := range want {
				if h.of == name || id == name {
					ids = append(ids, id)
				}
			}
			return ids
		}
		for round := 1; round <= 12; round++ {
			draw := map[string]int{}
			for range rapid.IntRange(1, 3).Draw(t, "documents") {
				draw[rapid.SampledFrom(names).Draw(t, "of")] = rapid.IntRange(0, 5).Draw(t, "passages")
			}
			docs := longer(t, round, draw)
			came := map[string]held{}
			notes(t, came, docs, round)
			if len(came) < len(docs) {
				continue // an id is twice in the source, which it refuses itself
			}
			type changer interface {
				Delete(ctx context.Context, ids []string) (Affected, []string, error)
				DeleteWhere(ctx context.Context, where *condition.Condition) (Affected, error)
				UpdatePayload(ctx context.Context, where *condition.Condition, set condition.Fields) (Affected, error)
				UpdateNamed(ctx context.Context, ids []string, set condition.Fields) (Affected, []string, error)
			}
			var change changer = ix
			add := func(o *AddOptions) (*AddReport, error) { return ix.Add(t.Context(), fromDocs(t, 4, docs), o) }
			if set != nil {
				change = set
				add = func(o *AddOptions) (*AddReport, error) {
					r, err := set.Add(t.Context(), fromDocs(t, 4, docs), o)
					if err != nil {
						return nil, err
					}
					return &r.AddReport, nil
				}
			}
			ops := []string{"add", "add", "replace", "replace", "keep", "most", "delete", "passage", "where", "set", "name", "set one", "compact", "retrain", "split", "open"}
			switch op := rapid.SampledFrom(ops).Draw(t, "op"); op {
			case "add", "replace", "keep", "most":
				o := AddOptions{Replace: op != "add", KeepPayload: op == "keep"}
				if op == "most" {
					if set != nil {
						break
					}
					most := uint64(rapid.IntRange(1, 3).Draw(t, "most"))
					o.MaxDocuments = &most
				}
				if rapid.Bool().Draw(t, "delete") {
					o.Delete = []string{"x", rapid.SampledFrom(names).Draw(t, "deleted"), "nobody"}
				}
				if op == "keep" { // passages come without payloads, and stay what they are if there is a payload
					came = map[string]held{}
					for i := range docs {
						h, there := want[docs[i].ID]
						if there {
							docs[i].Payload = nil
						} else {
							h = held{round, ""}
							if p, _ := vectors.PassageOf(docs[i].ID, docs[i].Payload); p != nil {
								h.of = p.Of
							}
						}
						came[docs[i].ID] = h
					}
				}
				before, deleted := maps.Clone(want), 0
				comes := map[string]bool{}
				for id, h := range came {
					comes[cmp.Or(h.of, id)] = true
				}
				var rest []string
				for _, id := range o.Delete {
					if !comes[id] {
						rest = append(rest, partsOf(id)...)
					}
				}
				old := slices.Clone(order)
				deleted = drop(rest...).Documents
				after, replaced, ok := admitted(want, docs, came, o.Replace)
				r, err := add(&o)
				if !ok {
					if !errors.Is(err, ErrPassages) { // as of kept payloads that make a document of one of them
						require.ErrorIs(t, err, ErrDuplicateID)
					}
					want, order = before, old
					break
				}
				require.NoError(t, err)
				want = after
				order = slices.DeleteFunc(order, func(name string) bool { return replaced[name] })
				for _, d := range docs {
					if name := cmp.Or(came[d.ID].of, d.ID); !slices.Contains(order, name) {
						order = append(order, name)
					}
				}
				evicted := 0
				for o.MaxDocuments != nil && uint64(len(order)) > *o.MaxDocuments {
					drop(partsOf(order[0])...)
					evicted++
				}
				require.Equal(t, []int{len(comes), len(replaced), deleted, evicted}, []int{r.Docs, r.Replaced, r.Deleted, r.Evicted})
			case "delete":
				ids, missing := []string{"nobody"}, []string{"nobody"}
				var gone []string
				for _, of := range slices.Sorted(maps.Keys(draw)) {
					ids = append(ids, of)
					parts := partsOf(of)
					if len(parts) == 0 {
						missing = append(missing, of)
					}
					gone = append(gone, parts...)
				}
				n := drop(gone...)
				deleted, gotMissing, err := change.Delete(t.Context(), ids)
				require.NoError(t, err)
				require.Equal(t, n, deleted)
				require.Equal(t, missing, gotMissing)
			case "passage":
				if len(want) == 0 {
					break
				}
				id := rapid.SampledFrom(slices.Sorted(maps.Keys(want))).Draw(t, "id")
				n := drop(id)
				deleted, err := change.DeleteWhere(t.Context(), bind(t, "_id = ?", id))
				require.NoError(t, err)
				require.Equal(t, n, deleted)
			case "where":
				of := rapid.SampledFrom(names).Draw(t, "where")
				n, err := change.DeleteWhere(t.Context(), bind(t, "_id = ? OR _passage.of = ?", of, of))
				if errors.Is(err, condition.ErrUnknownField) {
					break
				}
				require.NoError(t, err)
				require.Equal(t, drop(partsOf(of)...), n)
			case "set":
				n, err := change.UpdatePayload(t.Context(), bind(t, "1=1"), condition.Fields{"round": json.RawMessage(fmt.Sprint(100 + round))})
				require.NoError(t, err)
				require.Equal(t, len(namesOf(want)), n.Documents)
				for id, h := range want {
					want[id] = held{100 + round, h.of}
				}
				_, err = change.UpdatePayload(t.Context(), bind(t, "1=1"), condition.Fields{"_Passage": json.RawMessage(`1`)})
				require.ErrorIs(t, err, ErrOption)
			case "name":
				of := rapid.SampledFrom(names).Draw(t, "name")
				_, missing, err := change.UpdateNamed(t.Context(), []string{of}, condition.Fields{"round": json.RawMessage(fmt.Sprint(300 + round))})
				require.NoError(t, err)
				require.Equal(t, len(partsOf(of)) == 0, len(missing) == 1)
				for _, id := range partsOf(of) {
					want[id] = held{300 + round, want[id].of}
				}
			case "set one":
				if set != nil || len(want) == 0 {
					break
				}
				id := rapid.SampledFrom(slices.Sorted(maps.Keys(want))).Draw(t, "id")
				_, _, err := ix.SetPayload(t.Context(), map[string][]byte{id: fmt.Appendf(nil, `{"round":%d}`, 200+round)})
				require.NoError(t, err)
				want[id] = held{200 + round, want[id].of}
			case "compact":
				if set == nil {
					require.NoError(t, ix.Compact(t.Context(), nil))
				}
			case "retrain":
				if set == nil {
					_, err := ix.Retrain(t.Context(), &RetrainOptions{Centroids: 2})
					if len(want) == 0 {
						require.ErrorIs(t, err, ErrNoTokens)
					} else {
						require.NoError(t, err)
					}
				}
			case "split":
				if set != nil || len(want) == 0 {
					break
				}
				snap := taken(t, ix)
				how := SplitBy(rapid.SampledFrom([]string{string(ByHash), string(ByRange)}).Draw(t, "how"))
				var paths []string
				parts, err := Split(t.Context(), snap, dir, 3, how, nil)
				require.NoError(t, err)
				for _, p := range parts {
					paths = append(paths, p.Path)
				}
				require.NoError(t, errors.Join(snap.Close(), ix.Close()))
				set, err = OpenSet(t.Context(), paths, &Options{Write: true})
				require.NoError(t, err)
			case "open":
				if set == nil {
					require.NoError(t, ix.Close())
					ix, err = Open(t.Context(), path, &Options{Write: true})
					require.NoError(t, err)
				}
			}
			if set == nil {
				snap := taken(t, ix)
				checkDocuments(t, []*Snapshot{snap}, want)
				require.NoError(t, snap.Verify(t.Context()))
				require.NoError(t, snap.Close())
				continue
			}
			snap, err := set.Snapshot()
			require.NoError(t, err)
			checkDocuments(t, snap.Parts(), want)
			for _, p := range snap.Parts() {
				require.NoError(t, p.Verify(t.Context()))
			}
			require.NoError(t, snap.Close())
		}
	})
}

// namesOf are the ids of the documents of a picture.
func namesOf(want map[string]held) map[string]bool {
	names := map[string]bool{}
	for id, h := range want {
		names[cmp.Or(h.of, id)] = true
	}
	return names
}

// A document that says of itself what cannot be is refused, by name.
func TestPassagesRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.plaid")
	// Conditions see a name without its escapes, and so must what checks it.
	hidden := []vectors.Document{{ID: "a", Tokens: []float32{1, 2, 3, 4}, Payload: []byte(`{"\u005fpassage":{"of":"b"}}`)}}
	_, err := Build(t.Context(), path, fromDocs(t, 4, hidden), nil)
	require.ErrorIs(t, err, vectors.ErrFormat)
	spelt := []vectors.Document{{ID: "a#1", Tokens: []float32{1, 2, 3, 4}, Payload: []byte(`{"_Passage":{"of":"a"}}`)}}
	_, err = Build(t.Context(), path, fromDocs(t, 4, spelt), nil)
	require.ErrorIs(t, err, vectors.ErrFormat)
	bad := []vectors.Document{{ID: "a#1", Tokens: []float32{1, 2, 3, 4}, Payload: []byte(`{"_passage":{"of":"b","n":1}}`)}}
	_, err = Build(t.Context(), path, fromDocs(t, 4, bad), nil)
	require.ErrorIs(t, err, vectors.ErrFormat)
	require.ErrorContains(t, err, `"a#1"`)
	_, err = Build(t.Context(), path, fromDocs(t, 4, longer(t, 0, map[string]int{"a": 2})), &BuildOptions{Centroids: 1})
	require.NoError(t, err)
	ix := writing(t, path)
	_, err = ix.Add(t.Context(), fromDocs(t, 4, bad), &AddOptions{Replace: true})
	require.ErrorIs(t, err, vectors.ErrFormat)
	for _, payload := range [][]byte{bad[0].Payload, spelt[0].Payload} {
		_, _, err = ix.SetPayload(t.Context(), map[string][]byte{"a#1": payload})
		require.ErrorIs(t, err, vectors.ErrFormat)
	}
	// A payload makes no passage of a document that is none.
	seed := longer(t, 0, map[string]int{"c#7": 0})
	_, err = ix.Add(t.Context(), fromDocs(t, 4, seed), nil)
	require.NoError(t, err)
	_, _, err = ix.SetPayload(t.Context(), map[string][]byte{"c#7": []byte(`{"_passage":{"of":"c","n":7,"start":0,"end":1}}`)})
	require.ErrorIs(t, err, ErrOption)
	require.ErrorContains(t, err, "c#7")
	_, _, err = ix.SetPayload(t.Context(), map[string][]byte{"a#1": nil})
	require.NoError(t, err)
	snap := taken(t, ix)
	defer snap.Close()
	parts, err := snap.Parts("a")
	require.NoError(t, err)
	require.Len(t, parts, 2, "what makes it a passage stays")
}

// What an addition deletes goes with its passages, but for those that come anew.
func TestAddDeletesPassages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.plaid")
	docs := longer(t, 0, map[string]int{"a": 2, "b": 1, "c": 0})
	_, err := Build(t.Context(), path, fromDocs(t, 4, docs), &BuildOptions{Centroids: 1})
	require.NoError(t, err)
	ix := writing(t, path)
	r, err := ix.Add(t.Context(), fromDocs(t, 4, longer(t, 1, map[string]int{"b": 2})), &AddOptions{Replace: true, Delete: []string{"a", "b", "c", "none"}})
	require.NoError(t, err)
	require.Equal(t, 2, r.Deleted)
	for id, want := range map[string]bool{"a#0": false, "a#1": false, "b#0": true, "b#1": true, "c": false} {
		has, err := ix.Has(id)
		require.NoError(t, err)
		require.Equal(t, want, has, id)
	}
}

// What an addition to several files deletes goes with its passages there, too.
func TestSetAddDeletesPassages(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.plaid")
	docs := longer(t, 0, map[string]int{"a": 3, "b": 0, "c": 2, "d": 0, "e": 0, "f": 0, "h": 4})
	_, err := Build(t.Context(), path, fromDocs(t, 4, docs), &BuildOptions{Centroids: 1})
	require.NoError(t, err)
	var paths []string
	reading(t, path, func(snap *Snapshot) {
		parts, err := Split(t.Context(), snap, filepath.Join(dir, "parts"), 3, ByHash, nil)
		require.NoError(t, err)
		for _, p := range parts {
			paths = append(paths, p.Path)
		}
	})
	set, err := OpenSet(t.Context(), paths, &Options{Write: true})
	require.NoError(t, err)
	defer set.Close()
	other := idsOf(3, "new")[(Place("h", 3)+1)%3] // goes to another file than h is in
	r, err := set.Add(t.Context(), fromDocs(t, 4, longer(t, 1, map[string]int{other: 0})), &AddOptions{Delete: []string{"a", "c", "h", "none"}})
	require.NoError(t, err)
	require.Equal(t, 3, r.Deleted)
	all, err := set.Snapshot()
	require.NoError(t, err)
	defer all.Close()
	for _, p := range all.Parts() {
		docs, missing, err := p.Named(t.Context(), []string{"a", "c", "h"})
		require.NoError(t, err)
		require.True(t, docs.IsEmpty())
		require.Len(t, missing, 3)
	}
}

// Passages that are called like a document of another file are refused, and what several files have of
// a document is one again when it is replaced.
func TestSetKeepsDocumentsApart(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.plaid")
	_, err := Build(t.Context(), path, fromDocs(t, 4, longer(t, 0, map[string]int{"a": 0, "b": 3, "c#0": 0, "c#1#0": 2})), &BuildOptions{Centroids: 1})
	require.NoError(t, err)
	paths := []string{filepath.Join(dir, "0.plaid"), filepath.Join(dir, "1.plaid")}
	reading(t, path, func(snap *Snapshot) {
		for i, ordinals := range []*roaring.Bitmap{roaring.BitmapOf(0, 1), roaring.BitmapOf(2, 3, 4, 5, 6)} {
			_, err := Copy(t.Context(), paths[i], []CopyFrom{{snap, ordinals}}, nil) // b#0; b#1, b#2
			require.NoError(t, err)
		}
		_, err := Copy(t.Context(), filepath.Join(dir, "both.plaid"), []CopyFrom{{snap, roaring.BitmapOf(1)}, {snap, roaring.BitmapOf(0, 2)}}, nil)
		require.ErrorIs(t, err, ErrDuplicateID, "b is there twice, not in a row")
		require.ErrorContains(t, err, `"b"`)
	})
	set, err := OpenSet(t.Context(), paths, &Options{Write: true})
	require.NoError(t, err)
	defer set.Close()
	for _, taken := range []map[string]int{{"c": 1}, {"c#1": 1}, {"b#2": 0}} {
		_, err = set.Add(t.Context(), fromDocs(t, 4, longer(t, 1, taken)), &AddOptions{Replace: true})
		require.ErrorIs(t, err, ErrDuplicateID, "%v", taken)
	}
	r, err := set.Add(t.Context(), fromDocs(t, 4, longer(t, 1, map[string]int{"b": 2})), &AddOptions{Replace: true})
	require.NoError(t, err)
	require.Equal(t, []int{1, 1, 2}, []int{r.Docs, r.Replaced, r.Passages})
	all, err := set.Snapshot()
	require.NoError(t, err)
	defer all.Close()
	for i, want := range []int{2, 0} {
		parts, err := all.Parts()[i].Parts("b")
		require.NoError(t, err)
		require.Len(t, parts, want)
	}
}

// Passages of a document come in a row, by their numbers, and their document is no other document of
// the source.
func TestPassagesInARow(t *testing.T) {
	a, b := longer(t, 0, map[string]int{"a": 3}), longer(t, 0, map[string]int{"b": 0})
	plain := longer(t, 0, map[string]int{"a": 0})
	for name, c := range map[string]struct {
		docs []vectors.Document
		want error
	}{
		"apart":         {slices.Concat(a[:1], b, a[1:]), ErrDuplicateID},
		"order":         {[]vectors.Document{a[1], a[0]}, ErrPassages},
		"both":          {slices.Concat(plain, b, a), ErrDuplicateID},
		"both, reverse": {slices.Concat(a, b, plain), ErrDuplicateID},
	} {
		path := filepath.Join(t.TempDir(), "x.plaid")
		_, err := Build(t.Context(), path, fromDocs(t, 4, c.docs), &BuildOptions{Centroids: 1})
		require.ErrorIs(t, err, c.want, name)
		require.ErrorContains(t, err, `"a"`, name)
		_, err = Build(t.Context(), path, fromDocs(t, 4, longer(t, 0, map[string]int{"c": 0})), &BuildOptions{Centroids: 1})
		require.NoError(t, err)
		ix := writing(t, path)
		_, err = ix.Add(t.Context(), fromDocs(t, 4, c.docs), &AddOptions{Replace: true})
		if name == "apart" {
			c.want = ErrPassages
		}
		require.ErrorIs(t, err, c.want, name)
		require.ErrorContains(t, err, `"a"`, name)
		has, err := ix.Has("b")
		require.NoError(t, err)
		require.False(t, has)
	}
}

// A limit of documents counts a document of passages as one, and lets it go as a whole.
func TestMaxDocuments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.plaid")
	_, err := Build(t.Context(), path, fromDocs(t, 4, longer(t, 0, map[string]int{"a": 3, "b": 0})), &BuildOptions{Centroids: 1})
	require.NoError(t, err)
	ix := writing(t, path)
	most := uint64(2)
	for _, step := range []struct {
		add     map[string]int
		want    []string
		evicted int
	}{
		{map[string]int{"b": 4}, []string{"a", "b"}, 0},
		{map[string]int{"c": 2}, []string{"b", "c"}, 1},
		{map[string]int{"b": 0, "d": 3}, []string{"b", "d"}, 1},
		{map[string]int{"e": 2, "f": 0, "g": 4, "h": 3}, []string{"g", "h"}, 4}, // more than may stay
		{map[string]int{"g": 2, "i": 2, "j": 2}, []string{"i", "j"}, 2},         // one of which replaces another
	} {
		r, err := ix.Add(t.Context(), fromDocs(t, 4, longer(t, 0, step.add)), &AddOptions{Replace: true, MaxDocuments: &most})
		require.NoError(t, err)
		require.Equal(t, step.evicted, r.Evicted, "%v", step.add)
		snap := taken(t, ix)
		require.NoError(t, snap.Verify(t.Context()))
		var names []string
		for it := liveDocs(snap.view).Iterator(); it.HasNext(); {
			names = append(names, snap.DocumentOf(it.Next()))
		}
		require.Equal(t, step.want, slices.Compact(names), "%v", step.add)
		require.Equal(t, len(step.want), snap.Documents())
		for _, name := range step.want {
			parts, err := snap.Parts(name)
			require.NoError(t, err)
			n, comes := step.add[name]
			require.True(t, !comes || len(parts) == max(n, 1), "%s is whole", name)
		}
		require.NoError(t, snap.Close())
	}
	n, err := ix.Evict(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, Affected{Documents: 1, Passages: 2}, n)
}

// Of several deletions at a time, the one that takes the last passage counts the document.
func TestCountDeleted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.plaid")
	build(t, path, 4, longer(t, 0, map[string]int{"a": 3, "b": 0}), &BuildOptions{Centroids: 1})
	reading(t, path, func(s *Snapshot) {
		first, rest := roaring.BitmapOf(1), roaring.BitmapOf(0, 2, 3)
		n, err := s.CountDeleted(t.Context(), first, first)
		require.NoError(t, err)
		require.Equal(t, Affected{Passages: 1}, n)
		n, err = s.CountDeleted(t.Context(), rest, roaring.Or(first, rest))
		require.NoError(t, err)
		require.Equal(t, Affected{Documents: 2, Passages: 2}, n)
	})
}

// Two indexes with a document of one id are not merged, also where passages of the one would go on
// with those of the other.
func TestCopyOfOneDocumentTwice(t *testing.T) {
	dir := t.TempDir()
	docs := longer(t, 0, map[string]int{"a": 0, "b": 4})
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	build(t, first, 4, docs[:3], &BuildOptions{Centroids: 1})
	reading(t, first, func(one *Snapshot) {
		build(t, second, 4, docs[3:], &BuildOptions{Like: one})
		reading(t, second, func(two *Snapshot) {
			_, err := Copy(t.Context(), filepath.Join(dir, "both"), []CopyFrom{{Snapshot: one}, {Snapshot: two}}, nil)
			require.ErrorIs(t, err, ErrDuplicateID)
			require.ErrorContains(t, err, `"b"`)
		})
	})
}

// A passage that is deleted by its id comes again with its document, in one file as in several.
func TestDeleteOfWhatComes(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.plaid")
	build(t, path, 4, longer(t, 0, map[string]int{"a": 1, "b": 0}), &BuildOptions{Centroids: 1})
	set, err := OpenSet(t.Context(), []string{path}, &Options{Write: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, set.Close()) }()
	r, err := set.Add(t.Context(), fromDocs(t, 4, longer(t, 1, map[string]int{"a": 2})), &AddOptions{Delete: []string{"a#0"}})
	require.NoError(t, err)
	require.Equal(t, []int{1, 0, 1}, []int{r.Docs, r.Replaced, r.Deleted})
}

// Documents whose passages are not next to each other are found, though each has its own.
func TestVerifyPassagesOfOthers(t *testing.T) {
	ctx, path := t.Context(), newPath(t)
	_, err := Build(ctx, path, fromDocs(t, 4, longer(t, 0, map[string]int{"a": 2, "b": 3, "c": 1})), &BuildOptions{Centroids: 1})
	require.NoError(t, err)
	reading(t, path, func(s *Snapshot) { require.NoError(t, s.Verify(ctx)) })
	file, err := storage.Open(ctx, path, storage.Options{Write: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	for _, n := range []uint32{3, 5} { // within the passages of b, and to their end
		require.NoError(t, file.Update(func(tx *storage.Tx) error {
			gen, err := tx.Current()
			if err != nil {
				return err
			}
			g, err := tx.Generation(gen)
			return errors.Join(err, g.PutRun("a", 0, n))
		}))
		v, err := file.View()
		require.NoError(t, err)
		err = v.Verify(ctx)
		require.ErrorIs(t, err, storage.ErrCorrupt)
		require.ErrorContains(t, err, `"b"`)
		require.NoError(t, v.Close())
	}
}
