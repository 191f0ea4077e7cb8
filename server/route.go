package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// group of routes that share a limit of how many run at a time.
type group int

const (
	free      group = iota // not limited: probes
	looking                // takes little
	searching              // computes
	writing                // waits for the writer of an index
)

// route is one method of one path: what answers it, who may call it, and what the
// description of the API says of it.
type route struct {
	method, pattern string // "/indices/{name}"; {…} stands for one part
	id, tag         string // operationId, and the group in the description
	summary, doc    string
	need            Permission
	group           group
	page            bool // of the page: not part of the API, and not described
	stream          bool // no limit of time, since it goes on as long as bytes flow
	params          []param
	in, out         any // zero values of the bodies; nil: none
	inType, outType string
	tensors         bool   // the body may be a file of tensors instead of JSON
	status          int    // of success
	whole           any    // zero value of what a change answers where return=representation is preferred
	fails           []Code // beside those that any route can answer
	example         string // a body that the route takes
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
	_, r.tensors = any(new(In)).(vectorTaker)
	r.outType = mediaJSON
	r.do = func(q *request) error {
		in := new(In)
		if r.in != nil {
			text, err := q.text()
			if err != nil {
				return err
			}
			if err := q.enter(); err != nil {
				return err
			}
			if err := q.decode(text, in); err != nil {
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
	slices.Sort(methods)
	return nil, problem(CodeMethod, "%s is not possible here", r.Method).allow(slices.Compact(methods))
}

// allow notes the methods that are possible.
func (p *Problem) allow(methods []string) *Problem {
	p.err = allowed(methods)
	return p
}

// allowed are the methods of a path.
type allowed []string

func (a allowed) Error() string { return "allowed: " + strings.Join(a, ", ") }

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
	who   string // the name of the token
	leave func() // gives the turn back; nil: it has none

	answered int64 // bytes, see spend
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

// text is the body. It is read before the request has its turn: a slow client keeps
// nobody waiting but itself.
func (q *request) text() ([]byte, error) {
	var b bytes.Buffer
	if n := q.ContentLength; n > 0 && n <= 1<<20 { // of more it is waited for that it comes
		b.Grow(int(n) + bytes.MinRead)
	}
	if _, err := b.ReadFrom(q.Body); err != nil {
		return nil, badJSON(err)
	}
	return b.Bytes(), nil
}

// enter waits for the turn of the request in its group.
func (q *request) enter() error {
	gate := q.s.gates[q.route.group]
	if gate == nil || q.leave != nil {
		return nil
	}
	if p := gate.enter(q.ctx); p != nil {
		return p
	}
	q.leave = gate.leave
	return nil
}

// decode reads a body, which is JSON or, where the route takes them, tensors.
func (q *request) decode(text []byte, into any) error {
	if v, ok := into.(vectorTaker); ok && isTensors(q.Header.Get("Content-Type")) {
		return q.decodeTensors(text, v)
	}
	return q.decodeJSON(text, into)
}

// decodeJSON reads JSON. Fields that are not known are passed over, as
// clients of later versions may send some; with "Prefer: handling=strict" they are
// errors.
func (q *request) decodeJSON(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if q.wants("handling=strict") {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(into); err != nil {
		return badJSON(err)
	}
	if _, err := d.Token(); err == nil {
		return bad("the body has more than one JSON value")
	}
	return nil
}

func badJSON(err error) error {
	var shape *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &shape) && shape.Field != "":
		return bad("%s: a %s is in the place of a %s", shape.Field, shape.Value, jsonKind(shape))
	case errors.As(err, &shape):
		return bad("the body is a %s; want an object", shape.Value)
	case errors.As(err, &syntax):
		return bad("the body is not JSON: byte %d: %v", syntax.Offset, syntax)
	case isTransport(err):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return bad("the body is not JSON: it ends too early")
	}
	return bad("the body is not what the route takes: %v", err)
}

func jsonKind(e *json.UnmarshalTypeError) string {
	switch kind := e.Type.Kind().String(); {
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return "whole number"
	case strings.HasPrefix(kind, "float"):
		return "number"
	case kind == "slice":
		return "list"
	case kind == "struct" || kind == "map":
		return "object"
	default:
		return kind
	}
}

// isTransport tells errors of receiving a body from errors of what is in it.
func isTransport(err error) bool {
	var large *http.MaxBytesError
	var p *Problem
	var timeout interface{ Timeout() bool }
	return errors.As(err, &large) || errors.As(err, &p) || errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.Canceled)
}

// answer sends a value as JSON.
func (q *request) answer(status int, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return q.send(status, mediaJSON, text)
}

// send sends a body.
func (q *request) send(status int, media string, text []byte) error {
	h := q.w.Header()
	h.Set("Content-Type", media)
	h.Set("Content-Length", fmt.Sprint(len(text)))
	q.w.WriteHeader(status)
	_, _ = q.w.Write(text) // who is gone needs no answer
	return nil
}
