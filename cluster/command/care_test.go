package command

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/internal/certtest"
	"github.com/plaid-ir/plaid/cluster/internal/freeports"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

// A log is healed also while replicas are compared, however long a node takes to tell what
// it has.
func TestHealsWhileReplicasAreCompared(t *testing.T) {
	c := clustertest.New(t, 1)
	docs := searchtest.New(1, 16, 12).Docs("d", 20, 4)
	c.Collection("lost", operate.CreateOptions{}, 16, docs)
	c.Collection("slow", operate.CreateOptions{}, 16, docs)
	// The other replica of slow is on a node that takes orders and never answers.
	asked := make(chan struct{}, 1000)
	_, err := c.Connect("n1").Subscribe(bus.AdminSubject("n1"), func(*nats.Msg) { asked <- struct{}{} })
	require.NoError(t, err)
	lease, err := json.Marshal(topology.Lease{
		Node: "n1", Started: "x", Shards: []topology.Serving{{Collection: c.ID("slow"), Generation: 1, Ready: true}},
	})
	require.NoError(t, err)
	_, err = c.Bus.Nodes.Put(c.Ctx, "n1", lease)
	require.NoError(t, err)
	_, err = topology.NewStore(c.Store, c.Bus.Maps).Update(c.Ctx, c.ID("slow"), func(m *topology.Map) error {
		m.Join(topology.Member{Name: "n1"})
		m.Replicas = 2
		m.Assign()
		return nil
	})
	require.NoError(t, err)
	c.Await(func() bool {
		m, err := c.Op.Watcher().Map("slow")
		return err == nil && slices.Contains(m.Assigned[0], "n1") && len(c.Op.Nodes()) == 2
	})

	ctx, stop := context.WithCancel(c.Ctx)
	var done sync.WaitGroup
	defer done.Wait()
	defer stop()
	r := &running{c: node.Config{Logger: slog.New(slog.DiscardHandler)}, lease: 3 * time.Second, healAfter: time.Nanosecond, compare: time.Millisecond}
	done.Go(func() { r.care(ctx, c.Bus, c.Op) })
	select {
	case <-asked:
	case <-c.Ctx.Done():
		require.Fail(t, "nothing is compared")
	}
	lost := func(is bool) func() bool {
		return func() bool {
			return slices.ContainsFunc(c.Op.Watcher().Replicas(c.ID("lost"), 1, 0), func(r topology.Replica) bool { return r.Lost == is })
		}
	}
	stream := bus.LogStream(c.ID("lost"), 0)
	f := c.Client(client.Config{Collection: "lost"})
	_, err = f.Add(c.Ctx, searchtest.Source(t, 16, searchtest.New(2, 16, 12).Docs("e", 1, 4)), nil)
	require.NoError(t, err)
	require.NoError(t, c.Bus.JS.DeleteStream(c.Ctx, stream))
	require.NoError(t, c.Bus.MakeLog(c.Ctx, c.ID("lost"), 0, 0))
	c.Await(lost(true))
	c.Await(lost(false))
}

// A node whose certificate is only that of a node does nothing that takes an operator.
func TestCareTakesTheRoleOperator(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), clustertest.Patience)
	defer stop()
	a := certtest.New(t)
	s, err := bus.StartServer(ctx, bus.ServerOptions{
		Name: "boss", Dir: t.TempDir(), Listen: "127.0.0.1:0", TLS: a.Config("boss"),
		Users: []bus.User{{Name: "CN=n0", Role: bus.RoleNode}, {Name: "CN=boss", Role: bus.RoleOperator}},
	})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	inside, err := s.Connect("inside")
	require.NoError(t, err)
	t.Cleanup(inside.Close)
	own, err := bus.Setup(ctx, inside, 1, time.Minute)
	require.NoError(t, err)
	store, err := objects.OpenFolder(t.TempDir())
	require.NoError(t, err)
	maps := topology.NewStore(store, own.Maps)
	m, err := topology.New("wiki", 1, 1, 1, []topology.Member{{Name: "gone"}})
	require.NoError(t, err)
	m.Incarnation = topology.NewIncarnation()
	require.NoError(t, maps.Create(ctx, m))
	lease, err := json.Marshal(topology.Lease{Node: "n0", Started: "x"})
	require.NoError(t, err)
	_, err = own.Nodes.Put(ctx, "n0", lease)
	require.NoError(t, err)
	_, err = maps.Update(ctx, m.ID(), func(m *topology.Map) error { m.Join(topology.Member{Name: "n0"}); return nil })
	require.NoError(t, err)

	care := func(name string) (said *bytes.Buffer, done func()) {
		conn, err := bus.Connect(s.ClientURL(), name, a.Config(name))
		require.NoError(t, err)
		t.Cleanup(conn.Close)
		b, err := bus.Open(ctx, conn)
		require.NoError(t, err)
		watch, err := topology.Watch(ctx, b)
		require.NoError(t, err)
		t.Cleanup(watch.Close)
		require.NoError(t, watch.Wait(ctx, func() bool { _, err := watch.Map("wiki"); return err == nil && len(watch.Leases()) == 1 }))
		said = &bytes.Buffer{}
		r := &running{c: node.Config{Name: "n0", Logger: slog.New(slog.NewTextHandler(said, nil))}, lease: time.Millisecond, replace: time.Nanosecond}
		within, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { r.care(within, b, operate.Over(b, watch, store, nil)) })
		return said, func() { stop(); wg.Wait() }
	}
	placed := func() bool {
		now, err := maps.Get(ctx, "wiki")
		require.NoError(t, err)
		return slices.Contains(now.Assigned[0], "n0")
	}
	said, done := care("n0")
	require.Never(t, placed, 200*time.Millisecond, 20*time.Millisecond)
	done()
	require.Contains(t, said.String(), "it takes the role operator")
	_, done = care("boss")
	require.Eventually(t, placed, clustertest.Patience, 10*time.Millisecond)
	done()
}

// Logs that have become long are cut off behind objects of their shards, by the first node of
// each shard; short ones stay as they are.
func TestLongLogsAreCutOff(t *testing.T) {
	c := clustertest.New(t, 2)
	docs := searchtest.New(3, 16, 12).Docs("d", 400, 4)
	c.Collection("wiki", operate.CreateOptions{Shards: 2, Replicas: 2}, 16, docs[:20])
	f := c.Client(client.Config{Collection: "wiki"})
	log := func(s int) uint64 {
		stream, err := c.Bus.JS.Stream(c.Ctx, bus.LogStream(c.ID("wiki"), s))
		require.NoError(t, err)
		return stream.CachedInfo().State.FirstSeq
	}
	add := func(docs ...vectors.Document) {
		t.Helper()
		_, err := f.Add(c.Ctx, searchtest.Source(t, 16, docs), nil)
		require.NoError(t, err)
	}
	add(docs[20])
	add(docs[21])
	made, err := c.Op.CheckpointLong(c.Ctx, "")
	require.NoError(t, err)
	require.Zero(t, made, "a few entries are no long log")
	for i := 22; i < len(docs); i += 63 {
		add(docs[i : i+63]...)
	}
	m, err := c.Op.Watcher().Map("wiki")
	require.NoError(t, err)
	c.Await(func() bool { // trimming leaves what a replica has not carried out yet
		for s := range 2 {
			rs := c.Op.Watcher().Replicas(m.ID(), 1, s)
			if len(rs) != 2 || rs[0].Applied != rs[1].Applied || rs[0].Applied < 6 {
				return false
			}
		}
		return true
	})
	ctx, stop := context.WithCancel(c.Ctx)
	var done sync.WaitGroup
	defer done.Wait()
	defer stop()
	for _, name := range []string{"n0", "n1"} {
		r := &running{c: node.Config{Name: name, Logger: slog.New(slog.DiscardHandler)}, checkpoint: 10 * time.Millisecond}
		done.Go(func() { r.care(ctx, c.Bus, c.Op) })
	}
	require.Eventually(t, func() bool { return log(0) > 1 && log(1) > 1 }, clustertest.Patience, 20*time.Millisecond)
	_, err = c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
}

// What a node finds when it compares replicas is in its figures and in its lease: differences,
// which an alert is made on, and shards that it could not compare.
func TestDifferencesAreCounted(t *testing.T) {
	c := clustertest.New(t, 3)
	docs := searchtest.New(4, 16, 12).Docs("d", 20, 4)
	c.Collection("wiki", operate.CreateOptions{Replicas: 3}, 16, docs)
	c.Collection("other", operate.CreateOptions{Replicas: 2}, 16, docs)
	m, err := c.Op.Watcher().Map("other")
	require.NoError(t, err)
	away := m.Assigned[0][1]
	m, err = c.Op.Watcher().Map("wiki")
	require.NoError(t, err)
	bad := m.Assigned[0][slices.IndexFunc(m.Assigned[0], func(name string) bool { return name != away })]
	c.Lose(bad, "wiki", docs[7].ID)

	ctx, stop := context.WithCancel(c.Ctx)
	var done sync.WaitGroup
	defer done.Wait()
	defer stop()
	for name, n := range c.Nodes {
		r := &running{c: node.Config{Name: name, Logger: slog.New(slog.DiscardHandler)}, compare: 50 * time.Millisecond, node: n}
		done.Go(func() { r.care(ctx, c.Bus, c.Op) })
	}
	counted := func() (differences, rebuilds uint64) {
		for _, l := range c.Op.Watcher().Leases() {
			differences += l.Counts.Differences
			rebuilds += l.Counts.Rebuilds
		}
		return differences, rebuilds
	}
	c.Await(func() bool { d, r := counted(); return d == 1 && r == 1 })

	c.Die(away)
	c.Await(func() bool {
		for _, l := range c.Op.Watcher().Leases() {
			for _, u := range l.Uncompared {
				if u.Collection == "other" && strings.Contains(u.Why, away) {
					words := happenedTo(l)
					return strings.Contains(words[len(words)-1], "1 shard not compared at the last time, such as shard 0 of other: node "+away)
				}
			}
		}
		return false
	})
	d, _ := counted()
	require.LessOrEqual(t, d, uint64(1), "nothing else differed")
}

// A node that cannot ask whether it is an operator, as the servers are away, asks again.
func TestCareWaitsForTheServers(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), clustertest.Patience)
	defer stop()
	o := bus.ServerOptions{Name: "one", Dir: t.TempDir(), Listen: "127.0.0.1:" + freeports.Find(t, 1)[0]}
	s, err := bus.StartServer(ctx, o)
	require.NoError(t, err)
	conn, err := bus.Connect(s.ClientURL(), "n0", nil)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	b, err := bus.Setup(ctx, conn, 1, time.Minute)
	require.NoError(t, err)
	s.Close()
	said := make(said, 10)
	r := &running{c: node.Config{Name: "n0", Logger: slog.New(slog.NewTextHandler(said, nil))}, lease: time.Millisecond}
	may := make(chan bool, 1)
	go func() { may <- r.mayCare(ctx, b) }()
	select {
	case line := <-said:
		require.Contains(t, line, "until the servers answer")
	case <-ctx.Done():
		require.Fail(t, "nothing is said")
	case <-may:
		require.Fail(t, "nobody can know")
	}
	s, err = bus.StartServer(ctx, o)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	select {
	case ok := <-may:
		require.True(t, ok)
	case <-ctx.Done():
		require.Fail(t, "it has given up")
	}
}

// said takes the lines of a log.
type said chan string

func (s said) Write(line []byte) (int, error) { s <- string(line); return len(line), nil }
