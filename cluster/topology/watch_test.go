package topology

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/bus"
)

// What NATS says of leases is not believed where the watcher's own clock says otherwise:
// servers may have other clocks than each other.
func TestLeasesByOwnClock(t *testing.T) {
	_, b, _ := store(t)
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	b.Lease = 500 * time.Millisecond // the bucket's is longer
	w, err := Watch(ctx, b)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	say := func(node string) {
		text, err := json.Marshal(Lease{Node: node})
		if err == nil {
			_, err = b.Nodes.Put(ctx, node, text)
		}
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
	knows := func(want ...string) func() bool {
		return func() bool {
			ls := w.Leases()
			if len(ls) != len(want) {
				return false
			}
			for i, l := range ls {
				if l.Node != want[i] {
					return false
				}
			}
			return true
		}
	}
	await := func(what string, ok func() bool) {
		t.Helper()
		if err := w.Wait(ctx, ok); err != nil {
			t.Fatalf("%s: %v: %+v", what, err, w.Leases())
		}
	}
	// A lease may end before it is seen, if this test is not run for as long.
	sayUntil := func(ok func() bool, nodes ...string) {
		t.Helper()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for !ok() {
			for _, node := range nodes {
				say(node)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("%v are said: %+v", nodes, w.Leases())
			}
		}
	}
	// One that takes its lease back is forgotten at once.
	sayUntil(knows("a"), "a")
	if err := b.Nodes.Delete(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	await("none", knows())

	// A server whose clock is ahead ends a lease that has just been renewed.
	has := func(node string) bool { // what has been said of others may come late
		return slices.ContainsFunc(w.Leases(), func(l *Lease) bool { return l.Node == node })
	}
	heardAt := func(at time.Time) (there bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		l := w.leases["c"]
		if l != nil {
			l.at = at
		}
		return l != nil
	}
	for there := false; !there; there = heardAt(time.Now().Add(time.Hour)) { // however long this test is not run
		w.takeLease(entry{key: "c", op: jetstream.KeyValuePut, value: []byte(`{"node":"c"}`)})
	}
	w.takeLease(entry{key: "c", op: jetstream.KeyValuePurge})
	if !has("c") {
		t.Error("a lease that has just come is forgotten")
	}
	w.keep(map[string]bool{})
	if !has("c") {
		t.Error("a lease that has just come is forgotten when the watch begins anew")
	}
	heardAt(time.Now())
	await("the end of a lease that was not renewed", func() bool { return !has("c") })

	// One whose clock is behind does not end that of a node that is dead.
	sayUntil(knows("a", "b"), "a", "b")
	sayUntil(knows("b"), "b")
}

// entry is what a server says of a lease.
type entry struct {
	jetstream.KeyValueEntry
	key   string
	op    jetstream.KeyValueOp
	value []byte
}

func (e entry) Key() string                     { return e.key }
func (e entry) Operation() jetstream.KeyValueOp { return e.op }
func (e entry) Value() []byte                   { return e.value }

// mute is a bucket that does not answer whoever wants to watch it, as one without a leader.
type mute struct{ jetstream.KeyValue }

func (mute) WatchAll(ctx context.Context, _ ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Servers that do not answer, as after a kill, are said to do so: that this program gives up one
// attempt after another is no interrupt, which nobody has made.
func TestSilentServersAreNoInterrupt(t *testing.T) {
	_, b, _ := store(t)
	b.Maps = mute{b.Maps}
	ctx, stop := context.WithTimeout(t.Context(), bus.Attempt+time.Second)
	defer stop()
	_, err := Watch(ctx, b)
	require.ErrorIs(t, err, ErrSilent)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, context.Canceled)
}

// A map that becomes one of a later program is in no list: whoever does not understand it must not
// act on what it was.
func TestMapThatIsUnderstoodNoLonger(t *testing.T) {
	s, b, _ := store(t)
	w, err := Watch(t.Context(), b)
	require.NoError(t, err)
	defer w.Close()
	require.NoError(t, s.Create(t.Context(), make1(t, NewIncarnation())))
	require.NoError(t, w.Wait(t.Context(), func() bool { return len(w.Maps()) == 1 }))
	_, err = b.Maps.Put(t.Context(), "c", []byte(`{"format": 1, "collection": "c", "version": 2, "invented": true}`))
	require.NoError(t, err)
	require.NoError(t, w.Wait(t.Context(), func() bool { return len(w.Faults()) == 1 }))
	require.Empty(t, w.Maps())
	_, err = w.Map("c")
	require.ErrorIs(t, err, ErrMap)
	require.NotErrorIs(t, err, ErrNoCollection)
}

// A map that is larger than a message could never be shown, and keeps its name from others.
func TestMapTooLargeToShow(t *testing.T) {
	s, b, o := store(t)
	m := make1(t, NewIncarnation())
	m.Settings, _ = json.Marshal(strings.Repeat("x", bus.MaxPayload))
	require.ErrorIs(t, s.Create(t.Context(), m), ErrMap)
	all, err := o.List(t.Context(), "maps/")
	require.NoError(t, err)
	require.Empty(t, all)
	m.Settings, _ = json.Marshal(strings.Repeat("x", maxMap-1<<12))
	require.NoError(t, s.Create(t.Context(), m))
	e, err := b.Maps.Get(t.Context(), "c")
	require.NoError(t, err)
	_, err = Decode(e.Value())
	require.NoError(t, err)
}
