package replica

import (
	"context"
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

// Writers and readers use several replicas at a time, some end and begin again, and requests and answers are
// lost: a reader that asks for the entry of an acknowledged change sees it, and in the end it is there once.
func TestManyAtATime(t *testing.T) {
	defer func(d time.Duration) { appendTimeout = d }(appendTimeout)
	appendTimeout = 45 * time.Millisecond
	ctx, s := t.Context(), memory.New()
	lose := rand.New(rand.NewPCG(3, 4))
	var mu sync.RWMutex
	s.SetHook(func(_ context.Context, op, name string) (before, after error) {
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
					if _, entry, err = some(rng).Update(ctx, b, []collection.DocumentInput{doc},
						collection.UpdateOptions{}); err == nil {
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
					v, has, err := some(rng).Snapshot(ctx, entry)
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
	s.SetHook(nil)
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

// A log that does not have an entry a hint spoke of is read some times in vain. Meanwhile hints that are right count.
func TestHintThatIsWrong(t *testing.T) {
	defer func(first, hint time.Duration) { minRetry, hintTimeout = first, hint }(minRetry, hintTimeout)
	minRetry, hintTimeout = 20*time.Millisecond, 200*time.Millisecond
	ctx, s, rng := t.Context(), memory.New(), rand.New(rand.NewPCG(1, 2))
	misled := make(chan Shard, 10)
	a := openReplica(t, s, t.TempDir(), shardOf(flat))
	b, err := Open(&Config{Store: s, Dir: t.TempDir(), HintFailed: func(s Shard) { misled <- s }}, shardOf(flat))
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close(ctx)) }()
	require.NoError(t, b.Poll(ctx))
	b.NoteEntry(100)
	require.Eventually(t, func() bool { return len(misled) == 1 }, 20*time.Second, time.Millisecond)
	require.Zero(t, b.State().Known)
	b.NoteEntry(100)
	_, entry, err := a.Update(ctx, Batch{}, []collection.DocumentInput{randomDoc(rng, "d")}, collection.UpdateOptions{})
	require.NoError(t, err)
	b.NoteEntry(entry)
	require.Eventually(t, func() bool { return b.State().Entry == entry }, 20*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return len(misled) == 2 }, 20*time.Second, time.Millisecond)
}
