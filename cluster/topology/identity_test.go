package topology

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/plaid-ir/plaid/cluster/objects"
)

func make1(t *testing.T, incarnation string) *Map {
	t.Helper()
	m, err := New("c", 2, 1, 1, members(2, 0))
	if err != nil {
		t.Fatal(err)
	}
	m.Incarnation = incarnation
	return m
}

func want(t *testing.T, err, is, not error) {
	t.Helper()
	if !errors.Is(err, is) || not != nil && errors.Is(err, not) {
		t.Fatalf("%v; wanted %v and not %v", err, is, not)
	}
}

func TestIdentity(t *testing.T) {
	m := make1(t, "")
	if m.ID() != "c" || NameOf("c") != "c" {
		t.Error("a map without incarnation has another name")
	}
	m.Incarnation = NewIncarnation()
	if id := m.ID(); id != "c@"+m.Incarnation || NameOf(id) != "c" || CheckID(id) != nil || CheckName(id) == nil {
		t.Error(id)
	}
	for _, id := range []string{"", "@", "c@", "c@1", "c@0123456789ABCDEF", "c@0123456789abcdeg", "c@0123456789abcdef@", "C@0123456789abcdef", "c/@0123456789abcdef"} {
		if CheckID(id) == nil {
			t.Errorf("%q is an identity", id)
		}
	}
	for i, spoil := range []func(*Map){
		func(m *Map) { m.Incarnation = "x" },
		func(m *Map) { m.Former = []string{m.ID()} },
		func(m *Map) { m.Former = []string{"other"} },
		func(m *Map) { m.Former = []string{"c@"} },
		func(m *Map) { m.Removed, m.Last, m.Next = true, 1, &Generation{Number: 1, Dim: 1} },
	} {
		m := make1(t, "0123456789abcdef")
		spoil(m)
		if err := m.Check(); !errors.Is(err, ErrMap) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// What began with one collection does not go on with another of the name, and numbers are
// not given out twice.
func TestRemoveAndCreateAgain(t *testing.T) {
	s, b, o := store(t)
	ctx := t.Context()
	_, _, err := s.Remove(ctx, "c")
	want(t, err, ErrNoCollection, ErrRemoved)
	old := make1(t, "")
	if err := s.Create(ctx, old); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(ctx, "c", func(m *Map) error { m.Last = 7; return nil }); err != nil {
		t.Fatal(err)
	}
	gone, existed, err := s.Remove(ctx, "c")
	if err != nil || !existed || !gone.Removed || gone.Version != 3 || !gone.Removes("c") {
		t.Fatal(gone, existed, err)
	}
	_, err = s.Get(ctx, "c")
	want(t, err, ErrRemoved, ErrReplaced)
	_, err = s.Update(ctx, "c", func(*Map) error { return nil })
	want(t, err, ErrRemoved, ErrReplaced)
	_, err = s.Recover(ctx, "c")
	want(t, err, ErrRemoved, ErrReplaced)
	if again, existed, err := s.Remove(ctx, "c"); err != nil || existed || again.Version != 3 {
		t.Fatal(again, existed, err)
	}

	w, err := Watch(ctx, b)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.Map("c"); !errors.Is(err, ErrRemoved) || len(w.Maps()) != 0 {
		t.Fatal(err)
	}
	one, other := make1(t, NewIncarnation()), make1(t, NewIncarnation())
	_, err = s.Find(ctx, one.ID())
	want(t, err, ErrNoCollection, ErrRemoved)
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i, m := range []*Map{one, other} {
		wg.Go(func() { errs[i] = s.Create(ctx, m) })
	}
	wg.Wait()
	if errs[0] != nil {
		one, errs[0], errs[1] = other, errs[1], errs[0]
	}
	want(t, errs[1], ErrExists, nil)
	if errs[0] != nil || one.Version != 4 || one.Last != 7 || !slices.Equal(one.Former, []string{"c"}) {
		t.Fatal(one, errs[0])
	}
	_, err = s.Update(ctx, "c", func(m *Map) error { m.Last++; return nil })
	want(t, err, ErrReplaced, nil)
	_, err = s.Find(ctx, "c")
	want(t, err, ErrReplaced, nil)
	if err := w.Wait(ctx, func() bool { m, err := w.Map("c"); return err == nil && m.ID() == one.ID() }); err != nil {
		t.Fatal(err)
	}
	_, err = w.MapOf("c")
	want(t, err, ErrReplaced, nil)
	_, err = w.MapOf("c@0123456789abcdef")
	want(t, err, ErrNoCollection, ErrRemoved) // perhaps it is one to come

	// JetStream has lost what it showed: what was removed stays removed.
	if _, _, err := s.Remove(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	if err := b.Maps.Purge(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Recover(ctx, "c")
	want(t, err, ErrRemoved, nil)
	if err := b.Maps.Purge(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	third := make1(t, NewIncarnation())
	if err := s.Create(ctx, third); err != nil || third.Version != 6 || !slices.Equal(third.Former, []string{one.ID(), "c"}) {
		t.Fatal(third, err)
	}

	// The objects were removed by hand: what is shown counts.
	all, err := o.List(ctx, "maps/c/")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if err := o.Delete(ctx, e.Name); err != nil {
			t.Fatal(err)
		}
	}
	want(t, s.Create(ctx, make1(t, NewIncarnation())), ErrExists, nil)
	if m, existed, err := s.Remove(ctx, "c"); err != nil || !existed || m.Version != 7 {
		t.Fatal(m, existed, err)
	}
}

// A collection whose maker died before it was shown is there, and can be removed.
func TestCreationInterrupted(t *testing.T) {
	s, b, _ := store(t)
	ctx := t.Context()
	m := make1(t, NewIncarnation())
	if err := s.Create(ctx, m); err != nil {
		t.Fatal(err)
	}
	if err := b.Maps.Purge(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	want(t, s.Create(ctx, make1(t, NewIncarnation())), ErrExists, nil)
	if got, err := s.Get(ctx, "c"); err != nil || got.ID() != m.ID() {
		t.Fatal(got, err) // the one that is there is shown
	}
	if err := b.Maps.Purge(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	if got, existed, err := s.Remove(ctx, "c"); err != nil || !existed || got.ID() != m.ID() {
		t.Fatal(got, existed, err)
	}
}

func TestFormerIsBounded(t *testing.T) {
	m := make1(t, NewIncarnation())
	for i := range maxFormer + 9 {
		next := make1(t, fmt.Sprintf("%016x", i))
		m.remove()
		next.follow(m)
		if err := next.Check(); err != nil {
			t.Fatal(err)
		}
		if !next.Removes(m.ID()) || next.Version != m.Version+1 || len(next.Former) > maxFormer {
			t.Fatal(next)
		}
		m = next
	}
}

// What a lease says of a collection is never taken for another of its name.
func TestLeaseOfFormer(t *testing.T) {
	_, b, _ := store(t)
	old, now := make1(t, NewIncarnation()), make1(t, NewIncarnation())
	text, err := json.Marshal(Lease{Node: "n0", Shards: []Serving{{Collection: old.ID(), Generation: 1, Ready: true}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Nodes.Put(t.Context(), "n0", text); err != nil {
		t.Fatal(err)
	}
	w, err := Watch(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if len(w.Replicas(old.ID(), 1, 0)) != 1 || len(w.Replicas(now.ID(), 1, 0)) != 0 || len(w.Replicas("c", 1, 0)) != 0 {
		t.Fatal(w.Leases())
	}
}

// second is a store of objects that calls a function before it writes the first one.
type second struct {
	objects.Store
	first func()
}

func (s *second) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	if first := s.first; first != nil {
		s.first = nil
		first()
	}
	return s.Store.Put(ctx, name, r, size)
}

// Of two removals at a time one is first, and the other one finds the collection removed:
// no error, so that it finishes what the first may not come to.
func TestRemoveTwiceAtOnce(t *testing.T) {
	s, b, o := store(t)
	ctx := t.Context()
	m := make1(t, NewIncarnation())
	if err := s.Create(ctx, m); err != nil {
		t.Fatal(err)
	}
	late := NewStore(&second{o, func() {
		if _, existed, err := s.Remove(ctx, "c"); err != nil || !existed {
			t.Error(existed, err)
		}
	}}, b.Maps)
	gone, existed, err := late.Remove(ctx, "c")
	if err != nil || existed || !gone.Removed || gone.ID() != m.ID() || gone.Version != 2 {
		t.Fatal(gone, existed, err)
	}

	// Where the name was used again meanwhile, the new collection stays.
	m, next := make1(t, NewIncarnation()), make1(t, NewIncarnation())
	if err := s.Create(ctx, m); err != nil {
		t.Fatal(err)
	}
	late = NewStore(&second{o, func() {
		if _, existed, err := s.Remove(ctx, "c"); err != nil || !existed {
			t.Error(existed, err)
		}
		if err := s.Create(ctx, next); err != nil {
			t.Error(err)
		}
	}}, b.Maps)
	_, existed, err = late.Remove(ctx, "c")
	want(t, err, ErrReplaced, nil)
	if now, err := s.Get(ctx, "c"); existed || err != nil || now.ID() != next.ID() {
		t.Fatal(now, existed, err)
	}
}
