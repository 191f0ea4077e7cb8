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

// lockTime bounds the wait for views of a file that is opened again.
const lockTime = 10 * time.Second

var (
	// errStale: the cache is to be fetched again.
	errStale        = errors.New("the cache does not follow the log")
	errNoCheckpoint = errors.New("no checkpoint of it is there: build the collection again (plaid cluster build)")
)

func (r *Replica) path(name string) string { return filepath.Join(r.dir, name) }

// open opens the cache, or fetches the shard first.
func (r *Replica) open(ctx context.Context) (open *opened, err error) {
	if err := os.MkdirAll(r.dir, 0o777); err != nil {
		return nil, err
	}
	if err := r.sweep(); err != nil {
		return nil, err
	}
	// The newest checkpoint, or the one before it if the newest was of no use.
	checkpoints, err := r.journal.Checkpoints(ctx, r.s.Generation.Number)
	if err != nil {
		return nil, err
	}
	newest := journal.Checkpoint{}
	if n := len(checkpoints); n > 0 {
		newest = checkpoints[n-1-r.lost%min(n, 2)]
	}
	// The file.
	_, err = os.Stat(r.path(indexFile))
	cold := func() {}
	defer func() {
		if open == nil {
			cold()
		}
	}()
	if r.fresh = errors.Is(err, fs.ErrNotExist); r.fresh {
		if cold, err = r.fetch(ctx, newest); err != nil {
			return nil, err
		}
	}
	// The index and its collection.
	if err := r.mark(ctx); err != nil {
		return nil, err
	}
	ix, err := index.Open(ctx, r.path(indexFile), &index.Options{
		Write: true, NoSync: true, LockTimeout: lockTime, Backend: r.c.Index.Backend, Logger: r.log,
	})
	if err != nil {
		if is(err, storage.ErrUnfinished, storage.ErrNotIndex, storage.ErrVersion) {
			err = fmt.Errorf("%w: %w", errStale, err)
		}
		return nil, err
	}
	if open, err = r.over(ctx, ix, newest); err != nil {
		return nil, errors.Join(err, ix.Close())
	}
	open.cold = cold
	return open, nil
}

// over makes the collection of an open index. newest is the checkpoint that was fetched, or would be.
func (r *Replica) over(ctx context.Context, ix *index.Index, newest journal.Checkpoint) (*opened, error) {
	sealed, err := r.check(ctx, ix, newest)
	if err != nil {
		return nil, err
	}
	if _, err := r.count(ctx, newest.Number); err != nil {
		return nil, err
	}
	open := &opened{r: r, ix: ix, broken: make(chan error, 1)}
	o := r.c.Index
	o.Logger = r.log
	committed := o.Committed
	o.Committed = func(c *store.Collection) {
		open.note()
		if committed != nil {
			committed(c)
		}
	}
	r.mu.Lock()
	cfg := r.s.Config
	cfg.MaxDocuments = r.most
	r.mu.Unlock()
	given := store.Opened{Index: ix, Write: true, Journal: open, Sealed: sealed, Config: cfg, Base: r.s.Generation.Base}
	if open.set, err = store.Over(ctx, map[string]store.Opened{r.name(): given}, &o); err == nil {
		open.col, err = open.set.Get(r.name())
	}
	open.note()
	return open, err
}

// check compares an open index with its generation and with the log. sealed reports whether its last entry
// is a seal.
func (r *Replica) check(ctx context.Context, ix *index.Index, newest journal.Checkpoint) (sealed bool, err error) {
	snap, err := ix.Snapshot()
	if err != nil {
		return false, err
	}
	has, err := snap.Applied()
	dim, undecided := snap.Dim(), collection.Undecided(snap)
	if err = errors.Join(err, snap.Close()); err != nil {
		return false, err
	}
	switch g := &r.s.Generation; {
	case r.fresh && (has.Sequence != newest.Number || has.Mark != newest.Hash):
		err = fmt.Errorf("object %s: %w: it has entry %d", newest.Name, objects.ErrDamaged, has.Sequence)
	case g.Dim != dim && !(g.Dim == 0 && undecided):
		err = fmt.Errorf("%w: it has the dimension %d, and generation %d has %d", errStale, dim, g.Number, g.Dim)
	case has.Sequence == 0:
	default:
		e, readErr := r.journal.At(ctx, has.Sequence)
		switch {
		case readErr == nil && e.Hash == has.Mark:
			sealed = store.Sealed(e.Body)
		case readErr == nil && !r.fresh:
			err = fmt.Errorf("%w: entry %d is another one", errStale, has.Sequence)
		case !errors.Is(readErr, objects.ErrNotFound): // else it was cut, and the next read finds out
			err = readErr
		}
	}
	return sealed, err
}

// fetch makes the index file: of a checkpoint, or one without documents. The file may have been read
// meanwhile, and is until cold is called.
func (r *Replica) fetch(ctx context.Context, c journal.Checkpoint) (cold func(), err error) {
	made, cold := r.path("fetched"), func() {}
	if c.Name != "" {
		cold, err = r.fetchCheckpoint(ctx, c, made)
	} else if r.s.Generation.Begun {
		err = r.empty(ctx, &r.s.Generation, made)
	} else {
		err = fmt.Errorf("generation %d: %w", r.s.Generation.Number, errNoCheckpoint)
	}
	r.mu.Lock()
	read := r.cold != nil
	r.mu.Unlock()
	if err == nil && read { // it is locked by its readers
		err = copyFile(made, made+"-copy")
		made += "-copy"
	}
	if err == nil {
		err = os.Rename(made, r.path(indexFile))
	}
	if err != nil {
		cold()
	}
	return cold, err
}

var beforeFill, beforeShown = func() {}, func(context.Context) {} // tests wait there

// fetchCheckpoint fetches a checkpoint. If it has all entries of the log, the file is read meanwhile.
func (r *Replica) fetchCheckpoint(ctx context.Context, c journal.Checkpoint, path string) (cold func(), err error) {
	f, err := os.Create(path)
	if err != nil {
		return func() {}, err
	}
	if err := f.Truncate(c.Size); err != nil {
		return func() {}, errors.Join(err, f.Close())
	}
	reading, stop := context.WithCancel(ctx)
	source := objects.NewFetcher(r.c.Store, c.Name, c.Size, f)
	shown, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		err := r.show(reading, c, path, readSource{source, reading}, func() { close(shown) })
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

// show lets a file be read that is being fetched, until ctx ends and its views are closed. shown is
// called when it can be.
func (r *Replica) show(ctx context.Context, c journal.Checkpoint, path string, source storage.Source,
	shown func()) error {
	end, err := r.journal.End(ctx, c.Position)
	if err != nil || end != c.Number || files.AsOnWindows { // an open file cannot be renamed there
		return err
	}
	ix, err := index.Open(ctx, path, &index.Options{Source: source, Backend: r.c.Index.Backend, Logger: r.log})
	if err != nil {
		return err
	}
	o := r.c.Index
	o.Logger, o.Committed = r.log, nil
	set, err := store.Over(ctx, map[string]store.Opened{r.name(): {Index: ix, Config: r.s.Config}}, &o)
	if err != nil {
		return errors.Join(err, ix.Close())
	}
	col, err := set.Get(r.name())
	if err == nil {
		beforeShown(ctx)
		r.set(func() { r.cold = &opened{r: r, ix: ix, set: set, col: col, last: c.Position} })
		shown()
		<-ctx.Done()
		r.set(func() { r.cold = nil })
		col.WaitForSnapshots(r.ctx)
	}
	return errors.Join(err, set.Close(context.WithoutCancel(ctx)), ix.Close())
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

// is reports whether an error wraps one of some.
func is(err error, some ...error) bool {
	return slices.ContainsFunc(some, func(e error) bool { return errors.Is(err, e) })
}

// empty makes an index file without documents, which has the codec of a generation.
func (r *Replica) empty(ctx context.Context, g *Generation, path string) error {
	if g.Codec.Name != "" {
		return objects.FetchRef(ctx, r.c.Store, g.Codec, path)
	}
	if g.Stage != collection.StageFlat {
		return fmt.Errorf("%w: generation %d has the stage %q and no codec", collection.ErrConfig, g.Number, g.Stage)
	}
	none, err := vectors.FromDocuments(0, []vectors.Document{{ID: "none"}})
	if err != nil {
		return err
	}
	o, err := r.c.Index.Growth.First(none, g.Dim, r.s.Config)
	if err != nil {
		return err
	}
	o.Model, o.Backend, o.Logger = g.Model, r.c.Index.Backend, r.log
	_, err = index.Train(ctx, path, none, o)
	return err
}

// sweep removes temporary files, and a cache that may be damaged.
func (r *Replica) sweep() error {
	left, err := os.ReadFile(r.path(openFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case bootID() == "" || string(left) != bootID():
		r.log.Info("the cache of a shard is thrown away: it was open when the machine stopped")
		return r.clear()
	}
	return r.removeIn(func(name string) bool { return name != openFile && !strings.HasPrefix(name, indexFile) })
}

// clear throws the cache away.
func (r *Replica) clear() error {
	return r.removeIn(func(name string) bool { return name != openFile }) // the next index replaces that
}

func (r *Replica) removeIn(which func(name string) bool) error {
	entries, err := os.ReadDir(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if which(e.Name()) {
			err = errors.Join(err, removeAll(r.path(e.Name())))
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

// mark notes that the index is open.
func (r *Replica) mark(ctx context.Context) error {
	return files.WriteAtomic(ctx, r.path(openFile), func(w io.Writer) error {
		_, err := io.WriteString(w, cmp.Or(bootID(), "unknown"))
		return err
	})
}

// closedCleanly notes that the index is on the disk.
func (r *Replica) closedCleanly() error {
	if err := os.Remove(r.path(openFile)); err != nil {
		return err
	}
	return files.SyncFolder(r.dir)
}
