package replica

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/journal"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/internal/testing/objectstest/memory"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/objects"
)

func put1(t testing.TB, r *Replica, b Batch, id string) (uint64, error) {
	t.Helper()
	d := randomDoc(rand.New(rand.NewPCG(1, 2)), id)
	_, entry, err := r.Update(t.Context(), b, []collection.DocumentInput{d}, collection.UpdateOptions{Replace: true})
	return entry, err
}

// After a seal no replica takes a change: not one that had not read it, not one that is opened again, and not
// one that begins with a checkpoint. What was made before is still answered.
func TestSeal(t *testing.T) {
	s := memory.New()
	dirs := []string{t.TempDir(), t.TempDir()}
	first, second := openReplica(t, s, dirs[0], shardOf(flat)), openReplica(t, s, dirs[1], shardOf(flat))
	_, err := put1(t, first, Batch{ID: "first"}, "a")
	require.NoError(t, err)
	require.NoError(t, second.Poll(t.Context()))
	c := &Config{Store: s, Dir: t.TempDir()}
	for range 2 { // the second time it is there
		require.NoError(t, Seal(t.Context(), c, "notes.x1", 0))
	}
	refuses := func(r *Replica) {
		t.Helper()
		_, err := put1(t, r, Batch{}, "late")
		require.ErrorIs(t, err, collection.ErrUnknown)
		_, _, err = r.Delete(t.Context(), Batch{}, collection.Selection{IDs: []string{"none"}})
		require.ErrorIs(t, err, collection.ErrUnknown)
		_, docs := content(t, r, 0)
		require.Len(t, docs, 1)
	}
	refuses(first)
	refuses(second)
	entry, err := put1(t, second, Batch{ID: "first", Sent: true}, "a")
	require.NoError(t, err)
	require.Equal(t, uint64(1), entry)
	require.NoError(t, first.Checkpoint(t.Context()))
	require.NoError(t, first.Close(t.Context()))
	refuses(openReplica(t, s, dirs[0], shardOf(flat)))
	refuses(openReplica(t, s, t.TempDir(), shardOf(flat)))
	log, err := s.List(t.Context(), "data/notes.x1/log/0000/", "", 0)
	require.NoError(t, err)
	require.Len(t, log, 2)
}

// A log that is empty, and one that was cut, can be sealed as well.
func TestSealOfOtherLogs(t *testing.T) {
	s := memory.New()
	c := &Config{Store: s, Dir: t.TempDir()}
	r := openReplica(t, s, t.TempDir(), shardOf(flat))
	for i := range 5 {
		_, err := put1(t, r, Batch{}, fmt.Sprint(i))
		require.NoError(t, err)
	}
	require.NoError(t, r.Checkpoint(t.Context()))
	for n := 1; n < 5; n++ {
		require.NoError(t, s.Delete(t.Context(), fmt.Sprintf("data/notes.x1/log/0000/%016x", n)))
	}
	require.NoError(t, Seal(t.Context(), c, "notes.x1", 0))
	_, err := put1(t, r, Batch{}, "late")
	require.ErrorIs(t, err, collection.ErrUnknown)
	require.NoError(t, Seal(t.Context(), c, "notes.x1", 7))
	empty := shardOf(flat)
	empty.Number = 7
	_, err = put1(t, openReplica(t, s, t.TempDir(), empty), Batch{}, "late")
	require.ErrorIs(t, err, collection.ErrUnknown)
}

// A writer that slept until the objects of a collection were deleted, its seal among them, does not
// acknowledge what it puts in the place of that.
func TestSleptUntilDeleted(t *testing.T) {
	for entries := range 2 { // with a log that was empty, as far as it knew, and with one that was not
		s := memory.New()
		gone := false
		r, err := Open(&Config{
			Store: s, Dir: t.TempDir(), Index: store.Options{Threads: 1}, Logger: slog.New(slog.DiscardHandler),
			CheckExists: func(context.Context, string) error {
				if gone {
					return collection.ErrUnknown
				}
				return nil
			},
		}, shardOf(flat))
		require.NoError(t, err)
		for i := range entries {
			_, err := put1(t, r, Batch{}, fmt.Sprint(i))
			require.NoError(t, err)
		}
		content(t, r, 0)
		gone = true
		s.Clear()
		s.AdvanceClock(3 * time.Hour)
		_, err = put1(t, r, Batch{}, "late")
		require.Error(t, err)
		require.NoError(t, r.Close(t.Context()))
	}
}

// A change that waits at one node, and was sent to another one meanwhile, is not done a second time when
// the first one goes on: it would undo what came after it.
func TestNotDoneTwice(t *testing.T) {
	s := memory.New()
	ctx, first := t.Context(), openReplica(t, s, t.TempDir(), shardOf(flat))
	other := openReplica(t, s.Twin(), t.TempDir(), shardOf(flat))
	_, err := put1(t, first, Batch{}, "a")
	require.NoError(t, err)
	begun, release := s.HoldPut()
	ended := make(chan error, 2)
	send := func(id string) {
		_, err := put1(t, first, Batch{ID: id}, id)
		ended <- err
	}
	go send("one")
	<-begun
	go send("two")
	require.Eventually(t, func() bool { // it waits behind the one that is held
		st, err := first.Stats(ctx)
		return err == nil && st.Queue.Requests == 2
	}, 20*time.Second, time.Millisecond)
	for _, id := range []string{"one", "two"} {
		_, err := put1(t, other, Batch{ID: id, Sent: true, After: 1}, id)
		require.NoError(t, err)
	}
	n, last, err := other.Delete(ctx, Batch{}, collection.Selection{IDs: []string{"one", "two"}})
	require.NoError(t, err)
	require.Equal(t, 2, n.Documents)
	release()
	for range 2 {
		require.NoError(t, <-ended, "it was done, by another")
	}
	_, err = put1(t, first, Batch{ID: "two", After: 1}, "two") // late, and it does not say that it was sent elsewhere
	require.NoError(t, err)
	for _, r := range []*Replica{first, other} {
		_, docs := content(t, r, last)
		require.Len(t, docs, 1)
		require.Equal(t, last, r.State().Entry, "nothing came after the deletion")
	}
}

// A change that comes late, out of the socket of a process that slept for example, and does not say that it was
// sent elsewhere since, is not done twice by a replica that remembers nothing.
func TestLateChange(t *testing.T) {
	s := memory.New()
	first := openReplica(t, s, t.TempDir(), shardOf(flat))
	_, err := put1(t, first, Batch{ID: "first"}, "a")
	require.NoError(t, err)
	_, _, err = first.Delete(t.Context(), Batch{}, collection.Selection{IDs: []string{"a"}})
	require.NoError(t, err)
	other := openReplica(t, s, t.TempDir(), shardOf(flat))
	entry, err := put1(t, other, Batch{ID: "first"}, "a")
	require.NoError(t, err)
	require.Equal(t, uint64(1), entry)
	_, docs := content(t, other, 2)
	require.Empty(t, docs)
	for i := range 300 { // more than are looked at
		_, err := put1(t, first, Batch{}, fmt.Sprint(i))
		require.NoError(t, err)
	}
	last := openReplica(t, s, t.TempDir(), shardOf(flat))
	require.NoError(t, last.Poll(t.Context()))
	_, err = put1(t, first, Batch{}, "x")
	require.NoError(t, err)
	require.NoError(t, first.Checkpoint(t.Context()))
	fresh := openReplica(t, s, t.TempDir(), shardOf(flat)) // of the checkpoint
	_, err = put1(t, fresh, Batch{ID: "first"}, "a")
	require.ErrorIs(t, err, store.ErrLate)
	entry, err = put1(t, fresh, Batch{ID: "first", Sent: true}, "a")
	require.NoError(t, err)
	require.Equal(t, uint64(1), entry)
	_, err = put1(t, fresh, Batch{ID: "new", After: 303}, "b")
	require.NoError(t, err)
}

// A change that finds nothing to change names the entry up to which that holds.
func TestNothingToChangeHasAnEntry(t *testing.T) {
	s := memory.New()
	first, other := openReplica(t, s, t.TempDir(), shardOf(flat)), openReplica(t, s, t.TempDir(), shardOf(flat))
	_, err := put1(t, first, Batch{}, "a")
	require.NoError(t, err)
	_, _, err = other.Delete(t.Context(), Batch{}, collection.Selection{IDs: []string{"a"}})
	require.NoError(t, err)
	n, entry, err := first.Delete(t.Context(), Batch{}, collection.Selection{IDs: []string{"a"}})
	require.NoError(t, err)
	require.Zero(t, n.Documents)
	require.Equal(t, uint64(2), entry)
}

// A file with damage that a search has found is fetched again.
func TestCorrupt(t *testing.T) {
	s := memory.New()
	dir := t.TempDir()
	r := openReplica(t, s, dir, shardOf(flat))
	_, err := put1(t, r, Batch{}, "a")
	require.NoError(t, err)
	mark := r.filePath(indexFile + "-mark") // which goes with the file
	require.NoError(t, os.WriteFile(mark, nil, 0o666))
	r.ReportDamage(fmt.Errorf("%w: a test", storage.ErrCorrupt))
	require.Eventually(t, func() bool {
		_, err := os.Stat(mark)
		return os.IsNotExist(err) && r.State().Phase == Ready
	}, 20*time.Second, 10*time.Millisecond)
	_, docs := content(t, r, 1)
	require.Len(t, docs, 1)
}

// A change that has no room in an entry is refused, and is not tried again: nothing of it is in the log.
func TestTooLargeForAnEntry(t *testing.T) {
	s, err := objects.OpenFolder(t.TempDir())
	require.NoError(t, err)
	r := &Replica{ctx: t.Context(), journal: journal.New(s, "wiki.1", 0, journal.Options{})}
	_, err = (&openShard{r: r}).Append(t.Context(), storage.Applied{}, []string{"b"}, make([]byte, journal.MaxBody+1))
	require.ErrorIs(t, err, collection.ErrTooLarge)
	require.ErrorContains(t, err, "send fewer documents at a time")
	require.NotErrorIs(t, err, storage.ErrOutcomeUnknown)
	listed, err := s.List(t.Context(), "", "", 0)
	require.NoError(t, err)
	require.Empty(t, listed)
}
