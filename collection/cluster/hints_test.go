package cluster

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/internal/testing/objectstest/memory"
)

// entryOf is the last entry that the one replica of a node has.
func entryOf(t *testing.T, c *Cluster) uint64 {
	t.Helper()
	is, err := c.doStatus(t.Context(), &statusRequest{})
	require.NoError(t, err)
	if len(is.Replicas) == 0 || is.Replicas[0].State.Phase != replica.Ready {
		return 0
	}
	return is.Replicas[0].State.Entry
}

// A node whose replica has read the log before an entry was put, by a node that did not know it yet, hears of the
// entry when that node gets to know it.
func TestHintsOfNodesThatJoin(t *testing.T) {
	t.Parallel()
	s := memory.New()
	docs := testDocs(0, 2, 4)
	wiki := declared(t, testNode(t, s, "a", func(c *Config) { c.Beat = 2 * time.Second }), docs[:1]...)
	b := testNode(t, s, "b", func(c *Config) { c.Beat = time.Hour }) // which a does not know before its next look
	await(t, "b has read the log", func() bool { b.wakeLoop(); return entryOf(t, b) == 1 })
	add(t, wiki, docs[1:])
	await(t, "b has heard of the second entry", func() bool { return entryOf(t, b) == 2 })
}

// A hint that a node did not hear is given again.
func TestHintsAreGivenAgain(t *testing.T) {
	t.Parallel()
	s := memory.New()
	var deaf atomic.Int32
	b := testNodeBehind(t, s, "b", func(next http.Handler, w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/hint") && deaf.Add(-1) >= 0 {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	}, nil)
	a := testNode(t, s, "a", nil)
	await(t, "a knows b", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.nodes) == 2
	})
	docs := testDocs(0, 3, 4)
	wiki := declared(t, a, docs[:1]...)
	await(t, "b has read the log", func() bool { return entryOf(t, b) == 1 })
	deaf.Store(3)
	add(t, wiki, docs[1:2])
	await(t, "b has heard of the second entry", func() bool { return entryOf(t, b) == 2 })
}

// A wrong hint counts until the log was read in vain for its entry, and never as the After of a batch.
func TestHintsThatAreWrong(t *testing.T) {
	a := testNode(t, memory.New(), "a", nil)
	of := declared(t, a, testDocs(0, 1, 4)...)
	m, err := a.mapByID(of.(*shardedCollection).id)
	require.NoError(t, err)
	_, err = a.doHint(t.Context(), &hintRequest{[]hint{{m.ID, 0, 100}}})
	require.NoError(t, err)
	require.EqualValues(t, 100, a.expectedEntry(m.ID, 0))
	require.EqualValues(t, 1, a.newestEntry(m.ID, 0))
	a.replicaConfig.HintFailed(m.replicaShard(0, m.Current))
	require.EqualValues(t, 1, a.expectedEntry(m.ID, 0))
	require.EqualValues(t, 1, numbersOf(t, of).Documents)
}
