package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
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

func TestPlaceIsBalanced(t *testing.T) {
	for _, c := range []struct{ nodes, zones, shards, replicas int }{
		{1, 0, 4, 2}, {2, 0, 4, 2}, {3, 0, 4, 2}, {3, 3, 4, 2}, {8, 0, 1600, 2}, {8, 2, 1600, 2}, {9, 3, 100, 3}, {5, 0, 64, 1}, {40, 4, 400, 3},
	} {
		nodes := nodesOf(c.nodes, c.zones)
		holders := placeShards(nodes, "wiki.1", c.shards, c.replicas)
		load, first := map[string]int{}, map[string]int{}
		each := min(c.replicas, c.nodes)
		for s, has := range holders {
			if len(has) != each {
				t.Fatalf("%+v: shard %d has %d replicas", c, s, len(has))
			}
			first[has[0].Name]++
			zones := map[string]bool{}
			names := map[string]bool{}
			for _, n := range has {
				load[n.Name]++
				zones[n.Zone], names[n.Name] = true, true
			}
			if len(names) != each || c.zones > 0 && len(zones) != min(each, c.zones) {
				t.Fatalf("%+v: shard %d is on %d nodes in %d zones", c, s, len(names), len(zones))
			}
		}
		most := (c.shards*each + c.nodes - 1) / c.nodes
		for name, n := range load {
			if n > most+1 {
				t.Errorf("%+v: %s has %d shards, its even part is %d", c, name, n, most)
			}
			if up := (c.shards + c.nodes - 1) / c.nodes; first[name] > up {
				t.Errorf("%+v: %s is the first of %d shards, its even part is %d", c, name, first[name], up)
			}
		}
	}
}

func TestPlaceDependsOnNoOrder(t *testing.T) {
	nodes := nodesOf(9, 3)
	want := placeShards(nodes, "wiki.1", 200, 3)
	other := slices.Clone(nodes)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		rng.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
		for s, has := range placeShards(other, "wiki.1", 200, 3) {
			if !slices.Equal(has, want[s]) {
				t.Fatalf("shard %d is on other nodes, or in another order", s)
			}
		}
		if coordinator(other, "wiki.1") != coordinator(nodes, "wiki.1") {
			t.Fatal("there are two coordinators")
		}
	}
}

func TestPlaceMovesLittle(t *testing.T) {
	for _, c := range []struct{ nodes, zones, shards, replicas int }{{8, 0, 1600, 2}, {9, 3, 600, 3}, {40, 0, 1000, 2}, {4, 0, 400, 1}} {
		nodes := nodesOf(c.nodes, c.zones)
		all := placeShards(nodes, "wiki.1", c.shards, c.replicas)
		one := float64(c.shards*c.replicas) / float64(c.nodes) // what one node has
		worst := 0.
		for gone := 0; gone < len(nodes); gone += max(len(nodes)/6, 1) {
			without := placeShards(slices.Delete(slices.Clone(nodes), gone, gone+1), "wiki.1", c.shards, c.replicas)
			worst = max(worst, float64(moved(all, without))/one, float64(moved(without, all))/one)
		}
		t.Logf("%+v: %.2f times what one node has moves at most", c, worst)
		if worst > 3 {
			t.Errorf("%+v: %.2f times what one node has moves when that comes or goes", c, worst)
		}
	}
}
