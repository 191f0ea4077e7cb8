//go:build unix

package reliability

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
)

// behind is a cluster of two nodes, n1 behind a link, with a collection of which each
// has all shards, and changes that count when one has them.
func behind(t *testing.T, seed uint64) (p *processes, l *link, f *client.Client, maker *searchtest.Maker) {
	long(t)
	l = newLink(t)
	p = startSet(t, 2, false, setup{links: map[string]*link{"n1": l}})
	docs, maker := documents(seed, 60)
	p.collection("wiki", operate.CreateOptions{Shards: 4, Replicas: 2, Acks: 1}, docs)
	// A query that is lost on its way is asked elsewhere after a third of the deadline.
	f = p.client(client.Config{Collection: "wiki", Deadline: 15 * time.Second, WriteDeadline: patience})
	complete(t, f, maker, 20, 60)
	return p, l, f, maker
}

// put replaces some documents, so that their number stays.
func put(t *testing.T, f *client.Client, maker *searchtest.Maker, n int) {
	t.Helper()
	_, err := f.Add(t.Context(), searchtest.Source(t, dim, maker.Docs("d", n, 4)), &client.WriteOptions{Replace: true})
	require.NoError(t, err)
}

// settled waits until both nodes have all changes, and compares them.
func settled(t *testing.T, p *processes) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	p.same(ctx, "wiki", 2)
}

// A node behind a slow link is asked less, and nothing is missing.
func TestSlowLink(t *testing.T) {
	p, l, f, maker := behind(t, 4)
	l.set(func() { l.delay = 80 * time.Millisecond })
	began := time.Now()
	complete(t, f, maker, 60, 60)
	t.Logf("60 searches in %v with a node that is 160 ms away", time.Since(began))
	l.set(func() { l.delay, l.rate = 0, 64<<10 }) // bytes a second
	put(t, f, maker, 60)
	complete(t, f, maker, 20, 60)
	settled(t, p)
}

// A connection that breaks again and again, in the middle of queries, entries of logs and
// acknowledgements, costs time only.
func TestLossyLink(t *testing.T) {
	p, l, f, maker := behind(t, 11)
	for range 8 {
		done := make(chan bool)
		go func() {
			defer close(done)
			for i := range 3 {
				time.Sleep(time.Duration(5*i) * time.Millisecond) // wherever that is
				l.cut()
			}
		}()
		put(t, f, maker, 10)
		complete(t, f, maker, 5, 60)
		<-done
	}
	settled(t, p)
}

// A link on which nothing arrives any more, in one direction or both, while its
// connection stays: others answer, and what was missed is made up for.
func TestStalledLink(t *testing.T) {
	for name, ways := range map[string][2]bool{"both": {true, true}, "queries are not heard": {false, true}, "answers are not heard": {true, false}} {
		t.Run(name, func(t *testing.T) {
			if !effort.Long() && name != "both" {
				t.Skip("PLAID_LONG=1")
			}
			t.Parallel() // they wait for most of their time
			p, l, f, maker := behind(t, 12)
			l.set(func() { l.stalled = ways })
			for range 3 {
				put(t, f, maker, 20)
				complete(t, f, maker, 5, 60)
			}
			p.await("the end of its lease", func() bool { return len(p.op.Nodes()) == 1 })
			put(t, f, maker, 20)
			complete(t, f, maker, 5, 60)
			l.set(func() { l.stalled = [2]bool{} })
			put(t, f, maker, 5)
			settled(t, p)
			complete(t, f, maker, 5, 60)
		})
	}
}

// Two of three servers are killed, those of two nodes: the third node answers searches,
// changes are refused or of unknown outcome, and none is said to be made. When the
// servers are back, changes are made again, and what was acknowledged before is there.
func TestServersLost(t *testing.T) {
	long(t)
	p := start(t, 3, true)
	docs, maker := documents(13, 60)
	p.collection("wiki", operate.CreateOptions{Shards: 2, Replicas: 3, Acks: 2}, docs)
	f := p.client(client.Config{Collection: "wiki", Deadline: 20 * time.Second, WriteDeadline: 4 * time.Second})
	until := func(what string, try func() error) {
		t.Helper()
		var err error
		for end := time.Now().Add(patience); time.Now().Before(end); {
			if err = try(); err == nil {
				return
			}
		}
		t.Fatalf("%s: %v", what, err)
	}
	add := func(prefix string) func() error {
		return func() error {
			more := maker.Docs("x", 1, 4)
			more[0].ID = prefix
			_, err := f.Add(t.Context(), searchtest.Source(t, dim, more), &client.WriteOptions{Replace: true})
			return err
		}
	}
	until("a change", add("first"))
	p.kill("n0")
	p.kill("n1")
	if err := add("lost")(); !isOneOf(err, client.ErrQuorum, client.ErrUnacknowledged) {
		t.Errorf("without a quorum of servers: %v", err)
	}
	// Searches need a server that is left, and find it.
	search := func() error { return finds(t, f, maker, "first") }
	until("a search without a quorum of servers", search)
	require.NoError(t, search())
	p.again("n0")
	p.again("n1")
	until("a change with all servers", add("last"))
	until("a search with all servers", func() error { return finds(t, f, maker, "first", "last") })
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	p.same(ctx, "wiki", 3)
}
