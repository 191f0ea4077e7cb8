package cluster

import (
	"context"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/testing/objectstest/memory"
	"github.com/plaid-ir/plaid/search"
)

// A node that listens where no other machine reaches it has shards only if all nodes do: otherwise
// searches and changes would be sent to what is another process there, or none.
func TestNodesWithinReach(t *testing.T) {
	t.Parallel()
	addresses := func(nodes []*Node) (all []string) {
		for _, n := range nodes {
			all = append(all, n.Address)
		}
		return all
	}
	near := []string{"http://127.0.0.1:8080", "https://localhost:1", "http://[::1]:8080"}
	far := []string{"http://10.0.0.7:8080", "https://plaid-1.example:8080", "http://[2001:db8::1]:8080"}
	listening := func(addresses ...string) (nodes []*Node) {
		for _, a := range addresses {
			nodes = append(nodes, &Node{Address: a})
		}
		return nodes
	}
	require.Equal(t, near, addresses(reachableNodes(listening(near...))))
	require.Equal(t, far, addresses(reachableNodes(listening(slices.Concat(near, far)...))))

	s := memory.New()
	open := func(name, address string) *Cluster {
		c, err := Open(t.Context(), Config{Store: s, StoreAddress: "store", Dir: t.TempDir(), Name: name, Address: address,
			Beat: 100 * time.Millisecond})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close(t.Context()) })
		return c
	}
	alone := open("near", near[0])
	require.Equal(t, near[:1], addresses(alone.nodes))
	other := open("far", far[0])
	for _, c := range []*Cluster{alone, other} {
		require.Eventually(t, func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return slices.Equal(far[:1], addresses(c.nodes))
		}, time.Minute, 5*time.Millisecond)
	}
	require.NoError(t, other.Close(t.Context()))
	require.Eventually(t, func() bool {
		alone.mu.Lock()
		defer alone.mu.Unlock()
		return slices.Equal(near[:1], addresses(alone.nodes))
	}, time.Minute, 5*time.Millisecond)
}

// A request for a node is not answered by another one at its address, which has other shards.
func TestAnotherNodeAnswers(t *testing.T) {
	s := memory.New()
	server := httptest.NewUnstartedServer(nil)
	open := func(name, address string) *Cluster {
		c, err := Open(t.Context(), Config{Store: s, StoreAddress: "store", Dir: t.TempDir(), Name: name, Address: address})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close(t.Context()) })
		return c
	}
	first := open("one", "http://"+server.Listener.Addr().String())
	server.Config.Handler = first.Handler()
	server.Start()
	t.Cleanup(server.Close)
	open("two", first.node.Address)
	client := open("", "")
	require.NoError(t, client.callNode(t.Context(), first.node, "status", &statusRequest{}, &statusAnswer{}))
	err := client.callNode(t.Context(), &Node{Name: "two", Address: first.node.Address}, "status", &statusRequest{},
		&statusAnswer{})
	require.ErrorIs(t, err, errNotHere)
	faults := client.Status(t.Context()).Faults
	require.Len(t, faults, 1)
	require.Regexp(t, `^node two does not answer at http://127.*: the shard is not on this node: the request is for node "two", and this is one$`, faults[0])
}

// A node that ends in order is not there any more: neither it nor a process of its name that was
// killed before it began.
func TestEndedNodesLeaveNothing(t *testing.T) {
	s := memory.New()
	killed := &Node{Name: "one", Started: "before", Address: "http://127.0.0.1:1", Since: time.Now().Add(-time.Hour)}
	other := &Node{Name: "two", Started: "before", Address: "http://127.0.0.1:2", Since: time.Now().Add(-time.Hour)}
	for _, n := range []*Node{killed, other} {
		_, err := putBeat(t.Context(), s, n, 1)
		require.NoError(t, err)
	}
	c, err := Open(t.Context(),
		Config{Store: s, StoreAddress: "store", Dir: t.TempDir(), Name: "one", Address: "http://127.0.0.1:1"})
	require.NoError(t, err)
	require.NoError(t, c.Close(t.Context()))
	require.Equal(t, []string{other.object()}, s.Names(nodesPrefix))
}

// A node that starts while the store is away ends with an error that names the store.
func TestStartWithoutAStore(t *testing.T) {
	for _, at := range []string{secretName, nodesPrefix, mapsPrefix} {
		s := memory.New()
		_, err := readSecret(t.Context(), s, true)
		require.NoError(t, err)
		s.SetHook(func(_ context.Context, _, name string) (before, after error) {
			if strings.HasPrefix(name, at) {
				return errLost, nil
			}
			return nil, nil
		})
		_, err = Open(t.Context(),
			Config{Store: s, StoreAddress: "the store", Dir: t.TempDir(), Name: "one", Address: "http://127.0.0.1:1"})
		require.ErrorIs(t, err, errLost, at)
		require.ErrorIs(t, err, collection.ErrUnreachable, at)
		require.ErrorContains(t, err, "the store: ", at)
	}
}

// A search names the shards that do not answer.
func TestMissingShardsAreNamed(t *testing.T) {
	e := &MissingError{Name: "wiki", Coverage: search.Coverage{Shards: 5}}
	for shard := range 4 {
		e.Coverage.Missing = append(e.Coverage.Missing, missingShard(shard, 1, nil))
	}
	require.ErrorIs(t, e, collection.ErrUnreachable)
	require.ErrorContains(t, e, `4 of 5 shards of "wiki" do not answer; shard 0: no answer in time; shard 1`)
	require.NotContains(t, e.Error(), "shard 3")
}
