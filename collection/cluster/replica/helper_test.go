package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage/objects"
)

// memory is a store in memory, the answers of which may be lost.
type memory struct {
	mu      sync.Mutex
	objects map[string]object
	now     time.Time
	// lose decides what becomes of a put: nothing is done, or it is done and the answer is lost.
	lose func(name string) (before, after error)
}

type object struct {
	body []byte
	made time.Time
}

func newMemory() *memory {
	return &memory{objects: map[string]object{}, now: time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func (m *memory) Put(_ context.Context, name string, r io.Reader, size int64) (time.Time, error) {
	body, err := io.ReadAll(r)
	if err != nil || int64(len(body)) != size {
		return time.Time{}, fmt.Errorf("%d bytes of %d: %w", len(body), size, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var before, after error
	if m.lose != nil {
		before, after = m.lose(name)
	}
	if before != nil {
		return time.Time{}, before
	}
	if _, there := m.objects[name]; there {
		return time.Time{}, errors.Join(after, objects.ErrExists)
	}
	m.now = m.now.Add(time.Millisecond)
	m.objects[name] = object{body, m.now}
	return m.now, after
}

func (m *memory) Replace(_ context.Context, name string, body []byte) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[name] = object{body, m.now}
	return m.now, nil
}

func (m *memory) Get(_ context.Context, name string, from, length int64) (io.ReadCloser, objects.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[name]
	if !ok {
		return nil, objects.Entry{}, fmt.Errorf("%w: %s", objects.ErrNotFound, name)
	}
	b := o.body[min(from, int64(len(o.body))):]
	if length >= 0 {
		b = b[:min(length, int64(len(b)))]
	}
	return io.NopCloser(bytes.NewReader(b)), objects.Entry{Name: name, Size: int64(len(o.body)), Made: o.made}, nil
}

func (m *memory) List(_ context.Context, prefix, after string, limit int) ([]objects.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []objects.Entry
	for name, o := range m.objects {
		if strings.HasPrefix(name, prefix) && name > after {
			all = append(all, objects.Entry{Name: name, Size: int64(len(o.body)), Made: o.made})
		}
	}
	slices.SortFunc(all, func(a, b objects.Entry) int { return strings.Compare(a.Name, b.Name) })
	if limit > 0 && len(all) > limit {
		all = all[:limit]
	}
	return all, nil
}

func (m *memory) Delete(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, name)
	return nil
}

func (m *memory) RemoveLeftovers(context.Context, time.Time) (int, error) { return 0, nil }

const testDim = 16

// flat is the first generation of a collection.
var flat = Generation{Number: 1, Dim: testDim, Nbits: 8, Stage: collection.StageFlat, Begun: true}

func shardOf(g Generation) Shard { return Shard{Collection: "notes.x1", Number: 0, Generation: g} }

func openReplica(t testing.TB, s objects.Store, dir string, shard Shard) *Replica {
	t.Helper()
	return openWith(t, s, dir, shard, "")
}

// openWith opens a replica with a backend of the kernels.
func openWith(t testing.TB, s objects.Store, dir string, shard Shard, backend string) *Replica {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	r, err := Open(&Config{Store: s, Dir: dir, Index: store.Options{Threads: 1, Backend: backend}, Logger: log}, shard)
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}

// randomDoc makes a document of some tokens.
func randomDoc(rng *rand.Rand, id string) collection.Document {
	d := collection.Document{ID: id, Dim: testDim, Metadata: fmt.Appendf(nil, `{"n":%d}`, rng.IntN(10))}
	for range testDim * (1 + rng.IntN(3)) {
		d.Vectors = append(d.Vectors, float32(rng.NormFloat64()))
	}
	return d
}

// content is what a replica has, to the bit.
func content(t testing.TB, r *Replica, after uint64) (*index.Contents, map[string]string) {
	t.Helper()
	v, _, err := r.View(t.Context(), after)
	require.NoError(t, err)
	defer v.Close()
	c, err := v.Snapshot().Contents(t.Context(), 1)
	require.NoError(t, err)
	docs := map[string]string{}
	for d, err := range v.Documents(t.Context(), collection.Selection{}, collection.ReadOptions{Metadata: true}) {
		require.NoError(t, err)
		docs[d.ID] = fmt.Sprintf("%d %s", d.Number, d.Metadata)
	}
	return c, docs
}
