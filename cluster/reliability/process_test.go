//go:build unix

package reliability

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/command"
	"github.com/plaid-ir/plaid/cluster/internal/freeports"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	plaid "github.com/plaid-ir/plaid/cmd/plaid/command"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

// The test binary is plaid too.
func TestMain(m *testing.M) {
	if os.Getenv("PLAID_TEST_COMMAND") != "" {
		if most, err := strconv.ParseUint(os.Getenv("PLAID_TEST_FILE_LIMIT"), 10, 64); err == nil {
			// A write beyond that fails, as one to a full disk does.
			if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
				panic(err)
			}
		}
		os.Exit(plaid.Main(command.Extension()))
	}
	os.Exit(m.Run())
}

const (
	dim = 8
	// patience is much longer than anything takes on an idle machine.
	patience = 3 * time.Minute
)

// processes is a cluster: a server in the test, or one in each node.
type processes struct {
	t     testing.TB
	ctx   context.Context
	dir   string
	url   string // of servers
	ports []string
	bus   *bus.Bus
	op    *operate.Operator
	store objects.Store

	clocks   map[string]time.Duration // how far the clocks of nodes are off
	programs map[string]string        // of nodes that do not run this one

	mu    sync.Mutex
	nodes map[string]*process
}

type process struct {
	name string
	args []string
	cmd  *exec.Cmd
	past string // logs of processes of this name before
	log  bytes.Buffer
	done chan struct{}
}

// leaseTime is that of nodes: long enough that a disk which is busy does not end a lease.
const leaseTime = 8 * time.Second

// start makes a cluster of nodes n0 … over one server in the test, or with own servers.
func start(t testing.TB, nodes int, own bool, more ...string) *processes {
	t.Helper()
	return startSet(t, nodes, own, setup{}, more...)
}

// setup is what may be odd about a cluster.
type setup struct {
	clocks map[string]time.Duration // how far the clocks of nodes are off
	links  map[string]*link         // what nodes reach the server by
	// programs of nodes that do not run this one.
	programs map[string]string
	// store is the address of the object store; "": in a folder.
	store string
}

// long skips tests of nodes that hang, disks that fill up and links that break in the short form.
func long(t testing.TB) {
	t.Helper()
	if !effort.Long() {
		t.Skip("a test of failures: PLAID_LONG=1")
	}
}

func startSet(t testing.TB, nodes int, own bool, o setup, more ...string) *processes {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), time.Hour)
	t.Cleanup(stop)
	p := &processes{t: t, ctx: ctx, dir: t.TempDir(), nodes: map[string]*process{}, clocks: o.clocks, programs: o.programs}
	var err error
	store := cmp.Or(o.store, filepath.Join(p.dir, "store"))
	p.store, err = objects.Open(store)
	require.NoError(t, err)
	args := func(i int) []string {
		return append([]string{"--name", fmt.Sprint("n", i), "--data", filepath.Join(p.dir, fmt.Sprint("n", i)), "--store", store,
			"--build", "--lease", leaseTime.String(), "--linger", "500ms", "--build-wait", "4s", "--threads", "1"}, more...)
	}
	if own {
		p.serveAll(nodes, args)
	} else {
		s, err := bus.StartServer(ctx, bus.ServerOptions{Name: "hub", Dir: filepath.Join(p.dir, "nats"), Listen: "127.0.0.1:0"})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		p.url = s.ClientURL()
		p.connect()
		for i := range nodes {
			url, name := p.url, fmt.Sprint("n", i)
			if l := o.links[name]; l != nil {
				url = "nats://" + l.open(strings.TrimPrefix(url, "nats://"))
			}
			p.run(name, append(args(i), "--connect", url)...)
		}
	}
	t.Cleanup(p.killAll)
	p.op, err = operate.New(ctx, p.bus, p.store, nil)
	require.NoError(t, err)
	t.Cleanup(p.op.Close)
	p.await("nodes", func() bool { return len(p.op.Nodes()) == nodes })
	for i := range nodes {
		p.note(fmt.Sprint("n", i))
	}
	return p
}

func (p *processes) conn(name string) *nats.Conn {
	p.t.Helper()
	var conn *nats.Conn
	var err error
	for range 600 { // servers of their own come up one after another
		if conn, err = bus.Connect(p.url, name, nil); err == nil {
			p.t.Cleanup(conn.Close)
			return conn
		}
		time.Sleep(100 * time.Millisecond)
	}
	require.NoError(p.t, err)
	return nil
}

func (p *processes) connect() {
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	var err error
	p.bus, err = bus.Setup(ctx, p.conn("operator"), 1, leaseTime)
	require.NoError(p.t, err)
}

// run starts a node, or starts one again.
func (p *processes) run(name string, args ...string) {
	p.t.Helper()
	self, err := os.Executable()
	require.NoError(p.t, err)
	if program := p.programs[name]; program != "" {
		self = program
	}
	x := &process{name: name, args: args, done: make(chan struct{})}
	x.cmd = exec.Command(self, append([]string{"cluster", "node"}, args...)...)
	x.cmd.Env = append(os.Environ(), "PLAID_TEST_COMMAND=1", "GOMAXPROCS=2")
	x.cmd.Stderr, x.cmd.Stdout = &x.log, &x.log
	if by := p.clocks[name]; by != 0 {
		if err := startSkewed(x.cmd, by); errors.Is(err, errSkew) {
			p.t.Skip(err)
		}
	} else {
		require.NoError(p.t, x.cmd.Start())
	}
	go func() { _ = x.cmd.Wait(); close(x.done) }()
	p.mu.Lock()
	if before := p.nodes[name]; before != nil && *logs != "" {
		x.past = before.past + before.log.String() + "--- again\n"
	}
	p.nodes[name] = x
	p.mu.Unlock()
}

func (p *processes) node(name string) *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nodes[name]
}

// kill ends a process as a power failure would.
func (p *processes) kill(name string) {
	x := p.node(name)
	_ = x.cmd.Process.Kill()
	<-x.done
}

func (p *processes) again(name string) { p.run(name, p.node(name).args...) }

func (p *processes) killAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.nodes {
		_ = x.cmd.Process.Kill()
		<-x.done
		if p.t.Failed() {
			p.t.Logf("%s: %s", x.name, last(x.log.String()))
			if *logs != "" {
				_ = os.WriteFile(filepath.Join(*logs, fmt.Sprintf("%d-%s.log", *seed, x.name)), []byte(x.past+x.log.String()), 0o600)
			}
		}
	}
}

func last(s string) string { return s[max(0, len(s)-3000):] }

func (p *processes) await(what string, ok func() bool) {
	p.t.Helper()
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	if err := p.op.Watcher().Wait(ctx, ok); err != nil {
		for _, l := range p.op.Watcher().Leases() {
			p.t.Logf("%s: %+v", l.Node, l.Shards)
		}
		p.t.Fatalf("waiting for %s: %v", what, err)
	}
}

// allReady tells whether the assigned replicas of a collection answer.
func (p *processes) allReady(collection string) bool {
	m, err := p.op.Watcher().Map(collection)
	if err != nil || m.Current == nil {
		return false
	}
	for s, nodes := range m.Assigned {
		n := 0
		for _, r := range p.op.Watcher().Replicas(m.ID(), m.Current.Number, s) {
			if r.Ready && p.alive(r) {
				n++
			}
		}
		if n < len(nodes) {
			return false
		}
	}
	return true
}

// same waits until the replicas of each shard answer, so many, which are alike then. One
// that cannot follow its log for a moment, as while that finds a leader, does not.
func (p *processes) same(ctx context.Context, collection string, replicas int) {
	p.t.Helper()
	for {
		changed := p.op.Watcher().Changed()
		checks, err := p.op.Verify(ctx, collection)
		if !slices.ContainsFunc(checks, func(c operate.Check) bool {
			return len(c.Replicas) < replicas || slices.ContainsFunc(c.Replicas, func(r operate.ReplicaCheck) bool { return r.Error != "" })
		}) {
			require.NoError(p.t, err, "%+v", checks)
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			p.t.Fatalf("replicas do not answer: %v: %+v", err, checks)
		}
	}
}

// alive tells a lease of the process that runs from that of one before.
func (p *processes) alive(r topology.Replica) bool {
	x := p.node(r.Node)
	select {
	case <-x.done:
		return false
	default:
		return true
	}
}

// id is the identity of the collection that has a name.
func (p *processes) id(name string) string {
	p.t.Helper()
	m, err := p.op.Watcher().Map(name)
	require.NoError(p.t, err)
	return m.ID()
}

func (p *processes) collection(name string, o operate.CreateOptions, docs []vectors.Document) {
	p.t.Helper()
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	_, err := p.op.Create(ctx, name, o)
	require.NoError(p.t, err)
	_, err = p.op.Build(ctx, name, searchtest.Source(p.t, dim, docs), operate.BuildOptions{Train: index.BuildOptions{Nbits: 2, Centroids: 8, Threads: 1}, Dir: p.t.TempDir()})
	require.NoError(p.t, err)
	_, err = p.op.Promote(ctx, name)
	require.NoError(p.t, err)
}

func (p *processes) client(c client.Config) *client.Client {
	p.t.Helper()
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	f, err := client.New(ctx, p.conn("front"), c)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = f.Close() })
	return f
}

// serveAll gives each node a server; three or more keep three copies of what they share.
func (p *processes) serveAll(nodes int, args func(int) []string) {
	p.ports = freeports.Find(p.t, 2*nodes)
	var urls, routes []string
	for i := range nodes {
		urls = append(urls, "nats://127.0.0.1:"+p.ports[2*i])
		routes = append(routes, "127.0.0.1:"+p.ports[2*i+1])
	}
	p.url = strings.Join(urls, ",")
	for i := range nodes {
		own := append(args(i), "--listen", "127.0.0.1:"+p.ports[2*i])
		if nodes > 1 {
			own = append(own, "--cluster-listen", routes[i], "--join", strings.Join(routes, ","), "--log-replicas", "3")
		}
		p.run(fmt.Sprint("n", i), own...)
	}
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	var err error
	p.bus, err = bus.Setup(ctx, p.conn("operator"), min(nodes, 3), leaseTime)
	require.NoError(p.t, err)
}
