package topology

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/objects"
)

func members(n, zones int) []Member {
	var m []Member
	for i := range n {
		node := Member{Name: fmt.Sprintf("n%d", i)}
		if zones > 0 {
			node.Zone = fmt.Sprint("z", i%zones)
		}
		m = append(m, node)
	}
	return m
}

func TestAssign(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, shards := rapid.IntRange(1, 12).Draw(t, "nodes"), rapid.IntRange(1, 60).Draw(t, "shards")
		replicas, zones := rapid.IntRange(1, 3).Draw(t, "replicas"), rapid.IntRange(0, 4).Draw(t, "zones")
		m, err := New("c", shards, replicas, 1, members(nodes, zones))
		if err != nil {
			t.Fatal(err)
		}
		check := func() {
			want := min(replicas, len(m.Members))
			load := map[string]int{}
			for s, nodes := range m.Assigned {
				if len(nodes) != want {
					t.Fatalf("shard %d has %d replicas, not %d", s, len(nodes), want)
				}
				for _, n := range nodes {
					load[n]++
				}
			}
			even := (shards*want + len(m.Members) - 1) / len(m.Members)
			for n, l := range load {
				if l > even {
					t.Fatalf("%s has %d shards, %d is even", n, l, even)
				}
			}
			if err := m.Check(); err != nil {
				t.Fatal(err)
			}
		}
		check()
		before := slices.Clone(m.Assigned)
		m.Assign()
		if !reflect.DeepEqual(before, m.Assigned) {
			t.Fatal("an assignment without a cause")
		}
		m.Join(Member{Name: "new"})
		m.Assign()
		check()
		m.Leave("n0")
		m.Assign()
		check()
		for _, nodes := range m.Assigned {
			if slices.Contains(nodes, "n0") {
				t.Fatal("a node that has left has a shard")
			}
		}
	})
}

func TestZones(t *testing.T) {
	m, err := New("c", 64, 3, 2, members(9, 3))
	if err != nil {
		t.Fatal(err)
	}
	for s, nodes := range m.Assigned {
		zones := map[byte]bool{}
		for _, n := range nodes {
			zones[(n[1]-'0')%3] = true
		}
		if len(zones) != 3 {
			t.Errorf("shard %d is in %d zones: %s", s, len(zones), nodes)
		}
	}
}

func TestShardOf(t *testing.T) {
	m, err := New("c", 7, 1, 1, members(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	count := make([]int, 7)
	share := 0.0
	for i := range 70_000 {
		count[m.ShardOf(fmt.Sprint("document ", i))]++
	}
	for s, n := range count {
		if n < 9_000 || n > 11_000 {
			t.Errorf("shard %d has %d of 70,000", s, n)
		}
		share += m.Share([]int{s})
	}
	if share < 0.999 || share > 1.001 {
		t.Errorf("all shards are %v of the whole", share)
	}
	// The slots of these are for good: files on disks depend on them.
	for id, slot := range map[string]int{"": 3837, "a": 2090, "doc1": 2233} {
		if got := Slot(id); got != slot {
			t.Errorf("%q is in slot %d, not %d", id, got, slot)
		}
	}
}

func TestDecode(t *testing.T) {
	m, err := New("wiki", 4, 2, 1, members(3, 0))
	if err != nil {
		t.Fatal(err)
	}
	good, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if back, err := Decode(good); err != nil || !reflect.DeepEqual(back, m) {
		t.Errorf("%v\n%+v\n%+v", err, back, m)
	}
	for name, text := range map[string]string{
		"an unknown field": strings.Replace(string(good), `"format"`, `"surprise":1,"format"`, 1),
		"another format":   strings.Replace(string(good), `"format":1`, `"format":2`, 1),
		"nothing":          "{}",
		"two":              string(good) + string(good),
		"slots":            strings.Replace(string(good), "[0,1024", "[0,2048", 1),
		"replicas":         strings.Replace(string(good), `"replicas":2`, `"replicas":0`, 1),
		"acks":             strings.Replace(string(good), `"acks":1`, `"acks":3`, 1),
		"a name":           strings.Replace(string(good), "wiki", "Wiki.x", 1),
	} {
		if _, err := Decode([]byte(text)); !errors.Is(err, ErrMap) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	m, _ := New("wiki", 2, 2, 1, members(3, 2))
	m.Last = 2
	m.Current = &Generation{Number: 2, Dim: 8, Codec: ref("c"), Start: []uint64{0, 3}, Shards: []Shard{{Object: ref("a")}, {Object: ref("b"), Applied: 3}}}
	good, err := m.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	m.remove()
	m.Incarnation, m.Former = "0123456789abcdef", []string{"wiki", "wiki@fedcba9876543210"}
	if good, err = m.Encode(); err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := Decode(text)
		if err != nil {
			return
		}
		if s := m.ShardOf(string(text)); s < 0 || s >= m.Shards() {
			t.Fatalf("shard %d of %d", s, m.Shards())
		}
		m.Assign()
		again, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(again); err != nil {
			t.Fatal(err)
		}
	})
}

func ref(name string) objects.Ref { return objects.Ref{Name: name, SHA256: strings.Repeat("ab", 32)} }

func store(t *testing.T) (*Store, *bus.Bus, objects.Store) {
	t.Helper()
	ctx := t.Context()
	s, err := bus.StartServer(ctx, bus.ServerOptions{Name: "one", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	conn, err := s.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	b, err := bus.Setup(ctx, conn, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	o, err := objects.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return NewStore(o, b.Maps), b, o
}

// Changes at a time are made one after the other, and none is lost.
func TestUpdate(t *testing.T) {
	s, b, o := store(t)
	ctx := t.Context()
	m, err := New("c", 1, 1, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Create(ctx, m); err != nil {
		t.Fatal(err)
	}
	if err := s.Create(ctx, m); !errors.Is(err, ErrExists) {
		t.Errorf("twice: %v", err)
	}
	if _, err := s.Get(ctx, "other"); !errors.Is(err, ErrNoCollection) {
		t.Errorf("missing: %v", err)
	}
	const each = 5
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range each {
				if _, err := s.Update(ctx, "c", func(m *Map) error { m.Join(Member{Name: fmt.Sprintf("n%d-%d", i, j)}); return nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	m, err = s.Get(ctx, "c")
	if err != nil || len(m.Members) != 4*each || m.Version != 4*each+1 {
		t.Errorf("%d members in version %d: %v", len(m.Members), m.Version, err)
	}

	// A process died between the object and the bucket.
	next, _ := m.clone()
	next.Version++
	next.Join(Member{Name: "unseen"})
	text, _ := json.Marshal(next)
	if err := o.Put(ctx, object("c", next.Version), strings.NewReader(string(text)), int64(len(text))); err != nil {
		t.Fatal(err)
	}
	m, err = s.Update(ctx, "c", func(m *Map) error { m.Join(Member{Name: "last"}); return nil })
	if err != nil || len(m.Members) != 4*each+2 {
		t.Errorf("%d members: %v", len(m.Members), err)
	}

	// JetStream has lost all.
	if err := b.Maps.Purge(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	if names, err := s.Collections(ctx); err != nil || !slices.Equal(names, []string{"c"}) {
		t.Errorf("%q %v", names, err)
	}
	if _, err := s.Recover(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	back, err := s.Get(ctx, "c")
	if err != nil || !reflect.DeepEqual(back, m) {
		t.Errorf("%v\n%+v\n%+v", err, back, m)
	}
	if _, err := s.Recover(ctx, "none"); !errors.Is(err, ErrNoCollection) {
		t.Error(err)
	}
	bad := errors.New("no")
	if _, err := s.Update(context.Background(), "c", func(*Map) error { return bad }); !errors.Is(err, bad) {
		t.Error(err)
	}
}
