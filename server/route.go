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

// group of routes that share a limit of how many run at a time.
type group int

const (
	free         group = iota // not limited: probes
	looking                   // takes little
	searching                 // computes
	writing                   // waits for the writer of an index
	transferring              // sends or receives whole indexes
	asking                    // has tools make requests of the other groups
)

// route is one method of one path: what answers it, who may call it, and what the
// description of the API says of it.
type route struct {
	method, pattern string // "/indices/{name}"; {…} stands for one part
	id, tag         string // operationId, and the group in the description
	summary, doc    string
	need            Permission
	group           group
	everywhere      bool // tells of all indexes: the permission must be one on all
	page            bool // of the page: not part of the API, and not described
	stream          bool // no limit of time, since it goes on as long as bytes flow
	params          []param
	in, out         any // zero values of the bodies; nil: none
	inType, outType string
	most            int64                  // bytes of the body; 0: as many as any route takes
	tensors         []string               // with vectors, that the body may have instead of JSON; nil means that it may not
	pieces          bool                   // the body may have any size, if it is of tensors
	tensorsOut      bool                   // the answer is of tensors where the client asks for them
	status          int                    // of success
	messages        bool                   // of JSON-RPC: 202, without a body, is success too, and problems are its errors
	whole           any                    // zero value of what a change answers where return=representation is preferred
	fails           []Code                 // beside those that any route can answer
	example         string                 // a body that the route takes
	early           func(q *request) error // refuses what can be refused before the body is read; nil: nothing
	do              func(q *request) error
}

// param is one of the query, or a header.
type param struct {
	name, in, doc string
	schema        map[string]any
}

// typed makes a route of a function from one body to another.
func typed[In, Out any](r route, do func(q *request, in *In) (Out, error)) route {
	r.in, r.out = *new(In), *new(Out)
	if _, none := r.in.(nothing); none {
		r.in = nil
	}
	if r.status == 0 {
		r.status = http.StatusOK
	}
	if r.in != nil {
		r.inType = mediaJSON
	}
	if v, ok := any(new(In)).(tensorTaker); ok {
		r.tensors, r.pieces = v.tensors()
	}
	r.outType = mediaJSON
	r.do = func(q *request) error {
		in := new(In)
		if r.early != nil {
			if err := r.early(q); err != nil {
				return err
			}
		}
		if r.in != nil {
			if err := q.read(in); err != nil {
				return err
			}
		}
		out, err := do(q, in)
		if err != nil {
			return err
		}
		if a, ok := any(out).(answerer); ok {
			return a.answerTo(q)
		}
		return q.answer(r.status, out)
	}
	return r
}

// read reads the body, and waits for the turn of the request; of a body in pieces the rest is left.
func (q *request) read(into any) error {
	if v, ok := into.(tensorTaker); ok && isTensors(q.Header.Get("Content-Type")) {
		return q.readTensors(v)
	}
	text, err := q.text()
	if err != nil {
		return err
	}
	if err := q.enter(); err != nil {
		return err
	}
	return q.decodeJSON(text, into)
}

// answerer is a result that is not answered as JSON with the status of the route.
type answerer interface{ answerTo(q *request) error }

// nothing is the body of requests without one.
type nothing struct{}

const (
	mediaJSON   = "application/json"
	mediaBytes  = "application/octet-stream"
	mediaTar    = "application/x-tar"
	headerPref  = "Prefer"
	preferWhole = "return=representation"
)

// router finds the route of a request.
type router struct{ routes []parsedRoute }

type parsedRoute struct {
	*route
	parts []string
}

func newRouter(routes []route) (*router, error) {
	r := &router{}
	seen := map[string]bool{}
	for i := range routes {
		key := routes[i].method + " " + routes[i].pattern
		if seen[key] || routes[i].do == nil {
			return nil, fmt.Errorf("route %s is there twice, or does nothing", key)
		}
		seen[key] = true
		r.routes = append(r.routes, parsedRoute{&routes[i], strings.Split(routes[i].pattern, "/")})
	}
	return r, nil
}

// has tells whether there is a route.
func (rt *router) has(method, pattern string) bool {
	return slices.ContainsFunc(rt.routes, func(r parsedRoute) bool { return r.method == method && r.pattern == pattern })
}

// find returns the route of a request and sets its path values. A path is matched as
// it was sent: %2F is no slash, and what has empty parts or dots for parts is refused
// rather than cleaned.
func (rt *router) find(r *http.Request) (*route, *Problem) {
	parts := strings.Split(r.URL.EscapedPath(), "/")
	for i, part := range parts {
		var err error
		if parts[i], err = url.PathUnescape(part); err != nil {
			return nil, bad("the path has a bad escape: %q", part)
		}
		if parts[i] == "." || parts[i] == ".." || strings.ContainsRune(parts[i], 0) {
			return nil, bad("the path has %q in it", parts[i])
		}
	}
	var methods []string
	for _, c := range rt.routes {
		if !matches(c.parts, parts) {
			continue
		}
		if c.method != r.Method && (c.method != http.MethodGet || r.Method != http.MethodHead) {
			methods = append(methods, c.method)
			if c.method == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
			continue
		}
		for i, part := range c.parts {
			if strings.HasPrefix(part, "{") {
				if parts[i] == "" {
					return nil, bad("the path has an empty name")
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

func matches(pattern, parts []string) bool {
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
	s     *Server
	w     http.ResponseWriter
	route *route
	ctx   context.Context
	token *Token // nil: none is needed
	body  *body
	leave func() // gives the turn back; nil: it has none

	began    time.Time
	took     []stageTime // by stages, in the order of their ends
	answered int64       // bytes, see spend
	cut      cutOut      // texts that were encoded and are longer than the model reads
	cutOf    map[int]int // of these the queries, by their places: tokens that were dropped
	memory   *account    // of the budget of all answers; for a tool, that of the agent's request
	call     *agentCall  // that a tool makes the request for; nil: none does
	before   int64       // that memory had taken when the request came
}

// stageTime is how long a stage of a request took.
type stageTime struct {
	name string
	time time.Duration
}

// spent adds to the time of a stage, of which a request may have many.
func (q *request) spent(name string, d time.Duration) {
	for i := range q.took {
		if q.took[i].name == name {
			q.took[i].time += d
			return
		}
	}
	q.took = append(q.took, stageTime{name, d})
}

// timing is the value of Server-Timing (W3C): milliseconds of the stages, and of all since
// the request has come.
func (q *request) timing() string {
	var b strings.Builder
	for _, t := range append(q.took, stageTime{"total", time.Since(q.began)}) {
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s;dur=%.3f", t.name, float64(t.time)/float64(time.Millisecond))
	}
	return b.String()
}

// index is the {name} of the path.
func (q *request) index() string { return q.PathValue("name") }

// wants tells whether a preference (RFC 7240) was sent.
func (q *request) wants(preference string) bool {
	for _, line := range q.Header.Values(headerPref) {
		for p := range strings.SplitSeq(line, ",") {
			p, _, _ = strings.Cut(p, ";")
			if strings.EqualFold(strings.ReplaceAll(strings.TrimSpace(p), `"`, ""), preference) {
				return true
			}
		}
	}
	return false
}

// enter waits for the turn of the request in its group.
func (q *request) enter() error {
	gate := q.gate()
	if gate == nil || q.leave != nil || q.first() {
		return nil
	}
	if p := gate.enter(q.ctx); p != nil {
		return p
	}
	q.hasTurn(gate)
	return nil
}

// enterAgain waits for a turn in the middle of a request, however many others wait.
func (q *request) enterAgain(gate *gate) error {
	if q.first() {
		return nil
	}
	gate.waiting.Add(1)
	defer gate.waiting.Add(-1)
	select {
	case gate.slots <- struct{}{}:
	case <-q.ctx.Done():
		return q.ctx.Err()
	}
	q.hasTurn(gate)
	return nil
}

// first tells whether the request has what is kept back of a budget. Those that have a turn
// may wait for that, so that it waits for none of theirs.
func (q *request) first() bool { return q.body.memory.first() || q.memory.first() }

func (q *request) hasTurn(gate *gate) {
	began := time.Now()
	q.leave = func() { gate.leave(time.Since(began)) }
}

// leaveTurn gives the turn back, if the request has one.
func (q *request) leaveTurn() {
	if q.leave != nil {
		q.leave()
		q.leave = nil
	}
}

// gate is that of the group; nil: there is none.
func (q *request) gate() *gate { return q.s.gates[q.route.group] }
