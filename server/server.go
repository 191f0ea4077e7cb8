// Package server answers HTTP for collections (package collection): the API of next-plaid,
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

// Encoder turns texts into token vectors; *encode.Encoder is one.
type Encoder interface {
	Dim() int
	Config() encode.Config
	Queries(ctx context.Context, texts []string) ([]encode.Embedding, error)
	DocumentsReport(ctx context.Context, texts iter.Seq2[encode.Text, error],
		r *encode.Report) iter.Seq2[vectors.Document, error]
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
	// IndexRates limit the requests of indexes; tokens have rates of their own.
	IndexRates []IndexRate
	// Origins that pages may come from which use the service (CORS); "*": all. None:
	// no CORS headers are sent.
	Origins []string
	// Hosts are the names that the service answers to, "*.example.org" for all below one, "*" for
	// all. Requests for other names are refused, except for localhost and addresses: a page could
	// otherwise point a name of its own at a service that only its reader can reach. No Hosts with
	// Tokens means all names, and without Tokens none.
	Hosts []string
	// TrustedProxies may say in X-Forwarded-For whom a request comes from.
	TrustedProxies []netip.Prefix
	// UploadDir is where uploads wait until they are checked; "": the folder for
	// temporary files of the system.
	UploadDir string
	// Images has a folder for each index, of its name, with the files that the metadata of
	// pages names as their pictures; nil: none are sent. It stays the caller's.
	Images *os.Root
	// Agents makes the handler that answers agents at /mcp (package mcp). It gets one whole message
	// at a time, and calls the service that it was given with the context of that request. The
	// limits of the service hold. nil means that there is no such route.
	Agents func(service http.Handler) http.Handler
	// Version of the program; "": that of its build.
	Version string
	// Device that searches, for /health and /metrics; "": the processor.
	Device string
	// Scorer scores plain vectors for /rerank and its relatives; nil: the processor.
	Scorer maxsim.Backend
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
	now          func() time.Time
}

// New makes a service of collections, such as those of a store.Store or a cluster. The
// encoder may be nil: routes that take texts then answer MODEL_NOT_LOADED. Both stay the
// caller's.
//
// Errors of collections are those of packages collection, search and condition, and what
// they are answered with is decided by their kind. One that is a [*Problem] is answered as
// it is.
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
	if o != nil {
		s.options = *o
	}
	s.options.Limits.setDefaults()
	if s.options.Tokens == nil && len(s.options.Hosts) == 0 {
		s.options.Hosts = []string{"localhost"} // and addresses
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
	s.bodyMemory = newBudget("bodies", s.options.Limits.Bodies, s.options.Limits.Decoded, s.options.Limits.Wait)
	s.answerMemory = newBudget("answers", s.options.Limits.Answers, answerCopies*min(s.options.Limits.Answer, unlimitedBytes/answerCopies), s.options.Limits.Wait)
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
	page, err := pageRoutes()
	if err != nil {
		return nil, err
	}
	routes := slices.Concat(healthRoutes(), indexRoutes(), documentRoutes(), lookupRoutes(), searchRoutes(), explainRoutes(), imageRoutes(),
		metadataRoutes(), facetRoutes(), idRoutes(), encodeRoutes(), rerankRoutes(), rerankAPIRoutes(), adminRoutes(), accessRoutes(),
		s.agentRoutes(), page)
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

// SetEncoder gives the service the encoder that it was made without; see
// [Options.EncoderLater].
func (s *Server) SetEncoder(e Encoder) { s.encoderPointer.Store(&e) }

// encoder is the one that there is now; nil if there is none, and a problem where one
// is needed.
func (s *Server) encoder() (Encoder, *Problem) {
	switch e := s.encoderPointer.Load(); {
	case e != nil:
		return *e, nil
	case s.options.EncoderLater:
		return nil, problem(CodeModelLoading, "the model is being loaded").withRetryAfter(time.Second)
	}
	return nil, problem(CodeModelNotLoaded, "the service was started without a model: send vectors, or start it with --model")
}

// Drain makes /readyz answer 503, so that no more requests are sent here. Everything
// else goes on.
func (s *Server) Drain() { s.draining.Store(true) }

var _ http.Handler = (*Server)(nil)
