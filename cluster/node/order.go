package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/index"
)

// Order is what an operator has a node do with a replica.
type Order struct {
	// Do is "verify", which reads all of the file and checks it, "contents", which tells what is
	// in it, "checkpoint", which makes an object of it, "rejoin", which puts the file aside and
	// makes it again of the object that the map names and of the log, or "adopt", which passes
	// over what the log has, and over Sequence behind it: its entries are others than the
	// replica has.
	Do string `json:"do"`
	// Collection is the identity of the collection.
	Collection string `json:"collection"`
	Generation uint64 `json:"generation"`
	Shard      int    `json:"shard"`
	Sequence   uint64 `json:"sequence,omitempty"`
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
	case o.Do == "verify":
		return r.at(func(snap *index.Snapshot, applied uint64) error {
			if err := snap.Verify(n.ctx); err != nil {
				return err
			}
			shard, err := describe(n.ctx, snap, applied)
			if err != nil {
				return err
			}
			report.Shard = *shard
			return report.contents(n.ctx, snap)
		})
	case o.Do == "contents":
		report.Log, report.Lost = r.logNow()
		return r.at(func(snap *index.Snapshot, applied uint64) error {
			report.Shard = topology.Shard{Documents: uint64(snap.Len()), Tokens: snap.State().LiveTokens, Applied: applied}
			report.Recent = r.marks(applied)
			return report.contents(n.ctx, snap)
		})
	case o.Do == "adopt":
		return r.adopt(o.Sequence)
	case o.Do == "checkpoint":
		shard, err := r.checkpoint()
		if err == nil {
			report.Shard = *shard
		}
		return err
	case o.Do == "rejoin":
		return n.rejoin(r)
	}
	return fmt.Errorf("unknown order %q", o.Do)
}

func describe(ctx context.Context, snap *index.Snapshot, applied uint64) (*topology.Shard, error) {
	digest, _, err := snap.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	return &topology.Shard{Digest: digest, Documents: uint64(snap.Len()), Tokens: snap.State().LiveTokens, Applied: applied}, nil
}

// checkpoint makes an object of the replica as it is.
func (r *replica) checkpoint() (*topology.Shard, error) {
	ix := r.use()
	if ix == nil {
		return nil, errNotOpen
	}
	defer r.release()
	if err := r.n.watch.UpToDate(); err != nil { // a node of before could not begin with it
		return nil, err
	}
	r.checkpointing.Lock() // there is one file for it
	defer r.checkpointing.Unlock()
	path := r.n.path(r.key) + ".checkpoint"
	defer os.Remove(path)
	if _, err := ix.BackupTo(r.ctx, path, &index.BackupOptions{Force: true}); err != nil {
		return nil, err
	}
	shard, err := Examine(r.ctx, path, r.base)
	if err != nil {
		return nil, err
	}
	shard.Object, err = objects.PutFile(r.ctx, r.n.store, ObjectName(r.key.collection, r.key.generation, r.key.shard, shard.Applied), path)
	return shard, err
}

// ObjectName is a new name for the file of a shard.
func ObjectName(collection string, generation uint64, shard int, applied uint64) string {
	return fmt.Sprintf("shards/%s/g%d/s%04d-a%d-%s.plaid", collection, generation, shard, applied, wire.NewID().String()[:12])
}

// Examine describes the index file at a path, which stands for base entries of the log
// if it does not say.
func Examine(ctx context.Context, path string, base uint64) (shard *topology.Shard, err error) {
	ix, err := index.Open(ctx, path, &index.Options{LockTimeout: time.Second})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ix.Close()) }()
	snap, err := ix.Snapshot()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	applied, err := snap.Applied()
	if err != nil {
		return nil, err
	}
	return describe(ctx, snap, max(applied.Sequence, base))
}

func (r *Report) contents(ctx context.Context, snap *index.Snapshot) error {
	c, err := snap.Contents(ctx, Parts)
	if err != nil {
		return err
	}
	r.Contents = c.Digest()
	for _, part := range c.Parts {
		r.Parts = append(r.Parts, part[:])
	}
	return nil
}

// rejoin puts the file of a replica aside and lets another replica begin in its place. It
// returns when that one answers: the lease may go on saying for a while that the old one does.
func (n *Node) rejoin(r *replica) error {
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
	path := n.path(r.key)
	to, err := unused(path + aside)
	if err == nil {
		err = os.Rename(path, to)
	}
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

// marks are those of entries up to one.
func (r *replica) marks(last uint64) map[uint64][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[uint64][]byte{}
	for n, mark := range r.recent {
		if n <= last && mark != [16]byte{} {
			all[n] = mark[:]
		}
	}
	return all
}

// logNow tells what is the matter with the log, as the lease does, but as it is now: an idle
// replica looks seldom.
func (r *replica) logNow() (fault string, lost bool) {
	if s := r.state(); s.Log != "" {
		return s.Log, s.Lost
	}
	err := r.request(func(ctx context.Context) error {
		stream, err := r.n.bus.JS.Stream(ctx, bus.LogStream(r.key.collection, r.key.shard))
		if err != nil {
			return err
		}
		if last, applied := stream.CachedInfo().State.LastSeq, r.state().Applied; last < applied {
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
