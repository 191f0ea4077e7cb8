package cluster

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"slices"
)

// placeShards assigns each shard of a collection its nodes. Every process that knows the same nodes gets the same
// result.
//
// It uses rendezvous hashing (Thaler and Ravishankar, 1998) with bounded loads (Mirrokni et al., arXiv 1608.01350). All
// pairs of a shard and a node are ordered by a hash. Round r takes the best pairs for the r-th replica of each shard,
// and gives no node more than its even share of all replicas so far, rounded up. Replicas of a shard are in different
// zones, as far as there are enough zones.
func placeShards(nodes []*Node, id string, shards, replicas int) [][]*Node {
	holders := make([][]*Node, shards)
	replicas = min(replicas, len(nodes))
	zones := map[string]bool{}
	for _, n := range nodes {
		zones[n.Zone] = true
	}
	type pair struct {
		weight      uint64
		shard, node int
	}
	pairs := make([]pair, 0, shards*len(nodes))
	for s := range shards {
		for n, node := range nodes {
			pairs = append(pairs, pair{weight(id, node.Name, s), s, n})
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.shard, b.shard),
			cmp.Compare(nodes[a.node].Name, nodes[b.node].Name))
	})
	// In each round, take pairs in order, as long as nodes have room.
	load := make([]int, len(nodes))
	for r := range replicas {
		maxLoad := (shards*(r+1) + len(nodes) - 1) / len(nodes)
		isPossible := func(p pair) bool {
			placed := holders[p.shard]
			return len(placed) == r && !slices.ContainsFunc(placed, func(n *Node) bool {
				return n == nodes[p.node] || n.Zone == nodes[p.node].Zone && r < len(zones)
			})
		}
		assign := func(p pair) {
			holders[p.shard] = append(holders[p.shard], nodes[p.node])
			load[p.node]++
		}
		for _, p := range pairs {
			if load[p.node] < maxLoad && isPossible(p) {
				assign(p)
			}
		}
		// For shards whose possible nodes are all full, take the node with the lowest load.
		var unplaced []pair
		for _, p := range pairs {
			if isPossible(p) {
				unplaced = append(unplaced, p)
			}
		}
		for len(unplaced) > 0 {
			best := slices.MinFunc(unplaced, func(a, b pair) int { return cmp.Compare(load[a.node], load[b.node]) })
			assign(best)
			unplaced = slices.DeleteFunc(unplaced, func(p pair) bool { return p.shard == best.shard })
		}
	}
	return holders
}

// weight returns the hash of a pair: FNV-1a, mixed by the finalizer of MurmurHash3.
func weight(id, node string, shard int) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(binary.LittleEndian.AppendUint32(nil, uint32(shard)))
	_, _ = h.Write([]byte(id + "\x00" + node))
	x := h.Sum64()
	for _, multiplier := range []uint64{0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53} {
		x = (x ^ x>>33) * multiplier
	}
	return x ^ x>>33
}

// coordinator returns the node that coordinates a collection, nil without nodes.
func coordinator(nodes []*Node, id string) *Node {
	if len(nodes) == 0 {
		return nil
	}
	return slices.MaxFunc(nodes, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(weight(id, a.Name, -1), weight(id, b.Name, -1)), cmp.Compare(b.Name, a.Name))
	})
}
