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

// slotGroup of routes that share a limit of how many run at a time.
type slotGroup int

const (
	groupUnlimited slotGroup = iota // not limited: probes
	groupLookup                     // takes little
	groupSearch                     // computes
	groupWrite                      // waits for the writer of an index
	groupTransfer                   // sends or receives whole indexes
	groupAgents                     // has tools make requests of the other groups
)

// route is one method of one path: what answers it, who may call it, and what the
// description of the API says of it.
type route struct {
	method, pattern  string // "/indices/{name}"; {…} stands for one part
	operationID, tag string // operationId, and the group in the description
	summary, doc     string
	permission       Permission
	group            slotGroup
	onAllIndexes     bool // tells of all indexes: the permission must be one on all
	servesPage       bool // of the page: not part of the API, and not described
	endless          bool // no limit of time, since it goes on as long as bytes flow
	params           []param
	in, out          any // zero values of the bodies; nil: none
	inType, outType  string
	maxBody          int64                  // bytes of the body; 0: as many as any route takes
	tensorNames      []string               // with vectors, that the body may have instead of JSON; nil means that it may not
	streamsVectors   bool                   // the body may have any size, if it is of tensors
	answersTensors   bool                   // the answer is of tensors where the client asks for them
	status           int                    // of success
	jsonRPC          bool                   // of JSON-RPC: 202, without a body, is success too, and problems are its errors
	representation   any                    // zero value of what a change answers where return=representation is preferred
	codes            []Code                 // beside those that any route can answer
	example          string                 // a body that the route takes
	checkEarly       func(q *request) error // refuses what can be refused before the body is read; nil: nothing
	handle           func(q *request) error
}

// param is one of the query, or a header.
type param struct {
	name, in, doc string
	schema        map[string]any
}

// typedRoute makes a route of a function from one body to another.
func typedRoute[In, Out any](r route, do func(q *request, in *In) (Out, error)) route {
	r.in, r.out = *new(In), *new(Out)
	if _, none := r.in.(noBody); none {
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
		out, err := do(q, in)
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

// decodeBody reads the body, and waits for the turn of the request; of a body in pieces the rest is left.
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

// customAnswer is a result that is not answered as JSON with the status of the route.
type customAnswer interface{ writeAnswer(q *request) error }

// noBody is the body of requests without one.
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

type parsedRoute struct {
	*route
	segments []string
}

func newRouter(routes []route) (*router, error) {
	r := &router{}
	seen := map[string]bool{}
	for i := range routes {
		key := routes[i].method + " " + routes[i].pattern
		if seen[key] || routes[i].handle == nil {
			return nil, fmt.Errorf("route %s is there twice, or does nothing", key)
		}
		seen[key] = true
		r.routes = append(r.routes, parsedRoute{&routes[i], strings.Split(routes[i].pattern, "/")})
	}
	return r, nil
}

// hasRoute tells whether there is a route.
func (rt *router) hasRoute(method, pattern string) bool {
	return slices.ContainsFunc(rt.routes, func(r parsedRoute) bool { return r.method == method && r.pattern == pattern })
}

// findRoute returns the route of a request and sets its path values. A path is matched as
// it was sent: %2F is no slash, and what has empty parts or dots for parts is refused
// rather than cleaned.
func (rt *router) findRoute(r *http.Request) (*route, *Problem) {
	parts := strings.Split(r.URL.EscapedPath(), "/")
	for i, part := range parts {
		var err error
		if parts[i], err = url.PathUnescape(part); err != nil {
			return nil, badRequest("the path has a bad escape: %q", part)
		}
		if parts[i] == "." || parts[i] == ".." || strings.ContainsRune(parts[i], 0) {
			return nil, badRequest("the path has %q in it", parts[i])
		}
	}
	var methods []string
	for _, c := range rt.routes {
		if !pathMatches(c.segments, parts) {
			continue
		}
		if c.method != r.Method && (c.method != http.MethodGet || r.Method != http.MethodHead) {
			methods = append(methods, c.method)
			if c.method == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
			continue
		}
		for i, part := range c.segments {
			if strings.HasPrefix(part, "{") {
				if parts[i] == "" {
					return nil, badRequest("the path has an empty name")
				}
				r.SetPathValue(strings.Trim(part, "{}"), parts[i])
			}
		}
		return c.route, nil
	}
	if methods == nil {
		return nil, problem(CodeNoRoute, "no such route: %s", r.URL.Path)
	}
	p := problem(CodeMethod, "%s is not possible here", r.Method)
	slices.Sort(methods)
	p.allow = slices.Compact(methods)
	return nil, p
}

func pathMatches(pattern, parts []string) bool {
	if len(pattern) != len(parts) {
		return false
	}
	for i, p := range pattern {
		if !strings.HasPrefix(p, "{") && p != parts[i] {
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
	token   *Token // nil: none is needed
	body    *requestBody
	release func() // gives the turn back; nil: it has none

	began          time.Time
	stages         []stageTime  // by stages, in the order of their ends
	answerBytes    int64        // bytes, see spend
	truncation     cutOut       // texts that were encoded and are longer than the model reads
	droppedByQuery map[int]int  // of these the queries, by their places: tokens that were dropped
	memory         *reservation // of the budget of all answers; for a tool, that of the agent's request
	agentCall      *agentCall   // that a tool makes the request for; nil: none does
	memoryBefore   int64        // that memory had taken when the request came
}

// stageTime is how long a stage of a request took.
type stageTime struct {
	name     string
	duration time.Duration
}

// addStageTime adds to the time of a stage, of which a request may have many.
func (q *request) addStageTime(name string, d time.Duration) {
	for i := range q.stages {
		if q.stages[i].name == name {
			q.stages[i].duration += d
			return
		}
	}
	q.stages = append(q.stages, stageTime{name, d})
}

// serverTiming is the value of Server-Timing (W3C): milliseconds of the stages, and of all since
// the request has come.
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

// indexName is the {name} of the path.
func (q *request) indexName() string { return q.PathValue("name") }

// prefers tells whether a preference (RFC 7240) was sent.
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

// acquireSlot waits for the turn of the request in its group.
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

// reacquireSlot waits for a turn in the middle of a request, however many others wait.
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

// usesHeadroom tells whether the request has what is kept back of a budget. Those that have a turn
// may wait for that, so that it waits for none of theirs.
func (q *request) usesHeadroom() bool {
	return q.body.reservation.holdsHeadroom() || q.memory.holdsHeadroom()
}

func (q *request) keepSlot(gate *gate) {
	began := time.Now()
	q.release = func() { gate.release(time.Since(began)) }
}

// releaseSlot gives the turn back, if the request has one.
func (q *request) releaseSlot() {
	if q.release != nil {
		q.release()
		q.release = nil
	}
}

// groupGate is that of the group; nil: there is none.
func (q *request) groupGate() *gate { return q.server.slots[q.route.group] }
