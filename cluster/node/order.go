package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/topology"
)

// Order is what an operator has a node do with a replica.
type Order struct {
	// Do is "verify", which reads all of the file and checks it, "contents", which tells what is
	// in it, "checkpoint", which makes an object of it and tells what is in that, "rejoin", which
	// puts the file aside and makes it again of the object that the map names and of the log, or
	// "adopt", which passes over what the log has, and over Sequence behind it: its entries are
	// others than the replica has.
	Do string `json:"do"`
	// At is the entry of the log at which the first three find the replica, which is waited for;
	// 0: as it is. A replica that is not there at that entry says which it has carried out, and
	// nothing else.
	At uint64 `json:"at,omitempty"`
	// Compared: the object is entered in a map only if other replicas have the same contents.
	Compared bool `json:"compared,omitempty"`
	// Collection is the identity of the collection.
	Collection string `json:"collection"`
	Generation uint64 `json:"generation"`
	Shard      int    `json:"shard"`
	Sequence   uint64 `json:"sequence,omitempty"`
	// Version is that of the map whose object a replica begins again with, or of a later one: the
	// node may not have seen it yet.
	Version uint64 `json:"version,omitempty"`
}

// Parts is how many digests of documents a replica tells; see [index.Snapshot.Contents].
const Parts = 256

// Report is the answer to an order.
type Report struct {
	Node  string `json:"node"`            // who reports
	Error string `json:"error,omitempty"` // why the order was not carried out; "": it was
	// Shard is the replica as it was at the entry Applied; its object is set by a checkpoint.
	Shard topology.Shard `json:"shard"`
	// Contents is the digest of the documents, which replicas have in common whatever entries
	// they have carried out together; Shard.Digest is that of the file. Parts are digests of
	// documents by their ids.
	Contents string   `json:"contents,omitempty"`
	Parts    [][]byte `json:"parts,omitempty"`
	// Recent are marks of entries that were carried out lately, Shard.Applied among them.
	Recent map[uint64][]byte `json:"recent,omitempty"`
	// Log is what is the matter with the log, as in a lease; Lost: it has other entries than the
	// replica has carried out.
	Log  string `json:"log,omitempty"`
	Lost bool   `json:"lost,omitempty"` // as in a lease
}

// ErrOrder: a node could not carry out an order.
var ErrOrder = errors.New("order to a node")

// Send gives a node an order and waits for its report.
func Send(ctx context.Context, conn *nats.Conn, node string, o Order) (*Report, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	msg, err := conn.RequestWithContext(ctx, bus.AdminSubject(node), text)
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrOrder, node, err)
	}
	r := &Report{}
	if err := json.Unmarshal(msg.Data, r); err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrOrder, node, err)
	}
	if r.Error != "" {
		return nil, fmt.Errorf("%w %s: %s", ErrOrder, node, r.Error)
	}
	return r, nil
}

func (n *Node) hearOrder(msg *nats.Msg) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	n.done.Go(func() {
		report := &Report{Node: n.c.Name}
		err := n.guard("an order", func() error {
			return n.carryOut(msg.Data, report)
		})
		if err != nil {
			report.Error = err.Error()
		}
		text, err := json.Marshal(report)
		if err == nil {
			err = msg.Respond(text)
		}
		if err != nil {
			n.log.Warn("an order is not answered", "error", err)
		}
	})
}

func (n *Node) carryOut(order []byte, report *Report) (err error) {
	var o Order
	if err := json.Unmarshal(order, &o); err != nil {
		return err
	}
	k := key{o.Collection, o.Generation, o.Shard}
	_, span := n.tracer.Start(n.ctx, "order "+o.Do, n.attributes(o.Collection, o.Generation, o.Shard))
	defer func() { ended(span, err) }()
	r := n.replica(k)
	switch {
	case r == nil:
		return fmt.Errorf("%s is not here", k)
	case o.Do == "verify" || o.Do == "contents" || o.Do == "checkpoint":
		return r.tell(&o, report)
	case o.Do == "adopt":
		return r.adopt(o.Sequence)
	case o.Do == "rejoin":
		return n.rejoin(r, o.Version)
	}
	return fmt.Errorf("unknown order %q", o.Do)
}

// rejoin puts the file of a replica aside and lets another replica begin in its place. It
// returns when that one answers: the lease may go on saying for a while that the old one does.
func (n *Node) rejoin(r *replica, version uint64) error {
	var gone error
	err := n.watch.Wait(r.ctx, func() bool {
		var m *topology.Map
		m, gone = n.watch.MapOf(r.key.collection)
		return gone != nil || m.Version >= version
	})
	if err := errors.Join(err, gone); err != nil {
		return err
	}
	r.stop()
	again, err := n.replace(r)
	if err != nil {
		return err
	}
	for !again.state().Ready {
		select {
		case <-again.done: // the node ends, or does not have the shard any more
			return fmt.Errorf("%s is not here any more", r.key)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// replace puts the file of a replica that has ended aside, unless another replica has
// taken its place: then that is the other one's file.
func (n *Node) replace(r *replica) (again *replica, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.replicas[r.key] != r {
		return nil, fmt.Errorf("%s is not here any more", r.key)
	}
	to, err := r.putAside()
	if errors.Is(err, fs.ErrNotExist) { // it was being fetched
		err = nil
	}
	again = newReplica(n, r.key) // also where the file stays: the node is to have the shard
	n.replicas[r.key] = again
	n.done.Go(again.run)
	if err == nil {
		n.metrics.rebuilds.Add(1)
		n.log.Warn("a replica begins again with the object of the map; what it had is put aside", "replica", r.key, "file", to)
	}
	return again, err
}

// logNow tells what is the matter with the log, as the lease does, but as it is now: an idle
// replica looks seldom.
func (r *replica) logNow() (fault string, lost bool) {
	if s := r.state(); s.Log != "" {
		return s.Log, s.Lost
	}
	// The replica goes on applying meanwhile, so its state is read before the end of the log is.
	applied := r.state().Applied
	err := r.request(func(ctx context.Context) error {
		stream, err := r.n.bus.JS.Stream(ctx, bus.LogStream(r.key.collection, r.key.shard))
		if err != nil {
			return err
		}
		if last := stream.CachedInfo().State.LastSeq; last < applied {
			return fmt.Errorf("%w: it ends at %d and the replica has %d", errLost, last, applied)
		}
		return r.compare(stream)
	})
	if err == nil {
		return "", false
	}
	r.hint()
	return err.Error(), errors.Is(err, errLost)
}

// adopt takes what the replica has for all that the log says, and goes on after a number that
// the log does not have yet. That is for a log that has other entries than were carried out,
// and for replicas that are right.
func (r *replica) adopt(sequence uint64) error {
	if !r.state().Lost {
		return fmt.Errorf("%s follows its log", r.key)
	}
	ix := r.use()
	if ix == nil {
		return errNotOpen
	}
	defer r.release()
	err := r.request(func(ctx context.Context) error {
		stream, err := r.n.bus.JS.Stream(ctx, bus.LogStream(r.key.collection, r.key.shard))
		if err == nil && stream.CachedInfo().State.LastSeq >= sequence {
			err = fmt.Errorf("it has an entry %d", sequence)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := ix.Entry(sequence).Skip(r.ctx); err != nil {
		return err
	}
	r.n.log.Warn("a replica passes over what its log has", "replica", r.key, "up to", sequence)
	return r.look()
}
