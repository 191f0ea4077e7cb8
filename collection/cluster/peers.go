package cluster

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// peers are the nodes as this process knows them from its own searches. The zero value knows nothing.
type peers struct {
	mu     sync.Mutex
	nodes  map[string]*peer
	tokens float64 // requests that may be made twice
}

// recentTimes is how many times of a node are remembered.
const recentTimes = 128

type peer struct {
	running   int           // requests of this process
	average   time.Duration // exponentially weighted
	latencies map[string]*latencies

	failures int  // in turn: it said nothing that counts, or others were faster
	away     bool // it has failed, and has not said since that it lives
}

// latencies are the times of one operation.
type latencies struct {
	times [recentTimes]time.Duration
	count int // that were ever put into times
	p95   time.Duration
}

const (
	// A node that fails is passed over until it says that it lives. It is asked at once, and after each failure a
	// second later than after the one before, until maxFailures. Then it gets one request at a time until it has
	// answered one: a node that refuses quickly would otherwise look like the fastest.
	maxFailures = 6
	// hedgeShare is the share of requests that may be made twice, and maxTokens how many at once.
	hedgeShare, maxTokens = 0.1, 10
	hedgeFloor            = 2 * time.Millisecond
)

func (p *peers) peer(node string) *peer {
	if p.nodes == nil {
		p.nodes, p.tokens = map[string]*peer{}, 1
	}
	n := p.nodes[node]
	if n == nil {
		n = &peer{latencies: map[string]*latencies{}}
		p.nodes[node] = n
	}
	return n
}

// shouldSkip reports whether a node is to be passed over.
func (n *peer) shouldSkip() bool { return n.away || n.failures > 0 && n.running > 0 }

// firstHealthy is the place of the first node of a list that has not failed a moment ago; 0 if all have.
func (p *peers) firstHealthy(nodes []*Node) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(slices.IndexFunc(nodes, func(n *Node) bool { return !p.peer(n.Name).shouldSkip() }), 0)
}

// estimatedTime estimates the time that a node takes: its running requests times its average.
func (n *peer) estimatedTime() float64 {
	return float64(n.running+1) * float64(max(n.average, 50*time.Microsecond))
}

// noteFailure counts a request that was in vain. It reports whether the node is away only from now on.
func (p *peers) noteFailure(node string) (first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.peer(node)
	n.failures = min(n.failures+1, maxFailures)
	first, n.away = !n.away, true
	return first
}

// probeDelay is how long a node is left alone that has failed: not at all after the first time, which may be chance.
func (p *peers) probeDelay(node string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(p.peer(node).failures-1) * time.Second
}

// noteAlive notes that a node has said that it lives.
func (p *peers) noteAlive(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.peer(node).away = false
}

// forgetOthers forgets the nodes that are not among some, and have no request of this process.
func (p *peers) forgetOthers(nodes []*Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.nodes, func(name string, n *peer) bool {
		return n.running == 0 && !slices.ContainsFunc(nodes, func(n *Node) bool { return n.Name == name })
	})
}

// beginOther counts a request that is no search, until done is called. Its time says nothing of searches.
func (p *peers) beginOther(node string) (done func(answered bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.peer(node).running++
	return func(answered bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		n := p.peer(node)
		if n.running--; answered {
			n.failures = 0
		}
	}
}

// beginSearch counts a request.
func (p *peers) beginSearch(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.peer(node).running++
	p.tokens = min(p.tokens+hedgeShare, maxTokens)
}

// endSearch takes over how a request went. One that failed or was given up took at least so long.
func (p *peers) endSearch(node, op string, took time.Duration, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.peer(node)
	n.running--
	if !answered && took < n.average {
		return
	}
	if n.average == 0 {
		n.average = took
	}
	n.average += (took - n.average) / 8
	if !answered {
		return
	}
	n.failures = 0
	l := n.latencies[op]
	if l == nil {
		l = &latencies{}
		n.latencies[op] = l
	}
	l.times[l.count%recentTimes] = took
	l.count++
	if l.count%16 == 0 || l.count < 16 {
		sorted := slices.Sorted(slices.Values(l.times[:min(l.count, recentTimes)]))
		l.p95 = sorted[len(sorted)*95/100]
	}
}

// hedgeDelay is how long to wait for a node alone: the time that 95 of 100 of its answers take.
func (p *peers) hedgeDelay(node, op string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.peer(node).latencies[op]; l != nil && l.count >= 8 {
		return max(hedgeFloor, l.p95)
	}
	return 50 * time.Millisecond
}

// allowHedge allows a request to be made a second time, within the budget.
func (p *peers) allowHedge() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tokens < 1 {
		return false
	}
	p.tokens--
	return true
}

// preferredNodes are the nodes of a list that have not failed, and of these those of a zone; all, where there are none.
func (p *peers) preferredNodes(nodes []*Node, zone string) []*Node {
	for _, excluded := range []func(n *Node) bool{
		func(n *Node) bool { return p.peer(n.Name).shouldSkip() },
		func(n *Node) bool { return zone != "" && n.Zone != zone },
	} {
		if remaining := slices.DeleteFunc(slices.Clone(nodes), excluded); len(remaining) > 0 {
			nodes = remaining
		}
	}
	return nodes
}

// assign gives each shard one of its holders, of those that are near. A node computes the centroid scores of a
// pruned search once for all of its shards: such a request is joint, and goes to few nodes. Others go to as many
// nodes as are idle, so that these work at the same time.
func (p *peers) assign(shards []int, holders [][]*Node, zone string, self *Node, joint bool) map[*Node][]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	preferred := make([][]*Node, len(shards))
	for i, nodes := range holders {
		preferred[i] = p.preferredNodes(nodes, zone)
	}
	chosen := map[*Node][]int{}
	if joint {
		p.assignToFew(chosen, shards, preferred, self)
		return chosen
	}
	free := func(n *Node) bool { return p.peer(n.Name).running == 0 && len(chosen[n]) == 0 }
	rank := rand.Int() // the first holders of shards are different nodes, and most of the second too
	for i, nodes := range preferred {
		n := nodes[rank%len(nodes)]
		if !free(n) {
			if first := slices.IndexFunc(nodes, free); first >= 0 {
				n = nodes[first]
			} else {
				n = p.betterOfTwo(nodes)
			}
		}
		chosen[n] = append(chosen[n], shards[i])
	}
	return chosen
}

// betterOfTwo is the better of two nodes at random (Mitzenmacher, 2001).
func (p *peers) betterOfTwo(nodes []*Node) *Node {
	i := rand.IntN(len(nodes))
	a, b := nodes[i], nodes[(i+1+rand.IntN(max(len(nodes)-1, 1)))%len(nodes)]
	if p.peer(b.Name).estimatedTime() < p.peer(a.Name).estimatedTime() {
		return b
	}
	return a
}

// assignToFew gives shards to few nodes: again and again to the one that has most of the rest, among those that cost at
// most twice as much as the cheapest.
func (p *peers) assignToFew(chosen map[*Node][]int, shards []int, preferred [][]*Node, self *Node) {
	uncovered := map[*Node][]int{} // places in shards
	for i, nodes := range preferred {
		for _, n := range nodes {
			uncovered[n] = append(uncovered[n], i)
		}
	}
	assigned := make([]bool, len(shards))
	for {
		cheapest := math.Inf(1)
		for n, indices := range uncovered {
			indices = slices.DeleteFunc(indices, func(i int) bool { return assigned[i] })
			if uncovered[n] = indices; len(indices) == 0 {
				delete(uncovered, n)
				continue
			}
			cheapest = min(cheapest, p.peer(n.Name).estimatedTime())
		}
		if len(uncovered) == 0 {
			return
		}
		var best *Node
		for n, indices := range uncovered { // in an order that is random
			if p.peer(n.Name).estimatedTime() > 2*cheapest {
				continue
			}
			if best == nil || len(indices) > len(uncovered[best]) || len(indices) == len(uncovered[best]) && n == self {
				best = n
			}
		}
		for _, i := range uncovered[best] {
			assigned[i], chosen[best] = true, append(chosen[best], shards[i])
		}
	}
}
