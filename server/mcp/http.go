package mcp

import (
	"context"
	"log/slog"
	"net/http"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Handler answers the protocol's streamable HTTP, without sessions: each request stands for
// itself. A request that the service would not let look at its health is answered as the
// service answers that: without a token where one is needed, by a wrong name, too often.
func (s *Server) Handler(service http.Handler, log *slog.Logger) http.Handler {
	tools := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.sdk }, &sdk.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, Logger: log, MaxRequestBodyBytes: maxMessage,
		DisableLocalhostProtection: true, // by what name the service is asked it checks itself
	})
	guarded := http.NewCrossOriginProtection().Handler(tools)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		look := r.Clone(r.Context())
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
			w.WriteHeader(found.code)
			_, _ = w.Write(found.body.Bytes())
			return
		}
		r.Header.Set(headerRemote, r.RemoteAddr)
		guarded.ServeHTTP(w, r)
	})
}

// Connect answers one agent on a transport, for programs that have one.
func (s *Server) Connect(ctx context.Context, t sdk.Transport) (*sdk.ServerSession, error) {
	return s.sdk.Connect(ctx, t, nil)
}
