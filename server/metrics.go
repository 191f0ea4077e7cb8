package server

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/search"
)

// MetricNamespace begins the names of all metrics.
const MetricNamespace = "plaid"

// Registry has the metrics of a process, for Prometheus. Nothing is registered globally.
type Registry struct{ *prometheus.Registry }

// NewRegistry returns a registry with the version of the program, its device, and the metrics of Go and of
// the process.
func NewRegistry(version, device string) *Registry {
	r := &Registry{prometheus.NewRegistry()}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: MetricNamespace, Name: "info",
		Help: "Version, and the device that searches."}, []string{"version", "device"})
	build.WithLabelValues(version, device).Set(1)
	r.MustRegister(build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Counter adds a counter with labels.
func (r *Registry) Counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: MetricNamespace, Name: name, Help: help}, labels)
	r.MustRegister(c)
	return c
}

// Histogram adds a histogram with labels.
func (r *Registry) Histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: MetricNamespace,
		Name:      name,
		Help:      help,
		Buckets:   buckets,
	}, labels)
	r.MustRegister(h)
	return h
}

// StageBuckets are the buckets of a histogram of the stages of searches, in seconds: from a small index on
// one core to a scan of a large one.
var StageBuckets = []float64{.0003, .001, .003, .01, .03, .1, .3, 1, 3, 10}

// Page returns a handler that answers with the metrics in the text form of Prometheus.
func (r *Registry) Page() http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// metrics are the metrics of the service, with their labels.
type metrics struct {
	handler http.Handler

	requests       *prometheus.CounterVec   // route, method, status
	requestSeconds *prometheus.HistogramVec // route
	running        prometheus.Gauge
	stages         *prometheus.HistogramVec // index, stage
	queries        *prometheus.CounterVec   // index, plan
	written        *prometheus.CounterVec   // index, what
	encoded        *prometheus.HistogramVec // role
	truncated      *prometheus.CounterVec   // role
	panics         prometheus.Counter       // in goroutines of requests
}

// newMetrics registers the metrics of a service.
func newMetrics(s *Server) *metrics {
	r := NewRegistry(s.options.Version, s.device())
	longBuckets := append(slices.Clone(StageBuckets[1:]), 30, 100)
	m := &metrics{
		requests: r.Counter("http_requests_total", "Requests by route, method and status.", "route", "method",
			"status"),
		requestSeconds: r.Histogram("http_request_seconds", "Time of requests by route, waiting included.", longBuckets,
			"route"),
		stages: r.Histogram("search_stage_seconds", "Time of the stages that a query went through: wait, "+
			"centroids, probe, approx, exact, refine, and total without wait.", StageBuckets, "index", "stage"),
		queries: r.Counter("search_queries_total", "Queries by how they were answered.", "index", "plan"),
		written: r.Counter("documents_written_total", "Documents added, deleted and updated.", "index", "what"),
		encoded: r.Histogram("encode_seconds", "Time of encoding the texts of a request, by role.", longBuckets,
			"role"),
		truncated: r.Counter("texts_cut_total", "Texts that are longer than the model reads, by role.", "role"),
		panics: prometheus.NewCounter(
			prometheus.CounterOpts{Namespace: MetricNamespace, Name: "request_panics_total",
				Help: "Requests that ended in a panic."}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: MetricNamespace, Name: "http_requests_running",
			Help: "Requests that are being answered."}),
		handler: r.Page(),
	}
	r.MustRegister(m.panics, m.running, indexCollector{s})
	return m
}

// startRequest counts a request. Call the function that it returns when the request has ended; r is nil if
// it had no route.
func (m *metrics) startRequest() func(r *route, method string, status int, took time.Duration) {
	m.running.Inc()
	return func(r *route, method string, status int, took time.Duration) {
		m.running.Dec()
		pattern := "none" // a path or a method of a client's invention must not become a label
		if r != nil {
			pattern = r.pattern
		} else {
			method = "any"
		}
		m.requests.WithLabelValues(pattern, method, strconv.Itoa(status)).Inc()
		m.requestSeconds.WithLabelValues(pattern).Observe(took.Seconds())
	}
}

// observeSearch observes the time of the stages of a query, and counts its plans.
func (m *metrics) observeSearch(index string, st *search.Stats) {
	t := &st.Times
	for _, stage := range []struct {
		name string
		time time.Duration
	}{{"wait", t.Wait}, {"centroids", t.Centroids}, {"probe", t.Probe}, {"approx", t.Approx}, {"exact", t.Exact},
		{"refine", t.Refine}, {"total", t.Total}} {
		if stage.time > 0 || stage.name == "total" { // a stage that no query goes through gets no series
			m.stages.WithLabelValues(index, stage.name).Observe(stage.time.Seconds())
		}
	}
	for plan, n := range st.Plans {
		m.queries.WithLabelValues(index, plan).Add(float64(n))
	}
}

// removeIndex removes the metrics of an index that was removed.
func (m *metrics) removeIndex(index string) {
	labels := prometheus.Labels{"index": index}
	m.stages.DeletePartialMatch(labels)
	m.queries.DeletePartialMatch(labels)
	m.written.DeletePartialMatch(labels)
}

// indexCollector collects the gauges of each index whenever /metrics is read.
type indexCollector struct{ s *Server }

// indexDesc describes a gauge of each index.
func indexDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("plaid_index_"+name, help, []string{"index"}, nil)
}

// indexGauges are the gauges of an index that can be used.
var indexGauges = []struct {
	*prometheus.Desc
	value func(st *collection.Stats) float64
}{
	{indexDesc("documents", "Live documents; all passages of one count as one."),
		func(st *collection.Stats) float64 { return float64(st.Documents) }},
	{indexDesc("passages", "Live passages, in which some documents are stored."),
		func(st *collection.Stats) float64 { return float64(st.Passages) }},
	{indexDesc("tokens", "Token vectors of live documents."),
		func(st *collection.Stats) float64 { return float64(st.Tokens) }},
	{indexDesc("deleted_documents", "Documents and passages that were deleted or replaced."),
		func(st *collection.Stats) float64 { return float64(st.Deleted) }},
	{indexDesc("centroids", "Centroids."), func(st *collection.Stats) float64 { return float64(st.Centroids) }},
	{indexDesc("file_bytes", "Length of the index file."),
		func(st *collection.Stats) float64 { return float64(st.FileBytes) }},
	{indexDesc("generation", "How often the index has been trained again."),
		func(st *collection.Stats) float64 { return float64(st.Generation) }},
	{indexDesc("drift_ratio", "Error of what was added since the training over that of the training; 1 to 1.1 is "+
		"like it, 0 unknown."),
		func(st *collection.Stats) float64 { return st.Growth.Drift.Ratio }},
	{indexDesc("retrain_advised", "1 if another training would pay."),
		func(st *collection.Stats) float64 { return gaugeFromBool(st.Growth.Advice != "") }},
	{indexDesc("training", "1 while the index is trained again."),
		func(st *collection.Stats) float64 { return gaugeFromBool(st.Growth.Training) }},
	{indexDesc("queue_documents", "Documents that wait to be written."),
		func(st *collection.Stats) float64 { return float64(st.Queue.Documents) }},
	{indexDesc("queue_bytes", "Bytes that wait to be written."),
		func(st *collection.Stats) float64 { return float64(st.Queue.Bytes) }},
	{indexDesc("queue_requests", "Changes that wait or are being written."),
		func(st *collection.Stats) float64 { return float64(st.Queue.Requests) }},
}

// sampledGauges are the gauges of each class of k, for an index whose questions are sampled.
var sampledGauges = []struct {
	*prometheus.Desc
	value func(c *collection.SampledClass) (x float64, known bool)
}{
	{classDesc("questions", "Sampled questions that the other figures are about."),
		func(c *collection.SampledClass) (float64, bool) { return float64(c.Questions), true }},
	{classDesc("recall", "Share of the exhaustive results that searches have found, in the mean of sampled questions."),
		func(c *collection.SampledClass) (float64, bool) { return c.Recall, c.Questions > 0 }},
	{classDesc("recall_worst", "The same of the worst sampled question."),
		func(c *collection.SampledClass) (float64, bool) { return c.Worst, c.Questions > 0 }},
	{classDesc("recall_error", "Standard error of the mean."),
		func(c *collection.SampledClass) (float64, bool) { return c.Error, c.Questions > 0 }},
	{classDesc("recall_promised", "What the index expects the mean to be, by its self-check or its tuning."),
		func(c *collection.SampledClass) (float64, bool) {
			if c.Promised == nil {
				return 0, false
			}
			return *c.Promised, true
		}},
}

// classDesc describes a gauge of each class of k of an index.
func classDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("plaid_index_sampled_"+name, help, []string{"index", "k"}, nil)
}

var descSampled = prometheus.NewDesc("plaid_index_sampled_total",
	"Sampled questions by what became of them: measured, dropped (too many waited), failed.",
	[]string{"index", "result"}, nil)

// collectSampled sends the metrics of the sampled questions of an index.
func collectSampled(to chan<- prometheus.Metric, index string, s *collection.Sampled) {
	for i := range s.Classes {
		for _, g := range sampledGauges {
			if x, known := g.value(&s.Classes[i]); known {
				to <- prometheus.MustNewConstMetric(g.Desc, prometheus.GaugeValue, x, index,
					strconv.Itoa(s.Classes[i].K))
			}
		}
	}
	for _, n := range []struct {
		result string
		count  int64
	}{{"measured", s.Measured}, {"dropped", s.Dropped}, {"failed", s.Failed}} {
		to <- prometheus.MustNewConstMetric(descSampled, prometheus.CounterValue, float64(n.count), index, n.result)
	}
}

var (
	descUp     = indexDesc("up", "1 if the index can be used, 0 if it is damaged.")
	descPanics = prometheus.NewDesc("plaid_store_panics_total", "Panics in writers, trainings and other work "+
		"beside requests.", nil, nil)
	descDiskFull = prometheus.NewDesc("plaid_disk_full", "1 while changes are refused since the disk is full.", nil,
		nil)
	descDiskFree = prometheus.NewDesc("plaid_disk_free_bytes", "What is free on the disk of the indexes.", nil, nil)
)

// Describe implements prometheus.Collector.
func (indexCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descUp, descPanics, descDiskFull, descDiskFree, descSampled} {
		to <- d
	}
	for _, g := range indexGauges {
		to <- g.Desc
	}
	for _, g := range sampledGauges {
		to <- g.Desc
	}
}

// Collect implements prometheus.Collector.
func (c indexCollector) Collect(to chan<- prometheus.Metric) {
	if p, ok := c.s.collections.(collection.PanicCounter); ok {
		to <- prometheus.MustNewConstMetric(descPanics, prometheus.CounterValue, float64(p.Panics()))
	}
	if d, ok := c.s.collections.(collection.DiskReporter); ok {
		full, free, known := d.Disk()
		to <- prometheus.MustNewConstMetric(descDiskFull, prometheus.GaugeValue, gaugeFromBool(full))
		if known {
			to <- prometheus.MustNewConstMetric(descDiskFree, prometheus.GaugeValue, float64(free))
		}
	}
	for _, status := range c.s.allStats(context.Background(), c.s.collections.Names()) {
		gauge := func(d *prometheus.Desc, x float64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, x, status.Name())
		}
		gauge(descUp, gaugeFromBool(status.err == nil))
		for _, g := range indexGauges {
			if status.err == nil {
				gauge(g.Desc, g.value(&status.stats))
			}
		}
		if status.err == nil && status.stats.Sampled != nil {
			collectSampled(to, status.Name(), status.stats.Sampled)
		}
	}
}

// gaugeFromBool returns 1 for true and 0 for false.
func gaugeFromBool(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
