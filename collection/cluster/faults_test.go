package cluster_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster"
	"github.com/plaid-ir/plaid/internal/testing/clustertest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/objects"
)

// fill adds n documents called by a prefix, and returns their ids.
func fill(t testing.TB, c collection.Collection, prefix string, n int) (names []string) {
	t.Helper()
	var docs []collection.DocumentInput
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

// A map that cannot be read, or is gone, deletes nothing: neither in the store nor in the collection once it is back.
func TestLostMapDeletesNothing(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, clustertest.Options{
		Change: shards(2, 2, func(c *cluster.Config) { c.Grace = time.Second }),
	})
	want, kept := map[string][]string{}, map[string][]byte{}
	replace := func(name string, body []byte) {
		require.NoError(t, c.Store.Delete(t.Context(), name))
		if body != nil {
			_, err := c.Store.Put(t.Context(), name, bytes.NewReader(body), int64(len(body)))
			require.NoError(t, err)
		}
	}
	for name, body := range map[string][]byte{"gone": nil, "damaged": []byte("{")} {
		want[name] = fill(t, c.Node("n0").MustCreate(t, name, collection.Config{}), "d", 20)
		for _, m := range c.Objects("maps/"+name+"/", "") {
			var err error
			kept[m], _, err = objects.Read(t.Context(), c.Store, m, 1<<20)
			require.NoError(t, err)
			replace(m, body)
		}
		_, err := c.Node("n0").Create(t.Context(), name, collection.Config{})
		require.ErrorIs(t, err, collection.ErrExists)
	}
	before := c.Objects("data/", "")
	for i := range 4 {
		c.Store.AdvanceClock(2 * time.Hour)
		time.Sleep(2 * clustertest.Beat)
		if i < 3 {
			c.Kill(fmt.Sprint("n", i))
			c.Start(fmt.Sprint("n", i))
		}
	}
	require.Subset(t, c.Objects("data/", ""), before)
	for name, body := range kept {
		replace(name, body)
	}
	fresh := c.Start("n3")
	for name, ids := range want {
		awaitIDs(t, c, fresh, name, ids)
	}
}

// Logs are cut behind checkpoints while a node is away, and the node catches up when it is back.
func TestLogIsCutWhileANodeIsAway(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, clustertest.Options{Change: shards(1, 3, hasty)})
	ix := c.Node("n0").MustCreate(t, "wiki", collection.Config{})
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

// A node that was told of no change shows those of others as soon as it makes one itself, and when
// the one that made them is gone.
func TestHintsLost(t *testing.T) {
	t.Parallel()
	c := three(t, 1, 3)
	ix := c.Node("n0").MustCreate(t, "wiki", collection.Config{})
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
	t.Parallel()
	c := clustertest.New(t,
		clustertest.Options{Change: shards(3, 2, func(c *cluster.Config) { c.Deadline = clustertest.Patience })})
	ix := c.Node("n0").MustCreate(t, "wiki", collection.Config{})
	want := fill(t, ix, "d", 30)
	for _, n := range c.Nodes() {
		awaitIDs(t, c, n, "wiki", want)
	}
	look := func() {
		t.Helper()
		v, err := ix.Snapshot(t.Context())
		require.NoError(t, err)
		defer v.Close()
		r, err := v.Search(t.Context(), []search.Query{{Vectors: flat("a1 b2"), Dim: dim}},
			search.Options{K: 40, Mode: search.Exhaustive})
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
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err := ix.Update(ctx, []collection.DocumentInput{document("new", "new", "")},
			collection.UpdateOptions{Replace: true})
		return err
	}
	n := c.Node("n0")
	c.Await(func() bool {
		return !slices.ContainsFunc(c.Nodes(), func(n *clustertest.Node) bool { return n.Ready() == nil })
	})
	err := change()
	require.ErrorIs(t, err, collection.ErrUnreachable)
	require.NotErrorIs(t, err, storage.ErrOutcomeUnknown, "no node has tried")
	_, err = n.Create(t.Context(), "other", collection.Config{})
	for _, err := range []error{err, n.Ready()} {
		require.True(t, isLabelled(err), "%v", err)
	}
	require.NotEmpty(t, n.Status(t.Context()).Faults)
	away.Store(false)
	c.Await(func() bool { return n.Ready() == nil && change() == nil })
	require.Len(t, ids(t, ix), 31)
}

// The objects of a removed collection are deleted after the grace, and no others.
func TestRemovedIsCollected(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, clustertest.Options{Change: shards(2, 2, hasty)})
	n := c.Node("n0")
	want := fill(t, n.MustCreate(t, "stays", collection.Config{}), "d", 10)
	fill(t, n.MustCreate(t, "goes", collection.Config{}), "d", 10)
	stays := c.Objects("data/stays", "")
	existed, err := n.Remove(t.Context(), "goes")
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
	t.Parallel()
	c := clustertest.New(t, clustertest.Options{Nodes: 1, Change: shards(1, 1)})
	ix := c.Node("n0").MustCreate(t, "wiki", collection.Config{})
	for i := range 6 {
		fill(t, ix, fmt.Sprint("d", i), 1)
	}
	c.Kill("n0")
	c.Forget("n0")
	log := c.Objects("data/", "/log/")
	require.Greater(t, len(log), 4)
	require.NoError(t, c.Store.Delete(t.Context(), log[2]))
	n := c.Start("n0")
	c.Await(func() bool { return strings.Contains(fmt.Sprint(n.Status(t.Context()).Faults), log[2]) })
	ctx, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer stop()
	v, err := c.Get(n, "wiki").Snapshot(ctx)
	if err == nil { // a view may be taken before it is looked at
		_, err = v.Describe(ctx)
		_ = v.Close()
	}
	require.Error(t, err)
	require.NotErrorIs(t, err, collection.ErrEmpty)
}

// A change whose holder hangs goes to another one long before it is given up, whichever node it is.
func TestChangesGoOn(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, clustertest.Options{Change: shards(1, 3, func(c *cluster.Config) { c.Beat = time.Second })})
	ix := c.Node("n0").MustCreate(t, "wiki", collection.Config{})
	want := fill(t, ix, "a", 3)
	for _, name := range []string{"n1", "n2", "n0"} {
		front := c.Get(c.Node(map[string]string{"n0": "n1", "n1": "n2", "n2": "n0"}[name]), "wiki")
		c.Node(name).Hang()
		ctx, stop := context.WithTimeout(t.Context(), 8*time.Second) // less than a node has to answer
		_, err := front.Update(ctx, []collection.DocumentInput{document("to-"+name, "text", "")},
			collection.UpdateOptions{Replace: true})
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
	t.Parallel()
	c := clustertest.New(t, clustertest.Options{Change: shards(6, 1, func(c *cluster.Config) {
		c.Partial = c.Name == "n0"
		c.Deadline = time.Second
	})})
	awaitIDs(t, c, c.Node("n2"), "wiki", fill(t, c.Node("n0").MustCreate(t, "wiki", collection.Config{}), "d", 60))
	look := func(name string) (r search.Result, err error) {
		v, err := c.Get(c.Node(name), "wiki").Snapshot(t.Context())
		require.NoError(t, err)
		defer v.Close()
		all, err := v.Search(t.Context(), []search.Query{{Vectors: flat("a1 b2"), Dim: dim}},
			search.Options{K: 100, Mode: search.Exhaustive})
		if err == nil {
			r = all[0]
		}
		return r, err
	}
	for _, name := range []string{"n0", "n2"} {
		r, err := look(name)
		require.NoError(t, err)
		require.Len(t, r.Hits, 60)
		require.True(t, r.Coverage.Complete())
	}
	c.Node("n1").Hang()
	defer c.Node("n1").Resume()
	r, err := look("n0")
	require.NoError(t, err)
	require.NotEmpty(t, r.Hits)
	require.Less(t, len(r.Hits), 60)
	require.False(t, r.Coverage.Complete())
	require.NotEmpty(t, r.Coverage.Missing)
	require.EqualValues(t, len(r.Hits), r.Coverage.Docs)
	require.EqualValues(t, 60, r.Coverage.TotalDocs)
	_, err = look("n2")
	require.ErrorIs(t, err, collection.ErrUnreachable)
	require.ErrorContains(t, err, "shard ")
}
