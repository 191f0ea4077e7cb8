package operate

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/cluster/topology"
)

// Replacing gives the shards of nodes that are gone to others. It is to be asked again and
// again by one goroutine; any number of processes may do so at a time: what one has placed no
// other places again.
type Replacing struct {
	// After is how long a node must be gone.
	After time.Duration
	// Own is the node that asks, if one does: while it is not heard of itself it is cut off,
	// and knows nothing of others.
	Own string
	// Now tells the time; nil: [time.Now].
	Now func() time.Time

	gone map[string]time.Time // since when
}

// Replaced is what was done for a collection.
type Replaced struct {
	Map   *topology.Map
	Nodes []string // whose shards were given to others
}

// errPlaced: somebody else was faster, or the nodes are back.
var errPlaced = errors.New("nothing is to be placed")

// Replace gives the shards of nodes that have been gone for long enough to the members of
// their collections that are there, and where these are too few for the replicas that are
// wanted, to other nodes too. Nothing is placed
//
//   - as long as a node is in maintenance ([Operator.Maintain]), and After since,
//   - for a collection of which more than half of the members are gone: that is no failure of
//     a node,
//   - where too few nodes are there for the replicas that are wanted.
//
// A node that comes back gets shards when the collection is rebalanced.
func (o *Operator) Replace(ctx context.Context, r *Replacing) (all []Replaced, err error) {
	now := time.Now
	if r.Now != nil {
		now = r.Now
	}
	due := r.due(o, now())
	if len(r.gone) == 0 {
		return nil, nil
	}
	maintained, err := o.Maintained(ctx)
	if err != nil {
		return nil, err
	}
	for name := range maintained {
		if _, gone := r.gone[name]; gone { // for long enough or not: it counts from the end of that
			r.gone[name] = now()
		}
	}
	due = slices.DeleteFunc(due, func(name string) bool { _, is := maintained[name]; return is })
	if len(due) == 0 {
		return nil, nil
	}
	for _, m := range o.watch.Maps() {
		var gone []string
		next, perr := o.maps.Update(ctx, m.ID(), func(m *topology.Map) error {
			if gone = o.place(m, due); gone == nil {
				return errPlaced
			}
			return nil
		})
		switch {
		case perr == nil:
			all = append(all, Replaced{next, gone})
		case !errors.Is(perr, errPlaced) && !errors.Is(perr, topology.ErrNoCollection):
			err = errors.Join(err, perr)
		}
	}
	return all, err
}

// due are the members of collections that have been gone for long enough.
func (r *Replacing) due(o *Operator, now time.Time) (due []string) {
	there := o.there()
	gone := map[string]time.Time{}
	if r.Own != "" && !there[r.Own] {
		r.gone = gone
		return nil
	}
	for _, m := range o.watch.Maps() {
		for _, member := range m.Members {
			if there[member.Name] {
				continue
			}
			since, counted := r.gone[member.Name]
			if !counted {
				since = now
			}
			if gone[member.Name] = since; now.Sub(since) >= r.After && !slices.Contains(due, member.Name) {
				due = append(due, member.Name)
			}
		}
	}
	r.gone = gone
	return due
}

// there are the nodes that are heard of.
func (o *Operator) there() map[string]bool {
	there := map[string]bool{}
	for _, l := range o.watch.Leases() {
		there[l.Node] = true
	}
	return there
}

// place takes nodes that are gone out of a map, and returns which; nil: nothing is placed.
func (o *Operator) place(m *topology.Map, due []string) (gone []string) {
	there := o.there() // now, as another change of the map may have come first
	heard := 0
	for _, member := range m.Members {
		switch {
		case there[member.Name]:
			heard++
		case slices.Contains(due, member.Name):
			gone = append(gone, member.Name)
		}
	}
	if gone == nil || 2*heard < len(m.Members) {
		return nil
	}
	for _, name := range gone {
		m.Leave(name)
	}
	for _, n := range o.Nodes() {
		if len(m.Members) < m.Replicas && !slices.Contains(m.Members, n) {
			m.Join(n)
		}
	}
	if len(m.Members) < m.Replicas {
		return nil
	}
	m.Assign()
	return gone
}
