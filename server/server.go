// Package server answers HTTP for a folder of collections: the API of next-plaid,
// used by its clients as they are, and what goes beyond it. A [Server] is an
// http.Handler, to be put into any server; [Server.Serve] is one with time limits
// and an orderly end.
//
// docs/service.md describes each route with an example; GET /openapi.json is the
// same for programs. GET /ui is a page for people (package ui).
package server

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/server/store"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Encoder turns texts into token vectors; *encode.Encoder is one.
type Encoder interface {
	Dim() int
	Config() encode.Config
	Queries(ctx context.Context, texts []string) ([]encode.Embedding, error)
	Documents(ctx context.Context, texts iter.Seq2[encode.Text, error]) iter.Seq2[vectors.Document, error]
	Tokenize(r encode.Role, text string) ([]encode.Token, error)
}

// Maker is an Encoder that says what indexes are to know of it. Of others they know the
// folder, the fingerprint and the precision.
type Maker interface {
	Encoder
	Model() *storage.Model
}

// Options of a Server. The zero value, or nil, lets everybody do everything, which is
// for a service that only its own machine can reach.
type Options struct {
	// Tokens that requests must bring; nil: none is needed.
	Tokens TokenSource
	// Limits of what clients can make the service do.
	Limits Limits
	// Origins that pages may come from which use the service (CORS); "*": all. None:
	// no CORS headers are sent.
	Origins []string
	// TrustedProxies may say in X-Forwarded-For whom a request comes from.
	TrustedProxies []netip.Prefix
	// UploadDir is where uploads wait until they are checked; "": the folder for
	// temporary files of the system.
	UploadDir string
	// Version of the program; "": that of its build.
	Version string
	// Device that searches, for /health and /metrics; "": the processor.
	Device string
	// EncoderLater says that SetEncoder will be called: until then routes that take
	// texts answer MODEL_LOADING, and /readyz is not ready.
	EncoderLater bool
	// Logger hears of every request, and of faults; nil: nobody does.
	Logger *slog.Logger
	// Tracing makes a span of each request and of its stages; nil: none.
	Tracing trace.TracerProvider
}

// Server is the service as an http.Handler. It is safe for concurrent use.
type Server struct {
	indexes Indexes
	model   atomic.Pointer[Encoder]
	o       Options
	log     *slog.Logger
	tracer  trace.Tracer
	metrics *metrics

	routes   *router
	openapi  []byte
	gates    map[group]*gate
	rate     *rateLimit   // nil: none
	bodies   atomic.Int64 // bytes that are left of Limits.Bodies
	answers  atomic.Int64 // and of Limits.Answers
	draining atomic.Bool
	started  time.Time
}

// New makes a service of a store. The encoder may be nil: routes that take texts then
// answer MODEL_NOT_LOADED. Both stay the caller's.
func New(st *store.Store, e Encoder, o *Options) (*Server, error) {
	if st == nil {
		return nil, errors.New("server.New: no store is given")
	}
	return NewOver(Folder(st), e, o)
}

// NewOver makes a service of indexes, which stay the caller's too.
func NewOver(indexes Indexes, e Encoder, o *Options) (*Server, error) {
	s := &Server{indexes: indexes, started: time.Now()}
	if o != nil {
		s.o = *o
	}
	s.o.Limits.setDefaults()
	if s.o.Version == "" {
		s.o.Version = index.Version()
	}
	s.log = s.o.Logger
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.o.Tracing == nil {
		s.o.Tracing = noop.NewTracerProvider()
	}
	s.tracer = s.o.Tracing.Tracer("github.com/plaid-ir/plaid/server")
	s.bodies.Store(s.o.Limits.Bodies)
	s.answers.Store(s.o.Limits.Answers)
	s.gates = map[group]*gate{}
	for _, g := range []group{looking, searching, writing} {
		s.gates[g] = newGate(s.o.Limits.Concurrent)
	}
	if s.o.Limits.Rate > 0 {
		s.rate = newRateLimit(s.o.Limits.Rate, s.o.Limits.Burst)
	}
	routes := s.allRoutes()
	page, err := pageRoutes()
	if err != nil {
		return nil, err
	}
	routes = append(routes, page...)
	if s.routes, err = newRouter(routes); err != nil {
		return nil, err
	}
	if s.openapi, err = describe(routes, s.o.Version); err != nil {
		return nil, err
	}
	s.metrics = newMetrics(s)
	if e != nil {
		s.SetEncoder(e)
	}
	return s, nil
}

// SetEncoder gives the service the encoder that it was made without; see
// [Options.EncoderLater].
func (s *Server) SetEncoder(e Encoder) { s.model.Store(&e) }

// encoder is the one that there is now; nil if there is none, and a problem where one
// is needed.
func (s *Server) encoder() (Encoder, *Problem) {
	switch e := s.model.Load(); {
	case e != nil:
		return *e, nil
	case s.o.EncoderLater:
		return nil, problem(CodeModelLoading, "the model is being loaded").after(time.Second)
	}
	return nil, problem(CodeModelNotLoaded, "the service was started without a model: send vectors, or start it with --model")
}

// Drain makes /readyz answer 503, so that no more requests are sent here. Everything
// else goes on.
func (s *Server) Drain() { s.draining.Store(true) }

// allRoutes is the table of the API.
func (s *Server) allRoutes() []route {
	var all []route
	for _, some := range [][]route{
		healthRoutes(), indexRoutes(), documentRoutes(), lookupRoutes(), searchRoutes(), explainRoutes(), metadataRoutes(), encodeRoutes(), rerankRoutes(), adminRoutes(),
	} {
		all = append(all, some...)
	}
	return all
}

var _ http.Handler = (*Server)(nil)
