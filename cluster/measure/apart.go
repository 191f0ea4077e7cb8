//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// apart is a cluster of nodes that are processes of their own. Each searches one query at
// a time with one goroutine, as on a machine of one processor.
type apart struct {
	dir    string
	server *bus.Server
	bus    *bus.Bus
	store  objects.Store
	op     *operate.Operator
	nodes  map[string]*exec.Cmd
	ends
}

func newApart(ctx context.Context, dir string) (a *apart, err error) {
	a = &apart{dir: dir, nodes: map[string]*exec.Cmd{}}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	if a.server, err = bus.StartServer(ctx, bus.ServerOptions{Name: "one", Dir: filepath.Join(dir, "nats"), Listen: "127.0.0.1:0"}); err != nil {
		return a, err
	}
	a.later(a.server.Close)
	conn, err := a.server.Connect("operator")
	if err != nil {
		return a, err
	}
	a.later(conn.Close)
	// A node that is stopped keeps its lease, as one that hangs in a search does.
	if a.bus, err = bus.Setup(ctx, conn, 1, time.Hour); err != nil {
		return a, err
	}
	if a.store, err = objects.OpenFolder(filepath.Join(dir, "store")); err != nil {
		return a, err
	}
	if a.op, err = operate.New(ctx, a.bus, a.store, nil); err != nil {
		return a, err
	}
	a.later(a.op.Close)
	return a, nil
}

// start starts a node and waits until it is seen.
func (a *apart) start(ctx context.Context, name string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "-node", name, "-server", a.server.ClientURL(), "-dir", a.dir)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2") // one searches, one has the messages
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe() // ends with this process, and the node with it
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	a.later(func() { _ = in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	a.nodes[name] = cmd
	return a.op.Watcher().Wait(ctx, func() bool { return len(a.op.Nodes()) == len(a.nodes) })
}

// runNode is a node until its input ends.
func runNode(ctx context.Context, name, server, dir string) error {
	conn, err := bus.Connect(server, name, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	b, err := bus.Open(ctx, conn)
	if err != nil {
		return err
	}
	store, err := objects.OpenFolder(filepath.Join(dir, "store"))
	if err != nil {
		return err
	}
	n, err := node.Start(ctx, b, store, node.Config{Name: name, Dir: filepath.Join(dir, name), Workers: 1, Threads: 1, Renew: 500 * time.Millisecond})
	if err != nil {
		return err
	}
	defer n.Close()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func (a *apart) collection(ctx context.Context, name, path string, shards, replicas int) (*client.Client, error) {
	m, err := a.op.Create(ctx, name, operate.CreateOptions{Shards: shards, Replicas: replicas})
	if err != nil {
		return nil, err
	}
	if m, err = a.op.Fill(ctx, m.ID(), path, a.dir); err != nil {
		return nil, err
	}
	fmt.Printf("%s: shards on %v\n", name, m.Assigned)
	conn, err := a.server.Connect("front-" + name)
	if err != nil {
		return nil, err
	}
	a.later(conn.Close)
	f, err := client.New(ctx, conn, client.Config{Collection: name})
	if err != nil {
		return nil, err
	}
	a.later(func() { _ = f.Close() })
	return f, f.Watcher().Wait(ctx, func() bool {
		for s := range shards {
			if _, err := f.Watcher().Map(name); err != nil || len(f.Watcher().Replicas(m.ID(), 1, s)) != replicas {
				return false
			}
		}
		return true
	})
}

// asked is what became of the queries of a time.
type asked struct {
	took   []float64
	failed int
	last   error
	span   time.Duration
}

func (a *asked) String() string {
	if len(a.took) == 0 {
		return fmt.Sprintf("no answer, %d failed: %v", a.failed, a.last)
	}
	slices.Sort(a.took)
	s := fmt.Sprintf("%d queries, %.0f a second, p50 %.2f, p99 %.2f, most %.1f ms, %d failed", len(a.took), a.rate(), a.took[len(a.took)/2], a.p99(), a.took[len(a.took)-1], a.failed)
	if a.last != nil {
		s += fmt.Sprintf(" (%v)", a.last)
	}
	return s
}

func (a *asked) rate() float64 { return float64(len(a.took)) / a.span.Seconds() }
func (a *asked) p99() float64  { slices.Sort(a.took); return a.took[len(a.took)*99/100] }

// ask asks queries, so many at a time, until stop says so; some may fail.
func ask(ctx context.Context, f *client.Client, qs []search.Query, o search.Options, atATime int, stop func(time.Duration) bool) *asked {
	var all asked
	var mu sync.Mutex
	var wg sync.WaitGroup
	var next atomic.Int64
	began := time.Now()
	for range atATime {
		wg.Go(func() {
			for !stop(time.Since(began)) && ctx.Err() == nil {
				q := qs[int(next.Add(1))%len(qs)]
				at := time.Now()
				_, err := f.Search(ctx, q, o)
				ms := milliseconds(time.Since(at))
				mu.Lock()
				if err == nil {
					all.took = append(all.took, ms)
				} else {
					all.failed, all.last = all.failed+1, err
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	all.span = time.Since(began)
	return &all
}

func lasts(d time.Duration) func(time.Duration) bool {
	return func(t time.Duration) bool { return t > d }
}

// grown is the documents of an index and, behind them, ones drawn from them, with noise of
// half its length on each vector.
func grown(ctx context.Context, path string, tokens int) (vectors.Source, error) {
	ix, err := index.Open(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	defer ix.Close()
	snap, err := ix.Snapshot()
	if err != nil {
		return nil, err
	}
	defer snap.Close()
	dim := snap.Dim()
	var docs []vectors.Document
	n := 0
	for i := range snap.State().Docs {
		v, err := snap.Vectors(i)
		if err != nil {
			return nil, err
		}
		if len(v) == 0 {
			continue
		}
		docs = append(docs, vectors.Document{ID: fmt.Sprint(len(docs)), Tokens: v})
		n += len(v) / dim
	}
	rng := rand.New(rand.NewPCG(1, 0))
	for of := len(docs); n < tokens; {
		v := slices.Clone(docs[rng.IntN(of)].Tokens)
		for t := 0; t < len(v); t += dim {
			length := 0.0
			for j := range v[t : t+dim] {
				v[t+j] += float32(rng.NormFloat64() * .5 / math.Sqrt(float64(dim)))
				length += float64(v[t+j]) * float64(v[t+j])
			}
			for j := range v[t : t+dim] {
				v[t+j] /= float32(math.Sqrt(length))
			}
		}
		docs = append(docs, vectors.Document{ID: fmt.Sprint(len(docs)), Tokens: v})
		n += len(v) / dim
	}
	fmt.Printf("%d documents, %d tokens\n", len(docs), n)
	return vectors.FromDocuments(dim, docs)
}

// allParts are what nodesApart can measure: nodes that come and go, four with a fourth of the
// documents each, four with all, and one of four that hangs.
var allParts = []string{"moving", "shards", "copies", "hung"}

// nodesApart measures what real nodes bring, what one costs that hangs, and what a search
// sees of nodes that come and go.
func nodesApart(ctx context.Context, base, queries string, parts []string, k, tokens int, lasting time.Duration) (err error) {
	for _, part := range parts {
		if !slices.Contains(allParts, part) {
			return fmt.Errorf("-parts %q: there are %v", part, allParts)
		}
	}
	dir, err := os.MkdirTemp("", "plaid-measure-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	qs, err := read(ctx, queries)
	if err != nil {
		return err
	}
	src, err := grown(ctx, base, tokens)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "whole.plaid")
	if _, err := index.Build(ctx, path, src, nil); err != nil {
		return err
	}
	a, err := newApart(ctx, dir)
	if err != nil {
		return err
	}
	defer a.close()
	modes := []search.Options{{K: k, Mode: search.Exhaustive}, {K: k}}
	const many = 32
	both := func(what string, f *client.Client, against []float64) (rates []float64) {
		for i, o := range modes {
			ask(ctx, f, qs, o, many, lasts(lasting/4)) // warms up
			r := ask(ctx, f, qs, o, many, lasts(lasting))
			rates = append(rates, r.rate())
			times := ""
			if against != nil {
				times = fmt.Sprintf(": %.2f times", r.rate()/against[i])
			}
			fmt.Printf("%s, %v, %d at a time%s: %v\n", what, o.Mode, many, times, r)
		}
		return rates
	}
	if err := a.start(ctx, "n0"); err != nil {
		return err
	}
	one, err := a.collection(ctx, "one", path, 1, 1)
	if err != nil {
		return err
	}
	rates := both("1 node with all documents", one, nil)
	for _, name := range []string{"n1", "n2"} {
		if err := a.start(ctx, name); err != nil {
			return err
		}
	}
	if slices.Contains(parts, "moving") {
		moving, err := a.collection(ctx, "moving", path, 4, 2)
		if err != nil {
			return err
		}
		if err := a.comeAndGo(ctx, moving, qs, modes[0], lasting); err != nil {
			return err
		}
	} else if err := a.start(ctx, "n3"); err != nil {
		return err
	}
	for _, c := range []struct {
		name, what       string
		shards, replicas int
	}{{"shards", "4 nodes, each with a fourth", 4, 1}, {"copies", "4 nodes, each with all documents", 1, 4}} {
		if !slices.Contains(parts, c.name) {
			continue
		}
		f, err := a.collection(ctx, c.name, path, c.shards, c.replicas)
		if err != nil {
			return err
		}
		both(c.what, f, rates)
	}
	both("1 node with all documents, again", one, rates)
	if !slices.Contains(parts, "hung") {
		return nil
	}
	f, err := a.collection(ctx, "hung", path, 4, 2)
	if err != nil {
		return err
	}
	return a.hang(ctx, f, qs, modes, lasting)
}

// hang stops a node, and goes on.
func (a *apart) hang(ctx context.Context, f *client.Client, qs []search.Query, modes []search.Options, lasting time.Duration) error {
	healthy := make([]*asked, len(modes))
	for i, o := range modes {
		ask(ctx, f, qs, o, 2, lasts(lasting/4))
		healthy[i] = ask(ctx, f, qs, o, 2, lasts(lasting))
		fmt.Printf("4 nodes, 4 shards on 2 each, %v, 2 at a time, healthy: %v\n", o.Mode, healthy[i])
	}
	if err := a.nodes["n0"].Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for _, what := range []string{"one hangs", "still"} {
		for i, o := range modes {
			r := ask(ctx, f, qs, o, 2, lasts(lasting))
			fmt.Printf("%s, %v: p99 %.2f times: %v\n", what, o.Mode, r.p99()/healthy[i].p99(), r)
		}
	}
	return nil
}

// comeAndGo adds a node under load, and takes one away.
func (a *apart) comeAndGo(ctx context.Context, f *client.Client, qs []search.Query, o search.Options, lasting time.Duration) error {
	ask(ctx, f, qs, o, 2, lasts(lasting/4))
	before := ask(ctx, f, qs, o, 2, lasts(lasting))
	fmt.Printf("3 nodes, 4 shards on 2 each, %v, 2 at a time: %v\n", o.Mode, before)
	for _, c := range []struct {
		what   string
		change func() error
	}{
		{"a node comes (rebalance)", func() error {
			err := a.start(ctx, "n3")
			if err == nil {
				_, err = a.op.Rebalance(ctx, "moving")
			}
			return err
		}},
		{"a node goes (drain)", func() error { _, err := a.op.Drain(ctx, "moving", "n1"); return err }},
	} {
		var done atomic.Bool
		var err error
		var took time.Duration
		go func() {
			at := time.Now()
			err = c.change()
			took = time.Since(at)
			done.Store(true)
		}()
		// Those of before are answered for a while by the nodes that had them, and then not.
		r := ask(ctx, f, qs, o, 2, func(t time.Duration) bool { return t > lasting+12*time.Second && done.Load() })
		if err != nil {
			return err
		}
		fmt.Printf("%s, in %.1f s: p99 %.2f times: %v\n", c.what, took.Seconds(), r.p99()/before.p99(), r)
	}
	m, err := a.op.Watcher().Map("moving")
	if err == nil {
		fmt.Printf("moving: shards on %v\n", m.Assigned)
	}
	return err
}
