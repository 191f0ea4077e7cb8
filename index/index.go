// Package index builds, opens and changes index files.
//
//	[Build], [Import]      make an index
//	[Open] → [Index]       opens one
//	[Index.Snapshot]       a consistent picture to search, however the index changes meanwhile
//	[Index.Add], [Index.Delete], [Index.UpdatePayload], [Index.Compact]
//	[Index.Get], [Index.Has]   a document by its id
//	[Snapshot.Verify], [Snapshot.Info], [Snapshot.Export]
//
// Every change is atomic and durable when its method returns: a program that
// dies leaves the index as it was before, and so does a change that fails, with
// one exception: when the disk fails at its very last step the error is
// [storage.ErrOutcomeUnknown]. Snapshots go on showing the index without the
// change, further changes are refused, and opening the index again finds it with
// the change or without.
//
// A snapshot is a picture, shared by all that are taken between two changes: a read
// transaction of the file and what was made of it in memory. A change makes the next
// picture before it returns, without a lock that searches take. What it has left alone is
// shared with the picture before, so that a picture costs what the change costs and not
// what the index would. It goes with its last snapshot.
//
// Documents are named by string ids from outside and by ordinals, given out in order
// of insertion and never renumbered, inside.
package index

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/kernels"
	_ "github.com/plaid-ir/plaid/kernels/cpu" // the backends of the processor
	"github.com/plaid-ir/plaid/storage"
)

// Errors of this package, beside those of storage (ErrNotIndex, ErrCorrupt,
// ErrLocked, ErrVersion, ErrExists …) and vectors; test with errors.Is.
var (
	// ErrNoDocuments: a build without documents.
	ErrNoDocuments = errors.New("no documents")
	// ErrNoTokens: a build from documents that are all empty.
	ErrNoTokens = errors.New("every document is empty: there is nothing to train on")
	// ErrDimension: vectors of another dimension than the index.
	ErrDimension = errors.New("dimension differs from that of the index")
	// ErrDuplicateID: an id that is in the index, or twice in the input.
	ErrDuplicateID = errors.New("id is taken")
	// ErrPassages: passages of a document that are not consecutive, or not in the order of their
	// numbers.
	ErrPassages = errors.New("passages of a document are out of order")
	// ErrNotFound: no live document has the id.
	ErrNotFound = errors.New("no such document")
	// ErrTooMany: more documents than ordinals.
	ErrTooMany = errors.New("too many documents")
	// ErrOption: an option out of range.
	ErrOption = errors.New("bad option")
)

// Options for Open. The zero value, or nil, opens for reading.
type Options struct {
	// Write allows Add, Delete, UpdatePayload, Compact and their like, and takes the file's exclusive lock.
	Write bool
	// NoSync leaves it to the system when changes reach the disk, see [storage.Options].
	NoSync bool
	// LockTimeout is how long to wait for another process; 0: not at all.
	LockTimeout time.Duration
	// Backend names the kernels; "": the best there is.
	Backend string
	// Follow, where not 0, is how often to look whether the file has been replaced,
	// as by a backup that is renamed to its path. The new one is then opened, and
	// later snapshots are of it; see [Index.Refresh]. Only for reading.
	Follow time.Duration
	// Source fetches the file at path while it is read; nil: all of it is there. Until then the
	// index answers searches and look-ups, and what reads everything waits. Only for reading.
	Source storage.Source
	// Logger hears of repairs, rewrites and replaced files; nil: nobody does.
	Logger *slog.Logger
}

// Index is an open index. It is safe for concurrent use: any number of snapshots may be
// read while the index changes, and changes of several goroutines wait for each other.
type Index struct {
	file    *storage.File
	backend kernels.Backend
	log     *slog.Logger

	writeLock ctxMutex // of changes
	trainLock ctxMutex // beside them
	// newPayloads are the documents that have got another payload since a training began
	// or last asked; nil: none runs. Guarded by write.
	changedPayloads *roaring.Bitmap

	follower *follower // nil: it does not follow its path

	payloadLog payloadLog // which documents have got another payload

	stateMu sync.Mutex // held while a picture is made

	mu      sync.Mutex     // held for moments only
	current *snapshotState // nil until asked for, and where none could be made
	closed  bool
}

// Open opens the index file at path. What takes long of it ends with ctx: waiting for
// the lock, and reading the pages and document tables of a large index.
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
		return nil, fmt.Errorf("%w: an index is followed for reading, every so often", ErrOption)
	}
	be, err := kernels.Select(o.Backend)
	if err != nil {
		return nil, err
	}
	f, err := storage.Open(ctx, path, storage.Options{
		Write: o.Write, NoSync: o.NoSync, LockTimeout: o.LockTimeout, Source: o.Source, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	ix := newIndex(f, be, o.Logger)
	if err := ix.ensureCurrent(ctx); err != nil { // what cannot be read is an error here, not at the first search
		return nil, errors.Join(err, ix.Close())
	}
	if o.Follow > 0 {
		ix.follower = ix.startFollower(o.Follow)
	}
	return ix, nil
}

// valueOrZero are the options of a caller, who may leave them out.
func valueOrZero[T any](opts *T) (o T) {
	if opts != nil {
		o = *opts
	}
	return o
}

func newIndex(f *storage.File, be kernels.Backend, log *slog.Logger) *Index {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Index{file: f, backend: be, log: log, writeLock: make(ctxMutex, 1), trainLock: make(ctxMutex, 1)}
}

// ctxMutex is a lock that can be waited for in vain.
type ctxMutex chan struct{}

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

// Path is the index file.
func (ix *Index) Path() string { return ix.file.Path() }

// Writes tells whether the index was opened to be changed ([Options.Write]).
func (ix *Index) Writes() bool { return ix.file.Writes() }

// Backend is the name of the kernels in use.
func (ix *Index) Backend() string { return ix.backend.Name() }

// Close closes the index. Snapshots that are still open stay valid, and keep
// the file open, until they are closed too. It may be called more than once.
func (ix *Index) Close() error {
	ix.follower.stopAndWait()
	ix.writeLock <- struct{}{}
	defer ix.writeLock.unlock()
	ix.mu.Lock()
	ix.closed = true
	ix.mu.Unlock()
	return errors.Join(ix.setCurrent(nil), ix.file.Close())
}
