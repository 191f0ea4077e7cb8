package client_test

import (
	"context"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/objects/objectstest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

// named are the objects that the map of a collection names, which have to be there.
func named(t *testing.T, c *clustertest.Cluster, collection string) (names []string) {
	t.Helper()
	m, err := topology.NewStore(c.Store, c.Bus.Maps).Newest(c.Ctx, collection)
	require.NoError(t, err)
	for _, g := range []*topology.Generation{m.Current, m.Next} {
		if g == nil {
			continue
		}
		for _, ref := range append([]objects.Ref{g.Codec}, func() (refs []objects.Ref) {
			for _, s := range g.Shards {
				refs = append(refs, s.Object)
			}
			return refs
		}()...) {
			names = append(names, ref.Name)
			require.NoError(t, objects.Verify(c.Ctx, c.Store, ref))
		}
	}
	return names
}

// The store keeps what it is given and loses the answers: builds, checkpoints and begun
// collections go on as if nothing had been, and all that a map names is there.
func TestLostAnswersOfTheStore(t *testing.T) {
	for _, fault := range []objectstest.Fault{objectstest.Busy, objectstest.Lost} {
		b, address := objectstest.Open(t)
		var mu sync.Mutex
		lost := map[string]bool{}
		b.After = func(r *http.Request) objectstest.Fault {
			mu.Lock()
			defer mu.Unlock()
			if lost[r.URL.Path] {
				return objectstest.None
			}
			lost[r.URL.Path] = true // the first answer about each object
			return fault
		}
		store, err := objects.Open(address)
		require.NoError(t, err)
		docs, _ := documents(51, 60)
		c := clustertest.NewOver(t, 2, store)
		c.Collection("wiki", operate.CreateOptions{Shards: 2, Replicas: 2}, dim, docs[:40])
		require.Len(t, named(t, c, "wiki"), 3)
		f := c.Client(client.Config{Collection: "wiki"})
		_, err = f.Add(c.Ctx, searchtest.Source(t, dim, docs[40:]), nil)
		require.NoError(t, err)
		_, err = c.Op.Checkpoint(c.Ctx, "wiki")
		require.NoError(t, err)
		require.Len(t, named(t, c, "wiki"), 3)
		_, err = c.Op.Verify(c.Ctx, "wiki")
		require.NoError(t, err)
		mu.Lock()
		assert.Greater(t, len(lost), 8)
		mu.Unlock()
		_, err = c.Op.Create(c.Ctx, "begun", operate.CreateOptions{})
		require.NoError(t, err)
		c.Await(func() bool { _, err := c.Op.Watcher().Map("begun"); return err == nil })
		_, err = c.Op.Begin(c.Ctx, c.ID("begun"), searchtest.Source(t, dim, docs), operate.BuildOptions{Train: clustertest.Train, Dir: t.TempDir()})
		require.NoError(t, err)
		named(t, c, "begun")
	}
}

// pausing is a source that does something before it is read for the first time.
type pausing struct {
	vectors.Source
	first *sync.Once
	do    func()
}

func (p pausing) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	p.first.Do(p.do)
	return p.Source.Docs(ctx, from, to)
}

// A checkpoint while a build trains cuts nothing off that the build begins with.
func TestCheckpointBesideBuild(t *testing.T) {
	docs, maker := alive(52, 60)
	c := clustertest.New(t, 2)
	c.Collection("wiki", operate.CreateOptions{Replicas: 2}, dim, docs[:40])
	f := c.Client(client.Config{Collection: "wiki"})
	add := func(i int) {
		_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[i:i+1]), nil)
		require.NoError(t, err)
	}
	firstEntry := func() uint64 {
		stream, err := c.Bus.JS.Stream(c.Ctx, bus.LogStream(c.ID("wiki"), 0))
		require.NoError(t, err)
		return stream.CachedInfo().State.FirstSeq
	}
	checkpoint := func(applied uint64) {
		c.Await(func() bool {
			m, err := c.Op.Watcher().Map("wiki")
			require.NoError(t, err)
			for _, r := range c.Op.Watcher().Replicas(c.ID("wiki"), m.Current.Number, 0) {
				if r.Applied < applied {
					return false
				}
			}
			return true
		})
		_, err := c.Op.Checkpoint(c.Ctx, "wiki")
		require.NoError(t, err)
	}
	beside := func() {
		for i := 40; i < 44; i++ {
			add(i)
		}
		checkpoint(4)
		assert.EqualValues(t, 1, firstEntry(), "it is cut off")
	}
	src := pausing{searchtest.Source(t, dim, docs[:40]), &sync.Once{}, beside}
	_, err := c.Op.Build(c.Ctx, "wiki", src, operate.BuildOptions{Train: clustertest.Train, Dir: t.TempDir()})
	require.NoError(t, err)
	_, err = c.Op.Promote(c.Ctx, "wiki")
	require.NoError(t, err)
	require.NoError(t, f.Watcher().Wait(c.Ctx, func() bool {
		m, err := f.Watcher().Map("wiki")
		return err == nil && m.Next == nil && m.Reserved == nil
	}))
	require.Len(t, everything(t, c, f, maker), 44)
	add(44)
	checkpoint(5)
	assert.EqualValues(t, 5, firstEntry(), "the last entry stays")

	// A build that fails gives its reservation back.
	_, err = c.Op.Build(c.Ctx, "wiki", searchtest.Source(t, dim, nil), operate.BuildOptions{Train: clustertest.Train, Dir: t.TempDir()})
	require.Error(t, err)
	m, err := topology.NewStore(c.Store, c.Bus.Maps).Newest(c.Ctx, "wiki")
	require.NoError(t, err)
	require.Empty(t, m.Reserved)
}

// What no map names goes when it is old; what one names, what may be named soon, and what
// nobody knows stays.
func TestTidy(t *testing.T) {
	docs, _ := documents(53, 60)
	c := clustertest.New(t, 1)
	c.Collection("wiki", operate.CreateOptions{Shards: 2}, dim, docs[:30])
	f := c.Client(client.Config{Collection: "wiki"})
	_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[30:]), nil)
	require.NoError(t, err)
	_, err = c.Op.Checkpoint(c.Ctx, "wiki") // two shards are named no longer
	require.NoError(t, err)
	c.Build("wiki", dim, docs) // nor is the first generation
	_, err = c.Op.Create(c.Ctx, "gone", operate.CreateOptions{})
	require.NoError(t, err)
	gone := c.ID("gone")
	_, _, err = c.Op.Remove(c.Ctx, "gone")
	require.NoError(t, err)
	m, err := topology.NewStore(c.Store, c.Bus.Maps).Update(c.Ctx, c.ID("wiki"), func(m *topology.Map) error { m.Reserve(time.Now()); return nil })
	require.NoError(t, err)
	id := c.ID("wiki")
	put := func(name string) {
		require.NoError(t, c.Store.Put(c.Ctx, name, strings.NewReader("x"), 1))
	}
	put("codecs/" + id + "/g3.plaid") // reserved
	put("inputs/" + id + "/g3/s0000.spool")
	put("shards/" + id + "/g3/s0000.plaid")
	put("inputs/" + id + "/g2/s0000.spool") // left by a build that was killed
	put("shards/" + id + "/g2/input.plaid") // of which the reserved one may be made
	put("shards/" + gone + "/g1/late.plaid")
	put("shards/unheard@0123456789abcdef/g1/s.plaid")
	before, err := c.Store.List(c.Ctx, "")
	require.NoError(t, err)
	report, err := c.Op.Tidy(c.Ctx, 0)
	require.NoError(t, err)
	require.Zero(t, report.Objects, "all is young")
	old := time.Now().Add(-2 * operate.Grace)
	for _, e := range before {
		require.NoError(t, os.Chtimes(filepath.Join(c.Dir, "store", filepath.FromSlash(e.Name)), old, old))
	}
	put("shards/" + id + "/g2/young.plaid")
	wanted := named(t, c, "wiki")
	require.EqualValues(t, 3, m.Last)
	report, err = c.Op.Tidy(c.Ctx, 0)
	require.NoError(t, err)
	assert.Equal(t, []string{"shards/unheard@0123456789abcdef/g1/s.plaid"}, report.Strange)
	assert.Equal(t, 2+2+1+1+1, report.Objects) // replaced and of the first generation, its codec, an input, of what is gone
	assert.Equal(t, wanted, named(t, c, "wiki"))
	for _, name := range []string{"codecs/" + id + "/g3.plaid", "inputs/" + id + "/g3/s0000.spool", "shards/" + id + "/g3/s0000.plaid", "shards/" + id + "/g2/young.plaid", "shards/" + id + "/g2/input.plaid"} {
		r, err := c.Store.Get(c.Ctx, name)
		require.NoError(t, err, name)
		_ = r.Close()
	}
	// What was kept for a generation goes when its maker has died.
	_, err = topology.NewStore(c.Store, c.Bus.Maps).Update(c.Ctx, id, func(m *topology.Map) error {
		m.Reserved[0].Since = m.Reserved[0].Since.Add(-2 * topology.ReservedFor)
		return nil
	})
	require.NoError(t, err)
	report, err = c.Op.Tidy(c.Ctx, 0)
	require.NoError(t, err)
	assert.Equal(t, 4, report.Objects)
	assert.Equal(t, wanted, named(t, c, "wiki"))
	_, err = c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
}

// A log that stays long, as a generation is reserved, is worth no object for each entry.
func TestLongLogBesideBuild(t *testing.T) {
	docs := searchtest.New(3, dim, 12).Docs("d", 400, 4)
	c := clustertest.New(t, 1)
	c.Collection("wiki", operate.CreateOptions{}, dim, docs[:20])
	f := c.Client(client.Config{Collection: "wiki"})
	reserve := func(m *topology.Map) error { m.Reserve(time.Now()); return nil }
	m, err := topology.NewStore(c.Store, c.Bus.Maps).Update(c.Ctx, c.ID("wiki"), reserve)
	require.NoError(t, err)
	c.Await(func() bool { now, err := c.Op.Watcher().Map("wiki"); return err == nil && now.Version >= m.Version })
	for i, batch := range [][]vectors.Document{docs[20:120], docs[120:220], docs[220:320], docs[320:399], docs[399:]} {
		_, err := f.Add(c.Ctx, searchtest.Source(t, dim, batch), nil)
		require.NoError(t, err)
		c.Await(func() bool { return c.Op.Watcher().Replicas(m.ID(), 1, 0)[0].Applied == uint64(i+1) })
		if i < 3 {
			continue
		}
		made, err := c.Op.CheckpointLong(c.Ctx, "")
		require.NoError(t, err)
		require.Equal(t, 4-i, made) // of four batches, and not of one document
		c.Await(func() bool {
			now, err := c.Op.Watcher().Map("wiki")
			return err == nil && now.Current.Shards[0].Applied == 4
		})
	}
	stream, err := c.Bus.JS.Stream(c.Ctx, bus.LogStream(m.ID(), 0))
	require.NoError(t, err)
	require.EqualValues(t, 1, stream.CachedInfo().State.FirstSeq)
}
