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

// Files of the folder of a replica. Others are temporary, except derived data, whose names begin with
// that of the index.
const (
	indexFile = "index.plaid"
	// openFile is there while the index is open, and names the boot of the machine: the index is
	// on the disk only when it was closed.
	openFile = "open"
)

// lockTimeout bounds the wait for views of a file that is opened again.
const lockTimeout = 10 * time.Second

var (
	// errStale: the cache is to be fetched again.
	errStale        = errors.New("the cache does not follow the log")
	errNoCheckpoint = errors.New("no checkpoint of it is there: build the collection again (plaid cluster build)")
)

func (r *Replica) filePath(name string) string { return filepath.Join(r.dir, name) }

// open opens the cache, or fetches the shard first.
func (r *Replica) open(ctx context.Context) (open *openShard, err error) {
	if err := os.MkdirAll(r.dir, 0o777); err != nil {
		return nil, err
	}
	if err := r.removeTemporary(); err != nil {
		return nil, err
	}
	// The newest checkpoint, or the one before it if the newest was of no use.
	checkpoints, err := r.journal.Checkpoints(ctx, r.shard.Generation.Number)
	if err != nil {
		return nil, err
	}
	newest := journal.Checkpoint{}
	if n := len(checkpoints); n > 0 {
		newest = checkpoints[n-1-r.cleared%min(n, 2)]
	}
	// The file.
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
	// The index and its collection.
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

// openCollection makes the collection of an open index. newest is the checkpoint that was fetched, or would be.
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
	opened := store.Opened{Index: ix, Write: true, Journal: open, Sealed: sealed, Config: cfg, Base: r.shard.Generation.Base}
	if open.store, err = store.Over(ctx, map[string]store.Opened{r.collectionName(): opened}, &o); err == nil {
		open.collection, err = open.store.Get(r.collectionName())
	}
	open.noteApplied()
	return open, err
}

// compareWithLog compares an open index with its generation and with the log. sealed reports whether its last entry
// is a seal.
func (r *Replica) compareWithLog(ctx context.Context, ix *index.Index, newest journal.Checkpoint) (sealed bool, err error) {
	snap, err := ix.Snapshot()
	if err != nil {
		return false, err
	}
	has, err := snap.Applied()
	dim, undecided := snap.Dim(), collection.Undecided(snap)
	if err = errors.Join(err, snap.Close()); err != nil {
		return false, err
	}
	switch g := &r.shard.Generation; {
	case r.fetched && (has.Sequence != newest.Number || has.Mark != newest.Hash):
		err = fmt.Errorf("object %s: %w: it has entry %d", newest.Name, objects.ErrDamaged, has.Sequence)
	case g.Dim != dim && !(g.Dim == 0 && undecided):
		err = fmt.Errorf("%w: it has the dimension %d, and generation %d has %d", errStale, dim, g.Number, g.Dim)
	case has.Sequence == 0:
	default:
		e, readErr := r.journal.At(ctx, has.Sequence)
		switch {
		case readErr == nil && e.Hash == has.Mark:
			sealed = store.Sealed(e.Body)
		case readErr == nil && !r.fetched:
			err = fmt.Errorf("%w: entry %d is another one", errStale, has.Sequence)
		case !errors.Is(readErr, objects.ErrNotFound): // else it was cut, and the next read finds out
			err = readErr
		}
	}
	return sealed, err
}

// fetchFile makes the index file: of a checkpoint, or one without documents. The file may have been read
// meanwhile, and is until cold is called.
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
	if err == nil && read { // it is locked by its readers
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

var beforeFill, beforeReads = func() {}, func(context.Context) {} // tests wait there

// fetchCheckpoint fetches a checkpoint. If it has all entries of the log, the file is read meanwhile.
func (r *Replica) fetchCheckpoint(ctx context.Context, c journal.Checkpoint, path string) (endReads func(), err error) {
	f, err := os.Create(path)
	if err != nil {
		return func() {}, err
	}
	if err := f.Truncate(c.Size); err != nil {
		return func() {}, errors.Join(err, f.Close())
	}
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
	beforeFill()
	err = source.Fill(ctx)
	select {
	case <-shown:
	default: // too late
		stop()
		<-ended
	}
	return func() {
		stop()
		<-ended
		_ = f.Close()
		_ = os.Remove(path) // unless it has become the index file
	}, err
}

// readSource is a source of reads, which end when ctx does.
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

// readWhileFetching lets a file be read that is being fetched, until ctx ends and its views are closed. shown is
// called when it can be.
func (r *Replica) readWhileFetching(ctx context.Context, c journal.Checkpoint, path string, source storage.Source,
	shown func()) error {
	end, err := r.journal.End(ctx, c.Position)
	if err != nil || end != c.Number || files.AsOnWindows { // an open file cannot be renamed there
		return err
	}
	ix, err := index.Open(ctx, path, &index.Options{Source: source, Backend: r.cfg.Index.Backend, Logger: r.log})
	if err != nil {
		return err
	}
	o := r.cfg.Index
	o.Logger, o.Committed = r.log, nil
	st, err := store.Over(ctx, map[string]store.Opened{r.collectionName(): {Index: ix, Config: r.shard.Config}}, &o)
	if err != nil {
		return errors.Join(err, ix.Close())
	}
	col, err := st.Get(r.collectionName())
	if err == nil {
		beforeReads(ctx)
		r.changeState(func() { r.partial = &openShard{r: r, ix: ix, store: st, collection: col, lastPosition: c.Position} })
		shown()
		<-ctx.Done()
		r.changeState(func() { r.partial = nil })
		col.WaitForSnapshots(r.ctx)
	}
	return errors.Join(err, st.Close(context.WithoutCancel(ctx)), ix.Close())
}

// copyFile copies a file; the system may do so without reading it.
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

// wrapsAny reports whether an error wraps one of some.
func wrapsAny(err error, some ...error) bool {
	return slices.ContainsFunc(some, func(e error) bool { return errors.Is(err, e) })
}

// createEmpty makes an index file without documents, which has the codec of a generation.
func (r *Replica) createEmpty(ctx context.Context, g *Generation, path string) error {
	if g.Codec.Name != "" {
		return objects.FetchRef(ctx, r.cfg.Store, g.Codec, path)
	}
	if g.Stage != collection.StageFlat {
		return fmt.Errorf("%w: generation %d has the stage %q and no codec", collection.ErrConfig, g.Number, g.Stage)
	}
	dummy, err := vectors.FromDocuments(0, []vectors.Document{{ID: "none"}})
	if err != nil {
		return err
	}
	o, err := r.cfg.Index.Growth.First(dummy, g.Dim, r.shard.Config)
	if err != nil {
		return err
	}
	o.Model, o.Backend, o.Logger = g.Model, r.cfg.Index.Backend, r.log
	_, err = index.Train(ctx, path, dummy, o)
	return err
}

// removeTemporary removes temporary files, and a cache that may be damaged.
func (r *Replica) removeTemporary() error {
	bootWhenOpened, err := os.ReadFile(r.filePath(openFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case bootID() == "" || string(bootWhenOpened) != bootID():
		r.log.Info("the cache of a shard is thrown away: it was open when the machine stopped")
		return r.clearCache()
	}
	return r.removeFiles(func(name string) bool { return name != openFile && !strings.HasPrefix(name, indexFile) })
}

// clearCache throws the cache away.
func (r *Replica) clearCache() error {
	return r.removeFiles(func(name string) bool { return name != openFile }) // the next index replaces that
}

func (r *Replica) removeFiles(which func(name string) bool) error {
	entries, err := os.ReadDir(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if which(e.Name()) {
			err = errors.Join(err, removeAll(r.filePath(e.Name())))
		}
	}
	return err
}

// removeAll removes a file or folder. On Windows a file that is mapped stays until it is not.
func removeAll(path string) error {
	err := os.RemoveAll(path)
	if err != nil {
		err = errors.Join(files.Remove(path), os.RemoveAll(path))
	}
	return err
}

// markOpen notes that the index is open.
func (r *Replica) markOpen(ctx context.Context) error {
	return files.WriteAtomic(ctx, r.filePath(openFile), func(w io.Writer) error {
		_, err := io.WriteString(w, cmp.Or(bootID(), "unknown"))
		return err
	})
}

// markClosed notes that the index is on the disk.
func (r *Replica) markClosed() error {
	if err := os.Remove(r.filePath(openFile)); err != nil {
		return err
	}
	return files.SyncFolder(r.dir)
}
