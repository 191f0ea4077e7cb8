package topology

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"slices"
)

// Assign gives each shard its nodes. Which ones is a matter of rendezvous hashing
// (Thaler and Ravishankar, 1998): a shard goes to the members with the highest hashes
// of (shard, member), one a zone as far as there are zones, and no member has more
// than its even part, rounded up (bounded loads: Mirrokni et al., arXiv 1608.01350).
// What is assigned stays where it is as long as that is among the members and not
// above its part, so that little moves when one comes or goes.
func (m *Map) Assign() {
	before := m.Assigned
	m.Assigned = make([][]string, m.Shards())
	if len(m.Members) == 0 {
		return
	}
	replicas := min(m.Replicas, len(m.Members))
	most := (m.Shards()*replicas + len(m.Members) - 1) / len(m.Members)
	load := map[string]int{}
	zone := map[string]string{}
	for _, node := range m.Members {
		zone[node.Name] = node.Zone
	}
	give := func(s int, node string) {
		m.Assigned[s] = append(m.Assigned[s], node)
		load[node]++
	}
	for r := range MaxReplicas { // so that no shard loses all while another loses none
		for s := range before {
			if r >= len(before[s]) {
				continue
			}
			node := before[s][r]
			if _, member := zone[node]; member && load[node] < most && len(m.Assigned[s]) < replicas {
				give(s, node)
			}
		}
	}
	for s := range m.Assigned {
		order := slices.Clone(m.Members)
		slices.SortFunc(order, func(a, b Member) int {
			return cmp.Or(cmp.Compare(weight(b.Name, s), weight(a.Name, s)), cmp.Compare(a.Name, b.Name))
		})
		// First members with room in zones that have no replica, then such with room, then any.
		for pass := range 3 {
			for _, node := range order {
				has := m.Assigned[s]
				taken := slices.Contains(has, node.Name) || pass < 2 && load[node.Name] >= most || pass == 0 && inZone(zone, has, node.Zone)
				if !taken && len(has) < replicas {
					give(s, node.Name)
				}
			}
		}
	}
	for _, over := range m.Members {
		for load[over.Name] > most && m.relieve(over.Name, most, load, zone) {
		}
	}
}

func inZone(zone map[string]string, nodes []string, z string) bool {
	return slices.ContainsFunc(nodes, func(n string) bool { return zone[n] == z })
}

// relieve moves one shard of a member that has too many to one with room: there is a
// shard that the first has and the second has not. Best one for which the zones stay
// different.
func (m *Map) relieve(over string, most int, load map[string]int, zone map[string]string) bool {
	for _, anywhere := range []bool{false, true} {
		for _, to := range m.Members {
			if load[to.Name] >= most {
				continue
			}
			for s, nodes := range m.Assigned {
				at := slices.Index(nodes, over)
				if at < 0 || slices.Contains(nodes, to.Name) {
					continue
				}
				others := slices.Concat(nodes[:at], nodes[at+1:])
				if anywhere || !inZone(zone, others, to.Zone) {
					m.Assigned[s][at] = to.Name
					load[over]--
					load[to.Name]++
					return true
				}
			}
		}
	}
	return false
}

func weight(node string, shard int) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(node))
	_, _ = h.Write(binary.LittleEndian.AppendUint32(nil, uint32(shard)))
	return mixed(h.Sum64())
}

// Join adds a member, or changes its zone. Shards move when Assign is called.
func (m *Map) Join(node Member) {
	m.Leave(node.Name)
	m.Members = append(m.Members, node)
	slices.SortFunc(m.Members, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
}

// Leave takes a member out. Its shards move when Assign is called.
func (m *Map) Leave(name string) {
	m.Members = slices.DeleteFunc(m.Members, func(n Member) bool { return n.Name == name })
}
