package operate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/topology"
)

// report is what a node says of its replica.
type report struct {
	node string
	*node.Report
}

// meeting is what the replicas of a shard say of themselves at one entry of their log.
type meeting struct {
	reports []report
	absent  map[string]error // nodes whose replicas take no part, and why
}

// why says in words which replicas of a shard take no part.
func (g *meeting) why(m *topology.Map, s int) string {
	var all []string
	for _, name := range m.Assigned[s] {
		if g.absent[name] == nil && !slices.Contains(names(g.reports), name) {
			all = append(all, "node "+name+": it is away, or catching up")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g.absent)) {
		all = append(all, fmt.Sprintf("node %s: %v", name, g.absent[name]))
	}
	return strings.Join(all, "; ")
}

// errElsewhere: the replica is at another entry of its log than the others.
var errElsewhere = errors.New("it is at another entry of the log")

// patience is how long a node may take to read a replica, or to make one again.
const patience = 10 * time.Minute

const (
	// meetings is how often replicas are asked until they are at the same entry.
	meetings = 5
	// pace is for how long one looks how fast a log grows, idle after what time it does not.
	pace = 100 * time.Millisecond
	idle = time.Second
)

// logOf is the log of a shard, with what it has now.
func (o *Operator) logOf(ctx context.Context, m *topology.Map, s int) (jetstream.Stream, error) {
	stream, err := o.bus.JS.Stream(ctx, bus.LogStream(m.ID(), s))
	if err != nil {
		return nil, fmt.Errorf("log of shard %d of %s: %w", s, m.Collection, err)
	}
	return stream, nil
}

// meet gives orders to nodes with replicas of a shard, all at the same entry of its log: that
// is the last one, or, while it grows, one that is about to come.
func (o *Operator) meet(ctx context.Context, m *topology.Map, s int, orders map[string]node.Order) (*meeting, error) {
	ahead := uint64(0)
	for try := 1; ; try++ {
		stream, err := o.logOf(ctx, m, s)
		if err != nil {
			return nil, err
		}
		info := stream.CachedInfo()
		last := info.State.LastSeq
		if try == 1 && info.TimeStamp.Sub(info.State.LastTime) < idle {
			if err := pause(ctx, pace); err != nil {
				return nil, err
			}
			now, err := stream.Info(ctx)
			if err != nil {
				return nil, fmt.Errorf("log of shard %d of %s: %w", s, m.Collection, err)
			}
			ahead, last = 5*(now.State.LastSeq-last), now.State.LastSeq
		}
		g, passed, short := o.ask(ctx, m, s, orders, last+ahead)
		switch {
		case ctx.Err() != nil || try == meetings:
			return g, ctx.Err()
		case passed:
			ahead = 2*ahead + 1
		case short && ahead > 0: // it may have stopped to grow
			ahead = 0
		default: // who is away is asked once
			return g, nil
		}
		for _, r := range g.reports {
			if err := o.drop(ctx, r.Report); err != nil {
				return nil, err
			}
		}
	}
}

// drop removes the object that an order has made, if it has, and which nobody compares.
func (o *Operator) drop(ctx context.Context, r *node.Report) error {
	if r.Shard.Object.Name == "" {
		return nil
	}
	return o.store.Delete(ctx, r.Shard.Object.Name)
}

// ask gives the orders at an entry. Some replicas may have passed it, or fall short of it.
func (o *Operator) ask(ctx context.Context, m *topology.Map, s int, orders map[string]node.Order, entry uint64) (g *meeting, passed, short bool) {
	outer := ctx
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	g = &meeting{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for name, order := range orders {
		order.Collection, order.Generation, order.Shard, order.At = m.ID(), m.Current.Number, s, entry
		all.Go(func() {
			r, err := o.send(ctx, name, order)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil && ctx.Err() != nil && outer.Err() == nil:
				err = fmt.Errorf("it has not told within %v", patience)
			case err != nil:
			case r.Log != "":
				err = fmt.Errorf("it does not follow the log: %s", r.Log)
			case r.Contents == "" || r.Shard.Applied != entry:
				passed, short = passed || r.Shard.Applied > entry, short || r.Shard.Applied < entry
				err = fmt.Errorf("%w: at %d and not at %d", errElsewhere, r.Shard.Applied, entry)
			default:
				g.reports = append(g.reports, report{name, r})
				return
			}
			if r != nil {
				err = errors.Join(err, o.drop(outer, r))
			}
			if g.absent == nil {
				g.absent = map[string]error{}
			}
			g.absent[name] = err
		})
	}
	all.Wait()
	slices.SortFunc(g.reports, func(a, b report) int { return strings.Compare(a.node, b.node) })
	return g, passed, short
}

// send gives a node an order, as long as the node lives.
func (o *Operator) send(ctx context.Context, name string, order node.Order) (*node.Report, error) {
	life := func() string {
		for _, l := range o.watch.Leases() {
			if l.Node == name {
				return l.Started
			}
		}
		return ""
	}
	began := life()
	within, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_ = o.watch.Wait(within, func() bool { return life() != began })
		stop()
	}()
	r, err := node.Send(within, o.bus.Conn, name, order)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w %s: it has gone", node.ErrOrder, name)
	}
	return r, err
}

// pause waits.
func pause(ctx context.Context, t time.Duration) error {
	select {
	case <-time.After(t):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// contentsOf asks the replicas of a shard that answer what they have, at the same entry.
func (o *Operator) contentsOf(ctx context.Context, m *topology.Map, s int) (*meeting, error) {
	orders := map[string]node.Order{}
	for _, name := range o.following(m, s) {
		orders[name] = node.Order{Do: "contents"}
	}
	return o.meet(ctx, m, s, orders)
}

// following are the nodes of a shard whose replicas answer and follow its log.
func (o *Operator) following(m *topology.Map, s int) (nodes []string) {
	for _, r := range o.watch.Replicas(m.ID(), m.Current.Number, s) {
		if slices.Contains(m.Assigned[s], r.Node) && r.Ready && r.Log == "" {
			nodes = append(nodes, r.Node)
		}
	}
	return nodes
}

// alike are the largest group of reports with the same contents at the same entry.
func alike(reports []report) (group []report) {
	for _, r := range reports {
		same := slices.DeleteFunc(slices.Clone(reports), func(o report) bool { return o.Contents != r.Contents || o.Shard.Applied != r.Shard.Applied })
		if len(same) > len(group) {
			group = same
		}
	}
	return group
}

func names(reports []report) (all []string) {
	for _, r := range reports {
		all = append(all, r.node)
	}
	return all
}

// object has an object made of a shard, and compares what is in it with the replicas among
// some nodes at the same entry: enough of those that are there have to have the same. Where they
// do not, and differ, the error is [ErrDiffer]; nobody can tell then what is right.
func (o *Operator) object(ctx context.Context, m *topology.Map, s int, among []string, enough quorum) (*topology.Shard, []report, error) {
	if len(among) == 0 {
		return nil, nil, fmt.Errorf("%w: shard %d of %s has no replica that answers", ErrState, s, m.Collection)
	}
	maker := o.ahead(m, s, among)
	for try := 1; ; try++ {
		orders := map[string]node.Order{}
		for _, name := range among {
			orders[name] = node.Order{Do: "contents"}
		}
		orders[maker] = node.Order{Do: "checkpoint", Compared: true}
		g, err := o.meet(ctx, m, s, orders)
		if err != nil {
			return nil, nil, err
		}
		kept := alike(g.reports)
		var made *topology.Shard
		for _, r := range g.reports {
			if r.node == maker {
				made = &r.Shard
			}
		}
		if made != nil && enough(len(m.Assigned[s]), len(kept), len(g.reports)) && slices.Contains(names(kept), maker) {
			return made, kept, nil
		}
		if made != nil {
			err = o.store.Delete(ctx, made.Object.Name)
		}
		switch {
		case enough(len(m.Assigned[s]), len(kept), len(g.reports)) && try < meetings: // another one makes it
			maker = kept[try%len(kept)].node
		case len(kept) < len(g.reports):
			return nil, nil, errors.Join(fmt.Errorf("%w: shard %d of %s: nodes %s do not have the same documents, and too few agree", ErrDiffer, s, m.Collection, strings.Join(names(g.reports), ", ")), err)
		default:
			return nil, nil, errors.Join(fmt.Errorf("%w: shard %d of %s: %d of %d replicas can be compared: %s", ErrState, s, m.Collection, len(kept), len(m.Assigned[s]), g.why(m, s)), err)
		}
		if err != nil {
			return nil, nil, err
		}
	}
}

// ahead is the node, among some, whose replica has applied most.
func (o *Operator) ahead(m *topology.Map, s int, among []string) (name string) {
	most := uint64(0)
	for _, r := range o.watch.Replicas(m.ID(), m.Current.Number, s) {
		if slices.Contains(among, r.Node) && (name == "" || r.Applied > most) {
			name, most = r.Node, r.Applied
		}
	}
	return name
}

// quorum tells whether enough replicas are alike, of those that are there, and of all that a
// shard is given.
type quorum func(all, alike, there int) bool

// majority is more than half of all.
func majority(all, alike, _ int) bool { return 2*alike > all }
