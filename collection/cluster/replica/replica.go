// Package replica keeps a copy of a shard on this machine: a cache that is a function of a
// checkpoint of the shard and the entries of its log after that (I3). docs/lab/cluster.md has the
// invariants that comments here name.
//
//	fetching ──► catching up ──► ready
//	   ▲              │            │
//	   └── failed ◄───┴────────────┘
//
// It begins with a checkpoint, or empty, applies the entries up to the end of the log, and then those
// that come. After a fault of this machine or of the store it tries again.
//
// Its index file is written without waiting for the disk. A transaction that applies an entry notes
// its number and hash, so that a process that is killed goes on from there. The file is thrown away,
// and fetched again, if it was open when the machine stopped, if the log has another entry of the
// number, or if the log was cut after it.
//
// Replicas that have applied the same entries have the same documents at the same ordinals, with the
// same payloads and vectors in the same bits: which processor, device or number of threads encodes
// them makes no difference, as package kernels promises. Their files differ in layout, which depends
// on when segments were merged and deleted documents removed. There is one exception. A generation
// after the first begins with a checkpoint of vectors that were decoded, and encoded again. If two
// nodes put one at different entries, the documents between these entries were encoded
// from decoded vectors in one and from the original ones in the other.
//
// A shard can be read while its checkpoint is fetched, if that has all entries of the log.
package replica

import (
	"cmp"
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

// Shard names the shard of a replica, and its objects.
type Shard struct {
	Collection string // its identity: objects are below data/Collection/
	Number     int
	Generation Generation
	// Config is as the collection was declared. MaxDocuments is the share of the shard.
	Config collection.Config
}

// Generation is a codec, and the checkpoints that are encoded with it.
type Generation struct {
	Number uint64 `json:"number"`
	Dim    int    `json:"dim"` // 0: only documents without vectors so far
	Nbits  int    `json:"nbits"`
	// Stage of the collection's growth. The codec of [collection.StageFlat] is a function
	// of the dimension; that of other stages is the object Codec, an index file without documents.
	Stage collection.Stage `json:"stage"`
	Codec objects.Ref      `json:"codec,omitzero"`
	Model *storage.Model   `json:"model,omitempty"`
	// Trained is the number of tokens that the collection had when the codec was trained.
	Trained uint64 `json:"trained,omitempty"`
	// Base is the generation whose first checkpoints gave documents their ordinals: it is that of another one
	// if that was encoded again, and the own number after a bulk build. 0 is the first.
	Base uint64 `json:"base,omitempty"`
	// Begun says that shards may have no checkpoint of the generation: they begin empty, and have
	// all entries of their logs. Otherwise each has one.
	Begun bool `json:"begun,omitempty"`
}

// Config has the settings that the replicas of a process share.
type Config struct {
	Store objects.Store
	Dir   string        // of the cache; each replica has a folder in it
	Index store.Options // threads, backend, device, derived data, queue
	Grace time.Duration // as in the journal
	// CheckpointBytes of entries after a checkpoint make the writer put another; 0: 64 MiB or a
	// quarter of the file, whichever is more. An entry counts 64 KiB at least. A shard with less has no checkpoint:
	// its replicas read the log from the beginning.
	CheckpointBytes int64
	// Appended is called after an own entry has been put, to tell other nodes; nil means that nothing is called.
	// Changes of the shard wait for it.
	Appended func(s Shard, entry uint64)
	// Misled is called when the log still lacks an entry a minute after it was hinted at; nil means that nothing
	// is called.
	HintFailed func(s Shard)
	// Living asks the store whether a collection is there: the error is [collection.ErrUnknown] if
	// it was removed. A writer that has slept calls it before it acknowledges a change: the log of a
	// collection that was removed long ago is gone with its seal (I10). nil: none are removed.
	CheckExists func(ctx context.Context, collection string) error
	Logger      *slog.Logger
}

// Phases of a replica.
const (
	Fetching   = "fetching"
	CatchingUp = "catching up"
	Ready      = "ready"
	Failed     = "failed"
)

// ErrFailed: a replica cannot answer now. The error has the reason, and advice.
var ErrFailed = errors.New("a shard cannot be read on this node")

// Replica is a copy of a shard. It is safe for concurrent use.
type Replica struct {
	cfg     *Config
	shard   Shard
	log     *slog.Logger
	journal *journal.Log
	dir     string

	running, ctx context.Context // until ends when Close begins; ctx, of requests to the store, with the context of Close
	stop, abort  context.CancelFunc
	ended        chan struct{}  // closed when it has ended
	wake         chan struct{}  // capacity 1: there may be entries
	copySlot     chan struct{}  // capacity 1: a checkpoint is being made
	background   sync.WaitGroup // checkpoints that run begins, before it ends

	fetched bool // the file was fetched when it was opened; of run alone
	cleared int  // caches that were thrown away since it was ready; of run alone

	mu           sync.Mutex
	changed      chan struct{} // closed, and replaced, when a field below changes
	phase        string
	err          error      // of the phase Failed
	ready        *openShard // nil: it is not
	partial      *openShard // a checkpoint that is being fetched, for reads; nil means none
	entry        uint64     // the last that is applied
	known        uint64     // the last that the log is known to have
	maxDocuments *uint64    // documents; nil means no limit
	writer       bool
	behind       int64 // about the size of the entries after the newest checkpoint
	stopped      bool
	closeErr     error // of closing
}

// Open makes a replica from the cache or from the store. It returns at once: the file is fetched in
// the background, and calls wait for it.
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
		cfg: c, shard: s, log: log.With("collection", s.Collection, "shard", s.Number, "generation", s.Generation.Number),
		journal: journal.New(c.Store, s.Collection, s.Number, journal.Options{Grace: c.Grace}),
		dir:     filepath.Join(c.Dir, s.Collection, fmt.Sprintf("%04d-%08d", s.Number, s.Generation.Number)),
		ended:   make(chan struct{}), wake: make(chan struct{}, 1), copySlot: make(chan struct{}, 1),
		changed: make(chan struct{}), phase: Fetching, maxDocuments: s.Config.MaxDocuments,
	}
	r.ctx, r.abort = context.WithCancel(context.Background())
	r.running, r.stop = context.WithCancel(r.ctx)
	go r.keepOpen()
	return r, nil
}

// State is a report on a replica.
type State struct {
	Phase     string `json:"phase"` // "fetching", "catching up", "ready", "failed"
	Entry     uint64 `json:"entry"` // the last that it has applied
	Known     uint64 `json:"known"` // the last entry of the log that it knows of
	Error     string `json:"error,omitempty"`
	Documents uint64 `json:"documents"`
	Bytes     int64  `json:"bytes"`
}

// State of the replica.
func (r *Replica) State() State {
	r.mu.Lock()
	s, open := State{Phase: r.phase, Entry: r.entry, Known: max(r.known, r.entry)}, cmp.Or(r.ready, r.partial)
	if r.err != nil {
		s.Error = r.err.Error()
	}
	r.mu.Unlock()
	if open != nil {
		if st, err := open.collection.Stats(r.ctx); err == nil {
			s.Documents, s.Bytes = st.Documents, st.FileBytes
		}
	}
	return s
}

// changeState changes fields that the mutex guards, and wakes calls that wait for a change.
func (r *Replica) changeState(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.changed)
	r.changed = make(chan struct{})
}

// wakeUp wakes run: there may be entries to read, or a checkpoint may be due.
func (r *Replica) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// waitUntilUsable waits until the replica is ready and has an entry. Reads get a file that is being fetched, as
// long as the log is not known to have more.
func (r *Replica) waitUntilUsable(ctx context.Context, after uint64, read bool) (*openShard, error) {
	for {
		open, changed, err := r.usable(after, read)
		if open != nil || err != nil {
			return open, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			r.mu.Lock()
			defer r.mu.Unlock()
			return nil, fmt.Errorf("waiting for shard %d of %s, which is %s and has entry %d of %d: %w",
				r.shard.Number, r.shard.Collection, r.phase, r.entry, after, ctx.Err())
		}
	}
}

// usable returns the results of use if there is no need to wait; otherwise only changed, which is closed at the
// next change.
func (r *Replica) usable(after uint64, read bool) (open *openShard, changed chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteKnown(after)
	switch {
	case r.stopped:
		return nil, nil, collection.ErrClosed
	case r.ready != nil && r.entry >= after:
		return r.ready, nil, nil
	case r.ready == nil && read && r.partial != nil && r.partial.lastPosition.Number >= r.known:
		return r.partial, nil, nil
	case r.ready == nil && r.phase == Failed:
		return nil, nil, fmt.Errorf("%w: shard %d of %s: %w", ErrFailed, r.shard.Number, r.shard.Collection, r.err)
	}
	return nil, r.changed, nil
}

// closingErrors are the errors of a collection whose replica closes it, or is about to. Nothing was done.
var closingErrors = []error{collection.ErrClosed, storage.ErrClosed, collection.ErrDamaged, journal.ErrBehind}

// withOpen calls do with the open replica, and again if this was closed before anything was done.
func (r *Replica) withOpen(ctx context.Context, after uint64, read bool, do func(*openShard) error) error {
	for {
		open, err := r.waitUntilUsable(ctx, after, read)
		if err != nil {
			return err
		}
		err = do(open)
		if !wrapsAny(err, closingErrors...) || errors.Is(err, storage.ErrOutcomeUnknown) {
			return err
		}
		r.mu.Lock()
		same, changed := r.ready == open || r.partial == open, r.changed
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

// Snapshot waits until the replica has an entry, and returns a state of the shard, with the last entry
// that it has.
func (r *Replica) Snapshot(ctx context.Context, after uint64) (v *store.Snapshot, entry uint64, err error) {
	err = r.withOpen(ctx, after, true, func(open *openShard) error {
		if v, err = open.collection.Snapshot(ctx); err != nil {
			return err
		}
		has, err := v.Snapshot().Applied()
		if entry = has.Sequence; err == nil && entry < after { // the file was fetched again meanwhile
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

// Batch identifies a change. Sent says that it was sent before, with an unknown outcome, when the log
// ended with the entry After: the change is then looked for in the log first (I11).
type Batch struct {
	ID    string `json:"id"`
	Sent  bool   `json:"sent,omitempty"`
	After uint64 `json:"after,omitempty"`
}

// change does a change, and returns the entry that has it.
func (r *Replica) change(ctx context.Context, b Batch, do func(*store.Collection, *store.Batch) error) (uint64, error) {
	batch := &store.Batch{ID: b.ID, Sent: b.Sent, After: b.After}
	err := r.withOpen(ctx, 0, false, func(open *openShard) error { return do(open.collection, batch) })
	return batch.Entry, err
}

// Update, Delete and UpdateMetadata are those of [collection.Collection] for the documents of the
// shard; entry is the one that has the change, 0 if nothing was changed. After
// [storage.ErrOutcomeUnknown] the change may have been made: send the same batch again.
func (r *Replica) Update(ctx context.Context, b Batch, docs []collection.DocumentInput, o collection.UpdateOptions) (
	receipt collection.Receipt, entry uint64, err error) {
	entry, err = r.change(ctx, b, func(c *store.Collection, b *store.Batch) (err error) {
		receipt, err = c.UpdateBatch(ctx, b, docs, o)
		return err
	})
	return receipt, entry, err
}

// Delete deletes documents, see [Replica.Update].
func (r *Replica) Delete(ctx context.Context, b Batch, s collection.Selection) (
	n index.Affected, entry uint64, err error) {
	entry, err = r.change(ctx, b, func(c *store.Collection, b *store.Batch) (err error) {
		n, err = c.DeleteBatch(ctx, b, s)
		return err
	})
	return n, entry, err
}

// UpdateMetadata sets fields of documents, see [Replica.Update].
func (r *Replica) UpdateMetadata(ctx context.Context, b Batch, s collection.Selection,
	set map[string]json.RawMessage) (n index.Affected, entry uint64, err error) {
	entry, err = r.change(ctx, b, func(c *store.Collection, b *store.Batch) (err error) {
		n, err = c.UpdateMetadataBatch(ctx, b, s, set)
		return err
	})
	return n, entry, err
}

// Stats of the shard.
func (r *Replica) Stats(ctx context.Context) (st collection.Stats, err error) {
	err = r.withOpen(ctx, 0, true, func(open *openShard) (err error) {
		st, err = open.collection.Stats(ctx)
		return err
	})
	return st, err
}

// Hint says that the log has an entry.
func (r *Replica) Hint(entry uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteKnown(entry)
}

// noteKnown notes that the log has an entry, also if a higher one is known, which may be an error. r.mu is held.
func (r *Replica) noteKnown(entry uint64) {
	if entry > r.entry {
		r.known = max(r.known, entry)
		r.wakeUp()
	}
}

// Seal ends the log of a shard of a collection that was removed (I10): an entry after which nothing comes, also if the
// last one is damaged.
func Seal(ctx context.Context, c *Config, collection string, shard int) error {
	l := journal.New(c.Store, collection, shard, journal.Options{Grace: c.Grace})
	body, err := store.Seal()
	if err != nil {
		return err
	}
	for {
		last, err := l.Last(ctx)
		damaged := errors.Is(err, journal.ErrFork) && last.Number > 0 // its number fences writers all the same
		if err != nil && !damaged || store.Sealed(last.Body) {
			return err
		}
		if _, err = l.Append(ctx, last.Position, nil, body); !errors.Is(err, journal.ErrTaken) {
			return err
		}
	}
}

// Corrupt says that a search has found damage in the file, which is then fetched again.
func (r *Replica) Corrupt(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ready != nil {
		r.ready.Failed(err)
	}
}

// Poll looks for entries without a hint.
func (r *Replica) Poll(ctx context.Context) error {
	return r.withOpen(ctx, 0, false, func(open *openShard) error { return open.followLog(ctx) })
}

// SetMaxDocuments sets the largest number of documents that the shard keeps; nil means no limit.
func (r *Replica) SetMaxDocuments(most *uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.maxDocuments = most; r.ready != nil {
		r.ready.collection.LimitDocuments(most)
	}
}

// SetWriter says whether this replica gathers the changes of the shard. The one that does puts a
// checkpoint when enough entries have come since the last ([Config.CheckpointBytes]).
func (r *Replica) SetWriter(is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writer = is
	r.wakeUp()
}

// Verify reads every byte of the file. One that is damaged is thrown away and fetched again.
func (r *Replica) Verify(ctx context.Context) error {
	return r.withOpen(ctx, 0, false, func(open *openShard) error {
		err := open.collection.Verify(ctx)
		if errors.Is(err, storage.ErrCorrupt) {
			open.Failed(err)
		}
		return err
	})
}

// Close ends the replica. The cache stays. Changes that wait are done until ctx ends.
func (r *Replica) Close(ctx context.Context) error {
	r.changeState(func() { r.stopped = true })
	r.stop()
	defer context.AfterFunc(ctx, r.abort)()
	<-r.ended
	r.abort()
	return r.closeErr
}

// Remove ends the replica and removes its cache.
func (r *Replica) Remove(ctx context.Context) error {
	err := r.Close(ctx)
	return errors.Join(err, removeAll(r.dir))
}

// collectionName is the collection's, for messages: its identity without the random part.
func (r *Replica) collectionName() string {
	if i := strings.LastIndexByte(r.shard.Collection, '.'); i > 0 {
		return r.shard.Collection[:i]
	}
	return r.shard.Collection
}
