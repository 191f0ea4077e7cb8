// Package index builds, opens and changes index files.
//
//	[Build], [Import]      make an index
//	[Open] → [Index]       opens one
//	[Index.Snapshot]       a consistent state to search, however the index changes meanwhile
//	[Index.Add], [Index.Delete], [Index.UpdatePayload], [Index.Compact]
//	[Index.Get], [Index.Has]   a document by its id
//	[Snapshot.Verify], [Snapshot.Info], [Snapshot.Export]
//
// Every change is atomic and durable when its method returns: a program that dies leaves the index
// as it was before, and so does a change that fails. There is one exception: when the disk fails at
// the very last step, the error is [storage.ErrOutcomeUnknown]. Snapshots then still show the
// index without the change, further changes are refused, and opening the index again shows whether
// the change was made.
//
// All snapshots taken between two changes share one state: a read transaction of the file, and the
// structures in memory that were built from it. A change builds the next state before it returns,
// without a lock that searches take. The next state shares the unchanged parts of the one before,
// so its cost is proportional to the change and not to the index. A state is freed with its last
// snapshot.
//
// Outside, documents are named by string ids; inside, by ordinals, which are assigned in order of
// insertion and never renumbered.
package index

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/internal/errkind"
	"github.com/plaid-ir/plaid/kernels"
	_ "github.com/plaid-ir/plaid/kernels/cpu" // the backends of the processor
	"github.com/plaid-ir/plaid/storage"
)

// Errors of this package. It also returns those of storage (ErrNotIndex, ErrCorrupt, ErrLocked,
// ErrVersion, ErrExists …) and of vectors. Test with errors.Is.
var (
	// ErrNoDocuments reports a build without documents.
	ErrNoDocuments = errors.New("no documents")
	// ErrNoTokens reports a build from documents that are all empty.
	ErrNoTokens = errkind.New(errkind.BadRequest, "every document is empty: there is nothing to train on")
	// ErrDimension reports vectors whose dimension differs from that of the index.
	ErrDimension = errkind.New(errkind.BadDimension, "dimension differs from that of the index")
	// ErrDuplicateID reports an id that the index has already, or that the input has twice.
	ErrDuplicateID = errors.New("id is taken")
	// ErrPassages reports passages of a document that are not consecutive, or not in the order of
	// their numbers.
	ErrPassages = errors.New("passages of a document are out of order")
	// ErrNotFound reports that no live document has the id.
	ErrNotFound = errkind.New(errkind.DocumentNotFound, "no such document")
	// ErrTooMany reports more documents than there are ordinals.
	ErrTooMany = errors.New("too many documents")
	// ErrOption reports an option out of range.
	ErrOption = errkind.New(errkind.BadRequest, "bad option")
)

// Options configures Open. The zero value, or nil, opens for reading.
type Options struct {
	// Write allows changes: Add, Delete, UpdatePayload, Compact and others. It acquires the
	// exclusive lock of the file.
	Write bool
	// NoSync lets the operating system decide when changes reach the disk; see [storage.Options].
	NoSync bool
	// LockTimeout is how long to wait for another process. 0 means not at all.
	LockTimeout time.Duration
	// Backend names the kernels. "" means the fastest that the processor supports.
	Backend string
	// Follow, if not 0, is the interval at which the index checks whether its file was replaced, as
	// by a backup that is renamed to its path. The new file is then opened, and later snapshots
	// show it; see [Index.Refresh]. Only for reading.
	Follow time.Duration
	// Source, if not nil, fetches the file at path while it is read. Until everything is fetched the
	// index answers searches and lookups, and operations that read the whole file wait. Only for
	// reading.
	Source storage.Source
	// Logger, if not nil, logs repairs, rewrites and replaced files.
	Logger *slog.Logger
}

// Index is an open index. It is safe for concurrent use: any number of snapshots may be
// read while the index changes, and changes of several goroutines wait for each other.
type Index struct {
	file    *storage.File
	backend kernels.Backend
	log     *slog.Logger

	writeLock ctxMutex // serializes changes
	trainLock ctxMutex // serializes retrainings, which run concurrently with changes
	// changedPayloads are the documents whose payloads have changed since a retraining began, or
	// since it last copied such changes. It is nil while no retraining runs. Guarded by writeLock.
	changedPayloads *roaring.Bitmap

	follower *follower // nil unless the index follows its path

	payloadLog payloadLog // the documents of the last payload changes

	stateMu sync.Mutex // held while a snapshotState is built

	mu      sync.Mutex     // held for moments only
	current *snapshotState // nil until the first snapshot, and if none could be built
	closed  bool
}

// Open opens the index file at path. Its slow parts end with ctx: waiting for the lock, and reading
// the pages and document tables of a large index.
//
// Errors: [fs.ErrNotExist], [storage.ErrNotIndex], [storage.ErrUnfinished],
// [storage.ErrVersion], [storage.ErrCorrupt], [storage.ErrLocked], [ErrOption],
// [kernels.ErrUnavailable], and those of ctx and the system.
func Open(ctx context.Context, path string, o *Options) (*Index, error) {
	if o == nil {
		o = &Options{}
	}
	if o.Source != nil && (o.Write || o.Follow != 0) {
		return nil, fmt.Errorf("%w: a file that is being fetched is only read", ErrOption)
	}
	if o.Follow < 0 || o.Follow > 0 && o.Write {
		return nil, fmt.Errorf("%w: Follow is a positive interval, and excludes Write", ErrOption)
	}
	backend, err := kernels.Select(o.Backend)
	if err != nil {
		return nil, err
	}
	f, err := storage.Open(ctx, path, storage.Options{
		Write:       o.Write,
		NoSync:      o.NoSync,
		LockTimeout: o.LockTimeout,
		Source:      o.Source,
		Logger:      o.Logger,
	})
	if err != nil {
		return nil, err
	}
	ix := newIndex(f, backend, o.Logger)
	if err := ix.ensureCurrent(ctx); err != nil { // an unreadable file is an error here, not at the first search
		return nil, errors.Join(err, ix.Close())
	}
	if o.Follow > 0 {
		ix.follower = ix.startFollower(o.Follow)
	}
	return ix, nil
}

// valueOrZero returns *opts, or the zero value if opts is nil.
func valueOrZero[T any](opts *T) (o T) {
	if opts != nil {
		o = *opts
	}
	return o
}

func newIndex(f *storage.File, backend kernels.Backend, log *slog.Logger) *Index {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Index{
		file:      f,
		backend:   backend,
		log:       log,
		writeLock: make(ctxMutex, 1),
		trainLock: make(ctxMutex, 1),
	}
}

// ctxMutex is a mutex whose lock gives up when a context ends. Sending to the channel locks it
// without a context.
type ctxMutex chan struct{}

// lock waits for the mutex, or returns the error of ctx. A free mutex is locked even if ctx has
// ended.
func (m ctxMutex) lock(ctx context.Context) error {
	select {
	case m <- struct{}{}:
		return nil
	default:
	}
	select {
	case m <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m ctxMutex) unlock() { <-m }

// Path returns the path of the index file.
func (ix *Index) Path() string { return ix.file.Path() }

// Writable reports whether the index was opened for writing ([Options.Write]).
func (ix *Index) Writable() bool { return ix.file.Writes() }

// Backend returns the name of the kernels in use.
func (ix *Index) Backend() string { return ix.backend.Name() }

// Close closes the index. Snapshots that are still open stay valid, and keep the file open, until
// they are closed too. It may be called more than once.
func (ix *Index) Close() error {
	ix.follower.stopAndWait()
	ix.writeLock <- struct{}{}
	defer ix.writeLock.unlock()
	ix.mu.Lock()
	ix.closed = true
	ix.mu.Unlock()
	return errors.Join(ix.setCurrent(nil), ix.file.Close())
}
