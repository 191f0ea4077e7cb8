package client

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/index"
)

// acks are the answers of replicas to the changes of a client.
type acks struct {
	inbox string
	sub   *nats.Subscription
	mu    sync.Mutex
	wait  map[string]chan *node.Ack
}

func listen(conn *nats.Conn) (*acks, error) {
	a := &acks{inbox: conn.NewInbox(), wait: map[string]chan *node.Ack{}}
	var err error
	a.sub, err = conn.Subscribe(a.inbox, a.hear)
	return a, err
}

// hear takes an answer, or a list of them.
func (a *acks) hear(msg *nats.Msg) {
	var all []*node.Ack
	if bytes.HasPrefix(msg.Data, []byte("[")) {
		if json.Unmarshal(msg.Data, &all) != nil {
			return
		}
	} else if one := (&node.Ack{}); json.Unmarshal(msg.Data, one) == nil {
		all = append(all, one)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, ack := range all {
		if ack == nil || a.wait[ack.Batch] == nil {
			continue
		}
		select {
		case a.wait[ack.Batch] <- ack:
		default: // more answers than replicas
		}
	}
}

func (a *acks) expect(id wire.ID) (inbox string, heard <-chan *node.Ack) {
	ch := make(chan *node.Ack, 2*topology.MaxReplicas)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wait[id.String()] = ch
	return a.inbox, ch
}

func (a *acks) forget(id wire.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.wait, id.String())
}

func (a *acks) close() { _ = a.sub.Unsubscribe() }

// await counts the replicas that have an entry, of the generation that is searched: where the
// next one takes its place meanwhile, those of that one. Of these some may have begun with a
// file that has the entry, so that they never tell what became of it, but their leases do.
func (w *writing) await(s int, b *wire.Batch, sequence uint64, heard <-chan *node.Ack) error {
	have := map[uint64]map[string]bool{} // nodes by generation
	acks := map[uint64]*node.Ack{}       // by generation
	late := time.NewTicker(remind)
	defer late.Stop()
	for {
		changed := w.f.watch.Changed()
		if err := w.f.removed(); err != nil {
			return &WriteError{s, err} // nobody has it, whatever became of the change before
		}
		m := w.now()
		nodes := have[m.Current.Number]
		if nodes == nil {
			nodes = map[string]bool{}
			have[m.Current.Number] = nodes
		}
		said := cmp.Or(acks[m.Current.Number], acks[w.m.Current.Number])
		if said != nil && m.Current.Number != w.m.Current.Number {
			for _, r := range w.f.watch.Replicas(m.ID(), m.Current.Number, s) {
				if r.Applied >= sequence {
					nodes[r.Node] = true
				}
			}
		}
		if said != nil && len(nodes) >= m.Acks {
			return w.take(s, b, said)
		}
		select {
		case <-changed:
		case a := <-heard:
			if a.Sequence != sequence || a.Shard != s {
				continue
			}
			if have[a.Generation] == nil {
				have[a.Generation] = map[string]bool{}
			}
			have[a.Generation][a.Node] = true
			acks[a.Generation] = a
		case <-late.C:
			w.remind(m, s, sequence, nodes)
		case <-w.ctx.Done():
			return &WriteError{s, fmt.Errorf("%w: %d of %d have entry %d: %w", ErrUnacknowledged, len(nodes), m.Acks, sequence, w.ctx.Err())}
		}
	}
}

// now is the map as it is now, if that has something to search.
func (w *writing) now() *topology.Map {
	if m, err := w.f.watch.MapOf(w.m.ID()); err == nil && m.Current != nil {
		return m
	}
	return w.m
}

// remind is how long an entry may take before those who have not acknowledged it are asked
// for it: one may have missed it where connections were lost.
const remind = time.Second

// remind asks the nodes of a shard for an entry, but those that have it. Nobody hears what
// they answer.
func (w *writing) remind(m *topology.Map, s int, sequence uint64, have map[string]bool) {
	text, err := json.Marshal(wire.Look{Collection: m.ID(), Generation: m.Current.Number, Shard: s, Applied: sequence, Left: remind})
	if err != nil {
		return
	}
	for _, name := range m.Assigned[s] {
		if !have[name] {
			_ = w.f.bus.Conn.PublishRequest(bus.LookSubject(name), w.f.bus.Conn.NewInbox(), text) // the next one may come through
		}
	}
}

func (w *writing) take(s int, b *wire.Batch, a *node.Ack) error {
	w.f.mu.Lock()
	w.f.seen[s] = max(w.f.seen[s], a.Sequence)
	w.f.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report.Applied[s] = a.Sequence
	switch {
	case a.Kind == "duplicate":
		return &WriteError{s, fmt.Errorf("%w: %w: %s", ErrRefused, index.ErrDuplicateID, a.Refused)}
	case a.Refused != "":
		return &WriteError{s, fmt.Errorf("%w: %s", ErrRefused, a.Refused)}
	}
	w.report.Added += a.Added
	w.report.Replaced += a.Replaced
	w.report.Deleted += a.Deleted
	w.report.Updated += a.Updated
	w.report.Passages += a.Passages
	if w.o.Placed != nil && a.Added > 0 {
		for i := range b.Documents {
			w.o.Placed(b.Documents[i].ID, s, a.First+uint32(i))
		}
	}
	w.report.Missing = append(w.report.Missing, a.Missing...)
	return nil
}
