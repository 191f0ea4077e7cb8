package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/index"
)

// tell carries out the orders that tell what is in a replica.
func (r *replica) tell(o *Order, report *Report) error {
	if o.Do != "verify" {
		report.Log, report.Lost = r.logNow()
	}
	at := r.at
	if o.At > 0 {
		at = func(fn func(*index.Snapshot, uint64) error) error { return r.atEntry(o.At, fn) }
	}
	err := at(func(snap *index.Snapshot, applied uint64) (err error) {
		switch o.Do {
		case "verify":
			if err := snap.Verify(r.n.ctx); err != nil {
				return err
			}
			return report.whole(r.n.ctx, snap, applied)
		case "checkpoint":
			return r.checkpoint(snap, applied, o.Compared, report)
		}
		report.Shard = topology.Shard{Documents: uint64(snap.Len()), Tokens: snap.State().LiveTokens, Applied: applied}
		return report.contents(r.n.ctx, snap)
	})
	report.Recent = r.marks(report.Shard.Applied)
	if errors.Is(err, errMissed) {
		report.Shard.Applied = r.state().Applied
		return nil
	}
	return err
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

// whole is what there is to say of a snapshot.
func (r *Report) whole(ctx context.Context, snap *index.Snapshot, applied uint64) error {
	shard, err := describe(ctx, snap, applied)
	if err != nil {
		return err
	}
	r.Shard = *shard
	return r.contents(ctx, snap)
}

func describe(ctx context.Context, snap *index.Snapshot, applied uint64) (*topology.Shard, error) {
	digest, _, err := snap.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	return &topology.Shard{Digest: digest, Documents: uint64(snap.Len()), Tokens: snap.State().LiveTokens, Applied: applied}, nil
}

// checkpoint makes an object of a snapshot, and reports what is in that: it is read from what
// was written.
func (r *replica) checkpoint(snap *index.Snapshot, applied uint64, compared bool, report *Report) error {
	r.checkpointing.Lock() // there is one file for it
	defer r.checkpointing.Unlock()
	path := r.n.path(r.key) + checkpointEnd
	defer os.Remove(path)
	if err := copyTo(r.ctx, snap, path); err != nil {
		return err
	}
	err := examine(r.ctx, path, func(copied *index.Snapshot) error {
		if err := copied.Verify(r.ctx); err != nil {
			return err
		}
		return report.whole(r.ctx, copied, applied)
	})
	if err != nil {
		return err
	}
	report.Shard.Object, err = objects.PutFile(r.ctx, r.n.store, objectName(r.key.collection, r.key.generation, r.key.shard, applied, compared), path)
	return err
}

// checkpointEnd is at the end of the name of a replica's file that is to become an object.
const checkpointEnd = ".checkpoint"

func copyTo(ctx context.Context, snap *index.Snapshot, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = snap.CopyTo(ctx, f, nil)
	return errors.Join(err, f.Close())
}

// comparedEnd is at the end of the names of objects that were compared with other replicas
// before a map named them.
const comparedEnd = "-compared.plaid"

// ObjectName is a new name for the file of a shard.
func ObjectName(collection string, generation uint64, shard int, applied uint64) string {
	return objectName(collection, generation, shard, applied, false)
}

func objectName(collection string, generation uint64, shard int, applied uint64, compared bool) string {
	end := ".plaid"
	if compared {
		end = comparedEnd
	}
	return fmt.Sprintf("shards/%s/g%d/s%04d-a%d-%s%s", collection, generation, shard, applied, wire.NewID().String()[:12], end)
}

// Compared tells whether an object was compared with other replicas when it was made.
func Compared(o objects.Ref) bool { return strings.HasSuffix(o.Name, comparedEnd) }

// examine gives the index file at a path to fn.
func examine(ctx context.Context, path string, fn func(*index.Snapshot) error) (err error) {
	ix, err := index.Open(ctx, path, &index.Options{LockTimeout: time.Second})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ix.Close()) }()
	snap, err := ix.Snapshot()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	return fn(snap)
}

// Examine describes the index file at a path, which stands for base entries of the log
// if it does not say.
func Examine(ctx context.Context, path string, base uint64) (shard *topology.Shard, err error) {
	err = examine(ctx, path, func(snap *index.Snapshot) error {
		applied, err := snap.Applied()
		if err == nil {
			shard, err = describe(ctx, snap, max(applied.Sequence, base))
		}
		return err
	})
	return shard, err
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
