package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

const (
	// maxMessage is the longest message of an agent in bytes.
	maxMessage = 256 << 10
	// agentCopies is how many copies of an answer of the service a tool has: the text, its parsed parts,
	// the values, and its own answer. The MCP library has the same number of copies of a message.
	agentCopies = 4
)

// messageJSON is a message of an agent, or the answer to one. The protocol defines its content.
type messageJSON struct{}

// schema implements schemer.
func (messageJSON) schema() object {
	return object{"type": "object", "description": "a message of JSON-RPC 2.0, as the Model Context Protocol has it"}
}

// agentRoutes returns the route for agents, if the service has one.
func (s *Server) agentRoutes() []route {
	if s.options.Agents == nil {
		return nil
	}
	agents := s.options.Agents(s)
	return []route{{
		method:      http.MethodPost,
		pattern:     "/mcp",
		operationID: "mcp",
		tag:         "agents",
		permission:  Read,
		group:       groupAgents,
		maxBody:     maxMessage,
		summary:     "Answer a message of an agent (Model Context Protocol)",
		doc: "Streamable HTTP without sessions; docs/agents.md lists the tools. The header Accept names " +
			"application/json and text/event-stream. A notification is answered 202, without a body.",
		in:      messageJSON{},
		inType:  mediaJSON,
		out:     messageJSON{},
		outType: mediaJSON,
		status:  http.StatusOK,
		jsonRPC: true,
		example: `{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}`,
		handle:  func(q *request) error { return answerAgent(q, agents) },
	}}
}

// agentCall is a message of an agent while it is answered. The requests that tools make for it run one
// after another and share its reservation: the memory of their answers stays reserved until the agent has
// received its own answer.
type agentCall struct {
	request *request
	mu      sync.Mutex // held while a request of a tool runs
	ended   bool       // no more requests may begin
}

// agentKey is the context key for the agentCall of a request.
type agentKey struct{}

// agentCallFrom returns the agent's message that a tool makes a request for. It returns nil if the request
// comes from a client.
func agentCallFrom(ctx context.Context) *agentCall {
	call, _ := ctx.Value(agentKey{}).(*agentCall)
	return call
}

// finish waits for a running request of a tool, and lets no other begin.
func (c *agentCall) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
}

// answerAgent answers a message by the handler of agents, which answers malformed messages as well.
func answerAgent(q *request, agents http.Handler) error {
	text, err := q.readBody()
	if err != nil {
		return err
	}
	if err := q.body.reserve(agentCopies * int64(len(text))); err != nil {
		return err
	}
	if err := jsontext.Check(text, jsontext.Options{Charge: q.body.reserve}); err != nil {
		if _, malformed := errors.AsType[*jsontext.Error](err); !malformed {
			return bodyError(err)
		}
	}
	if err := q.acquireSlot(); err != nil {
		return err
	}
	answer, err := q.runAgentHandler(agents, text)
	if err != nil {
		return err
	}
	if err := q.memory.reserve(q.ctx, int64(answer.text.Len())); err != nil {
		return err
	}
	media := answer.header.Get("Content-Type")
	for name, values := range answer.header {
		q.w.Header()[name] = values
	}
	return q.sendBody(answer.code, media, answer.text.Bytes())
}

// runAgentHandler runs the handler on a message. It returns the answer once no tool has a running request.
func (q *request) runAgentHandler(agents http.Handler, text []byte) (*bufferedAnswer, error) {
	call := &agentCall{request: q}
	defer call.finish()
	ctx, cancel := context.WithCancel(context.WithValue(q.ctx, agentKey{}, call))
	defer cancel()
	r := q.Request.WithContext(ctx)
	r.Header = r.Header.Clone()
	r.Header.Set(headerRequestID, q.w.Header().Get(headerRequestID)) // also for the requests of tools
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	answer := &bufferedAnswer{header: http.Header{}, code: http.StatusOK}
	agents.ServeHTTP(answer, r)
	return answer, q.ctx.Err()
}

// settleAnswerMemory releases the memory of an answer that was sent. The copies of an answer to a tool
// stay reserved until the agent's request ends.
func (q *request) settleAnswerMemory() {
	if q.agentCall == nil {
		q.memory.releaseAll()
		return
	}
	if copies := agentCopies * q.w.(*responseRecorder).bytes; q.reservedAnswer() > copies {
		q.memory.release(q.reservedAnswer() - copies)
	} else {
		q.memory.reserveAtOnce(copies - q.reservedAnswer())
	}
}

// reservedAnswer returns the bytes that are reserved for the answer to this request.
func (q *request) reservedAnswer() int64 { return q.memory.bytes - q.memoryBefore }

// bufferedAnswer is an http.ResponseWriter that keeps the answer in memory.
type bufferedAnswer struct {
	header http.Header
	code   int
	begun  bool // the code is final
	text   bytes.Buffer
}

func (a *bufferedAnswer) Header() http.Header { return a.header }

func (a *bufferedAnswer) WriteHeader(code int) {
	if !a.begun {
		a.code, a.begun = code, true
	}
}

func (a *bufferedAnswer) Write(p []byte) (int, error) {
	a.begun = true
	return a.text.Write(p)
}
