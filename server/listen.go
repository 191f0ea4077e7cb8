package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// ServeOptions configure [Server.Serve]. The zero value, or nil, is a good choice.
type ServeOptions struct {
	// TLS, if not nil, makes it HTTPS.
	TLS *tls.Config
	// Header bounds the time in which the headers of a request must arrive, and Drain the time for which
	// running requests may go on when the server ends; defaults 10 s and 30 s.
	Header, Drain time.Duration
	// Handler answers instead of the service itself; it may put the service below a path.
	Handler http.Handler
}

// idleConnection is how long a connection may wait for its next request.
const idleConnection = 2 * time.Minute

// Serve answers the connections of a listener until ctx ends. Then it closes the listener, and waits for
// running requests to finish. It returns nil, or [context.DeadlineExceeded] if it had to cut off requests
// after [ServeOptions.Drain].
func (s *Server) Serve(ctx context.Context, l net.Listener, o *ServeOptions) error {
	var opts ServeOptions
	if o != nil {
		opts = *o
	}
	setDefault(&opts.Header, 10*time.Second, unlimitedTime)
	setDefault(&opts.Drain, 30*time.Second, unlimitedTime)
	handler := opts.Handler
	if handler == nil {
		handler = s
	}

	// Serve until the listener fails, or ctx ends.
	h := &http.Server{
		Handler:           handler,
		TLSConfig:         opts.TLS,
		ReadHeaderTimeout: opts.Header,
		IdleTimeout:       idleConnection,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { limitUnsent(c); return ctx },
	}
	ended := make(chan error, 1)
	go func() {
		if opts.TLS != nil {
			ended <- h.ServeTLS(l, "", "")
		} else {
			ended <- h.Serve(l)
		}
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}

	// Finish the running requests. Those that take too long are cut off.
	s.Drain()
	s.log.Info("ending: requests that run are finished", "at_most", opts.Drain)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), opts.Drain)
	defer cancel()
	err := h.Shutdown(drain)
	if err != nil {
		s.log.Warn("requests were cut off", "error", err)
		err = errors.Join(err, h.Close())
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
