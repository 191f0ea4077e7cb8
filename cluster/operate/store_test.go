package operate_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/objects/objectstest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
)

var (
	operations = flag.Int("operations", 150, "of TestFaultyStore")
	seed       = flag.Uint64("seed", 24, "of TestFaultyStore")
)

const dim = 8

// rival works on one collection of a cluster whose object store has faults. Others work on
// theirs at the same time.
type rival struct {
	t      *testing.T
	c      *clustertest.Cluster
	r      *rand.Rand
	maker  *searchtest.Maker
	name   string
	next   int             // document
	direct *topology.Store // over the store without faults
	store  objects.Store   // that one
}

// within bounds an operation: what waits for a node that cannot fetch is given up.
const within = 20 * time.Second

func (v *rival) do(ctx context.Context) (what string, err error) {
	ctx, stop := context.WithTimeout(ctx, within)
	defer stop()
	op := v.c.Op
	m, err := op.Watcher().Map(v.name)
	if err != nil || v.r.IntN(40) == 0 {
		if v.r.IntN(3) > 0 {
			_, _, err = op.Remove(ctx, v.name)
			if err != nil && !errors.Is(err, topology.ErrNoCollection) {
				return "remove", err
			}
		}
		_, err = op.Create(ctx, v.name, operate.CreateOptions{Shards: 2, Replicas: 1 + v.r.IntN(2)})
		return "create", err
	}
	switch n := v.r.IntN(10); {
	case m.Next != nil && m.Next.Built() && n < 8:
		_, err = op.Promote(ctx, v.name)
		return "promote", err
	case m.Next != nil && n == 9:
		_, err = op.Discard(ctx, v.name)
		return "discard", err
	case m.Next != nil:
		_, err = op.Resume(ctx, v.name, operate.BuildOptions{})
		return "resume", err
	case m.Current == nil || n < 3:
		v.next += 8
		docs := v.maker.Docs(fmt.Sprint("b", v.next, "-"), 8, 4)
		_, err = op.Build(ctx, v.name, searchtest.Source(v.t, dim, docs), operate.BuildOptions{Train: clustertest.Train, Dir: v.t.TempDir()})
		return "build", err
	case n < 6:
		f, err := client.New(ctx, v.c.Bus.Conn, client.Config{Collection: v.name, WriteDeadline: within})
		if err == nil {
			v.next++
			_, err = f.Add(ctx, searchtest.Source(v.t, dim, v.maker.Docs(fmt.Sprint("a", v.next, "-"), 2, 4)), nil)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return "add", err
		}
		_, err = op.Checkpoint(ctx, v.name)
		return "checkpoint", err
	case n < 8:
		_, err = op.Drain(ctx, v.name, m.Members[v.r.IntN(len(m.Members))].Name)
		return "drain", err
	case n < 9:
		_, err = op.Rebalance(ctx, v.name)
		return "rebalance", err
	}
	_, err = op.Tidy(ctx, 5*within) // whoever makes an object has entered it before, or has given up
	return "tidy", err
}

// check looks for all that the newest map names.
func (v *rival) check(ctx context.Context) error {
	m, err := v.direct.Newest(ctx, v.name)
	if errors.Is(err, topology.ErrNoCollection) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, g := range []*topology.Generation{m.Current, m.Next} {
		if g == nil {
			continue
		}
		refs := []objects.Ref{g.Codec}
		for _, s := range g.Shards {
			refs = append(refs, s.Object)
		}
		if !g.Built() { // the documents are needed until then
			refs = append(refs, g.Inputs...)
		}
		for _, ref := range refs {
			if ref.Name == "" {
				continue
			}
			err := objects.Verify(ctx, v.store, ref)
			if err == nil {
				continue
			}
			// A node may have finished a build since, whose documents are needed no longer.
			if now, nerr := v.direct.Newest(ctx, v.name); nerr == nil && now.Version > m.Version {
				return v.check(ctx)
			}
			return fmt.Errorf("version %d of the map of %s names it: %w", m.Version, v.name, err)
		}
	}
	return nil
}

// Collections are built, changed, moved and removed over a real S3 server and a network
// that loses answers, repeats requests, delays them, cuts bodies and answers 500, 503 and
// 412. Operations may fail; what a map names is there at any time, and when the network is
// well again all collections are brought to an end.
func TestFaultyStore(t *testing.T) {
	if !effort.Long() {
		t.Skip("builds and starts an S3 server")
	}
	network, address, direct := objectstest.OpenServer(t)
	store, err := objects.Open(address)
	require.NoError(t, err)
	plain, err := objects.Open(direct)
	require.NoError(t, err)
	c := clustertest.NewOver(t, 3, store)
	chance := objectstest.NewChance(*seed, .03)
	network.Before, network.After = chance.Before, chance.After
	ctx := t.Context()
	rivals := min(max(6, *operations/100), 24)
	var done atomic.Int64
	var mu sync.Mutex
	made, failed := map[string]int{}, map[string]int{}
	var wg sync.WaitGroup
	all := make([]*rival, rivals)
	for i := range all {
		v := &rival{t: t, c: c, r: rand.New(rand.NewPCG(*seed, uint64(i))), maker: searchtest.New(*seed+uint64(i), dim, 6),
			name: fmt.Sprint("c", i), direct: topology.NewStore(plain, c.Bus.Maps), store: plain}
		all[i] = v
		wg.Go(func() {
			for !t.Failed() {
				n := done.Add(1)
				if n > int64(*operations) {
					return
				}
				what, err := v.do(ctx)
				if err := v.check(ctx); err != nil {
					t.Errorf("after a %s: %v", what, err)
				}
				mu.Lock()
				made[what]++
				if err != nil {
					failed[what]++
				}
				mu.Unlock()
				if n%500 == 0 {
					t.Logf("%d operations: %v, of which failed: %v; %s", n, made, failed, chance)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%v, of which failed: %v; %s", made, failed, chance)
	require.False(t, t.Failed())
	chance.Set(0)
	for _, v := range all {
		require.NoError(t, v.check(ctx))
		v.end(ctx)
	}
}

// end brings a collection to where it can be searched, and compares its replicas.
func (v *rival) end(ctx context.Context) {
	t, op := v.t, v.c.Op
	m, err := op.Watcher().Map(v.name)
	if err != nil {
		return // it is removed
	}
	ctx, stop := context.WithTimeout(ctx, clustertest.Patience)
	defer stop()
	if m.Next != nil {
		_, err := op.Discard(ctx, v.name)
		require.NoError(t, err)
	}
	_, err = op.Build(ctx, v.name, searchtest.Source(t, dim, v.maker.Docs("end", 8, 4)), operate.BuildOptions{Train: clustertest.Train, Dir: t.TempDir()})
	require.NoError(t, err)
	_, err = op.Promote(ctx, v.name)
	require.NoError(t, err)
	_, err = op.Verify(ctx, v.name)
	require.NoError(t, err)
	require.NoError(t, v.check(ctx))
}
