package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/storage"
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

// Processes change a map at a time while requests and answers get lost. Each change that was acknowledged is in
// the map once, and one that was not at most once.
func TestMapsModel(t *testing.T) {
	for seed := range uint64(20) {
		s := newMemory()
		testMap(t, s, "wiki", nil)
		rng := rand.New(rand.NewPCG(seed, 1))
		s.fault = func(op, _ string) (before, after bool) {
			x := rng.IntN(100)
			return x < 10, x >= 10 && x < 20
		}
		const processes, changes = 4, 12
		acknowledged := make([][]bool, processes)
		var wg sync.WaitGroup
		for p := range processes {
			acknowledged[p] = make([]bool, changes)
			wg.Go(func() {
				for i := range changes {
					_, err := updateMap(t.Context(), s, "wiki", func(m *Map) error {
						m.Trouble = append(m.Trouble, Trouble{Shard: i, Node: fmt.Sprint("p", p)})
						return nil
					})
					acknowledged[p][i] = err == nil
				}
			})
		}
		wg.Wait()
		s.fault = nil
		m, err := livingMap(t.Context(), s, "wiki")
		require.NoError(t, err)
		count := map[Trouble]int{}
		for _, x := range m.Trouble {
			count[x]++
		}
		n := 0
		for p := range processes {
			for i := range changes {
				c := count[Trouble{Shard: i, Node: fmt.Sprint("p", p)}]
				if acknowledged[p][i] {
					n++
					require.Equal(t, 1, c, "seed %d: change %d of %d", seed, i, p)
				}
				require.LessOrEqual(t, c, 1, "seed %d: change %d of %d", seed, i, p)
			}
		}
		require.Greater(t, n, processes*changes/4)
	}
}

// A process that slept while versions came and went does not take its own for the newest, and a lost map is
// not made again over one that is known.
func TestMapsSleeper(t *testing.T) {
	s := newMemory()
	old := testMap(t, s, "wiki", nil).clone()
	for range 4 {
		s.pass(time.Minute)
		_, err := updateMap(t.Context(), s, "wiki", func(m *Map) error { m.Replicas++; return nil })
		require.NoError(t, err)
	}
	s.pass(24 * time.Hour)
	k := &collector{s, time.Hour, s.now}
	require.NoError(t, k.collect(t.Context(), "wiki"))
	require.Equal(t, []string{mapName("wiki", 5)}, s.names(mapsPrefix), "old versions go, never the newest")
	old.Version++
	old.Removed = true
	require.ErrorIs(t, putMap(t.Context(), s, old), errTaken, "version 2 can be put, and is not the newest")
	again := &Map{Name: "wiki", ID: "wiki.fedcba9876543210", Version: 1, Config: old.Config, Shards: 1, Replicas: 1}
	require.ErrorIs(t, putMap(t.Context(), s, again), errTaken)
	m, err := livingMap(t.Context(), s, "wiki")
	require.NoError(t, err)
	require.EqualValues(t, 5, m.Version)
	require.Equal(t, 6, m.Replicas)
}

// A map that this program cannot read, or that a newer one has written, is neither acted on nor replaced.
func TestMapsOfOthers(t *testing.T) {
	s := newMemory()
	c := testNode(t, s, "a", nil)
	_, err := c.Declare(t.Context(), "wiki", collection.Config{})
	require.NoError(t, err)
	of, err := c.Get("wiki")
	require.NoError(t, err)
	_, err = of.Update(t.Context(), testDocs(0, 3, 8), collection.UpdateOptions{})
	require.NoError(t, err)
	m, err := livingMap(t.Context(), s, "wiki")
	require.NoError(t, err)
	m.Version++
	body, err := m.encode()
	require.NoError(t, err)
	text, _, _ := strings.Cut(string(body), "\n")
	for name, x := range map[string]struct {
		object []byte
		is     error
	}{
		"unknown field": {sealed(strings.Replace(text, "{", `{"colour":"red",`, 1)), ErrNewer},
		"format":        {sealed(strings.Replace(text, `"format":1`, `"format":2`, 1)), ErrNewer},
		"flipped":       {bytes.Replace(body, []byte(`"shards":1`), []byte(`"shards":3`), 1), storage.ErrCorrupt},
		"cut":           {body[:len(body)/2], storage.ErrCorrupt},
		"foreign id":    {sealed(strings.ReplaceAll(text, `"id":"wiki.`, `"id":"other.`)), storage.ErrCorrupt},
		"empty":         {nil, storage.ErrCorrupt},
	} {
		_, err := decodeMap("wiki", m.Version, x.object)
		require.ErrorIs(t, err, x.is, name)
	}
	s.put(mapName("wiki", m.Version), sealed(strings.Replace(text, "{", `{"colour":"red",`, 1)))
	await(t, "the node sees it", func() bool { return of.Err() != nil })
	require.ErrorIs(t, of.Err(), ErrNewer)
	require.Equal(t, []string{"wiki"}, c.Names())
	again, err := c.Get("wiki")
	require.NoError(t, err)
	require.ErrorIs(t, again.Err(), collection.ErrDamaged)
	_, err = c.Declare(t.Context(), "wiki", collection.Config{})
	require.ErrorIs(t, err, collection.ErrExists)
	_, err = c.Drop(t.Context(), "wiki")
	require.ErrorIs(t, err, collection.ErrDamaged)
	before := s.names("data/")
	s.pass(48 * time.Hour)
	require.NoError(t, (&collector{s, time.Hour, s.now}).collect(t.Context(), "wiki"))
	require.Equal(t, before, s.names("data/"))
	c.mu.Lock()
	open := len(c.replicas)
	c.mu.Unlock()
	require.Equal(t, 1, open, "its replica stays")
	require.NotEmpty(t, c.Status(t.Context()).Faults)

	s.mu.Lock()
	delete(s.objects, mapName("wiki", m.Version)) // the newer program is gone
	s.mu.Unlock()
	_, err = updateMap(t.Context(), s, "wiki", func(m *Map) error { m.Replicas = 1; return nil })
	require.NoError(t, err)
	await(t, "it can be used again", func() bool { return of.Err() == nil })
}

// sealed is an object of a map's text.
func sealed(text string) []byte {
	m := []byte(text)
	return fmt.Appendf(m, "\n%08x\n", checksum(m))
}

// All maps vanish from the store (F1 of the cluster before this one deleted every replica then): nothing happens.
func TestMapsLost(t *testing.T) {
	s := newMemory()
	c := testNode(t, s, "a", func(c *Config) { c.Grace = time.Millisecond })
	of, err := c.Declare(t.Context(), "wiki", collection.Config{})
	require.NoError(t, err)
	docs := testDocs(0, 3, 8)
	_, err = of.Update(t.Context(), docs, collection.UpdateOptions{})
	require.NoError(t, err)
	before := s.names("data/")
	s.mu.Lock()
	for name := range s.objects {
		if strings.HasPrefix(name, mapsPrefix) {
			delete(s.objects, name)
		}
	}
	s.mu.Unlock()
	for range 5 {
		s.pass(24 * time.Hour)
		at := c.beatsSoFar()
		await(t, "the node looks", func() bool { return c.beatsSoFar() > at+1 })
	}
	require.Equal(t, before, s.names("data/"))
	require.Equal(t, "d1", found(t, c, "wiki", docs[1]))
	_, err = c.Declare(t.Context(), "wiki", collection.Config{})
	require.ErrorIs(t, err, collection.ErrExists)
}

func (c *Cluster) beatsSoFar() int64 { return c.requests.Load() }

func TestShareOfDocuments(t *testing.T) {
	for _, n := range []uint64{7, 8, 100, 1<<63 + 5} {
		m := &Map{Shards: 7, Config: collection.Config{MaxDocuments: &n}}
		sum := uint64(0)
		for s := range m.Shards {
			share := *m.most(s)
			require.GreaterOrEqual(t, share, n/7)
			require.LessOrEqual(t, share, n/7+1)
			sum += share
		}
		require.Equal(t, n, sum)
	}
	require.Nil(t, (&Map{Shards: 2}).most(1))
}

func FuzzMap(f *testing.F) {
	cfg, err := collection.Config{}.Completed()
	require.NoError(f, err)
	m := &Map{Format: 1, Name: "a.b", ID: "a.b.0123456789abcdef", Version: 3, Config: cfg, Shards: 2, Replicas: 2, Last: 5, Retired: []Retired{{Generation: 1}},
		Current: &replica.Generation{Number: 2, Dim: 8}, Next: &replica.Generation{Number: 3}, Training: &Reserved{Generation: 4}, Gone: []Gone{{ID: "a.b.0000000000000000"}}}
	text, err := m.encode()
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte("{}"))
	f.Add(sealed(`{"format":1,"name":"a.b","id":"../..","version":3}`))
	f.Fuzz(func(t *testing.T, object []byte) {
		line, _, _ := bytes.Cut(object, []byte("\n"))
		for _, object := range [][]byte{object, sealed(string(line))} {
			m, err := decodeMap("a.b", 3, object)
			if err != nil {
				require.True(t, unreadable(err), "%v", err)
				continue
			}
			require.True(t, strings.HasPrefix(m.ID, "a.b."))
			again, err := m.clone().encode()
			require.NoError(t, err)
			_, err = decodeMap("a.b", 3, again)
			require.NoError(t, err)
		}
	})
}
