//go:build unix

package reliability

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

func documents(seed uint64, n int) ([]vectors.Document, *searchtest.Maker) {
	m := searchtest.New(seed, dim, 6)
	return m.Docs("d", n, 8), m
}

var all = search.Options{K: 1000, Mode: search.Exhaustive}

// complete searches so many times, and wants every answer whole.
func complete(t *testing.T, f *client.Client, maker *searchtest.Maker, times int, docs int64) {
	t.Helper()
	for range times {
		r, err := f.Search(t.Context(), search.Query{Vectors: maker.Tokens(3)}, all)
		require.NoError(t, err)
		require.True(t, r.Coverage.Complete())
		require.Equal(t, docs, r.Coverage.Docs)
	}
}

// finds searches, and wants an answer that is whole and has some documents.
func finds(t *testing.T, f *client.Client, maker *searchtest.Maker, ids ...string) error {
	t.Helper()
	r, err := f.Search(t.Context(), search.Query{Vectors: maker.Tokens(3)}, all)
	if err != nil {
		return err
	}
	require.True(t, r.Coverage.Complete())
	for _, id := range ids {
		require.True(t, slices.ContainsFunc(r.Hits, func(h search.Hit) bool { return h.ID == id }), "%s is missing", id)
	}
	return nil
}

func isOneOf(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// A node that hangs: the others answer in its place.
func TestHung(t *testing.T) {
	long(t)
	p := start(t, 3, false)
	docs, maker := documents(1, 60)
	p.collection("wiki", operate.CreateOptions{Shards: 4, Replicas: 2, Acks: 1}, docs)
	f := p.client(client.Config{Collection: "wiki", Deadline: patience})
	complete(t, f, maker, 20, 60)
	n1 := p.node("n1").cmd.Process
	require.NoError(t, n1.Signal(syscall.SIGSTOP))
	complete(t, f, maker, 40, 60)
	require.NoError(t, n1.Signal(syscall.SIGCONT))
	p.await("all replicas", func() bool { return p.allReady("wiki") })
	complete(t, f, maker, 5, 60)
}

// Without a quorum of replicas there are no changes, and it is said so; searches go on.
func TestQuorumLost(t *testing.T) {
	long(t)
	p := start(t, 3, false)
	docs, maker := documents(2, 70)
	p.collection("wiki", operate.CreateOptions{Shards: 2, Replicas: 3, Acks: 2}, docs[:60])
	f := p.client(client.Config{Collection: "wiki", Deadline: patience, WriteDeadline: patience})
	p.kill("n0")
	_, err := f.Add(t.Context(), searchtest.Source(t, dim, docs[60:65]), nil)
	require.NoError(t, err) // two are enough
	p.kill("n1")
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	require.NoError(t, f.Watcher().Wait(ctx, func() bool { return len(f.Watcher().Leases()) == 1 }))
	_, err = f.Add(ctx, searchtest.Source(t, dim, docs[65:]), nil)
	require.ErrorIs(t, err, client.ErrQuorum)
	complete(t, f, maker, 5, 65)
	p.again("n0")
	require.NoError(t, f.Watcher().Wait(ctx, func() bool {
		return len(f.Watcher().Replicas(p.id("wiki"), 1, 0)) == 2 && len(f.Watcher().Replicas(p.id("wiki"), 1, 1)) == 2 && f.Watcher().Replicas(p.id("wiki"), 1, 0)[0].Ready && f.Watcher().Replicas(p.id("wiki"), 1, 1)[0].Ready
	}))
	_, err = f.Add(ctx, searchtest.Source(t, dim, docs[65:]), nil)
	require.NoError(t, err)
	complete(t, f, maker, 5, 70)
}

// A worker that is killed in the middle of a build costs one redelivery, and the files are
// the same.
func TestBuildKilled(t *testing.T) {
	long(t)
	p := start(t, 2, false)
	maker := searchtest.New(3, dim, 6)
	docs := maker.Docs("d", 3000, 20)
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	_, err := p.op.Create(ctx, "wiki", operate.CreateOptions{Shards: 6, Replicas: 1})
	require.NoError(t, err)
	built := make(chan error, 1)
	var once sync.Once
	var killed atomic.Bool
	go func() {
		_, err := p.op.Build(ctx, "wiki", searchtest.Source(t, dim, docs), operate.BuildOptions{
			Train: index.BuildOptions{Nbits: 2, Centroids: 64, Threads: 1}, Dir: p.dir,
			Progress: func(stage string, done, total int) {
				if stage == "build" && done >= 1 {
					once.Do(func() { killed.Store(true); p.kill("n1") })
				}
			},
		})
		built <- err
	}()
	require.NoError(t, <-built)
	require.True(t, killed.Load())
	p.again("n1")
	m, err := p.op.Promote(ctx, "wiki")
	require.NoError(t, err)
	sum := uint64(0)
	for _, s := range m.Current.Shards {
		sum += s.Documents
	}
	assert.EqualValues(t, 3000, sum)
	f := p.client(client.Config{Collection: "wiki", Deadline: patience})
	complete(t, f, maker, 2, 3000)
}

// A disk that is full: the replica fails and says so, others go on, and when there is
// room it catches up.
func TestFullDisk(t *testing.T) {
	long(t)
	p := start(t, 2, false)
	docs, maker := documents(5, 400)
	p.collection("wiki", operate.CreateOptions{Shards: 1, Replicas: 2, Acks: 1}, docs[:60])
	x := p.node("n1")
	require.NoError(t, x.cmd.Process.Signal(syscall.SIGTERM))
	<-x.done
	size, err := os.Stat(filepath.Join(p.dir, "n1", "shards", p.id("wiki"), "g1", "s0000.plaid"))
	require.NoError(t, err)
	t.Setenv("PLAID_TEST_FILE_LIMIT", fmt.Sprint(size.Size()))
	p.again("n1")
	p.await("all replicas", func() bool { return p.allReady("wiki") })
	f := p.client(client.Config{Collection: "wiki", Deadline: patience, WriteDeadline: patience})
	have := int64(60)
	for i := 60; i < 400; i += 20 {
		_, err := f.Add(t.Context(), searchtest.Source(t, dim, docs[i:i+20]), &client.WriteOptions{Replace: true})
		require.NoError(t, err)
		have += 20
	}
	p.await("the fault", func() bool {
		for _, r := range p.op.Watcher().Replicas(p.id("wiki"), 1, 0) {
			if r.Node == "n1" && r.Fault != "" {
				t.Log(r.Fault)
				return true
			}
		}
		return false
	})
	complete(t, f, maker, 5, have)
	p.kill("n1")
	t.Setenv("PLAID_TEST_FILE_LIMIT", "")
	p.again("n1")
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	require.NoError(t, p.op.Watcher().Wait(ctx, func() bool { return p.fresh("wiki", "n1") }))
	checks, err := p.op.Verify(ctx, "wiki")
	require.NoError(t, err)
	assert.Len(t, checks[0].Replicas, 2)
}

// The disk of a server is full: what the log cannot keep is not said to be made, searches
// go on, and when there is room everything that was acknowledged is there.
func TestFullLog(t *testing.T) {
	long(t)
	p := start(t, 1, true)
	docs, maker := documents(6, 60)
	p.collection("wiki", operate.CreateOptions{Shards: 1}, docs)
	p.kill("n0")
	t.Setenv("PLAID_TEST_FILE_LIMIT", fmt.Sprint(512<<10))
	p.again("n0")
	p.await("its replica", func() bool { return p.fresh("wiki", "n0") })
	f := p.client(client.Config{Collection: "wiki", Deadline: 20 * time.Second, WriteDeadline: 3 * time.Second})
	require.Eventually(t, func() bool { return finds(t, f, maker, "d1") == nil }, patience, 10*time.Millisecond)
	patient := p.client(client.Config{Collection: "wiki", WriteDeadline: patience})
	_, err := patient.Add(t.Context(), searchtest.Source(t, dim, []vectors.Document{{ID: "made0", Tokens: maker.Tokens(2)}}), nil)
	require.NoError(t, err)
	// Large batches of the same documents: the log grows, the index hardly does.
	made := "made0"
	var failed error
	for i := 1; failed == nil; i++ {
		require.Less(t, i, 100, "a log of files that are half a megabyte large takes everything")
		batch := []vectors.Document{{ID: fmt.Sprint("made", i), Tokens: maker.Tokens(2)}, {ID: "large", Tokens: maker.Tokens(1), Payload: fmt.Appendf(nil, `"%*d"`, 40<<10, i)}}
		if _, failed = f.Add(t.Context(), searchtest.Source(t, dim, batch), &client.WriteOptions{Replace: true}); failed == nil {
			made = fmt.Sprint("made", i)
		}
	}
	t.Logf("after %s: %v", made, failed)
	require.True(t, isOneOf(failed, client.ErrUnacknowledged, client.ErrQuorum), "%v", failed)
	require.NoError(t, finds(t, f, maker, made))
	p.kill("n0")
	t.Setenv("PLAID_TEST_FILE_LIMIT", "")
	p.again("n0")
	p.await("its replica", func() bool { return p.fresh("wiki", "n0") })
	g := p.client(client.Config{Collection: "wiki", Deadline: patience, WriteDeadline: patience})
	require.Eventually(t, func() bool { return finds(t, g, maker, made) == nil }, patience, 10*time.Millisecond)
	put(t, g, maker, 5)
}
