package cluster

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// peers knows how nodes have answered the requests of this process. The zero value knows nothing.
type peers struct {
	mu     sync.Mutex
	nodes  map[string]*peer // by name
	tokens float64          // budget of hedged requests: requests that are sent to a second node
}

// recentTimes is how many times of a node and an operation are remembered.
const recentTimes = 128

// peer holds the knowledge about one node.
type peer struct {
	running   int                   // requests of this process
	average   time.Duration         // exponentially weighted
	latencies map[string]*latencies // by the kind of the request

	failures int  // consecutive: no useful answer, or others were faster
	away     bool // it has failed, and has not answered since that it is alive
}

// latencies are the times of one kind of requests.
type latencies struct {
	times [recentTimes]time.Duration // a ring
	count int                        // times that were ever added
	p95   time.Duration              // 95th percentile
}

const (
	// A node that fails is avoided until it answers that it is alive. It is asked at once, and after each further
	// failure one second later than after the one before, up to maxFailures. After that it gets one request at a time
	// until it has answered one: a node that refuses quickly would otherwise look like the fastest.
	maxFailures = 6
	// hedgeShare is the share of requests that may be hedged, and maxTokens limits how many at once.
	hedgeShare, maxTokens = 0.1, 10
	hedgeFloor            = 2 * time.Millisecond // shortest hedgeDelay
)

// lookUpPeer returns a node by name. p.mu is held.
func (p *peers) lookUpPeer(node string) *peer {
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

// shouldSkip reports whether a node is avoided if there are others.
func (n *peer) shouldSkip() bool { return n.away || n.failures > 0 && n.running > 0 }

// firstHealthy returns the index of the first node that is not to be skipped, 0 if all are.
func (p *peers) firstHealthy(nodes []*Node) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(slices.IndexFunc(nodes, func(n *Node) bool { return !p.lookUpPeer(n.Name).shouldSkip() }), 0)
}

// estimatedTime estimates the time of one more request: the number of requests times the average.
func (n *peer) estimatedTime() float64 {
	return float64(n.running+1) * float64(max(n.average, 50*time.Microsecond))
}

// noteFailure notes a failed request. first reports whether the node was not away before.
func (p *peers) noteFailure(node string) (first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.lookUpPeer(node)
	n.failures = min(n.failures+1, maxFailures)
	first, n.away = !n.away, true
	return first
}

// probeDelay returns how long to wait before asking a failed node whether it is alive: not at all after the first
// failure, which may be chance.
func (p *peers) probeDelay(node string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(p.lookUpPeer(node).failures-1) * time.Second
}

// noteAlive notes that a node has answered that it is alive.
func (p *peers) noteAlive(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lookUpPeer(node).away = false
}

// forgetOthers forgets nodes that are not in a list and have no running request of this process.
func (p *peers) forgetOthers(nodes []*Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.nodes, func(name string, n *peer) bool {
		return n.running == 0 && !slices.ContainsFunc(nodes, func(n *Node) bool { return n.Name == name })
	})
}

// beginOther counts a request that is not a search, until done is called. Its time says nothing about searches.
func (p *peers) beginOther(node string) (done func(answered bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lookUpPeer(node).running++
	return func(answered bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		n := p.lookUpPeer(node)
		if n.running--; answered {
			n.failures = 0
		}
	}
}

// beginSearch counts a search, and adds to the budget of hedged requests.
func (p *peers) beginSearch(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lookUpPeer(node).running++
	p.tokens = min(p.tokens+hedgeShare, maxTokens)
}

// endSearch notes how a search went. If it was not answered, it would have taken at least the time that it took.
func (p *peers) endSearch(node, op string, took time.Duration, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.lookUpPeer(node)
	n.running--
	if !answered && took < n.average {
		return
	}
	if n.average == 0 {
		n.average = took
	}
	n.average += (took - n.average) / 8 // the newest time has the weight 1/8
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
	if l.count%16 == 0 || l.count < 16 { // not each time: it sorts
		sorted := slices.Sorted(slices.Values(l.times[:min(l.count, recentTimes)]))
		l.p95 = sorted[len(sorted)*95/100]
	}
}

// hedgeDelay returns how long to wait for a node before asking another one: the 95th percentile of its times.
func (p *peers) hedgeDelay(node, op string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.lookUpPeer(node).latencies[op]; l != nil && l.count >= 8 {
		return max(hedgeFloor, l.p95)
	}
	return 50 * time.Millisecond // a guess, until there are enough times
}

// allowHedge reports whether the budget allows a hedged request, and takes it from the budget.
func (p *peers) allowHedge() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tokens < 1 {
		return false
	}
	p.tokens--
	return true
}

// preferredNodes returns the nodes of a list that are not to be skipped, and of these those in the zone. A criterion
// that would leave no node is ignored. p.mu is held.
func (p *peers) preferredNodes(nodes []*Node, zone string) []*Node {
	for _, excluded := range []func(n *Node) bool{
		func(n *Node) bool { return p.lookUpPeer(n.Name).shouldSkip() },
		func(n *Node) bool { return zone != "" && n.Zone != zone },
	} {
		if remaining := slices.DeleteFunc(slices.Clone(nodes), excluded); len(remaining) > 0 {
			nodes = remaining
		}
	}
	return nodes
}

// assign assigns each shard to one of its preferred holders. In a joint request, such as a pruned search, a node
// does some work once for all of its shards: it is sent to few nodes. Other requests go to as many idle nodes as
// possible, which work at the same time.
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
	free := func(n *Node) bool { return p.lookUpPeer(n.Name).running == 0 && len(chosen[n]) == 0 }
	rank := rand.Int() // one rank for all shards: holders with the same rank mostly are different nodes
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

// betterOfTwo returns the faster of two random nodes (the power of two choices, Mitzenmacher, 2001). p.mu is held.
func (p *peers) betterOfTwo(nodes []*Node) *Node {
	i := rand.IntN(len(nodes))
	// b is another node than a, if there is another.
	a, b := nodes[i], nodes[(i+1+rand.IntN(max(len(nodes)-1, 1)))%len(nodes)]
	if p.lookUpPeer(b.Name).estimatedTime() < p.lookUpPeer(a.Name).estimatedTime() {
		return b
	}
	return a
}

// assignToFew assigns shards to few nodes: repeatedly to the node that has the most remaining shards, among the nodes
// whose estimated time is at most twice the shortest. p.mu is held.
func (p *peers) assignToFew(chosen map[*Node][]int, shards []int, preferred [][]*Node, self *Node) {
	uncovered := map[*Node][]int{} // indices in shards of the shards that a node could still get
	for i, nodes := range preferred {
		for _, n := range nodes {
			uncovered[n] = append(uncovered[n], i)
		}
	}
	assigned := make([]bool, len(shards))
	for {
		// Drop assigned shards, and find the cheapest node.
		cheapest := math.Inf(1)
		for n, indices := range uncovered {
			indices = slices.DeleteFunc(indices, func(i int) bool { return assigned[i] })
			if uncovered[n] = indices; len(indices) == 0 {
				delete(uncovered, n)
				continue
			}
			cheapest = min(cheapest, p.lookUpPeer(n.Name).estimatedTime())
		}
		if len(uncovered) == 0 {
			return
		}
		// Choose the node with the most shards; this node if there is a tie, otherwise a random one.
		var best *Node
		for n, indices := range uncovered {
			if p.lookUpPeer(n.Name).estimatedTime() > 2*cheapest {
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
