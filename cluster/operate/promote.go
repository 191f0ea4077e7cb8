package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/cluster/topology"
)

// hintAfter is how long something is waited for before that is said, and again when it changes.
const hintAfter = 2 * time.Second

// wait waits until nothing is waited for any more, which waits says in words, or until the
// collection is removed, which is an error.
func (o *Operator) wait(ctx context.Context, m *topology.Map, waits func() string) error {
	said, since := "", time.Now()
	for {
		changed := o.watch.Changed()
		if _, over := o.watch.MapOf(m.ID()); errors.Is(over, topology.ErrRemoved) {
			return over
		}
		what := waits()
		if what == "" {
			return nil
		}
		if what != said && o.Waiting != nil && time.Since(since) >= hintAfter {
			o.Waiting(what)
			said, since = what, time.Now()
		}
		select {
		case <-changed:
		case <-time.After(hintAfter): // time passes too
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, ctx.Err())
		}
	}
}

// state tells which of some nodes have a replica of a shard that answers, and says what is the
// matter with the others. there are the nodes that are heard of.
func (o *Operator) state(there map[string]bool, m *topology.Map, generation uint64, s int, nodes []string) (ready []string, others string) {
	var words []string
	for _, name := range nodes {
		replicas := o.watch.Replicas(m.ID(), generation, s)
		i := slices.IndexFunc(replicas, func(r topology.Replica) bool { return r.Node == name })
		switch {
		case !there[name]:
			words = append(words, name+" is away")
		case i < 0:
			words = append(words, name+" has not begun")
		case replicas[i].Lost:
			words = append(words, name+": "+replicas[i].Log)
		case replicas[i].Ready:
			ready = append(ready, name)
		case replicas[i].Fault != "":
			words = append(words, name+": "+replicas[i].Fault)
		default:
			words = append(words, name+" is catching up")
		}
	}
	return ready, strings.Join(words, ", ")
}

// answer waits until the replicas of a generation answer that nodes have, as they follow from
// the map as it is then, and none of them has carried out other entries than its log has.
func (o *Operator) answer(ctx context.Context, m *topology.Map, generation uint64, nodes func(now *topology.Map, s int) []string) error {
	return o.wait(ctx, m, func() string {
		now, err := o.watch.MapOf(m.ID())
		if err != nil || now.Version < m.Version {
			return "the map of " + m.Collection + " is not known here yet"
		}
		there := o.there()
		for s := range now.Shards() {
			wanted := nodes(now, s)
			if ready, others := o.state(there, now, generation, s, wanted); len(ready) < len(wanted) {
				return fmt.Sprintf("shard %d of generation %d of %s has %d of %d replicas: %s", s, generation, m.Collection, len(ready), len(wanted), others)
			}
		}
		return ""
	})
}

// assigned are the nodes that the map gives a shard to.
func assigned(m *topology.Map, s int) []string { return m.Assigned[s] }

// settled waits until every shard that is searched has its replicas.
func (o *Operator) settled(ctx context.Context, m *topology.Map) error {
	if m.Current == nil {
		return nil
	}
	return o.answer(ctx, m, m.Current.Number, assigned)
}

// Promote lets the generation that was built take the place of the one that is searched,
// when enough replicas of it answer. Queries that have begun are finished with the old one.
func (o *Operator) Promote(ctx context.Context, collection string) (*topology.Map, error) {
	m, err := o.maps.Get(ctx, collection)
	if err != nil {
		return nil, err
	}
	return o.promote(ctx, m)
}

func (o *Operator) promote(ctx context.Context, m *topology.Map) (*topology.Map, error) {
	if !m.Next.Built() {
		return nil, fmt.Errorf("%w: %s has no generation that is built and waits", ErrState, m.Collection)
	}
	number := m.Next.Number
	if err := o.enough(ctx, m, number); err != nil {
		return nil, err
	}
	return o.maps.Update(ctx, m.ID(), func(m *topology.Map) error {
		if m.Current != nil && m.Current.Number == number {
			return nil // done by another operator
		}
		if m.Next == nil || m.Next.Number != number {
			return fmt.Errorf("%w: generation %d of %s waits no longer", ErrState, number, m.Collection)
		}
		m.Current, m.Next = m.Next, nil
		m.Current.Inputs = nil
		return nil
	})
}

// enough waits until as many replicas of each shard answer as acknowledge a change, on the
// nodes that the map gives it then. The others follow when they can: those that are there are
// waited for as well, but not for long, and those that fail or are away are not.
func (o *Operator) enough(ctx context.Context, m *topology.Map, number uint64) error {
	var since time.Time // enough answer
	return o.wait(ctx, m, func() string {
		now, err := o.watch.MapOf(m.ID())
		if err != nil || now.Version < m.Version {
			return "the map of " + m.Collection + " is not known here yet"
		}
		if now.Generation(number) == nil {
			return "" // it waits no longer
		}
		there := o.there()
		rest := ""
		for s, nodes := range now.Assigned {
			ready, others := o.state(there, now, number, s, nodes)
			what := fmt.Sprintf("shard %d of generation %d of %s has %d of %d replicas: %s", s, number, m.Collection, len(ready), len(nodes), others)
			if len(ready) < min(now.Acks, len(nodes)) {
				since = time.Time{}
				return what
			}
			for _, name := range nodes {
				if there[name] && !slices.Contains(ready, name) && o.coming(now, number, s, name) {
					rest = what
				}
			}
		}
		if rest == "" {
			return ""
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) >= o.rest {
			return ""
		}
		return rest
	})
}

// coming tells whether a replica that does not answer yet may do so by and by.
func (o *Operator) coming(m *topology.Map, generation uint64, s int, name string) bool {
	return !slices.ContainsFunc(o.watch.Replicas(m.ID(), generation, s), func(r topology.Replica) bool {
		return r.Node == name && (r.Fault != "" || r.Log != "")
	})
}
