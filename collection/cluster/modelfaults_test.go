package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/testing/clustertest"
)

// fail makes one fault.
func (m *model) fail(r *rand.Rand, i int) {
	pause := func() { time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond) }
	n := m.node(r)
	again := func(name string) {
		for m.ctx.Err() == nil {
			ctx, stop := context.WithTimeout(m.ctx, clustertest.Patience)
			_, err := m.c.TryStart(ctx, name)
			stop()
			if err == nil {
				return
			}
			if !isLabelled(err) {
				m.Errorf("%s does not start: %v", name, err)
				return
			}
		}
	}
	kind := []string{"killed", "killed, cache lost", "replaced", "stopped", "paused", "hung", "store", "clock",
		"store away", "training"}[r.IntN(10)]
	m.tally.fault(kind)
	switch kind {
	case "killed", "killed, cache lost":
		m.c.Kill(n.Name)
		pause()
		if kind != "killed" {
			m.c.Forget(n.Name)
		}
		again(n.Name)
	case "replaced":
		m.c.Kill(n.Name)
		m.c.Forget(n.Name)
		again(fmt.Sprint("m", i))
	case "stopped":
		m.c.Stop(n.Name)
		again(n.Name)
	case "paused":
		n.Pause()
		time.Sleep(time.Duration(r.IntN(6)) * clustertest.Beat)
		n.Resume()
	case "hung":
		n.Hang()
		time.Sleep(time.Duration(r.IntN(6)) * clustertest.Beat)
		n.Resume()
	case "store":
		m.c.Store.SetFaultShare(.3)
		pause()
		m.c.Store.SetFaultShare(.02)
	case "clock":
		m.c.Store.AdvanceClock(time.Duration(r.IntN(10)) * time.Second)
	case "store away":
		for _, n := range m.c.Nodes() {
			n.Pause()
		}
		pause()
		for _, n := range m.c.Nodes() {
			n.Resume()
		}
	case "training":
		ctx, stop := context.WithTimeout(m.ctx, 10*opTime)
		defer stop()
		if c, err := n.Get("main"); err == nil {
			if _, err = c.(collection.Retrainer).Retrain(ctx); !errors.Is(err, collection.ErrEmpty) &&
				m.c.Node(n.Name) == n {
				m.failed("a training", n, err)
			}
		}
	}
	pause()
}
