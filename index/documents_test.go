package index

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index/metadata/condition"
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
			p := vectors.Passage{ParentID: of, Number: n, Start: 10 * n, End: 10*n + 10}
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

func mustPayload(t tb, s *Snapshot, o uint32) []byte {
	if !s.Live(o) {
		return nil
	}
	p, err := s.Payload(o)
	require.NoError(t, err)
	return p
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
	parts, err := snap.PassagesOf("a")
	require.NoError(t, err)
	require.Len(t, parts, 2, "what makes it a passage stays")
}

// Documents that an addition deletes go with their passages, except those that it adds.
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
	set, err := OpenShards(t.Context(), paths, &Options{Write: true})
	require.NoError(t, err)
	defer set.Close()
	other := idsOf(3, "new")[(HashShard("h", 3)+1)%3] // goes to another file than h is in
	r, err := set.Add(t.Context(), fromDocs(t, 4, longer(t, 1, map[string]int{other: 0})), &AddOptions{Delete: []string{"a", "c", "h", "none"}})
	require.NoError(t, err)
	require.Equal(t, 3, r.Deleted)
	all, err := set.Snapshot()
	require.NoError(t, err)
	defer all.Close()
	for _, p := range all.Snapshots() {
		docs, missing, err := p.OrdinalsOfIDs(t.Context(), []string{"a", "c", "h"})
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
	set, err := OpenShards(t.Context(), paths, &Options{Write: true})
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
		parts, err := all.Snapshots()[i].PassagesOf("b")
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
		for it := liveDocs(snap.fileSnapshot).Iterator(); it.HasNext(); {
			names = append(names, snap.DocumentOf(it.Next()))
		}
		require.Equal(t, step.want, slices.Compact(names), "%v", step.add)
		require.Equal(t, len(step.want), snap.Documents())
		for _, name := range step.want {
			parts, err := snap.PassagesOf(name)
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

// A document counts once if its passages keep their payloads.
func TestKeptCountsDocuments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.plaid")
	docs := longer(t, 0, map[string]int{"a": 3, "b": 0, "c": 2})
	build(t, path, 4, docs, &BuildOptions{Centroids: 1})
	ix := writing(t, path)
	for i := range docs[:5] {
		docs[i].Payload = nil // but not the last passage of c
	}
	r, err := ix.Add(t.Context(), fromDocs(t, 4, docs), &AddOptions{Replace: true, KeepPayload: true})
	require.NoError(t, err)
	require.Equal(t, []int{3, 3, 3, 5}, []int{r.Docs, r.Replaced, r.KeptPayloads, r.Passages})
}

// A document that had passages keeps what these have in common, in one file as in several.
func TestKeptOfPassages(t *testing.T) {
	add := func(ctx context.Context, src vectors.Source, set *Shards) (*AddReport, error) {
		o := &AddOptions{Replace: true, KeepPayload: true}
		if len(set.Files()) == 1 {
			return set.Files()[0].Add(ctx, src, o)
		}
		r, err := set.Add(ctx, src, o)
		if err != nil {
			return nil, err
		}
		return &r.AddReport, nil
	}
	for files := 1; files <= 2; files++ {
		dir := t.TempDir()
		paths := []string{filepath.Join(dir, "x.plaid"), filepath.Join(dir, "y.plaid")}[:files]
		text := vectors.Passage{ParentID: "a", Number: 0, Start: 0, End: 3}
		payload, err := text.Payload([]byte(`{"year":1999,"text":"owl"}`))
		require.NoError(t, err)
		build(t, paths[0], 4, []vectors.Document{{ID: "a#0", Tokens: []float32{1, 2, 3, 4}, Payload: payload}}, &BuildOptions{Centroids: 1})
		if files == 2 {
			reading(t, paths[0], func(like *Snapshot) {
				build(t, paths[1], 4, longer(t, 0, map[string]int{"b": 0}), &BuildOptions{Like: like})
			})
		}
		set, err := OpenShards(t.Context(), paths, &Options{Write: true})
		require.NoError(t, err)
		r, err := add(t.Context(), fromDocs(t, 4, []vectors.Document{{ID: "a", Tokens: []float32{4, 3, 2, 1}}}), set)
		require.NoError(t, err)
		require.Equal(t, []int{1, 1, 1, 0}, []int{r.Docs, r.Replaced, r.KeptPayloads, r.Passages})
		d, err := set.Files()[0].Get("a")
		require.NoError(t, err)
		require.Equal(t, `{"year":1999}`, string(d.Payload))
		require.NoError(t, set.Close())
	}
}

// A passage that is deleted by its id comes again with its document, in one file as in several.
func TestDeleteOfWhatComes(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.plaid")
	build(t, path, 4, longer(t, 0, map[string]int{"a": 1, "b": 0}), &BuildOptions{Centroids: 1})
	set, err := OpenShards(t.Context(), []string{path}, &Options{Write: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, set.Close()) }()
	r, err := set.Add(t.Context(), fromDocs(t, 4, longer(t, 1, map[string]int{"a": 2})), &AddOptions{Delete: []string{"a#0"}})
	require.NoError(t, err)
	require.Equal(t, []int{1, 0, 1}, []int{r.Docs, r.Replaced, r.Deleted})
}

// Of two additions that expect the same version one is made; one that expects a document finds it as it
// is when its turn comes.
func TestAddIf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.plaid")
	_, err := Build(t.Context(), path, fromDocs(t, 4, longer(t, 0, map[string]int{"a": 3})), &BuildOptions{Centroids: 1})
	require.NoError(t, err)
	ix := writing(t, path)
	set, err := NewShards(ix)
	require.NoError(t, err)
	errChanged := errors.New("the index has changed")
	for round, add := range []func(map[string]int, *AddOptions) error{
		func(docs map[string]int, o *AddOptions) error {
			_, err := ix.Add(t.Context(), fromDocs(t, 4, longer(t, 1, docs)), o)
			return err
		},
		func(docs map[string]int, o *AddOptions) error {
			_, err := set.Add(t.Context(), fromDocs(t, 4, longer(t, 1, docs)), o)
			return err
		},
	} {
		snap := taken(t, ix)
		version := snap.Version()
		require.NoError(t, snap.Close())
		expected := func(now *Snapshot) error {
			if now.Version() != version {
				return errChanged
			}
			return nil
		}
		failed := make(chan error, 2)
		for i := range 2 {
			go func() { failed <- add(map[string]int{"a": 1 + i}, &AddOptions{Replace: true, If: expected}) }()
		}
		first, second := <-failed, <-failed
		require.True(t, (first == nil) != (second == nil), "%v, %v", first, second)
		require.ErrorIs(t, errors.Join(first, second), errChanged)
		require.NoError(t, add(map[string]int{fmt.Sprint("b", round): 0}, &AddOptions{If: func(now *Snapshot) error {
			parts, err := now.PassagesOf("a")
			require.NotEmpty(t, parts)
			return err
		}}))
	}
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
			return errors.Join(err, g.PutPassageRange("a", 0, n))
		}))
		v, err := file.Snapshot()
		require.NoError(t, err)
		err = v.Verify(ctx)
		require.ErrorIs(t, err, storage.ErrCorrupt)
		require.ErrorContains(t, err, `"b"`)
		require.NoError(t, v.Close())
	}
}

// Passages keep no payload that another file has than the one that they go to: it would be lost.
func TestSetKeepsPayloadsInTheirFile(t *testing.T) {
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "0.plaid"), filepath.Join(dir, "1.plaid")}
	_, err := Build(t.Context(), paths[0], fromDocs(t, 4, longer(t, 0, map[string]int{"a": 0, "b": 0})), &BuildOptions{Centroids: 1})
	require.NoError(t, err)
	reading(t, paths[0], func(snap *Snapshot) {
		_, err := Build(t.Context(), paths[1], fromDocs(t, 4, longer(t, 0, map[string]int{"a": 2})), &BuildOptions{Like: snap})
		require.NoError(t, err)
	})
	set, err := OpenShards(t.Context(), paths, &Options{Write: true})
	require.NoError(t, err)
	defer set.Close()
	docs := longer(t, 1, map[string]int{"a": 2})
	for i := range docs {
		docs[i].Payload = nil
	}
	_, err = set.Add(t.Context(), fromDocs(t, 4, docs), &AddOptions{Replace: true, KeepPayload: true})
	require.ErrorIs(t, err, ErrOption)
	require.ErrorContains(t, err, `"a#0"`)
	all, err := set.Snapshot()
	require.NoError(t, err)
	defer all.Close()
	for i, want := range []int{1, 2} {
		parts, err := all.Snapshots()[i].PassagesOf("a")
		require.NoError(t, err)
		require.Len(t, parts, want, "nothing is changed")
	}
}
