package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/attribute"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cmd/plaid/daemon"
	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/index"
)

// running are the flags of a node.
type running struct {
	c        node.Config
	s        bus.ServerOptions
	tls      tlsFlags
	http     httpFlags
	store    string
	connect  string
	metrics  string // address
	format   string // of the log
	level    string
	users    []string
	keyFile  string
	replicas int
	lease    time.Duration
	grace    time.Duration
	tidy     time.Duration // between two times
	replace  time.Duration // after which shards of a node that is gone are given to others
	// healAfter is the time after which the log of a replica that is another one is dealt with,
	// compare that between two times that replicas are compared.
	healAfter, compare time.Duration
	checkpoint         time.Duration // between two times that long logs are looked for
	monitor            *monitor
	node               *node.Node // as soon as it runs
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
With --metrics it shows /metrics for Prometheus, /livez, and /readyz: 200 while it
answers for all that it is given, else 503 with what it waits for.

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
	f.DurationVar(&r.tidy, "tidy-every", 6*time.Hour, "`TIME` between two times that objects which nobody needs are removed; 0: never")
	f.DurationVar(&r.replace, "replace-after", 10*time.Minute, "`TIME` after which the shards of a node that is gone are given to others; 0: never")
	f.DurationVar(&r.healAfter, "heal-after", 2*time.Minute, "`TIME` after which a shard whose log has lost entries is healed, if it is sure what is right; 0: never")
	f.DurationVar(&r.compare, "compare-every", 24*time.Hour, "`TIME` between two times that replicas are read and compared; 0: never")
	f.DurationVar(&r.checkpoint, "checkpoint-every", 6*time.Hour, "`TIME` between two times that shards whose logs have become long are put into the object store, and these logs cut off; 0: never")
	f.StringVar(&r.metrics, "metrics", "", "`HOST:PORT` to show /metrics, /livez and /readyz at over HTTP, to whoever reaches it")
	f.Var(flags.Choice(&r.format, "text", daemon.LogFormats...), "log-format", "form of the log on stderr")
	f.Var(flags.Choice(&r.level, "info", daemon.LogLevels...), "log-level", "least level of the log")
	r.tls.register(f)
	r.http.register(f)
	f.StringArrayVar(&r.users, "user", nil, "`NAME=ROLE` of a certificate: front, node or operator; may be repeated; without any, whoever has a certificate may do everything")
	f.StringVar(&r.keyFile, "key-file", "", "`FILE` with a key that logs are enciphered with on the disk")
	cmd.RunE = x.RunE(func(ctx context.Context, _ []string) error {
		if err := r.check(); err != nil {
			return err
		}
		r.c.Logger = daemon.Logger(cmd.ErrOrStderr(), r.format, r.level)
		say := x.Hint
		if r.format == "json" { // then all lines are
			say = func(format string, args ...any) { r.c.Logger.Info(fmt.Sprintf(format, args...)) }
		}
		return r.run(ctx, cmd.ErrOrStderr(), say)
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
	case r.healAfter < 0 || r.compare < 0 || r.tidy < 0 || r.checkpoint < 0:
		return flags.Usagef("--heal-after, --compare-every, --tidy-every and --checkpoint-every: no time is negative")
	case r.replace != 0 && r.replace < 3*r.lease:
		return flags.Usagef("--replace-after: three times the lease at least, or 0")
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
	r.monitor = newMonitor(cmp.Or(r.c.Backend, "cpu"))
	hide, err := r.monitor.serve(ctx, r.metrics, r.c.Logger, say)
	if err != nil {
		return err
	}
	defer hide()
	conn, stop, err := r.reach(ctx, say)
	if err != nil {
		return err
	}
	defer stop()
	spans, err := r.traced()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, spans()) }()
	quorum := fmt.Sprintf("no quorum of the servers answers yet (--log-replicas %d)", r.replicas)
	r.monitor.wait(quorum)
	hint := time.AfterFunc(hintAfter, func() { say("waiting: %s", quorum) })
	b, err := r.open(ctx, conn)
	hint.Stop()
	if err != nil {
		return err
	}
	r.c.Dir = filepath.Join(r.c.Dir, "shards")
	n, err := node.Start(ctx, b, store, r.c)
	if err != nil {
		return err
	}
	defer n.Close()
	r.node = n
	r.monitor.show(n)
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
	if r.tidy > 0 {
		told.Go(func() { r.tidyUp(starting, b, store) })
	}
	o := operate.Over(b, n.Watcher(), store, r.c.Logger)
	told.Go(func() { r.care(starting, b, o) })
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

// traced lets spans be sent to where the environment says, as plaid serve does, until what is
// returned is called.
func (r *running) traced() (end func() error, err error) {
	p, err := daemon.OpenTracing(context.Background(), index.Version(), attribute.String("service.instance.id", r.c.Name))
	if err != nil || p == nil {
		return func() error { return nil }, err
	}
	r.c.Tracing = p
	return func() error {
		ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
		defer stop()
		return p.Shutdown(ctx)
	}, nil
}

// tidyUp removes what nobody needs from the object store, now and then, until ctx ends.
// Nodes may do so at the same time; they rather do not.
func (r *running) tidyUp(ctx context.Context, b *bus.Bus, store objects.Store) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(r.tidy/2 + rand.N(r.tidy)):
		}
		o, err := operate.New(ctx, b, store, r.c.Logger)
		if err == nil {
			var report *operate.TidyReport
			report, err = o.Tidy(ctx, 0)
			o.Close()
			if err == nil && report.Objects+report.Versions+report.Leftovers > 0 {
				r.c.Logger.Info("objects that nobody needs are removed", "objects", report.Objects, "bytes", report.Bytes, "versions of maps", report.Versions, "leftovers", report.Leftovers)
			}
		}
		if err != nil && ctx.Err() == nil {
			r.c.Logger.Warn("the object store is not tidied", "error", err)
		}
	}
}

// reach connects to the server, which is in this process or is not.
func (r *running) reach(ctx context.Context, say func(string, ...any)) (*nats.Conn, func(), error) {
	t, err := r.tls.config()
	if err != nil {
		return nil, nil, err
	}
	if r.connect != "" {
		r.monitor.wait(noServer(r.connect)) // it may be started after this node
		conn, err := reach(ctx, r.connect, r.c.Name, t, func() { say(waitingFor, r.connect) })
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
	return openBus(ctx, conn, nil)
}
