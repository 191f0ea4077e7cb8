//go:build unix

package reliability

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

func documents(seed uint64, n int) ([]vectors.Document, *searchtest.Maker) {
	m := searchtest.New(seed, dim, 6)
	return m.Docs("d", n, 8), m
}

var all = search.Options{K: 1000, Mode: search.Exhaustive}

// complete searches so many times, and wants every answer whole.
func complete(t *testing.T, f *client.Client, maker *searchtest.Maker, times int, docs int64) {
	t.Helper()
	for range times {
		r, err := f.Search(t.Context(), search.Query{Vectors: maker.Tokens(3)}, all)
		require.NoError(t, err)
		require.True(t, r.Coverage.Complete())
		require.Equal(t, docs, r.Coverage.Docs)
	}
}

// A node that hangs: the others answer in its place.
func TestHung(t *testing.T) {
	p := start(t, 3, false)
	docs, maker := documents(1, 60)
	p.collection("wiki", operate.CreateOptions{Shards: 4, Replicas: 2, Acks: 1}, docs)
	f := p.client(client.Config{Collection: "wiki", Deadline: patience})
	complete(t, f, maker, 20, 60)
	n1 := p.node("n1").cmd.Process
	require.NoError(t, n1.Signal(syscall.SIGSTOP))
	complete(t, f, maker, 40, 60)
	require.NoError(t, n1.Signal(syscall.SIGCONT))
	p.await("all replicas", func() bool { return p.allReady("wiki") })
	complete(t, f, maker, 5, 60)
}

// Without a quorum of replicas there are no changes, and it is said so; searches go on.
func TestQuorumLost(t *testing.T) {
	p := start(t, 3, false)
	docs, maker := documents(2, 70)
	p.collection("wiki", operate.CreateOptions{Shards: 2, Replicas: 3, Acks: 2}, docs[:60])
	f := p.client(client.Config{Collection: "wiki", Deadline: patience, WriteDeadline: patience})
	p.kill("n0")
	_, err := f.Add(t.Context(), searchtest.Source(t, dim, docs[60:65]), nil)
	require.NoError(t, err) // two are enough
	p.kill("n1")
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	require.NoError(t, f.Watcher().Wait(ctx, func() bool { return len(f.Watcher().Leases()) == 1 }))
	_, err = f.Add(ctx, searchtest.Source(t, dim, docs[65:]), nil)
	require.ErrorIs(t, err, client.ErrQuorum)
	complete(t, f, maker, 5, 65)
	p.again("n0")
	require.NoError(t, f.Watcher().Wait(ctx, func() bool {
		return len(f.Watcher().Replicas("wiki", 1, 0)) == 2 && len(f.Watcher().Replicas("wiki", 1, 1)) == 2 && f.Watcher().Replicas("wiki", 1, 0)[0].Ready && f.Watcher().Replicas("wiki", 1, 1)[0].Ready
	}))
	_, err = f.Add(ctx, searchtest.Source(t, dim, docs[65:]), nil)
	require.NoError(t, err)
	complete(t, f, maker, 5, 70)
}

// A worker that is killed in the middle of a build costs one redelivery, and the files are
// the same.
func TestBuildKilled(t *testing.T) {
	p := start(t, 2, false)
	maker := searchtest.New(3, dim, 6)
	docs := maker.Docs("d", 3000, 20)
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	_, err := p.op.Create(ctx, "wiki", operate.CreateOptions{Shards: 6, Replicas: 1})
	require.NoError(t, err)
	built := make(chan error, 1)
	var once sync.Once
	var killed atomic.Bool
	go func() {
		_, err := p.op.Build(ctx, "wiki", searchtest.Source(t, dim, docs), operate.BuildOptions{
			Train: index.BuildOptions{Nbits: 2, Centroids: 64, Threads: 1}, Dir: p.dir,
			Progress: func(stage string, done, total int) {
				if stage == "build" && done >= 1 {
					once.Do(func() { killed.Store(true); p.kill("n1") })
				}
			},
		})
		built <- err
	}()
	require.NoError(t, <-built)
	require.True(t, killed.Load())
	p.again("n1")
	m, err := p.op.Promote(ctx, "wiki")
	require.NoError(t, err)
	sum := uint64(0)
	for _, s := range m.Current.Shards {
		sum += s.Documents
	}
	assert.EqualValues(t, 3000, sum)
	f := p.client(client.Config{Collection: "wiki", Deadline: patience})
	complete(t, f, maker, 2, 3000)
}

// proxy passes bytes on, some time later.
type proxy struct {
	l     net.Listener
	delay atomic.Int64 // of each piece, in nanoseconds
}

func slow(t *testing.T, to string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	p := &proxy{l: l}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			go p.pass(c, d)
			go p.pass(d, c)
		}
	}()
	return p
}

func (p *proxy) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			time.Sleep(time.Duration(p.delay.Load()))
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err == io.EOF || err != nil {
			return
		}
	}
}

// A node behind a slow link is asked less, and nothing is missing.
func TestSlowLink(t *testing.T) {
	p := start(t, 1, false)
	px := slow(t, strings.TrimPrefix(p.url, "nats://"))
	args := append([]string{}, p.node("n0").args...)
	for i, a := range args {
		args[i] = strings.ReplaceAll(a, "n0", "n1")
		if a == p.url {
			args[i] = "nats://" + px.l.Addr().String()
		}
	}
	p.run("n1", args...)
	p.await("two nodes", func() bool { return len(p.op.Nodes()) == 2 })
	docs, maker := documents(4, 60)
	p.collection("wiki", operate.CreateOptions{Shards: 4, Replicas: 2, Acks: 1}, docs)
	f := p.client(client.Config{Collection: "wiki", Deadline: patience})
	complete(t, f, maker, 20, 60)
	px.delay.Store(int64(80 * time.Millisecond))
	began := time.Now()
	complete(t, f, maker, 60, 60)
	t.Logf("60 searches in %v with a node that is 160 ms away", time.Since(began))
}

// A disk that is full: the replica fails and says so, others go on, and when there is
// room it catches up.
func TestFullDisk(t *testing.T) {
	p := start(t, 2, false)
	docs, maker := documents(5, 400)
	p.collection("wiki", operate.CreateOptions{Shards: 1, Replicas: 2, Acks: 1}, docs[:60])
	x := p.node("n1")
	require.NoError(t, x.cmd.Process.Signal(syscall.SIGTERM))
	<-x.done
	size, err := os.Stat(filepath.Join(p.dir, "n1", "shards", "wiki", "g1", "s0000.plaid"))
	require.NoError(t, err)
	t.Setenv("PLAID_TEST_FILE_LIMIT", fmt.Sprint(size.Size()))
	p.again("n1")
	p.await("all replicas", func() bool { return p.allReady("wiki") })
	f := p.client(client.Config{Collection: "wiki", Deadline: patience, WriteDeadline: patience})
	have := int64(60)
	for i := 60; i < 400; i += 20 {
		_, err := f.Add(t.Context(), searchtest.Source(t, dim, docs[i:i+20]), &client.WriteOptions{Replace: true})
		require.NoError(t, err)
		have += 20
	}
	p.await("the fault", func() bool {
		for _, r := range p.op.Watcher().Replicas("wiki", 1, 0) {
			if r.Node == "n1" && r.Fault != "" {
				t.Log(r.Fault)
				return true
			}
		}
		return false
	})
	complete(t, f, maker, 5, have)
	p.kill("n1")
	t.Setenv("PLAID_TEST_FILE_LIMIT", "")
	p.again("n1")
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	require.NoError(t, p.op.Watcher().Wait(ctx, func() bool { return p.fresh("wiki", "n1") }))
	checks, err := p.op.Verify(ctx, "wiki")
	require.NoError(t, err)
	assert.Len(t, checks[0].Replicas, 2)
}
