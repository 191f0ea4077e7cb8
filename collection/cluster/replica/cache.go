package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/journal"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/objects"
	"github.com/plaid-ir/plaid/vectors"
)

// Files in the folder of a replica. All others are temporary, except derived data, whose names begin with that of the
// index.
const (
	indexFile = "index.plaid"
	// openFile exists while the index is open, and contains the boot of the machine. The index is written without
	// waiting for the disk, so after a crash of the machine it is complete only if it was closed.
	openFile = "open"
)

// lockTimeout limits the wait for snapshots of a file that is opened again.
const lockTimeout = 10 * time.Second

var (
	// errStale means that the cache has to be fetched again.
	errStale        = errors.New("the cache does not follow the log")
	errNoCheckpoint = errors.New("no checkpoint of it is there: build the collection again (plaid cluster build)")
)

// filePath returns the path of a file in the folder of the replica.
func (r *Replica) filePath(name string) string { return filepath.Join(r.dir, name) }

// open opens the file in the cache. If the cache is empty, it fetches a checkpoint first.
func (r *Replica) open(ctx context.Context) (open *openShard, err error) {
	if err := os.MkdirAll(r.dir, 0o777); err != nil {
		return nil, err
	}
	if err := r.removeTemporary(); err != nil {
		return nil, err
	}
	// Find the newest checkpoint. Use the one before it every second time that the cache was of no use.
	checkpoints, err := r.journal.Checkpoints(ctx, r.shard.Generation.Number)
	if err != nil {
		return nil, err
	}
	newest := journal.Checkpoint{}
	if n := len(checkpoints); n > 0 {
		newest = checkpoints[n-1-r.attempts%min(n, 2)]
	}
	// Fetch the file if it is not there.
	_, err = os.Stat(r.filePath(indexFile))
	endReads := func() {}
	defer func() {
		if open == nil {
			endReads()
		}
	}()
	if r.fetched = errors.Is(err, fs.ErrNotExist); r.fetched {
		if endReads, err = r.fetchFile(ctx, newest); err != nil {
			return nil, err
		}
	}
	// Open the index and its collection.
	if err := r.markOpen(ctx); err != nil {
		return nil, err
	}
	ix, err := index.Open(ctx, r.filePath(indexFile), &index.Options{
		Write: true, NoSync: true, LockTimeout: lockTimeout, Backend: r.cfg.Index.Backend, Logger: r.log,
	})
	if err != nil {
		if wrapsAny(err, storage.ErrUnfinished, storage.ErrNotIndex, storage.ErrVersion) {
			err = fmt.Errorf("%w: %w", errStale, err)
		}
		return nil, err
	}
	if open, err = r.openCollection(ctx, ix, newest); err != nil {
		return nil, errors.Join(err, ix.Close())
	}
	open.endReads = endReads
	return open, nil
}

// openCollection opens the collection of an open index. newest is the checkpoint that was fetched, or would be.
func (r *Replica) openCollection(ctx context.Context, ix *index.Index, newest journal.Checkpoint) (*openShard, error) {
	sealed, err := r.compareWithLog(ctx, ix, newest)
	if err != nil {
		return nil, err
	}
	if _, err := r.countBehind(ctx, newest.Number); err != nil {
		return nil, err
	}
	open := &openShard{r: r, ix: ix, broken: make(chan error, 1)}
	o := r.cfg.Index
	o.Logger = r.log
	committed := o.Committed
	o.Committed = func(c *store.Collection) {
		open.noteApplied()
		if committed != nil {
			committed(c)
		}
	}
	r.mu.Lock()
	cfg := r.shard.Config
	cfg.MaxDocuments = r.maxDocuments
	r.mu.Unlock()
	opened := store.OpenIndex{
		Index:   ix,
		Write:   true,
		Journal: open,
		Sealed:  sealed,
		Config:  cfg,
		Base:    r.shard.Generation.Base,
	}
	indexes := map[string]store.OpenIndex{r.collectionName(): opened}
	if open.store, err = store.FromIndexes(ctx, indexes, &o); err == nil {
		open.collection, err = open.store.Get(r.collectionName())
	}
	open.noteApplied()
	return open, err
}

// compareWithLog compares an open index with its generation and with the log. sealed reports whether the last entry
// that it has is a seal.
func (r *Replica) compareWithLog(ctx context.Context, ix *index.Index,
	newest journal.Checkpoint) (sealed bool, err error) {
	snap, err := ix.Snapshot()
	if err != nil {
		return false, err
	}
	applied, err := snap.Applied()
	dim, undecided := snap.Dim(), collection.Undecided(snap)
	if err = errors.Join(err, snap.Close()); err != nil {
		return false, err
	}
	switch g := &r.shard.Generation; {
	case r.fetched && (applied.Sequence != newest.Number || applied.Mark != newest.Hash):
		err = fmt.Errorf("object %s: %w: it has entry %d", newest.Name, objects.ErrDamaged, applied.Sequence)
	case g.Dim != dim && !(g.Dim == 0 && undecided):
		err = fmt.Errorf("%w: it has the dimension %d, and generation %d has %d", errStale, dim, g.Number, g.Dim)
	case applied.Sequence == 0: // no entry to compare
	default:
		e, readErr := r.journal.ReadEntry(ctx, applied.Sequence)
		switch {
		case readErr == nil && e.Hash == applied.Mark:
			sealed = store.Sealed(e.Body)
		case readErr == nil && !r.fetched:
			err = fmt.Errorf("%w: entry %d is another one", errStale, applied.Sequence)
		case !errors.Is(readErr, objects.ErrNotFound): // otherwise it was cut, which the next read of the log finds out
			err = readErr
		}
	}
	return sealed, err
}

// fetchFile creates the index file: from a checkpoint, or without documents. The file may already be read while it is
// being fetched; those reads end when endReads is called.
func (r *Replica) fetchFile(ctx context.Context, c journal.Checkpoint) (endReads func(), err error) {
	path, endReads := r.filePath("fetched"), func() {}
	if c.Name != "" {
		endReads, err = r.fetchCheckpoint(ctx, c, path)
	} else if r.shard.Generation.Begun {
		err = r.createEmpty(ctx, &r.shard.Generation, path)
	} else {
		err = fmt.Errorf("generation %d: %w", r.shard.Generation.Number, errNoCheckpoint)
	}
	r.mu.Lock()
	read := r.partial != nil
	r.mu.Unlock()
	if err == nil && read { // the readers have locked the file: use a copy
		err = copyFile(path, path+"-copy")
		path += "-copy"
	}
	if err == nil {
		err = os.Rename(path, r.filePath(indexFile))
	}
	if err != nil {
		endReads()
	}
	return endReads, err
}

// beforeFill is called before a checkpoint is fetched as a whole, and beforeReads before it can be read. Tests replace
// them to wait there.
var beforeFill, beforeReads = func() {}, func(context.Context) {}

// fetchCheckpoint fetches a checkpoint to a file. If it has all entries of the log, it is read while it is fetched.
func (r *Replica) fetchCheckpoint(ctx context.Context, c journal.Checkpoint, path string) (endReads func(), err error) {
	f, err := os.Create(path)
	if err != nil {
		return func() {}, err
	}
	if err := f.Truncate(c.Size); err != nil {
		return func() {}, errors.Join(err, f.Close())
	}
	// Let the file be read in the background.
	reading, stop := context.WithCancel(ctx)
	source := objects.NewFetcher(r.cfg.Store, c.Name, c.Size, f)
	shown, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		err := r.readWhileFetching(reading, c, path, readSource{source, reading}, func() { close(shown) })
		if err != nil && reading.Err() == nil {
			r.log.Warn("a file cannot be read while it is fetched", "error", err)
		}
	}()
	// Fetch all of it.
	beforeFill()
	err = source.Fill(ctx)
	select {
	case <-shown:
	default: // nothing has read it yet: it is too late now
		stop()
		<-ended
	}
	return func() {
		stop()
		<-ended
		_ = f.Close()
		_ = os.Remove(path) // fails if it has become the index file
	}, err
}

// readSource is a source whose reads also end with a context.
type readSource struct {
	*objects.Fetcher
	ctx context.Context
}

// Ensure implements [storage.Source].
func (s readSource) Ensure(ctx context.Context, off, n int64) error {
	if s.Present(off, n) {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	err := s.Fetcher.Ensure(ctx, off, n)
	if err != nil && s.ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", storage.ErrClosed, err)
	}
	return err
}

// readWhileFetching lets a file be read that is being fetched, until ctx ends and its snapshots are closed. It calls
// shown when the file can be read.
func (r *Replica) readWhileFetching(ctx context.Context, c journal.Checkpoint, path string, source storage.Source,
	shown func()) error {
	// Do so only if the checkpoint has all entries. On Windows, a file that is open cannot be renamed later.
	end, err := r.journal.End(ctx, c.Position)
	if err != nil || end != c.Number || files.EmulateWindows {
		return err
	}
	ix, err := index.Open(ctx, path, &index.Options{Source: source, Backend: r.cfg.Index.Backend, Logger: r.log})
	if err != nil {
		return err
	}
	o := r.cfg.Index
	o.Logger, o.Committed = r.log, nil
	indexes := map[string]store.OpenIndex{r.collectionName(): {Index: ix, Config: r.shard.Config}}
	st, err := store.FromIndexes(ctx, indexes, &o)
	if err != nil {
		return errors.Join(err, ix.Close())
	}
	col, err := st.Get(r.collectionName())
	if err == nil {
		beforeReads(ctx)
		partial := &openShard{r: r, ix: ix, store: st, collection: col, lastPosition: c.Position}
		r.changeState(func() { r.partial = partial })
		shown()
		<-ctx.Done()
		r.changeState(func() { r.partial = nil })
		col.WaitForSnapshots(r.ctx)
	}
	return errors.Join(err, st.Close(context.WithoutCancel(ctx)), ix.Close())
}

// copyFile copies a file. The system may share the blocks instead of reading them.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// wrapsAny reports whether an error wraps one of the targets.
func wrapsAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(e error) bool { return errors.Is(err, e) })
}

// createEmpty creates an index file without documents and with the codec of a generation.
func (r *Replica) createEmpty(ctx context.Context, g *Generation, path string) error {
	if g.Codec.Name != "" {
		return objects.FetchRef(ctx, r.cfg.Store, g.Codec, path)
	}
	if g.Stage != collection.StageFlat {
		return fmt.Errorf("%w: generation %d has the stage %q and no codec", collection.ErrConfig, g.Number, g.Stage)
	}
	// Training needs at least one document, which is not stored.
	dummy, err := vectors.FromDocuments(0, []vectors.Document{{ID: "none"}})
	if err != nil {
		return err
	}
	o, err := r.cfg.Index.Growth.FirstBuild(dummy, g.Dim, r.shard.Config)
	if err != nil {
		return err
	}
	o.Model, o.Backend, o.Logger = g.Model, r.cfg.Index.Backend, r.log
	_, err = index.Train(ctx, path, dummy, o)
	return err
}

// removeTemporary removes temporary files, and also the cache if the machine has stopped while it was open.
func (r *Replica) removeTemporary() error {
	bootWhenOpened, err := os.ReadFile(r.filePath(openFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case bootID() == "" || string(bootWhenOpened) != bootID():
		r.log.Info("the cache of a shard is removed: it was open when the machine stopped")
		return r.clearCache()
	}
	return r.removeFiles(func(name string) bool { return name != openFile && !strings.HasPrefix(name, indexFile) })
}

// clearCache removes the cache.
func (r *Replica) clearCache() error {
	return r.removeFiles(func(name string) bool { return name != openFile }) // the next index replaces openFile
}

// removeFiles removes the files in the folder for whose names isSelected returns true.
func (r *Replica) removeFiles(isSelected func(name string) bool) error {
	entries, err := os.ReadDir(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if isSelected(e.Name()) {
			err = errors.Join(err, removeAll(r.filePath(e.Name())))
		}
	}
	return err
}

// removeAll removes a file or folder. On Windows, a mapped file is removed when its mapping ends.
func removeAll(path string) error {
	err := os.RemoveAll(path)
	if err != nil {
		err = errors.Join(files.Remove(path), os.RemoveAll(path))
	}
	return err
}

// markOpen notes in the cache that the index is open.
func (r *Replica) markOpen(ctx context.Context) error {
	return files.WriteAtomic(ctx, r.filePath(openFile), func(w io.Writer) error {
		_, err := io.WriteString(w, cmp.Or(bootID(), "unknown"))
		return err
	})
}

// markClosed notes in the cache that the index is complete on the disk.
func (r *Replica) markClosed() error {
	if err := os.Remove(r.filePath(openFile)); err != nil {
		return err
	}
	return files.SyncFolder(r.dir)
}
