package keywords

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/storage"
)

// pageSize is the page size of new files. 0 means that of the system. It is a variable so that tests
// can have many pages in small files.
var pageSize = 0

// openExisting opens the file next to the index as the options say. After ErrDamaged or
// fs.ErrNotExist no file is open.
func (ix *Index) openExisting(ctx context.Context) (err error) {
	o := storage.DerivedOptions{LockTimeout: ix.options.LockTimeout}
	if _, statErr := os.Stat(ix.path); statErr == nil { // opening a missing file with Write would create it
		o.Write = ix.options.Write
	}
	ix.file, err = storage.OpenDerived(ctx, ix.path, o)
	return damagedError(err)
}

// reopenExisting is openExisting for a Sync: a missing or damaged file is not an error.
func (ix *Index) reopenExisting(ctx context.Context) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.closed {
		return fmt.Errorf("%s: %w", ix.path, storage.ErrClosed)
	}
	if err := ix.openExisting(ctx); err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// openForWriting opens a file that Sync can write: with Write the one next to the index, otherwise
// a temporary one that starts as a copy of it.
func (ix *Index) openForWriting(ctx context.Context) error {
	wanted, current := ix.options.Settings, ix.lastSettings()
	// A file with other settings is not worth copying.
	reusable := ix.file != nil && (wanted == nil || current != nil && current.equalTo(*wanted))
	file, name, err := ix.openWritable(ctx, reusable)
	if errors.Is(err, ErrDamaged) {
		ix.log.Warn("keywords are damaged, and made again", "file", ix.path, "error", err)
		return ix.replaceWithEmpty(ctx)
	}
	if err != nil {
		return err
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	err = ix.closeFile()
	ix.file, ix.temporary = file, name
	return err
}

// replaceWithEmpty replaces the file by a new one that is open for writing.
func (ix *Index) replaceWithEmpty(ctx context.Context) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if err := ix.closeFile(); err != nil {
		return err
	}
	if ix.options.Write {
		// Two processes may do so at the same time. Both complete their files, and the later one
		// keeps the name.
		if err := files.Remove(ix.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	ix.cache.Lock()
	ix.damaged = false
	ix.cache.Unlock()
	const isCopy = false
	var err error
	ix.file, ix.temporary, err = ix.openWritable(ctx, isCopy)
	return err
}

// openWritable opens or creates a file for writing: with Write the one next to the index, otherwise
// a temporary one, which starts as a copy of it if isCopy is set, and else empty. name is the path
// of a temporary file.
func (ix *Index) openWritable(ctx context.Context, isCopy bool) (file *storage.DerivedFile, name string, err error) {
	o := storage.DerivedOptions{Write: true, LockTimeout: ix.options.LockTimeout, PageSize: pageSize}
	if ix.options.Write {
		file, err = storage.OpenDerived(ctx, ix.path, o)
		return file, "", damagedError(err)
	}
	f, err := os.CreateTemp("", "plaid-keywords-")
	if err != nil {
		return nil, "", ix.temporaryFileError(err)
	}
	name = f.Name()
	defer os.Remove(name) // if the system does not remove open files, closeFile does
	if isCopy {
		err = copyTo(ctx, f, ix.path)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		file, err = storage.OpenDerived(ctx, name, o)
	}
	if err != nil {
		return nil, "", ix.temporaryFileError(damagedError(err))
	}
	return file, name, nil
}

// copyTo copies a file that this process has locked. If another process has replaced the file,
// opening the copy verifies it like any file.
func copyTo(ctx context.Context, dst io.Writer, path string) error {
	src, err := files.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	_, err = io.Copy(dst, files.UntilDone(ctx, src))
	return err
}

// temporaryFileError adds to an error of a temporary file how to do without one.
func (ix *Index) temporaryFileError(err error) error {
	if err == nil || ix.options.Write || errors.Is(err, ErrDamaged) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%s does not match the index, and no temporary keywords could be made in %s: %w; "+
		"plaid keywords makes the file",
		ix.path, os.TempDir(), err)
}

// closeFile closes the file and removes it if it is temporary. The caller has locked ix.mu.
func (ix *Index) closeFile() error {
	ix.cache.Lock()
	ix.lastSnapshot = nil
	ix.cache.Unlock()
	if ix.file == nil {
		return nil
	}
	file, name := ix.file, ix.temporary
	ix.file, ix.temporary = nil, ""
	err := file.Close()
	if name != "" {
		_ = os.Remove(name)
	}
	return err
}

// damagedError turns storage.ErrCorrupt into ErrDamaged: these keywords are corrupt, not the index.
func damagedError(err error) error {
	if errors.Is(err, storage.ErrCorrupt) {
		return fmt.Errorf("%w: %w", ErrDamaged, errors.New(err.Error()))
	}
	return err
}
