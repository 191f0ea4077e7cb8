package client_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
)

// A log that is cut while the next generation waits: what was acknowledged stays in the one that
// is searched, and the next one, which would lack it, does not take its place. The next build
// does.
func TestLogCutBesideBuild(t *testing.T) {
	for name, want := range map[string]struct {
		log  []uint64
		late bool // one of three follows the log that was cut, and two are right
		kept bool // the build goes on
	}{
		"cut": {log: []uint64{1, 2, 3}}, "grown again": {log: []uint64{1, 2, 3, 5, 4, 1}},
		"the log is right": {log: []uint64{1, 2, 3, 2, 1}, late: true, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			docs, _ := documents(86, 60)
			replicas, acks := 2, 2
			c := clustertest.New(t, replicas)
			c.Collection("wiki", operate.CreateOptions{Replicas: replicas, Acks: acks}, dim, docs[:40])
			f := c.Client(client.Config{Collection: "wiki"})
			add := func(i int) {
				t.Helper()
				_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[i:i+1]), nil)
				require.NoError(t, err)
			}
			for i := 40; i < 43; i++ {
				add(i)
			}
			_, err := c.Op.Build(c.Ctx, "wiki", searchtest.Source(t, dim, docs[:43]), operate.BuildOptions{Train: clustertest.Train, Dir: t.TempDir()})
			require.NoError(t, err)
			if want.late { // n0 has entries that were not acknowledged
				c.Stop("n1")
				for i := 43; i < 45; i++ {
					_, err := c.Bus.JS.Publish(c.Ctx, bus.LogSubject(c.ID("wiki"), 0), batchOf(t, docs[i]))
					require.NoError(t, err)
				}
			} else {
				add(43)
				add(44)
			}
			next := func(lost int) func() bool {
				return func() bool {
					applied, n := 0, 0
					for _, g := range []uint64{1, 2} {
						for _, r := range c.Op.Watcher().Replicas(c.ID("wiki"), g, 0) {
							if r.Applied >= 5 {
								applied++
							}
							if r.Lost {
								n++
							}
						}
					}
					return (lost > 0 || applied >= 2) && n >= lost
				}
			}
			c.Await(next(0))
			cut(t, c, want.log...)
			if c.Await(next(2)); want.late {
				c.Start("n1")
				c.Ready("n1")
			}
			heal := func(generation uint64) {
				t.Helper()
				h, _ := healing(0)
				c.Await(func() bool {
					all, err := c.Op.HealLogs(c.Ctx, h)
					return err == nil && len(all) == 1
				})
				c.Await(func() bool {
					n := 0
					for _, r := range c.Op.Watcher().Replicas(c.ID("wiki"), generation, 0) {
						if r.Ready && r.State() == "ready" {
							n++
						}
					}
					return n == 2
				})
			}
			heal(1)
			if want.kept {
				heal(2) // n0 had carried out what is not in the log
			}
			m, err := topology.NewStore(c.Store, c.Bus.Maps).Newest(c.Ctx, "wiki")
			require.NoError(t, err)
			require.Equal(t, want.kept, m.Next != nil)
			if !want.kept {
				_, err = c.Op.Promote(c.Ctx, "wiki")
				require.ErrorIs(t, err, operate.ErrState)
				assert.EqualValues(t, 45, verified(c, 2)[0].Documents)
				_, err = c.Op.Build(c.Ctx, "wiki", searchtest.Source(t, dim, docs[:45]), operate.BuildOptions{Train: clustertest.Train, Dir: t.TempDir()})
				require.NoError(t, err)
			}
			_, err = c.Op.Promote(c.Ctx, "wiki")
			require.NoError(t, err)
			documents := uint64(45)
			if want.late { // entries 4 and 5 of the log as it is now were refused
				documents = 43
			}
			assert.EqualValues(t, documents, verified(c, 2)[0].Documents)
			require.NoError(t, f.Watcher().Wait(c.Ctx, func() bool {
				_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[50:51]), nil)
				return err == nil
			}))
		})
	}
}

// New replicas do not begin with one whose log has lost entries, and nothing is cut off from
// that log.
func TestNoCheckpointOfLostReplica(t *testing.T) {
	docs, _ := documents(87, 60)
	c := clustertest.New(t, 2)
	c.Collection("wiki", operate.CreateOptions{Replicas: 2}, dim, docs[:40])
	f := c.Client(client.Config{Collection: "wiki"})
	for i := 40; i < 43; i++ {
		_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[i:i+1]), nil)
		require.NoError(t, err)
	}
	c.Await(func() bool {
		rs := c.Op.Watcher().Replicas(c.ID("wiki"), 1, 0)
		return !slices.ContainsFunc(rs, func(r topology.Replica) bool { return r.Applied < 3 })
	})
	cut(t, c, 1, 3, 2, 1)
	states(c, 2, 0)
	before, err := c.Op.Watcher().Map("wiki")
	require.NoError(t, err)
	_, err = c.Op.Checkpoint(c.Ctx, "wiki")
	require.ErrorIs(t, err, operate.ErrDiffer)
	after, err := topology.NewStore(c.Store, c.Bus.Maps).Newest(c.Ctx, "wiki")
	require.NoError(t, err)
	require.Equal(t, before.Version, after.Version)
}
