package command

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/server"
)

// monitor is what a node shows over HTTP to those who watch it, from the moment on at which
// its process is there: /metrics, /livez and /readyz.
type monitor struct {
	figures *server.Registry
	mux     http.ServeMux

	mu    sync.Mutex
	node  *node.Node
	waits string // for what, as long as there is no node
}

func newMonitor(backend string) *monitor {
	m := &monitor{figures: server.NewRegistry(index.Version(), backend), waits: "the node is starting"}
	m.mux.Handle("GET /metrics", m.figures.Page())
	m.mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, health{Status: "alive"}) })
	m.mux.HandleFunc("GET /readyz", m.ready)
	return m
}

// health is the answer to questions for it.
type health struct {
	Status string   `json:"status"`
	Waits  []string `json:"waits,omitempty"` // for what
}

func answer(w http.ResponseWriter, status int, h health) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(h) // whoever asked may be gone
}

func (m *monitor) ready(w http.ResponseWriter, _ *http.Request) {
	m.mu.Lock()
	n, waits := m.node, []string{m.waits}
	m.mu.Unlock()
	if n != nil {
		waits = n.Waits()
	}
	if waits != nil {
		answer(w, http.StatusServiceUnavailable, health{"waiting", waits})
		return
	}
	answer(w, http.StatusOK, health{Status: "ready"})
}

// wait notes what the process waits for.
func (m *monitor) wait(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits = what
}

// show begins to show a node.
func (m *monitor) show(n *node.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.node = n
	m.figures.MustRegister(n)
}

// serve answers at an address until stop is called; "": nowhere.
func (m *monitor) serve(ctx context.Context, address string, log *slog.Logger, say func(string, ...any)) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Handler: &m.mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	var served sync.WaitGroup
	served.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics are not served any more", "error", err)
		}
	})
	say("metrics are at http://%s/metrics", l.Addr())
	return func() { _ = server.Close(); served.Wait() }, nil
}
