// Package metrics is what processes that are watched have in common: a registry for
// Prometheus with the figures of the program, and the page that shows it.
package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Namespace is at the beginning of the names of all metrics.
const Namespace = "plaid"

// Registry is one of its own: nothing is registered globally.
type Registry struct{ *prometheus.Registry }

// New returns a registry with the version of the program, what it computes with, and the
// figures of Go and of the process.
func New(version, device string) *Registry {
	r := &Registry{prometheus.NewRegistry()}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: Namespace, Name: "info", Help: "Version, and the device that searches."}, []string{"version", "device"})
	build.WithLabelValues(version, device).Set(1)
	r.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Counter adds a counter with labels.
func (r *Registry) Counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: Namespace, Name: name, Help: help}, labels)
	r.MustRegister(c)
	return c
}

// Histogram adds a histogram with labels.
func (r *Registry) Histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: Namespace, Name: name, Help: help, Buckets: buckets}, labels)
	r.MustRegister(h)
	return h
}

// StageBuckets are seconds of parts of a search, from a small index on one core to a scan
// of a large one.
var StageBuckets = []float64{.0003, .001, .003, .01, .03, .1, .3, 1, 3, 10}

// Page shows the metrics in the text form of Prometheus.
func (r *Registry) Page() http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}
