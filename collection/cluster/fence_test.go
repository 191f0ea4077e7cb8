package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/testing/objectstest/memory"
	"github.com/plaid-ir/plaid/storage/objects"
)

// hang makes requests to a store wait while away is set, and counts those to logs.
func hang(s *memory.Store) (away *atomic.Bool, logs *atomic.Int64) {
	away, logs = new(atomic.Bool), new(atomic.Int64)
	s.SetHook(func(ctx context.Context, _, name string) (before, after error) {
		if away.Load() && strings.Contains(name, "/log/") {
			logs.Add(1)
		}
		for away.Load() {
			select {
			case <-ctx.Done():
				return ctx.Err(), nil
			case <-time.After(5 * time.Millisecond):
			}
		}
		return nil, nil
	})
	return away, logs
}

// store1 adds or replaces a document.
func store1(t *testing.T, ctx context.Context, c collection.Collection, id string) error {
	t.Helper()
	docs := []collection.DocumentInput{{ID: id, Dim: 2, Vectors: []float32{1, 0}}}
	_, err := c.Update(ctx, docs, collection.UpdateOptions{Replace: true})
	return err
}

// A node that has not heard of a removal, nor of another collection of the name, acknowledges nothing after it.
func TestDropFences(t *testing.T) {
	t.Parallel()
	s := memory.New()
	b := s.Twin()
	spread := func(c *Config) { c.Shards, c.Replicas = 3, 2 }
	here, deaf := testNode(t, s, "a", spread), testNode(t, b, "b", spread)
	wiki, err := here.Create(t.Context(), "wiki", collection.Config{})
	require.NoError(t, err)
	require.NoError(t, store1(t, t.Context(), wiki, "one"))
	there, err := deaf.Get("wiki")
	require.NoError(t, err)
	for i := range 6 {
		require.NoError(t, store1(t, t.Context(), there, fmt.Sprint("before", i)))
	}
	maps := s.Names(mapsPrefix)
	b.ChangeLists(func(all []objects.Entry) []objects.Entry {
		return slices.DeleteFunc(all, func(e objects.Entry) bool {
			return strings.HasPrefix(e.Name, mapsPrefix) && !slices.Contains(maps, e.Name)
		})
	})
	existed, err := here.Remove(t.Context(), "wiki")
	require.NoError(t, err)
	require.True(t, existed)
	m, err := newestMap(t.Context(), s, "wiki")
	require.NoError(t, err)
	require.Len(t, m.Retired, 1)
	require.Zero(t, m.Retired[0].Shards, "all are sealed")
	again, err := here.Create(t.Context(), "wiki", collection.Config{})
	require.NoError(t, err)
	require.NoError(t, store1(t, t.Context(), again, "another"))
	for i := range 6 {
		ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err := store1(t, ctx, there, fmt.Sprint("after", i))
		stop()
		require.Error(t, err)
		require.True(t, errors.Is(err, collection.ErrUnknown) || errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, collection.ErrUnreachable), "%v", err)
	}
	b.ChangeLists(nil)
	require.Eventually(t, func() bool {
		return errors.Is(store1(t, t.Context(), there, "after"), collection.ErrUnknown)
	}, 20*time.Second, testBeat)
	there, err = deaf.Get("wiki")
	require.NoError(t, err)
	for _, c := range []collection.Collection{again, there} {
		require.EqualValues(t, 1, numbersOf(t, c).Documents)
	}
}

// The logs that an interrupted removal has left are sealed by the coordinator, or by a second removal.
func TestDropInterrupted(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"coordinator", "again"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			b := memory.New()
			c := testNode(t, b, "a", func(c *Config) {
				if c.Shards = 2; who == "again" {
					c.Beat = time.Minute
				}
			})
			wiki, err := c.Create(t.Context(), "wiki", collection.Config{})
			require.NoError(t, err)
			require.NoError(t, store1(t, t.Context(), wiki, "one"))
			b.Fail("/log/0001/", objects.ErrNotMade)
			existed, err := c.Remove(t.Context(), "wiki")
			require.Error(t, err)
			require.True(t, existed)
			open := func() int {
				m, err := newestMap(t.Context(), b, "wiki")
				require.NoError(t, err)
				return m.Retired[0].Shards
			}
			require.Equal(t, 2, open())
			b.SetHook(nil)
			if who == "again" {
				_, err = c.Remove(t.Context(), "wiki")
				require.NoError(t, err)
				require.Zero(t, open())
				return
			}
			await(t, "the logs are sealed", func() bool { return open() == 0 })
		})
	}
}

// A client that hears of nothing finds documents that a node has stored a moment ago.
func TestEmptyIsLookedAt(t *testing.T) {
	s := memory.New()
	client, node := testNode(t, s, "c", func(c *Config) { c.Address, c.Beat = "", time.Hour }), testNode(t, s, "a", nil)
	require.NoError(t, client.refreshFromStore(t.Context())) // it sees the node
	wiki, err := client.Create(t.Context(), "wiki", collection.Config{})
	require.NoError(t, err)
	there, err := node.Get("wiki")
	require.NoError(t, err)
	require.NoError(t, store1(t, t.Context(), there, "one"))
	v, err := wiki.Snapshot(t.Context())
	require.NoError(t, err)
	require.NoError(t, v.Close())
	require.EqualValues(t, 1, numbersOf(t, wiki).Documents)
}

// A change whose first holder does not reach the store is made by another one.
func TestChangeWhoseHolderIsCut(t *testing.T) {
	t.Parallel()
	s := memory.New()
	ways := map[string]*memory.Store{"a": s, "b": s.Twin()}
	spread := func(c *Config) { c.Replicas = 2 }
	nodes := map[string]*Cluster{"a": testNode(t, ways["a"], "a", spread), "b": testNode(t, ways["b"], "b", spread)}
	wiki, err := nodes["b"].Create(t.Context(), "wiki", collection.Config{})
	require.NoError(t, err)
	require.NoError(t, store1(t, t.Context(), wiki, "one"))
	for _, c := range nodes {
		await(t, "the nodes know each other", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.nodes) == 2
		})
	}
	m := nodes["b"].knownMap("wiki")
	first := nodes["b"].holders(m, 0)[0].Name
	other := map[string]string{"a": "b", "b": "a"}[first]
	there, err := nodes[other].Get("wiki")
	require.NoError(t, err)
	away, _ := hang(ways[first])
	away.Store(true)
	defer away.Store(false)
	ctx, stop := context.WithTimeout(t.Context(), 6*time.Second)
	defer stop()
	require.NoError(t, store1(t, ctx, there, "two"))
}

// A front that has just started sends with its first change where the log ends. When the answer is lost, the change is
// looked for after that, whether or not the log was cut before.
func TestFirstChangeOfAFrontIsLost(t *testing.T) {
	s := memory.New()
	var node *Cluster
	var lose atomic.Bool
	node = testNodeBehind(t, s, "n", func(next http.Handler, w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/update") && lose.CompareAndSwap(true, false) {
			next.ServeHTTP(httptest.NewRecorder(), r)
			node.mu.Lock()
			open := node.replicas
			node.replicas = map[replicaKey]*cachedReplica{}
			node.mu.Unlock()
			for _, r := range open { // one that is opened again remembers no batch
				_ = r.Close(context.Background())
			}
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	}, nil)
	wiki, err := node.Create(t.Context(), "wiki", collection.Config{})
	require.NoError(t, err)
	for i := range 8 {
		require.NoError(t, store1(t, t.Context(), wiki, fmt.Sprint("d", i)))
	}
	m := node.knownMap("wiki")
	r, err := node.ensureReplica(t.Context(), m.ID, 0, m.Current.Number)
	require.NoError(t, err)
	require.NoError(t, r.Checkpoint(t.Context()))
	log := s.Names(dataPrefix(m.ID) + "log/0000/")
	for _, name := range log[:len(log)-1] { // as a collector would
		require.NoError(t, s.Delete(t.Context(), name))
	}
	client := testNode(t, s, "c", func(c *Config) { c.Address = "" })
	there, err := client.Get("wiki")
	require.NoError(t, err)
	lose.Store(true)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	require.NoError(t, store1(t, ctx, there, "lost"))
	require.False(t, lose.Load())
}

// A node whose store does not answer is closed when the context of that ends.
func TestCloseWithoutAStore(t *testing.T) {
	t.Parallel()
	b := memory.New()
	c := testNode(t, b, "a", nil)
	wiki, err := c.Create(t.Context(), "wiki", collection.Config{})
	require.NoError(t, err)
	require.NoError(t, store1(t, t.Context(), wiki, "one"))
	away, logs := hang(b)
	away.Store(true)
	waits := make(chan error, 1)
	go func() { waits <- store1(t, context.WithoutCancel(t.Context()), wiki, "two") }()
	await(t, "a change waits", func() bool { return logs.Load() > 0 })
	ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	closed := make(chan error, 1)
	go func() { closed <- c.Close(ctx) }()
	select {
	case <-closed:
	case <-time.After(12 * time.Second): // a put is given longer than that
		t.Error("it is not closed")
	}
	err = <-waits
	require.Error(t, err)
}

// A clock of the store that was ahead for a while, and was set right, makes no new object look old.
func TestClockOfTheStoreComesBack(t *testing.T) {
	t.Parallel()
	b := memory.New()
	c := testNode(t, b, "a", nil)
	right := b.Now()
	b.AdvanceClock(2 * time.Hour)
	await(t, "the clock is ahead", func() bool { return c.storeTime().Sub(right) > time.Hour })
	b.AdvanceClock(-2 * time.Hour)
	await(t, "the clock is right", func() bool { return c.storeTime().Sub(right) < time.Hour })
}
