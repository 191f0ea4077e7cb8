package server

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// slotGroup is a group of routes that share a limit of how many requests run at a time.
type slotGroup int

const (
	groupUnlimited slotGroup = iota // probes, which have no limit
	groupLookup                     // reads little
	groupSearch                     // computes
	groupWrite                      // waits for the writer of an index
	groupTransfer                   // sends or receives whole indexes
	groupAgents                     // messages of agents, whose tools make requests of the other groups
)

// route is one method of one path: how it is answered, who may call it, and how the description of the
// API describes it.
type route struct {
	method  string
	pattern string // "/indices/{name}"; {…} stands for one segment
	handle  func(q *request) error
	// checkEarly refuses requests before their bodies are read. It is nil if the route refuses none.
	checkEarly func(q *request) error

	permission   Permission
	onAllIndexes bool // the permission must be one on all indexes, since the answer is about them all
	group        slotGroup
	endless      bool // no time limit: it goes on as long as bytes flow

	// The body of the request.
	in             any      // its zero value, or nil if there is no JSON body
	inType         string   // its media type
	maxBody        int64    // bytes. 0 means the limit of all routes
	tensorNames    []string // of vectors that the body may have as tensors, or nil if JSON is the only form
	streamsVectors bool     // a body of tensors may have any size

	// The answer.
	out            any // zero value of the body
	outType        string
	answersTensors bool   // as tensors, if the client asks for them
	status         int    // of success
	representation any    // zero value of a change's answer where return=representation is preferred
	jsonRPC        bool   // 202 without a body is success, too, and problems are errors of JSON-RPC
	codes          []Code // of errors, in addition to those that any route can answer

	// The description.
	servesPage   bool // it belongs to the page, and is not described
	operationID  string
	tag          string // a group of routes
	summary, doc string
	params       []param
	example      string // of a body
}

// param is a parameter of the query string, or a header.
type param struct {
	name, in, doc string
	schema        map[string]any
}

// typedRoute returns a route that decodes its body, calls answer, and sends the result. The types of body and
// result are those of answer.
func typedRoute[In, Out any](r route, answer func(q *request, in *In) (Out, error)) route {
	r.in, r.out = *new(In), *new(Out)
	if _, ok := r.in.(noBody); ok {
		r.in = nil
	}
	if r.status == 0 {
		r.status = http.StatusOK
	}
	if r.in != nil {
		r.inType = mediaJSON
	}
	if v, ok := any(new(In)).(tensorReceiver); ok {
		r.tensorNames, r.streamsVectors = v.tensorNames()
	}
	r.outType = mediaJSON
	r.handle = func(q *request) error {
		in := new(In)
		if r.checkEarly != nil {
			if err := r.checkEarly(q); err != nil {
				return err
			}
		}
		if r.in != nil {
			if err := q.decodeBody(in); err != nil {
				return err
			}
		}
		out, err := answer(q, in)
		if err != nil {
			return err
		}
		if a, ok := any(out).(customAnswer); ok {
			return a.writeAnswer(q)
		}
		return q.answerJSON(r.status, out)
	}
	return r
}

// decodeBody reads the body into a pointer, and then waits for the slot of the request. Vectors that are
// streamed are left in the body.
func (q *request) decodeBody(into any) error {
	if v, ok := into.(tensorReceiver); ok && isTensors(q.Header.Get("Content-Type")) {
		return q.readTensors(v)
	}
	text, err := q.readBody()
	if err != nil {
		return err
	}
	if err := q.acquireSlot(); err != nil {
		return err
	}
	return q.decodeJSON(text, into)
}

// customAnswer is a result that writes itself: not all are JSON with the status of the route.
type customAnswer interface{ writeAnswer(q *request) error }

// noBody stands for the body of requests without one.
type noBody struct{}

const (
	mediaJSON            = "application/json"
	mediaBytes           = "application/octet-stream"
	mediaTar             = "application/x-tar"
	headerPrefer         = "Prefer"
	preferRepresentation = "return=representation"
)

// router finds the route of a request.
type router struct{ routes []parsedRoute }

// parsedRoute is a route with its pattern split at slashes.
type parsedRoute struct {
	*route
	segments []string
}

// newRouter returns a router, or an error if a route has no handler or is defined twice.
func newRouter(routes []route) (*router, error) {
	r := &router{}
	seen := map[string]bool{}
	for i := range routes {
		key := routes[i].method + " " + routes[i].pattern
		if seen[key] || routes[i].handle == nil {
			return nil, fmt.Errorf("route %s is defined twice, or has no handler", key)
		}
		seen[key] = true
		r.routes = append(r.routes, parsedRoute{&routes[i], strings.Split(routes[i].pattern, "/")})
	}
	return r, nil
}

// hasRoute reports whether there is a route with a method and a pattern.
func (rt *router) hasRoute(method, pattern string) bool {
	return slices.ContainsFunc(rt.routes, func(r parsedRoute) bool {
		return r.method == method && r.pattern == pattern
	})
}

// findRoute returns the route of a request and sets its path values. A path is matched as it was sent:
// %2F does not separate segments, and a path with empty names or dots for segments is refused, not
// cleaned.
func (rt *router) findRoute(r *http.Request) (*route, *Problem) {
	// Split the path before its escapes are decoded.
	segments := strings.Split(r.URL.EscapedPath(), "/")
	for i, segment := range segments {
		var err error
		if segments[i], err = url.PathUnescape(segment); err != nil {
			return nil, badRequest("the path has a bad escape: %q", segment)
		}
		if segments[i] == "." || segments[i] == ".." || strings.ContainsRune(segments[i], 0) {
			return nil, badRequest("the path has %q in it", segments[i])
		}
	}

	// Find the route. HEAD is answered by that of GET.
	var methods []string // that the path has
	for _, c := range rt.routes {
		if !pathMatches(c.segments, segments) {
			continue
		}
		if c.method != r.Method && (c.method != http.MethodGet || r.Method != http.MethodHead) {
			methods = append(methods, c.method)
			if c.method == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
			continue
		}
		for i, name := range c.segments {
			if strings.HasPrefix(name, "{") {
				if segments[i] == "" {
					return nil, badRequest("the path has an empty name")
				}
				r.SetPathValue(strings.Trim(name, "{}"), segments[i])
			}
		}
		return c.route, nil
	}

	// Tell an unknown path from a wrong method.
	if methods == nil {
		return nil, problem(CodeNoRoute, "no such route: %s", r.URL.Path)
	}
	p := problem(CodeMethod, "%s is not possible here", r.Method)
	slices.Sort(methods)
	p.allow = slices.Compact(methods)
	return nil, p
}

// pathMatches reports whether the segments of a path are those of a pattern.
func pathMatches(pattern, path []string) bool {
	if len(pattern) != len(path) {
		return false
	}
	for i, segment := range pattern {
		if !strings.HasPrefix(segment, "{") && segment != path[i] {
			return false
		}
	}
	return true
}

// request is a request on its way through a handler.
type request struct {
	*http.Request
	server  *Server
	w       http.ResponseWriter
	route   *route
	ctx     context.Context
	token   *Token // nil if the request needs none
	body    *requestBody
	release func() // releases the slot, or nil while the request has none

	began          time.Time
	stages         []stageTime // in the order in which they ended first
	answerBytes    int64       // counted by reserveAnswer
	truncation     cutOut      // of the texts that were encoded
	droppedByQuery map[int]int // tokens that were dropped of queries, by index; queries that fit have none

	memory *reservation // of the budget of answers; if a tool makes the request, that of the agent's request
	// agentCall is the agent's message that a tool makes the request for, or nil if a client sends the request.
	agentCall    *agentCall
	memoryBefore int64 // bytes of memory when the request began
}

// stageTime is the time that a stage of a request took.
type stageTime struct {
	name     string
	duration time.Duration
}

// addStageTime adds to the time of a stage, which a request may go through several times.
func (q *request) addStageTime(name string, d time.Duration) {
	for i := range q.stages {
		if q.stages[i].name == name {
			q.stages[i].duration += d
			return
		}
	}
	q.stages = append(q.stages, stageTime{name, d})
}

// serverTiming returns the header Server-Timing (W3C): the milliseconds of each stage, and the total
// since the request arrived.
func (q *request) serverTiming() string {
	var b strings.Builder
	for _, t := range append(q.stages, stageTime{"total", time.Since(q.began)}) {
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s;dur=%.3f", t.name, float64(t.duration)/float64(time.Millisecond))
	}
	return b.String()
}

// indexName returns the {name} of the path.
func (q *request) indexName() string { return q.PathValue("name") }

// prefers reports whether the client has sent a preference (RFC 7240).
func (q *request) prefers(preference string) bool {
	for _, line := range q.Header.Values(headerPrefer) {
		for p := range strings.SplitSeq(line, ",") {
			p, _, _ = strings.Cut(p, ";")
			if strings.EqualFold(strings.ReplaceAll(strings.TrimSpace(p), `"`, ""), preference) {
				return true
			}
		}
	}
	return false
}

// acquireSlot waits for a slot of the request's group, unless the request has one or needs none. A
// request that uses the headroom of a budget waits for no slot: the requests that have slots may wait for
// that headroom.
func (q *request) acquireSlot() error {
	gate := q.groupGate()
	if gate == nil || q.release != nil || q.usesHeadroom() {
		return nil
	}
	if p := gate.acquire(q.ctx); p != nil {
		return p
	}
	q.keepSlot(gate)
	return nil
}

// reacquireSlot waits for a slot in the middle of a request, without a limit on how many wait.
func (q *request) reacquireSlot(gate *gate) error {
	if q.usesHeadroom() {
		return nil
	}
	gate.waiting.Add(1)
	defer gate.waiting.Add(-1)
	select {
	case gate.slots <- struct{}{}:
	case <-q.ctx.Done():
		return q.ctx.Err()
	}
	q.keepSlot(gate)
	return nil
}

// usesHeadroom reports whether the request may use the headroom of a budget.
func (q *request) usesHeadroom() bool {
	return q.body.reservation.holdsHeadroom() || q.memory.holdsHeadroom()
}

// keepSlot sets how the slot that was acquired is released.
func (q *request) keepSlot(gate *gate) {
	began := time.Now()
	q.release = func() { gate.release(time.Since(began)) }
}

// releaseSlot releases the slot, if the request has one.
func (q *request) releaseSlot() {
	if q.release != nil {
		q.release()
		q.release = nil
	}
}

// groupGate returns the gate of the request's group, or nil if the group has no limit.
func (q *request) groupGate() *gate { return q.server.slots[q.route.group] }
