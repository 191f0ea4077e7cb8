package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cmd/plaid/flags"
)

// care does what an operator would have to do otherwise, until ctx ends: if the node may.
func (r *running) care(ctx context.Context, b *bus.Bus, o *operate.Operator) {
	if r.replace <= 0 && r.healAfter <= 0 && r.compare <= 0 && r.checkpoint <= 0 {
		return
	}
	if !r.mayCare(ctx, b) {
		return
	}
	var all sync.WaitGroup
	if r.replace > 0 {
		all.Go(func() { r.replaceGone(ctx, o) })
	}
	if r.checkpoint > 0 {
		all.Go(func() { r.checkpoints(ctx, o) })
	}
	all.Go(func() { r.heal(ctx, o) })
	all.Wait()
}

// mayCare tells whether the node may do what an operator does: whoever asks is told again later
// where servers do not answer.
func (r *running) mayCare(ctx context.Context, b *bus.Bus) bool {
	const unable = "this node places no shards of others, heals and compares no replicas, and makes no checkpoints"
	for said := false; ; said = true {
		err := b.CheckOperator(ctx)
		switch {
		case err == nil:
			return true
		case errors.Is(err, bus.ErrRole):
			r.c.Logger.Warn(unable+": it takes the role operator", "error", err)
			return false
		case ctx.Err() == nil && !said:
			r.c.Logger.Warn(unable+" until the servers answer", "error", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(max(r.lease, 100*time.Millisecond)):
		}
	}
}

// checkpoints makes objects of shards whose logs have become long, until ctx ends.
func (r *running) checkpoints(ctx context.Context, o *operate.Operator) {
	repeat(ctx, r.checkpoint/2+rand.N(r.checkpoint), func() {
		made, err := o.CheckpointLong(ctx, r.c.Name)
		if made > 0 {
			r.c.Logger.Info("logs are cut off behind checkpoints", "shards", made)
		}
		if err != nil && ctx.Err() == nil {
			r.c.Logger.Warn("no checkpoint of a shard whose log is long", "error", err)
		}
	})
}

// replaceGone gives the shards of nodes that are gone for long to others, until ctx ends.
func (r *running) replaceGone(ctx context.Context, o *operate.Operator) {
	state := operate.Replacing{After: r.replace, Own: r.c.Name}
	repeat(ctx, r.lease, func() {
		all, err := o.Replace(ctx, &state)
		for _, p := range all {
			r.c.Logger.Warn("nodes are gone; their shards are given to others", "collection", p.Map.Collection, "nodes", strings.Join(p.Nodes, ","), "after", r.replace)
		}
		if err != nil && ctx.Err() == nil {
			r.c.Logger.Warn("shards of nodes that are gone cannot be given to others", "error", err)
		}
	})
}

// heal makes replicas alike again that are not, until ctx ends.
func (r *running) heal(ctx context.Context, o *operate.Operator) {
	var both sync.WaitGroup // reading replicas may take hours, and no log waits for that
	if r.healAfter > 0 {
		state := operate.Healing{After: r.healAfter, Own: r.c.Name}
		both.Go(func() {
			repeat(ctx, min(r.lease, max(r.healAfter, time.Second)), func() {
				all, err := o.HealLogs(ctx, &state)
				r.healed(ctx, all, err)
			})
		})
	}
	if r.compare > 0 {
		both.Go(func() {
			repeat(ctx, r.compare/2+rand.N(r.compare), func() {
				c, err := o.Compare(ctx, r.c.Name)
				unlike := 0
				for _, h := range c.Unlike {
					unlike += h.Unlike
				}
				if ctx.Err() == nil {
					r.node.NoteComparison(unlike, c.Passed)
				}
				r.c.Logger.Info("replicas are compared", "shards", c.Shards, "differing", len(c.Unlike), "passed over", len(c.Passed))
				r.healed(ctx, c.Unlike, err)
			})
		})
	}
	both.Wait()
}

// healed says what was done.
func (r *running) healed(ctx context.Context, all []operate.Healed, err error) {
	for _, h := range all {
		r.c.Logger.Warn("replicas were not alike", "collection", h.Collection, "shard", h.Shard, "parts", h.Parts,
			"kept", strings.Join(h.Kept, ","), "made again", strings.Join(h.Again, ","))
	}
	if err != nil && ctx.Err() == nil {
		r.c.Logger.Error("replicas cannot be made alike", "error", err)
	}
}

// repeat does something every so often, until ctx ends.
func repeat(ctx context.Context, every time.Duration, do func()) {
	tick := time.NewTicker(max(every, time.Millisecond)) // zero panics
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}

func (x *cli) maintenanceCommand() *cobra.Command {
	var lasting time.Duration
	var end bool
	cmd := &cobra.Command{
		Use: "maintenance [NODE …]", Short: "Let nodes be away and keep their shards",
		Long: x.Help(`
Say that nodes are in maintenance for a time: their shards are not given to others, however
long they are away (plaid cluster node --replace-after). Those in maintenance are listed.`),
		Example: "  plaid cluster maintenance b --for 2h --store /mnt/plaid",
		Args:    x.Takes("NODE…"),
	}
	cmd.Flags().DurationVar(&lasting, "for", time.Hour, "`TIME` from now on")
	cmd.Flags().BoolVar(&end, "end", false, "the maintenance of the nodes is over")
	return x.operator(cmd, time.Minute, func(ctx context.Context, o *operate.Operator, args []string) error {
		until := time.Now().Add(lasting)
		switch {
		case lasting <= 0:
			return flags.Usagef("--for: %v is no time", lasting)
		case end && len(args) == 0:
			return flags.Usagef("--end: of which node?")
		case end:
			until = time.Time{}
		}
		for _, name := range args {
			if err := o.Maintain(ctx, name, until); err != nil {
				return err
			}
		}
		all, err := o.Maintained(ctx)
		if err != nil {
			return err
		}
		return x.Report(all, func(b *bytes.Buffer) {
			for _, name := range slices.Sorted(maps.Keys(all)) {
				fmt.Fprintf(b, "%s is in maintenance until %s\n", name, all[name].Local().Format(time.DateTime))
			}
			if len(all) == 0 {
				b.WriteString("no node is in maintenance\n")
			}
		})
	})
}
