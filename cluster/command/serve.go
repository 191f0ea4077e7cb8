package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/service"
	"github.com/plaid-ir/plaid/cluster/topology"
	plaid "github.com/plaid-ir/plaid/cmd/plaid/command"
	"github.com/plaid-ir/plaid/cmd/plaid/daemon"
	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/collection"
)

// serving are the settings of plaid serve that are of a cluster. It is what opens the
// collections for the service.
type serving struct {
	servers, partial string
	c                client.Config
	tls              tlsFlags
	// conn is that of a node of the same process; nil: one is made. It is also made to the
	// servers of a node where the front has a certificate of its own.
	conn *nats.Conn
	// store is the object store, with which collections are declared and removed; "": they
	// are not.
	store  string
	create operate.CreateOptions
}

// serve adds the settings.
func serve(_ plaid.App, c *daemon.Config) {
	s := &serving{}
	s.register(c)
	c.TextSetting("cluster", &s.servers, "serve the collections of a cluster, in place of a folder: `ADDRESSES` of nodes, with commas between")
	c.TextSetting("cluster-zone", &s.c.Zone, "`NAME` of the zone whose replicas are asked first")
	c.TextSetting("cluster-store", &s.store, "object store of the cluster, a `FOLDER` or s3://BUCKET/PREFIX: collections are declared and removed over HTTP too")
}

// register adds the settings that a front in the process of a node has too.
func (s *serving) register(c *daemon.Config) {
	c.Elsewhere = s
	s.c.Deadline = 10 * time.Second
	c.Setting("cluster-deadline", flags.Duration(&s.c.Deadline), "`TIME` that a query may take in a cluster")
	c.TextSetting("cluster-tls-cert", &s.tls.cert, "`FILE` with the certificate to show to nodes")
	c.TextSetting("cluster-tls-key", &s.tls.key, "`FILE` with its key")
	c.TextSetting("cluster-tls-ca", &s.tls.ca, "`FILE` with the authority that certificates of nodes must be from")
	c.Setting("cluster-shards", flags.Int(&s.create.Shards, 1, 1), "shards of a collection that is declared over HTTP")
	c.Setting("cluster-replicas", flags.Int(&s.create.Replicas, 1, 1), "replicas of each shard of such a collection")
	c.Setting("cluster-partial", flags.Choice(&s.partial, "refuse", "refuse", "allow"), "results of a cluster that lack shards")
}

// Check implements [daemon.Elsewhere].
func (s *serving) Check() (asked bool, err error) {
	switch {
	case s.servers == "" && s.conn == nil && (s.c.Zone != "" || s.store != "" || s.tls != tlsFlags{}):
		return false, errors.New("settings of a cluster without cluster")
	case s.servers == "" && s.tls != tlsFlags{}:
		return false, errors.New("cluster-tls-cert is for a node with --connect: this one asks its own server")
	case s.store == "" && s.conn == nil && (s.create.Shards > 1 || s.create.Replicas > 1):
		return false, errors.New("cluster-shards and cluster-replicas are of collections that are declared: they need cluster-store")
	case s.create.Shards > topology.Slots || s.create.Replicas > topology.MaxReplicas:
		return false, fmt.Errorf("cluster-shards: at most %d; cluster-replicas: at most %d", topology.Slots, topology.MaxReplicas)
	case s.c.Deadline <= 0:
		return false, fmt.Errorf("cluster-deadline: %v is no time to wait", s.c.Deadline)
	}
	_, err = s.tls.config()
	return s.servers != "" || s.conn != nil, err
}

// Open implements [daemon.Elsewhere]. A cluster that is not there yet is waited for: meanwhile
// the service answers that it is not ready, and why.
func (s *serving) Open(ctx context.Context, c *daemon.Config, log *slog.Logger) (collection.Set, func() error, error) {
	place := "the cluster of this node"
	if s.asks() {
		place = s.servers
	}
	s.c.AllowPartial, s.c.WriteDeadline, s.c.Logger = s.partial == "allow", c.WorkTimeout, log
	if c.WorkTimeout == 0 { // no limit
		s.c.WriteDeadline = 24 * time.Hour
	}
	cfg := service.Config{Client: s.c, Place: place, Create: s.create, Backend: c.Backend, Threads: c.Threads}
	if s.store != "" {
		var err error
		if cfg.Store, err = objects.Open(s.store); err != nil {
			return nil, nil, err
		}
	}
	f, end, err := s.front(ctx, cfg)
	if err == nil {
		return f, end, nil
	}
	if !errors.Is(err, errNotYet) {
		return nil, nil, err
	}
	log.Warn("waiting for the cluster", "because", err)
	w := service.Wait(place, err.Error())
	ctx, stop := context.WithCancel(ctx)
	done := make(chan func() error, 1)
	go func() {
		for said := ""; ; {
			select {
			case <-ctx.Done():
				done <- func() error { return nil }
				return
			case <-time.After(reachAgain):
			}
			f, end, err := s.front(ctx, cfg)
			if err == nil {
				w.Over(f)
				log.Info("the cluster is reached", "indexes", len(f.Names()))
				done <- end
				return
			}
			w.Because(err.Error())
			if !errors.Is(err, errNotYet) && ctx.Err() == nil && err.Error() != said {
				said = err.Error()
				log.Error("the cluster cannot be served", "because", err)
			}
		}
	}()
	return w, func() error { stop(); return (<-done)() }, nil
}

// errNotYet: the cluster may be there later.
var errNotYet = errors.New("the cluster is not there yet")

// asks tells whether the front has a connection of its own.
func (s *serving) asks() bool { return s.conn == nil || s.tls != tlsFlags{} }

// front connects, and makes a front.
func (s *serving) front(ctx context.Context, cfg service.Config) (*service.Front, func() error, error) {
	conn, hangUp := s.conn, func() {}
	if s.asks() {
		t, err := s.tls.config()
		if err != nil {
			return nil, nil, err
		}
		if conn, err = bus.Connect(s.servers, "plaid serve", t); err != nil && away(err) {
			return nil, nil, fmt.Errorf("%w: %s: %w", errNotYet, noServer(s.servers), err)
		} else if err != nil {
			return nil, nil, err
		}
		hangUp = conn.Close
	}
	within, stop := context.WithTimeout(ctx, bus.Attempt)
	defer stop()
	f, err := service.New(within, conn, cfg)
	if s.conn != nil && errors.Is(err, bus.ErrRole) { // nobody has asked for it
		cfg.Client.Logger.Warn("collections are not declared and removed over HTTP here", "because", err)
		cfg.Store = nil
		f, err = service.New(within, conn, cfg)
	}
	if err != nil {
		hangUp()
		if !errors.Is(err, bus.ErrRole) {
			err = fmt.Errorf("%w: %s: %w", errNotYet, noQuorum, err)
		}
		return nil, nil, err
	}
	return f, func() error { defer hangUp(); return f.Close() }, nil
}

// httpFlags let a node be a front too.
type httpFlags struct{ listen, config string }

func (h *httpFlags) register(f *pflag.FlagSet) {
	f.StringVar(&h.listen, "http", "", "`ADDRESS` to serve the collections at over HTTP, as plaid serve does: host:port, or unix:PATH")
	f.StringVar(&h.config, "http-config", "", "`FILE` with the settings of plaid serve; PLAID_SERVE_… are read too")
}

// load reads the settings of the service of a node; nil: it has none.
func (h *httpFlags) load(zone, servers string) (*daemon.Config, *serving, error) {
	if h.listen == "" {
		if h.config != "" {
			return nil, nil, flags.Usagef("--http-config needs --http")
		}
		return nil, nil, nil
	}
	c, s := daemon.NewConfig(), &serving{servers: servers, conn: &nats.Conn{}} // the node's, as soon as there is one
	s.c.Zone = zone
	s.register(c)
	f := pflag.NewFlagSet("http", pflag.ContinueOnError)
	c.Register(f)
	args := []string{"--listen", h.listen}
	if h.config != "" {
		args = append(args, "--config", h.config)
	}
	if err := f.Parse(args); err != nil {
		return nil, nil, flags.UsageError{Err: err}
	}
	if err := c.Load(os.Environ(), f); err != nil {
		return nil, nil, flags.UsageError{Err: err}
	}
	return c, s, nil
}
