// Package bus is what the nodes of a cluster talk over: a NATS server in the process,
// connections to it, and the streams and buckets that plaid keeps there. Nothing but
// what moves is there: documents are in the files of nodes, and what must not be lost
// is in the object store.
package bus

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// MaxPayload is the largest message: a query of 1,024 tokens of 1,024 dimensions, or a
// batch of documents.
const MaxPayload = 8 << 20

// ErrServer: the server cannot be started.
var ErrServer = errors.New("nats server")

// ServerOptions of a server in this process. The zero value, with Dir, is one that is
// reached from this process alone.
type ServerOptions struct {
	// Name of the server, unique in the cluster.
	Name string
	// Dir keeps the streams. Everything in it may be lost; see docs/cluster.md.
	Dir string
	// Listen is HOST:PORT for clients; "": no port.
	Listen string
	// Cluster is HOST:PORT for other servers, Routes their addresses.
	Cluster string
	Routes  []string
	// TLS for clients and for routes, where set: both sides show certificates.
	TLS *tls.Config
	// Users limits what the owners of certificates may do; see [Role]. It needs TLS.
	Users []User
	// Key enciphers the streams on the disk; "": they are as they are.
	Key string
	// Ping is how often routes and clients are asked for a sign of life, of which two may be
	// missing; 0: one second.
	Ping time.Duration
	// Logger hears the server; nil: nobody does.
	Logger *slog.Logger
}

// Server is a NATS server in this process.
type Server struct {
	s   *server.Server
	tls *tls.Config // of connections from within, where users are known by certificates
	// fatal is what the server could not go on after.
	fatal chan error
}

// StartServer starts a server and waits until it takes connections.
func StartServer(ctx context.Context, o ServerOptions) (*Server, error) {
	if o.Ping == 0 {
		o.Ping = time.Second
	}
	opts := &server.Options{
		ServerName: o.Name, DontListen: o.Listen == "", NoLog: true, NoSigs: true, MaxPayload: MaxPayload, MaxPending: 16 * MaxPayload,
		JetStream: true, StoreDir: o.Dir, SyncAlways: true, JetStreamKey: o.Key,
		PingInterval: 2 * o.Ping, MaxPingsOut: 2,
	}
	if o.Key != "" {
		opts.JetStreamCipher = server.ChaCha
	}
	if o.Listen != "" {
		var err error
		if opts.Host, opts.Port, err = address(o.Listen); err != nil {
			return nil, err
		}
	}
	if o.Cluster != "" {
		opts.Cluster = server.ClusterOpts{Name: "plaid", PingInterval: o.Ping, MaxPingsOut: 2, PoolSize: 3}
		var err error
		if opts.Cluster.Host, opts.Cluster.Port, err = address(o.Cluster); err != nil {
			return nil, err
		}
		for _, route := range o.Routes {
			if _, _, err := address(route); err != nil {
				return nil, err
			}
			opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats-route", Host: route})
		}
	}
	s := &Server{fatal: make(chan error, 1)}
	if o.TLS != nil {
		if len(o.TLS.Certificates) == 0 {
			return nil, fmt.Errorf("%w: no certificate is given", ErrServer)
		}
		t := o.TLS.Clone()
		t.ClientAuth, t.ClientCAs, t.MinVersion = tls.RequireAndVerifyClientCert, t.RootCAs, tls.VersionTLS13
		opts.TLS, opts.TLSVerify, opts.TLSConfig, opts.TLSTimeout = true, true, t, 5
		opts.Cluster.TLSConfig, opts.Cluster.TLSTimeout = t.Clone(), 5
	}
	if o.Users != nil {
		if o.TLS == nil {
			return nil, fmt.Errorf("%w: users are known by their certificates, and there are none", ErrServer)
		}
		// The owner of the server's own certificate may do everything, as the server may.
		own, err := x509.ParseCertificate(o.TLS.Certificates[0].Certificate[0])
		if err != nil {
			return nil, fmt.Errorf("%w: its certificate: %w", ErrServer, err)
		}
		s.tls = o.TLS
		opts.TLSMap = true
		opts.Users = []*server.User{{Username: own.Subject.String()}}
		for _, u := range o.Users {
			if u.Name != own.Subject.String() {
				opts.Users = append(opts.Users, &server.User{Username: u.Name, Permissions: u.Role.permissions(u.node())})
			}
		}
	}
	var err error
	if s.s, err = server.NewServer(opts); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrServer, err)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s.s.SetLoggerV2(logger{o.Logger, s.fatal}, false, false, false)
	started := make(chan struct{})
	go func() { s.s.Start(); close(started) }()
	for {
		ready := s.s.ReadyForConnections(100 * time.Millisecond)
		select {
		case err := <-s.fatal:
			<-started
			s.Close()
			return nil, fmt.Errorf("%w %s: %w", ErrServer, o.Name, err)
		case <-ctx.Done():
			<-started
			s.Close()
			return nil, ctx.Err()
		case <-started:
			if ready {
				return s, nil
			}
		default:
		}
	}
}

func address(a string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(a)
	if err == nil {
		port, err = strconv.Atoi(p)
	}
	if err != nil {
		return "", 0, fmt.Errorf("%w: %q is not HOST:PORT", ErrServer, a)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, nil
}

// Connect returns a connection that needs no port.
func (s *Server) Connect(name string, more ...nats.Option) (*nats.Conn, error) {
	o := append(options(name), nats.InProcessServer(s.s))
	if s.tls != nil {
		t := s.tls.Clone()
		t.InsecureSkipVerify = true // the other end is this process
		o = append(o, nats.Secure(t))
	}
	return nats.Connect("", append(o, more...)...)
}

// Traffic counts messages of clients, of JetStream too, since the server was started.
type Traffic struct{ In, Out int64 }

// Messages counts what has come to the server and gone from it.
func (s *Server) Messages() (Traffic, error) {
	v, err := s.s.Varz(nil)
	if err != nil {
		return Traffic{}, fmt.Errorf("%w: %w", ErrServer, err)
	}
	return Traffic{v.InMsgs, v.OutMsgs}, nil
}

// ClientURL is where clients reach the server, ClusterAddr where other servers do.
func (s *Server) ClientURL() string { return s.s.ClientURL() }

// ClusterAddr is HOST:PORT of the routes, "" without.
func (s *Server) ClusterAddr() string {
	if a := s.s.ClusterAddr(); a != nil {
		return a.String()
	}
	return ""
}

// Close ends the server and waits for that. It may be called twice.
func (s *Server) Close() {
	s.s.Shutdown()
	s.s.WaitForShutdown()
}

// Connect reaches a cluster at addresses; tls is nil where it has none.
func Connect(addresses, name string, t *tls.Config, more ...nats.Option) (*nats.Conn, error) {
	o := options(name)
	if t != nil {
		o = append(o, nats.Secure(t))
	}
	conn, err := nats.Connect(addresses, append(o, more...)...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", addresses, err)
	}
	return conn, nil
}

func options(name string) []nats.Option {
	return []nats.Option{
		nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond), nats.PingInterval(2 * time.Second), nats.MaxPingsOutstanding(2),
		nats.Timeout(5 * time.Second), nats.IgnoreAuthErrorAbort(),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // the default prints; whoever asks gets the error
	}
}

// logger passes on what the server says.
type logger struct {
	l     *slog.Logger
	fatal chan<- error
}

func (l logger) Noticef(f string, v ...any) { l.l.Debug(fmt.Sprintf(f, v...)) }
func (l logger) Warnf(f string, v ...any)   { l.l.Warn(fmt.Sprintf(f, v...)) }

func (l logger) Fatalf(f string, v ...any) {
	err := fmt.Errorf(f, v...)
	l.l.Error(err.Error())
	select {
	case l.fatal <- err:
	default: // the first says it
	}
}

func (l logger) Errorf(f string, v ...any) { l.l.Error(fmt.Sprintf(f, v...)) }
func (l logger) Debugf(string, ...any)     {}
func (l logger) Tracef(string, ...any)     {}
