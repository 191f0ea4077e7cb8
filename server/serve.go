package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

const headerRequestID = "X-Request-ID"

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Set up the request: its id, its route, and its memory.
	began := time.Now()
	id := requestID(r)
	w.Header().Set(headerRequestID, id)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	rec := &responseRecorder{ResponseWriter: w, control: http.NewResponseController(w), pace: s.newPace()}
	rec.extendDeadline()
	route, refused := s.router.findRoute(r)
	ctx, span := s.startSpan(r, route)
	defer span.End()
	memory := s.answerMemory.newReservation()
	q := &request{
		Request:   r,
		server:    s,
		w:         rec,
		route:     route,
		ctx:       ctx,
		began:     began,
		memory:    &memory,
		agentCall: agentCallFrom(ctx),
	}
	if q.agentCall != nil {
		q.agentCall.mu.Lock()
		defer q.agentCall.mu.Unlock()
		agent := q.agentCall.request
		q.memory, q.memoryBefore, r.RemoteAddr = agent.memory, agent.memory.bytes, agent.RemoteAddr
	}
	q.body = &requestBody{
		ReadCloser:  r.Body,
		request:     q,
		control:     rec.control,
		reservation: s.bodyMemory.newReservation(),
		pace:        s.newPace(),
	}
	r.Body = q.body
	defer q.body.reservation.releaseAll()

	// However it ends, count and log it.
	done := s.metrics.startRequest()
	defer func() {
		panicked := false
		if fault := recover(); fault != nil {
			if fault == http.ErrAbortHandler { //nolint:errorlint // by net/http's contract it is this very value
				panic(fault)
			}
			panicked = true
			s.metrics.panics.Inc()
			s.log.LogAttrs(ctx, slog.LevelError, "a panic", slog.String("request_id", id),
				slog.Any("panic", fault), slog.String("stack", string(debug.Stack())))
			q.answerProblem(problem(CodeInternal,
				"internal error: the log of the service has it under this request id"))
		}
		done(route, r.Method, rec.status(), time.Since(began))
		s.logRequest(q, rec, id, panicked)
		span.SetAttributes(attribute.Int("http.response.status_code", rec.status()))
		if rec.status() >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, http.StatusText(rec.status()))
		}
		if rec.aborted {
			panic(http.ErrAbortHandler)
		}
	}()

	// Refuse the request, for reasons that come before permissions, or answer it.
	if q.agentCall != nil && q.agentCall.ended {
		q.answerProblem(problem(CodeTimeout, "the agent's request has ended"))
		return
	}
	if !s.hostAllowed(r.Host) {
		q.answerProblem(problem(CodeForbidden,
			"the service does not answer to the name %.100q: start it with that name in --hosts, or with tokens",
			r.Host))
		return
	}
	if s.handleCORS(q) {
		return
	}
	if refused != nil {
		if p := s.limitRate(q, nil); p != nil {
			refused = p
		}
		q.answerProblem(refused)
		return
	}
	if err := s.handleRequest(q); err != nil {
		q.answerProblem(problemFromError(q.ctx, q.replaceClosedError(err)))
	}
}

// replaceClosedError returns ErrUnknown in place of an error about a closed index, if the index was
// removed while the request read it; other errors it returns as they are.
func (q *request) replaceClosedError(err error) error {
	if errors.Is(err, storage.ErrClosed) || errors.Is(err, search.ErrClosed) {
		if _, unknown := q.collection(); errors.Is(unknown, collection.ErrUnknown) {
			return unknown
		}
	}
	return err
}

// handleRequest checks the token, the rates and the body of a request, and calls the handler of its route.
func (s *Server) handleRequest(q *request) error {
	// Token and rates. A request with a wrong token counts, too, so that tokens cannot be guessed fast.
	token, p := authorize(s.options.Tokens, q.Header.Get("Authorization"), q.route, q.indexName())
	q.token = token
	if q.route.group != groupUnlimited {
		if p := s.limitRate(q, token); p != nil {
			return p
		}
	}
	if p == nil {
		p = q.limitIndexRate()
	}
	if p == nil {
		p = q.checkOrigin()
	}
	if p != nil {
		return p
	}

	// The time limit, and the body.
	limit := s.options.Limits.Work
	if q.route.group == groupLookup || q.route.group == groupUnlimited {
		limit = s.options.Limits.Quick
	}
	deadline := time.Time{}
	if !q.route.endless {
		ctx, cancel := context.WithTimeout(q.ctx, limit)
		defer cancel()
		q.ctx, deadline = ctx, time.Now().Add(limit)
	}
	if p := s.openBody(q, deadline); p != nil {
		return p
	}
	if q.route.in == nil && q.route.inType == "" && q.ContentLength != 0 {
		// net/http notices that a client has left only after the end of the body was read.
		if _, err := io.Copy(io.Discard, q.body); err != nil {
			return bodyError(err)
		}
	}

	// The slot, and the handler.
	defer func() {
		q.settleAnswerMemory()
		q.releaseSlot()
	}()
	if q.route.in == nil { // the other routes acquire their slot after they have read the body
		if err := q.acquireSlot(); err != nil {
			return err
		}
	}
	return q.route.handle(q)
}

// limitRate counts a request for the rate of its token, or else of its address.
func (s *Server) limitRate(q *request, token *Token) *Problem {
	perSecond, burst, setting := s.options.Limits.Rate, s.options.Limits.Burst, "rate"
	name := clientAddress(q.Request, s.options.TrustedProxies)
	if token != nil {
		name = "token " + token.Name
		if token.Rate > 0 {
			perSecond, burst, setting = token.Rate, burstForRate(token.Rate), "rate of the token"
		}
	}
	if perSecond <= 0 {
		return nil
	}
	return s.rates.countRequest(name, perSecond, burst, setting)
}

// hostAllowed reports whether the header Host has one of the service's names; see [Options.Hosts].
func (s *Server) hostAllowed(host string) bool {
	if len(s.options.Hosts) == 0 {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || host == "localhost" {
		return true
	}
	return slices.ContainsFunc(s.options.Hosts, func(name string) bool {
		name = strings.ToLower(name)
		if suffix, ok := strings.CutPrefix(name, "*"); ok {
			return strings.HasSuffix(host, suffix)
		}
		return host == name
	})
}

// checkOrigin refuses a request with a body, or a change, that a browser sends for a page of another
// site, unless pages of that origin may use the service.
func (q *request) checkOrigin() *Problem {
	if q.server.originAllowed(q.Header.Get("Origin")) {
		return nil
	}
	if err := http.NewCrossOriginProtection().Check(q.Request); err != nil {
		return problem(CodeForbidden,
			"the request is from a page of another site, %.100q, which is not in cors-origins",
			q.Header.Get("Origin"))
	}
	return nil
}

// originAllowed reports whether pages of an origin may use the service (CORS).
func (s *Server) originAllowed(origin string) bool {
	return origin != "" && (slices.Contains(s.options.Origins, "*") || slices.Contains(s.options.Origins, origin))
}

// maxUnwantedBody is how many bytes of a body are read and ignored on a route that takes none.
const maxUnwantedBody = 64 << 10

// openBody checks the length and the media type of the body, and limits how it is read.
func (s *Server) openBody(q *request, deadline time.Time) *Problem {
	b, maxSize, setting := q.body, s.options.Limits.Body, " (max-body)"
	b.deadline = deadline
	contentType := q.Header.Get("Content-Type")

	// Its length.
	tensors := q.route.tensorNames != nil && isTensors(contentType)
	if q.route.endless && q.route.inType != mediaJSON || q.route.streamsVectors && tensors {
		maxSize = unlimitedBytes
	}
	if limit := q.route.maxBody; limit > 0 && limit < maxSize {
		maxSize, setting = limit, ""
	}
	if q.ContentLength > maxSize {
		return problem(CodeTooLarge, "the body has %d bytes; the limit is %d%s", q.ContentLength, maxSize, setting)
	}
	if q.route.in == nil && q.route.inType == "" {
		b.ReadCloser = http.MaxBytesReader(q.w, b.ReadCloser, min(maxSize, maxUnwantedBody))
		return nil
	}
	b.ReadCloser = http.MaxBytesReader(q.w, b.ReadCloser, maxSize)

	// Its media type.
	if q.ContentLength == 0 && (contentType == "" || q.route.in != nil && !tensors) {
		if q.route.example != "" {
			return badRequest("there is no body; want JSON such as %s", q.route.example)
		}
		return badRequest("there is no body; want %s", q.route.inType)
	}
	media, _, err := mime.ParseMediaType(contentType)
	isJSONType := q.route.inType == mediaJSON && strings.HasSuffix(media, "+json")
	if err != nil || !(tensors || media == q.route.inType || isJSONType) {
		want := q.route.inType
		if q.route.tensorNames != nil {
			want += ", or " + mediaTensors
		}
		return problem(CodeMediaType, "Content-Type is %q; want %s", contentType, want)
	}
	return q.decodeContent(maxSize)
}

// loggedCodes are those of problems that the operator has to look into.
var loggedCodes = []Code{CodeInternal, CodeModel, CodeDiskFull, CodeCorrupt, CodeOutcomeUnknown}

// answerProblem answers with a problem, unless an answer has begun: then it breaks the connection.
func (q *request) answerProblem(p *Problem) {
	rec := q.w.(*responseRecorder)
	id := slog.String("request_id", q.w.Header().Get(headerRequestID))
	rec.clientLeft = p.Code == CodeOutcomeUnknown && errors.Is(p.err, context.Canceled) && q.Context().Err() != nil
	if rec.clientLeft {
		q.server.log.LogAttrs(q.ctx, slog.LevelInfo, "the client has left during its change, which was made or was not",
			id, slog.Any("error", p.err))
	} else if slices.Contains(loggedCodes, p.Code) {
		q.server.log.LogAttrs(q.ctx, slog.LevelError, "a request failed", id, slog.String("code", string(p.Code)),
			slog.Any("error", errors.Join(p.err)), slog.String("message", p.Message))
	}
	if rec.statusCode != 0 {
		rec.aborted = true // only a broken connection tells the client that the answer is not complete
		return
	}
	if p.allow != nil {
		q.w.Header().Set("Allow", strings.Join(p.allow, ", "))
	}
	if p.Code == CodeUnauthorized {
		q.w.Header().Set("WWW-Authenticate", `Bearer realm="plaid"`)
	}
	q.body.stopReading(q.w.Header())
	rec.problemCode = p.Code
	writeProblem(rec, p, q.route != nil && q.route.jsonRPC)
}

// handleCORS sets the headers of CORS, if the origin of the request is allowed, and answers a preflight.
// It reports whether it has answered.
func (s *Server) handleCORS(q *request) (answered bool) {
	origin := q.Header.Get("Origin")
	if origin == "" || len(s.options.Origins) == 0 {
		return false
	}
	h := q.w.Header()
	h.Add("Vary", "Origin")
	if !s.originAllowed(origin) {
		return false
	}
	if slices.Contains(s.options.Origins, "*") {
		origin = "*"
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "X-Request-ID, Retry-After")
	if q.Method != http.MethodOptions || q.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Encoding, Content-Type, Mcp-Method, Mcp-Name, "+
		"Mcp-Protocol-Version, Prefer, Traceparent, X-Embeddings-Format, X-Request-ID")
	h.Set("Access-Control-Max-Age", "3600")
	q.body.stopReading(h)
	h.Set("Content-Length", "0")
	q.w.WriteHeader(http.StatusOK)
	return true
}

// requestID returns the id that the client has sent with the request, if it is short and printable, or
// else a new random UUID.
func requestID(r *http.Request) string {
	id := r.Header.Get(headerRequestID)
	valid := len(id) > 0 && len(id) <= 128
	for i := 0; valid && i < len(id); i++ {
		valid = id[i] > ' ' && id[i] < 0x7f
	}
	if valid {
		return id
	}
	var b [16]byte
	_, _ = rand.Read(b[:])                      // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // version 4, and the variant of RFC 9562
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// propagator reads the trace that a request belongs to from its headers (W3C Trace Context).
var propagator = propagation.TraceContext{}

// startSpan starts the span of a request. route may be nil.
func (s *Server) startSpan(r *http.Request, route *route) (context.Context, trace.Span) {
	ctx := propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	name := r.Method
	attrs := []attribute.KeyValue{attribute.String("http.request.method", r.Method),
		attribute.String("url.path", r.URL.Path)}
	if route != nil {
		name += " " + route.pattern
		attrs = append(attrs, attribute.String("http.route", route.pattern))
	}
	return s.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attrs...))
}

// startStage starts a stage of a request, for tracing and for the header Server-Timing. end ends it.
func (q *request) startStage(name string) (_ context.Context, end func(error)) {
	ctx, span := q.server.tracer.Start(q.ctx, name)
	began := time.Now()
	return ctx, func(err error) {
		q.addStageTime(name, time.Since(began))
		if err != nil {
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// logRequest writes the log line of a request: as an error if the service is at fault, and as debugging
// if the request is a probe.
func (s *Server) logRequest(q *request, rec *responseRecorder, id string, panicked bool) {
	level := slog.LevelInfo
	status := rec.status()
	faulty := status >= http.StatusInternalServerError && status != http.StatusServiceUnavailable && !rec.clientLeft
	switch {
	case faulty || panicked:
		level = slog.LevelError
	case q.route != nil && q.route.group == groupUnlimited:
		level = slog.LevelDebug
	}
	if !s.log.Enabled(q.ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("request_id", id), slog.String("method", q.Method), slog.String("path", q.URL.Path),
		slog.Int("status", status),
		slog.Duration("took", time.Since(q.began)), slog.Int64("bytes", rec.bytes),
		slog.String("client", clientAddress(q.Request, s.options.TrustedProxies)),
	}
	if q.token != nil {
		attrs = append(attrs, slog.String("token", q.token.Name))
	}
	if rec.problemCode != "" {
		attrs = append(attrs, slog.String("code", string(rec.problemCode)))
	}
	if span := trace.SpanContextFromContext(q.ctx); span.HasTraceID() {
		attrs = append(attrs, slog.String("trace_id", span.TraceID().String()))
	}
	s.log.LogAttrs(q.ctx, level, "request", attrs...)
}
