package operate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/topology"
)

// Healing makes replicas alike again that are not. It is to be asked again and again by one
// goroutine. What several processes do at a time harms nothing.
type Healing struct {
	// After is how long the log of a replica must have been another one.
	After time.Duration
	// Own limits it to the shards of which this node is the first that is there; "": all.
	Own string
	// Now tells the time; nil: [time.Now].
	Now func() time.Time

	lost map[string]time.Time // by shard: since when
}

// Healed is what was found of a shard, and what was done.
type Healed struct {
	Collection string
	Shard      int
	// Parts is how many parts of the documents, of [node.Parts], were not alike, and Unlike how
	// many replicas; 0: a log was another one than that of the replicas.
	Parts, Unlike int
	// Kept are the nodes whose replicas were right, Again those whose replicas were made again.
	Kept, Again []string
}

// HealLogs deals with replicas whose log has lost entries, or has others than they have
// carried out. Those that agree are right if they, and not those that differ or are away,
// have all that was acknowledged: when fewer are overruled than acknowledge a change. Those
// that follow the log come first, then those that have carried out the same entries, or the
// first of these: the log goes on after what the furthest have. The others are made again. Where nobody is right for sure the error
// is [ErrDiffer], and an operator has to say.
func (o *Operator) HealLogs(ctx context.Context, h *Healing) (all []Healed, err error) {
	lost := map[string]time.Time{}
	for _, m := range o.watch.Maps() {
		for s := range m.Shards() {
			if m.Current == nil || !o.leads(h.Own, m, s) || len(o.lost(m, m.Current, s))+len(o.lost(m, m.Next, s)) == 0 {
				continue
			}
			key := fmt.Sprint(m.ID(), " ", m.Current.Number, " ", s)
			since, counted := h.lost[key]
			if !counted {
				since = h.now()
			}
			lost[key] = since
			if h.now().Sub(since) < h.After {
				continue
			}
			healed, herr := o.healLog(ctx, m, s)
			if err = errors.Join(err, herr); herr == nil && healed != nil {
				all = append(all, *healed)
				delete(lost, key) // it counts anew: leases say so later
			}
		}
	}
	h.lost = lost
	return all, err
}

// lost are the nodes with replicas of a generation whose log is another one than theirs.
func (o *Operator) lost(m *topology.Map, g *topology.Generation, s int) (nodes []string) {
	if g == nil {
		return nil
	}
	for _, r := range o.watch.Replicas(m.ID(), g.Number, s) {
		if r.Lost {
			nodes = append(nodes, r.Node)
		}
	}
	return nodes
}

func (h *Healing) now() time.Time {
	if h.Now != nil {
		return h.Now()
	}
	return time.Now()
}

// leads tells whether a node is the first of a shard that is there, or is "".
func (o *Operator) leads(own string, m *topology.Map, s int) bool {
	there := o.there()
	first := slices.IndexFunc(m.Assigned[s], func(name string) bool { return there[name] })
	return own == "" || first >= 0 && m.Assigned[s][first] == own
}

// reports asks the nodes of a shard that are there what they have.
func (o *Operator) reports(ctx context.Context, m *topology.Map, s int) (all []report) {
	for _, r := range o.watch.Replicas(m.ID(), m.Current.Number, s) {
		if !slices.Contains(m.Assigned[s], r.Node) {
			continue
		}
		answer, err := o.send(ctx, r.Node, node.Order{Do: "contents", Collection: m.ID(), Generation: m.Current.Number, Shard: s})
		if err != nil || answer.Contents == "" { // it counts as away
			o.log.Warn("a replica does not tell what it has", "node", r.Node, "collection", m.Collection, "shard", s, "error", err)
			continue
		}
		all = append(all, report{r.Node, answer})
	}
	return all
}

// within tells whether a replica has carried out what another one has, and perhaps less.
func (r report) within(o report) bool {
	mark := r.Recent[r.Shard.Applied]
	return r.Shard.Applied == o.Shard.Applied && r.Contents == o.Contents ||
		r.Shard.Applied < o.Shard.Applied && mark != nil && bytes.Equal(mark, o.Recent[r.Shard.Applied])
}

// furthestOf are the reports with all that most have of one history, and how many have a
// part of it.
func furthestOf(reports []report) (furthest []report, parts int) {
	for _, r := range reports {
		n := 0
		for _, o := range reports {
			if o.within(r) {
				n++
			}
		}
		if n > parts {
			parts = n
			furthest = slices.DeleteFunc(slices.Clone(reports), func(o report) bool { return o.Shard.Applied != r.Shard.Applied || o.Contents != r.Contents })
		}
	}
	return furthest, parts
}

func (o *Operator) healLog(ctx context.Context, m *topology.Map, s int) (*Healed, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	reports := o.reports(ctx, m, s)
	follow := slices.DeleteFunc(slices.Clone(reports), func(r report) bool { return r.Lost || r.Log != "" })
	lost := slices.DeleteFunc(slices.Clone(reports), func(r report) bool { return !r.Lost })
	right := func(n int) bool { return n > 0 && len(m.Assigned[s])-n < m.Acks }
	var kept []report
	var shard *topology.Shard
	var err error
	goOn := func() error { return nil }
	switch {
	case len(lost) == 0 && right(len(follow)):
		return o.followAgain(ctx, m, s) // it has passed, or that of the next generation has not
	case len(lost) == 0:
		return nil, nil // too few tell, for now
	case right(len(follow)):
		shard, kept, err = o.object(ctx, m, s, names(follow), func(_, alike, there int) bool { return right(alike) && 2*alike > there })
	default:
		var n int
		if kept, n = furthestOf(lost); !right(n) {
			return nil, fmt.Errorf("%w: shard %d of %s: nodes %s follow the log and %s do not: nobody has all changes for sure. Look at the replicas, then restore, or let nodes rejoin",
				ErrDiffer, s, m.Collection, strings.Join(names(follow), ", "), strings.Join(names(lost), ", "))
		}
		if goOn, err = o.adopted(ctx, m, s, kept); err == nil {
			shard, err = o.objectOf(ctx, m, s, kept)
		}
	}
	if err != nil {
		return nil, err
	}
	healed := &Healed{Collection: m.Collection, Shard: s, Kept: names(kept)}
	return healed, o.makeAgain(ctx, m, s, *shard, kept, reports, healed, goOn)
}

// objectOf has an object made of one of the replicas that have the same documents and follow no
// log, and looks whether those are what is in it.
func (o *Operator) objectOf(ctx context.Context, m *topology.Map, s int, kept []report) (*topology.Shard, error) {
	order := node.Order{Do: "checkpoint", Collection: m.ID(), Generation: m.Current.Number, Shard: s, Compared: majority(len(m.Assigned[s]), len(kept), len(kept))}
	r, err := o.send(ctx, kept[0].node, order)
	if err != nil {
		return nil, err
	}
	if r.Contents != kept[0].Contents {
		return nil, errors.Join(fmt.Errorf("%w: shard %d of %s on node %s: its object has other documents than it had", ErrDiffer, s, m.Collection, kept[0].node), o.store.Delete(ctx, r.Shard.Object.Name))
	}
	return &r.Shard, nil
}

// followAgain has the replicas of the generation that is built begin again where they have
// carried out other entries than the log has, which those that are searched follow.
func (o *Operator) followAgain(ctx context.Context, m *topology.Map, s int) (*Healed, error) {
	again := o.lost(m, m.Next, s)
	if len(again) == 0 {
		return nil, nil
	}
	healed := &Healed{Collection: m.Collection, Shard: s, Again: again}
	return healed, o.rejoin(ctx, m, m.Next.Number, s, again)
}

func (o *Operator) rejoin(ctx context.Context, m *topology.Map, generation uint64, s int, nodes []string) error {
	for _, name := range nodes {
		if _, err := o.send(ctx, name, node.Order{Do: "rejoin", Collection: m.ID(), Generation: generation, Shard: s, Version: m.Version}); err != nil {
			return err
		}
	}
	return nil
}

// giveUp gives up the generations that are about to be, if they have to begin with an entry of
// the log of a shard that is before first: what comes in between is nowhere but in replicas of
// the generation that is searched. It returns the map without them.
func (o *Operator) giveUp(ctx context.Context, m *topology.Map, s int, first uint64) (*topology.Map, error) {
	now, err := o.maps.Update(ctx, m.ID(), func(m *topology.Map) error {
		next := m.Next != nil && m.Next.Start[s]+1 < first
		if !next && len(m.Reserved) == 0 {
			return errNothing
		}
		o.log.Warn("a build is given up: the log that it needs is lost", "collection", m.Collection, "shard", s)
		if next {
			m.Next = nil
		}
		m.Reserved = nil
		return nil
	})
	if errors.Is(err, errNothing) {
		return m, nil
	}
	return now, err
}

// errNothing: there is nothing to be changed.
var errNothing = errors.New("nothing is to be changed")

// adopted prepares that the log goes on after what some replicas have, which it does after
// goOn. Until then the shard takes no changes and is looked at again: there must be an object
// for others to begin with first.
func (o *Operator) adopted(ctx context.Context, m *topology.Map, s int, kept []report) (goOn func() error, err error) {
	applied := kept[0].Shard.Applied
	stream, err := o.bus.JS.Stream(ctx, bus.LogStream(m.ID(), s))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return func() error {
			if _, err := o.giveUp(ctx, m, s, applied+1); err != nil {
				return err
			}
			return o.bus.MakeLog(ctx, m.ID(), s, applied)
		}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("log of shard %d: %w", s, err)
	}
	// What the log has goes, and the next entry has the number after what they have.
	after := func(sequence uint64) func() error {
		return func() error {
			if _, err := o.giveUp(ctx, m, s, sequence+1); err != nil {
				return err
			}
			return stream.Purge(ctx, jetstream.WithPurgeSequence(sequence+1))
		}
	}
	last := stream.CachedInfo().State.LastSeq
	if last < applied {
		return after(applied), nil
	}
	// Others may have carried out all that the log has, and be away. So that they do not go on
	// after it, the log passes over a number, which nobody has but those that are right.
	for _, r := range kept {
		order := node.Order{Do: "adopt", Collection: m.ID(), Generation: m.Current.Number, Shard: s, Sequence: last + 1}
		if _, err := o.send(ctx, r.node, order); err != nil {
			return nil, err
		}
	}
	return after(last + 1), nil
}

// makeAgain has the replicas that are not kept begin anew, with an object of those that are: so
// what the log has from before makes no difference. Once the map has it goOn is called.
func (o *Operator) makeAgain(ctx context.Context, m *topology.Map, s int, object topology.Shard, kept, reports []report, healed *Healed, goOn func() error) error {
	healed.Again = slices.DeleteFunc(names(reports), func(name string) bool { return slices.Contains(names(kept), name) })
	generation := m.Current.Number
	m, err := o.enterShards(ctx, m, map[int]topology.Shard{s: object})
	if err != nil {
		return err
	}
	if err := goOn(); err != nil {
		return err
	}
	return o.rejoin(ctx, m, generation, s, healed.Again)
}
