// Package server answers HTTP for collections (package collection), with the API of next-plaid, whose
// clients work without changes, and further routes. A [Server] is an http.Handler for any HTTP server;
// [Server.Serve] runs one with time limits and an orderly end.
//
// docs/service.md describes each route with an example; GET /openapi.json is the
// same for programs. GET /ui is a page for people (package ui).
package server

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Encoder turns texts into token vectors, as *encode.Encoder does.
type Encoder interface {
	Dim() int
	Config() encode.Config
	Queries(ctx context.Context, texts []string) ([]encode.Embedding, error)
	DocumentsReport(ctx context.Context, texts iter.Seq2[encode.Text, error],
		r *encode.Report) iter.Seq2[vectors.Document, error]
	Tokenize(r encode.Role, text string) ([]encode.Token, error)
}

// ModelEncoder is an Encoder that says how indexes shall record it. For other encoders they record the folder,
// the fingerprint and the precision.
type ModelEncoder interface {
	Encoder
	Model() *storage.Model
}

// Options configure a Server. The zero value, or nil, lets everybody do everything, which is
// for a service that only its own machine can reach.
type Options struct {
	// Tokens are the bearer tokens. Requests must have one of them, unless Tokens is nil.
	Tokens TokenSource
	// Limits bound how much clients can make the service do.
	Limits Limits
	// IndexRates limit the requests of indexes; tokens have rates of their own.
	IndexRates []IndexRate
	// Origins are those of web pages that may use the service (CORS); "*" means all. Without Origins no
	// CORS headers are sent.
	Origins []string
	// Hosts are the names that the service answers to, "*.example.org" for all below one, "*" for
	// all. Requests for other names are refused, except for localhost and addresses: a page could
	// otherwise point a name of its own at a service that only its reader can reach. No Hosts with
	// Tokens means all names, and without Tokens none.
	Hosts []string
	// TrustedProxies may name the client of a request in X-Forwarded-For.
	TrustedProxies []netip.Prefix
	// UploadDir is the folder for uploads until they are checked. "" means the system's folder for
	// temporary files.
	UploadDir string
	// Images has a folder for each index, of its name, with the files that the metadata of pages names
	// as their pictures. If it is nil, none are sent. The caller closes it.
	Images *os.Root
	// Agents makes the handler that answers agents at /mcp (package mcp). It gets one whole message
	// at a time, and calls the service that it was given with the context of that request. The
	// limits of the service hold. If Agents is nil, the service has no route for agents.
	Agents func(service http.Handler) http.Handler
	// Version is that of the program. "" means the version of its build.
	Version string
	// Device names the device that searches, for /health and /metrics. "" means the processor.
	Device string
	// Scorer scores plain vectors for /rerank and its relatives. A nil Scorer means the processor.
	Scorer maxsim.Backend
	// EncoderLater promises a call of SetEncoder: until then routes that take texts answer
	// MODEL_LOADING, and /readyz is not ready.
	EncoderLater bool
	// Logger logs every request, and faults. A nil Logger means no log.
	Logger *slog.Logger
	// Tracing makes a span of each request and of its stages. If it is nil, nothing is traced.
	Tracing trace.TracerProvider
}

// Server is the service as an http.Handler. It is safe for concurrent use.
type Server struct {
	collections    collection.Catalog
	encoderPointer atomic.Pointer[Encoder]
	options        Options
	log            *slog.Logger
	tracer         trace.Tracer
	metrics        *metrics

	router       *router
	openapi      []byte
	slots        map[slotGroup]*gate
	rates        *rateLimiter
	creating     creatingIndexes
	bodyMemory   *budget
	answerMemory *budget
	spareBatches chan *vectorBatch
	draining     atomic.Bool
	started      time.Time
	now          func() time.Time // time.Now, except in tests
}

// New returns a service for collections, such as those of a store.Store or a cluster. The encoder may be
// nil: routes that take texts then answer MODEL_NOT_LOADED. The caller closes both.
//
// Errors of collections are answered by their [errkind.Of]; one that is a [*Problem] is answered
// as it is.
func New(collections collection.Catalog, e Encoder, o *Options) (*Server, error) {
	if collections == nil {
		return nil, errors.New("server.New: no collections are given")
	}
	s := &Server{
		collections:  collections,
		started:      time.Now(),
		now:          time.Now,
		spareBatches: make(chan *vectorBatch, maxSpareBatches),
	}

	// Options and their defaults.
	if o != nil {
		s.options = *o
	}
	s.options.Limits.setDefaults()
	if s.options.Tokens == nil && len(s.options.Hosts) == 0 {
		s.options.Hosts = []string{"localhost"} // addresses are always allowed
	}
	if s.options.Version == "" {
		s.options.Version = index.Version()
	}
	s.log = s.options.Logger
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.options.Tracing == nil {
		s.options.Tracing = noop.NewTracerProvider()
	}
	s.tracer = s.options.Tracing.Tracer("github.com/plaid-ir/plaid/server")

	// Limits of all requests together.
	s.bodyMemory = newBudget("bodies", s.options.Limits.Bodies, s.options.Limits.Decoded, s.options.Limits.Wait)
	largestAnswer := answerCopies * min(s.options.Limits.Answer, unlimitedBytes/answerCopies)
	s.answerMemory = newBudget("answers", s.options.Limits.Answers, largestAnswer, s.options.Limits.Wait)
	s.slots = map[slotGroup]*gate{}
	for _, g := range []slotGroup{groupLookup, groupSearch, groupWrite, groupTransfer, groupAgents} {
		s.slots[g] = newGate(s.options.Limits.Concurrent, s.options.Limits.Wait)
	}
	s.rates = newRateLimiter()
	for _, r := range s.options.IndexRates {
		if err := checkPattern(r.Pattern); err != nil {
			return nil, fmt.Errorf("server.New: a rate: %w", err)
		}
	}
	s.creating.requests = map[string]int{}

	// Routes, their description, and the metrics.
	page, err := pageRoutes()
	if err != nil {
		return nil, err
	}
	routes := slices.Concat(
		healthRoutes(), indexRoutes(), documentRoutes(), lookupRoutes(), searchRoutes(), explainRoutes(),
		imageRoutes(), metadataRoutes(), facetRoutes(), idRoutes(), encodeRoutes(), rerankRoutes(),
		rerankAPIRoutes(), adminRoutes(), accessRoutes(), s.agentRoutes(), page,
	)
	if s.router, err = newRouter(routes); err != nil {
		return nil, err
	}
	if s.openapi, err = describeAPI(routes, s.options.Version); err != nil {
		return nil, err
	}
	s.metrics = newMetrics(s)
	if e != nil {
		s.SetEncoder(e)
	}
	return s, nil
}

// SetEncoder sets the encoder of a service that was made without one; see [Options.EncoderLater].
func (s *Server) SetEncoder(e Encoder) { s.encoderPointer.Store(&e) }

// encoder returns the encoder or, if it is not set yet, nil and the answer to requests that need it.
func (s *Server) encoder() (Encoder, *Problem) {
	switch e := s.encoderPointer.Load(); {
	case e != nil:
		return *e, nil
	case s.options.EncoderLater:
		return nil, problem(CodeModelLoading, "the model is being loaded").withRetryAfter(time.Second)
	}
	return nil, problem(CodeModelNotLoaded, "the service was started without a model: send vectors, or start it "+
		"with --model")
}

// Drain makes /readyz answer 503, so that no more requests are sent here. All other routes go on.
func (s *Server) Drain() { s.draining.Store(true) }

var _ http.Handler = (*Server)(nil)
