package node

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/server"
)

// metrics are what a node counts.
type metrics struct {
	queries *prometheus.CounterVec   // status
	took    *prometheus.HistogramVec // part: queue, work

	// The lease has these too.
	panics, rebuilds, differences atomic.Uint64
}

func (m *metrics) init() {
	m.queries = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: server.MetricNamespace, Name: "node_queries_total", Help: "Queries by what became of them: ok, busy, failed …"}, []string{"status"})
	m.took = prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: server.MetricNamespace, Name: "node_query_seconds", Help: "Time of a query in the queue, and at work.", Buckets: server.StageBuckets}, []string{"part"})
}

// answered notes a query.
func (m *metrics) answered(a *wire.Answer) { m.queries.WithLabelValues(a.Status.String()).Inc() }

func (m *metrics) worked(a *wire.Answer) {
	m.took.WithLabelValues("queue").Observe(a.Queued.Seconds())
	m.took.WithLabelValues("work").Observe(a.Worked.Seconds())
}

func (m *metrics) counts() topology.Counts {
	return topology.Counts{Panics: m.panics.Load(), Rebuilds: m.rebuilds.Load(), Differences: m.differences.Load()}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(server.MetricNamespace+"_node_"+name, help, labels, nil)
}

var (
	descReplicas    = desc("replicas", "Replicas by their state: "+strings.Join(topology.States, ", ")+".", "state")
	descApplied     = desc("replica_applied_entry", "Number of the last entry of its log that a replica has on its disk.", "collection", "generation", "shard")
	descLag         = desc("replica_lag_entries", "Entries that the log of a replica had at the last look, and the replica has not.", "collection", "generation", "shard")
	descDocuments   = desc("replica_documents", "Live documents of a replica.", "collection", "generation", "shard")
	descWaiting     = desc("queue_queries", "Queries that wait.")
	descConnected   = desc("connected", "1 while the NATS servers are reached.")
	descReady       = desc("ready", "1 while the node answers for all that it is given; /readyz says what it waits for.")
	descPanics      = desc("panics_total", "Queries, orders and changes that a fault of the program ended.")
	descRebuilds    = desc("rebuilds_total", "Replicas that were put aside, and made again of the object store and the log.")
	descDifferences = desc("differences_total", "Replicas that were found to differ from their log, and replicas of a shard that this node has compared and found unlike.")
	descUncompared  = desc("uncompared_shards", "Shards whose replicas this node was to compare, and could not at the last time.")
)

// Describe implements prometheus.Collector.
func (n *Node) Describe(to chan<- *prometheus.Desc) {
	n.metrics.queries.Describe(to)
	n.metrics.took.Describe(to)
	for _, d := range []*prometheus.Desc{descReplicas, descApplied, descLag, descDocuments, descWaiting, descConnected, descReady, descPanics, descRebuilds, descDifferences, descUncompared} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (n *Node) Collect(to chan<- prometheus.Metric) {
	n.metrics.queries.Collect(to)
	n.metrics.took.Collect(to)
	gauge := func(d *prometheus.Desc, x float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, x, labels...)
	}
	states := map[string]int{}
	for _, r := range n.inOrder() {
		s := r.state()
		states[s.State()]++
		of := []string{topology.NameOf(s.Collection), fmt.Sprint(s.Generation), fmt.Sprint(s.Shard)}
		gauge(descApplied, float64(s.Applied), of...)
		gauge(descLag, float64(s.Behind), of...)
		gauge(descDocuments, float64(s.Documents), of...)
	}
	for _, state := range topology.States {
		gauge(descReplicas, float64(states[state]), state)
	}
	flag := func(is bool) float64 {
		if is {
			return 1
		}
		return 0
	}
	gauge(descWaiting, float64(n.queries.waiting()))
	gauge(descConnected, flag(n.bus.Conn.IsConnected()))
	gauge(descReady, flag(n.Waits() == nil))
	n.mu.Lock()
	uncompared := len(n.uncompared)
	n.mu.Unlock()
	gauge(descUncompared, float64(uncompared))
	counts := n.metrics.counts()
	for _, c := range []struct {
		d *prometheus.Desc
		n uint64
	}{{descPanics, counts.Panics}, {descRebuilds, counts.Rebuilds}, {descDifferences, counts.Differences}} {
		to <- prometheus.MustNewConstMetric(c.d, prometheus.CounterValue, float64(c.n))
	}
}

// inOrder are the replicas.
func (n *Node) inOrder() []*replica {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []*replica
	for _, r := range n.replicas {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *replica) int { return compareServing(a.state(), b.state()) })
	return all
}

// Waits says in words what keeps the node from answering for all that the map gives it;
// nil: nothing does.
func (n *Node) Waits() (waits []string) {
	n.mu.Lock()
	leaving := n.draining || n.closed
	n.mu.Unlock()
	if leaving {
		waits = append(waits, "the node is leaving")
	}
	if !n.bus.Conn.IsConnected() {
		waits = append(waits, "the NATS servers are out of reach")
	}
	catching, fault := 0, ""
	wanted := n.wanted()
	for k := range wanted {
		s := topology.Serving{}
		if r := n.replica(k); r != nil {
			s = r.state()
		}
		if !s.Ready {
			catching++
			fault = max(fault, s.Fault, s.Log)
		}
	}
	if catching > 0 {
		text := fmt.Sprintf("%d of %d replicas do not answer yet", catching, len(wanted))
		if fault != "" {
			text += ": " + fault
		}
		waits = append(waits, text)
	}
	return waits
}
