package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/testing/objectstest/memory"
	"github.com/plaid-ir/plaid/storage"
)

// Two replicas write in turns and have the same; one that starts again, and one that begins with a
// checkpoint when the log is cut, have it as well.
func TestReplicas(t *testing.T) {
	ctx, s, rng := t.Context(), memory.New(), rand.New(rand.NewPCG(1, 2))
	dirs := []string{t.TempDir(), t.TempDir()}
	a, b := openReplica(t, s, dirs[0], shardOf(flat)), openWith(t, s, dirs[1], shardOf(flat), "generic")
	for i := range 20 {
		w := []*Replica{a, b}[i/3%2]
		docs := []collection.Document{randomDoc(rng, fmt.Sprint("d", i)), randomDoc(rng, "")}
		r, entry, err := w.Update(ctx, Batch{}, docs, collection.UpdateOptions{})
		require.NoError(t, err)
		require.EqualValues(t, i+1, entry)
		require.Equal(t, []uint64{uint64(2 * i), uint64(2*i + 1)}, r.Numbers)
		require.LessOrEqual(t, w.State().Known, entry)
	}
	n, _, err := b.Delete(ctx, Batch{}, collection.Selection{IDs: []string{"d1", "d2"}})
	require.NoError(t, err)
	require.Equal(t, 2, n.Documents)
	n, last, err := a.UpdateMetadata(ctx, Batch{}, collection.Selection{IDs: []string{"d3", "d2"}},
		map[string]json.RawMessage{"x": []byte(`"<y>"`)})
	require.NoError(t, err)
	require.Equal(t, 1, n.Documents)
	ca, da := content(t, a, last)
	cb, db := content(t, b, last)
	require.Equal(t, da, db)
	require.Equal(t, ca, cb)
	require.Len(t, da, 38)
	require.Contains(t, da["d3"], `"x":"<y>"`)
	require.EqualValues(t, 22, last)

	require.NoError(t, b.Close(ctx))
	b = openReplica(t, s, dirs[1], shardOf(flat))
	cb, _ = content(t, b, 0)
	require.Equal(t, ca, cb)
	require.NoError(t, b.Checkpoint(ctx))
	_, last, err = a.Update(ctx, Batch{}, []collection.Document{randomDoc(rng, "d1")}, collection.UpdateOptions{})
	require.NoError(t, err)
	_, err = a.journal.Cut(ctx, 22)
	require.NoError(t, err)
	b.Hint(last)
	require.Eventually(t, func() bool { return b.State().Entry == last }, 20*time.Second, time.Millisecond)
	c := openReplica(t, s, t.TempDir(), shardOf(flat))
	cc, _ := content(t, c, last)
	ca, _ = content(t, a, last)
	require.Equal(t, ca, cc)
}

// Many writers and readers of several replicas at a time, some of which end and begin again: what was
// acknowledged is seen by who asks for its entry, and is there once in the end, whatever was lost.
func TestManyAtATime(t *testing.T) {
	defer func(d time.Duration) { appendTime = d }(appendTime)
	appendTime = 45 * time.Millisecond
	ctx, s := t.Context(), memory.New()
	lose := rand.New(rand.NewPCG(3, 4))
	var mu sync.RWMutex
	s.Hook(func(_ context.Context, op, name string) (before, after error) {
		if op != "put" || !strings.Contains(name, "/log/") {
			return nil, nil
		}
		mu.Lock()
		defer mu.Unlock()
		switch lose.IntN(60) {
		case 0:
			return errors.New("no connection"), nil
		case 1:
			return nil, errors.New("no answer")
		}
		return nil, nil
	})
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	replicas := make([]*Replica, len(dirs))
	for i := range replicas {
		replicas[i] = openReplica(t, s, dirs[i], shardOf(flat))
	}
	some := func(rng *rand.Rand) *Replica {
		mu.RLock()
		defer mu.RUnlock()
		return replicas[rng.IntN(len(replicas))]
	}
	var writers, others sync.WaitGroup
	var last, unknown atomic.Uint64
	for w := range 8 {
		writers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 9))
			for i := range 12 {
				id, b := fmt.Sprintf("w%d-%d", w, i), Batch{ID: fmt.Sprintf("b%d-%d", w, i), After: last.Load()}
				doc := randomDoc(rng, id)
				var entry uint64
				for {
					var err error
					if _, entry, err = some(rng).Update(ctx, b, []collection.Document{doc}, collection.UpdateOptions{}); err == nil {
						break
					}
					if errors.Is(err, storage.ErrOutcomeUnknown) {
						b.Sent = true
						unknown.Add(1)
					} else if !errors.Is(err, collection.ErrClosed) {
						t.Errorf("%s: %v", id, err)
						return
					}
				}
				if i%4 == 0 {
					last.Store(entry) // what is known may lag
				}
				for { // read it by any replica
					v, has, err := some(rng).View(ctx, entry)
					if errors.Is(err, collection.ErrClosed) {
						continue
					}
					if err != nil {
						t.Errorf("%s: %v", id, err)
						return
					}
					_, there, err := v.Snapshot().Ordinal(id)
					if err != nil || !there || has < entry {
						t.Errorf("%s is not in entry %d, which has entry %d: %v", id, has, entry, err)
					}
					_ = v.Close()
					break
				}
			}
		})
	}
	done := make(chan struct{})
	others.Go(func() {
		rng := rand.New(rand.NewPCG(7, 9))
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			case <-time.After(30 * time.Millisecond):
			}
			if i := n % len(replicas); n%2 == 0 {
				old := replicas[i]
				if err := old.Close(ctx); err != nil {
					t.Error(err)
				}
				fresh := openReplica(t, s, dirs[i], shardOf(flat))
				mu.Lock()
				replicas[i] = fresh
				mu.Unlock()
			} else if err := some(rng).Checkpoint(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	writers.Wait()
	close(done)
	others.Wait()
	s.Hook(nil)
	require.NoError(t, replicas[0].Poll(ctx))
	end := replicas[0].State().Entry
	want, docs := content(t, replicas[0], end)
	require.Len(t, docs, 8*12)
	for _, r := range replicas {
		got, _ := content(t, r, end)
		require.Equal(t, want, got)
	}
	require.NotZero(t, unknown.Load())
}
