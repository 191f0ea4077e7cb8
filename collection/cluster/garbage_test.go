package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/journal"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/objectstest/memory"
	"github.com/plaid-ir/plaid/storage/objects"
)

// Garbage is marked first, and deleted a grace later; nothing else is ever deleted.
func TestGarbage(t *testing.T) {
	s := memory.New()
	testMap(t, s, "wiki", func(m *Map) {
		m.Last = 5
		m.Current = &replica.Generation{Number: 3, Dim: 8, Stage: collection.StageFlat}
		m.Next = &replica.Generation{Number: 4, Dim: 8}
		m.Building = &Reserved{Generation: 5}
		m.Retired = []Retired{{ID: m.ID, Generation: 1}, {ID: "wiki.0000000000000001"}}
	})
	id := "wiki.0123456789abcdef"
	logs := map[int][]journal.Position{}
	for shard := range 2 {
		log := journal.New(s, id, shard, journal.Options{})
		at := journal.Position{}
		for range 10 {
			var err error
			at, err = log.Append(t.Context(), at, []string{"b"}, []byte("body"))
			require.NoError(t, err)
			logs[shard] = append(logs[shard], at)
		}
		for _, g := range []uint64{1, 2, 3, 4, 5} {
			s.Set(log.CheckpointName(g, logs[shard][g]), []byte("checkpoint"))
		}
	}
	for _, name := range []string{
		codecObject(id, 1), codecObject(id, 2), codecObject(id, 3),
		"data/wiki.0000000000000001/log/0000/0000000000000001", "data/wiki.0000000000000002/log/0000/0000000000000001",
		"data/wikipedia.0000000000000001/codec/00000001", "data/wiki.0000000000000001x/log/a",
	} {
		s.Set(name, []byte("x"))
	}
	all := s.Names("data/")
	s.AdvanceClock(1000 * time.Hour) // however old objects are
	collect(t, s)
	require.Equal(t, all, s.Names("data/"), "it is only marked")
	s.AdvanceClock(time.Hour)
	collect(t, s)
	require.Equal(t, all, s.Names("data/"))
	s.AdvanceClock(time.Minute)
	collect(t, s)
	left := s.Names("data/")
	got := slices.DeleteFunc(all, func(name string) bool { return slices.Contains(left, name) })
	require.Contains(t, got, "data/wiki.0000000000000001/log/0000/0000000000000001")
	require.Contains(t, got, codecObject(id, 1))
	require.Len(t, got, 4,
		"%q: generation 1 has two checkpoints: 2 is unclaimed, 5 is being built, no log is cut meanwhile", got)
	m := inStore(t, s)
	require.Empty(t, m.Retired)

	// A build that does not end is given up, and then logs are cut: behind both generations.
	s.AdvanceClock(buildGrace)
	for shard := range 2 {
		log := journal.New(s, id, shard, journal.Options{})
		// the newest one, and too young to cut behind
		s.Set(log.CheckpointName(3, logs[shard][8]), []byte("checkpoint"))
	}
	collect(t, s)
	m = inStore(t, s)
	require.Nil(t, m.Building)
	require.Len(t, m.Retired, 1)
	s.AdvanceClock(2 * time.Hour)
	collect(t, s)
	for shard := range 2 {
		left := s.Names(fmt.Sprintf("data/%s/log/%04d/", id, shard))
		require.Len(t, left, 10, "generation 4 has one checkpoint, and needs what is after it until it has two: %q",
			left)
	}
	changeMap(t, s, func(m *Map) { m.giveUpNext(errors.New("a test")) })
	collect(t, s)
	for shard := range 2 {
		left := s.Names(fmt.Sprintf("data/%s/log/%04d/", id, shard))
		require.True(t, strings.HasSuffix(left[len(left)-1], fmt.Sprintf("%016x", 10)), "the newest entry stays")
		require.Less(t, len(left), 10)
		require.Contains(t, left, fmt.Sprintf("data/%s/log/%04d/%016x", id, shard, 4),
			"what is after the older checkpoint stays")
	}
}

// A build that another has replaced, or whose collection was removed, puts no objects: none would delete them.
func TestGarbageOfBuilds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "whole.plaid")
	_, err := index.Build(t.Context(), path, sourceOf(t, testDocs(0, 200, 16)), &index.BuildOptions{Nbits: 4})
	require.NoError(t, err)
	ix, err := index.Open(t.Context(), path, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, ix.Close()) }()
	growth, err := collection.Growth{Flat: 100}.Completed()
	require.NoError(t, err)
	for want, change := range map[error]func(*Map){
		ErrConflict: func(m *Map) { m.reserve(&m.Building, "another") }, collection.ErrUnknown: (*Map).remove,
	} {
		s := memory.New()
		b := &bulkBuild{store: s, id: testMap(t, s, "wiki", nil).ID, growth: growth}
		require.NoError(t, b.reserveGeneration(t.Context()))
		changeMap(t, s, change)
		for range 3 {
			collect(t, s)
			s.AdvanceClock(2 * time.Hour)
		}
		_, err := b.publishIndex(t.Context(), ix, t.TempDir())
		require.ErrorIs(t, err, want)
		require.Empty(t, s.Names("data/"))
	}
}

// Objects that come while a store is verified, with the maps that name them, are not reported as unclaimed.
func TestVerifyWhileMapsCome(t *testing.T) {
	s := memory.New()
	m := testMap(t, s, "wiki", nil)
	change := sync.OnceFunc(func() {
		changeMap(t, s.Twin(), func(m *Map) { m.reserve(&m.Training, "a node") })
		s.Set(codecObject(m.ID, 1), []byte("x"))
		other := testMap(t, s.Twin(), "other", nil)
		s.Set(dataPrefix(other.ID)+"log/0000/0000000000000001", []byte("x"))
	})
	s.SetHook(func(_ context.Context, op, name string) (before, after error) {
		if op == "list" && strings.HasPrefix(name, dataPrefix(m.ID)) {
			change()
		}
		return nil, nil
	})
	r, err := Verify(t.Context(), s, VerifyOptions{Dir: t.TempDir()})
	require.NoError(t, err)
	require.Empty(t, r.Unclaimed)
	require.Empty(t, r.Faults)
}

// A beat that came long ago goes, and one of a node that lives does not.
func TestGarbageOfNodes(t *testing.T) {
	s := memory.New()
	dead := &Node{Name: "dead", Started: "1"}
	_, err := putBeat(t.Context(), s, dead, 1)
	require.NoError(t, err)
	s.AdvanceClock(2 * time.Hour)
	_, err = putBeat(t.Context(), s, &Node{Name: "b", Started: "2"}, 1)
	require.NoError(t, err)
	require.NoError(t, removeOldBeats(t.Context(), s, s.Now().Add(-time.Hour)))
	require.Equal(t, []string{"nodes/b@2"}, s.Names(nodesPrefix))
}

// A node is alive while its beat changes, by the clock of the observer, whatever the times of the store say.
func TestLivesByOwnClock(t *testing.T) {
	s := memory.New()
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of the observer
	l := &beatTracker{ttl: 4 * time.Second}
	counts := map[string]uint64{}
	say := func(nodes ...*Node) {
		for _, n := range nodes {
			counts[n.Started]++
			_, err := putBeat(t.Context(), s, n, counts[n.Started])
			require.NoError(t, err)
		}
	}
	look := func() (names string) {
		listed, err := s.List(t.Context(), nodesPrefix, "", 0)
		require.NoError(t, err)
		require.NoError(t,
			l.update(now, listed, func(object string) (*Node, error) { return readNode(t.Context(), s, object) }))
		for _, n := range l.livingNodes(now) {
			names += n.Name + "@" + n.Started + " "
		}
		return names
	}
	node := func(name, started string, since int) *Node {
		return &Node{Name: name, Started: started, Since: time.Unix(int64(since), 0)}
	}
	a, b, dead := node("a", "1", 1), node("b", "1b", 1), node("dead", "0", 0)
	say(dead)
	s.AdvanceClock(24 * time.Hour)
	say(a, b)
	require.Equal(t, "a@1 b@1b ", look(), "one of yesterday is not taken for alive")
	now = now.Add(3 * time.Second)
	say(a)
	require.Equal(t, "a@1 b@1b ", look())
	now = now.Add(2 * time.Second)
	say(a) // the clock of the store stands still: the size changes
	require.Equal(t, "a@1 ", look())
	s.AdvanceClock(-2000 * time.Hour) // or goes back
	say(b)
	require.Equal(t, "a@1 b@1b ", look())
	again := node("a", "2", 2)
	say(again)
	require.Equal(t, "a@2 b@1b ", look(), "of one name the process that started last")
	now = now.Add(3 * time.Second)
	say(a, b, again)
	require.NoError(t, s.Delete(t.Context(), b.object()))
	require.Equal(t, "a@2 ", look(), "a node that ended is gone at once")
	s.Set("nodes/x@y", []byte("{"))
	listed, err := s.List(t.Context(), nodesPrefix, "", 0)
	require.NoError(t, err)
	require.Error(t,
		l.update(now, listed, func(object string) (*Node, error) { return readNode(t.Context(), s, object) }))
	require.Len(t, l.livingNodes(now), 1)
}

// A client may end before it sees that a beat stands still, so it goes by the times of the store at first.
func TestLivesOfClient(t *testing.T) {
	s := memory.New()
	client := testNode(t, s, "client", func(c *Config) { c.Address, c.Beat = "", 3*time.Second })
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	l := &beatTracker{ttl: client.beats.ttl, stale: client.beats.stale}
	entry := func(name string, age time.Duration) objects.Entry {
		return objects.Entry{Name: "nodes/" + name + "@1", Size: 1, Made: now.Add(-age)}
	}
	read := func(object string) (*Node, error) {
		name, _, _ := strings.Cut(strings.TrimPrefix(object, nodesPrefix), "@")
		return &Node{Name: name, Started: "1"}, nil
	}
	listed := []objects.Entry{entry("new", 0), entry("late", 9*time.Second), entry("dead", 16*time.Second)}
	require.NoError(t, l.update(now, listed, read))
	var names []string
	for _, n := range l.livingNodes(now) {
		names = append(names, n.Name)
	}
	require.Equal(t, []string{"late", "new"}, names)
	listed[2] = entry("dead", 0) // it was only slow
	require.NoError(t, l.update(now, listed, read))
	require.Len(t, l.livingNodes(now), 3)
}

// An idle cluster of 1,600 shards with two replicas on 8 nodes asks the store at most 20 times a second.
func TestIdleRequests(t *testing.T) {
	t.Parallel()
	const nodes, shards, replicas = 8, 1600, 2
	const beats = 3
	s := memory.New()
	testMap(t, s, "wiki", func(m *Map) {
		m.Shards, m.Last = shards, 1
		m.Current = &replica.Generation{Number: 1, Dim: 8, Stage: collection.StageFlat, Begun: true}
	})
	id := "wiki.0123456789abcdef"
	c := &Cluster{replicas: map[replicaKey]*cachedReplica{}}
	start := time.Unix(0, 0)
	for shard := range shards * replicas / nodes {
		c.replicas[replicaKey{shardKey{id, shard}, 1}] = &cachedReplica{nextPoll: start}
	}
	c.duePolls(start)
	const hours = 4
	polls := 0
	for now := start; now.Before(start.Add(hours * time.Hour)); now = now.Add(3 * time.Second) {
		polls += len(c.duePolls(now))
	}
	client := testNode(t, s, "a", func(c *Config) { c.Address = "" }) // a client: what a node does, but for its beat
	before := s.Requests()
	at := client.requests.Load()
	await(t, "some beats", func() bool { return client.requests.Load() >= at+2*beats })
	looks := float64(s.Requests()-before) / float64(client.requests.Load()-at) * 3 // requests of a beat of a node
	require.InDelta(t, 3, looks, 0.5)
	for shard := range shards {
		log := journal.New(s, id, shard, journal.Options{})
		at, err := log.Append(t.Context(), journal.Position{}, []string{"b"}, nil)
		require.NoError(t, err)
		s.Set(log.CheckpointName(1, at), []byte("x"))
	}
	before = s.Requests()
	collect(t, s)
	garbage := float64(s.Requests() - before)
	rate := nodes*looks/3 + nodes*float64(polls)/(hours*3600) + garbage/1800
	t.Logf("%.1f requests a second: %.1f of beats, %.1f of polls, %.3f of garbage", rate, nodes*looks/3,
		nodes*float64(polls)/(hours*3600), garbage/1800)
	require.LessOrEqual(t, rate, 20.)
}

// The logs of shards are cut at a time, each in its order: one after another, they would grow faster.
func TestLogsAreCutAtATime(t *testing.T) {
	s := memory.New()
	testMap(t, s, "wiki", func(m *Map) {
		m.Shards, m.Last, m.Current = 2, 1, &replica.Generation{Number: 1, Dim: 8, Stage: collection.StageFlat}
	})
	for shard := range 2 {
		log := journal.New(s, "wiki.0123456789abcdef", shard, journal.Options{})
		at := journal.Position{}
		for n := range 9 {
			var err error
			at, err = log.Append(t.Context(), at, []string{"b"}, []byte("body"))
			require.NoError(t, err)
			if n >= 6 {
				s.Set(log.CheckpointName(1, at), []byte("checkpoint"))
			}
		}
	}
	s.AdvanceClock(2 * time.Hour)
	both := make(chan struct{})
	var mu sync.Mutex
	cut := map[string][]string{} // by log
	s.SetHook(func(ctx context.Context, op, name string) (before, after error) {
		if op == "delete" && strings.Contains(name, "/log/") {
			mu.Lock()
			log := name[:strings.LastIndexByte(name, '/')]
			if cut[log] = append(cut[log], name); len(cut) == 2 && len(cut[log]) == 1 {
				close(both)
			}
			mu.Unlock()
			select {
			case <-both:
			case <-time.After(20 * time.Second):
				return errors.New("the other log is not cut at the same time"), nil
			}
		}
		return nil, nil
	})
	collect(t, s)
	require.Len(t, cut, 2)
	for _, names := range cut {
		require.NotEmpty(t, names)
		require.True(t, slices.IsSorted(names), names)
	}
}
