package replica_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/objectstest/memory"
	"github.com/plaid-ir/plaid/storage/objects"
)

// openOver opens a replica of a shard of a store.
func openOver(t *testing.T, s objects.Store) *replica.Replica {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	c := &replica.Config{Store: s, Dir: t.TempDir(), Index: store.Options{Threads: 1}, Logger: log}
	g := replica.Generation{Number: 1, Dim: 2, Nbits: 8, Stage: collection.StageFlat, Begun: true}
	r, err := replica.Open(c, replica.Shard{Collection: "notes.x1", Generation: g})
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}

// A change that found nothing to change when it was sent to another node does nothing at the first one either, which
// goes on later: the documents that it would change then came after its answer.
func TestNothingIsDoneOnce(t *testing.T) {
	s := memory.New()
	ctx, first, other := t.Context(), openOver(t, s), openOver(t, s.Twin())
	add := func(r *replica.Replica, id string) error {
		docs := []collection.DocumentInput{{ID: id, Dim: 2, Vectors: []float32{1, 0}, Metadata: []byte(`{"n":1}`)}}
		_, _, err := r.Update(ctx, replica.Batch{}, docs, collection.UpdateOptions{Replace: true})
		return err
	}
	require.NoError(t, add(first, "a"))
	begun, release := s.HoldPut()
	ended := make(chan error, 3)
	go func() { ended <- add(first, "b") }()
	<-begun
	late := collection.Selection{IDs: []string{"late"}}
	remove := func(r *replica.Replica, b replica.Batch) error {
		n, _, err := r.Delete(ctx, b, late)
		if err == nil && n.Documents > 0 {
			err = errors.New("it is done late")
		}
		return err
	}
	set := func(r *replica.Replica, b replica.Batch) error {
		n, _, err := r.UpdateMetadata(ctx, b, late, map[string]json.RawMessage{"n": []byte(`2`)})
		if err == nil && n.Documents > 0 {
			err = errors.New("it is done late")
		}
		return err
	}
	go func() { ended <- remove(first, replica.Batch{ID: "one", After: 1}) }()
	go func() { ended <- set(first, replica.Batch{ID: "two", After: 1}) }()
	for { // until they wait behind the one that is held
		st, err := first.Stats(ctx)
		require.NoError(t, err)
		if st.Queue.Requests == 3 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for range 2 { // however often
		require.NoError(t, remove(other, replica.Batch{ID: "one", After: 1, Sent: true}))
		require.NoError(t, set(other, replica.Batch{ID: "two", After: 1, Sent: true}))
	}
	require.NoError(t, add(other, "late"))
	release()
	for range 3 {
		require.NoError(t, <-ended)
	}
	for _, r := range []*replica.Replica{first, other} {
		v, _, err := r.Snapshot(ctx, 5)
		require.NoError(t, err)
		o, there, err := v.Snapshot().Ordinal("late")
		require.NoError(t, err)
		require.True(t, there)
		payload, err := v.Snapshot().Payload(o)
		require.NoError(t, err)
		require.JSONEq(t, `{"n":1}`, string(payload))
		require.NoError(t, v.Close())
	}
}

// A change that was refused when it was sent to another node is not made at the first one either.
func TestRefusedStaysRefused(t *testing.T) {
	s := memory.New()
	ctx, first, other := t.Context(), openOver(t, s), openOver(t, s)
	add := func(r *replica.Replica, b replica.Batch) error {
		docs := []collection.DocumentInput{{ID: "a", Dim: 2, Vectors: []float32{1, 0}}}
		_, _, err := r.Update(ctx, b, docs, collection.UpdateOptions{})
		return err
	}
	require.NoError(t, add(first, replica.Batch{}))
	for range 2 {
		require.ErrorIs(t, add(other, replica.Batch{ID: "one", After: 1, Sent: true}), index.ErrDuplicateID)
	}
	n, entry, err := other.Delete(ctx, replica.Batch{}, collection.Selection{IDs: []string{"a"}})
	require.NoError(t, err)
	require.Equal(t, 1, n.Documents)
	require.ErrorIs(t, add(first, replica.Batch{ID: "one", After: 1}), index.ErrDuplicateID) // which was late
	v, _, err := first.Snapshot(ctx, entry)
	require.NoError(t, err)
	require.Zero(t, v.Snapshot().Documents())
	require.NoError(t, v.Close())
}

// Fields that were refused, since a document would have too many, are not set later by the first node either.
func TestRefusedFieldsStayRefused(t *testing.T) {
	s := memory.New()
	ctx, first, other := t.Context(), openOver(t, s), openOver(t, s)
	put := func(metadata string) {
		docs := []collection.DocumentInput{{ID: "a", Dim: 2, Vectors: []float32{1, 0}, Metadata: []byte(metadata)}}
		_, _, err := other.Update(ctx, replica.Batch{}, docs, collection.UpdateOptions{Replace: true})
		require.NoError(t, err)
	}
	set := func(r *replica.Replica, b replica.Batch) error {
		fields := map[string]json.RawMessage{"more": []byte(`"` + strings.Repeat("x", 1000) + `"`)}
		_, _, err := r.UpdateMetadata(ctx, b, collection.Selection{IDs: []string{"a"}}, fields)
		return err
	}
	put(`{"n": "` + strings.Repeat("x", collection.MaxMetadata-100) + `"}`)
	for range 2 {
		require.ErrorIs(t, set(other, replica.Batch{ID: "one", After: 1, Sent: true}), collection.ErrMetadata)
	}
	put(`{"n": 1}`)
	require.ErrorIs(t, set(first, replica.Batch{ID: "one", After: 1}), collection.ErrMetadata) // which was late
	v, _, err := other.Snapshot(ctx, 3)
	require.NoError(t, err)
	defer func() { require.NoError(t, v.Close()) }()
	o, there, err := v.Snapshot().Ordinal("a")
	require.NoError(t, err)
	require.True(t, there)
	payload, err := v.Snapshot().Payload(o)
	require.NoError(t, err)
	require.JSONEq(t, `{"n": 1}`, string(payload))
}

// A log whose last entry is damaged or gone is sealed too: its collection is removed, and its objects with it.
func TestDamagedLogIsSealed(t *testing.T) {
	for _, gone := range []bool{false, true} {
		s := memory.New()
		r := openOver(t, s)
		add := func(id string) error {
			docs := []collection.DocumentInput{{ID: id, Dim: 2, Vectors: []float32{1, 0}}}
			_, _, err := r.Update(t.Context(), replica.Batch{}, docs, collection.UpdateOptions{})
			return err
		}
		require.NoError(t, add("a"))
		require.NoError(t, add("b"))
		require.NoError(t, r.Checkpoint(t.Context()))
		last := s.Names("data/notes.x1/log/")[1]
		if gone {
			require.NoError(t, s.Delete(t.Context(), last))
		} else {
			s.Set(last, []byte("damaged"))
		}
		for range 2 {
			require.NoError(t, replica.Seal(t.Context(), &replica.Config{Store: s}, "notes.x1", 0))
		}
		require.Error(t, add("c"))
		require.Len(t, s.Names("data/notes.x1/log/0000/0000000000000003"), 1)
		require.Empty(t, s.Names("data/notes.x1/log/0000/0000000000000004"))
	}
}
