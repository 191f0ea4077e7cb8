package index

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/storage"
)

func someDefaults() *storage.Defaults {
	return &storage.Defaults{Docs: 9, Tokens: 99, Time: time.Unix(1e9, 0).UTC(), Version: "test", Classes: []storage.DefaultClass{
		{K: 10, Probes: 3, Exact: 30, Target: 0.9, Recall: 1, HeldOut: 0.95, Queries: 4}, {K: 100, Probes: 6, Approx: 500},
	}}
}

func storedDefaults(t *testing.T, ix *Index) *storage.Defaults {
	t.Helper()
	snap, err := ix.Snapshot()
	require.NoError(t, err)
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
	path := filepath.Join(t.TempDir(), "x.plaid")
	docs := corpus(30, 5, modelDim, 1)
	_, err := Build(ctx, path, fromDocs(t, modelDim, docs[:25]), nil)
	require.NoError(t, err)
	ix, err := Open(context.Background(), path, &Options{Write: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, ix.Close()) }()
	require.Nil(t, storedDefaults(t, ix))

	before, err := ix.Snapshot()
	require.NoError(t, err)
	defer before.Close()
	require.NoError(t, ix.SetDefaults(someDefaults()))
	require.Equal(t, someDefaults(), storedDefaults(t, ix))
	old, err := before.Defaults()
	require.NoError(t, err)
	require.Nil(t, old, "an older snapshot sees the change")

	_, err = ix.Add(ctx, fromDocs(t, modelDim, docs[25:]), nil)
	require.NoError(t, err)
	_, _, err = ix.Delete(ctx, []string{docs[3].ID})
	require.NoError(t, err)
	require.NoError(t, ix.Compact(ctx, nil))
	require.Equal(t, someDefaults(), storedDefaults(t, ix))

	require.NoError(t, ix.SetDefaults(nil))
	require.Nil(t, storedDefaults(t, ix))
	require.NoError(t, ix.SetDefaults(nil), "removing twice")
}

func TestBuildDropsDefaults(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "x.plaid")
	build := func(o *BuildOptions) {
		_, err := Build(ctx, path, fromDocs(t, modelDim, corpus(20, 5, modelDim, 1)), o)
		require.NoError(t, err)
	}
	build(nil)
	ix, err := Open(context.Background(), path, &Options{Write: true})
	require.NoError(t, err)
	require.NoError(t, ix.SetDefaults(someDefaults()))
	require.NoError(t, ix.Close())
	build(&BuildOptions{Force: true})
	ix, err = Open(context.Background(), path, nil)
	require.NoError(t, err)
	defer ix.Close()
	require.Nil(t, storedDefaults(t, ix))
}

func TestSetDefaultsErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.plaid")
	_, err := Build(context.Background(), path, fromDocs(t, modelDim, corpus(20, 5, modelDim, 1)), nil)
	require.NoError(t, err)
	ix, err := Open(context.Background(), path, nil)
	require.NoError(t, err)
	defer ix.Close()
	require.ErrorIs(t, ix.SetDefaults(&storage.Defaults{}), ErrOption)
	require.ErrorIs(t, ix.SetDefaults(someDefaults()), storage.ErrReadOnly)
}
