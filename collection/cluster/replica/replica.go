// Package replica keeps a copy of a shard on this machine: a cache that is a function of the newest
// checkpoint of the shard and the entries of its log after that (I3).
//
//	fetching ──► catching up ──► ready
//	   ▲              │            │
//	   └── failed ◄───┴────────────┘
//
// It begins with a checkpoint, or empty, applies the entries up to the end of the log, and then those
// that come. After a fault of this machine or of the store it tries again.
//
// Its index file is a cache, which is written without waiting for the disk. It holds the number and
// the hash of its last entry in the transaction of what that entry changed, so that a process that
// is killed goes on from there. It is thrown away, and fetched again, if it was open when the machine
// stopped, if the log has another entry of the number, or none after it any more.
//
// Replicas that have applied the same entries have the same documents at the same ordinals, with the
// same payloads and vectors in the same bits: which processor, device or number of threads encodes
// them makes no difference, as package kernels promises. Their files differ in layout, which depends
// on when segments were merged and deleted documents removed. There is one exception. A generation
// after the first begins with a checkpoint that encodes what was decoded. If two nodes put one at
// the same time, at different entries, the documents that came between these entries were encoded
// from decoded vectors in one and from the original ones in the other.
//
// While a checkpoint is fetched the shard can be read if the log does not go on after it.
package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/journal"
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
	// Misled, where set, is called when the log still lacks an entry a minute after it was hinted at.
	Misled func(s Shard)
	// Living, where set, looks into the store whether a collection is there: the error is
	// [collection.ErrUnknown] if it was removed. A writer that has slept asks it before it acknowledges:
	// of a collection that was removed long ago, the log is gone with its seal.
	Living func(ctx context.Context, collection string) error
	Logger *slog.Logger
}

// Phases of a replica.
const (
	Fetching   = "fetching"
	CatchingUp = "catching up"
	Ready      = "ready"
	Failed     = "failed"
)

// ErrFailed: a replica cannot answer now. The error says why, and what helps.
var ErrFailed = errors.New("a shard cannot be read on this node")

// Replica is a copy of a shard. It is safe for concurrent use.
type Replica struct {
	c       *Config
	s       Shard
	log     *slog.Logger
	journal *journal.Log
	dir     string

	until, ctx  context.Context // until ends when Close begins; ctx, of requests to the store, later
	stop, abort context.CancelFunc
	ended       chan struct{}  // closed when it has ended
	wake        chan struct{}  // capacity 1: there may be entries
	copies      chan struct{}  // capacity 1: a checkpoint is being made
	background  sync.WaitGroup // checkpoints that run begins, before it ends

	fresh bool // the file was fetched when it was opened; of run alone
	lost  int  // how often it was of no use since it was ready; of run alone

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when what follows changes
	phase   string
	err     error   // why it has failed
	at      *opened // nil: it is not ready
	cold    *opened // what is fetched just now, to be read; nil: nothing
	entry   uint64  // the last that is applied
	known   uint64  // the last that the log is known to have
	most    *uint64
	writer  bool
	behind  int64 // about how many bytes of entries no checkpoint has
	stopped bool
	left    error // what closing failed with
}

// Open makes a replica from the cache or from the store. It returns at once: the file is fetched
// beside, and what needs it waits for that.
func Open(c *Config, s Shard) (*Replica, error) {
	if c.Store == nil || c.Dir == "" || s.Collection == "" || s.Generation.Number == 0 || s.Number < 0 {
		return nil, fmt.Errorf("%w: shard %d of %q, generation %d, in the folder %q", collection.ErrConfig,
			s.Number, s.Collection, s.Generation.Number, c.Dir)
	}
	log := c.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &Replica{
		c: c, s: s, log: log.With("collection", s.Collection, "shard", s.Number, "generation", s.Generation.Number),
		journal: journal.New(c.Store, s.Collection, s.Number, journal.Options{Grace: c.Grace}),
		dir:     filepath.Join(c.Dir, s.Collection, fmt.Sprintf("%04d-%08d", s.Number, s.Generation.Number)),
		ended:   make(chan struct{}), wake: make(chan struct{}, 1), copies: make(chan struct{}, 1),
		changed: make(chan struct{}), phase: Fetching, most: s.Config.MaxDocuments,
	}
	r.ctx, r.abort = context.WithCancel(context.Background())
	r.until, r.stop = context.WithCancel(r.ctx)
	go r.run()
	return r, nil
}

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
func (r *Replica) State() State {
	r.mu.Lock()
	s, at := State{Phase: r.phase, Entry: r.entry, Known: max(r.known, r.entry)}, r.at
	if at == nil {
		at = r.cold
	}
	if r.err != nil {
		s.Error = r.err.Error()
	}
	r.mu.Unlock()
	if at != nil {
		if st, err := at.col.Stats(r.ctx); err == nil {
			s.Documents, s.Bytes = st.Documents, st.FileBytes
		}
	}
	return s
}

// set changes what the mutex guards, and tells those who wait for it.
func (r *Replica) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *Replica) ring() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// use waits until the replica is ready and has an entry. A file that is being fetched will do to read
// it, as long as the log is not known to have more.
func (r *Replica) use(ctx context.Context, after uint64, read bool) (*opened, error) {
	for {
		r.mu.Lock()
		at, changed, phase, err, stopped, entry := r.at, r.changed, r.phase, r.err, r.stopped, r.entry
		if after > r.known {
			r.known = after
			r.ring()
		}
		cold := r.cold
		if cold != nil && (!read || cold.last.Number < r.known) {
			cold = nil
		}
		r.mu.Unlock()
		switch {
		case stopped:
			return nil, collection.ErrClosed
		case at != nil && entry >= after:
			return at, nil
		case at == nil && cold != nil:
			return cold, nil
		case at == nil && phase == Failed:
			return nil, r.failure(err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for shard %d of %s, which is %s and has entry %d of %d: %w",
				r.s.Number, r.s.Collection, phase, entry, after, ctx.Err())
		}
	}
}

func (r *Replica) failure(err error) error {
	return fmt.Errorf("%w: shard %d of %s: %w", ErrFailed, r.s.Number, r.s.Collection, err)
}

// closing are the errors of a collection whose replica closes it, or is about to. Nothing was done.
var closing = []error{collection.ErrClosed, storage.ErrClosed, collection.ErrDamaged, journal.ErrBehind}

// with calls do with the collection, and again if that was closed for a reason of this replica
// before anything was done.
func (r *Replica) with(ctx context.Context, after uint64, read bool, do func(*opened) error) error {
	for {
		at, err := r.use(ctx, after, read)
		if err != nil {
			return err
		}
		err = do(at)
		if !is(err, closing...) || errors.Is(err, storage.ErrOutcomeUnknown) {
			return err
		}
		r.mu.Lock()
		same, changed := r.at == at || r.cold == at, r.changed
		r.mu.Unlock()
		if !same {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return err
		}
	}
}

// View is a state of the shard that has at least an entry. It waits for that, and reads the log if
// the entry is not known here. entry is the last one that it has.
func (r *Replica) View(ctx context.Context, after uint64) (v *store.View, entry uint64, err error) {
	err = r.with(ctx, after, true, func(at *opened) error {
		if v, err = at.col.View(ctx); err != nil {
			return err
		}
		has, err := v.Snapshot().Applied()
		if entry = has.Sequence; err == nil && entry < after { // of a file that was begun again
			err = collection.ErrClosed
		}
		if err != nil {
			err = errors.Join(err, v.Close())
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return v, entry, nil
}

// Batch is what tells a change that is sent again from another one. Sent says that it was sent
// before, with an unknown outcome, when the log ended with the entry After: the change is then
// looked for in the log first (I11).
type Batch struct {
	ID    string `json:"id"`
	Sent  bool   `json:"sent,omitempty"`
	After uint64 `json:"after,omitempty"`
}

// change does a change.
func (r *Replica) change(ctx context.Context, b Batch, do func(*store.Collection, *store.Batch) error) (uint64, error) {
	given := &store.Batch{ID: b.ID, Sent: b.Sent, After: b.After}
	err := r.with(ctx, 0, false, func(at *opened) error { return do(at.col, given) })
	return given.Entry, err
}

// Update, Delete and UpdateMetadata are those of [collection.Collection] for the documents of the
// shard; entry is the one that has the change, 0 if nothing was changed. After
// [storage.ErrOutcomeUnknown] the change may have been made: send the same batch again.
func (r *Replica) Update(ctx context.Context, b Batch, docs []collection.Document, o collection.UpdateOptions) (
	receipt collection.Receipt, entry uint64, err error) {
	entry, err = r.change(ctx, b, func(c *store.Collection, b *store.Batch) (err error) {
		receipt, err = c.UpdateBatch(ctx, b, docs, o)
		return err
	})
	return receipt, entry, err
}

// Delete see Update.
func (r *Replica) Delete(ctx context.Context, b Batch, s collection.Selection) (
	n index.Affected, entry uint64, err error) {
	entry, err = r.change(ctx, b, func(c *store.Collection, b *store.Batch) (err error) {
		n, err = c.DeleteBatch(ctx, b, s)
		return err
	})
	return n, entry, err
}

// UpdateMetadata see Update.
func (r *Replica) UpdateMetadata(ctx context.Context, b Batch, s collection.Selection, set map[string]json.RawMessage) (
	n index.Affected, entry uint64, err error) {
	entry, err = r.change(ctx, b, func(c *store.Collection, b *store.Batch) (err error) {
		n, err = c.UpdateMetadataBatch(ctx, b, s, set)
		return err
	})
	return n, entry, err
}

// Stats of the shard.
func (r *Replica) Stats(ctx context.Context) (st collection.Stats, err error) {
	err = r.with(ctx, 0, true, func(at *opened) (err error) {
		st, err = at.col.Stats(ctx)
		return err
	})
	return st, err
}

// Hint says that the log has an entry.
func (r *Replica) Hint(entry uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if entry > r.entry { // also if a higher one is known, which may be an error
		r.known = max(r.known, entry)
		r.ring()
	}
}

// Seal ends the log of a shard of a collection that was removed: an entry after which nothing comes.
func Seal(ctx context.Context, c *Config, collection string, shard int) error {
	l := journal.New(c.Store, collection, shard, journal.Options{Grace: c.Grace})
	body, err := store.Seal()
	for err == nil {
		var last journal.Entry
		if last, err = l.Last(ctx); err != nil || last.Number > 0 && store.Sealed(last.Body) {
			return err
		}
		if _, err = l.Append(ctx, last.Position, nil, body); err == nil {
			return nil
		}
		if errors.Is(err, journal.ErrTaken) {
			err = ctx.Err()
		}
	}
	return err
}

// Corrupt says that a search has found damage in the file, which is then fetched again.
func (r *Replica) Corrupt(err error) {
	r.mu.Lock()
	at := r.at
	r.mu.Unlock()
	if at != nil {
		at.Failed(err)
	}
}

// Poll looks for entries that no hint was given of.
func (r *Replica) Poll(ctx context.Context) error {
	return r.with(ctx, 0, false, func(at *opened) error { return at.follow(ctx) })
}

// SetMost changes how many documents the shard keeps at most; nil: all.
func (r *Replica) SetMost(most *uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.most = most; r.at != nil {
		r.at.col.SetMost(most)
	}
}

// SetWriter says whether this replica is the one that gathers the changes of the shard: such a one
// puts a checkpoint when enough entries have come since the last ([Config.CheckpointBytes]).
func (r *Replica) SetWriter(is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writer = is
	r.ring()
}

// Verify reads every byte of the file. One that is damaged is thrown away and fetched again.
func (r *Replica) Verify(ctx context.Context) error {
	return r.with(ctx, 0, false, func(at *opened) error {
		err := at.col.Verify(ctx)
		if errors.Is(err, storage.ErrCorrupt) {
			at.Failed(err)
		}
		return err
	})
}

// Close ends the replica. The cache stays. Changes that wait are done as long as ctx allows it.
func (r *Replica) Close(ctx context.Context) error {
	r.set(func() { r.stopped = true })
	r.stop()
	defer context.AfterFunc(ctx, r.abort)()
	<-r.ended
	r.abort()
	return r.left
}

// Remove ends the replica and removes its cache.
func (r *Replica) Remove(ctx context.Context) error {
	err := r.Close(ctx)
	return errors.Join(err, removeAll(r.dir))
}

// name is that of the shard's collection, for messages.
func (r *Replica) name() string {
	if i := strings.LastIndexByte(r.s.Collection, '.'); i > 0 {
		return r.s.Collection[:i]
	}
	return r.s.Collection
}
