package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster"
	"github.com/plaid-ir/plaid/internal/testing/clustertest"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

// fill adds n documents called by a prefix, and returns their ids.
func fill(t testing.TB, c collection.Collection, prefix string, n int) (names []string) {
	t.Helper()
	var docs []collection.Document
	for i := range n {
		id := fmt.Sprintf("%s%03d", prefix, i)
		names = append(names, id)
		docs = append(docs, document(id, fmt.Sprintf("a%d b%d %s", i%7, i%5, id), fmt.Sprintf(`{"n":%d}`, i)))
	}
	update(t, c, docs...)
	return names
}

// awaitIDs waits until a node shows these documents.
func awaitIDs(t *testing.T, c *clustertest.Cluster, n *clustertest.Node, name string, want []string) {
	t.Helper()
	slices.Sort(want)
	ix := c.Get(n, name)
	c.Await(func() bool {
		st, err := ix.Stats(t.Context())
		return err == nil && st.Documents == uint64(len(want)) && slices.Equal(ids(t, ix), want)
	})
}

// Two nodes that take documents for a collection with a limit never leave fewer than the limit,
// and never delete the newest.
func TestEvictionByTwoFronts(t *testing.T) {
	c := clustertest.New(t, clustertest.Options{Nodes: 2, Change: shards(1, 2)})
	most := uint64(40)
	one := c.Node("n0").Declared(t, "wiki", collection.Config{MaxDocuments: &most})
	other := c.Get(c.Node("n1"), "wiki")
	var total, evicted atomic.Int64
	var wg sync.WaitGroup
	for w, ix := range []collection.Collection{one, other} {
		wg.Go(func() {
			for i := range effort.Cases(8, 50) {
				var docs []collection.Document
				var newest []string
				for j := range 12 {
					id := fmt.Sprintf("f%d-%d-%d", w, i, j)
					newest = append(newest, id)
					docs = append(docs, document(id, id, ""))
				}
				all := total.Load() + 12 // the log has at least these before the change, and with it
				r, err := ix.Update(t.Context(), docs, collection.UpdateOptions{Replace: true})
				if err != nil {
					t.Error(err)
					return
				}
				evicted.Add(int64(r.Evicted))
				total.Add(12)
				if st, err := ix.Stats(t.Context()); err != nil || st.Documents > most || st.Documents < min(uint64(all), most) {
					t.Errorf("%d documents are there after %d, %d are kept: %v", st.Documents, all, most, err)
				}
				if i == effort.Cases(8, 50)-1 {
					there := ids(t, ix)
					for _, id := range newest { // the other front adds at most 24 meanwhile
						if !slices.Contains(there, id) {
							t.Errorf("%s was just added and is gone", id)
						}
					}
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, ids(t, one), 40)
	require.Equal(t, total.Load()-40, evicted.Load())
	_, err := c.Node("n0").Declare(t.Context(), "tiny", collection.Config{MaxDocuments: new(uint64)})
	require.ErrorIs(t, err, collection.ErrConfig)
}

// A map that cannot be read, or is gone, deletes nothing: neither in the store nor in what nodes
// show once it is back.
func TestLostMapDeletesNothing(t *testing.T) {
	for _, what := range []string{"gone", "damaged"} {
		t.Run(what, func(t *testing.T) {
			c := clustertest.New(t, clustertest.Options{Change: shards(2, 2, func(c *cluster.Config) { c.Grace = time.Second })})
			want := fill(t, c.Node("n0").Declared(t, "wiki", collection.Config{}), "d", 20)
			maps, err := c.Store.List(t.Context(), "maps/wiki/", "", 0)
			require.NoError(t, err)
			kept := map[string]string{}
			for _, m := range maps {
				r, _, err := c.Store.Get(t.Context(), m.Name, 0, -1)
				require.NoError(t, err)
				text, err := io.ReadAll(r)
				require.NoError(t, err)
				require.NoError(t, r.Close())
				kept[m.Name] = string(text)
				require.NoError(t, c.Store.Delete(t.Context(), m.Name))
				if what == "damaged" {
					_, err = c.Store.Put(t.Context(), m.Name, strings.NewReader("{"), 1)
					require.NoError(t, err)
				}
			}
			_, err = c.Node("n0").Declare(t.Context(), "wiki", collection.Config{})
			require.ErrorIs(t, err, collection.ErrExists)
			before := c.Objects("data/", "")
			for i := range 6 {
				c.Store.Turn(2 * time.Hour)
				time.Sleep(2 * clustertest.Beat)
				if name := fmt.Sprint("n", i%3); i < 3 {
					c.Kill(name)
					c.Start(name)
				}
			}
			require.Subset(t, c.Objects("data/", ""), before)
			for name, text := range kept {
				require.NoError(t, c.Store.Delete(t.Context(), name))
				_, err := c.Store.Put(t.Context(), name, strings.NewReader(text), int64(len(text)))
				require.NoError(t, err)
			}
			awaitIDs(t, c, c.Start("n3"), "wiki", want)
		})
	}
}

// Logs are cut behind checkpoints whoever is away, and who comes back has what the others have.
func TestLogIsCutWhileANodeIsAway(t *testing.T) {
	c := clustertest.New(t, clustertest.Options{Change: shards(1, 3, hasty)})
	ix := c.Node("n0").Declared(t, "wiki", collection.Config{})
	want := fill(t, ix, "a", 5)
	awaitIDs(t, c, c.Node("n2"), "wiki", slices.Clone(want))
	c.Kill("n2")
	first := func() string { return c.Objects("data/", "/log/")[0] }
	begin := first()
	c.Await(func() bool {
		want = append(want, fill(t, ix, fmt.Sprint("b", len(want)), 1)...)
		return first() > begin
	})
	awaitIDs(t, c, c.Start("n2"), "wiki", slices.Clone(want))
	awaitIDs(t, c, c.Start("n4"), "wiki", want)
}

// A writer that was away for longer than the grace, while others went on and cut the log, does not
// acknowledge a change that is nowhere.
func TestWriterPausedAcrossTheGrace(t *testing.T) {
	for _, name := range []string{"n0", "n1", "n2"} { // one of them is the first to be asked
		t.Run(name, func(t *testing.T) {
			c := clustertest.New(t, clustertest.Options{Change: shards(1, 3, hasty)})
			ix := c.Node(name).Declared(t, "wiki", collection.Config{})
			want := fill(t, ix, "a", 3)
			there := c.Get(c.Node(map[string]string{"n0": "n1", "n1": "n2", "n2": "n0"}[name]), "wiki")
			first := func() string { return c.Objects("data/", "/log/")[0] }
			begin := first()
			late := make(chan error, 1)
			c.Node(name).Pause()
			go func() {
				_, err := ix.Update(t.Context(), []collection.Document{document("late", "late", "")}, collection.UpdateOptions{})
				late <- err
			}()
			c.Await(func() bool {
				want = append(want, fill(t, there, fmt.Sprint("b", len(want)), 1)...)
				return first() > begin
			})
			c.Node(name).Resume()
			err := <-late
			want = append(want, fill(t, there, "z", 1)...)
			got := ids(t, there)
			if err == nil {
				require.Contains(t, got, "late", "it was acknowledged")
			} else {
				require.True(t, isLabelled(err), "%v", err)
			}
			got = slices.DeleteFunc(got, func(id string) bool { return id == "late" })
			slices.Sort(want)
			require.Equal(t, want, got)
		})
	}
}

// A node that was told of no change shows those of others as soon as it makes one itself, and when
// the one that made them is gone.
func TestHintsLost(t *testing.T) {
	c := three(t, 1, 3)
	ix := c.Node("n0").Declared(t, "wiki", collection.Config{})
	want := fill(t, ix, "a", 3)
	for _, name := range []string{"n1", "n2"} {
		awaitIDs(t, c, c.Node(name), "wiki", slices.Clone(want))
	}
	deaf := c.Node("n2")
	deaf.Hang()
	want = append(want, fill(t, ix, "b", 3)...)
	deaf.Resume()
	there := c.Get(deaf, "wiki")
	want = append(want, fill(t, there, "c", 1)...)
	slices.Sort(want)
	require.Equal(t, want, ids(t, there))
	deaf.Hang()
	want = append(want, fill(t, ix, "d", 3)...)
	c.Kill("n0")
	c.Kill("n1")
	deaf.Resume()
	awaitIDs(t, c, deaf, "wiki", want)
}

// A node that hangs takes no search with it, and neither does a store that is away; changes say
// then that it is.
func TestSearchesGoOn(t *testing.T) {
	c := clustertest.New(t, clustertest.Options{Change: shards(3, 2, func(c *cluster.Config) { c.Deadline = clustertest.Patience })})
	ix := c.Node("n0").Declared(t, "wiki", collection.Config{})
	want := fill(t, ix, "d", 30)
	for _, n := range c.Nodes() {
		awaitIDs(t, c, n, "wiki", want)
	}
	look := func() {
		t.Helper()
		v, err := ix.View(t.Context())
		require.NoError(t, err)
		defer v.Close()
		r, err := v.Search(t.Context(), []search.Query{{Vectors: flat("a1 b2"), Dim: dim}}, search.Options{K: 40, Mode: search.Exhaustive})
		require.NoError(t, err)
		require.Len(t, r[0].Hits, 30)
		require.True(t, r[0].Coverage.Complete())
	}
	for _, name := range []string{"n1", "n2"} {
		c.Node(name).Hang()
		for range 10 {
			look()
		}
		st, err := ix.Stats(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 30, st.Documents)
		c.Node(name).Resume()
	}
	var away atomic.Bool
	away.Store(true)
	c.Store.Decide(func(op, name string) clustertest.Fault {
		if away.Load() {
			return clustertest.Lost
		}
		return clustertest.None
	})
	for range 10 {
		look()
	}
	change := func() error {
		ctx, stop := context.WithTimeout(t.Context(), opTime)
		defer stop()
		_, err := ix.Update(ctx, []collection.Document{document("new", "new", "")}, collection.UpdateOptions{Replace: true})
		return err
	}
	n := c.Node("n0")
	c.Await(func() bool {
		return !slices.ContainsFunc(c.Nodes(), func(n *clustertest.Node) bool { return n.Ready() == nil })
	})
	err := change()
	require.ErrorIs(t, err, collection.ErrUnreachable)
	require.NotErrorIs(t, err, storage.ErrOutcomeUnknown, "no node has tried")
	_, err = n.Declare(t.Context(), "other", collection.Config{})
	for _, err := range []error{err, n.Ready()} {
		require.True(t, isLabelled(err), "%v", err)
	}
	require.NotEmpty(t, n.Status(t.Context()).Faults)
	away.Store(false)
	c.Await(func() bool { return n.Ready() == nil && change() == nil })
	require.Len(t, ids(t, ix), 31)
}

// What is removed goes out of the store after the grace, and nothing else does.
func TestRemovedIsCollected(t *testing.T) {
	c := clustertest.New(t, clustertest.Options{Change: shards(2, 2, hasty)})
	n := c.Node("n0")
	want := fill(t, n.Declared(t, "stays", collection.Config{}), "d", 10)
	fill(t, n.Declared(t, "goes", collection.Config{}), "d", 10)
	stays := c.Objects("data/stays", "")
	existed, err := n.Drop(t.Context(), "goes")
	require.NoError(t, err)
	require.True(t, existed)
	require.NotEmpty(t, c.Objects("data/goes", ""), "others may be reading them")
	c.Await(func() bool { return len(c.Objects("data/goes", "")) == 0 })
	left := c.Objects("data/stays", "/log/")
	require.NotEmpty(t, left)
	require.Subset(t, stays, left)
	c.Kill("n0")
	awaitIDs(t, c, c.Node("n1"), "stays", want)
}

// A log with a gap or a fork is an error at the next read, and no answer.
func TestForkIsAnError(t *testing.T) {
	c := clustertest.New(t, clustertest.Options{Nodes: 1, Change: shards(1, 1)})
	ix := c.Node("n0").Declared(t, "wiki", collection.Config{})
	for i := range 6 {
		fill(t, ix, fmt.Sprint("d", i), 1)
	}
	c.Kill("n0")
	c.Forget("n0")
	log := c.Objects("data/", "/log/")
	require.Greater(t, len(log), 4)
	require.NoError(t, c.Store.Delete(t.Context(), log[2]))
	var failed error
	n, err := c.TryStart(t.Context(), "n0")
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	v, failed := c.Get(n, "wiki").View(ctx)
	if failed == nil { // a view may be taken before it is looked at
		_, failed = v.Describe(ctx)
		_ = v.Close()
	}
	require.Error(t, failed)
	require.False(t, errors.Is(failed, collection.ErrEmpty), "%v", failed)
}

// A change whose holder hangs goes to another one long before it is given up, whichever node it is.
func TestChangesGoOn(t *testing.T) {
	c := clustertest.New(t, clustertest.Options{Change: shards(1, 3, func(c *cluster.Config) { c.Beat = time.Second })})
	ix := c.Node("n0").Declared(t, "wiki", collection.Config{})
	want := fill(t, ix, "a", 3)
	for _, name := range []string{"n1", "n2", "n0"} {
		front := c.Get(c.Node(map[string]string{"n0": "n1", "n1": "n2", "n2": "n0"}[name]), "wiki")
		c.Node(name).Hang()
		ctx, stop := context.WithTimeout(t.Context(), 8*time.Second) // less than a node has to answer
		_, err := front.Update(ctx, []collection.Document{document("to-"+name, "text", "")}, collection.UpdateOptions{Replace: true})
		stop()
		c.Node(name).Resume()
		require.NoError(t, err, name)
		want = append(want, "to-"+name)
	}
	slices.Sort(want)
	c.Await(func() bool { return slices.Equal(ids(t, ix), want) })
}

// Shards that do not answer are left out of a search where that is allowed, and its coverage names them;
// otherwise they are an error.
func TestPartialAnswers(t *testing.T) {
	for _, partial := range []bool{true, false} {
		t.Run(fmt.Sprint(partial), func(t *testing.T) {
			c := clustertest.New(t, clustertest.Options{Nodes: 2, Change: shards(6, 1, func(c *cluster.Config) {
				c.Partial, c.Beat, c.Deadline = partial, 2*time.Second, time.Second // n1 is not given up meanwhile
			})})
			ix := c.Node("n0").Declared(t, "wiki", collection.Config{})
			awaitIDs(t, c, c.Node("n0"), "wiki", fill(t, ix, "d", 60))
			v, err := ix.View(t.Context())
			require.NoError(t, err)
			defer v.Close()
			look := func() (*search.Result, error) {
				r, err := v.Search(t.Context(), []search.Query{{Vectors: flat("a1 b2"), Dim: dim}}, search.Options{K: 100, Mode: search.Exhaustive})
				if err != nil {
					return nil, err
				}
				return &r[0], nil
			}
			whole, err := look()
			require.NoError(t, err)
			require.Len(t, whole.Hits, 60)
			require.True(t, whole.Coverage.Complete())
			c.Node("n1").Hang()
			defer c.Node("n1").Resume()
			r, err := look()
			if !partial {
				require.ErrorIs(t, err, collection.ErrUnreachable)
				require.ErrorContains(t, err, "shard ")
				return
			}
			require.NoError(t, err)
			require.NotEmpty(t, r.Hits)
			require.Less(t, len(r.Hits), 60)
			require.False(t, r.Coverage.Complete())
			require.NotEmpty(t, r.Coverage.Missing)
			require.EqualValues(t, len(r.Hits), r.Coverage.Docs)
			require.EqualValues(t, 60, r.Coverage.Of)
		})
	}
}
