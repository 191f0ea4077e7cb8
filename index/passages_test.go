package index

import (
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

// checkPassages compares what is there with a picture. Passages of a document are in one file,
// but for those of cut ones.
func checkPassages(t *rapid.T, snaps []*Snapshot, want map[string]held, parents []string, cut map[string]bool) {
	got := map[string]held{}
	for _, s := range snaps {
		for o := range s.State().Docs {
			if !s.Live(o) {
				continue
			}
			var p struct{ Round int }
			raw, err := s.Payload(o)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(raw, &p))
			require.NotContains(t, got, s.ID(o))
			notes(t, got, []vectors.Document{{ID: s.ID(o), Payload: raw}}, p.Round)
		}
		for _, ids := range [][]string{parents, parents[:1]} { // both ways of finding them
			docs, err := s.PassagesOf(t.Context(), ids)
			require.NoError(t, err)
			all, err := s.Passages(t.Context())
			require.NoError(t, err)
			for o := range s.State().Docs {
				is, err := vectors.PassageOf(s.ID(o), mustPayload(t, s, o))
				require.NoError(t, err)
				require.Equal(t, s.Live(o) && is != nil, all.Contains(o))
				require.Equal(t, s.Live(o) && is != nil && slices.Contains(ids, is.Of), docs.Contains(o))
			}
		}
	}
	require.Equal(t, want, got)
	for _, p := range parents {
		in := 0 // how many files have some of its passages
		for _, s := range snaps {
			if docs, err := s.PassagesOf(t.Context(), []string{p}); err == nil && !docs.IsEmpty() {
				in++
			}
		}
		if !cut[p] {
			require.LessOrEqual(t, in, 1, "passages of %s in several files", p)
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

// splitAnyhow puts each document of an index into any of three files.
func splitAnyhow(t *rapid.T, dir string, snap *Snapshot) (paths []string) {
	parts := make([]*roaring.Bitmap, 3)
	for i := range parts {
		parts[i] = roaring.New()
	}
	for o := range snap.State().Docs {
		parts[rapid.IntRange(0, 2).Draw(t, "file")].Add(o)
	}
	for i, docs := range parts {
		path := fmt.Sprint(dir, "-", i, ".plaid")
		_, err := Copy(t.Context(), path, []CopyFrom{{snap, docs}}, nil)
		require.NoError(t, err)
		paths = append(paths, path)
	}
	return paths
}

// Random changes of documents of passages, against a picture of what should be there.
func TestPassagesModel(t *testing.T) {
	small(t)
	parents := []string{"a", "b", "c#7", "d", "\"e\" a longer name than forty bytes, which runs cut off", "d#1", "b#0"}
	ram, runs := testenv.RAMDir(t), 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		dir := filepath.Join(ram, fmt.Sprint("m", runs))
		want, cut := map[string]held{}, map[string]bool{}
		seed := longer(t, 0, map[string]int{"c#7": 0, "c": 0, "x": 0}) // c#7 is no passage of c
		notes(t, want, seed, 0)
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
		gone := func(of string) (n int) { // a document and its passages leave the picture
			for id, h := range want {
				if id == of || h.of == of {
					delete(want, id)
					n++
				}
			}
			delete(cut, of)
			return n
		}
		for round := 1; round <= 12; round++ {
			draw := map[string]int{}
			for range rapid.IntRange(1, 3).Draw(t, "documents") {
				draw[rapid.SampledFrom(parents).Draw(t, "of")] = rapid.IntRange(0, 5).Draw(t, "passages")
			}
			for id := range draw { // which would come twice
				if of, n := vectors.SplitPassageID(id); n >= 0 && n < draw[of] {
					draw[id] = 1
				}
			}
			docs := longer(t, round, draw)
			type changer interface {
				Delete(ctx context.Context, ids []string) (int, []string, error)
				DeleteWhere(ctx context.Context, where *condition.Condition) (int, error)
				UpdatePayload(ctx context.Context, where *condition.Condition, set condition.Fields) (int, error)
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
			switch op := rapid.SampledFrom([]string{"replace", "replace", "add", "delete", "one", "where", "set", "set one", "compact", "retrain", "split", "open"}).Draw(t, "op"); op {
			case "replace":
				was := len(want)
				for of := range draw {
					gone(of)
				}
				for _, d := range docs { // a passage may be called like a document that is none
					delete(want, d.ID)
				}
				r, err := add(&AddOptions{Replace: true})
				require.NoError(t, err)
				require.Equal(t, was-len(want), r.Replaced+r.Deleted)
				notes(t, want, docs, round)
			case "add":
				taken := false
				for id, h := range want {
					_, same := draw[id]
					_, part := draw[h.of]
					taken = taken || same || part || slices.ContainsFunc(docs, func(d vectors.Document) bool { return d.ID == id })
				}
				_, err := add(nil)
				if taken {
					require.ErrorIs(t, err, ErrDuplicateID)
					break
				}
				require.NoError(t, err)
				notes(t, want, docs, round)
			case "delete":
				ids := []string{"nobody"}
				n := 0
				missing := []string{"nobody"}
				for _, of := range slices.Sorted(maps.Keys(draw)) {
					ids = append(ids, of)
					there := false
					for id, h := range want {
						there = there || id == of || h.of == of
					}
					if !there {
						missing = append(missing, of)
					}
				}
				for of := range draw {
					n += gone(of)
				}
				deleted, gotMissing, err := change.Delete(t.Context(), ids)
				require.NoError(t, err)
				require.Equal(t, n, deleted)
				require.Equal(t, missing, gotMissing)
			case "one":
				ids := slices.Sorted(maps.Keys(want))
				if len(ids) < 2 {
					break
				}
				id := rapid.SampledFrom(ids).Draw(t, "id")
				n := gone(id)
				deleted, _, err := change.Delete(t.Context(), []string{id})
				require.NoError(t, err)
				require.Equal(t, n, deleted)
			case "where":
				of := rapid.SampledFrom(parents).Draw(t, "where")
				n, err := change.DeleteWhere(t.Context(), bind(t, "_id = ? OR _passage.of = ?", of, of))
				if errors.Is(err, condition.ErrUnknownField) {
					break
				}
				require.NoError(t, err)
				require.Equal(t, gone(of), n)
			case "set":
				n, err := change.UpdatePayload(t.Context(), bind(t, "1=1"), condition.Fields{"round": json.RawMessage(fmt.Sprint(100 + round))})
				require.NoError(t, err)
				require.Equal(t, len(want), n)
				for id, h := range want {
					want[id] = held{100 + round, h.of}
				}
				_, err = change.UpdatePayload(t.Context(), bind(t, "1=1"), condition.Fields{"_Passage": json.RawMessage(`1`)})
				require.ErrorIs(t, err, ErrOption)
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
				how := SplitBy(rapid.SampledFrom([]string{string(ByHash), string(ByRange), "cut"}).Draw(t, "how"))
				var paths []string
				if how == "cut" { // as splits by range once did
					paths = splitAnyhow(t, dir, snap)
					for _, of := range parents {
						cut[of] = true
					}
				} else {
					parts, err := Split(t.Context(), snap, dir, 3, how, nil)
					require.NoError(t, err)
					for _, p := range parts {
						paths = append(paths, p.Path)
					}
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
				checkPassages(t, []*Snapshot{snap}, want, parents, cut)
				require.NoError(t, snap.Verify(t.Context()))
				require.NoError(t, snap.Close())
				continue
			}
			snap, err := set.Snapshot()
			require.NoError(t, err)
			checkPassages(t, snap.Parts(), want, parents, cut)
			require.NoError(t, snap.Close())
		}
	})
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
	docs, err := snap.PassagesOf(t.Context(), []string{"a"})
	require.NoError(t, err)
	require.Equal(t, uint64(2), docs.GetCardinality(), "what makes it a passage stays")
}

// Who waits for passages that another one looks for waits until his own context ends.
func TestPassagesAreWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.plaid")
	_, err := Build(t.Context(), path, fromDocs(t, 4, longer(t, 0, map[string]int{"a": 3})), &BuildOptions{Centroids: 1})
	require.NoError(t, err)
	reading(t, path, func(s *Snapshot) {
		require.NoError(t, s.picture.passages.finding.begin(t.Context()))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.Passages(ended)
		require.ErrorIs(t, err, context.Canceled)
		s.picture.passages.finding.end()
		docs, err := s.Passages(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 3, docs.GetCardinality())
		_, err = s.Passages(ended)
		require.NoError(t, err, "they are there")
	})
}

// With Apart passages are documents of their own.
func TestPassagesApart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.plaid")
	_, err := Build(t.Context(), path, fromDocs(t, 4, longer(t, 0, map[string]int{"a": 3})), &BuildOptions{Centroids: 1})
	require.NoError(t, err)
	ix := writing(t, path)
	r, err := ix.Add(t.Context(), fromDocs(t, 4, longer(t, 1, map[string]int{"a": 1})), &AddOptions{Replace: true, Apart: true})
	require.NoError(t, err)
	require.Equal(t, []int{1, 0}, []int{r.Replaced, r.Deleted})
	r, err = ix.Add(t.Context(), fromDocs(t, 4, longer(t, 1, map[string]int{"a": 1})), &AddOptions{Replace: true})
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, []int{r.Replaced, r.Deleted})
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
	require.Equal(t, 3, r.Deleted)
	for id, want := range map[string]bool{"a#0": false, "a#1": false, "b#0": true, "b#1": true, "c": false} {
		has, err := ix.Has(id)
		require.NoError(t, err)
		require.Equal(t, want, has, id)
	}
}

// What an addition to several files deletes goes with its passages there, too; without
// passages, by ids alone, if it says so.
func TestSetAddDeletesPassages(t *testing.T) {
	for _, apart := range []bool{false, true} {
		dir := t.TempDir()
		path := filepath.Join(dir, "x.plaid")
		docs := longer(t, 0, map[string]int{"a": 3, "b": 0, "c": 2, "d": 0, "e": 0, "f": 0})
		docs = append(docs, longer(t, 0, map[string]int{"h": 0})...) // whole, and in passages
		docs = append(docs, longer(t, 0, map[string]int{"h": 4})...)
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
		r, err := set.Add(t.Context(), fromDocs(t, 4, longer(t, 1, map[string]int{other: 0})), &AddOptions{Delete: []string{"a", "c", "h", "none"}, Apart: apart})
		require.NoError(t, err)
		all, err := set.Snapshot()
		require.NoError(t, err)
		left := 0
		for _, p := range all.Parts() {
			docs, err := p.PassagesOf(t.Context(), []string{"a", "c", "h"})
			require.NoError(t, err)
			left += int(docs.GetCardinality())
		}
		require.NoError(t, all.Close())
		want := 0
		if apart {
			want = 9
		}
		require.Equal(t, want, left)
		require.Equal(t, 10-want, r.Deleted)
	}
}

// A passage that moves to another file leaves alone the passages of a document that has its id.
func TestSetMovesPassagesAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.plaid") // has b#0, b#1, b#0#0
	_, err := Build(t.Context(), path, fromDocs(t, 4, longer(t, 0, map[string]int{"b": 2, "b#0": 1})), &BuildOptions{Centroids: 1})
	require.NoError(t, err)
	paths := []string{filepath.Join(dir, "0.plaid"), filepath.Join(dir, "1.plaid")}
	reading(t, path, func(snap *Snapshot) {
		for i, ordinals := range []*roaring.Bitmap{roaring.BitmapOf(1), roaring.BitmapOf(0, 2)} {
			_, err := Copy(t.Context(), paths[i], []CopyFrom{{snap, ordinals}}, nil)
			require.NoError(t, err)
		}
	})
	set, err := OpenSet(t.Context(), paths, &Options{Write: true})
	require.NoError(t, err)
	defer set.Close()
	r, err := set.Add(t.Context(), fromDocs(t, 4, longer(t, 1, map[string]int{"b": 3})), &AddOptions{Replace: true})
	require.NoError(t, err)
	require.Equal(t, 2, r.Replaced+r.Deleted)
	all, err := set.Snapshot()
	require.NoError(t, err)
	defer all.Close()
	for id, file := range map[string]int{"b#0": 0, "b#1": 0, "b#2": 0, "b#0#0": 1} {
		_, ok, err := all.Parts()[file].Ordinal(id)
		require.NoError(t, err)
		require.True(t, ok, id)
	}
}
