package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/files"
)

// Backup writes the present state of the collection to out: an index file, which is checked before its first byte is
// written. Searches and changes go on.
//
// Errors: those of [Collection.Snapshot] and of [index.Index.Backup].
func (c *Collection) Backup(ctx context.Context, out io.Writer) (*index.BackupReport, error) {
	var report *index.BackupReport
	err := c.runInBackground(ctx, func(ctx context.Context) error {
		o, done, err := c.acquireIndex(ctx)
		if err != nil {
			return err
		}
		defer done()
		report, err = o.ix.Backup(ctx, out, nil)
		return err
	})
	return report, err
}

// Verify reads and checks every byte of the collection. The error wraps [storage.ErrCorrupt].
func (c *Collection) Verify(ctx context.Context) error {
	return c.runInBackground(ctx, func(ctx context.Context) error {
		v, err := c.Snapshot(ctx)
		if err != nil {
			return err
		}
		return errors.Join(v.snap.Verify(ctx), v.Close())
	})
}

// Restore fills a collection from an index file, such as [Collection.Backup] writes; see [collection.Restorer]. The
// file is checked before it is put in place.
//
// Errors: [collection.ErrExists], those of reading in and of [index.Open], and those of
// [Collection.Update].
func (s *Store) Restore(ctx context.Context, name string, in io.Reader) error {
	return s.fillCollection(ctx, name, func(_ *Collection, path string) error {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err != nil {
			return err
		}
		if _, err := io.Copy(f, files.UntilDone(ctx, in)); err != nil {
			return errors.Join(err, f.Close())
		}
		return files.CloseSynced(f)
	})
}

// fillCollection fills a collection without documents from the index file that fill writes. The collection is declared
// if it does not exist. If filling fails it is dropped again, unless it has got documents meanwhile.
func (s *Store) fillCollection(ctx context.Context, name string, fill func(c *Collection, path string) error) error {
	c, err := s.Get(name)
	declared := errors.Is(err, collection.ErrUnknown)
	if declared {
		c, err = s.Create(ctx, name, collection.Config{})
	}
	if err != nil {
		return err
	}
	if err = c.receive(ctx, func(path string) error { return fill(c, path) }); err != nil && declared {
		if uerr := s.removeEmpty(context.WithoutCancel(ctx), c); uerr != nil && !errors.Is(uerr, collection.ErrExists) {
			c.log.Warn("a collection that was declared to be filled was not removed", "error", uerr)
		}
	}
	return err
}

// Import fills a collection from the index folder of another engine. The ids of documents are those of
// [interop.Index.IDs], otherwise their rows.
//
// Errors: those of [Store.Restore], and those of [index.Import].
func (s *Store) Import(ctx context.Context, name, dir string) (r *index.ImportReport, err error) {
	err = s.fillCollection(ctx, name, func(c *Collection, path string) (err error) {
		r, err = index.Import(ctx, dir, path, &index.ImportOptions{
			Threads: s.opts.Threads, Memory: s.opts.Memory, Backend: s.opts.Backend, Logger: c.log,
		})
		return err
	})
	return r, err
}

// receivedPrefix begins the names of temporary folders whose file will become the index file.
const receivedPrefix = ".received-"

// receive lets fill write an index file in a temporary folder, checks it, and has the writer put it in place.
func (c *Collection) receive(ctx context.Context, fill func(path string) error) (err error) {
	// checkEmpty returns an error if the collection has documents.
	checkEmpty := func() error {
		_, done, err := c.acquireIndex(ctx)
		switch {
		case err == nil:
			done()
			return fmt.Errorf("%w: %q has documents", collection.ErrExists, c.name)
		case errors.Is(err, collection.ErrEmpty):
			return nil
		}
		return err
	}
	if err := checkEmpty(); err != nil {
		return err
	}
	// Write and check the file.
	defer func() {
		// The temporary files disappear with a collection that is dropped.
		if why := context.Cause(c.lifetime); why != nil && errors.Is(err, fs.ErrNotExist) {
			err = why
		}
		c.store.noteDisk(err, false)
	}()
	dir, err := os.MkdirTemp(c.dir, receivedPrefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, indexFile)
	if err := fill(path); err != nil {
		return err
	}
	ix, err := index.Open(ctx, path, &index.Options{Backend: c.store.opts.Backend, Logger: c.log})
	if err == nil {
		err = errors.Join(ix.Verify(ctx), ix.Close())
	}
	if err != nil {
		return err
	}
	// Put it in place between two changes.
	r := &request{kind: acting}
	r.action = func(ctx context.Context) error {
		if err := checkEmpty(); err != nil {
			return err
		}
		if err := os.Rename(path, c.indexPath()); err != nil { // it replaces the file of an interrupted build
			return err
		}
		if err := files.SyncFolder(c.dir); err != nil {
			return err
		}
		o, err := c.openIndex(ctx)
		if err != nil {
			return errors.Join(err, os.Remove(c.indexPath()))
		}
		c.mu.Lock()
		c.opened = o
		c.mu.Unlock()
		return nil
	}
	return c.submit(ctx, r)
}

// removeLeftovers removes the temporary folders of builds and uploads that were interrupted.
func (c *Collection) removeLeftovers() {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return // opening the index reports the error
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), receivedPrefix) {
			if err := os.RemoveAll(filepath.Join(c.dir, e.Name())); err != nil {
				c.log.Warn("the temporary folder of an upload was not removed", "path", e.Name(), "error", err)
			}
		}
	}
}
