package store

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
)

// held is a store whose writers stop after each transaction until they are let go.
type held struct {
	*Store
	begun chan struct{} // a transaction is done, and not answered yet
	gone  chan struct{} // one may be answered
	stops atomic.Bool
}

func openHeld(t *testing.T, o Options) *held {
	h := &held{begun: make(chan struct{}), gone: make(chan struct{})}
	o.Committed = func(*Collection) {
		if h.stops.Load() {
			h.begun <- struct{}{}
			<-h.gone
		}
	}
	h.Store = openStore(t, t.TempDir(), &o)
	return h
}

type answer struct {
	receipt collection.Receipt
	count   int
	err     error
}

// later runs a request beside the test, and returns when it is queued.
func later(t *testing.T, c *Collection, f func() answer) chan answer {
	t.Helper()
	before := c.queue.statistics().Requests
	ch := make(chan answer, 1)
	go func() { ch <- f() }()
	require.Eventually(t, func() bool { return c.queue.statistics().Requests > before || len(ch) > 0 }, time.Minute, time.Millisecond)
	return ch
}

func update(c *Collection, o collection.UpdateOptions, docs ...collection.DocumentInput) func() answer {
	return func() answer {
		r, err := c.Update(context.Background(), docs, o)
		return answer{receipt: r, err: err}
	}
}

// Requests that wait share a transaction, in order; each gets its own answer.
func TestGroups(t *testing.T) {
	s := openHeld(t, Options{})
	c := declare(t, s.Store, "docs", collection.Config{})
	_, err := c.Update(t.Context(), []collection.DocumentInput{randomDoc("a", 1)}, collection.UpdateOptions{})
	require.NoError(t, err)
	groups := c.counts.Groups

	s.stops.Store(true)
	first := later(t, c, update(c, collection.UpdateOptions{}, randomDoc("b", 1)))
	<-s.begun
	// While that is being written:
	good := later(t, c, update(c, collection.UpdateOptions{}, randomDoc("c", 1), randomDoc("", 1)))
	taken := later(t, c, update(c, collection.UpdateOptions{}, randomDoc("x", 1), randomDoc("a", 2)))
	other := later(t, c, update(c, collection.UpdateOptions{}, randomDoc("d", 1)))
	gone := later(t, c, func() answer {
		n, err := c.Delete(context.Background(), collection.Selection{IDs: []string{"c", "a", "nosuch"}})
		return answer{count: n.Documents, err: err}
	})
	less := later(t, c, func() answer {
		n, err := c.Delete(context.Background(), collection.Selection{Numbers: []uint64{2, 1, 77}}) // c, b
		return answer{count: n.Documents, err: err}
	})
	again := later(t, c, update(c, collection.UpdateOptions{}, randomDoc("c", 5)))
	s.stops.Store(false)
	s.gone <- struct{}{}
	require.NoError(t, (<-first).err)
	a := <-good
	require.NoError(t, a.err)
	require.Equal(t, []uint64{2, 3}, a.receipt.Numbers)
	require.Equal(t, []string{"c", "3"}, a.receipt.IDs)
	a = <-taken
	require.ErrorIs(t, a.err, index.ErrDuplicateID)
	var de *collection.DocumentError
	require.ErrorAs(t, a.err, &de)
	require.Equal(t, 1, de.Document)
	a = <-other
	require.NoError(t, a.err)
	require.Equal(t, []uint64{4}, a.receipt.Numbers)
	require.Equal(t, 2, (<-gone).count, "c, which was stored before, and a")
	require.Equal(t, 1, (<-less).count, "c was gone by then")
	a = <-again
	require.NoError(t, a.err, "c may come back")
	require.Equal(t, []uint64{5}, a.receipt.Numbers)
	require.EqualValues(t, groups+4, c.counts.Groups, "an update, three of them, two deletions, an update")
	v := view(t, c)
	require.Equal(t, []uint32{3, 4, 5}, all(t, v))
}

// Requests that share a transaction say together what it did: each one what it replaced, the first
// one what was evicted.
func TestGroupsCountOnce(t *testing.T) {
	s := openHeld(t, Options{})
	most := uint64(3)
	c := declare(t, s.Store, "docs", collection.Config{MaxDocuments: &most})
	o := collection.UpdateOptions{Replace: true}
	require.NoError(t, update(c, o, randomDoc("a", 1), randomDoc("b", 1))().err)
	require.Zero(t, update(c, o, randomDoc("c", 1))().receipt.Replaced)
	groups := c.counts.Groups

	s.stops.Store(true)
	first := later(t, c, update(c, o, randomDoc("c", 2)))
	<-s.begun
	var waiting []chan answer
	for _, ids := range [][]string{{"d"}, {"b", "e"}, {"f"}, {"c"}, {"g", "h"}} {
		var docs []collection.DocumentInput
		for _, id := range ids {
			docs = append(docs, randomDoc(id, 3))
		}
		waiting = append(waiting, later(t, c, update(c, o, docs...)))
	}
	s.stops.Store(false)
	s.gone <- struct{}{}
	require.Equal(t, 1, (<-first).receipt.Replaced)
	var replaced, evicted []int
	for _, ch := range waiting {
		a := <-ch
		require.NoError(t, a.err)
		replaced, evicted = append(replaced, a.receipt.Replaced), append(evicted, a.receipt.Evicted)
	}
	require.EqualValues(t, groups+2, c.counts.Groups)
	require.Equal(t, []int{0, 1, 0, 1, 0}, replaced)
	require.Equal(t, []int{8 - 3, 0, 0, 0, 0}, evicted)
}

func TestQueueIsBounded(t *testing.T) {
	s := openHeld(t, Options{Queue: QueueLimits{Documents: 3}})
	c := declare(t, s.Store, "docs", collection.Config{})
	s.stops.Store(true)
	large := later(t, c, update(c, collection.UpdateOptions{}, randomDoc("1", 1), randomDoc("2", 1), randomDoc("3", 1), randomDoc("4", 1)))
	<-s.begun // larger than the queue: it is taken when nothing else waits
	full := <-later(t, c, update(c, collection.UpdateOptions{}, randomDoc("5", 1)))
	require.ErrorIs(t, full.err, collection.ErrBusy)
	var busy *collection.BusyError
	require.ErrorAs(t, full.err, &busy)
	require.Equal(t, 4, busy.Documents)
	require.GreaterOrEqual(t, busy.RetryAfter, time.Second)
	s.stops.Store(false)
	s.gone <- struct{}{}
	require.NoError(t, (<-large).err)
	require.Eventually(t, func() bool { return c.queue.statistics() == collection.QueueStats{} }, time.Minute, time.Millisecond)
	require.NoError(t, update(c, collection.UpdateOptions{}, randomDoc("5", 1))().err)
}

// An error of the context means that nothing was stored; what has begun is finished.
func TestCancelledWaits(t *testing.T) {
	s := openHeld(t, Options{})
	c := declare(t, s.Store, "docs", collection.Config{})
	s.stops.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	begun := later(t, c, func() answer {
		_, err := c.Update(ctx, []collection.DocumentInput{randomDoc("begun", 1)}, collection.UpdateOptions{})
		return answer{err: err}
	})
	<-s.begun
	waits := later(t, c, func() answer {
		_, err := c.Update(ctx, []collection.DocumentInput{randomDoc("waits", 1)}, collection.UpdateOptions{})
		return answer{err: err}
	})
	cancel()
	require.ErrorIs(t, (<-waits).err, context.Canceled)
	s.stops.Store(false)
	s.gone <- struct{}{}
	require.NoError(t, (<-begun).err)
	_, err := c.Update(ctx, []collection.DocumentInput{randomDoc("late", 1)}, collection.UpdateOptions{})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, view(t, c).snap.Len())
}

// Close writes what waits, and Drop does not.
func TestCloseDrains(t *testing.T) {
	s := openHeld(t, Options{})
	c := declare(t, s.Store, "docs", collection.Config{})
	d := declare(t, s.Store, "dropped", collection.Config{})
	s.stops.Store(true)
	first := later(t, c, update(c, collection.UpdateOptions{}, randomDoc("1", 1)))
	<-s.begun
	second := later(t, c, update(c, collection.UpdateOptions{}, randomDoc("2", 1)))
	dropping := later(t, d, update(d, collection.UpdateOptions{}, randomDoc("1", 1)))
	<-s.begun
	refused := later(t, d, update(d, collection.UpdateOptions{}, randomDoc("2", 1)))
	dropped := make(chan error, 1)
	go func() {
		_, err := s.Remove(context.Background(), "dropped")
		dropped <- err
	}()
	require.ErrorIs(t, (<-refused).err, collection.ErrUnknown)
	closed := make(chan error, 1)
	s.stops.Store(false)
	s.gone <- struct{}{}
	s.gone <- struct{}{}
	require.NoError(t, (<-dropping).err, "it had begun")
	require.NoError(t, <-dropped)
	require.ErrorIs(t, update(d, collection.UpdateOptions{}, randomDoc("3", 1))().err, collection.ErrUnknown)
	_, err := d.Snapshot(t.Context())
	require.ErrorIs(t, err, collection.ErrUnknown)
	require.NoDirExists(t, d.dir)
	go func() { closed <- s.Close(context.Background()) }()
	require.NoError(t, (<-first).err)
	require.NoError(t, (<-second).err)
	require.NoError(t, <-closed)
	require.ErrorIs(t, update(c, collection.UpdateOptions{}, randomDoc("3", 1))().err, collection.ErrClosed)
	_, err = s.Get("docs")
	require.ErrorIs(t, err, collection.ErrClosed)
	again := openStore(t, s.dir, nil)
	require.Equal(t, []string{"docs"}, again.Names())
	c, err = again.Get("docs")
	require.NoError(t, err)
	require.Equal(t, 2, view(t, c).snap.Len())
}

// A commit of which the disk does not say whether it is kept: the file is opened again,
// and the answer is what is found there.
func TestOutcomeUnknown(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	c := declare(t, s, "docs", collection.Config{})
	require.NoError(t, update(c, collection.UpdateOptions{}, randomDoc("a", 1), randomDoc("b", 1))().err)
	require.NoError(t, update(c, collection.UpdateOptions{}, randomDoc("c", 1))().err)
	t.Cleanup(func() { files.HookSynced = nil })
	fail := func(change func() error) {
		t.Helper()
		failed := false
		files.HookSynced = func(path string) error {
			if path == c.indexPath() && !failed {
				failed = true
				return fmt.Errorf("no answer")
			}
			return nil
		}
		require.NoError(t, change(), "it is there, and so it is done")
		require.True(t, failed)
		require.NoError(t, c.Verify(t.Context()))
	}
	fail(func() error { return update(c, collection.UpdateOptions{}, randomDoc("d", 1))().err })
	fail(func() error {
		_, err := c.Delete(t.Context(), collection.Selection{IDs: []string{"a"}})
		return err
	})
	fail(func() error {
		_, err := c.UpdateMetadata(t.Context(), collection.Selection{IDs: []string{"b"}}, map[string]json.RawMessage{"x": json.RawMessage("1")})
		return err
	})
	v := view(t, c)
	require.Equal(t, []uint32{1, 2, 3}, all(t, v))
	m, err := v.snap.Payload(1)
	require.NoError(t, err)
	require.JSONEq(t, `{"version":1,"even":false,"x":1}`, string(m))
}

// Whatever names come, the store gives documents that have none others.
func TestGivenNames(t *testing.T) {
	s := openStore(t, testenv.RAMDir(t), nil)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		c, err := s.Create(context.Background(), fmt.Sprint("c", n), collection.Config{})
		require.NoError(t, err)
		want := map[string]uint32{}
		next := uint64(0)
		for range rapid.IntRange(1, 3).Draw(t, "updates") {
			var docs []collection.DocumentInput
			used := map[string]bool{}
			for range rapid.IntRange(1, 5).Draw(t, "documents") {
				id := rapid.SampledFrom([]string{"", "", "0", "1", "2", "3", "4", "5", "3-1", "3-2", "x"}).Draw(t, "id")
				if id != "" && used[id] {
					continue
				}
				used[id] = true
				docs = append(docs, randomDoc(id, 1))
			}
			r, err := c.Update(context.Background(), docs, collection.UpdateOptions{Replace: true})
			require.NoError(t, err)
			for i, id := range r.IDs {
				require.Equal(t, next, r.Numbers[i])
				if docs[i].ID == "" {
					require.NotContains(t, want, id)
				} else {
					require.Equal(t, docs[i].ID, id)
				}
				want[id] = uint32(next)
				next++
			}
		}
		v, err := c.Snapshot(context.Background())
		require.NoError(t, err)
		require.Equal(t, len(want), v.snap.Len())
		for id, ordinal := range want {
			at, ok, err := v.snap.Ordinal(id)
			require.NoError(t, err)
			require.True(t, ok && at == ordinal)
		}
		require.NoError(t, v.Close())
		_, err = s.Remove(context.Background(), c.Name())
		require.NoError(t, err)
	})
}
