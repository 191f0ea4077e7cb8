package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func nodesOf(n, zones int) []*Node {
	nodes := make([]*Node, n)
	for i := range nodes {
		nodes[i] = &Node{Name: fmt.Sprintf("node-%d", i), Started: "x"}
		if zones > 0 {
			nodes[i].Zone = fmt.Sprintf("zone-%d", i%zones)
		}
	}
	return nodes
}

// moved counts the places of the second placement that the first has not.
func moved(before, after [][]*Node) (n int) {
	for s := range after {
		for _, node := range after[s] {
			if !slices.Contains(before[s], node) {
				n++
			}
		}
	}
	return n
}

// Shards are spread evenly over nodes and zones, in the same way for any order of the nodes, and few of them move
// when a node comes or goes.
func TestPlace(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct{ nodes, zones, shards, replicas int }{
		{1, 0, 4, 2}, {2, 0, 4, 2}, {3, 0, 4, 2}, {3, 3, 4, 2}, {8, 0, 1600, 2}, {8, 2, 1600, 2}, {9, 3, 600, 3},
		{5, 0, 64, 1}, {40, 4, 400, 3},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			nodes := nodesOf(c.nodes, c.zones)
			holders := placeShards(nodes, "wiki.1", c.shards, c.replicas)
			load, first := map[*Node]int{}, map[*Node]int{}
			copies := min(c.replicas, c.nodes)
			for s, has := range holders {
				require.Len(t, has, copies)
				first[has[0]]++
				zones, names := map[string]bool{}, map[string]bool{}
				for _, n := range has {
					load[n]++
					zones[n.Zone], names[n.Name] = true, true
				}
				require.Len(t, names, copies, "shard %d", s)
				require.Len(t, zones, min(copies, max(c.zones, 1)), "shard %d", s)
			}
			for n := range load {
				require.LessOrEqual(t, load[n], (c.shards*copies+c.nodes-1)/c.nodes+1, n.Name)
				require.LessOrEqual(t, first[n], (c.shards+c.nodes-1)/c.nodes, n.Name)
			}
			other := slices.Clone(nodes)
			rng.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
			require.Equal(t, holders, placeShards(other, "wiki.1", c.shards, c.replicas))
			require.Equal(t, coordinator(nodes, "wiki.1"), coordinator(other, "wiki.1"))
			if c.shards < 600 {
				return
			}
			share := c.shards * c.replicas / c.nodes // of a node
			for gone := range nodes {
				without := placeShards(slices.Delete(slices.Clone(nodes), gone, gone+1), "wiki.1", c.shards, c.replicas)
				require.LessOrEqual(t, max(moved(holders, without), moved(without, holders)), 3*share)
			}
		})
	}
}
