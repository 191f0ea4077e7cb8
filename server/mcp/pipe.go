package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

const (
	// maxMessage is the longest message of an agent in bytes.
	maxMessage = 256 << 10
	// maxCalls is how many calls of an agent are answered at a time. Further calls wait in its pipe.
	maxCalls = 8
)

// Run answers an agent at the other ends of two pipes, until in ends and all its calls are answered, or
// until ctx ends. It answers an invalid line with an error.
func (s *Server) Run(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	err := s.sdk.Run(ctx, &pipe{
		in:     in,
		out:    out,
		lines:  make(chan line),
		slots:  make(chan struct{}, maxCalls),
		closed: make(chan struct{}),
		calls:  map[float64]*call{},
	})
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// pipe is a transport and its only connection. Each message is a line.
type pipe struct {
	in    io.ReadCloser
	out   io.WriteCloser
	lines chan line
	slots chan struct{} // has an element for each of calls

	once   sync.Once
	closed chan struct{}

	writing sync.Mutex // held while a line is written

	mu          sync.Mutex
	calls       map[float64]*call // by the id that the library knows, a float64 as jsonrpc.MakeID takes it
	lastID      float64           // the last of these ids
	allAnswered chan struct{}     // is closed when calls is empty, or nil if no goroutine waits for that
}

// call is a request that is not answered yet.
type call struct {
	id        json.RawMessage // the agent's
	cancelled bool            // the agent wants no answer
}

// line is a line of the input, without its end.
type line struct {
	text    []byte // of a line that is too long, the beginning
	tooLong bool   // it is longer than a message may be
	err     error  // of reading; the text before it is valid
}

// Connect implements [sdk.Transport].
func (p *pipe) Connect(context.Context) (sdk.Connection, error) {
	go p.readLines()
	return p, nil
}

// readLines sends the lines of the input to Read, until the input ends or the connection is closed. It is a
// goroutine of its own because a read of a terminal cannot be interrupted.
func (p *pipe) readLines() {
	r := bufio.NewReader(p.in)
	afterUTF16 := false // the last line was UTF-16: this one begins with the second byte of its line feed
	for {
		var next line
		for more := true; more; {
			var read []byte
			read, next.err = r.ReadSlice('\n')
			if more = errors.Is(next.err, bufio.ErrBufferFull); more {
				next.err = nil
			}
			remaining := maxMessage + len("\r\n") - len(next.text)
			next.tooLong = next.tooLong || len(read) > remaining
			next.text = append(next.text, read[:min(len(read), remaining)]...)
		}
		if afterUTF16 {
			next.text = bytes.TrimPrefix(next.text, []byte{0})
		}
		next.text = bytes.TrimSpace(next.text)
		afterUTF16 = bytes.HasSuffix(next.text, []byte{0})
		next.tooLong = next.tooLong || len(next.text) > maxMessage
		select {
		case p.lines <- next:
		case <-p.closed:
			return
		}
		if next.err != nil {
			return
		}
	}
}

// Read implements [sdk.Connection].
func (p *pipe) Read(ctx context.Context) (jsonrpc.Message, error) {
	var next line
	for {
		if next.err != nil {
			if errors.Is(next.err, io.EOF) { // after it the library cancels running calls
				select {
				case <-p.untilAnswered():
				case <-p.closed:
				case <-ctx.Done():
				}
			}
			return nil, next.err
		}
		select {
		case next = <-p.lines:
		case <-p.closed:
			return nil, io.EOF
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if len(next.text) == 0 {
			continue
		}
		request, err := p.parseRequest(ctx, next)
		if err != nil {
			return nil, err
		}
		if request != nil {
			if next.err != nil { // return the request now, and the end of the input at the next Read
				go func() {
					select {
					case p.lines <- line{err: next.err}:
					case <-p.closed:
					}
				}()
			}
			return request, nil
		}
	}
}

// parseRequest returns the request of a line for the library, or nil if the line has none, or is answered with
// an error already.
func (p *pipe) parseRequest(ctx context.Context, next line) (*jsonrpc.Request, error) {
	var f frame
	var wrong *refusal
	if next.tooLong {
		wrong = refuse(findID(next.text), jsonrpc.CodeInvalidRequest, "the message has more than %d bytes", maxMessage)
	} else {
		f, wrong = parseFrame(next.text)
	}
	switch {
	case wrong != nil:
		return nil, p.writeLine(wrong.encode())
	case f.request == nil:
		return nil, nil
	case f.id == nil && f.request.Method == methodCancelled:
		return p.cancelCall(f.request), nil
	case f.id == nil:
		return f.request, nil
	}
	select {
	case p.slots <- struct{}{}:
	case <-p.closed:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastID++
	p.calls[p.lastID] = &call{id: f.id}
	var err error
	f.request.ID, err = jsonrpc.MakeID(p.lastID)
	return f.request, err
}

// cancelCall marks the call that a notification names as cancelled, and returns the notification with the id
// that the library knows, or nil if it names no call that is still open.
func (p *pipe) cancelCall(r *jsonrpc.Request) *jsonrpc.Request {
	var params struct {
		ID     json.RawMessage `json:"requestId"`
		Reason string          `json:"reason"`
	}
	if json.Unmarshal(r.Params, &params) != nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, c := range p.calls {
		if !c.cancelled && bytes.Equal(c.id, params.ID) {
			c.cancelled = true
			text, err := jsontext.MarshalUnescaped(map[string]any{"requestId": n, "reason": params.Reason})
			if err != nil {
				return nil
			}
			return &jsonrpc.Request{Method: methodCancelled, Params: text}
		}
	}
	return nil
}

// untilAnswered returns a channel that is closed when all calls are answered.
func (p *pipe) untilAnswered() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allAnswered = make(chan struct{})
	if len(p.calls) == 0 {
		close(p.allAnswered)
	}
	return p.allAnswered
}

// Write implements [sdk.Connection].
func (p *pipe) Write(_ context.Context, msg jsonrpc.Message) error {
	text, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	r, ok := msg.(*jsonrpc.Response)
	if !ok {
		return p.writeLine(text)
	}
	n, _ := r.ID.Raw().(int64) // MakeID stores a whole float64 as int64
	p.mu.Lock()
	c := p.calls[float64(n)]
	cancelled := c != nil && c.cancelled
	p.mu.Unlock()
	if c == nil {
		return fmt.Errorf("an answer to request %v, which is not open", r.ID.Raw())
	}
	defer p.forgetCall(float64(n))
	if cancelled {
		return nil
	}
	if text, err = withID(text, c.id); err != nil {
		return err
	}
	return p.writeLine(text)
}

// forgetCall removes a call that was answered.
func (p *pipe) forgetCall(n float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, n)
	<-p.slots
	if len(p.calls) == 0 && p.allAnswered != nil {
		close(p.allAnswered)
		p.allAnswered = nil
	}
}

// writeLine writes a line.
func (p *pipe) writeLine(text []byte) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	_, err := p.out.Write(append(text, '\n'))
	return err
}

// Close implements [sdk.Connection].
func (p *pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return errors.Join(p.in.Close(), p.out.Close())
}

// SessionID implements [sdk.Connection].
func (p *pipe) SessionID() string { return "" }
