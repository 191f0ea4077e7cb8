package bus

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/internal/certtest"
	"github.com/plaid-ir/plaid/cluster/internal/freeports"
)

const patience = 3 * time.Minute

func serve(t *testing.T, o ServerOptions) *Server {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if os.Getenv("PLAID_CLUSTER_LOG") != "" {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	s, err := StartServer(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// Whoever has no certificate of the authority is not let in, and whoever has one may do
// what its role says.
func TestRoles(t *testing.T) {
	a := certtest.New(t)
	s := serve(t, ServerOptions{Name: "n0", Listen: "127.0.0.1:0", TLS: a.Config("n0"), Users: []User{
		{"CN=front-1", RoleFront}, {"CN=n1", RoleNode}, {"CN=boss", RoleOperator},
	}})
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	inside, err := s.Connect("inside")
	require.NoError(t, err)
	defer inside.Close()
	own, err := Setup(ctx, inside, 1, 0)
	require.NoError(t, err)
	require.NoError(t, own.MakeLog(ctx, "wiki", 0, 0))

	_, err = Connect(s.ClientURL(), "no certificate", nil)
	assert.Error(t, err)
	_, err = Connect(s.ClientURL(), "unknown", a.Config("stranger"))
	assert.Error(t, err)
	_, err = Connect(s.ClientURL(), "another authority", certtest.New(t).Config("front-1"))
	assert.Error(t, err)

	refused := make(chan error, 16)
	connect := func(name string) *nats.Conn {
		conn, err := Connect(s.ClientURL(), name, a.Config(name), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
		require.NoError(t, err)
		t.Cleanup(conn.Close)
		return conn
	}
	forbidden := func(conn *nats.Conn, what string, do func() error) {
		t.Helper()
		if do() == nil {
			require.NoError(t, conn.Flush())
			select {
			case err := <-refused:
				assert.ErrorIs(t, err, nats.ErrPermissionViolation, what)
			case <-ctx.Done():
				t.Errorf("%s is allowed", what)
			}
		}
	}
	front := connect("front-1")
	forbidden(front, "a front that listens to queries", func() error { _, err := front.Subscribe("plaid.v1.n.*.q", func(*nats.Msg) {}); return err })
	forbidden(front, "a front that listens to everything", func() error { _, err := front.Subscribe(">", func(*nats.Msg) {}); return err })
	forbidden(front, "a front that writes a map", func() error { return front.Publish("$KV."+MapBucket+".wiki", nil) })
	forbidden(front, "a front that deletes a log", func() error { return front.Publish("$JS.API.STREAM.DELETE."+LogStream("wiki", 0), nil) })
	forbidden(front, "a front that gives orders", func() error { return front.Publish(AdminSubject("n1"), nil) })
	node := connect("n1")
	forbidden(node, "a node that listens to queries of another", func() error { _, err := node.Subscribe(QuerySubject("n2"), func(*nats.Msg) {}); return err })
	forbidden(node, "a node that renews the lease of another", func() error { return node.Publish("$KV."+NodeBucket+".n2", nil) })
	forbidden(node, "a node that writes to a log", func() error { return node.Publish(LogSubject("wiki", 0), nil) })

	// What they are for.
	b, err := Open(ctx, front)
	require.NoError(t, err)
	w, err := b.Nodes.WatchAll(ctx)
	require.NoError(t, err)
	assert.Nil(t, <-w.Updates())
	n, err := Open(ctx, node)
	require.NoError(t, err)
	_, err = n.Nodes.Put(ctx, "n1", []byte("lease"))
	require.NoError(t, err)
	entry := <-w.Updates()
	require.NotNil(t, entry)
	assert.Equal(t, "n1", entry.Key())
	for _, subject := range []string{QuerySubject("n1"), LookSubject("n1")} {
		_, err = node.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte("answer")) })
		require.NoError(t, err)
		require.NoError(t, node.Flush())
		reply, err := front.RequestWithContext(ctx, subject, nil)
		require.NoError(t, err)
		assert.Equal(t, "answer", string(reply.Data))
	}
	_, err = b.JS.Publish(ctx, LogSubject("wiki", 0), []byte("change"))
	require.NoError(t, err)
	stream, err := n.JS.Stream(ctx, LogStream("wiki", 0))
	require.NoError(t, err)
	c, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	require.NoError(t, err)
	msg, err := c.Next()
	require.NoError(t, err)
	assert.Equal(t, "change", string(msg.Data()))
	boss, err := Open(ctx, connect("boss"))
	require.NoError(t, err)
	assert.NoError(t, boss.CheckOperator(ctx))
	for _, other := range []*Bus{b, n} {
		assert.ErrorIs(t, other.CheckOperator(ctx), ErrRole)
		assert.ErrorIs(t, <-refused, nats.ErrPermissionViolation)
	}
	require.NoError(t, boss.MakeLog(ctx, "wiki", 1, 41))
	require.NoError(t, boss.JS.DeleteStream(ctx, LogStream("wiki", 0)))
	assert.Empty(t, refused)
}

// With a key, what was written to a log is on no disk as it was.
func TestCipher(t *testing.T) {
	secret := []byte("a text that nobody is to find on the disk")
	for _, key := range []string{"", "0123456789abcdef"} {
		dir := t.TempDir()
		s := serve(t, ServerOptions{Name: "n0", Dir: dir, Key: key})
		conn, err := s.Connect("test")
		require.NoError(t, err)
		b, err := Setup(t.Context(), conn, 1, 0)
		require.NoError(t, err)
		require.NoError(t, b.MakeLog(t.Context(), "wiki", 0, 0))
		_, err = b.JS.Publish(t.Context(), LogSubject("wiki", 0), secret)
		require.NoError(t, err)
		conn.Close()
		s.Close()
		found := false
		require.NoError(t, filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			text, err := os.ReadFile(file)
			found = found || bytes.Contains(text, secret)
			return err
		}))
		assert.Equal(t, key == "", found, "key %q", key)
	}
}

// Three servers with TLS on their routes keep three copies, and go on without one.
func TestServers(t *testing.T) {
	a := certtest.New(t)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	var servers []*Server
	var routes []string // servers know each other's addresses before they start
	for _, port := range freeports.Find(t, 3) {
		routes = append(routes, "127.0.0.1:"+port)
	}
	for i := range 3 {
		servers = append(servers, serve(t, ServerOptions{Name: fmt.Sprint("n", i), Cluster: routes[i], Routes: routes, TLS: a.Config(fmt.Sprint("n", i)), Listen: "127.0.0.1:0"}))
	}
	conn, err := servers[2].Connect("test")
	require.NoError(t, err)
	defer conn.Close()
	_, err = Setup(ctx, conn, 3, 0)
	require.NoError(t, err)
	b, err := Setup(ctx, conn, 1, 0) // a node that is not told how many
	require.NoError(t, err)
	require.Equal(t, 3, b.Replicas, "nobody who joins takes copies away")
	assert.Equal(t, 3, b.Replicas)
	require.NoError(t, b.MakeLog(ctx, "wiki", 0, 0))
	publish := func(text string) {
		t.Helper()
		for {
			within, stop := context.WithTimeout(ctx, Attempt) // what is asked while there is no leader is never answered
			_, err := b.JS.Publish(within, LogSubject("wiki", 0), []byte(text), jetstream.WithMsgID(text))
			stop()
			if err == nil {
				return
			}
			require.NoError(t, ctx.Err(), "%v", err)
		}
	}
	publish("before")
	servers[0].Close()
	publish("after")
	stream, err := b.JS.Stream(ctx, LogStream("wiki", 0))
	require.NoError(t, err)
	assert.EqualValues(t, 2, stream.CachedInfo().State.LastSeq)
}

// The first entry of a log that goes on has the number after the last one.
func TestFirst(t *testing.T) {
	s := serve(t, ServerOptions{Name: "n0"})
	conn, err := s.Connect("test")
	require.NoError(t, err)
	defer conn.Close()
	b, err := Setup(t.Context(), conn, 1, 0)
	require.NoError(t, err)
	require.NoError(t, b.MakeLog(t.Context(), "wiki", 3, 41))
	ack, err := b.JS.Publish(t.Context(), LogSubject("wiki", 3), []byte("x"))
	require.NoError(t, err)
	assert.EqualValues(t, 42, ack.Sequence)
	_, err = StartServer(t.Context(), ServerOptions{Name: "bad", Dir: t.TempDir(), Listen: "nowhere"})
	assert.ErrorIs(t, err, ErrServer)
	_, err = StartServer(t.Context(), ServerOptions{Name: "alone", Dir: t.TempDir(), Cluster: "127.0.0.1:0"})
	assert.ErrorIs(t, err, ErrServer) // a server of a cluster has to be told of another
}
