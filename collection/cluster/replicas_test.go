package cluster

import (
	"testing"
	"time"

	"github.com/plaid-ir/plaid/internal/testing/objectstest/memory"
	"github.com/stretchr/testify/require"
)

// A replica that is closed waits for its reads, and the beat of the node does not wait for it.
func TestReplicasCloseInTheBackground(t *testing.T) {
	b := memory.New()
	away, logs := hang(b)
	a := testNode(t, b, "a", func(c *Config) { c.Beat = time.Hour }) // the test acts
	of := declared(t, a, testDocs(0, 2, 4)...)
	m, err := a.mapByID(of.(*shardedCollection).id)
	require.NoError(t, err)
	r, err := a.ensureReplica(t.Context(), m.ID, 0, m.Current.Number)
	require.NoError(t, err)
	_, err = a.Remove(t.Context(), "wiki")
	require.NoError(t, err)
	away.Store(true)
	defer away.Store(false)
	r.NoteEntry(100)
	await(t, "the log is read", func() bool { return logs.Load() > 0 })
	held := make(chan struct{})
	go func() {
		defer close(held)
		a.updateReplicas(time.Now().Add(2 * lingerTime))
	}()
	select {
	case <-held:
	case <-time.After(20 * time.Second):
		require.Fail(t, "it waits for the replica")
	}
	ending := func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		require.Nil(t, a.replicas[r.replicaKey])
		return a.closing[r.replicaKey]
	}
	require.True(t, ending())
	away.Store(false)
	await(t, "the replica is closed", func() bool { return !ending() })
}

// When a holder of a shard ends, the others look at the log, also if the node that gathers the changes stays: the one
// that has ended may have told no other of its last entry.
func TestLogsAreReadWhenHoldersEnd(t *testing.T) {
	a := testNode(t, memory.New(), "a", func(c *Config) { c.Beat = time.Hour }) // the test acts
	of := declared(t, a, testDocs(0, 2, 4)...)
	m, err := a.mapByID(of.(*shardedCollection).id)
	require.NoError(t, err)
	r, err := a.ensureReplica(t.Context(), m.ID, 0, m.Current.Number)
	require.NoError(t, err)
	other := &Node{Name: "b"}
	for placeShards([]*Node{a.node, other}, m.ID, 1, 2)[0][0] != a.node {
		other.Name += "b"
	}
	live := func(nodes ...*Node) (polled bool) {
		a.mu.Lock()
		a.nodes, r.nextPoll = nodes, time.Now().Add(time.Hour)
		poll := r.nextPoll
		clear(a.placements)
		a.mu.Unlock()
		a.updateReplicas(time.Now())
		a.mu.Lock()
		defer a.mu.Unlock()
		return r.nextPoll.Before(poll)
	}
	live(a.node, other)
	require.False(t, live(a.node, other))
	require.True(t, live(a.node))
}

// A replica that is opened while the limit of documents changes keeps as many as the newest map says.
func TestLimitOfReplicaThatIsOpened(t *testing.T) {
	a := testNode(t, memory.New(), "a", func(c *Config) { c.Beat = time.Hour }) // the test acts
	wiki := declared(t, a, testDocs(0, 2, 4)...)
	m, err := a.mapByID(wiki.(*shardedCollection).id)
	require.NoError(t, err)
	r, err := a.ensureReplica(t.Context(), m.ID, 0, m.Current.Number)
	require.NoError(t, err)
	a.openMutex.Lock()
	a.mu.Lock()
	a.closeReplica(r, false)
	a.mu.Unlock()
	await(t, "the replica is closed", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return !a.closing[r.replicaKey]
	})
	opened := make(chan error, 1)
	go func() {
		_, err := a.openReplica(m, m.Current, 0)
		opened <- err
	}()
	most := uint64(5)
	_, err = wiki.SetMaxDocuments(t.Context(), &most)
	require.NoError(t, err)
	a.openMutex.Unlock()
	require.NoError(t, <-opened)
	add(t, wiki, testDocs(10, 10, 4))
	require.EqualValues(t, most, numbersOf(t, wiki).Documents)
}
