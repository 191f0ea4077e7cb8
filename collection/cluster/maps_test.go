package cluster

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/internal/testing/objectstest/memory"
	"github.com/plaid-ir/plaid/storage"
)

// Processes change a map at a time while requests and answers get lost. Each change that was acknowledged is in
// the map once, and one that was not at most once.
func TestMapsModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		s := memory.New()
		testMap(t, s, "wiki", nil)
		rng := rand.New(rand.NewPCG(seed, 1))
		var mu sync.Mutex
		s.SetHook(func(context.Context, string, string) (before, after error) {
			mu.Lock()
			defer mu.Unlock()
			switch rng.IntN(10) {
			case 0:
				return errLost, nil
			case 1:
				return nil, errLost
			}
			return nil, nil
		})
		acknowledged := [4][12]bool{} // changes by process
		change := func(p, i int) string { return fmt.Sprintf("wiki.%08x%08x", p, i) }
		var wg sync.WaitGroup
		for p := range acknowledged {
			wg.Go(func() {
				for i := range acknowledged[p] {
					_, err := updateMap(t.Context(), s, "wiki", func(m *Map) error {
						m.Retired = append(m.Retired, Retired{ID: change(p, i)})
						return nil
					})
					acknowledged[p][i] = err == nil
				}
			})
		}
		wg.Wait()
		s.SetHook(nil)
		made, n := map[string]int{}, 0
		for _, r := range inStore(t, s).Retired {
			made[r.ID]++
		}
		for p := range acknowledged {
			for i, is := range acknowledged[p] {
				if is {
					n++
					require.Equal(t, 1, made[change(p, i)], "seed %d: change %d of %d", seed, i, p)
				}
				require.LessOrEqual(t, made[change(p, i)], 1, "seed %d: change %d of %d", seed, i, p)
			}
		}
		require.Greater(t, n, 12)
	}
}

// A process that slept while versions came and went does not take its own for the newest, and a lost map is
// not made again over one that is known.
func TestMapsSleeper(t *testing.T) {
	s := memory.New()
	old := testMap(t, s, "wiki", nil).copyMap()
	for range 4 {
		s.AdvanceClock(time.Minute)
		changeMap(t, s, func(m *Map) { m.Replicas++ })
	}
	s.AdvanceClock(24 * time.Hour)
	collect(t, s)
	require.Equal(t, []string{versionObject("wiki", 5)}, s.Names(mapsPrefix), "old versions go, never the newest")
	old.Version++
	old.Removed = true
	require.ErrorIs(t, putMap(t.Context(), s, old), errTaken, "version 2 can be put, and is not the newest")
	again := &Map{Name: "wiki", ID: "wiki.fedcba9876543210", Version: 1, Config: old.Config, Shards: 1, Replicas: 1}
	require.ErrorIs(t, putMap(t.Context(), s, again), errTaken)
	m := inStore(t, s)
	require.EqualValues(t, 5, m.Version)
	require.Equal(t, 6, m.Replicas)
}

// A process that slept before it declared a collection, which another has declared and changed meanwhile, has not.
func TestMapsSleeperOfFirstVersion(t *testing.T) {
	s := memory.New()
	testMap(t, s, "wiki", nil)
	changeMap(t, s, func(m *Map) { m.Replicas++ })
	s.AdvanceClock(24 * time.Hour)
	collect(t, s)
	require.Equal(t, []string{versionObject("wiki", 2)}, s.Names(mapsPrefix))
	m := inStore(t, s)
	again := &Map{Name: "wiki", ID: "wiki.fedcba9876543210", Version: 1, Config: m.Config, Shards: 1, Replicas: 1}
	require.ErrorIs(t, putMap(t.Context(), s, again), errTaken)
	require.Equal(t, m.ID, inStore(t, s).ID)
}

// A map that this program cannot read, or that a newer one has written, is neither acted on nor replaced.
func TestMapsOfOthers(t *testing.T) {
	s := memory.New()
	c := testNode(t, s, "a", nil)
	wiki := declared(t, c, testDocs(0, 3, 8)...)
	m := inStore(t, s)
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
	s.Set(versionObject("wiki", m.Version), sealed(strings.Replace(text, "{", `{"colour":"red",`, 1)))
	await(t, "the node sees it", func() bool { return wiki.Err() != nil })
	require.ErrorIs(t, wiki.Err(), ErrNewer)
	require.Equal(t, []string{"wiki"}, c.Names())
	again, err := c.Get("wiki")
	require.NoError(t, err)
	require.ErrorIs(t, again.Err(), collection.ErrDamaged)
	_, err = c.Create(t.Context(), "wiki", collection.Config{})
	require.ErrorIs(t, err, collection.ErrExists)
	_, err = c.Remove(t.Context(), "wiki")
	require.ErrorIs(t, err, collection.ErrDamaged)
	before := s.Names("data/")
	s.AdvanceClock(48 * time.Hour)
	collect(t, s)
	require.Equal(t, before, s.Names("data/"))
	require.Len(t, c.openReplicas(func(replicaKey) bool { return true }), 1, "its replica stays")
	require.NotEmpty(t, c.Status(t.Context()).Faults)

	require.NoError(t, s.Delete(t.Context(), versionObject("wiki", m.Version))) // the newer program is gone
	changeMap(t, s, func(m *Map) { m.Replicas = 1 })
	await(t, "it can be used again", func() bool { return wiki.Err() == nil })
}

// sealed is an object of a map's text.
func sealed(text string) []byte {
	m := []byte(text)
	return fmt.Appendf(m, "\n%08x\n", checksum(m))
}

func TestShareOfDocuments(t *testing.T) {
	for _, n := range []uint64{7, 8, 100, 1<<63 + 5} {
		m := &Map{Shards: 7, Config: collection.Config{MaxDocuments: &n}}
		sum := uint64(0)
		for s := range m.Shards {
			share := *m.maxDocumentsOf(s)
			require.GreaterOrEqual(t, share, n/7)
			require.LessOrEqual(t, share, n/7+1)
			sum += share
		}
		require.Equal(t, n, sum)
	}
	require.Nil(t, (&Map{Shards: 2}).maxDocumentsOf(1))
}

func FuzzMap(f *testing.F) {
	cfg, err := collection.Config{}.Completed()
	require.NoError(f, err)
	const id = "a.b.0123456789abcdef"
	m := &Map{
		Format: 1, Name: "a.b", ID: id, Version: 3, Config: cfg, Shards: 2, Replicas: 2, Last: 5,
		Retired: []Retired{{ID: id, Generation: 1}, {ID: "a.b.0000000000000000"}}, Training: &Reserved{Generation: 4},
		Current: &replica.Generation{Number: 2, Dim: 8}, Next: &replica.Generation{Number: 3},
	}
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
			again, err := m.copyMap().encode()
			require.NoError(t, err)
			_, err = decodeMap("a.b", 3, again)
			require.NoError(t, err)
		}
	})
}
