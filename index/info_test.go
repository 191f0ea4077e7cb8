package index

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// What is replaced while a snapshot is open stays in the file for it, and is
// free afterwards.
func TestInfoOfALiveIndex(t *testing.T) {
	ctx := context.Background()
	path := newPath(t)
	docs := corpus(40, 6, 8, 1)
	build(t, path, 8, docs, nil)
	ix := writing(t, path)
	info := func() *Info {
		in, err := ix.Info(ctx)
		require.NoError(t, err)
		require.LessOrEqual(t, int64(in.Pages.Free+in.Pages.Pending)*int64(in.Pages.Page), in.Pages.Size)
		return in
	}
	replace := func(n int) {
		for range n {
			_, err := ix.Add(ctx, fromDocs(t, 8, docs[:20]), &AddOptions{Replace: true})
			require.NoError(t, err)
		}
	}
	replace(5)
	before := info()
	require.EqualValues(t, 140, before.Ordinals)
	require.EqualValues(t, 100, before.Deleted)
	require.EqualValues(t, storage.MaxDocs, before.MaxOrdinals)
	require.Equal(t, 1, before.Pages.Snapshots)

	held := taken(t, ix)
	replace(10)
	in := info()
	require.Equal(t, 2, in.Pages.Snapshots)
	require.Greater(t, in.Pages.Pending, before.Pages.Pending+20)
	require.NoError(t, held.Close())
	replace(1)
	after := info()
	require.Less(t, after.Pages.Pending, in.Pages.Pending)
	require.Greater(t, after.Pages.Free, in.Pages.Free+20)

	require.NoError(t, ix.Close())
	reading(t, path, func(s *Snapshot) { // who only reads knows the free pages
		in, err := s.Info(ctx)
		require.NoError(t, err)
		require.Zero(t, in.Pages.Pending)
		require.Equal(t, after.Pages.Free+after.Pages.Pending, in.Pages.Free)
		require.Equal(t, after.Ordinals, in.Ordinals)
	})
}

func TestGet(t *testing.T) {
	docs := corpus(6, 4, 8, 1)
	docs[2].ID, docs[2].Payload = "with payload", []byte(`{"n": 2}`)
	docs[3].ID, docs[3].Tokens = "empty", nil
	for i := range docs {
		if docs[i].ID == "" {
			docs[i].ID = string(rune('a' + i))
		}
	}
	path := newPath(t)
	build(t, path, 8, docs, nil)
	ix := writing(t, path)
	for i, d := range docs {
		got, err := ix.Get(d.ID)
		require.NoError(t, err)
		require.Equal(t, &StoredDocument{ID: d.ID, Ordinal: uint32(i), Tokens: len(d.Tokens) / 8, Payload: d.Payload}, got)
		there, err := ix.Has(d.ID)
		require.NoError(t, err)
		require.True(t, there)
	}
	kept, err := ix.Get("with payload")
	require.NoError(t, err)
	_, _, err = ix.Delete(t.Context(), []string{"with payload"})
	require.NoError(t, err)
	add(t, ix, 8, vectors.Document{ID: "new", Tokens: docs[0].Tokens, Payload: []byte("other")})
	require.Equal(t, `{"n": 2}`, string(kept.Payload), "it is the caller's")
	for _, id := range []string{"with payload", "never", ""} {
		_, err := ix.Get(id)
		require.ErrorIs(t, err, ErrNotFound)
		there, err := ix.Has(id)
		require.NoError(t, err)
		require.False(t, there)
	}
	s := taken(t, ix)
	_, err = s.DocumentAt(2)
	require.ErrorIs(t, err, ErrNotFound, "deleted")
	_, err = s.DocumentAt(1000)
	require.ErrorIs(t, err, ErrNotFound)
	d, err := s.DocumentAt(6)
	require.NoError(t, err)
	require.Equal(t, "new", d.ID)
	require.NoError(t, s.Close())
	require.NoError(t, ix.Close())
	_, err = ix.Get("a")
	require.ErrorIs(t, err, storage.ErrClosed)
	_, err = ix.Has("a")
	require.ErrorIs(t, err, storage.ErrClosed)
}

func someDefaults() *storage.Defaults {
	return &storage.Defaults{Docs: 9, Tokens: 99, Time: time.Unix(1e9, 0).UTC(), Version: "test", Classes: []storage.DefaultClass{
		{K: 10, Probes: 3, Exact: 30, Target: 0.9, Recall: 1, HeldOut: 0.95, Queries: 4}, {K: 100, Probes: 6, Approx: 500},
	}}
}

func storedDefaults(t *testing.T, ix *Index) *storage.Defaults {
	t.Helper()
	snap := taken(t, ix)
	defer snap.Close()
	d, err := snap.Defaults()
	require.NoError(t, err)
	in, err := snap.Info(context.Background())
	require.NoError(t, err)
	require.Equal(t, d, in.Defaults)
	return d
}

// Stored parameters live as long as the documents that they were found for:
// through every change but a build.
func TestDefaultsOverChanges(t *testing.T) {
	ctx := context.Background()
	path := newPath(t)
	docs := corpus(30, 5, modelDim, 1)
	build(t, path, modelDim, docs[:25], nil)
	ix := writing(t, path)
	require.Nil(t, storedDefaults(t, ix))

	before := taken(t, ix)
	require.NoError(t, ix.SetDefaults(someDefaults()))
	require.Equal(t, someDefaults(), storedDefaults(t, ix))
	old, err := before.Defaults()
	require.NoError(t, err)
	require.Nil(t, old, "an older snapshot sees the change")
	require.NoError(t, before.Close())

	_, err = ix.Add(ctx, fromDocs(t, modelDim, docs[25:]), nil)
	require.NoError(t, err)
	_, _, err = ix.Delete(ctx, []string{docs[3].ID})
	require.NoError(t, err)
	require.NoError(t, ix.Compact(ctx, nil))
	require.Equal(t, someDefaults(), storedDefaults(t, ix))

	require.NoError(t, ix.SetDefaults(nil))
	require.Nil(t, storedDefaults(t, ix))
	require.NoError(t, ix.SetDefaults(nil), "removing twice")
	require.NoError(t, ix.SetDefaults(someDefaults()))
	require.NoError(t, ix.Close())
	build(t, path, modelDim, docs, &BuildOptions{Force: true})
	ix = writing(t, path)
	require.Nil(t, storedDefaults(t, ix), "they go when it is built anew")
}

func TestSetDefaultsErrors(t *testing.T) {
	path := newPath(t)
	build(t, path, modelDim, corpus(20, 5, modelDim, 1), nil)
	ix, err := Open(context.Background(), path, nil)
	require.NoError(t, err)
	defer ix.Close()
	require.ErrorIs(t, ix.SetDefaults(&storage.Defaults{}), ErrOption)
	require.ErrorIs(t, ix.SetDefaults(someDefaults()), storage.ErrReadOnly)
}

// Reports read as sentences do, however they are printed.
func TestReportsAsText(t *testing.T) {
	build := &BuildReport{Docs: 46, Tokens: 7010, RMSE: .0712}
	build.Seconds.Train = .4
	retrain := &RetrainReport{Docs: 2, Tokens: 9}
	retrain.Before.Centroids, retrain.After.Centroids, retrain.Before.Nbits, retrain.After.Nbits = 1, 4, 8, 2
	for want, report := range map[string]fmt.Stringer{
		"46 documents, 7010 tokens, RMSE 0.0712, 0.4 s":    build,
		"3 documents, 1 replaced, 512 tokens, RMSE 0.0500": &AddReport{Docs: 3, Replaced: 1, Tokens: 512, RMSE: .05},
		"3 documents, 9 tokens":                            &CopyReport{Docs: 3, Tokens: 9},
		"4 documents":                                      &ExportReport{Docs: 4},
		"4 documents in 7 passages, 9 tokens":              &ExportReport{Docs: 4, Passages: 7, Tokens: 9},
		"1 document in 3 passages of plaid, 9 tokens, 4 centroids, 2 bits": &ImportReport{
			Engine: "plaid", Docs: 1, Passages: 3, Tokens: 9, K: 4, Nbits: 2,
		},
		"5 documents, 512 tokens, RMSE 0.0500":                  &ShardsAddReport{AddReport: AddReport{Docs: 5, Tokens: 512, RMSE: .05}},
		"46 documents, 10 bytes written, incremental":           &BackupReport{Docs: 46, Written: 10, Incremental: true},
		"2 documents, 9 tokens, 1 → 4 centroids, 8 → 2 bits":    retrain,
		"2 documents of colbert, 9 tokens, 4 centroids, 2 bits": &ImportReport{Engine: "colbert", Docs: 2, Tokens: 9, K: 4, Nbits: 2},
		"45 documents, 1 lost, 2 without their metadata":        &SalvageReport{Docs: 45, LostDocs: 1, LostPayloads: []string{"a", "b"}},
	} {
		require.Equal(t, want, fmt.Sprintf("%v", report))
	}
}

// The model of an index is kept over changes and compaction, and additions are
// held against it.
func TestModelOfAnIndex(t *testing.T) {
	path := newPath(t)
	docs := corpus(20, 4, 8, 1)
	model := &storage.Model{Name: "nano", Fingerprint: "abc"}
	build(t, path, 8, docs[:10], &BuildOptions{Model: model})
	ix := writing(t, path)
	src := fromDocs(t, 8, docs[10:15])
	other := &storage.Model{Name: "nano", Fingerprint: "abd"}
	_, err := ix.Add(t.Context(), src, &AddOptions{Model: other})
	require.ErrorIs(t, err, storage.ErrModel)
	require.ErrorContains(t, err, path)
	_, err = ix.Add(t.Context(), src, nil) // nobody says
	require.NoError(t, err)
	_, err = ix.Add(t.Context(), fromDocs(t, 8, docs[15:]), &AddOptions{Model: model})
	require.NoError(t, err)
	require.NoError(t, ix.Compact(t.Context(), nil))
	in, err := ix.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, model, in.Header.Model)
	require.EqualValues(t, 20, in.Docs)

	_, err = Build(t.Context(), newPath(t), fromDocs(t, 8, docs), &BuildOptions{Model: &storage.Model{}})
	require.ErrorIs(t, err, ErrOption)
}
