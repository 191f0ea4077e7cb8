package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage/objects"
)

// memory is a store with a clock of its own, which counts and may lose requests and answers.
type memory struct {
	mu       sync.Mutex
	objects  map[string]memoryObject
	now      time.Time
	requests int
	// fault decides about a request: lost before it is done, or its answer lost afterwards.
	fault func(op, name string) (before, after bool)
	with  error // of a fault; nil: errLost
}

type memoryObject struct {
	body []byte
	made time.Time
}

var errLost = errors.New("the connection broke")

func newMemory() *memory {
	return &memory{objects: map[string]memoryObject{}, now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func (s *memory) do(op, name string, do func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	before, after := false, false
	if s.fault != nil {
		before, after = s.fault(op, name)
	}
	lost := cmp.Or(s.with, errLost)
	if before {
		return lost
	}
	err := do()
	if after {
		return lost
	}
	return err
}

func (s *memory) Put(_ context.Context, name string, r io.Reader, size int64) (made time.Time, err error) {
	body, err := io.ReadAll(r)
	if err != nil || int64(len(body)) != size {
		return made, fmt.Errorf("%d bytes of %d: %w", len(body), size, err)
	}
	return s.now, s.do("put", name, func() error {
		if _, there := s.objects[name]; there {
			return fmt.Errorf("%w: %s", objects.ErrExists, name)
		}
		s.objects[name] = memoryObject{body, s.now}
		return nil
	})
}

func (s *memory) Replace(_ context.Context, name string, body []byte) (made time.Time, err error) {
	return s.now, s.do("replace", name, func() error {
		s.objects[name] = memoryObject{bytes.Clone(body), s.now}
		return nil
	})
}

func (s *memory) Get(_ context.Context, name string, from, length int64) (r io.ReadCloser, e objects.Entry, err error) {
	err = s.do("get", name, func() error {
		o, there := s.objects[name]
		if !there {
			return fmt.Errorf("%w: %s", objects.ErrNotFound, name)
		}
		e = objects.Entry{Name: name, Size: int64(len(o.body)), Made: o.made}
		part := o.body[min(from, e.Size):]
		if length >= 0 {
			part = part[:min(length, int64(len(part)))]
		}
		r = io.NopCloser(bytes.NewReader(part))
		return nil
	})
	return r, e, err
}

func (s *memory) List(_ context.Context, prefix, after string, limit int) (listed []objects.Entry, err error) {
	err = s.do("list", prefix, func() error {
		for _, name := range sorted(s.objects) {
			if o := s.objects[name]; strings.HasPrefix(name, prefix) && name > after && (limit == 0 || len(listed) < limit) {
				listed = append(listed, objects.Entry{Name: name, Size: int64(len(o.body)), Made: o.made})
			}
		}
		return nil
	})
	return listed, err
}

func (s *memory) Delete(_ context.Context, name string) error {
	return s.do("delete", name, func() error { delete(s.objects, name); return nil })
}

func (s *memory) RemoveLeftovers(context.Context, time.Time) (int, error) { return 0, nil }

// fail makes puts of objects with a part in their names fail; "": none.
func (s *memory) fail(part string, with error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.with = with
	s.fault = func(op, name string) (before, after bool) {
		return part != "" && op == "put" && strings.Contains(name, part), false
	}
}

// put makes an object, whatever the faults.
func (s *memory) put(name string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[name] = memoryObject{body, s.now}
}

func (s *memory) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

func (s *memory) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

func (s *memory) collect(t *testing.T) {
	t.Helper()
	require.NoError(t, (&collector{s, time.Hour, s.now}).collect(t.Context(), "wiki"))
}

func (s *memory) names(prefix string) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range sorted(s.objects) {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names
}

// testMap puts the first version of a map.
func testMap(t *testing.T, s objects.Store, name string, change func(*Map)) *Map {
	t.Helper()
	cfg, err := collection.Config{}.Completed()
	require.NoError(t, err)
	m := &Map{Name: name, ID: name + ".0123456789abcdef", Version: 1, Config: cfg, Shards: 2, Replicas: 2}
	if change != nil {
		change(m)
	}
	require.NoError(t, putMap(t.Context(), s, m))
	return m
}

const testBeat = 100 * time.Millisecond

// testNode starts a node of a store for as long as a test runs.
func testNode(t testing.TB, s objects.Store, name string, change func(*Config)) *Cluster {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	cfg := Config{
		Store: s, Place: "a test", Dir: filepath.Join(t.TempDir(), name), Name: name, Address: "http://" + server.Listener.Addr().String(),
		Beat: testBeat, Deadline: 20 * time.Second, Index: store.Options{Threads: 1, Derive: store.DeriveKeywords(nil)},
	}
	if os.Getenv("PLAID_CLUSTER_LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("node", name)
	}
	if change != nil {
		change(&cfg)
	}
	c, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	server.Config.Handler = c.Handler()
	server.Start()
	t.Cleanup(func() {
		require.NoError(t, c.Close(context.WithoutCancel(t.Context())))
		server.CloseClientConnections()
		server.Close()
	})
	return c
}

// testStore is a store in a folder.
func testStore(t testing.TB) objects.Store {
	t.Helper()
	s, err := objects.OpenFolder(filepath.Join(t.TempDir(), "store"))
	require.NoError(t, err)
	return s
}

// startNodes starts nodes n0, n1 … that know each other, over a folder, for collections of some shards.
func startNodes(t testing.TB, nodes, shards int, change func(*Config)) []*Cluster {
	t.Helper()
	return nodesOver(t, testStore(t), nodes, func(c *Config) {
		if c.Shards = shards; change != nil {
			change(c)
		}
	})
}

func nodesOver(t testing.TB, s objects.Store, nodes int, change func(*Config)) (all []*Cluster) {
	t.Helper()
	for i := range nodes {
		all = append(all, testNode(t, s, fmt.Sprint("n", i), change))
	}
	await(t, "the nodes know each other", func() bool {
		return !slices.ContainsFunc(all, func(c *Cluster) bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.nodes) != nodes
		})
	})
	return all
}

// declared declares a collection, and adds documents.
func declared(t *testing.T, c *Cluster, docs ...collection.Document) collection.Collection {
	t.Helper()
	of, err := c.Declare(t.Context(), "wiki", collection.Config{})
	require.NoError(t, err)
	if len(docs) > 0 {
		add(t, of, docs)
	}
	return of
}

func add(t *testing.T, of collection.Collection, docs []collection.Document) {
	t.Helper()
	_, err := of.Update(t.Context(), docs, collection.UpdateOptions{})
	require.NoError(t, err)
}

func numbersOf(t *testing.T, of collection.Collection) collection.Stats {
	t.Helper()
	st, err := of.Stats(t.Context())
	require.NoError(t, err)
	return st
}

func changeMap(t *testing.T, s objects.Store, change func(*Map)) {
	t.Helper()
	_, err := updateMap(t.Context(), s, "wiki", func(m *Map) error { change(m); return nil })
	require.NoError(t, err)
}

// inStore is the newest map of the collection.
func inStore(t *testing.T, s objects.Store) *Map {
	t.Helper()
	m, err := livingMap(t.Context(), s, "wiki")
	require.NoError(t, err)
	return m
}

// await waits for what must happen.
func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); {
		require.True(t, time.Now().Before(end), what)
		time.Sleep(20 * time.Millisecond)
	}
}

// testDocs are documents of two tokens.
func testDocs(from, n, dim int) []collection.Document {
	docs := make([]collection.Document, n)
	for i := range docs {
		rng := rand.New(rand.NewPCG(uint64(from+i), 1))
		docs[i] = collection.Document{ID: fmt.Sprint("d", from+i), Dim: dim, Metadata: []byte(fmt.Sprintf(`{"n":%d}`, from+i))}
		for range 2 * dim {
			docs[i].Vectors = append(docs[i].Vectors, float32(rng.NormFloat64()))
		}
	}
	return docs
}

// found is the document that is most like another one.
func found(t *testing.T, c *Cluster, name string, d collection.Document) string {
	t.Helper()
	of, err := c.Get(name)
	require.NoError(t, err)
	v, err := of.View(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, v.Close()) }()
	rs, err := v.Search(t.Context(), []search.Query{{Vectors: d.Vectors, Dim: d.Dim}}, search.Options{K: 1})
	require.NoError(t, err)
	require.Len(t, rs[0].Hits, 1)
	return rs[0].Hits[0].ID
}
