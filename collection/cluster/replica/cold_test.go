package replica

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/objectstest/memory"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/objects"
)

// A shard is searched while its checkpoint is fetched, unless the log has more; its views go on when the
// file is there.
func TestCold(t *testing.T) {
	if !effort.Long() {
		t.Skip("makes a file of 40 MiB, since smaller ones are fetched at once")
	}
	ctx, s, rng := t.Context(), memory.New(), rand.New(rand.NewPCG(1, 2))
	g := flat
	g.Dim = 128
	a := openReplica(t, s, t.TempDir(), shardOf(g))
	var last uint64
	var docs []collection.DocumentInput
	for part := range 4 {
		docs = docs[:0]
		for i := range 800 {
			d := collection.DocumentInput{ID: fmt.Sprintf("d%d-%d", part, i), Dim: g.Dim}
			for range 100 * g.Dim {
				d.Vectors = append(d.Vectors, rng.Float32()-.5)
			}
			docs = append(docs, d)
		}
		last = add(t, a, docs...)
	}
	require.NoError(t, a.Checkpoint(ctx))
	release := make(chan struct{})
	defer func(f func()) { beforeFill = f }(beforeFill)
	beforeFill = func() { <-release }
	b := openReplica(t, s, t.TempDir(), shardOf(g))
	within, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	v, entry, err := b.Snapshot(within, last)
	require.NoError(t, err)
	defer v.Close()
	require.Equal(t, last, entry)
	require.Equal(t, Fetching, b.State().Phase)
	require.EqualValues(t, 3200, b.State().Documents)
	find := func() {
		found, err := v.Search(ctx, []search.Query{{Vectors: docs[7].Vectors[:5*g.Dim], Dim: g.Dim}},
			search.Options{K: 1})
		require.NoError(t, err)
		require.Equal(t, docs[7].ID, found[0].Hits[0].ID)
	}
	find()
	last = add(t, a, collection.DocumentInput{ID: "more"})
	b.NoteEntry(last)
	short, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	_, _, err = b.Snapshot(short, 0)
	require.ErrorIs(t, err, context.DeadlineExceeded, "the log has more")
	close(release)
	require.NoError(t, b.Poll(ctx))
	find()
	require.NoError(t, v.Close())
	want, _ := content(t, a, last)
	got, _ := content(t, b, last)
	require.Equal(t, want, got)
}

// A file that can be read only when it has been fetched already is there all the same.
func TestColdTooLate(t *testing.T) {
	s, ctx, g := memory.New(), t.Context(), flat
	a := openReplica(t, s, t.TempDir(), shardOf(g))
	last := add(t, a, collection.DocumentInput{ID: "a"}, collection.DocumentInput{ID: "b"})
	require.NoError(t, a.Checkpoint(ctx))
	defer func(f func(), g func(context.Context)) { beforeFill, beforeReads = f, g }(beforeFill, beforeReads)
	begun := make(chan struct{})
	beforeFill = func() { <-begun }
	beforeReads = func(ctx context.Context) { close(begun); <-ctx.Done() }
	b := openReplica(t, s, t.TempDir(), shardOf(g))
	require.NoError(t, b.Poll(ctx))
	require.Equal(t, Ready, b.State().Phase)
	require.Equal(t, last, b.State().Entry)
}

// stillStore is a store whose objects never come.
type stillStore struct{ objects.Store }

func (stillStore) Get(ctx context.Context, _ string, _, _ int64) (io.ReadCloser, objects.Entry, error) {
	<-ctx.Done()
	return nil, objects.Entry{}, ctx.Err()
}

// Reads of a file that is fetched end when it is no longer shown, whatever their own context.
func TestColdReadsEnd(t *testing.T) {
	shown, stop := context.WithCancel(t.Context())
	s := readSource{objects.NewFetcher(stillStore{}, "x", 1<<20, nil), shown}
	own, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Ensure(own, 0, 9), context.Canceled)
	time.AfterFunc(10*time.Millisecond, stop)
	require.ErrorIs(t, s.Ensure(context.Background(), 0, 9), storage.ErrClosed)
}
