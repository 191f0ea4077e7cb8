package node

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/topology"
)

func serverBus(t *testing.T) *bus.Bus {
	t.Helper()
	server, err := bus.StartServer(t.Context(), bus.ServerOptions{Name: "one", Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(server.Close)
	conn, err := server.Connect("test")
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	b, err := bus.Setup(t.Context(), conn, 1, time.Minute)
	require.NoError(t, err)
	return b
}

// A node renews its lease often enough for the cluster that it joins, whatever it is told.
func TestLeaseIsRenewedInTime(t *testing.T) {
	b := serverBus(t)
	store, err := objects.OpenFolder(t.TempDir())
	require.NoError(t, err)
	n, err := Start(t.Context(), b, store, Config{Name: "n0", Dir: t.TempDir(), Renew: time.Hour})
	require.NoError(t, err)
	t.Cleanup(n.Close)
	require.Equal(t, time.Minute/3, n.c.Renew)
}

// What a replica has may go when as many of those that the map gives the shard have it as
// acknowledge a change: if fewer had it, healing could take the others for right.
func TestCompleteIsWhatAcknowledges(t *testing.T) {
	b := serverBus(t)
	m, err := topology.New("wiki", 1, 3, 2, []topology.Member{{Name: "a"}, {Name: "b"}, {Name: "c"}})
	require.NoError(t, err)
	m.Last, m.Current = 2, &topology.Generation{Number: 2}
	w, err := topology.Watch(t.Context(), b)
	require.NoError(t, err)
	t.Cleanup(w.Close)
	n := &Node{watch: w}
	say := func(node string, ready bool, applied uint64) {
		text, err := json.Marshal(topology.Lease{Node: node, Shards: []topology.Serving{{Collection: m.ID(), Generation: 2, Ready: ready, Applied: applied}}})
		require.NoError(t, err)
		_, err = b.Nodes.Put(t.Context(), node, text)
		require.NoError(t, err)
		require.NoError(t, w.Wait(t.Context(), func() bool {
			return slices.ContainsFunc(w.Replicas(m.ID(), 2, 0), func(r topology.Replica) bool { return r.Node == node && r.Ready == ready && r.Applied == applied })
		}))
	}
	for _, s := range []struct {
		node    string
		ready   bool
		applied uint64
		want    bool
	}{{"a", true, 7, false}, {"elsewhere", true, 7, false}, {"b", true, 6, false}, {"c", false, 7, false}, {"b", true, 8, true}} {
		say(s.node, s.ready, s.applied)
		require.Equal(t, s.want, n.complete(m, 2, 0, 7), "%+v", s)
	}
	require.False(t, n.complete(m, 2, 1, 0), "there is no such shard")
}

// A folder that cannot be deleted keeps nothing else from being taken away, nor the lease
// from saying so, and is tried again.
func TestTidyGoesOn(t *testing.T) {
	ctx := t.Context()
	b := serverBus(t)
	store, err := objects.OpenFolder(t.TempDir())
	require.NoError(t, err)
	maps := topology.NewStore(store, b.Maps)
	n := &Node{c: Config{Dir: t.TempDir()}, log: slog.New(slog.DiscardHandler)}
	var ended []*replica
	folder := func(r *replica, generation string) string {
		return filepath.Join(n.c.Dir, r.key.collection, generation)
	}
	for _, name := range []string{"a", "b"} {
		m, err := topology.New(name, 1, 1, 1, []topology.Member{{Name: "n0"}})
		require.NoError(t, err)
		m.Incarnation = topology.NewIncarnation()
		require.NoError(t, maps.Create(ctx, m))
		_, _, err = maps.Remove(ctx, name)
		require.NoError(t, err)
		r := &replica{n: n, key: key{m.ID(), 1, 0}}
		for _, generation := range []string{"g1", "g2"} {
			require.NoError(t, os.MkdirAll(folder(r, generation), 0o755))
		}
		ended = append(ended, r)
	}
	n.watch, err = topology.Watch(ctx, b)
	require.NoError(t, err)
	t.Cleanup(n.watch.Close)

	stuck := folder(ended[0], "g1")
	errStuck := errors.New("it cannot be deleted")
	a := attic{removeAll: func(path string) error {
		if path == stuck {
			return errStuck
		}
		return os.RemoveAll(path)
	}}
	gone, err := n.tidy(&a, ended)
	require.ErrorIs(t, err, errStuck)
	require.Equal(t, ended[1:], gone)
	require.DirExists(t, stuck)
	require.NoDirExists(t, folder(ended[0], "g2"))
	require.NoDirExists(t, filepath.Join(n.c.Dir, ended[1].key.collection))

	a.removeAll = os.RemoveAll
	gone, err = n.tidy(&a, ended[:1])
	require.NoError(t, err)
	require.Equal(t, ended[:1], gone)
	require.NoDirExists(t, filepath.Join(n.c.Dir, ended[0].key.collection))
}

// A map may be older than the files of a node, where NATS has come back with what it had: a
// generation that it says is being made may be searched by now, and its replicas stay.
func TestReservedGenerationStays(t *testing.T) {
	n := &Node{c: Config{Dir: t.TempDir()}, log: slog.New(slog.DiscardHandler)}
	m, err := topology.New("wiki", 1, 1, 1, []topology.Member{{Name: "n0"}})
	require.NoError(t, err)
	m.Last, m.Current = 1, &topology.Generation{Number: 1}
	number := m.Reserve(time.Now())
	file := n.path(key{m.ID(), number, 0})
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte("changes that were acknowledged"), 0o644))
	a := attic{removeAll: os.RemoveAll}
	_, err = n.dropOver(&a, m)
	require.NoError(t, err)
	require.FileExists(t, file)
	m.Release(number) // it was given up
	done, err := n.dropOver(&a, m)
	require.NoError(t, err)
	require.True(t, done)
	require.NoFileExists(t, file)
}

// A replica that took the place of one that has ended is not forgotten with it: nobody would
// end it.
func TestForgetsWhatEnded(t *testing.T) {
	old, rejoined := &replica{key: key{"a", 1, 0}}, &replica{key: key{"a", 1, 0}}
	other := &replica{key: key{"a", 1, 1}}
	n := &Node{replicas: map[key]*replica{rejoined.key: rejoined, other.key: other}}
	n.forget([]*replica{old, other})
	assert.Equal(t, map[key]*replica{rejoined.key: rejoined}, n.replicas)
}

// What a replica remembers of entries is of its file: one that begins again has another file,
// which may be of another history.
func TestStartOverForgetsEntries(t *testing.T) {
	n := &Node{c: Config{Dir: t.TempDir()}, log: slog.New(slog.DiscardHandler), ctx: t.Context()}
	n.metrics.init()
	r := newReplica(n, key{"wiki@1", 1, 0})
	require.NoError(t, os.MkdirAll(filepath.Dir(n.path(r.key)), 0o755))
	require.NoError(t, os.WriteFile(n.path(r.key), []byte("damaged"), 0o644))
	r.remember(3, [16]byte{1})
	errDamaged := errors.New("it is damaged")
	require.ErrorIs(t, r.startOver(errDamaged), errDamaged)
	require.Empty(t, r.marks(10))
}
