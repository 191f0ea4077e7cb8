package operate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/topology"
)

// Comparison is what a look at the replicas of all shards has found.
type Comparison struct {
	Shards int // those whose replicas were compared
	// Passed are shards that have several replicas and were not compared, and why not.
	Passed []topology.Uncompared
	// Unlike are shards whose replicas differed, and what was done. Where nobody can tell what is
	// right nothing was, and the error says so.
	Unlike []Healed
}

// Compare reads the replicas of all shards and compares what they have at the same entry of
// their logs, part by part. Where they differ those that most have in common are right, and
// the others are made again. Where there is no majority the object and the log say what is
// right, if the object was compared itself when it was made: one replica after another is made
// again of them, until all are alike. Otherwise the error is [ErrDiffer], and nothing is done.
func (o *Operator) Compare(ctx context.Context, own string) (c Comparison, err error) {
	for _, m := range o.watch.Maps() {
		for s := range m.Shards() {
			m, gone := o.watch.MapOf(m.ID()) // those before have taken their time
			if gone != nil || m.Current == nil || len(m.Assigned[s]) < 2 || !o.leads(own, m, s) {
				continue
			}
			began := time.Now()
			cerr := o.compare(ctx, m, s, &c)
			if perr := pause(ctx, time.Since(began)); perr != nil { // half of the time is for others
				return c, errors.Join(err, perr)
			}
			err = errors.Join(err, cerr)
		}
	}
	return c, err
}

func (o *Operator) compare(ctx context.Context, m *topology.Map, s int, c *Comparison) error {
	ctx, stop := context.WithTimeout(ctx, 3*patience)
	defer stop()
	g, err := o.contentsOf(ctx, m, s)
	if _, gone := o.watch.MapOf(m.ID()); gone != nil {
		return nil
	}
	if err != nil {
		return err
	}
	if len(g.reports) < 2 {
		why := g.why(m, s)
		o.log.Warn("replicas are not compared", "collection", m.Collection, "shard", s, "because", why)
		c.Passed = append(c.Passed, topology.Uncompared{Collection: m.Collection, Shard: s, Why: why})
		return nil
	}
	c.Shards++
	kept := alike(g.reports)
	if len(kept) == len(g.reports) {
		return nil
	}
	healed := Healed{Collection: m.Collection, Shard: s, Kept: names(kept), Parts: differing(g.reports), Unlike: len(g.reports) - len(kept)}
	defer func() { c.Unlike = append(c.Unlike, healed) }()
	if majority(len(m.Assigned[s]), len(kept), len(g.reports)) {
		shard, kept, err := o.object(ctx, m, s, names(kept), majority)
		if err != nil {
			return err
		}
		return o.makeAgain(ctx, m, s, *shard, kept, g.reports, &healed, func() error { return nil })
	}
	healed.Kept = nil
	return o.byObject(ctx, m, s, g, &healed)
}

// byObject makes replicas that differ again of the object of their shard and the log, one after
// another until all are alike.
func (o *Operator) byObject(ctx context.Context, m *topology.Map, s int, g *meeting, healed *Healed) error {
	unsure := func(why string) error {
		return fmt.Errorf("%w: shard %d of %s on nodes %s, and %s. Look at the replicas; then plaid cluster checkpoint %s --trust NODE says whose is right",
			ErrDiffer, s, m.Collection, strings.Join(names(g.reports), ", "), why, m.Collection)
	}
	object := m.Current.Shards[s]
	if object.Applied > m.Current.Start[s] && !node.Compared(object.Object) {
		return unsure("the object may have been made from either")
	}
	stream, err := o.logOf(ctx, m, s)
	if err != nil {
		return err
	}
	if stream.CachedInfo().State.FirstSeq > object.Applied+1 {
		return unsure("the log begins after the object")
	}
	for _, r := range slices.Backward(g.reports) {
		if err := o.rejoin(ctx, m, m.Current.Number, s, []string{r.node}); err != nil {
			return err
		}
		healed.Again = append(healed.Again, r.node)
		if err := o.answer(ctx, m, m.Current.Number, only(s, r.node)); err != nil { // the lease says so later
			return err
		}
		now, err := o.contentsOf(ctx, m, s)
		if err != nil {
			return err
		}
		if len(now.reports) == len(g.reports) && len(alike(now.reports)) == len(now.reports) {
			break
		}
	}
	healed.Kept = slices.DeleteFunc(names(g.reports), func(name string) bool { return slices.Contains(healed.Again, name) })
	return nil
}

// only is the assignment of a shard to a node, and of no other shard.
func only(shard int, name string) func(*topology.Map, int) []string {
	return func(_ *topology.Map, s int) []string {
		if s != shard {
			return nil
		}
		return []string{name}
	}
}

// differing counts the parts of documents that are not alike.
func differing(reports []report) (n int) {
	for i := range node.Parts {
		for _, r := range reports[1:] {
			if i >= len(r.Parts) || i >= len(reports[0].Parts) || !bytes.Equal(r.Parts[i], reports[0].Parts[i]) {
				n++
				break
			}
		}
	}
	return n
}
