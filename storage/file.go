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
	// Write opens the file for changes and acquires its exclusive lock.
	Write bool
	// Create creates the file if it does not exist; only with Write.
	Create bool
	// Resume keeps the staged content of an interrupted build, if the build can be resumed
	// ([File.Building]); only with Write. The caller then resumes it, or calls Discard.
	Resume bool
	// NoSync lets the system decide when changes reach the disk; Close waits for that. If the
	// machine stops before, the file is useless and may even look sound: use NoSync for files that
	// are thrown away then. If only the process dies, nothing is lost.
	NoSync bool
	// LockTimeout is how long to wait for the lock. 0 means not to wait.
	LockTimeout time.Duration
	// Source, if not nil, fetches the content of the file while it is read; only for reading. The
	// file has its full length, and zeros where it was not fetched yet.
	Source Source
	// Logger, if not nil, receives messages about leftovers that are removed and files that are
	// rewritten.
	Logger *slog.Logger
}

// File is an open index file. It is safe for concurrent use.
type File struct {
	path    string
	write   bool
	created bool
	noSync  bool
	log     *slog.Logger

	minGeneration uint64 // new generations get larger numbers; of a file that will replace another

	writer        sync.Mutex // held by the only writer; guards broken and cause
	broken, cause error      // if not nil, the error with which changes are refused, and its cause

	mu     sync.Mutex
	handle *handle // nil after Close
}

// handle is one opened bbolt file. A rewritten index gets a new one; the old one stays open until
// its last snapshot is closed.
type handle struct {
	db         *bolt.DB
	file       *os.File    // bbolt's own, closed by it
	opened     fs.FileInfo // of file when it was opened
	pageSize   int
	reserved   int64         // bytes of address space
	remapLock  *sync.RWMutex // of boltMappingLock, nil unless the writer remaps the file
	passed     passedRegistry
	checkedIDs checkedIDs
	lineage    lineage
	partial    *partialFile // nil if the file is complete

	// Guarded by File.mu.
	refs          int            // the File itself, and its users
	removeAtClose string         // path of the file to remove at close. "" means none
	pending       *pendingCommit // the commit in progress, or nil
	unknown       *pendingCommit // the commit whose outcome is unknown, or nil
	readMapping   *readOnlyMapping
}

// Open opens the index file at path. ctx ends the wait for the lock, and the check of the pages of
// a large file.
//
// Errors: that of ctx, [fs.ErrNotExist], [ErrNotIndex], [ErrUnfinished] (reading, and without
// Create), [ErrVersion], [ErrCorrupt], [ErrLocked].
func Open(ctx context.Context, path string, o Options) (*File, error) {
	f := &File{path: path, write: o.Write, noSync: o.NoSync && o.Write, log: o.Logger}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	if o.Write {
		if err := checkCanWrite(); err != nil {
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

// open opens or creates the file, and sets f.handle. Its error is errRaced if another process has
// created, replaced or removed the file meanwhile: the caller tries again.
func (f *File) open(ctx context.Context, o Options, deadline time.Time) error {
	create := o.Write && o.Create
	// Finish an interrupted replacement.
	info, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) && files.EmulateWindows {
		if done, err := undoInterruptedReplace(ctx, f.path, deadline); err != nil {
			return err
		} else if done {
			return errRaced
		}
	}
	// Create a file that does not exist.
	if errors.Is(err, fs.ErrNotExist) && create {
		switch named, lerr := os.Lstat(f.path); {
		case lerr != nil:
			return f.createFile(nil)
		case named.Mode().Type() == fs.ModeSymlink:
			return fmt.Errorf("%s: a link that leads to no file: %w", f.path, fs.ErrNotExist)
		}
		return errRaced // created by another process since os.Stat
	}
	// Refuse anything that cannot be an index.
	switch {
	case err != nil:
		return boltfile.WithPath(f.path, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: %w: it is a %s", f.path, ErrNotIndex, boltfile.KindOf(info))
	case info.Size() == 0 && !create:
		return fmt.Errorf("%s: %w: the file is empty", f.path, ErrNotIndex)
	}
	// Replace a file without content, as after a crash of its creator. A file that is being fetched
	// may look like one.
	if first, err := isFirstWriteAt(f.path, info.Size()); err != nil {
		return boltfile.WithPath(f.path, err)
	} else if first = first && o.Source == nil; create && (first || info.Size() == 0) {
		return f.replaceEmpty(ctx, deadline)
	} else if first {
		return fmt.Errorf("%s: %w", f.path, ErrUnfinished)
	}
	// Open a file with content.
	f.handle, err = openBolt(ctx, f.path, &o, deadline)
	if errors.Is(err, fs.ErrNotExist) && create {
		return errRaced // the process that held the lock has removed the file
	}
	if err == nil {
		f.handle.db.NoSync = f.noSync
	}
	return err
}

// openBolt opens and locks the file, checks it, and then lets bbolt open it. bbolt would panic on a
// damaged page and leak its mapping. If the address space is short, openBolt tries again with a
// smaller mapping.
func openBolt(ctx context.Context, path string, o *Options, deadline time.Time) (*handle, error) {
	for failedAttempts := 0; ; failedAttempts++ {
		file, err := openLocked(ctx, path, o.Write, deadline)
		if err != nil {
			return nil, err
		}
		partial, err := newPartial(ctx, o.Source, file) // nil if the file is complete
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		if err := checkMeta(file); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
		}
		if partial != nil {
			err = partial.fetchForOpen(ctx)
		} else if err = boltfile.CheckNewest(ctx, file); err != nil {
			err = treeError(ctx, path, err)
		}
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		h, err := openMapped(file, o.Write, 0, failedAttempts)
		if err == nil && partial != nil {
			info := h.db.Info()
			partial.mappedAt, partial.pageSize, h.partial = info.Data, int64(info.PageSize), partial
		}
		if !errors.Is(err, errMapTooLarge) {
			return h, err
		}
	}
}

// openLocked opens and locks the file, and checks that the path still names the file that it locked:
// a rewrite may have replaced the file while this process waited for the lock of the old one.
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

// prepare checks the format of an opened file. For writing it also finishes a new file, removes the
// leftovers of interrupted writers, and syncs the folder.
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
	case create && errors.Is(err, ErrUnfinished): // an empty file of bbolt
		err = f.handle.db.Update(writeFormat)
	case err == nil && f.write:
		f.removeReplaced()
		if err = f.removeOldRewrite(concurrentRewriteSuffix); err == nil {
			var building bool
			if building, err = f.hasFrameRecord(layout.KeyBuilding); err == nil && !(resume && building) {
				err = f.removeLeftovers()
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

// Path returns the path of the file, with links resolved.
func (f *File) Path() string { return f.path }

// Writes reports whether the file was opened for writing.
func (f *File) Writes() bool { return f.write }

// Created reports whether Open created the file.
func (f *File) Created() bool { return f.created }

// Close closes the file as soon as its last snapshot is closed. Reads that wait for an
// [Options.Source] end with [ErrClosed]. It may be called more than once.
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
		err = f.toWriteError(h.db.Sync())
	}
	return errors.Join(err, f.release(h))
}

// acquire returns the handle with an additional reference, or [ErrClosed].
func (f *File) acquire() (*handle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.handle == nil {
		return nil, fmt.Errorf("%s: %w", f.path, ErrClosed)
	}
	f.handle.refs++
	return f.handle, nil
}

// release removes a reference, and closes the handle after the last.
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

// syncDir makes the name of a file durable by syncing its folder, on systems that support that.
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

// Refresh checks whether another file has replaced the one that was opened for reading. If so, it
// opens that file and calls accept with a snapshot of it. If accept returns nil, it owns the
// snapshot, and later snapshots are of the new file, too; the old file is closed with its last
// snapshot. After an error nothing has changed.
//
// Errors: those of [Open], [File.Snapshot] and accept.
func (f *File) Refresh(ctx context.Context, accept func(*Snapshot) error) (changed bool, err error) {
	if f.write {
		return false, fmt.Errorf("%s: a file that is open for writing cannot be refreshed", f.path)
	}
	f.writer.Lock() // one at a time
	defer f.writer.Unlock()
	old, err := f.acquire()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.release(old)) }()
	// Size and time are compared as well: a program that ignores locks may have overwritten the
	// file in place, with a sound one.
	info, err := os.Stat(f.path)
	if err != nil {
		return false, boltfile.WithPath(f.path, err)
	}
	opened := old.opened
	if os.SameFile(info, opened) && info.Size() == opened.Size() && info.ModTime().Equal(opened.ModTime()) {
		return false, nil
	}
	// Open the new file and offer a snapshot of it.
	replacement, err := Open(ctx, f.path, Options{Logger: f.log})
	if err != nil {
		return false, err
	}
	v, err := replacement.SnapshotAfter(ctx, nil)
	if err != nil {
		return false, errors.Join(err, replacement.Close())
	}
	h := replacement.handle
	v.file = f // f counts the references of h from here on
	if err := accept(v); err != nil {
		return false, errors.Join(err, v.Close(), f.release(h))
	}
	// Switch to it.
	f.mu.Lock()
	previous := f.handle // not nil: Close waits for f.writer
	f.handle = h
	f.mu.Unlock()
	return true, f.release(previous)
}
