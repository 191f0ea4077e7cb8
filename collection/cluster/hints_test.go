package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection/cluster/replica"
)

// A node whose replica has read the log before an entry was put, by a node that did not know it yet, hears of the
// entry when that node gets to know it.
func TestHintsOfNodesThatJoin(t *testing.T) {
	s := newMemory()
	docs := testDocs(0, 2, 4)
	of := declared(t, testNode(t, s, "a", func(c *Config) { c.Beat = 2 * time.Second }), docs[:1]...)
	b := testNode(t, s, "b", func(c *Config) { c.Beat = time.Hour }) // which a does not know before its next look
	entry := func() uint64 {
		is, err := b.doStatus(t.Context(), &statusAsk{})
		require.NoError(t, err)
		if len(is.Replicas) == 0 || is.Replicas[0].State.Phase != replica.Ready {
			return 0
		}
		return is.Replicas[0].State.Entry
	}
	await(t, "b has read the log", func() bool { b.poke(); return entry() == 1 })
	add(t, of, docs[1:])
	await(t, "b has heard of the second entry", func() bool { return entry() == 2 })
}
