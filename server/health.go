package server

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/storage"
)

// healthOut describes the service; it is the first answer that clients of next-plaid ask for.
type healthOut struct {
	Status   string       `json:"status" enum:"healthy"`
	Version  string       `json:"version"`
	Loaded   int          `json:"loaded_indices" doc:"indexes that have documents"`
	Dir      string       `json:"index_dir"`
	Memory   uint64       `json:"memory_usage_bytes"`
	Indices  []summaryOut `json:"indices"`
	Updates  []waitingOut `json:"updates" doc:"indexes with changes that wait or are being written"`
	Model    *modelOut    `json:"model,omitempty"`
	Device   string       `json:"device" doc:"what searches"`
	UptimeMS int64        `json:"uptime_ms"`
	Train    int64        `json:"train_tokens,omitempty"`
}

type summaryOut struct {
	Name          string  `json:"name"`
	Documents     int64   `json:"num_documents" doc:"all passages of one count as one"`
	Passages      int64   `json:"num_passages" doc:"in which some of them are stored"`
	Embeddings    uint64  `json:"num_embeddings"`
	Partitions    int     `json:"num_partitions"`
	Dimension     int     `json:"dimension"`
	Nbits         int     `json:"nbits"`
	AverageLength float64 `json:"avg_doclen"`
	HasMetadata   bool    `json:"has_metadata"`
	MaxDocuments  *uint64 `json:"max_documents,omitempty"`
}

type waitingOut struct {
	Index  string `json:"index"`
	Status string `json:"status" enum:"queued,running"`
	collection.QueueStats
}

type modelOut struct {
	Name           string `json:"name"`
	Path           string `json:"path"`
	Precision      string `json:"precision"`
	Fingerprint    string `json:"fingerprint"`
	Dimension      int    `json:"embedding_dim"`
	QueryLength    int    `json:"query_length"`
	DocumentLength int    `json:"document_length"`
}

// readyOut names the indexes that cannot be used.
type readyOut struct {
	Status  string            `json:"status" enum:"ready"`
	Damaged map[string]string `json:"damaged,omitempty"`
	Disk    string            `json:"disk,omitempty" enum:"full"`
}

type aliveOut struct {
	Status string `json:"status" enum:"alive"`
}

func healthRoutes() []route {
	const tag = "service"
	health := func(pattern, id string) route {
		return typedRoute(route{
			method:      "GET",
			pattern:     pattern,
			operationID: id,
			tag:         tag,
			permission:  Read,
			group:       groupUnlimited,
			summary:     "Version, indexes, queues and model",
		}, (*request).answerHealth)
	}
	description := func(pattern, id string) route {
		return route{
			method:      "GET",
			pattern:     pattern,
			operationID: id,
			tag:         tag,
			group:       groupUnlimited,
			status:      http.StatusOK,
			outType:     mediaJSON,
			summary:     "This description, as OpenAPI " + openapiVersion,
			handle:      func(q *request) error { return q.sendBody(http.StatusOK, mediaJSON, q.server.openapi) },
		}
	}
	return []route{
		health("/health", "health"),
		health("/", "root"),
		typedRoute(route{
			method:      "GET",
			pattern:     "/livez",
			operationID: "livez",
			tag:         tag,
			group:       groupUnlimited,
			summary:     "The program runs",
		},
			func(*request, *noBody) (aliveOut, error) { return aliveOut{"alive"}, nil }),
		typedRoute(route{
			method:      "GET",
			pattern:     "/readyz",
			operationID: "readyz",
			tag:         tag,
			group:       groupUnlimited,
			codes:       []Code{CodeBusy, CodeModelLoading},
			summary:     "Requests may be sent here",
			doc: "503 while the service ends, and while its indexes are out of reach. An index that is " +
				"damaged is named, and the others are served; a full disk is named, and what is stored is served.",
		}, (*request).answerReady),
		{
			method:       "GET",
			pattern:      "/metrics",
			operationID:  "metrics",
			tag:          tag,
			permission:   Read,
			onAllIndexes: true,
			group:        groupUnlimited,
			status:       http.StatusOK,
			outType:      "text/plain",
			summary:      "Figures for Prometheus",
			handle:       func(q *request) error { q.server.metrics.handler.ServeHTTP(q.w, q.Request); return nil },
		},
		description("/openapi.json", "openapi"),
		description("/api-docs/openapi.json", "api_docs"),
	}
}

// device returns the name of the device that searches.
func (s *Server) device() string { return cmp.Or(s.options.Device, "cpu") }

// indexStatus is an index with its statistics, or the error of reading them.
type indexStatus struct {
	collection.Collection
	stats collection.Stats
	err   error
}

// allStats returns the statistics of indexes, in the order of names. It reads several at a time, and each
// for five seconds at most: a slow shard of one index must not hide the other indexes.
func (s *Server) allStats(ctx context.Context, names []string) []indexStatus {
	const maxConcurrent = 16
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	var statuses []indexStatus
	for _, name := range names {
		if c, err := s.collections.Get(name); err == nil { // it may have been removed meanwhile
			statuses = append(statuses, indexStatus{Collection: c})
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxConcurrent)
	for i := range statuses {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			defer s.recoverAsError(func(fault error) { statuses[i].err = fault })
			statuses[i].stats, statuses[i].err = statuses[i].Stats(ctx)
		})
	}
	wg.Wait()
	return statuses
}

// answerHealth answers GET /health.
func (q *request) answerHealth(*noBody) (healthOut, error) {
	// The service.
	s := q.server
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	out := healthOut{
		Status:   "healthy",
		Version:  s.options.Version,
		Dir:      s.collections.Location(),
		Memory:   mem.Sys - mem.HeapReleased,
		Device:   s.device(),
		Indices:  []summaryOut{},
		Updates:  []waitingOut{},
		UptimeMS: time.Since(s.started).Milliseconds(),
	}
	if t, ok := s.collections.(collection.Trainer); ok {
		growth := t.Growth()
		out.Train = growth.MinTokens()
	}

	// Its indexes.
	for _, c := range s.allStats(q.ctx, q.readableIndexes()) {
		if c.err != nil {
			continue // damaged, as /readyz says, or out of reach now
		}
		name, st := c.Name(), c.stats
		if st.Queue.Requests > 0 {
			out.Updates = append(out.Updates, waitingOut{name, "running", st.Queue})
		}
		if st.Dim == 0 {
			continue
		}
		out.Loaded++
		summary := summaryOut{
			Name:         name,
			Documents:    int64(st.Documents),
			Passages:     int64(st.Passages),
			Embeddings:   st.Tokens,
			Partitions:   st.Centroids,
			Dimension:    st.Dim,
			Nbits:        st.Nbits,
			HasMetadata:  st.Metadata > 0,
			MaxDocuments: c.Config().MaxDocuments,
		}
		if st.Documents > 0 {
			summary.AverageLength = float64(st.Tokens) / float64(st.Documents)
		}
		out.Indices = append(out.Indices, summary)
	}

	// Its model.
	if e, _ := s.encoder(); e != nil {
		cfg := e.Config()
		out.Model = &modelOut{
			Name:           cmp.Or(cfg.Name, filepath.Base(cfg.Dir)),
			Path:           cfg.Dir,
			Precision:      cfg.Precision,
			Fingerprint:    cfg.Fingerprint,
			Dimension:      e.Dim(),
			QueryLength:    cfg.Query.Length,
			DocumentLength: cfg.Document.Length,
		}
	}
	return out, nil
}

// answerReady answers GET /readyz.
func (q *request) answerReady(*noBody) (readyOut, error) {
	if q.server.draining.Load() {
		return readyOut{}, problem(CodeBusy, "the service is ending").withRetryAfter(time.Second)
	}
	if _, missing := q.server.encoder(); missing != nil && missing.Code == CodeModelLoading {
		return readyOut{}, missing
	}
	if r, ok := q.server.collections.(collection.ReadinessReporter); ok {
		if err := r.Ready(); err != nil {
			return readyOut{}, problem(CodeBusy, "%w", err).withRetryAfter(time.Second)
		}
	}
	out := readyOut{Status: "ready"}
	if d, ok := q.server.collections.(collection.DiskReporter); ok {
		if full, _, _ := d.Disk(); full {
			out.Disk = "full"
		}
	}
	for _, name := range q.server.collections.Names() {
		if c, err := q.server.collections.Get(name); err == nil && c.Err() != nil {
			if out.Damaged == nil {
				out.Damaged = map[string]string{}
			}
			out.Damaged[name] = "damaged" // the log has the error: this route needs no token
		}
	}
	return out, nil
}

// recoverAsError, if deferred, turns a panic into an error, and calls setError with it. It is for goroutines
// that a request starts.
func (s *Server) recoverAsError(setError func(error)) {
	if fault := recover(); fault != nil {
		s.metrics.panics.Inc()
		s.log.Error("a panic", "panic", fault, "stack", string(debug.Stack()))
		setError(fmt.Errorf("%w: a panic: %v", storage.ErrInternal, fault))
	}
}
