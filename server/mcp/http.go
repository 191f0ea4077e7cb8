package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// stall is how long an agent may take to send its message, and to take each piece of the
	// answer.
	stall = 30 * time.Second
	// longest is how long a message may take to be answered.
	longest = 5 * time.Minute
	// lingering is how long what is left of a message may go on to come after a refusal.
	lingering = time.Second
)

// Handler answers the protocol's streamable HTTP, without sessions: each request stands for
// itself. A request that the service would not let look at its indexes is answered as the
// service answers that: without a token where one is needed, by a wrong name, too often.
// One message is taken at a time: in a list of them each would be answered at once.
func (s *Server) Handler(service http.Handler) http.Handler {
	tools := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.sdk }, &sdk.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true,
		DisableLocalhostProtection: true, // by what name the service is asked it checks itself
	})
	guarded := http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && !takeMessage(w, r) {
			return
		}
		tools.ServeHTTP(w, r)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), longest)
		defer cancel()
		r = r.WithContext(context.WithValue(ctx, requestKey{}, ctx))
		out := &pacedWriter{w, http.NewResponseController(w)}
		out.extend() // the connection may have the deadline of a request before
		_ = out.control.SetReadDeadline(time.Now().Add(stall))
		look := r.Clone(ctx)
		look.Method, look.URL.Path, look.URL.RawPath, look.URL.RawQuery = http.MethodGet, "/indices", "", ""
		look.Body, look.ContentLength, look.TransferEncoding = http.NoBody, 0, nil
		look.Header.Del("Content-Type")
		look.Header.Del("Origin")
		found := &answerWriter{header: http.Header{}, code: http.StatusOK}
		service.ServeHTTP(found, look)
		if found.code != http.StatusOK {
			for name, values := range found.header {
				w.Header()[name] = values
			}
			out.abandon(r)
			out.WriteHeader(found.code)
			_, _ = out.Write(found.body.Bytes())
			return
		}
		r.Header.Set(headerRemote, r.RemoteAddr)
		guarded.ServeHTTP(out, r)
	})
}

// takeMessage reads the message of a request, which must come in time. It answers itself
// what is none, and is false then.
func takeMessage(w http.ResponseWriter, r *http.Request) bool {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		http.Error(w, fmt.Sprintf("the message has more than %d bytes", large.Limit), http.StatusRequestEntityTooLarge)
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		http.Error(w, fmt.Sprintf("the message did not come in %v", stall), http.StatusRequestTimeout)
	case err != nil:
		http.Error(w, "the message did not come", http.StatusBadRequest)
	case bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("[")):
		http.Error(w, "lists of messages are not taken: send one at a time", http.StatusBadRequest)
	default:
		// From here on the connection is watched for its end.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		r.Body = io.NopCloser(bytes.NewReader(text))
		return true
	}
	return false
}

// pacedWriter cuts an agent that does not take its answer.
type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

// extend gives the agent time for what comes next. Not every server has deadlines.
func (w *pacedWriter) extend() { _ = w.control.SetWriteDeadline(time.Now().Add(stall)) }

// abandon is called before an answer that does not wait for the message.
func (w *pacedWriter) abandon(r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	_ = w.control.SetReadDeadline(time.Now().Add(lingering))
}

// WriteHeader implements http.ResponseWriter.
func (w *pacedWriter) WriteHeader(code int) {
	w.extend()
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter. Each piece has a deadline of its own.
func (w *pacedWriter) Write(p []byte) (n int, err error) {
	for {
		w.extend()
		m, err := w.ResponseWriter.Write(p[n:min(n+64<<10, len(p))])
		if n += m; err != nil || n == len(p) {
			return n, err
		}
	}
}

// Unwrap is for http.ResponseController.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
