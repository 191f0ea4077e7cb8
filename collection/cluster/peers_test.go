package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/testing/objectstest/memory"
	"github.com/plaid-ir/plaid/storage"
)

// Each shard goes to one of its holders. Nodes that have failed are passed over, and among the others those of other
// zones. A joint request goes to this node alone if that has all shards; others go to as many idle nodes as
// there are.
func TestAssign(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var nodes []*Node
		for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
			nodes = append(nodes,
				&Node{Name: fmt.Sprint("n", i), Zone: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "zone")})
		}
		n, replicas := rapid.IntRange(1, 12).Draw(t, "shards"), rapid.IntRange(1, 3).Draw(t, "replicas")
		holders := placeShards(nodes, "id", n, replicas)
		shards := make([]int, n)
		for i := range shards {
			shards[i] = 10 + i
		}
		p, joint := &peers{}, rapid.Bool().Draw(t, "joint")
		idle := true
		for _, node := range nodes {
			for range rapid.SampledFrom([]int{0, 0, 0, 2}).Draw(t, "running") {
				p.beginSearch(node.Name)
				idle = false
			}
			if rapid.IntRange(0, 4).Draw(t, "failed") == 0 {
				p.noteFailure(node.Name)
				idle = false
			}
		}
		zone := rapid.SampledFrom([]string{"", "a"}).Draw(t, "of this node")
		chosen := p.assign(shards, holders, zone, nodes[0], joint)
		at := map[int]*Node{}
		for node, some := range chosen {
			for _, shard := range some {
				require.Nil(t, at[shard], "shard %d is asked for twice", shard)
				at[shard] = node
			}
		}
		require.Len(t, at, n)
		for i, all := range holders {
			node := at[shards[i]]
			require.Contains(t, all, node)
			healthy := slices.ContainsFunc(all, func(n *Node) bool { return !p.lookUpPeer(n.Name).shouldSkip() })
			near := slices.ContainsFunc(all, func(n *Node) bool {
				return n.Zone == zone && (!healthy || !p.lookUpPeer(n.Name).shouldSkip())
			})
			require.False(t, zone != "" && near && node.Zone != zone, "%s is of another zone", node.Name)
			if healthy {
				require.False(t, p.lookUpPeer(node.Name).shouldSkip(), "%s has failed, and another node has shard %d", node.Name,
					shards[i])
			}
		}
		if idle && zone == "" {
			if !joint && replicas == 1 && n <= len(nodes) {
				require.Len(t, chosen, n)
			}
			if joint && !slices.ContainsFunc(holders,
				func(all []*Node) bool { return !slices.Contains(all, nodes[0]) }) {
				require.Len(t, chosen, 1)
			}
		}
	})
}

// With two replicas and idle nodes shards are searched at once, and a joint request goes to fewer nodes.
func TestAssignSpreads(t *testing.T) {
	var nodes []*Node
	for i := range 4 {
		nodes = append(nodes, &Node{Name: fmt.Sprint("n", i)})
	}
	for i := range 100 {
		p, shards := &peers{}, []int{0, 1, 2, 3}
		holders := placeShards(nodes, fmt.Sprint("id", i), 4, 2)
		require.GreaterOrEqual(t, len(p.assign(shards, holders, "", nodes[0], false)), 3)
		require.LessOrEqual(t, len(p.assign(shards, holders, "", nodes[0], true)), 3)
	}
}

// A node that has failed gets no request until it says that it lives, and then one at a time.
func TestAway(t *testing.T) {
	p := &peers{}
	all := []*Node{{Name: "bad"}, {Name: "good"}}
	require.True(t, p.noteFailure("bad"))
	require.False(t, p.noteFailure("bad"), "it is asked already")
	require.Equal(t, 1, p.firstHealthy(all))
	p.beginSearch("bad")
	p.endSearch("bad", "search", 0, true)
	require.Equal(t, 1, p.firstHealthy(all), "an answer that was under way")
	require.True(t, p.noteFailure("good"))
	p.noteAlive("bad")
	require.Equal(t, 0, p.firstHealthy(all))
}

// A node of the own zone that has failed is passed over, too, if one of another zone has the shard.
func TestAssignOutOfZone(t *testing.T) {
	near, far := &Node{Name: "near", Zone: "a"}, &Node{Name: "far", Zone: "b"}
	for _, joint := range []bool{false, true} {
		p := &peers{}
		assign := func() map[*Node][]int {
			return p.assign([]int{0}, [][]*Node{{near, far}}, "a", &Node{Name: "front"}, joint)
		}
		require.Equal(t, map[*Node][]int{near: {0}}, assign())
		p.noteFailure("near")
		require.Equal(t, map[*Node][]int{far: {0}}, assign())
		p.noteFailure("far")
		require.Equal(t, map[*Node][]int{near: {0}}, assign(), "no other is better")
		p.noteAlive("near")
		require.Equal(t, map[*Node][]int{near: {0}}, assign())
	}
}

// What is known of nodes that are gone is forgotten: their names may all differ.
func TestPeersThatAreGone(t *testing.T) {
	c := startNodes(t, 1, 1, nil)[0]
	c.front.peers.beginSearch("busy")
	for i := range 100 {
		n := &Node{Name: fmt.Sprint("pod", i), Started: fmt.Sprint(i)}
		c.front.peers.beginSearch(n.Name)
		c.front.peers.endSearch(n.Name, "search", time.Millisecond, true)
		c.setNodes([]*Node{c.node, n}, nil)
	}
	c.front.peers.mu.Lock()
	defer c.front.peers.mu.Unlock()
	require.LessOrEqual(t, len(c.front.peers.nodes), 3)
	require.Contains(t, c.front.peers.nodes, "busy")
}

// A client that gives up its change says nothing of the node that was to make it.
func TestChangeGivenUp(t *testing.T) {
	s := memory.New()
	var waits atomic.Bool
	n := testNodeBehind(t, s, "n", func(next http.Handler, w http.ResponseWriter, r *http.Request) {
		if waits.Load() && r.URL.Path == innerPath+"update" {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return
		}
		next.ServeHTTP(w, r)
	}, nil)
	declared(t, n, testDocs(0, 5, testDim)...)
	client, err := Open(t.Context(), Config{Store: s, Dir: t.TempDir(), Beat: testBeat})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close(context.Background())) })
	wiki, err := client.Get("wiki")
	require.NoError(t, err)
	add(t, wiki, testDocs(5, 5, testDim))
	waits.Store(true)
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, stop)
	_, err = wiki.Update(ctx, testDocs(10, 5, testDim), collection.UpdateOptions{})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, storage.ErrOutcomeUnknown)
	client.front.peers.mu.Lock()
	defer client.front.peers.mu.Unlock()
	require.Zero(t, client.front.peers.lookUpPeer("n").failures)
}
