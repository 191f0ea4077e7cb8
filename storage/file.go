package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Options for Open. The zero value opens an existing index for reading.
type Options struct {
	// Write opens the file for changes and takes its exclusive lock.
	Write bool
	// Create makes the file if there is none; only with Write.
	Create bool
	// LockTimeout is how long to wait for the lock; 0: not at all.
	LockTimeout time.Duration
	// Logger hears of what is swept and rewritten; nil: nobody does.
	Logger *slog.Logger
}

// mappedBytes is the address space that a writer maps at first, so that the
// file can grow without waiting for readers to let go of the old mapping.
const mappedBytes = 256 << 30

// mappedLeast is where a writer gives up looking for address space.
const mappedLeast = 64 << 20

// growBytes is how far the file grows beyond what is needed at the moment.
const growBytes = 32 << 10

// File is an open index file. It is safe for concurrent use.
type File struct {
	path  string
	write bool
	log   *slog.Logger

	writer sync.Mutex // one writer at a time

	mu sync.Mutex
	h  *handle // nil when closed
}

// handle is one opened bbolt file. A rewritten index gets a new one; the old
// one lives until its last view is closed.
type handle struct {
	db     *bolt.DB
	file   *os.File // bbolt's own, closed by it
	refs   int      // guarded by File.mu
	checks checkedValues
}

// Open opens the index file at path.
//
// Errors: [fs.ErrNotExist], [ErrNotIndex], [ErrUnfinished] (reading only),
// [ErrVersion], [ErrCorrupt], [ErrLocked].
func Open(path string, o Options) (*File, error) {
	f := &File{path: path, write: o.Write, log: o.Logger}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	fresh := false
	if info, err := os.Stat(path); err != nil {
		if !errors.Is(err, fs.ErrNotExist) || !o.Write || !o.Create {
			return nil, fmt.Errorf("opening index: %w", err)
		}
		fresh = true
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w: it is a %s", path, ErrNotIndex, kindOf(info))
	} else if info.Size() == 0 && !o.Create {
		return nil, fmt.Errorf("%s: %w: the file is empty", path, ErrNotIndex)
	}
	h, err := openBolt(path, o, fresh)
	if err != nil {
		return nil, err
	}
	f.h = h
	if real, err := filepath.EvalSymlinks(path); err == nil {
		f.path = real // a rewrite replaces the file, not a link to it
	}
	if err := f.prepare(o.Create, fresh); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func kindOf(info fs.FileInfo) string {
	if info.IsDir() {
		return "folder"
	}
	return "special file"
}

// openBolt opens and locks the file, and makes sure that the file that it
// locked is the one that the path names: a rewrite replaces the file, and a
// process that waited for the old one's lock would otherwise go on with that.
func openBolt(path string, o Options, fresh bool) (*handle, error) {
	deadline := time.Now().Add(o.LockTimeout)
	for {
		var file *os.File
		db, err := tryBolt(path, o, max(time.Until(deadline), time.Nanosecond), &file)
		if err != nil {
			return nil, explainOpen(path, file, fresh, err)
		}
		locked, err := file.Stat()
		if err == nil {
			var named fs.FileInfo
			if named, err = os.Stat(path); err == nil && os.SameFile(locked, named) {
				if err := checkMeta(file); err != nil {
					return nil, errors.Join(fmt.Errorf("%s: %w", path, err), db.Close())
				}
				if err := checkNewest(file); err != nil {
					return nil, errors.Join(corrupt(path, err, "B+tree"), db.Close())
				}
				return &handle{db: db, file: file, refs: 1}, nil
			}
		}
		cerr := db.Close()
		if o.Create && errors.Is(err, fs.ErrNotExist) {
			err = nil // who held the lock has taken the file away
		}
		if err := errors.Join(err, cerr); err != nil {
			return nil, fmt.Errorf("opening index: %w", err)
		}
	}
}

func tryBolt(path string, o Options, timeout time.Duration, file **os.File) (db *bolt.DB, err error) {
	bo := &bolt.Options{
		Timeout:      timeout,
		ReadOnly:     !o.Write,
		FreelistType: bolt.FreelistMapType,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			var err error
			*file, err = os.OpenFile(name, flag, mode)
			return *file, err
		},
	}
	defer Guard(path, &err)()
	if o.Write {
		db, err = openMapped(path, bo)
	} else {
		db, err = bolt.Open(path, 0o644, bo)
	}
	if err != nil {
		return nil, err
	}
	db.AllocSize = growBytes
	return db, nil
}

// openMapped opens a file for writing with as much of mappedBytes as a limit on
// address space leaves. A file that outgrew its mapping would be mapped anew,
// and for that bbolt waits for readers, of which the writer itself may be one:
// so it may not grow beyond.
func openMapped(path string, bo *bolt.Options) (*bolt.DB, error) {
	if bits.UintSize < 64 || runtime.GOOS == "windows" {
		// There is no address space to spare, or it would become part of the file,
		// and a writer that has to map anew waits for readers, its own included.
		return nil, fmt.Errorf("writing an index on %s/%s: %w", runtime.GOOS, runtime.GOARCH, errors.ErrUnsupported)
	}
	for size := int64(mappedBytes); ; size /= 8 {
		bo.InitialMmapSize = int(size)
		if size < mappedBytes {
			bo.MaxSize = int(size)
		}
		db, err := bolt.Open(path, 0o644, bo)
		if !errors.Is(err, syscall.ENOMEM) || size <= mappedLeast {
			return db, err
		}
	}
}

// explainOpen turns bbolt's reasons into ours. A fresh file that could not be
// begun, as on a full disk, goes.
func explainOpen(path string, file *os.File, fresh bool, err error) error {
	if errors.Is(err, bolterrors.ErrTimeout) {
		return fmt.Errorf("%s: %w", path, ErrLocked)
	}
	if file == nil {
		return fmt.Errorf("opening index: %w", err)
	}
	if _, serr := file.Stat(); serr == nil { // bbolt panicked before it could close the file
		unlock(file)
		_ = file.Close()
	}
	again, oerr := os.Open(path)
	if oerr != nil {
		return fmt.Errorf("%s: %w", path, errors.Join(err, oerr))
	}
	defer again.Close()
	if merr := checkMeta(again); merr != nil {
		if fresh {
			return fmt.Errorf("%s: %w", path, errors.Join(err, os.Remove(path)))
		}
		return fmt.Errorf("%s: %w", path, merr)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// prepare checks format and versions, makes a new file's frame, and sweeps.
func (f *File) prepare(create, fresh bool) (err error) {
	defer Guard(f.path, &err)()
	if !f.write {
		return f.h.db.View(func(tx *bolt.Tx) error {
			if err := checkFormat(tx, f.path); err != nil {
				return err
			}
			_, err := currentGeneration(tx, f.path)
			return err
		})
	}
	err = f.h.db.View(func(tx *bolt.Tx) error { return checkFormat(tx, f.path) })
	if create && errors.Is(err, ErrUnfinished) {
		err := errors.Join(f.h.db.Update(writeFormat), syncDir(f.path))
		if err != nil && fresh {
			err = errors.Join(err, os.Remove(f.path))
		}
		return err
	} else if err != nil {
		return err
	}
	return f.sweep()
}

// Path is the file's name as it was given to Open.
func (f *File) Path() string { return f.path }

// Size is the length of the file in bytes.
func (f *File) Size() (int64, error) {
	info, err := os.Stat(f.path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Close closes the file as soon as its last view is closed. It may be called
// more than once.
func (f *File) Close() error {
	f.writer.Lock()
	defer f.writer.Unlock()
	f.mu.Lock()
	h := f.h
	f.h = nil
	f.mu.Unlock()
	if h == nil {
		return nil
	}
	return f.release(h)
}

func (f *File) acquire() (*handle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.h == nil {
		return nil, fmt.Errorf("%s: %w", f.path, ErrClosed)
	}
	f.h.refs++
	return f.h, nil
}

func (f *File) release(h *handle) error {
	f.mu.Lock()
	h.refs--
	last := h.refs == 0
	f.mu.Unlock()
	if !last {
		return nil
	}
	return h.db.Close()
}

// syncDir makes the name of a file durable, where the system can do that.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}
