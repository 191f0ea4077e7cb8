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

// Files of the folder of a replica. What else is there is temporary, but for derived data, whose
// names begin with that of the index.
const (
	indexFile = "index.plaid"
	// openFile is there while the index is open, and names the boot of the machine: what is written
	// is on its disk only when the index was closed.
	openFile = "open"
)

// lockTime is how long to wait for views of a file that is opened again.
const lockTime = 10 * time.Second

var (
	// errStale: the cache is of no use.
	errStale = errors.New("the cache does not follow the log")
	// errNoCheckpoint: the shard is not there.
	errNoCheckpoint = errors.New("no checkpoint of it is there: build the collection again (plaid cluster build)")
)

func (r *Replica) path(name string) string { return filepath.Join(r.dir, name) }

// open opens the cache, or fetches the shard first.
func (r *Replica) open(ctx context.Context) (at *opened, err error) {
	if err := os.MkdirAll(r.dir, 0o777); err != nil {
		return nil, err
	}
	if err := r.sweep(); err != nil {
		return nil, err
	}
	checkpoints, err := r.journal.Checkpoints(ctx, r.s.Generation.Number)
	if err != nil {
		return nil, err
	}
	newest := journal.Checkpoint{}
	if n := len(checkpoints); n > 0 { // or the one before, if that was of no use
		newest = checkpoints[n-1-r.lost%min(n, 2)]
	}
	_, err = os.Stat(r.path(indexFile))
	cold := func() {}
	defer func() {
		if at == nil {
			cold()
		}
	}()
	if r.fresh = errors.Is(err, fs.ErrNotExist); r.fresh {
		if cold, err = r.fetch(ctx, newest); err != nil {
			return nil, err
		}
	}
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
	if at, err = r.over(ctx, ix, newest); err != nil {
		return nil, errors.Join(err, ix.Close())
	}
	at.cold = cold
	return at, nil
}

// over makes the collection of an open index, if that is what it should be.
func (r *Replica) over(ctx context.Context, ix *index.Index, newest journal.Checkpoint) (*opened, error) {
	snap, err := ix.Snapshot()
	if err != nil {
		return nil, err
	}
	has, err := snap.Applied()
	dim, undecided := snap.Dim(), collection.Undecided(snap)
	if err = errors.Join(err, snap.Close()); err != nil {
		return nil, err
	}
	sealed := false
	switch g := &r.s.Generation; {
	case r.fresh && (has.Sequence != newest.Number || has.Mark != newest.Hash):
		return nil, fmt.Errorf("object %s: %w: it has entry %d", newest.Name, objects.ErrDamaged, has.Sequence)
	case g.Dim != dim && !(g.Dim == 0 && undecided):
		return nil, fmt.Errorf("%w: it has the dimension %d, and generation %d has %d", errStale, dim, g.Number, g.Dim)
	case has.Sequence > 0:
		switch e, err := r.journal.At(ctx, has.Sequence); {
		case err == nil && e.Hash == has.Mark:
			sealed = store.Sealed(e.Body)
		case err == nil && !r.fresh:
			return nil, fmt.Errorf("%w: entry %d is another one", errStale, has.Sequence)
		case err != nil && !errors.Is(err, objects.ErrNotFound): // else it was cut, which reading on says
			return nil, err
		}
	}
	at := &opened{r: r, ix: ix, broken: make(chan error, 1)}
	o := r.c.Index
	o.Logger = r.log
	committed := o.Committed
	o.Committed = func(c *store.Collection) {
		at.note()
		if committed != nil {
			committed(c)
		}
	}
	r.mu.Lock()
	cfg := r.s.Config
	cfg.MaxDocuments = r.most
	r.behind = int64(has.Sequence-min(newest.Number, has.Sequence)) * entryCost
	r.mu.Unlock()
	given := store.Opened{Index: ix, Write: true, Journal: at, Sealed: sealed, Config: cfg, Base: r.s.Generation.Base}
	if at.set, err = store.Over(ctx, map[string]store.Opened{r.name(): given}, &o); err == nil {
		at.col, err = at.set.Get(r.name())
	}
	at.note()
	return at, err
}

// fetch makes the index file: of a checkpoint, or one without documents. What was fetched may
// be read until cold is called.
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
		if err = copyFile(made, made+"-copy"); err == nil {
			err = os.Rename(made+"-copy", r.path(indexFile))
		}
	} else if err == nil {
		err = os.Rename(made, r.path(indexFile))
	}
	if err != nil {
		cold()
	}
	return cold, err
}

var beforeFill, beforeShown = func() {}, func(context.Context) {} // tests wait there

// fetchCheckpoint fetches a checkpoint. If the log does not go on after it, searches and look-ups are
// answered from what is there meanwhile.
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
		err := r.show(reading, c, path, source, func() { close(shown) })
		if err != nil && reading.Err() == nil {
			r.log.Warn("a file cannot be read while it is fetched", "error", err)
		}
	}()
	beforeFill()
	err = source.Fill(ctx)
	select {
	case <-shown:
	default:
		stop() // it came too late
		<-ended
	}
	return func() {
		stop()
		<-ended
		_ = f.Close()
		_ = os.Remove(path) // unless it has become the index file
	}, err
}

// show lets a file be read that is being fetched, until ctx ends and its views are closed. shown is
// called when it can be.
func (r *Replica) show(ctx context.Context, c journal.Checkpoint, path string, source storage.Source,
	shown func()) error {
	end, err := r.journal.End(ctx, c.Position)
	if err != nil || end != c.Number || files.AsOnWindows { // where the file could not be renamed
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
		col.Leave(r.ctx)
	}
	return errors.Join(err, set.Close(context.WithoutCancel(ctx)), ix.Close())
}

// copyFile copies a file, which the system may do without reading it.
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

// is reports whether an error is one of some.
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

// sweep removes what was interrupted, and a cache that may be damaged.
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
	return r.removeIn(func(name string) bool { return name != openFile }) // which goes with the next index
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
