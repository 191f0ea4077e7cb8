package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/storage/internal/boltfile"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// Options for Open. The zero value opens an existing index for reading.
type Options struct {
	// Write opens the file for changes and takes its exclusive lock.
	Write bool
	// Create makes the file if there is none; only with Write.
	Create bool
	// Resume leaves in the file what an interrupted build needs to go on, if that left
	// such ([File.Building]); only with Write. To go on with it, or to Discard it, is
	// for the caller then.
	Resume bool
	// NoSync leaves it to the system when changes reach the disk; Close waits for that. If the
	// machine stops before, the file is worth nothing, and may even look sound: it is for files
	// that are thrown away then. If only the process dies nothing is lost.
	NoSync bool
	// LockTimeout is how long to wait for the lock; 0: not at all.
	LockTimeout time.Duration
	// Source fetches the file, which has its full length and is zero where it is not there yet: what
	// opening it, and reading it, need is asked for; only for reading. nil: all is there.
	Source Source
	// Logger hears of what is swept and rewritten; nil: nobody does.
	Logger *slog.Logger
}

// File is an open index file. It is safe for concurrent use.
type File struct {
	path    string
	write   bool
	created bool
	noSync  bool
	log     *slog.Logger

	after uint64 // generations of a file that is made for another's place are above it

	writer        sync.Mutex // one writer at a time; guards what follows
	broken, cause error      // what changes are refused with, and why

	mu     sync.Mutex
	handle *handle // nil when closed
}

// handle is one opened bbolt file. A rewritten index gets a new one; the old
// one lives until its last view is closed.
type handle struct {
	db       *bolt.DB
	file     *os.File    // bbolt's own, closed by it
	opened   fs.FileInfo // of file when it was opened
	pageSize int
	reserved int64         // bytes of address space
	mapping  *sync.RWMutex // bbolt's lock of a mapping that is made anew; see snapshot.go
	checks   checks
	ids      checkedIDs
	lineage  lineage
	partial  *partial // nil: all of the file is there

	// Guarded by File.mu.
	refs        int
	gone        string  // the name under which the file is to be removed when it is closed; "": it is not
	ending      *ending // the transaction that is being committed now
	unknown     *ending // one of which nobody knows whether the disk has it
	readMapping *secondMapping
}

// Open opens the index file at path. Waiting for the lock, and checking the pages of
// a large file, end with ctx.
//
// Errors: that of ctx, [fs.ErrNotExist], [ErrNotIndex], [ErrUnfinished] (reading, and without
// Create), [ErrVersion], [ErrCorrupt], [ErrLocked].
func Open(ctx context.Context, path string, o Options) (*File, error) {
	f := &File{path: path, write: o.Write, noSync: o.NoSync && o.Write, log: o.Logger}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	if o.Write {
		if err := writable(); err != nil {
			return nil, err
		}
	}
	deadline := time.Now().Add(o.LockTimeout)
	var err error
	for err = errRaced; errors.Is(err, errRaced); {
		err = f.open(ctx, o, deadline)
	}
	if err != nil {
		return nil, err
	}
	if real, err := filepath.EvalSymlinks(f.path); err == nil && o.Write {
		f.path = real // a rewrite replaces the file, not a link to it
	}
	if err := f.prepare(o.Create, o.Resume); err != nil {
		if f.created {
			err = errors.Join(err, f.Remove())
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// open sets f.handle. The error is errRaced if the file has changed meanwhile.
func (f *File) open(ctx context.Context, o Options, deadline time.Time) error {
	create := o.Write && o.Create
	info, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) && files.AsOnWindows {
		if done, err := putBack(ctx, f.path, deadline); err != nil {
			return err
		} else if done {
			return errRaced
		}
	}
	if errors.Is(err, fs.ErrNotExist) && create {
		switch named, lerr := os.Lstat(f.path); {
		case lerr != nil:
			return f.makeFile(nil)
		case named.Mode().Type() == fs.ModeSymlink:
			return fmt.Errorf("%s: a link that leads to no file: %w", f.path, fs.ErrNotExist)
		}
		return errRaced // made by another since the first look
	}
	switch {
	case err != nil:
		return boltfile.WithPath(f.path, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: %w: it is a %s", f.path, ErrNotIndex, boltfile.KindOf(info))
	case info.Size() == 0 && !create:
		return fmt.Errorf("%s: %w: the file is empty", f.path, ErrNotIndex)
	}
	if first, err := isFirstAt(f.path, info.Size()); err != nil {
		return boltfile.WithPath(f.path, err)
	} else if first = first && o.Source == nil; create && (first || info.Size() == 0) {
		return f.replaceEmpty(ctx, deadline)
	} else if first {
		return fmt.Errorf("%s: %w", f.path, ErrUnfinished)
	}
	f.handle, err = openBolt(ctx, f.path, &o, deadline)
	if errors.Is(err, fs.ErrNotExist) && create {
		return errRaced // who held the lock has taken the file away
	}
	if err == nil {
		f.handle.db.NoSync = f.noSync
	}
	return err
}

// openBolt opens and locks the file, checks it, and gives it to bbolt: on a
// damaged page that panics and leaves its mapping behind.
func openBolt(ctx context.Context, path string, o *Options, deadline time.Time) (*handle, error) {
	for smaller := 0; ; smaller++ {
		file, err := openLocked(ctx, path, o.Write, deadline)
		if err != nil {
			return nil, err
		}
		part, err := newPartial(ctx, o.Source, file)
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		if err := checkMeta(file); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
		}
		if part != nil {
			err = part.begin(ctx)
		} else if err = boltfile.CheckNewest(ctx, file); err != nil {
			err = treeFault(ctx, path, err)
		}
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		h, err := mapFile(file, o.Write, 0, smaller)
		if err == nil && part != nil {
			info := h.db.Info()
			part.mapped, part.pageSize, h.partial = info.Data, int64(info.PageSize), part
		}
		if !errors.Is(err, errSmaller) {
			return h, err
		}
	}
}

// openLocked opens and locks the file, and makes sure that the file that it
// locked is the one that the path names: a rewrite replaces the file, and a
// process that waited for the old one's lock would otherwise go on with that.
func openLocked(ctx context.Context, path string, write bool, deadline time.Time) (*os.File, error) {
	flag := os.O_RDONLY
	if write {
		flag = os.O_RDWR
	}
	for {
		file, err := files.OpenFile(path, flag, 0)
		if err != nil {
			return nil, boltfile.WithPath(path, err)
		}
		if err := boltfile.Lock(ctx, file, write, deadline); err != nil {
			if errors.Is(err, ErrLocked) {
				err = lockedError(file, write)
			}
			return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
		}
		locked, err := file.Stat()
		if err == nil {
			var named fs.FileInfo
			if named, err = os.Stat(path); err == nil && os.SameFile(locked, named) {
				return file, nil
			}
		}
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, boltfile.WithPath(path, err)
		}
	}
}

// prepare checks format and versions, and sweeps.
func (f *File) prepare(create, resume bool) (err error) {
	defer Guard(f.path, &err)()
	err = f.handle.db.View(func(tx *bolt.Tx) error {
		if err := checkFormat(tx, f.path); err != nil || f.write {
			return err
		}
		_, err := currentGeneration(tx, f.path)
		return err
	})
	switch {
	case create && errors.Is(err, ErrUnfinished): // bbolt's frame and no more
		err = f.handle.db.Update(writeFormat)
	case err == nil && f.write:
		f.sweepReplaced()
		if err = f.sweepRewrite(besideSuffix); err == nil {
			var building bool
			if building, err = f.has(layout.KeyBuilding); err == nil && !(resume && building) {
				err = f.sweep()
			}
		}
	}
	if err == nil && f.write {
		// A rename whose folder was never synced must not be undone by a power
		// failure once changes to the file have been acknowledged.
		if err = syncDir(f.path); errors.Is(err, fs.ErrPermission) {
			err = nil
		} else if err != nil {
			err = fmt.Errorf("opening %s: its folder: %w", f.path, err)
		}
	}
	return err
}

// Path is the file's name, after any links.
func (f *File) Path() string { return f.path }

// Writes tells whether the file was opened to be changed.
func (f *File) Writes() bool { return f.write }

// Created reports whether Open made the file, where there was none.
func (f *File) Created() bool { return f.created }

// Close closes the file as soon as its last view is closed. Reads that wait for an [Options.Source] end with
// [ErrClosed]. It may be called more than once.
func (f *File) Close() error {
	f.writer.Lock()
	defer f.writer.Unlock()
	f.mu.Lock()
	h := f.handle
	f.handle = nil
	f.mu.Unlock()
	if h == nil {
		return nil
	}
	h.partial.close()
	var err error
	if f.noSync && f.broken == nil {
		err = f.explainWrite(h.db.Sync())
	}
	return errors.Join(err, f.release(h))
}

func (f *File) acquire() (*handle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.handle == nil {
		return nil, fmt.Errorf("%s: %w", f.path, ErrClosed)
	}
	f.handle.refs++
	return f.handle, nil
}

func (f *File) release(h *handle) error {
	f.mu.Lock()
	h.refs--
	last, unknown := h.refs == 0, h.unknown
	f.mu.Unlock()
	if !last {
		return nil
	}
	var err error
	if unknown != nil {
		err = f.endSnapshot(h, unknown.before)
	}
	return errors.Join(err, h.close())
}

// syncDir makes the name of a file durable, where the system can do that.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return files.AfterSync(filepath.Dir(path))
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return files.AfterSync(filepath.Dir(path))
}

// Refresh looks whether the file that was opened for reading has been replaced
// and, if so, opens the one that has its path now and shows accept a view of
// it. If accept returns nil, the view is its own and later views are of the new
// file too; the old one is closed with its last view. After an error everything
// stays as it was.
//
// Errors: those of [Open] and [File.Snapshot], and what accept returns.
func (f *File) Refresh(ctx context.Context, accept func(*Snapshot) error) (changed bool, err error) {
	if f.write {
		return false, fmt.Errorf("%s: it is open for writing, and stays the file that it is", f.path)
	}
	f.writer.Lock() // one at a time
	defer f.writer.Unlock()
	old, err := f.acquire()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.release(old)) }()
	// A program that writes into the file instead of replacing it heeds no lock;
	// what it leaves may be sound all the same.
	if info, err := os.Stat(f.path); err != nil {
		return false, boltfile.WithPath(f.path, err)
	} else if was := old.opened; os.SameFile(info, was) && info.Size() == was.Size() && info.ModTime().Equal(was.ModTime()) {
		return false, nil
	}
	fresh, err := Open(ctx, f.path, Options{Logger: f.log})
	if err != nil {
		return false, err
	}
	v, err := fresh.SnapshotAfter(ctx, nil)
	if err != nil {
		return false, errors.Join(err, fresh.Close())
	}
	h := fresh.handle
	v.file = f // which counts the references of h from here on
	if err := accept(v); err != nil {
		return false, errors.Join(err, v.Close(), f.release(h))
	}
	f.mu.Lock()
	previous := f.handle // not nil: Close waits for f.writer
	f.handle = h
	f.mu.Unlock()
	return true, f.release(previous)
}
