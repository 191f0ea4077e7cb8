package client

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/cluster/topology"
)

// peers are the nodes as this client knows them from its own queries.
type peers struct {
	mu     sync.Mutex
	nodes  map[string]*peer
	budget float64
	tokens float64 // requests that may be made twice
}

// recent is how many times of a node are remembered.
const recent = 128

type peer struct {
	running int           // queries of this client
	waiting int           // in the node's queue, when it last said
	average time.Duration // exponentially weighted
	times   [recent]time.Duration
	n       int // that were ever put into times
	p95     time.Duration

	failures int // in turn: it said nothing that counts, or others were faster
	failed   time.Time
}

// A node that fails is passed over at once. It is tried again, with one request at a
// time, after as many seconds as it has failed times, maxFailures at most: one that refuses quickly would otherwise look
// like the fastest, and one that hangs like one without work.
const maxFailures = 6

const maxTokens = 10

func (p *peers) init(budget float64) {
	p.nodes, p.budget, p.tokens = map[string]*peer{}, budget, 1
}

func (p *peers) of(node string) *peer {
	n := p.nodes[node]
	if n == nil {
		n = &peer{}
		p.nodes[node] = n
	}
	return n
}

// cost is what it takes to ask a node, by what is known: its queue times its time.
func (n *peer) cost() float64 {
	c := float64(n.running+n.waiting+1) * float64(max(n.average, 50*time.Microsecond))
	if n.failures > 0 && (n.running > 0 || time.Since(n.failed) < time.Duration(n.failures)*time.Second) {
		c *= 1000 // it is asked where there is nobody else
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

// begin counts a request.
func (p *peers) begin(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(node).running++
	p.tokens = min(p.tokens+p.budget, maxTokens)
}

// done takes over how a request went. One that failed or was given up took at least so
// long.
func (p *peers) done(node string, took time.Duration, waiting int, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.of(node)
	n.running--
	n.waiting = waiting
	if !answered && took < n.average {
		return
	}
	if n.n == 0 {
		n.average = took
	}
	n.average += (took - n.average) / 8
	if !answered {
		return
	}
	n.failures = 0
	n.times[n.n%recent] = took
	n.n++
	if n.n%16 == 0 || n.n < 16 {
		sorted := slices.Clone(n.times[:min(n.n, recent)])
		slices.Sort(sorted)
		n.p95 = sorted[len(sorted)*95/100]
	}
}

// patience is how long to wait for a node alone: the time that 95 of 100 of its answers
// take.
func (p *peers) patience(node string, floor time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.of(node)
	if n.n < 8 {
		return max(floor, 50*time.Millisecond)
	}
	return max(floor, n.p95)
}

// again allows a request to be made a second time, within the budget.
func (p *peers) again() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.budget <= 0 || p.tokens < 1 {
		return false
	}
	p.tokens--
	return true
}

// choose picks one of the replicas: the better of two at random (Mitzenmacher, 2001),
// in the own zone if there are any. One that the query asks anyway is taken unless it is
// much worse, for a node computes centroid scores once for all its shards.
func (p *peers) choose(all []topology.Replica, zone string, chosen map[string][]int) string {
	if near := slices.DeleteFunc(slices.Clone(all), func(r topology.Replica) bool { return r.Zone != zone }); zone != "" && len(near) > 0 {
		all = near
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := rand.IntN(len(all))
	a := all[i]
	if len(all) == 1 {
		return a.Node
	}
	j := rand.IntN(len(all) - 1)
	if j >= i {
		j++
	}
	b := all[j]
	if len(chosen[b.Node]) > 0 {
		a, b = b, a
	}
	much := 1.0
	if len(chosen[a.Node]) > 0 && len(chosen[b.Node]) == 0 {
		much = 2
	}
	if p.of(a.Node).cost() <= much*p.of(b.Node).cost() {
		return a.Node
	}
	return b.Node
}
