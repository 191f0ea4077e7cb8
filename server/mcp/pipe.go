package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxMessage is the longest message of an agent in bytes.
	maxMessage = 256 << 10
	// maxCalls is how many calls of an agent are answered at a time. The next ones wait in its pipe.
	maxCalls = 8
)

// Run answers an agent that holds the other ends of two pipes, until in ends and what was
// asked is answered, or until ctx ends.
func (s *Server) Run(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	err := s.sdk.Run(ctx, patient{&sdk.IOTransport{Reader: in, Writer: out, MaxLineLength: maxMessage}})
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// patient is a transport that ends when all is answered: the library gives up what still
// runs at the end of its input, which is at once where that is a file.
type patient struct{ sdk.Transport }

// Connect implements [sdk.Transport].
func (p patient) Connect(ctx context.Context) (sdk.Connection, error) {
	c, err := p.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &answering{Connection: c, open: map[jsonrpc.ID]bool{}, turns: make(chan struct{}, maxCalls),
		closed: make(chan struct{})}, nil
}

// answering is a connection that knows what is not answered yet.
type answering struct {
	sdk.Connection
	mu     sync.Mutex
	open   map[jsonrpc.ID]bool
	none   chan struct{} // closed when open is empty; nil if no one waits
	turns  chan struct{} // has an item for each of open
	once   sync.Once
	closed chan struct{}
}

// Read implements [sdk.Connection].
func (a *answering) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := a.Connection.Read(ctx)
	if r, ok := msg.(*jsonrpc.Request); ok && err == nil {
		if r.IsCall() {
			select {
			case a.turns <- struct{}{}:
			case <-a.closed:
				return nil, io.EOF
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			a.mu.Lock()
			if a.open[r.ID] { // the library refuses the second one
				<-a.turns
			}
			a.open[r.ID] = true
			a.mu.Unlock()
		} else if r.Method == "notifications/cancelled" {
			var given struct {
				ID any `json:"requestId"`
			}
			if json.Unmarshal(r.Params, &given) == nil {
				if id, err := jsonrpc.MakeID(given.ID); err == nil {
					a.answered(id)
				}
			}
		}
	}
	if errors.Is(err, io.EOF) {
		select {
		case <-a.rest():
		case <-a.closed:
		case <-ctx.Done():
		}
	}
	return msg, err
}

// rest is closed when nothing is to be answered any more.
func (a *answering) rest() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.none = make(chan struct{})
	if len(a.open) == 0 {
		close(a.none)
	}
	return a.none
}

func (a *answering) answered(id jsonrpc.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.open[id] {
		return
	}
	delete(a.open, id)
	<-a.turns
	if len(a.open) == 0 && a.none != nil {
		close(a.none)
	}
}

// Write implements [sdk.Connection].
func (a *answering) Write(ctx context.Context, msg jsonrpc.Message) error {
	err := a.Connection.Write(ctx, msg)
	if r, ok := msg.(*jsonrpc.Response); ok {
		a.answered(r.ID)
	}
	return err
}

// Close implements [sdk.Connection].
func (a *answering) Close() error {
	a.once.Do(func() { close(a.closed) })
	return a.Connection.Close()
}
