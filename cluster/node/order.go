package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	// Do is "verify", which reads all of the file, or "checkpoint", which also makes an
	// object of it.
	Do string `json:"do"`
	// Collection is the identity of the collection.
	Collection string `json:"collection"`
	Generation uint64 `json:"generation"`
	Shard      int    `json:"shard"`
}

// Report is the answer to an order.
type Report struct {
	Node  string `json:"node"`            // who reports
	Error string `json:"error,omitempty"` // why the order was not carried out; "": it was
	// Shard is the replica as it was at the entry Applied; its object is set by a checkpoint.
	Shard topology.Shard `json:"shard"`
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
		shard, err := n.carryOut(msg.Data)
		if err != nil {
			report.Error = err.Error()
		} else {
			report.Shard = *shard
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

func (n *Node) carryOut(order []byte) (*topology.Shard, error) {
	var o Order
	if err := json.Unmarshal(order, &o); err != nil {
		return nil, err
	}
	k := key{o.Collection, o.Generation, o.Shard}
	r := n.replica(k)
	switch {
	case r == nil:
		return nil, fmt.Errorf("%s is not here", k)
	case o.Do == "verify":
		var shard *topology.Shard
		err := r.at(func(snap *index.Snapshot, applied uint64) (err error) {
			if err = snap.Verify(n.ctx); err == nil {
				shard, err = describe(n.ctx, snap, applied)
			}
			return err
		})
		return shard, err
	case o.Do == "checkpoint":
		return r.checkpoint()
	}
	return nil, fmt.Errorf("unknown order %q", o.Do)
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
	return describe(ctx, snap, max(applied, base))
}
