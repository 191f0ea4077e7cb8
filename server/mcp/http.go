package mcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// requestKey is the context key for the context of a request by HTTP: the library calls tools with a context
// that keeps the values of the request's context, but does not end with it.
type requestKey struct{}

// onlyCallID is the id that the library gets for a call by HTTP, which is the only one of its request.
const onlyCallID = 1

// Handler answers the protocol's streamable HTTP without sessions: each request stands for itself. It only
// limits the length of a message; as [server.Options.Agents] it becomes a route of the service, with the
// limits of all routes.
func (s *Server) Handler() http.Handler {
	tools := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.sdk }, &sdk.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true,
		DisableLocalhostProtection: true, // the service checks the header Host
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Read and parse the message.
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, r.Context()))
		if r.Method != http.MethodPost {
			tools.ServeHTTP(w, r)
			return
		}
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
		if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
			writeJSON(w, http.StatusRequestEntityTooLarge,
				refuse(nil, jsonrpc.CodeInvalidRequest, "the message has more than %d bytes", maxMessage).encode())
			return
		} else if err != nil {
			writeJSON(w, http.StatusBadRequest,
				refuse(nil, jsonrpc.CodeParseError, "the message did not come: %v", err).encode())
			return
		}
		f, wrong := parseFrame(text)
		switch {
		case wrong != nil && wrong.code == jsonrpc.CodeMethodNotFound:
			writeJSON(w, http.StatusNotFound, wrong.encode())
			return
		case wrong != nil:
			writeJSON(w, http.StatusBadRequest, wrong.encode())
			return
		case f.request == nil:
			w.WriteHeader(http.StatusAccepted)
			return
		}

		// Let the library answer it with an id of its own, and put the agent's id back.
		if f.id != nil {
			f.request.ID, err = jsonrpc.MakeID(float64(onlyCallID))
		}
		if err == nil {
			text, err = jsonrpc.EncodeMessage(f.request)
		}
		if err != nil {
			writeJSON(w, http.StatusInternalServerError, refuse(f.id, jsonrpc.CodeInternalError, "%v", err).encode())
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		buffered := &answerWriter{header: http.Header{}, code: http.StatusOK}
		tools.ServeHTTP(buffered, r)
		buffered.forwardTo(w, &f)
	})
}

// Beginnings of the texts with which the library refuses a message.
const (
	unknownMethodText  = "JSON RPC not handled"
	invalidRequestText = "invalid request"
)

// forwardTo sends the library's answer to a message, with the agent's id. Errors that the library answers as
// text become errors of JSON-RPC.
func (w *answerWriter) forwardTo(to http.ResponseWriter, f *frame) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, values := range w.header {
		to.Header()[name] = values
	}
	text := bytes.TrimSpace(w.body.Bytes())
	media, _, _ := mime.ParseMediaType(w.header.Get("Content-Type"))
	switch {
	case media == mediaJSON && f.id != nil:
		answer, err := withID(text, f.id)
		if err != nil {
			w.code, answer = http.StatusInternalServerError, refuse(f.id, jsonrpc.CodeInternalError, "%v", err).encode()
		}
		writeJSON(to, w.code, answer)
	case media == "text/plain" && w.code >= http.StatusBadRequest:
		// Errors that a pipe would answer, or ignore, are no errors of HTTP.
		wrong := refuse(f.id, jsonrpc.CodeInvalidRequest, "%s", text)
		switch unknown := strings.HasPrefix(wrong.message, unknownMethodText); {
		case f.id == nil && unknown:
			to.Header().Del("Content-Type")
			to.WriteHeader(http.StatusAccepted)
			return
		case unknown:
			w.code, wrong.code, wrong.message = http.StatusOK, jsonrpc.CodeMethodNotFound, "method not found: "+
				strconv.Quote(f.request.Method)
		case f.id != nil && strings.HasPrefix(wrong.message, invalidRequestText):
			w.code = http.StatusOK
		}
		writeJSON(to, w.code, wrong.encode())
	default:
		to.WriteHeader(w.code)
		_, _ = to.Write(w.body.Bytes())
	}
}

// writeJSON answers with a status and JSON.
func writeJSON(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", mediaJSON)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text)
}
