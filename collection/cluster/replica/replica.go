// Package replica keeps a copy of a shard on this machine: a cache that is a function of the newest
// checkpoint of the shard and the entries of its log after that.
package replica

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/objects"
)

// Shard says which shard a replica is of, and what its objects are.
type Shard struct {
	Collection string // its identity: objects are below data/Collection/
	Number     int
	Generation Generation
	// Config is as the collection was declared. MaxDocuments is the share of the shard.
	Config collection.Config
}

// Generation is one codec, and what is encoded with it.
type Generation struct {
	Number uint64 `json:"number"`
	Dim    int    `json:"dim"` // 0: only documents without vectors so far
	Nbits  int    `json:"nbits"`
	// Stage is how far the collection has grown. The codec of [collection.StageFlat] is a function
	// of the dimension; that of other stages is the object Codec, an index file without documents.
	Stage collection.Stage `json:"stage"`
	Codec objects.Ref      `json:"codec,omitzero"`
	Model *storage.Model   `json:"model,omitempty"`
	// Trained is how many tokens the collection had when the codec was trained.
	Trained uint64 `json:"trained,omitempty"`
	// Begun says that shards may have no checkpoint of the generation: they begin empty, and have
	// all entries of their logs. Otherwise each has one.
	Begun bool `json:"begun,omitempty"`
}

// Config is what the replicas of a process have in common.
type Config struct {
	Store objects.Store
	Dir   string        // of the cache; a folder a replica below it
	Index store.Options // threads, backend, device, derived data, queue
	Grace time.Duration // as in the journal
	// CheckpointBytes of entries after a checkpoint make the writer put another; 0: 64 MiB or a
	// quarter of the file, whichever is more.
	CheckpointBytes int64
	// Appended, where set, is called after an own entry has been put, so that others are told of
	// it. It must not wait: changes do meanwhile.
	Appended func(s Shard, entry uint64)
	Logger   *slog.Logger
}

// Replica is a copy of a shard. It is safe for concurrent use.
type Replica struct{}

// Open makes a replica from the cache or from the store. It returns at once: the file is fetched
// beside, and what needs it waits for that.
func Open(c *Config, s Shard) (*Replica, error) { return nil, errors.ErrUnsupported }

// State is what a replica does.
type State struct {
	Phase     string `json:"phase"` // "fetching", "catching up", "ready", "failed"
	Entry     uint64 `json:"entry"` // that it has applied
	Known     uint64 `json:"known"` // the last entry of the log that it knows of
	Error     string `json:"error,omitempty"`
	Documents uint64 `json:"documents"`
	Bytes     int64  `json:"bytes"`
}

// State of the replica.
func (r *Replica) State() State { return State{} }

// View is a state of the shard that has at least an entry. It waits for that, and reads the log if
// the entry is not known here. entry is the last one that it has.
func (r *Replica) View(ctx context.Context, after uint64) (v *store.View, entry uint64, err error) {
	return nil, 0, errors.ErrUnsupported
}

// Batch is what tells a change that is sent again from another one. Sent says that it was sent
// before, with an unknown outcome, when the log ended with the entry After: the change is then
// looked for in the log first.
type Batch struct {
	ID    string `json:"id"`
	Sent  bool   `json:"sent,omitempty"`
	After uint64 `json:"after,omitempty"`
}

// Update, Delete and UpdateMetadata are those of [collection.Collection] for the documents of the
// shard; entry is the one that has the change, 0 if nothing was changed. After
// [journal.ErrUnknown] the change may have been made: send the same batch again.
func (r *Replica) Update(ctx context.Context, b Batch, docs []collection.Document, o collection.UpdateOptions) (
	receipt collection.Receipt, entry uint64, err error) {
	return receipt, 0, errors.ErrUnsupported
}

// Delete see Update.
func (r *Replica) Delete(ctx context.Context, b Batch, s collection.Selection) (index.Affected, uint64, error) {
	return index.Affected{}, 0, errors.ErrUnsupported
}

// UpdateMetadata see Update.
func (r *Replica) UpdateMetadata(ctx context.Context, b Batch, s collection.Selection, set map[string]json.RawMessage) (index.Affected, uint64, error) {
	return index.Affected{}, 0, errors.ErrUnsupported
}

// Stats of the shard.
func (r *Replica) Stats(ctx context.Context) (collection.Stats, error) {
	return collection.Stats{}, errors.ErrUnsupported
}

// Hint says that the log has an entry.
func (r *Replica) Hint(entry uint64) {}

// Poll looks for entries that no hint was given of.
func (r *Replica) Poll(ctx context.Context) error { return errors.ErrUnsupported }

// SetMost changes how many documents the shard keeps at most; nil: all.
func (r *Replica) SetMost(most *uint64) {}

// SetWriter says whether this replica is the one that gathers the changes of the shard: such a one
// puts a checkpoint when enough entries have come since the last ([Config.CheckpointBytes]).
func (r *Replica) SetWriter(is bool) {}

// Checkpoint puts the file as it is into the store, unless the newest checkpoint has all its entries.
func (r *Replica) Checkpoint(ctx context.Context) error { return errors.ErrUnsupported }

// BuildNext encodes the shard with the codec of another generation, and puts that as its checkpoint.
func (r *Replica) BuildNext(ctx context.Context, next Generation) error {
	return errors.ErrUnsupported
}

// Sample returns about n tokens of the shard's documents for a training, [rows, dim], row-major.
func (r *Replica) Sample(ctx context.Context, n int, seed uint64) ([]float32, error) {
	return nil, errors.ErrUnsupported
}

// Verify reads every byte of the file.
func (r *Replica) Verify(ctx context.Context) error { return errors.ErrUnsupported }

// Close ends the replica. The cache stays.
func (r *Replica) Close(ctx context.Context) error { return errors.ErrUnsupported }

// Remove ends the replica and removes its cache.
func (r *Replica) Remove(ctx context.Context) error { return errors.ErrUnsupported }
