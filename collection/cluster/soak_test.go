package cluster_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster"
	"github.com/plaid-ir/plaid/internal/testing/clustertest"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/search"
)

var soak = flag.Duration("soak", 0,
	"how long the soak test takes; 0: a minute in the long form, not at all in the short one")

// Over a slow store, with nodes that come and go, the same documents are replaced and searched for
// for long: no error comes without a label, and neither the memory of the process nor the objects
// in the store become more.
func TestSoak(t *testing.T) {
	last := *soak
	if last == 0 && effort.Long() {
		last = time.Minute
	}
	if last == 0 {
		t.Skip("a soak: -soak 30m, or PLAID_LONG=1 for a minute")
	}
	c := clustertest.New(t,
		clustertest.Options{Nodes: 4, Seed: *seed, Change: shards(3, 2, small, func(c *cluster.Config) {
			c.Grace, c.CheckpointBytes = 10*time.Second, 64*64<<10
		})})
	c.Node("n0").MustCreate(t, "wiki", collection.Config{Nbits: 4})
	var random sync.Mutex
	r := rand.New(rand.NewPCG(*seed, 9))
	draw := func(n int) int {
		random.Lock()
		defer random.Unlock()
		return r.IntN(n)
	}
	c.Store.Decide(func(string, string) clustertest.Fault {
		time.Sleep(time.Duration(draw(60)) * time.Millisecond)
		return clustertest.None
	})
	ctx, stop := context.WithTimeout(t.Context(), last)
	defer stop()
	node := func() *clustertest.Node {
		for {
			if all := c.Nodes(); len(all) > 0 {
				return all[draw(len(all))]
			}
		}
	}
	var changes, searches, turned atomic.Int64
	labelled := func(err error) bool {
		if err != nil && ctx.Err() == nil {
			if turned.Add(1); !isLabelled(err) {
				t.Errorf("an error without a label: %v", err)
			}
		}
		return err == nil
	}
	var working sync.WaitGroup
	for w := range 6 {
		working.Go(func() {
			for i := 0; ctx.Err() == nil && !t.Failed(); i++ {
				within, stop := context.WithTimeout(ctx, 10*opTime)
				ix, err := node().Get("wiki")
				if err == nil && w < 3 {
					id := fmt.Sprintf("d%d-%d", w, draw(40))
					d := document(id, fmt.Sprintf("%s v%d w%d", id, i%31, i%7), fmt.Sprintf(`{"v":%d}`, i))
					_, err = ix.Update(within, []collection.DocumentInput{d}, collection.UpdateOptions{Replace: true})
					if labelled(err) {
						changes.Add(1)
					}
				} else if err == nil {
					var v collection.Snapshot
					if v, err = ix.Snapshot(within); err == nil {
						_, err = v.Search(within, []search.Query{{Vectors: flat("v1 w2"), Dim: dim}},
							search.Options{K: 10, Payload: true})
						_ = v.Close()
					}
					if err == nil || !errors.Is(err, collection.ErrEmpty) && labelled(err) {
						searches.Add(1)
					}
				}
				stop()
			}
		})
	}
	type sample struct {
		heap    uint64
		objects int
	}
	var samples []sample
	for i := 0; ctx.Err() == nil && !t.Failed(); i++ {
		name := node().Name
		if i%2 == 0 {
			c.Kill(name)
		} else {
			c.Stop(name)
		}
		if i%3 == 0 {
			c.Forget(name)
		}
		if _, err := c.TryStart(t.Context(), name); !labelled(err) {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(last / 100):
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		samples = append(samples, sample{m.HeapAlloc, len(c.Objects("", ""))})
	}
	working.Wait()
	t.Logf("%d changes, %d searches, %d turned away; heap and objects: %v", changes.Load(), searches.Load(),
		turned.Load(), samples)
	require.Positive(t, changes.Load())
	require.Positive(t, searches.Load())
	// The maxima of the second half are hardly higher than those of the first.
	var most [2]sample
	for i, s := range samples {
		half := &most[2*i/len(samples)]
		half.heap, half.objects = max(half.heap, s.heap), max(half.objects, s.objects)
	}
	require.Less(t, most[1].heap, most[0].heap*3/2+32<<20, "the memory grows")
	require.Less(t, most[1].objects, most[0].objects*3/2+100, "the objects become more")
}
