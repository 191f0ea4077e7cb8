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
	// agentCopies is how many copies of an answer of the service a tool has: as text, in parts, as
	// values, and in its own answer. The library has as many copies of a message.
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
		doc:         "Streamable HTTP without sessions; docs/agents.md lists the tools. The header Accept names application/json and text/event-stream. A notification is answered 202, without a body.",
		in:          messageJSON{},
		inType:      mediaJSON,
		out:         messageJSON{},
		outType:     mediaJSON,
		status:      http.StatusOK,
		jsonRPC:     true,
		example:     `{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}`,
		handle:      func(q *request) error { return answerAgent(q, agents) },
	}}
}

// agentCall is a message of an agent while it is answered. The requests that tools make for it run
// one after another and share its account: their answers are counted until the agent has taken its
// own.
type agentCall struct {
	request *request
	mu      sync.Mutex // held while such a request runs
	ended   bool
}

type agentKey struct{}

// agentCallFrom returns the call that a tool makes a request for; nil means that there is none.
func agentCallFrom(ctx context.Context) *agentCall {
	call, _ := ctx.Value(agentKey{}).(*agentCall)
	return call
}

// finish waits for the request that runs, and lets no other begin.
func (c *agentCall) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
}

// answerAgent lets the tools answer a message: they say, too, what is wrong with one.
func answerAgent(q *request, agents http.Handler) error {
	text, err := q.readBody()
	if err != nil {
		return err
	}
	if err := q.body.reserve(agentCopies * int64(len(text))); err != nil {
		return err
	}
	if err := jsontext.Check(text, jsontext.Options{Charge: q.body.reserve}); err != nil {
		if wrong := (*jsontext.Error)(nil); !errors.As(err, &wrong) {
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

// runAgentHandler returns when the tools make no more requests.
func (q *request) runAgentHandler(agents http.Handler, text []byte) (*bufferedAnswer, error) {
	call := &agentCall{request: q}
	defer call.finish()
	ctx, cancel := context.WithCancel(context.WithValue(q.ctx, agentKey{}, call))
	defer cancel()
	r := q.Request.WithContext(ctx)
	r.Header = r.Header.Clone()
	r.Header.Set(headerRequestID, q.w.Header().Get(headerRequestID)) // the tools' requests have it too
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	answer := &bufferedAnswer{header: http.Header{}, code: http.StatusOK}
	agents.ServeHTTP(answer, r)
	return answer, q.ctx.Err()
}

// settleAnswerMemory gives back the memory of an answer that was sent. If a tool has the answer, it stays
// counted to the end of the agent's request.
func (q *request) settleAnswerMemory() {
	if q.agentCall == nil {
		q.memory.releaseAll()
		return
	}
	if has := agentCopies * q.w.(*responseRecorder).bytes; q.reservedAnswer() > has {
		q.memory.release(q.reservedAnswer() - has)
	} else {
		q.memory.reserveAtOnce(has - q.reservedAnswer())
	}
}

// reservedAnswer is how much the answer to this request takes of the budget of answers.
func (q *request) reservedAnswer() int64 { return q.memory.bytes - q.memoryBefore }

// bufferedAnswer is an answer in memory.
type bufferedAnswer struct {
	header http.Header
	code   int
	begun  bool
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
