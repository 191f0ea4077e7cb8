package cluster

import (
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

	failures int // in turn: it said nothing that counts, or others were faster
	failed   time.Time
}

// latencies are the times of one operation.
type latencies struct {
	times [recent]time.Duration
	n     int // that were ever put into times
	p95   time.Duration
}

const (
	// A node that fails is passed over at once. It is tried again, with one request at a time, after as many
	// seconds as it has failed times, maxFailures at most: one that refuses quickly would otherwise look like
	// the fastest, and one that hangs like one without work.
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

// ill reports whether a node has failed a moment ago.
func (n *peer) ill() bool {
	return n.failures > 0 && (n.running > 0 || time.Since(n.failed) < time.Duration(n.failures)*time.Second)
}

// healthy is the place of the first node of a list that has not failed a moment ago; 0 if all have.
func (p *peers) healthy(all []*Node) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(slices.IndexFunc(all, func(n *Node) bool { return !p.of(n.Name).ill() }), 0)
}

// cost estimates the time that a node takes: its running requests times its average.
func (n *peer) cost() float64 {
	c := float64(n.running+1) * float64(max(n.average, 50*time.Microsecond))
	if n.ill() {
		c *= 1000 // it is asked if there is no other one
	}
	return c
}

// fail counts a request that was in vain.
func (p *peers) fail(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.of(node)
	n.failures, n.failed = min(n.failures+1, maxFailures), time.Now()
}

// works counts a request that is no search, until done is called: what it takes says nothing of searches.
func (p *peers) works(node string) (done func(answered bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(node).running++
	return func(answered bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.of(node).running--; answered {
			p.of(node).failures = 0
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

// choose picks one of the holders of a shard: the better of two at random (Mitzenmacher, 2001), in the own
// zone if there are any. A node that the request asks anyway computes centroid scores once for all of its shards:
// it is taken unless the other one is idle, and answers sooner, or it is much worse itself.
func (p *peers) choose(all []*Node, zone string, chosen map[string][]int) *Node {
	if near := slices.DeleteFunc(slices.Clone(all),
		func(n *Node) bool { return n.Zone != zone }); zone != "" && len(near) > 0 {
		all = near
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := rand.IntN(len(all))
	a := all[i]
	if len(all) == 1 {
		return a
	}
	j := rand.IntN(len(all) - 1)
	if j >= i {
		j++
	}
	b := all[j]
	if len(chosen[b.Name]) > 0 {
		a, b = b, a
	}
	much := 1.0
	if len(chosen[a.Name]) > 0 && len(chosen[b.Name]) == 0 {
		if other := p.of(b.Name); other.running == 0 && !other.ill() {
			return b
		}
		much = 2
	}
	if p.of(a.Name).cost() <= much*p.of(b.Name).cost() {
		return a
	}
	return b
}
