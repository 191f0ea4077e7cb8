//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// simulated is a cluster of which the server, the messages and the front are real, and
// the nodes sleep for as long as a search takes: so each has a processor of its own,
// also where all run on one machine.
type simulated struct {
	docs    int
	stretch float64 // service times are so many times as long as measured
	rng     *rand.Rand
	store   *topology.Store
	b       *bus.Bus
	server  *bus.Server
	ends
}

func newSimulated(ctx context.Context, dir string, docs int, stretch float64, seed uint64) (s *simulated, err error) {
	s = &simulated{docs: docs, stretch: stretch, rng: rand.New(rand.NewPCG(seed, 3))}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.server, err = bus.StartServer(ctx, bus.ServerOptions{Name: "one", Dir: filepath.Join(dir, "nats"), Listen: "127.0.0.1:0"}); err != nil {
		return s, err
	}
	s.later(s.server.Close)
	conn, err := s.connect("operator")
	if err != nil {
		return s, err
	}
	if s.b, err = bus.Setup(ctx, conn, 1, time.Hour); err != nil {
		return s, err
	}
	store, err := objects.OpenFolder(filepath.Join(dir, "maps"))
	s.store = topology.NewStore(store, s.b.Maps)
	return s, err
}

func (s *simulated) connect(name string) (*nats.Conn, error) {
	conn, err := bus.Connect(s.server.ClientURL(), name, nil)
	if err == nil {
		s.later(conn.Close)
	}
	return conn, err
}

// collection makes nodes with shards of a collection, each shard on so many of them,
// and a front. A node searches one query at a time; service are the measured times.
func (s *simulated) collection(ctx context.Context, name string, nodes, shards, replicas, dim int, service []float64) (*client.Client, []*simulatedNode, error) {
	var members []topology.Member
	for i := range nodes {
		members = append(members, topology.Member{Name: fmt.Sprintf("%s-n%d", name, i)})
	}
	m, err := topology.New(name, shards, replicas, 1, members)
	if err != nil {
		return nil, nil, err
	}
	ref := objects.Ref{Name: "none", Size: 1, SHA256: fmt.Sprintf("%064d", 0)}
	m.Last, m.Current = 1, &topology.Generation{Number: 1, Codec: ref, Dim: dim, Start: make([]uint64, shards)}
	for range shards {
		m.Current.Shards = append(m.Current.Shards, topology.Shard{Object: ref, Documents: uint64(s.docs / shards)})
	}
	if err := s.store.Create(ctx, m); err != nil {
		return nil, nil, err
	}
	var all []*simulatedNode
	for _, member := range members {
		n := &simulatedNode{name: member.Name, docs: s.docs / shards, service: service, stretch: s.stretch, rng: rand.New(rand.NewPCG(s.rng.Uint64(), 1)), queue: make(chan *nats.Msg, 4096)}
		conn, err := s.connect(n.name)
		if err != nil {
			return nil, nil, err
		}
		if _, err := conn.Subscribe(bus.QuerySubject(n.name), func(msg *nats.Msg) { n.queue <- msg }); err != nil {
			return nil, nil, err
		}
		if err := conn.Flush(); err != nil {
			return nil, nil, err
		}
		go n.work(ctx)
		lease := topology.Lease{Node: n.name}
		for shard, on := range m.Assigned {
			if slices.Contains(on, n.name) {
				lease.Shards = append(lease.Shards, topology.Serving{Collection: name, Generation: 1, Shard: shard, Ready: true, Documents: uint64(n.docs)})
			}
		}
		text, err := json.Marshal(lease)
		if err == nil {
			_, err = s.b.Nodes.Put(ctx, n.name, text)
		}
		if err != nil {
			return nil, nil, err
		}
		all = append(all, n)
	}
	conn, err := s.connect("front")
	if err != nil {
		return nil, nil, err
	}
	f, err := client.New(ctx, conn, client.Config{Collection: name})
	if err != nil {
		return nil, nil, err
	}
	s.later(func() { _ = f.Close() })
	return f, all, f.Watcher().Wait(ctx, func() bool {
		_, err := f.Watcher().Map(name)
		return err == nil && len(f.Watcher().Replicas(name, 1, 0)) == replicas && len(f.Watcher().Replicas(name, 1, shards-1)) == replicas
	})
}

// simulatedNode answers queries one after another.
type simulatedNode struct {
	name    string
	docs    int // of a shard
	service []float64
	stretch float64
	rng     *rand.Rand
	queue   chan *nats.Msg
	hung    atomic.Bool
}

func (n *simulatedNode) work(ctx context.Context) {
	owed := time.Duration(0) // sleeps are longer than asked for, and the next one is shorter
	for {
		select {
		case msg := <-n.queue:
			q, err := wire.DecodeQuery(msg.Data)
			if err != nil || n.hung.Load() {
				continue
			}
			began := time.Now()
			want := time.Duration(n.service[n.rng.IntN(len(n.service))]*n.stretch*1e6) - owed
			if want > 0 {
				time.Sleep(want)
			}
			a := n.answer(q)
			a.Waiting = len(n.queue)
			if text, err := a.Encode(); err == nil {
				_ = msg.Respond(text)
			}
			owed = min(time.Since(began)-want, want)
		case <-ctx.Done():
			return
		}
	}
}

// answer has the best hits of documents with random scores.
func (n *simulatedNode) answer(q *wire.Query) *wire.Answer {
	a := &wire.Answer{ID: q.ID, Generation: q.Generation}
	docs := n.docs * len(q.Shards)
	score := 1.0
	for i := range min(q.K, docs) {
		if q.Keep > 0 && i == q.Keep {
			a.More = true
			break
		}
		score *= math.Pow(n.rng.Float64(), 1/float64(docs-i)) // the largest of those that are left
		a.Hits = append(a.Hits, wire.Hit{Shard: q.Shards[0].Shard, Hit: search.Hit{Ordinal: uint32(i), ID: fmt.Sprint("document", i), Score: float32(score)}})
	}
	for _, s := range q.Shards {
		a.Shards = append(a.Shards, wire.ShardState{Shard: s.Shard, Documents: uint64(n.docs)})
	}
	return a
}

// load asks queries, so many at a time, and returns how many a second were answered,
// and how long each took.
func load(ctx context.Context, f *client.Client, qs []search.Query, o search.Options, queries, atATime int) (perSecond float64, took []float64, err error) {
	took = make([]float64, queries)
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, atATime)
	began := time.Now()
	for c := range atATime {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < queries; i = int(next.Add(1)) - 1 {
				began := time.Now()
				if _, errs[c] = f.Search(ctx, qs[i%len(qs)], o); errs[c] != nil {
					return
				}
				took[i] = milliseconds(time.Since(began))
			}
		})
	}
	wg.Wait()
	perSecond = float64(queries) / time.Since(began).Seconds()
	return perSecond, took, errors.Join(errs...)
}

// service are times of searches, of a collection and of a fourth of it, which is told that it is
// one, or is not (alone): for each query the least of several, in milliseconds of a processor.
type service struct{ whole, fourth, alone []float64 }

// processor is the time that this process has had of processors.
func processor() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err) // it cannot be
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func sum(times []float64) (s float64) {
	for _, t := range times {
		s += t
	}
	return s
}

// serviceTimes measures searches with each of some options.
func serviceTimes(ctx context.Context, dir string, docs vectors.Files, qs []search.Query, os []search.Options, passes int) (times []service, n int, err error) {
	src, err := vectors.Open(ctx, docs)
	if err != nil {
		return nil, 0, err
	}
	defer src.Close()
	path := filepath.Join(dir, "whole.plaid")
	if _, err := index.Build(ctx, path, src, nil); err != nil {
		return nil, 0, err
	}
	parts := filepath.Join(dir, "parts")
	ix, err := index.Open(ctx, path, nil)
	if err != nil {
		return nil, 0, err
	}
	snap, err := ix.Snapshot()
	if err == nil {
		_, err = index.Split(ctx, snap, parts, 4, index.ByHash, nil)
		err = errors.Join(err, snap.Close())
	}
	if err := errors.Join(err, ix.Close()); err != nil {
		return nil, 0, err
	}
	one, closeOne, err := engine(ctx, path)
	if err != nil {
		return nil, 0, err
	}
	defer closeOne()
	part, closePart, err := engine(ctx, filepath.Join(parts, index.PartName(1, 4)))
	if err != nil {
		return nil, 0, err
	}
	defer closePart()
	for _, o := range os {
		t := service{make([]float64, len(qs)), make([]float64, len(qs)), make([]float64, len(qs))}
		of := o
		of.Share = .25
		least := func(of *float64, took time.Duration) { // what else the machine does is in the others
			if ms := milliseconds(took); *of == 0 || ms < *of {
				*of = ms
			}
		}
		for range passes + 1 {
			for i, q := range qs {
				for _, s := range []struct {
					e  *search.Engine
					o  search.Options
					to []float64
				}{{one, o, t.whole}, {part, o, t.alone}, {part, of, t.fourth}} {
					began := processor()
					if _, err := s.e.Search(ctx, q, s.o); err != nil {
						return nil, 0, err
					}
					least(&s.to[i], processor()-began)
				}
			}
		}
		times = append(times, t)
	}
	return times, src.Len(), nil
}

func engine(ctx context.Context, path string) (*search.Engine, func(), error) {
	ix, err := index.Open(ctx, path, nil)
	if err != nil {
		return nil, nil, err
	}
	e, err := search.New(ctx, ix, &search.EngineOptions{Threads: 1})
	if err != nil {
		return nil, nil, errors.Join(err, ix.Close())
	}
	return e, func() { _ = e.Close(); _ = ix.Close() }, nil
}

// severalNodes measures what more nodes bring, and what one that hangs costs.
func severalNodes(ctx context.Context, docs vectors.Files, queries string, k, passes int, stretch float64, seed uint64, only bool) (err error) {
	dir, err := os.MkdirTemp("", "plaid-measure-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	qs, err := read(ctx, queries)
	if err != nil {
		return err
	}
	pruned, exhaustive := search.Options{K: k}, search.Options{K: k, Mode: search.Exhaustive}
	times, n, err := serviceTimes(ctx, dir, docs, qs, []search.Options{pruned, exhaustive}, passes)
	if err != nil {
		return err
	}
	for i, mode := range []search.Mode{search.Pruned, search.Exhaustive} {
		whole := sum(times[i].whole)
		fmt.Printf("%v: a search takes %.2f ms of a processor, of a fourth of the documents %.2f ms (means), %.3f of it, or %.3f where the fourth does not know that it is one; nodes take %.0f times as long, one query at a time\n",
			mode, whole/float64(len(qs)), sum(times[i].fourth)/float64(len(qs)), sum(times[i].fourth)/whole, sum(times[i].alone)/whole, stretch)
	}
	if only {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s, err := newSimulated(ctx, dir, n, stretch, seed)
	if err != nil {
		return err
	}
	defer s.close()
	const asked, atATime = 1000, 32
	one := 0.0
	for _, c := range []struct {
		name, what              string
		nodes, shards, replicas int
		service                 []float64
	}{
		{"one", "exhaustive, 1 node with all documents", 1, 4, 1, times[1].whole},
		{"shards", "exhaustive, 4 nodes, each with a fourth", 4, 4, 1, times[1].fourth},
		{"one-pruned", "pruned, 1 node with all documents", 1, 4, 1, times[0].whole},
		{"shards-pruned", "pruned, 4 nodes, each with a fourth", 4, 4, 1, times[0].fourth},
		{"copies-pruned", "pruned, 4 nodes, each with all documents", 4, 1, 4, times[0].whole},
	} {
		f, _, err := s.collection(ctx, c.name, c.nodes, c.shards, c.replicas, qs[0].Dim, c.service)
		if err != nil {
			return err
		}
		rate, took, err := load(ctx, f, qs, pruned, asked, atATime)
		if err != nil {
			return err
		}
		if c.nodes == 1 {
			one = rate
		}
		slices.Sort(took)
		fmt.Printf("%s: %.0f queries a second, %.2f times; p50 %.1f, p99 %.1f ms\n", c.what, rate, rate/one, took[len(took)/2], took[len(took)*99/100])
	}
	f, nodes, err := s.collection(ctx, "hung", 4, 4, 2, qs[0].Dim, times[1].fourth)
	if err != nil {
		return err
	}
	var healthy float64
	for _, what := range []string{"healthy", "one hangs", "still"} {
		_, took, err := load(ctx, f, qs, pruned, 2*asked, 2)
		if err != nil {
			return err
		}
		slices.Sort(took)
		p99 := took[len(took)*99/100]
		if healthy == 0 {
			healthy = p99
		}
		fmt.Printf("4 nodes, 4 shards on 2 each, 2 queries at a time, %s: p50 %.1f, p99 %.1f (%.2f times), most %.0f ms\n", what, took[len(took)/2], p99, p99/healthy, took[len(took)-1])
		nodes[0].hung.Store(true)
	}
	return nil
}
