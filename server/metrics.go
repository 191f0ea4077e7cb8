package server

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/plaid-ir/plaid/search"
)

// metrics are what /metrics shows. The registry is the server's own.
type metrics struct {
	registry *prometheus.Registry
	page     http.Handler

	requests *prometheus.CounterVec   // route, method, status
	took     *prometheus.HistogramVec // route
	running  prometheus.Gauge
	stages   *prometheus.HistogramVec // index, stage
	queries  *prometheus.CounterVec   // index, plan
	written  *prometheus.CounterVec   // index, what
	encoded  *prometheus.HistogramVec // role
}

// stageBuckets reach from a small index on one core to a scan of a large one.
var stageBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}

func newMetrics(s *Server) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "plaid", Name: name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "plaid", Name: name, Help: help, Buckets: buckets}, labels)
		m.registry.MustRegister(h)
		return h
	}
	m.requests = counter("http_requests_total", "Requests by route, method and status.", "route", "method", "status")
	m.took = histogram("http_request_seconds", "Time of requests by route, waiting included.", append(stageBuckets[3:], 30, 100), "route")
	m.stages = histogram("search_stage_seconds", "Time of the stages of a query: wait, centroids, probe, approx, exact, refine, and total without wait.", stageBuckets, "index", "stage")
	m.queries = counter("search_queries_total", "Queries by how they were answered.", "index", "plan")
	m.written = counter("documents_written_total", "Documents added, deleted and updated.", "index", "what")
	m.encoded = histogram("encode_seconds", "Time of encoding the texts of a request, by role.", append(stageBuckets[3:], 30, 100), "role")
	m.running = prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "plaid", Name: "http_requests_running", Help: "Requests that are being answered."})
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "plaid", Name: "info", Help: "Version, and the device that searches."}, []string{"version", "device"})
	build.WithLabelValues(s.o.Version, s.device()).Set(1)
	m.registry.MustRegister(m.running, build, collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsGC)), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collections{s})
	m.page = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
	return m
}

// begin counts a request; the function that it returns says how it ended.
func (m *metrics) begin() func(r *route, method string, status int, took time.Duration) {
	m.running.Inc()
	return func(r *route, method string, status int, took time.Duration) {
		m.running.Dec()
		pattern := "none" // no label is made of what a client invents
		if r != nil {
			pattern = r.pattern
		} else {
			method = "any"
		}
		m.requests.WithLabelValues(pattern, method, strconv.Itoa(status)).Inc()
		m.took.WithLabelValues(pattern).Observe(took.Seconds())
	}
}

// searched notes the stages of a query.
func (m *metrics) searched(index string, st *search.Stats) {
	t := &st.Times
	for _, stage := range []struct {
		name string
		time time.Duration
	}{{"wait", t.Wait}, {"centroids", t.Centroids}, {"probe", t.Probe}, {"approx", t.Approx}, {"exact", t.Exact}, {"refine", t.Refine}, {"total", t.Total}} {
		m.stages.WithLabelValues(index, stage.name).Observe(stage.time.Seconds())
	}
	for plan, n := range st.Plans {
		m.queries.WithLabelValues(index, plan).Add(float64(n))
	}
}

// forget removes what was counted of an index that is gone.
func (m *metrics) forget(index string) {
	of := prometheus.Labels{"index": index}
	m.stages.DeletePartialMatch(of)
	m.queries.DeletePartialMatch(of)
	m.written.DeletePartialMatch(of)
}

// collections are the gauges of each index, looked at when /metrics is asked for.
type collections struct{ s *Server }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("plaid_index_"+name, help, append([]string{"index"}, labels...), nil)
}

var (
	descUp         = desc("up", "1 if the index can be used, 0 if it is damaged.")
	descDocuments  = desc("documents", "Live documents.")
	descTokens     = desc("tokens", "Token vectors of live documents.")
	descDeleted    = desc("deleted_documents", "Deleted documents.")
	descCentroids  = desc("centroids", "Centroids.")
	descBytes      = desc("file_bytes", "Length of the index file.")
	descGeneration = desc("generation", "How often the index has been trained anew.")
	descDrift      = desc("drift_ratio", "Error of what was added since the training over that of the training; 1 to 1.1 is like it, 0 unknown.")
	descAdvice     = desc("retrain_advised", "1 if training anew would pay.")
	descTraining   = desc("training", "1 while the index is trained anew.")
	descQueued     = desc("queue_documents", "Documents that wait to be written.")
	descQueueBytes = desc("queue_bytes", "Bytes that wait to be written.")
	descRequests   = desc("queue_requests", "Changes that wait or are being written.")
)

// Describe implements prometheus.Collector.
func (collections) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descUp, descDocuments, descTokens, descDeleted, descCentroids, descBytes, descGeneration, descDrift, descAdvice, descTraining, descQueued, descQueueBytes, descRequests} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c collections) Collect(to chan<- prometheus.Metric) {
	for _, one := range c.s.allStats(context.Background()) {
		gauge := func(d *prometheus.Desc, x float64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, x, one.Name())
		}
		if one.err != nil {
			gauge(descUp, 0)
			continue
		}
		st := one.stats
		gauge(descUp, 1)
		gauge(descDocuments, float64(st.Documents))
		gauge(descTokens, float64(st.Tokens))
		gauge(descDeleted, float64(st.Deleted))
		gauge(descCentroids, float64(st.Centroids))
		gauge(descBytes, float64(st.FileBytes))
		gauge(descGeneration, float64(st.Generation))
		gauge(descDrift, st.Growth.Drift.Ratio)
		gauge(descAdvice, flag(st.Growth.Advice != ""))
		gauge(descTraining, flag(st.Growth.Training))
		gauge(descQueued, float64(st.Queue.Documents))
		gauge(descQueueBytes, float64(st.Queue.Bytes))
		gauge(descRequests, float64(st.Queue.Requests))
	}
}

func flag(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
