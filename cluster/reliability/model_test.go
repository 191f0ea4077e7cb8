//go:build unix

package reliability

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/objects/objectstest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/internal/testing/effort"
)

var (
	kills = flag.Int("kills", 0, "how many processes the model test kills (0: a few)")
	seed  = flag.Uint64("seed", 1, "of the model test")
	cuts  = flag.Int("cuts", 4, "after one of how many kills the model test cuts a log; 0: never")
	logs  = flag.String("logs", "", "folder for the logs of nodes when the model test fails")
	own   = flag.Bool("servers", false, "each node of the model test has a server of its own")
	allOn = flag.Bool("all", false, "the model test has four nodes with a server each, an S3 server that is away at times, and all that nodes do by themselves, often")
)

// counts is what a run of the model test saw.
type counts struct {
	kills, cuts, placed, changes, acknowledged, refused, unknown, searches, answered, turned int
	reasons                                                                                  map[string]int
}

// Random changes and searches, while processes are killed and started again, against one
// map in memory. No answer is wrong, no acknowledged change is lost, and no result lacks
// documents without saying so.
func TestModel(t *testing.T) {
	n := *kills
	if n == 0 {
		if n = 12; !effort.Long() {
			n = 3
		}
	}
	if *allOn {
		everything(t, n)
		return
	}
	runModel(t, start(t, 3, *own, "--heal-after", "1s"), n, *cuts)
}

// everything is the model test with all that nodes do by themselves, and an S3 server behind a
// network with faults.
func everything(t *testing.T, n int) {
	network, address, _ := objectstest.OpenServer(t)
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(*seed, 19))
	var away time.Time // until when nothing reaches it
	fault := func(of ...objectstest.Fault) func(*http.Request) objectstest.Fault {
		return func(*http.Request) objectstest.Fault {
			mu.Lock()
			defer mu.Unlock()
			if time.Now().Before(away) {
				return objectstest.Lost
			}
			if rng.IntN(500) == 0 {
				away = time.Now().Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
			}
			if rng.IntN(50) == 0 {
				return of[rng.IntN(len(of))]
			}
			return objectstest.None
		}
	}
	network.Before = fault(objectstest.Busy, objectstest.Broken, objectstest.Lost, objectstest.Late, objectstest.Twice)
	network.After = fault(objectstest.Broken, objectstest.Lost, objectstest.Late)
	p := startSet(t, 4, true, setup{store: address}, "--heal-after", "1s", "--compare-every", "5s", "--tidy-every", "10s",
		"--checkpoint-every", "2s", "--replace-after", (3 * leaseTime).String())
	ctx, stop := context.WithCancel(p.ctx)
	var tidying sync.WaitGroup
	tidying.Go(func() {
		for ctx.Err() == nil {
			_, _ = p.op.Tidy(ctx, time.Minute) // the store may be away
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Second):
			}
		}
	})
	defer tidying.Wait()
	defer stop()
	runModel(t, p, n, *cuts)
}

// longAbsence: after one of so many kills a node stays away until its shards are given to
// others, if there are any.
const longAbsence = 40

// runModel kills n processes of a cluster of three nodes, and cuts a log after one of so many
// kills; 0: never.
func runModel(t *testing.T, p *processes, n, cuts int) {
	rng := rand.New(rand.NewPCG(*seed, 17))
	m, docs := newModel()
	p.collection("wiki", operate.CreateOptions{Shards: 3, Replicas: 3, Acks: 2}, docs)
	f := p.client(client.Config{Collection: "wiki", Deadline: 4 * time.Second, WriteDeadline: 4 * time.Second})

	var c counts
	c.reasons = map[string]int{}
	ctx, stop := context.WithCancel(p.ctx)
	defer stop()
	var killer sync.WaitGroup
	killer.Go(func() {
		defer stop()
		random := rand.New(rand.NewPCG(*seed, 18))
		for i := range n {
			time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
			name := fmt.Sprint("n", random.IntN(len(p.nodes)))
			p.kill(name)
			c.kills++
			time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
			long := len(p.nodes) > 3 && i%longAbsence == longAbsence/2
			if long {
				c.placed++
				if err := p.op.Watcher().Wait(ctx, func() bool { return !p.assigned("wiki", name) }); err != nil {
					t.Errorf("after kill %d: the shards of %s stay where they are: %v", i, name, err)
					return
				}
			}
			p.again(name)
			// Two at a time would leave no quorum, which is another test.
			if err := p.op.Watcher().Wait(ctx, func() bool { return p.fresh("wiki", name) }); err != nil {
				t.Errorf("after kill %d: %v", i, err)
				return
			}
			if long {
				if _, err := p.op.Rebalance(ctx, "wiki"); err != nil && ctx.Err() == nil {
					t.Errorf("after kill %d: %v", i, err)
					return
				}
			}
			if cuts > 0 && i%cuts == cuts-1 {
				shard := random.IntN(3)
				if !p.cut(ctx, "wiki", shard, random.IntN(6)) {
					continue
				}
				c.cuts++
				if err := p.op.Watcher().Wait(ctx, func() bool { return p.follows("wiki", shard, 3) }); err != nil {
					t.Errorf("after cut %d: %v", c.cuts, err)
					return
				}
			}
		}
	})
	for ctx.Err() == nil {
		if rng.IntN(3) == 0 {
			m.search(t, ctx, f, &c)
		} else {
			m.change(t, ctx, f, rng, &c)
		}
		if t.Failed() {
			break
		}
	}
	stop()
	killer.Wait()
	p.await("all replicas", func() bool { return p.allReady("wiki") })
	last, end := context.WithTimeout(p.ctx, patience)
	defer end()
	before := c.answered
	for c.answered == before && last.Err() == nil && !t.Failed() {
		m.search(t, last, f, &c)
	}
	p.same(last, "wiki", 3)
	t.Logf("seed %d: %+v", *seed, c)
	if *kills > 0 {
		fmt.Fprintf(os.Stderr, "model: seed %d: %d kills, %d cut logs, %d long absences; %d changes, of which %d acknowledged, %d refused, %d of unknown outcome; %d searches, of which %d answered; 0 wrong answers, 0 lost changes, 0 unlabelled partial results: %v\n",
			*seed, c.kills, c.cuts, c.placed, c.changes, c.acknowledged, c.refused, c.unknown, c.searches, c.answered, !t.Failed())
	}
}

// cut takes the last entries off a log, as a failure of its servers may: whoever writes to it
// next makes it grow again, with other entries. It tells whether it came to that.
func (p *processes) cut(ctx context.Context, collection string, shard, last int) bool {
	return cut(ctx, p.bus, p.id(collection), shard, last, func(uint64) {})
}

// cut is [processes.cut]; before is told of the number of each entry that is copied next.
func cut(ctx context.Context, b *bus.Bus, id string, shard, last int, before func(n uint64)) bool {
	name := bus.LogStream(id, shard)
	stream, err := b.JS.Stream(ctx, name)
	if err != nil {
		return false
	}
	state := stream.CachedInfo().State
	var entries [][]byte
	for n := state.FirstSeq; n+uint64(last) <= state.LastSeq; n++ {
		msg, err := stream.GetMsg(ctx, n)
		if err != nil {
			return false
		}
		entries = append(entries, msg.Data)
	}
	if b.JS.DeleteStream(ctx, name) != nil {
		return false
	}
	make := func() error { return b.MakeLog(ctx, id, shard, state.FirstSeq-1) }
	for err = make(); err != nil && ctx.Err() == nil; err = make() {
		time.Sleep(100 * time.Millisecond) // it finds no leader, say
	}
	for i, data := range entries {
		// With an id, as it is asked for again where there is no answer. Meanwhile others may
		// write to the log, and nodes may find it short and heal it. What was copied by then is
		// what is left of it: no failure puts entries of before behind new ones, or leaves one
		// out, which no replica would notice that has those after it.
		n := state.FirstSeq + uint64(i)
		before(n)
		for {
			within, stop := context.WithTimeout(ctx, bus.Attempt)
			_, err := b.JS.Publish(within, bus.LogSubject(id, shard), data, jetstream.WithMsgID(fmt.Sprint("copy ", i)), jetstream.WithExpectLastSequence(n-1))
			stop()
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return true
			}
			if s, lerr := b.JS.Stream(ctx, name); lerr == nil && s.CachedInfo().State.LastSeq >= n {
				is, err := s.GetMsg(ctx, n)
				if err == nil && bytes.Equal(is.Data, data) && s.CachedInfo().State.LastSeq == n {
					break // it came
				}
				return true
			}
		}
	}
	return true
}

// assigned tells whether a node is given shards of a collection.
func (p *processes) assigned(collection, name string) bool {
	m, err := p.op.Watcher().Map(collection)
	return err != nil || slices.ContainsFunc(m.Assigned, func(nodes []string) bool { return slices.Contains(nodes, name) })
}

// follows tells whether so many replicas of a shard answer and follow their log.
func (p *processes) follows(collection string, shard, replicas int) bool {
	m, err := p.op.Watcher().Map(collection)
	if err != nil {
		return false
	}
	n := 0
	for _, r := range p.op.Watcher().Replicas(m.ID(), m.Current.Number, shard) {
		if r.Ready && r.Log == "" && p.alive(r) {
			n++
		}
	}
	return n >= replicas
}

// fresh tells whether a node that was started again answers for all its shards.
func (p *processes) fresh(collection, name string) bool {
	m, err := p.op.Watcher().Map(collection)
	if err != nil {
		return false
	}
	want, ready, there := 0, 0, false
	for _, nodes := range m.Assigned {
		if slices.Contains(nodes, name) {
			want++
		}
	}
	for _, l := range p.op.Watcher().Leases() {
		if l.Node != name || l.Started == p.startedBefore(name) {
			continue
		}
		there = true
		for _, s := range l.Shards {
			if s.Ready && s.Collection == m.ID() && slices.Contains(m.Assigned[s.Shard], name) {
				ready++
			}
		}
	}
	if !there || ready < want {
		return false
	}
	p.note(name)
	return true
}

var lives sync.Map // of nodes: which one was seen last

func (p *processes) startedBefore(name string) string {
	if s, ok := lives.Load(p.dir + name); ok {
		return s.(string)
	}
	return ""
}

func (p *processes) note(name string) {
	for _, l := range p.op.Watcher().Leases() {
		if l.Node == name {
			lives.Store(p.dir+name, l.Started)
		}
	}
}
