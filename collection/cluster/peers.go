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

// recent is how many times of a node are remembered.
const recent = 128

type peer struct {
	running   int           // requests of this process
	average   time.Duration // exponentially weighted
	latencies map[string]*latencies

	failures int  // in turn: it said nothing that counts, or others were faster
	away     bool // it has failed, and has not said since that it lives
}

// latencies are the times of one operation.
type latencies struct {
	times [recent]time.Duration
	n     int // that were ever put into times
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

func (p *peers) of(node string) *peer {
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

// ill reports whether a node is to be passed over.
func (n *peer) ill() bool { return n.away || n.failures > 0 && n.running > 0 }

// healthy is the place of the first node of a list that has not failed a moment ago; 0 if all have.
func (p *peers) healthy(all []*Node) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(slices.IndexFunc(all, func(n *Node) bool { return !p.of(n.Name).ill() }), 0)
}

// cost estimates the time that a node takes: its running requests times its average.
func (n *peer) cost() float64 {
	return float64(n.running+1) * float64(max(n.average, 50*time.Microsecond))
}

// fail counts a request that was in vain. It reports whether the node is away only from now on.
func (p *peers) fail(node string) (first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.of(node)
	n.failures = min(n.failures+1, maxFailures)
	first, n.away = !n.away, true
	return first
}

// rest is how long a node is left alone that has failed: not at all after the first time, which may be chance.
func (p *peers) rest(node string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(p.of(node).failures-1) * time.Second
}

// returned notes that a node has said that it lives.
func (p *peers) returned(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(node).away = false
}

// keep forgets the nodes that are not among some, and have no request of this process.
func (p *peers) keep(nodes []*Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.nodes, func(name string, n *peer) bool {
		return n.running == 0 && !slices.ContainsFunc(nodes, func(n *Node) bool { return n.Name == name })
	})
}

// works counts a request that is no search, until done is called. Its time says nothing of searches.
func (p *peers) works(node string) (done func(answered bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(node).running++
	return func(answered bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		n := p.of(node)
		if n.running--; answered {
			n.failures = 0
		}
	}
}

// begin counts a request.
func (p *peers) begin(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(node).running++
	p.tokens = min(p.tokens+hedgeShare, maxTokens)
}

// done takes over how a request went. One that failed or was given up took at least so long.
func (p *peers) done(node, op string, took time.Duration, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.of(node)
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
	l.times[l.n%recent] = took
	l.n++
	if l.n%16 == 0 || l.n < 16 {
		sorted := slices.Sorted(slices.Values(l.times[:min(l.n, recent)]))
		l.p95 = sorted[len(sorted)*95/100]
	}
}

// patience is how long to wait for a node alone: the time that 95 of 100 of its answers take.
func (p *peers) patience(node, op string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.of(node).latencies[op]; l != nil && l.n >= 8 {
		return max(hedgeFloor, l.p95)
	}
	return 50 * time.Millisecond
}

// again allows a request to be made a second time, within the budget.
func (p *peers) again() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tokens < 1 {
		return false
	}
	p.tokens--
	return true
}

// near are the nodes of a list that have not failed, and of these those of a zone; all, where there are none.
func (p *peers) near(all []*Node, zone string) []*Node {
	for _, not := range []func(n *Node) bool{
		func(n *Node) bool { return p.of(n.Name).ill() },
		func(n *Node) bool { return zone != "" && n.Zone != zone },
	} {
		if some := slices.DeleteFunc(slices.Clone(all), not); len(some) > 0 {
			all = some
		}
	}
	return all
}

// assign gives each shard one of its holders, of those that are near. A node computes the centroid scores of a
// pruned search once for all of its shards: such a request is joint, and goes to few nodes. Others go to as many
// nodes as are idle, so that these work at the same time.
func (p *peers) assign(shards []int, holders [][]*Node, zone string, self *Node, joint bool) map[*Node][]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	near := make([][]*Node, len(shards))
	for i, all := range holders {
		near[i] = p.near(all, zone)
	}
	chosen := map[*Node][]int{}
	if joint {
		p.cover(chosen, shards, near, self)
		return chosen
	}
	free := func(n *Node) bool { return p.of(n.Name).running == 0 && len(chosen[n]) == 0 }
	rank := rand.Int() // the first holders of shards are different nodes, and most of the second too
	for i, all := range near {
		n := all[rank%len(all)]
		if !free(n) {
			if first := slices.IndexFunc(all, free); first >= 0 {
				n = all[first]
			} else {
				n = p.better(all)
			}
		}
		chosen[n] = append(chosen[n], shards[i])
	}
	return chosen
}

// better is the better of two nodes at random (Mitzenmacher, 2001).
func (p *peers) better(all []*Node) *Node {
	i := rand.IntN(len(all))
	a, b := all[i], all[(i+1+rand.IntN(max(len(all)-1, 1)))%len(all)]
	if p.of(b.Name).cost() < p.of(a.Name).cost() {
		return b
	}
	return a
}

// cover gives shards to few nodes: again and again to the one that has most of the rest, among those that cost at
// most twice as much as the cheapest.
func (p *peers) cover(chosen map[*Node][]int, shards []int, near [][]*Node, self *Node) {
	left := map[*Node][]int{} // places in shards
	for i, all := range near {
		for _, n := range all {
			left[n] = append(left[n], i)
		}
	}
	taken := make([]bool, len(shards))
	for {
		least := math.Inf(1)
		for n, has := range left {
			has = slices.DeleteFunc(has, func(i int) bool { return taken[i] })
			if left[n] = has; len(has) == 0 {
				delete(left, n)
				continue
			}
			least = min(least, p.of(n.Name).cost())
		}
		if len(left) == 0 {
			return
		}
		var best *Node
		for n, has := range left { // in an order that is random
			if p.of(n.Name).cost() > 2*least {
				continue
			}
			if best == nil || len(has) > len(left[best]) || len(has) == len(left[best]) && n == self {
				best = n
			}
		}
		for _, i := range left[best] {
			taken[i], chosen[best] = true, append(chosen[best], shards[i])
		}
	}
}
