package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/internal/cli/flags"
	"github.com/plaid-ir/plaid/server/daemon"
)

// running are the flags of a node.
type running struct {
	c        node.Config
	s        bus.ServerOptions
	tls      tlsFlags
	http     httpFlags
	store    string
	connect  string
	users    []string
	keyFile  string
	replicas int
	lease    time.Duration
	grace    time.Duration
}

func (x *cli) nodeCommand() *cobra.Command {
	var r running
	cmd := &cobra.Command{
		Use: "node --name NAME --data FOLDER --store STORE", Short: "Run a node",
		Long: x.Help(`
Run a node until SIGINT or SIGTERM: it fetches the shards that it is given, answers
queries, and follows the logs of changes. A NATS server is part of it; --join names
those of others, three of which at least keep what they share (--log-replicas 3). With
--connect the node has no server and uses that of another. With --http it also serves
the collections over HTTP, as plaid serve --cluster does in a process of its own.

The first signal ends it in order: others are told, and queries that have come are
answered. The second ends it at once, which loses nothing that was acknowledged.`),
		Example: `  plaid cluster node --name a --data /var/plaid --store s3://bucket/plaid --listen :4222 --cluster-listen :6222 --join b:6222,c:6222 --log-replicas 3`,
		Args:    x.Takes(),
	}
	f := cmd.Flags()
	f.StringVar(&r.c.Name, "name", "", "`NAME` of the node, for good: a-z, 0-9, - and _")
	f.StringVar(&r.c.Zone, "zone", "", "`NAME` of what fails as a whole: a rack, a building")
	f.StringVar(&r.c.Dir, "data", "", "`FOLDER` for shards and for the server")
	f.StringVar(&r.store, "store", "", "object store: a `FOLDER` or s3://BUCKET/PREFIX")
	f.BoolVar(&r.c.Builds, "build", false, "take part in builds")
	f.IntVar(&r.c.Queue, "queue", 64, "how many queries wait at most")
	f.IntVar(&r.c.Threads, "threads", 0, "for one search (default: one a processor)")
	f.DurationVar(&r.c.Linger, "linger", 10*time.Second, "`TIME` for which shards that were given up are still answered for")
	f.DurationVar(&r.c.BuildWait, "build-wait", 30*time.Second, "`TIME` without a sign of life after which another node gets a build")
	f.StringVar(&r.s.Listen, "listen", "", "`HOST:PORT` for clients")
	f.StringVar(&r.s.Cluster, "cluster-listen", "", "`HOST:PORT` for other nodes")
	f.StringSliceVar(&r.s.Routes, "join", nil, "`HOST:PORT` of other nodes, with commas between")
	f.StringVar(&r.connect, "connect", "", "`ADDRESSES` of servers, in place of one in this process")
	f.IntVar(&r.replicas, "log-replicas", 1, "servers that keep each log and the map")
	f.DurationVar(&r.lease, "lease", bus.LeaseTime, "`TIME` after which a node that is not heard of is forgotten")
	f.DurationVar(&r.grace, "grace", 30*time.Second, "`TIME` for queries that run when the node ends")
	r.tls.register(f)
	r.http.register(f)
	f.StringArrayVar(&r.users, "user", nil, "`NAME=ROLE` of a certificate: front, node or operator; may be repeated; without any, whoever has a certificate may do everything")
	f.StringVar(&r.keyFile, "key-file", "", "`FILE` with a key that logs are enciphered with on the disk")
	cmd.RunE = x.RunE(func(ctx context.Context, _ []string) error {
		if err := r.check(); err != nil {
			return err
		}
		r.c.Backend, r.c.Logger = x.Backend(), x.Logger()
		return r.run(ctx, cmd.ErrOrStderr(), func(format string, args ...any) { x.Hint(format, args...) })
	})
	return cmd
}

func (r *running) check() error {
	for _, f := range []struct{ name, value string }{{"name", r.c.Name}, {"data", r.c.Dir}, {"store", r.store}} {
		if f.value == "" {
			return flags.Usagef("--%s is missing", f.name)
		}
	}
	switch {
	case r.connect != "" && (r.s.Listen != "" || r.s.Cluster != "" || r.s.Routes != nil || r.users != nil || r.keyFile != ""):
		return flags.Usagef("--connect does not go with flags of a server in this process")
	case r.s.Routes != nil && r.s.Cluster == "":
		return flags.Usagef("--join needs --cluster-listen")
	case r.lease < 3*time.Second:
		return flags.Usagef("--lease: at least 3s")
	}
	r.c.Renew = r.lease / 3
	for _, u := range r.users {
		at := strings.LastIndexByte(u, '=')
		if at < 1 {
			return flags.Usagef("--user %q is not NAME=ROLE", u)
		}
		role, err := bus.ParseRole(u[at+1:])
		if err != nil {
			return flags.UsageError{Err: err}
		}
		r.s.Users = append(r.s.Users, bus.User{Name: u[:at], Role: role})
	}
	return nil
}

func (r *running) run(ctx context.Context, log io.Writer, say func(string, ...any)) (err error) {
	settings, front, err := r.http.load(r.c.Zone, r.connect)
	if err != nil {
		return err
	}
	store, err := objects.Open(r.store)
	if err != nil {
		return err
	}
	conn, stop, err := r.reach(ctx, say)
	if err != nil {
		return err
	}
	defer stop()
	b, err := r.open(ctx, conn)
	if err != nil {
		return err
	}
	r.c.Dir = filepath.Join(r.c.Dir, "shards")
	n, err := node.Start(ctx, b, store, r.c)
	if err != nil {
		return err
	}
	defer n.Close()
	serves := make(chan error, 1)
	if settings != nil {
		front.conn, front.store = conn, r.store
		go func() { serves <- daemon.Run(ctx, settings, log, os.Environ(), nil) }()
	}
	var told sync.WaitGroup
	defer told.Wait()
	starting, started := context.WithCancel(ctx)
	defer started()
	told.Go(func() {
		if n.Ready(starting) == nil {
			say("node %s answers", r.c.Name)
		}
	})
	var served error
	select {
	case served = <-serves: // it fails before it is told to end
	case <-ctx.Done():
		if settings != nil {
			served = <-serves // requests that run need the node
		}
	}
	within, end := context.WithTimeout(context.WithoutCancel(ctx), r.grace)
	defer end()
	if err := n.Drain(within); err != nil {
		served = errors.Join(served, fmt.Errorf("ending node %s: %w", r.c.Name, err))
	}
	return served
}

// reach connects to the server, which is in this process or is not.
func (r *running) reach(ctx context.Context, say func(string, ...any)) (*nats.Conn, func(), error) {
	t, err := r.tls.config()
	if err != nil {
		return nil, nil, err
	}
	if r.connect != "" {
		conn, err := bus.Connect(r.connect, r.c.Name, t)
		if err != nil {
			return nil, nil, err
		}
		return conn, conn.Close, nil
	}
	if r.keyFile != "" {
		key, err := os.ReadFile(r.keyFile)
		if err != nil {
			return nil, nil, err
		}
		if r.s.Key = strings.TrimSpace(string(key)); len(r.s.Key) < 16 {
			return nil, nil, fmt.Errorf("%s: %w: a key has 16 characters at least", r.keyFile, bus.ErrServer)
		}
	}
	r.s.Name, r.s.Dir, r.s.TLS, r.s.Logger = r.c.Name, filepath.Join(r.c.Dir, "nats"), t, r.c.Logger
	s, err := bus.StartServer(ctx, r.s)
	if err != nil {
		return nil, nil, err
	}
	if r.s.Listen != "" {
		say("clients reach %s at %s", r.c.Name, s.ClientURL())
	}
	if r.s.Cluster != "" {
		say("nodes reach %s at %s", r.c.Name, s.ClusterAddr())
	}
	conn, err := s.Connect(r.c.Name)
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	return conn, func() { conn.Close(); s.Close() }, nil
}

// open finds the buckets, or makes them; a node without a server waits for another to.
func (r *running) open(ctx context.Context, conn *nats.Conn) (*bus.Bus, error) {
	if r.connect == "" {
		return bus.Setup(ctx, conn, r.replicas, r.lease)
	}
	for {
		b, err := bus.Open(ctx, conn)
		if err == nil {
			return b, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
