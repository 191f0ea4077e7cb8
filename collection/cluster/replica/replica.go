// Package replica keeps a copy of a shard on this machine. The copy is a cache: a function of a checkpoint of the shard
// and of the entries after it in the log (I3 of docs/lab/cluster.md: replicas are functions of objects).
//
//	fetching ──► catching up ──► ready
//	   ▲              │            │
//	   └── failed ◄───┴────────────┘
//
// The phases, and what causes a transition:
//
//	fetching      the file is opened, or a checkpoint is fetched. It begins here, and again after failed.
//	catching up   the file is open (openAndFollow), and entries are applied up to the end of the log.
//	ready         the end of the log was reached. Entries are applied as they come (stayReady).
//	failed        opening, fetching or following has failed (keepOpen). After a wait it is fetching again. If the
//	              cache was of no use, it is removed and fetched again without this phase, a few times.
//
// Only keepOpen, and functions that it calls, change the phase. Close ends every phase. Other packages ask for changes:
// a search that finds damage calls [Replica.ReportDamage], and a journal that cannot be followed calls ReportFailure;
// both make a ready replica fetch again. For a user, cluster.ReplicaStatus adds: empty (the collection has no
// documents), closed (a holder has not opened it yet; the first request does), and silent (the node does not answer).
//
// The index file is written without waiting for the disk. A transaction that applies an entry notes its number and
// hash, so a process that was killed continues from there. The cache is removed and fetched again in these cases:
//
//  1. It was open when the machine stopped.
//  2. The log has another entry with the number of its last one.
//  3. The log was cut after its last entry.
//  4. It is damaged.
//
// Replicas that have applied the same entries have the same documents at the same ordinals, with the same payloads, and
// vectors with the same bits: they do not depend on the processor, device or threads that encode them, as package
// kernels promises. Their files differ in layout, which depends on when segments were merged and deleted documents
// removed. There is one exception. A generation after the first begins with a checkpoint of vectors that were decoded
// and encoded again. If two nodes put such a checkpoint at different entries, the documents between these entries were
// encoded from decoded vectors in one and from the original vectors in the other.
//
// A shard can be read while its checkpoint is being fetched, if the checkpoint has all entries of the log.
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

// Shard identifies the shard of a replica, and its objects.
type Shard struct {
	Collection string // id of the collection: objects are below data/Collection/
	Number     int
	Generation Generation
	// Config is the configuration of the collection, except that MaxDocuments is the share of the shard.
	Config collection.Config
}

// Generation is a codec, and the checkpoints that are encoded with it.
type Generation struct {
	Number uint64 `json:"number"`
	Dim    int    `json:"dim"` // 0 means that there are only documents without vectors so far
	Nbits  int    `json:"nbits"`
	// Stage is the growth stage of the collection. The codec of [collection.StageFlat] follows from the dimension. That
	// of other stages is the object Codec, an index file without documents.
	Stage collection.Stage `json:"stage"`
	Codec objects.Ref      `json:"codec,omitzero"`
	Model *storage.Model   `json:"model,omitempty"`
	// Trained is the number of tokens that the collection had when the codec was trained.
	Trained uint64 `json:"trained,omitempty"`
	// Base is the generation whose first checkpoints gave the documents their ordinals. A generation that encodes
	// another one again has the Base of that one; a bulk build has its own number. 0 is the first generation.
	Base uint64 `json:"base,omitempty"`
	// Begun says that shards may have no checkpoint of the generation: they begin empty, and their logs have all
	// entries. Otherwise each shard has a checkpoint.
	Begun bool `json:"begun,omitempty"`
}

// Config has the settings that all replicas of a process share.
type Config struct {
	Store objects.Store
	Dir   string        // of the cache; each replica has a folder in it
	Index store.Options // threads, backend, device, derived data, queue
	Grace time.Duration // as in the journal
	// CheckpointBytes is the size of the entries after a checkpoint that makes the writer put another one. 0 means
	// 64 MiB or a quarter of the file, whichever is more. An entry counts at least 64 KiB. A shard with less has no
	// checkpoint: its replicas read the log from the beginning.
	CheckpointBytes int64
	// Appended, unless it is nil, is called after this process has put an entry, to tell other nodes. Changes of the
	// shard wait for it.
	Appended func(s Shard, entry uint64)
	// HintFailed, unless it is nil, is called when the log still lacks a hinted entry after a minute.
	HintFailed func(s Shard)
	// CheckExists asks the store whether a collection exists: the error is [collection.ErrUnknown] if it was removed. A
	// writer that has slept calls it before it acknowledges a change, since the log of a collection that was removed
	// long ago may have been deleted together with its seal (I10: a removal is a fence). A nil CheckExists means that
	// no collection is ever removed.
	CheckExists func(ctx context.Context, collection string) error
	Logger      *slog.Logger
}

// Phases of a replica; see the comment of the package.
const (
	Fetching   = "fetching"
	CatchingUp = "catching up"
	Ready      = "ready"
	Failed     = "failed"
)

// ErrFailed means that a replica cannot answer now. The error has the reason, and advice.
var ErrFailed = errors.New("a shard cannot be read on this node")

// Replica is a copy of a shard. It is safe for concurrent use.
type Replica struct {
	cfg     *Config
	shard   Shard
	log     *slog.Logger
	journal *journal.Log
	dir     string

	running, ctx context.Context // running ends when Close begins; ctx, for requests to the store, with that of Close
	stop, abort  context.CancelFunc
	ended        chan struct{}  // closed when keepOpen has ended
	wake         chan struct{}  // capacity 1: there may be entries, or a checkpoint may be due
	copySlot     chan struct{}  // capacity 1: held while a copy of the file is made
	background   sync.WaitGroup // checkpoints that are being put

	// Used by keepOpen only:
	fetched  bool // the file was fetched when it was opened
	attempts int  // to open the replica, since it was last ready

	mu           sync.Mutex
	changed      chan struct{} // closed and replaced when a field below changes
	phase        string
	err          error      // of the phase Failed
	ready        *openShard // nil unless the replica is ready
	partial      *openShard // a checkpoint that can be read while it is fetched, or nil
	entry        uint64     // last applied entry
	known        uint64     // last entry that the log is said to have
	maxDocuments *uint64    // nil means no limit
	writer       bool       // this replica gathers the changes of the shard
	behind       int64      // about the size of the entries after the newest checkpoint
	stopped      bool
	closeErr     error
}

// Open opens a replica. It returns at once: the file is opened or fetched in the background, and calls wait for it.
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
		cfg:          c,
		shard:        s,
		log:          log.With("collection", s.Collection, "shard", s.Number, "generation", s.Generation.Number),
		journal:      journal.New(c.Store, s.Collection, s.Number, journal.Options{Grace: c.Grace}),
		dir:          filepath.Join(c.Dir, s.Collection, fmt.Sprintf("%04d-%08d", s.Number, s.Generation.Number)),
		ended:        make(chan struct{}),
		wake:         make(chan struct{}, 1),
		copySlot:     make(chan struct{}, 1),
		changed:      make(chan struct{}),
		phase:        Fetching,
		maxDocuments: s.Config.MaxDocuments,
	}
	r.ctx, r.abort = context.WithCancel(context.Background())
	r.running, r.stop = context.WithCancel(r.ctx)
	go r.keepOpen()
	return r, nil
}

// State describes a replica.
type State struct {
	Phase     string `json:"phase"` // "fetching", "catching up", "ready", "failed"
	Entry     uint64 `json:"entry"` // last applied entry
	Known     uint64 `json:"known"` // last entry that the log is said to have
	Error     string `json:"error,omitempty"`
	Documents uint64 `json:"documents"`
	Bytes     int64  `json:"bytes"`
}

// State returns the present state of the replica.
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

// wakeUp wakes stayReady: there may be entries to read, or a checkpoint may be due.
func (r *Replica) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// waitUntilUsable waits until the replica is ready and has an entry. With partialIsEnough, it may return a file that is
// still being fetched, as long as the log is not known to have more entries.
func (r *Replica) waitUntilUsable(ctx context.Context, after uint64, allowPartial bool) (*openShard, error) {
	for {
		open, changed, err := r.usable(after, allowPartial)
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

// usable is waitUntilUsable without the wait: while the replica is not usable, it returns only changed, which is closed
// at the next change.
func (r *Replica) usable(after uint64, allowPartial bool) (open *openShard, changed chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteKnown(after)
	switch {
	case r.stopped:
		return nil, nil, collection.ErrClosed
	case r.ready != nil && r.entry >= after:
		return r.ready, nil, nil
	case r.ready == nil && allowPartial && r.partial != nil && r.partial.lastPosition.Number >= r.known:
		return r.partial, nil, nil
	case r.ready == nil && r.phase == Failed:
		return nil, nil, fmt.Errorf("%w: shard %d of %s: %w", ErrFailed, r.shard.Number, r.shard.Collection, r.err)
	}
	return nil, r.changed, nil
}

// closingErrors are the errors of a collection that its replica closes, or is about to close. Nothing was done.
var closingErrors = []error{collection.ErrClosed, storage.ErrClosed, collection.ErrDamaged, journal.ErrBehind}

// Values of the parameter allowPartial of withOpen.
const (
	partialIsEnough = true
	mustBeReady     = false
)

// withOpen calls use with the open replica. It calls use again with the next one if the first was closed before
// anything was done. With partialIsEnough, the replica may be a file that is still being fetched.
func (r *Replica) withOpen(ctx context.Context, after uint64, allowPartial bool, use func(*openShard) error) error {
	for {
		open, err := r.waitUntilUsable(ctx, after, allowPartial)
		if err != nil {
			return err
		}
		err = use(open)
		if !wrapsAny(err, closingErrors...) || errors.Is(err, storage.ErrOutcomeUnknown) {
			return err
		}
		// Wait until the replica has noticed that it is closing.
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

// Snapshot waits until the replica has an entry, and returns a snapshot of the shard with the last entry that it has.
func (r *Replica) Snapshot(ctx context.Context, after uint64) (v *store.Snapshot, entry uint64, err error) {
	err = r.withOpen(ctx, after, partialIsEnough, func(open *openShard) error {
		if v, err = open.collection.Snapshot(ctx); err != nil {
			return err
		}
		applied, err := v.Snapshot().Applied()
		if entry = applied.Sequence; err == nil && entry < after { // the file was fetched again: try once more
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

// Batch identifies a change. Sent says that it was sent before, with an unknown outcome, when the log ended with the
// entry After: the change is then looked for in the log first (I11: a change is made once).
type Batch struct {
	ID    string `json:"id"`
	Sent  bool   `json:"sent,omitempty"`
	After uint64 `json:"after,omitempty"`
}

// change makes a change by apply, and returns the entry that has it.
func (r *Replica) change(ctx context.Context, b Batch,
	apply func(*store.Collection, *store.Batch) error) (uint64, error) {
	batch := &store.Batch{ID: b.ID, Sent: b.Sent, After: b.After}
	err := r.withOpen(ctx, 0, mustBeReady, func(open *openShard) error { return apply(open.collection, batch) })
	return batch.Entry, err
}

// Update stores documents of the shard, as [collection.Collection] does. entry has the change. After
// [storage.ErrOutcomeUnknown] the change may have been made: send the same batch again.
func (r *Replica) Update(ctx context.Context, b Batch, docs []collection.DocumentInput,
	o collection.UpdateOptions) (receipt collection.Receipt, entry uint64, err error) {
	entry, err = r.change(ctx, b, func(c *store.Collection, b *store.Batch) (err error) {
		receipt, err = c.UpdateBatch(ctx, b, docs, o)
		return err
	})
	return receipt, entry, err
}

// Delete deletes documents of the shard, see [Replica.Update].
func (r *Replica) Delete(ctx context.Context, b Batch,
	s collection.Selection) (n index.Affected, entry uint64, err error) {
	entry, err = r.change(ctx, b, func(c *store.Collection, b *store.Batch) (err error) {
		n, err = c.DeleteBatch(ctx, b, s)
		return err
	})
	return n, entry, err
}

// UpdateMetadata sets fields of documents of the shard, see [Replica.Update].
func (r *Replica) UpdateMetadata(ctx context.Context, b Batch, s collection.Selection,
	set map[string]json.RawMessage) (n index.Affected, entry uint64, err error) {
	entry, err = r.change(ctx, b, func(c *store.Collection, b *store.Batch) (err error) {
		n, err = c.UpdateMetadataBatch(ctx, b, s, set)
		return err
	})
	return n, entry, err
}

// Stats describes the shard.
func (r *Replica) Stats(ctx context.Context) (st collection.Stats, err error) {
	err = r.withOpen(ctx, 0, partialIsEnough, func(open *openShard) (err error) {
		st, err = open.collection.Stats(ctx)
		return err
	})
	return st, err
}

// NoteEntry tells the replica that the log has an entry.
func (r *Replica) NoteEntry(entry uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteKnown(entry)
}

// noteKnown notes that the log is said to have an entry, and wakes the replica if it lacks it. It does so even if a
// higher entry is known already, since that one may be wrong. r.mu is held.
func (r *Replica) noteKnown(entry uint64) {
	if entry > r.entry {
		r.known = max(r.known, entry)
		r.wakeUp()
	}
}

// Seal ends the log of a shard of a collection that was removed (I10: a removal is a fence): it puts an entry after
// which no other may follow, even if the last entry is damaged.
func Seal(ctx context.Context, c *Config, collection string, shard int) error {
	l := journal.New(c.Store, collection, shard, journal.Options{Grace: c.Grace})
	body, err := store.Seal()
	if err != nil {
		return err
	}
	for {
		last, err := l.Last(ctx)
		damaged := errors.Is(err, journal.ErrFork) && last.Number > 0 // its number is enough to put the next entry
		if err != nil && !damaged || store.Sealed(last.Body) {
			return err
		}
		if _, err = l.Append(ctx, last.Position, nil, body); !errors.Is(err, journal.ErrTaken) {
			return err
		}
	}
}

// ReportDamage reports damage in the file, which is then fetched again.
func (r *Replica) ReportDamage(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ready != nil {
		r.ready.ReportFailure(err)
	}
}

// Poll reads the log without a hint.
func (r *Replica) Poll(ctx context.Context) error {
	return r.withOpen(ctx, 0, mustBeReady, func(open *openShard) error { return open.followLog(ctx) })
}

// SetMaxDocuments sets the limit of documents of the shard, nil for no limit.
func (r *Replica) SetMaxDocuments(maxDocuments *uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.maxDocuments = maxDocuments; r.ready != nil {
		r.ready.collection.LimitDocuments(maxDocuments)
	}
}

// SetWriter sets whether this replica gathers the changes of the shard. The writer puts a checkpoint when enough
// entries have come since the last one ([Config.CheckpointBytes]).
func (r *Replica) SetWriter(isWriter bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writer = isWriter
	r.wakeUp()
}

// Verify reads and checks every byte of the file. A damaged file is removed and fetched again.
func (r *Replica) Verify(ctx context.Context) error {
	return r.withOpen(ctx, 0, mustBeReady, func(open *openShard) error {
		err := open.collection.Verify(ctx)
		if errors.Is(err, storage.ErrCorrupt) {
			open.ReportFailure(err)
		}
		return err
	})
}

// Close ends the replica, and keeps the cache. Changes that wait are finished until ctx ends.
func (r *Replica) Close(ctx context.Context) error {
	r.changeState(func() { r.stopped = true })
	r.stop()
	defer context.AfterFunc(ctx, r.abort)()
	<-r.ended
	r.abort()
	return r.closeErr
}

// Remove ends the replica, and removes its cache.
func (r *Replica) Remove(ctx context.Context) error {
	err := r.Close(ctx)
	return errors.Join(err, removeAll(r.dir))
}

// collectionName returns the name of the collection, for messages: its id without the random part.
func (r *Replica) collectionName() string {
	if i := strings.LastIndexByte(r.shard.Collection, '.'); i > 0 {
		return r.shard.Collection[:i]
	}
	return r.shard.Collection
}
