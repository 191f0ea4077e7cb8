package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A replica that is closed waits for what it reads, and nothing waits for it.
func TestReplicasCloseInTheBackground(t *testing.T) {
	b := &bent{Store: testStore(t)}
	a := testNode(t, b, "a", func(c *Config) { c.Beat = time.Hour }) // the test acts
	of := declared(t, a, testDocs(0, 2, 4)...)
	m, err := a.mapByID(of.(*shards).id)
	require.NoError(t, err)
	r, err := a.replica(t.Context(), m.ID, 0, m.Current.Number)
	require.NoError(t, err)
	_, err = a.Drop(t.Context(), "wiki")
	require.NoError(t, err)
	b.cut.Store(true)
	defer b.cut.Store(false)
	r.Hint(100)
	await(t, "the log is read", func() bool { return b.hung.Load() > 0 })
	held := make(chan struct{})
	go func() {
		defer close(held)
		a.hold(time.Now().Add(2 * linger))
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
		return a.ending[r.replicaKey]
	}
	require.True(t, ending())
	b.cut.Store(false)
	await(t, "the replica is closed", func() bool { return !ending() })
}
