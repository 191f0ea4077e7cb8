package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// everything is the ids of all documents that a client finds.
func everything(t *testing.T, c *clustertest.Cluster, f *client.Client, maker *searchtest.Maker) []string {
	t.Helper()
	r, err := f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(2)}, search.Options{K: 500, Mode: search.Exhaustive})
	require.NoError(t, err)
	var ids []string
	for _, h := range r.Hits {
		ids = append(ids, h.ID)
	}
	return ids
}

// alive are documents all of which a search finds: with tokens.
func alive(seed uint64, n int) ([]vectors.Document, *searchtest.Maker) {
	docs, maker := documents(seed, n)
	for i := range docs {
		docs[i].Tokens = maker.Tokens(1 + i%4)
	}
	return docs, maker
}

func idsOf(docs []vectors.Document) []string {
	var ids []string
	for _, d := range docs {
		ids = append(ids, d.ID)
	}
	return ids
}

// left are the objects of a collection but its maps.
func left(t *testing.T, c *clustertest.Cluster, id string) (names []string) {
	t.Helper()
	for _, kind := range []string{"inputs/", "codecs/", "shards/"} {
		some, err := c.Store.List(c.Ctx, kind+id+"/")
		require.NoError(t, err)
		for _, e := range some {
			names = append(names, e.Name)
		}
	}
	return names
}

// A node that is away while a collection is removed and another gets its name comes back
// with files of the old one: it serves and changes nothing of it, drops it, and is a
// replica of the new one. Clients of the old one are told, and those that ask by the name
// again get the new one.
func TestNameUsedAgain(t *testing.T) {
	docs, maker := alive(31, 60)
	others, _ := alive(32, 40)
	for i := range others {
		others[i].ID = fmt.Sprint("new", i)
	}
	c := clustertest.New(t, 3)
	const shards = 2
	c.Collection("wiki", operate.CreateOptions{Shards: shards, Replicas: 3}, dim, docs)
	old := c.ID("wiki")
	f := c.Client(client.Config{Collection: "wiki"})
	more, _ := alive(38, 8)
	for i := range more {
		more[i].ID = fmt.Sprint("more", i)
	}
	_, err := f.Add(c.Ctx, searchtest.Source(t, dim, more), nil)
	require.NoError(t, err)
	require.ElementsMatch(t, append(idsOf(docs), idsOf(more)...), everything(t, c, f, maker))
	file := filepath.Join(c.Dir, "n2", old, "g1", "s0000.plaid")
	require.FileExists(t, file)
	c.Die("n2")

	m, existed, err := c.Op.Remove(c.Ctx, "wiki")
	require.NoError(t, err)
	require.True(t, existed)
	require.Equal(t, old, m.ID())
	require.NoError(t, c.Op.Gone(c.Ctx, m))
	require.Empty(t, left(t, c, old))
	for s := range shards {
		_, err := c.Bus.JS.Stream(c.Ctx, bus.LogStream(old, s))
		require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
	}
	for _, n := range []string{"n0", "n1"} {
		require.NoDirExists(t, filepath.Join(c.Dir, n, old))
	}
	require.NoError(t, f.Watcher().Wait(c.Ctx, func() bool { _, err := f.Watcher().Map("wiki"); return err != nil }))
	_, err = f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(2)}, search.Options{})
	require.ErrorIs(t, err, topology.ErrRemoved)
	_, err = f.Delete(c.Ctx, []string{docs[0].ID}, nil)
	require.ErrorIs(t, err, topology.ErrRemoved)

	c.Collection("wiki", operate.CreateOptions{Shards: shards, Replicas: 2}, dim, others)
	now := c.ID("wiki")
	require.NotEqual(t, old, now)
	require.FileExists(t, file, "n2 is away")
	n2 := c.Start("n2")
	require.NoError(t, n2.Ready(c.Ctx))
	c.Await(func() bool {
		for _, l := range c.Op.Watcher().Leases() {
			if l.Node == "n2" && l.Started == n2.Life() {
				for _, s := range l.Shards {
					require.Equal(t, now, s.Collection)
				}
				return true
			}
		}
		return false
	})
	// Whoever asks for the old one is told that it is not here, by every node.
	conn := c.Connect("asker")
	for _, name := range []string{"n0", "n1", "n2"} {
		for _, generation := range []uint64{1, 2} {
			q := wire.Query{ID: wire.NewID(), Collection: old, Generation: generation, Dim: dim, Vectors: maker.Tokens(2), K: 5, Mode: search.Exhaustive, Shards: []wire.ShardAt{{Shard: 0}}, Left: clustertest.Patience}
			msg, err := q.Encode()
			require.NoError(t, err)
			reply, err := conn.RequestWithContext(c.Ctx, bus.QuerySubject(name), msg)
			require.NoError(t, err)
			a, err := wire.DecodeAnswer(reply.Data)
			require.NoError(t, err)
			require.Equal(t, wire.WrongGeneration, a.Status, a.Text)
		}
		_, err := node.Send(c.Ctx, conn, name, node.Order{Do: "checkpoint", Collection: old, Generation: 1})
		require.ErrorIs(t, err, node.ErrOrder)
	}
	require.Eventually(t, func() bool { // it is dropped beside everything else
		_, err := os.Stat(filepath.Join(c.Dir, "n2", old))
		return errors.Is(err, os.ErrNotExist)
	}, clustertest.Patience, 10*time.Millisecond)
	_, err = f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(2)}, search.Options{})
	require.ErrorIs(t, err, topology.ErrReplaced)
	_, err = f.Add(c.Ctx, searchtest.Source(t, dim, more), nil)
	require.ErrorIs(t, err, topology.ErrReplaced)
	g := c.Client(client.Config{Collection: "wiki"})
	require.ElementsMatch(t, idsOf(others), everything(t, c, g, maker))
	// Everybody takes part: the new node too, and what was in the old logs is nowhere.
	_, err = c.Op.Rebalance(c.Ctx, "wiki")
	require.NoError(t, err)
	report, err := g.Add(c.Ctx, searchtest.Source(t, dim, more), nil)
	require.NoError(t, err)
	require.Equal(t, len(more), report.Added)
	require.ElementsMatch(t, append(idsOf(others), idsOf(more)...), everything(t, c, g, maker))
	_, err = c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
}

// Searches and changes that are under way while a collection is removed end with an error
// that says so, and do not wait for their deadlines.
func TestRemoveUnderWay(t *testing.T) {
	docs, maker := alive(33, 60)
	c := clustertest.New(t, 2)
	c.Collection("wiki", operate.CreateOptions{Shards: 2, Replicas: 2, Acks: 2}, dim, docs)
	f := c.Client(client.Config{Collection: "wiki"})
	var wg sync.WaitGroup
	var errs [3]error
	for i := range errs {
		wg.Go(func() {
			for n := 0; errs[i] == nil; n++ {
				switch i {
				case 0:
					_, errs[i] = f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(2)}, search.Options{})
				case 1:
					one := []vectors.Document{{ID: fmt.Sprint("w", n), Tokens: docs[0].Tokens}}
					_, errs[i] = f.Add(c.Ctx, searchtest.Source(t, dim, one), nil)
				default:
					for _, errs[i] = range f.Documents(c.Ctx, collection.Selection{}, collection.ReadOptions{}) {
					}
				}
			}
		})
	}
	_, _, err := c.Op.Remove(c.Ctx, "wiki")
	require.NoError(t, err)
	wg.Wait()
	require.NoError(t, c.Ctx.Err())
	for _, err := range errs {
		var partial *client.PartialError // the nodes were faster than the map; to be tried again
		if !errors.As(err, &partial) && !errors.Is(err, client.ErrQuorum) {
			require.ErrorIs(t, err, topology.ErrRemoved)
		}
	}
	require.NoError(t, f.Watcher().Wait(c.Ctx, func() bool { _, err := f.Watcher().Map("wiki"); return err != nil }))
	_, err = f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(2)}, search.Options{})
	require.ErrorIs(t, err, topology.ErrRemoved)
	require.NoError(t, f.Drain())
}

// What an operator was doing with a collection ends when it is removed, and leaves
// nothing behind.
func TestRemoveDuringBuild(t *testing.T) {
	docs, _ := alive(34, 60)
	c := clustertest.New(t, 1)
	c.Stop("n0")
	c.Start("n0", func(cfg *node.Config) { cfg.Builds = false }) // nobody builds
	_, err := c.Op.Create(c.Ctx, "wiki", operate.CreateOptions{Shards: 2})
	require.NoError(t, err)
	c.Await(func() bool { _, err := c.Op.Watcher().Map("wiki"); return err == nil })
	id := c.ID("wiki")
	built := make(chan error, 1)
	go func() {
		_, err := c.Op.Build(c.Ctx, "wiki", searchtest.Source(t, dim, docs), operate.BuildOptions{Train: clustertest.Train, Dir: t.TempDir()})
		built <- err
	}()
	c.Await(func() bool { m, err := c.Op.Watcher().Map("wiki"); return err == nil && m.Next != nil })
	_, _, err = c.Op.Remove(c.Ctx, "wiki")
	require.NoError(t, err)
	require.ErrorIs(t, <-built, topology.ErrRemoved)
	require.Empty(t, left(t, c, id))
	stream, err := c.Bus.JS.Stream(c.Ctx, bus.BuildStream)
	require.NoError(t, err)
	info, err := stream.Info(c.Ctx)
	require.NoError(t, err)
	require.Zero(t, info.State.Msgs)

	// An order that is in the queue all the same, and is of the old one, is dropped.
	_, err = c.Op.Create(c.Ctx, "wiki", operate.CreateOptions{Shards: 2})
	require.NoError(t, err)
	_, err = c.Bus.JS.Publish(c.Ctx, bus.BuildSubject(id, 1, 0), fmt.Appendf(nil, `{"collection":%q,"generation":1,"codec":{"name":"x","sha256":"%064d","bytes":1}}`, id, 0))
	require.NoError(t, err)
	c.Stop("n0")
	c.Start("n0")
	require.Eventually(t, func() bool {
		info, err := stream.Info(c.Ctx)
		return err == nil && info.State.Msgs == 0
	}, clustertest.Patience, 10*time.Millisecond)
}

// waiting is an object store where the next shard, once it is told to, is written late.
type waiting struct {
	objects.Store
	next        atomic.Bool
	begun, goOn chan struct{}
}

func (s *waiting) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	if strings.HasPrefix(name, "shards/") && s.next.CompareAndSwap(true, false) {
		close(s.begun)
		<-s.goOn
		ctx = context.WithoutCancel(ctx) // the last bytes are on their way
	}
	return s.Store.Put(ctx, name, r, size)
}

// A checkpoint ends with the error that says so too, whatever the nodes say that end it,
// and leaves nothing behind.
func TestRemoveDuringCheckpoint(t *testing.T) {
	docs, _ := alive(41, 40)
	c := clustertest.New(t, 1)
	s := &waiting{Store: c.Store, begun: make(chan struct{}), goOn: make(chan struct{})}
	goOn := sync.OnceFunc(func() { close(s.goOn) })
	c.Stop("n0")
	c.Store = s
	c.Start("n0")
	t.Cleanup(goOn) // before the node is closed
	c.Collection("wiki", operate.CreateOptions{}, dim, docs[:20])
	id := c.ID("wiki")
	f := c.Client(client.Config{Collection: "wiki"})
	_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[20:]), nil)
	require.NoError(t, err)
	s.next.Store(true)
	done := make(chan error, 1)
	go func() { _, err := c.Op.Checkpoint(c.Ctx, "wiki"); done <- err }()
	select {
	case <-s.begun:
	case err := <-done:
		require.FailNow(t, "the checkpoint has written nothing", err)
	}
	m, _, err := c.Op.Remove(c.Ctx, "wiki")
	require.NoError(t, err)
	goOn()
	require.ErrorIs(t, <-done, topology.ErrRemoved)
	require.NoError(t, c.Op.Gone(c.Ctx, m))
	require.Empty(t, left(t, c, id))
}

// failing is an object store that deletes nothing for a while.
type failing struct {
	objects.Store
	fails bool
}

var errFails = errors.New("the store fails")

func (s *failing) Delete(ctx context.Context, name string) error {
	if s.fails {
		return errFails
	}
	return s.Store.Delete(ctx, name)
}

// A removal that was interrupted is finished by another one, also when the name is used
// again meanwhile.
func TestRemovalInterrupted(t *testing.T) {
	docs, maker := alive(35, 40)
	c := clustertest.New(t, 1)
	c.Collection("wiki", operate.CreateOptions{}, dim, docs)
	old := c.ID("wiki")
	store := &failing{c.Store, true}
	op := operate.Over(c.Bus, c.Op.Watcher(), store, nil)
	_, existed, err := op.Remove(c.Ctx, "wiki")
	require.ErrorIs(t, err, errFails)
	require.True(t, existed)
	require.NotEmpty(t, left(t, c, old))
	f := c.Client(client.Config{Collection: "wiki"})
	_, err = f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(1)}, search.Options{})
	require.ErrorIs(t, err, topology.ErrRemoved, "it is removed all the same")
	store.fails = false
	m, existed, err := op.Remove(c.Ctx, "wiki")
	require.NoError(t, err)
	require.False(t, existed)
	require.NoError(t, op.Gone(c.Ctx, m))
	require.Empty(t, left(t, c, old))
	_, err = op.Restore(c.Ctx, "wiki")
	require.ErrorIs(t, err, topology.ErrRemoved)
	_, _, err = op.Remove(c.Ctx, "nothing")
	require.ErrorIs(t, err, topology.ErrNoCollection)
	require.NotErrorIs(t, err, topology.ErrRemoved)

	c.Collection("wiki", operate.CreateOptions{}, dim, docs)
	second := c.ID("wiki")
	store.fails = true
	_, _, err = op.Remove(c.Ctx, "wiki")
	require.ErrorIs(t, err, errFails)
	_, err = op.Create(c.Ctx, "wiki", operate.CreateOptions{})
	require.NoError(t, err, "what is left is in nobody's way")
	require.NotEmpty(t, left(t, c, second))
	store.fails = false
	_, existed, err = op.Remove(c.Ctx, "wiki")
	require.NoError(t, err)
	require.True(t, existed)
	require.Empty(t, left(t, c, second))
}

// Files of a collection that lost its name in a way that nobody recorded are put aside:
// they may be the last ones.
func TestFilesPutAside(t *testing.T) {
	docs, maker := alive(36, 40)
	c := clustertest.New(t, 2)
	c.Collection("wiki", operate.CreateOptions{Replicas: 2}, dim, docs)
	old := c.ID("wiki")
	c.Stop("n1")
	all, err := c.Store.List(c.Ctx, "maps/wiki/") // somebody removes it by hand
	require.NoError(t, err)
	for _, e := range all {
		require.NoError(t, c.Store.Delete(c.Ctx, e.Name))
	}
	require.NoError(t, c.Bus.Maps.Delete(c.Ctx, "wiki"))
	c.Await(func() bool { _, err := c.Op.Watcher().Map("wiki"); return err != nil })
	others, _ := alive(39, 20)
	c.Collection("wiki", operate.CreateOptions{}, dim, others)
	n1 := c.Start("n1")
	require.NoError(t, n1.Ready(c.Ctx))
	require.Eventually(t, func() bool {
		all, err := filepath.Glob(filepath.Join(c.Dir, "n1", old, "*"))
		return err == nil && len(all) == 1 && filepath.Base(all[0]) == "g1.aside"
	}, clustertest.Patience, 10*time.Millisecond)
	require.ElementsMatch(t, idsOf(others), everything(t, c, c.Client(client.Config{Collection: "wiki"}), maker))
}

// NATS may come back with less than it had, from an old copy of its files: with the map of
// a collection that was removed since. What a node has of the next one of the name is left
// alone, and served again as soon as the map is restored.
func TestMapOfBeforeRemoval(t *testing.T) {
	docs, maker := alive(42, 40)
	c := clustertest.New(t, 1)
	c.Collection("wiki", operate.CreateOptions{}, dim, docs)
	before, err := c.Bus.Maps.Get(c.Ctx, "wiki")
	require.NoError(t, err)
	m, _, err := c.Op.Remove(c.Ctx, "wiki")
	require.NoError(t, err)
	require.NoError(t, c.Op.Gone(c.Ctx, m))
	c.Collection("wiki", operate.CreateOptions{}, dim, docs[:20])
	now := c.ID("wiki")
	f := c.Client(client.Config{Collection: "wiki"})
	_, err = f.Add(c.Ctx, searchtest.Source(t, dim, docs[20:]), nil) // only the replica has these
	require.NoError(t, err)
	require.ElementsMatch(t, idsOf(docs), everything(t, c, f, maker))

	c.Stop("n0")
	// The folder of another one, of this number, is put aside, and is the last to be looked at.
	other := filepath.Join(c.Dir, "n0", "wiki@ffffffffffffffff")
	require.NoError(t, os.MkdirAll(filepath.Join(other, "g1"), 0o755))
	require.NoError(t, c.Bus.JS.DeleteStream(c.Ctx, bus.LogStream(now, 0)))
	_, err = c.Bus.Maps.Put(c.Ctx, "wiki", before.Value())
	require.NoError(t, err)
	c.Start("n0")
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(other, "g1.aside"))
		return err == nil
	}, clustertest.Patience, 10*time.Millisecond)
	require.FileExists(t, filepath.Join(c.Dir, "n0", now, "g2", "s0000.plaid"))

	restored, err := c.Op.Restore(c.Ctx, "wiki")
	require.NoError(t, err)
	require.Equal(t, now, restored.ID())
	c.Ready("n0")
	require.ElementsMatch(t, idsOf(docs), everything(t, c, c.Client(client.Config{Collection: "wiki"}), maker))
}

// A collection gets a codec of its own with the first documents, whoever comes first.
func TestBegin(t *testing.T) {
	docs, maker := alive(37, 40)
	c := clustertest.New(t, 2)
	m, err := c.Op.Create(c.Ctx, "wiki", operate.CreateOptions{Shards: 3, Replicas: 2})
	require.NoError(t, err)
	for s := range 2 { // whoever made it died before its logs were there
		require.NoError(t, c.Bus.JS.DeleteStream(c.Ctx, bus.LogStream(m.ID(), s)))
	}
	_, err = c.Op.Begin(c.Ctx, m.ID()[:len(m.ID())-1]+"x", nil, operate.BuildOptions{})
	require.ErrorIs(t, err, topology.ErrNoCollection)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			now, err := c.Op.Begin(c.Ctx, m.ID(), searchtest.Source(t, dim, docs), operate.BuildOptions{Train: index.BuildOptions{Nbits: 8, Centroids: 1, Threads: 1}, Dir: t.TempDir()})
			assert.NoError(t, err)
			if err == nil {
				assert.NotNil(t, now.Current)
				assert.True(t, now.Current.Bare())
			}
		})
	}
	wg.Wait()
	codecs, err := c.Store.List(c.Ctx, "codecs/"+m.ID()+"/")
	require.NoError(t, err)
	require.Len(t, codecs, 1, "those of others are deleted")
	c.Await(func() bool { m, err := c.Op.Watcher().Map("wiki"); return err == nil && m.Current != nil })
	f := c.Client(client.Config{Collection: "wiki"})
	require.Empty(t, everything(t, c, f, maker))
	report, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs), nil)
	require.NoError(t, err)
	require.Equal(t, 40, report.Added)
	require.ElementsMatch(t, idsOf(docs), everything(t, c, f, maker))
	m, err = c.Op.Checkpoint(c.Ctx, "wiki")
	require.NoError(t, err)
	number := m.Current.Number
	c.Build("wiki", dim, docs[:30]) // an operator goes on
	require.NoError(t, f.Watcher().Wait(c.Ctx, func() bool { m, err := f.Map(); return err == nil && m.Current.Number > number }))
	require.ElementsMatch(t, idsOf(docs[:30]), everything(t, c, f, maker))
}
