package replica

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/objectstest/memory"
	"github.com/plaid-ir/plaid/storage/objects"
	"github.com/plaid-ir/plaid/vectors"
)

func add(t testing.TB, r *Replica, docs ...collection.DocumentInput) uint64 {
	t.Helper()
	_, entry, err := r.Update(t.Context(), Batch{}, docs, collection.UpdateOptions{})
	require.NoError(t, err)
	return entry
}

// A cache is used again unless the machine stopped while it was open: then what is on its disk may
// look sound, and is not.
func TestCacheAfterReboot(t *testing.T) {
	s, rng := memory.New(), rand.New(rand.NewPCG(1, 2))
	var fetched atomic.Int64 // requests for checkpoints
	s.SetHook(func(_ context.Context, op, name string) (before, after error) {
		if op == "get" && strings.Contains(name, "/files/") {
			fetched.Add(1)
		}
		return nil, nil
	})
	dir := t.TempDir()
	a := openReplica(t, s, dir, shardOf(flat))
	add(t, a, randomDoc(rng, "a"))
	require.NoError(t, a.Checkpoint(t.Context()))
	last := add(t, a, randomDoc(rng, "b"))
	want, _ := content(t, a, last)
	require.NoError(t, a.Close(t.Context()))
	path := filepath.Join(dir, "notes.x1", "0000-00000001")
	_, err := os.Stat(filepath.Join(path, openFile))
	require.ErrorIs(t, err, fs.ErrNotExist, "it is closed")

	open := func(left string) {
		if left != "" {
			require.NoError(t, os.WriteFile(filepath.Join(path, openFile), []byte(left), 0o666))
		}
		require.NoError(t, os.WriteFile(filepath.Join(path, "next"), []byte("interrupted"), 0o666))
		r := openReplica(t, s, dir, shardOf(flat))
		got, _ := content(t, r, last)
		require.Equal(t, want, got)
		_, err := os.Stat(filepath.Join(path, "next"))
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.NoError(t, r.Close(t.Context()))
	}
	before := fetched.Load()
	open("")
	if bootID() != "" {
		open(bootID())
	}
	require.Equal(t, before, fetched.Load(), "the cache is used")
	open("another boot")
	require.Greater(t, fetched.Load(), before, "it is fetched again")
}

// A cache of a log that is another one by now, or ends before it, as after a store was put back, is
// thrown away.
func TestCacheOfAnotherLog(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{3, 2, 4} { // entries of the other log
		s, dir := memory.New(), t.TempDir()
		a := openReplica(t, s, dir, shardOf(flat))
		for i := range 3 {
			add(t, a, randomDoc(rng, fmt.Sprint("old", i)))
		}
		require.NoError(t, a.Close(t.Context()))

		s = memory.New()
		b := openReplica(t, s, t.TempDir(), shardOf(flat))
		for i := range n {
			add(t, b, randomDoc(rng, fmt.Sprint("new", i)))
		}
		want, _ := content(t, b, uint64(n))
		a = openReplica(t, s, dir, shardOf(flat))
		got, docs := content(t, a, uint64(n))
		require.Equal(t, want, got, docs)
	}
}

// A replica is killed at any moment of its changes: from the file as it is just then, another one
// goes on to what was acknowledged.
func TestKilled(t *testing.T) {
	s, rng := memory.New(), rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	var copies []string
	took := func() {
		to := t.TempDir()
		if err := os.CopyFS(to, os.DirFS(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		copies = append(copies, to)
	}
	a := openReplica(t, s, dir, shardOf(flat))
	require.NoError(t, a.Poll(t.Context()))
	s.SetHook(func(_ context.Context, op, name string) (before, after error) {
		if op == "put" && strings.Contains(name, "/log/") {
			took()
		}
		return nil, nil
	})
	var last uint64
	for i := range 12 {
		last = add(t, a, randomDoc(rng, fmt.Sprint("d", i)), randomDoc(rng, ""))
		if i%4 == 3 {
			n, entry, err := a.Delete(t.Context(), Batch{}, collection.Selection{IDs: []string{fmt.Sprint("d", i-1)}})
			require.NoError(t, err)
			require.Equal(t, 1, n.Documents)
			last = entry
			took() // after it was applied
		}
	}
	s.SetHook(nil)
	want, _ := content(t, a, last)
	for _, c := range copies {
		r := openReplica(t, s, c, shardOf(flat))
		got, _ := content(t, r, last)
		require.Equal(t, want, got)
		require.NoError(t, r.Verify(t.Context()))
		require.NoError(t, r.Close(t.Context()))
	}
}

// A file that is damaged while it is open is thrown away when that is found, and the shard fetched.
func TestDamagedWhileOpen(t *testing.T) {
	s, rng := memory.New(), rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	a := openReplica(t, s, dir, shardOf(flat))
	var docs []collection.DocumentInput
	for i := range 200 {
		docs = append(docs, randomDoc(rng, fmt.Sprint("d", i)))
	}
	last := add(t, a, docs...)
	want, _ := content(t, a, last)
	require.NoError(t, a.Close(t.Context()))
	path := filepath.Join(dir, "notes.x1", "0000-00000001", indexFile)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	a = openReplica(t, s, dir, shardOf(flat))
	require.NoError(t, a.Poll(t.Context()))
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	for at := len(b) / 2; at < len(b)/2+20_000 && at < len(b); at += 64 {
		_, err := f.WriteAt([]byte{^b[at]}, int64(at))
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	if err := a.Verify(t.Context()); err == nil {
		t.Skip("what was damaged is not in use")
	}
	require.Eventually(t, func() bool { return a.Verify(t.Context()) == nil }, 20*time.Second, 100*time.Millisecond)
	got, _ := content(t, a, last)
	require.Equal(t, want, got)
}

// A shard that is not there, and one that its log does not lead to, say so and what helps; a replica
// answers again when it is there.
func TestFailed(t *testing.T) {
	s, rng := memory.New(), rand.New(rand.NewPCG(1, 2))
	built := flat
	built.Number, built.Begun = 2, false
	b := openReplica(t, s, t.TempDir(), shardOf(built))
	_, _, err := b.Snapshot(t.Context(), 0)
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorIs(t, err, errNoCheckpoint)
	require.Equal(t, Failed, b.State().Phase)
	require.Contains(t, b.State().Error, "plaid cluster build")
	a := openReplica(t, s, t.TempDir(), shardOf(flat))
	last := add(t, a, randomDoc(rng, "a"))
	require.NoError(t, a.BuildNext(t.Context(), built))
	require.Eventually(t, func() bool { return b.Poll(t.Context()) == nil }, 20*time.Second, 100*time.Millisecond)
	_, docs := content(t, b, last)
	require.Len(t, docs, 1)
	require.Equal(t, State{Phase: Ready, Entry: 1, Known: 1, Documents: 1, Bytes: b.State().Bytes}, b.State())

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, _, err = a.Snapshot(ctx, 7) // there is no such entry
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, a.Close(t.Context()))
	_, _, err = a.Snapshot(t.Context(), 0)
	require.ErrorIs(t, err, collection.ErrClosed)
}

// Documents without vectors come first: their generation has no dimension and takes no vectors. The
// next one does, and has all documents with their numbers.
func TestBuildNext(t *testing.T) {
	ctx, s, rng := t.Context(), memory.New(), rand.New(rand.NewPCG(1, 2))
	undecided := flat
	undecided.Dim = 0
	a := openReplica(t, s, t.TempDir(), shardOf(undecided))
	add(t, a, collection.DocumentInput{ID: "x", Metadata: []byte(`{"n":1}`)}, collection.DocumentInput{ID: "y"})
	_, _, err := a.Update(ctx, Batch{}, []collection.DocumentInput{randomDoc(rng, "z")}, collection.UpdateOptions{})
	require.ErrorIs(t, err, store.ErrUndecided)
	_, _, err = a.Delete(ctx, Batch{}, collection.Selection{IDs: []string{"y"}})
	require.NoError(t, err)

	second := flat
	second.Number, second.Begun = 2, false
	require.NoError(t, a.BuildNext(ctx, second))
	require.NoError(t, a.BuildNext(ctx, second), "it is there")
	b := openReplica(t, s, t.TempDir(), shardOf(second))
	var docs []collection.DocumentInput
	for i := range 30 {
		docs = append(docs, randomDoc(rng, fmt.Sprint("d", i)))
	}
	last := add(t, b, docs...)
	_, found := content(t, b, last)
	require.Equal(t, `0 {"n":1}`, found["x"])
	require.Equal(t, "2", strings.Fields(found["d0"])[0])
	require.Len(t, found, 31)

	// A codec that was trained.
	sample, err := b.Sample(ctx, 1000, 7)
	require.NoError(t, err)
	require.NotEmpty(t, sample)
	require.Zero(t, len(sample)%testDim)
	few, err := b.Sample(ctx, 5, 7)
	require.NoError(t, err)
	require.Less(t, len(few), len(sample))
	third := second
	third.Number, third.Stage, third.Nbits = 3, collection.StageFinal, 4
	third.Codec = trainCodec(t, s, sample)
	require.NoError(t, b.BuildNext(ctx, third))
	last = add(t, b, randomDoc(rng, "later"))
	c := openReplica(t, s, t.TempDir(), shardOf(third))
	_, now := content(t, c, last)
	require.Len(t, now, 32)
	for id, d := range found {
		require.Equal(t, d, now[id])
	}
	st, err := c.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 4, st.Nbits)
	d := openReplica(t, s, t.TempDir(), shardOf(third))
	cc, _ := content(t, c, last)
	cd, _ := content(t, d, last)
	require.Equal(t, cc, cd)
	all, err := c.journal.Checkpoints(ctx, 3)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.EqualValues(t, 3, all[0].Number)
}

// A checkpoint is put by the replica that writes when enough has come, and by no other.
func TestCheckpointWhenDue(t *testing.T) {
	s, rng := memory.New(), rand.New(rand.NewPCG(1, 2))
	c := &Config{Store: s, Dir: t.TempDir(), CheckpointBytes: 5 * minEntryBytes}
	a, err := Open(c, shardOf(flat))
	require.NoError(t, err)
	for i := range 8 {
		add(t, a, randomDoc(rng, fmt.Sprint("d", i)))
	}
	all, err := a.journal.Checkpoints(t.Context(), 1)
	require.NoError(t, err)
	require.Empty(t, all)
	a.SetWriter(true)
	require.Eventually(t, func() bool {
		all, err = a.journal.Checkpoints(t.Context(), 1)
		return err == nil && len(all) == 1
	}, 20*time.Second, 10*time.Millisecond)
	require.EqualValues(t, 8, all[0].Number)
	add(t, a, randomDoc(rng, "one more"))
	require.NoError(t, a.Close(t.Context()))
	left, err := os.ReadDir(filepath.Join(c.Dir, "notes.x1", "0000-00000001"))
	require.NoError(t, err)
	require.Len(t, left, 1, "the copies are gone")
	require.NoError(t, a.Remove(t.Context()))
	_, err = os.Stat(filepath.Join(c.Dir, "notes.x1", "0000-00000001"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// A checkpoint is put when enough bytes have come in few entries, also if the replica was opened again meanwhile.
func TestCheckpointAfterRestart(t *testing.T) {
	s := memory.New()
	c := &Config{Store: s, Dir: t.TempDir(), CheckpointBytes: 9 * minEntryBytes}
	for i := range 3 {
		a, err := Open(c, shardOf(flat))
		require.NoError(t, err)
		a.SetWriter(true)
		add(t, a, collection.DocumentInput{ID: fmt.Sprint("d", i), Dim: testDim, Vectors: make([]float32, minEntryBytes)})
		require.Eventually(t, func() bool {
			all, err := a.journal.Checkpoints(t.Context(), 1)
			return err == nil && (len(all) == 1 || i < 2)
		}, 20*time.Second, 10*time.Millisecond)
		require.NoError(t, a.Close(t.Context()))
	}
}

// A replica that becomes the writer puts no checkpoint if another has put one just now.
func TestCheckpointOfNextWriter(t *testing.T) {
	s, rng := memory.New(), rand.New(rand.NewPCG(1, 2))
	open := func() *Replica {
		r, err := Open(&Config{Store: s, Dir: t.TempDir(), CheckpointBytes: 5 * minEntryBytes}, shardOf(flat))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, r.Close(context.Background())) })
		return r
	}
	a, b := open(), open()
	counted := func() int64 {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.behind
	}
	put := func(want int) func() bool {
		return func() bool {
			all, err := a.journal.Checkpoints(t.Context(), 1)
			return err == nil && len(all) == want
		}
	}
	require.NoError(t, b.Poll(t.Context()))
	for i := range 8 {
		b.NoteEntry(add(t, a, randomDoc(rng, fmt.Sprint("d", i))))
	}
	require.NoError(t, a.Checkpoint(t.Context()))
	add(t, a, randomDoc(rng, "later"))
	require.NoError(t, b.Poll(t.Context()))
	require.EqualValues(t, 9*minEntryBytes, counted())
	b.SetWriter(true)
	require.Eventually(t, func() bool { return counted() == minEntryBytes }, 20*time.Second, time.Millisecond)
	for i := range 4 {
		require.True(t, put(1)())
		add(t, b, randomDoc(rng, fmt.Sprint("e", i)))
	}
	require.Eventually(t, put(2), 20*time.Second, 10*time.Millisecond)
}

// Close does not return while a checkpoint is still being put.
func TestCloseWaitsForCheckpoint(t *testing.T) {
	s, begun, finish := memory.New(), make(chan struct{}), make(chan struct{})
	s.SetHook(func(_ context.Context, op, name string) (before, after error) {
		if op == "put" && strings.Contains(name, "/files/") {
			close(begun)
			<-finish
		}
		return nil, nil
	})
	a, err := Open(&Config{Store: s, Dir: t.TempDir(), CheckpointBytes: 1}, shardOf(flat))
	require.NoError(t, err)
	add(t, a, randomDoc(rand.New(rand.NewPCG(1, 2)), "d"))
	a.SetWriter(true)
	<-begun
	closed := make(chan error, 1)
	go func() { closed <- a.Close(context.Background()) }()
	select {
	case err := <-closed:
		t.Errorf("closed (%v) while a checkpoint was put", err)
		close(finish)
	case <-time.After(200 * time.Millisecond):
		close(finish)
		require.NoError(t, <-closed)
	}
}

// trainCodec puts the codec of a sample.
func trainCodec(t *testing.T, s objects.Store, sample []float32) objects.Ref {
	t.Helper()
	src, err := vectors.FromDocuments(testDim, []vectors.Document{{ID: "sample", Tokens: sample}})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "codec.plaid")
	_, err = index.Train(t.Context(), path, src, &index.BuildOptions{Nbits: 4, Centroids: 4, Threads: 1})
	require.NoError(t, err)
	ref, err := objects.PutFile(t.Context(), s, "data/notes.x1/codec/00000003", path)
	require.NoError(t, err)
	return ref
}
