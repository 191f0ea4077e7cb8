package keywords

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/storage"
)

// pageSize of a file that is made; 0: that of the system.
var pageSize = 0 // a variable, so that tests have many pages in small files

// openFirst opens the file as the options have it. ErrDamaged and fs.ErrNotExist leave
// none open.
func (ix *Index) openFirst(ctx context.Context) (err error) {
	o := storage.DerivedOptions{LockTimeout: ix.options.LockTimeout}
	if _, missing := os.Stat(ix.path); missing == nil { // one to write would be made
		o.Write = ix.options.Write
	}
	ix.file, err = storage.OpenDerived(ctx, ix.path, o)
	return damage(err)
}

// openToWrite has the file open for writing, and makes it where it is not there. While
// another process has it, searches go on with the one that is open.
func (ix *Index) openToWrite(ctx context.Context) error {
	err := storage.WhileLocked(ctx, ix.options.LockTimeout, func() error { return ix.reopen(ctx, true) })
	if errors.Is(err, ErrDamaged) {
		ix.log.Warn("keywords are damaged, and made again", "file", ix.path, "error", err)
		return ix.openEmpty(ctx)
	}
	return err
}

// reopen opens the file once more, and closes the one that is open: to write or to read.
// After an error that one stays, unless another process wrote it meanwhile.
func (ix *Index) reopen(ctx context.Context, write bool) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	before := ix.file
	if before != nil && before.Unlock() != nil { // its lock would be in the way of ours
		if err := ix.closeFile(); err != nil {
			return err
		}
		before = nil
	}
	next, err := storage.OpenDerived(ctx, ix.path, storage.DerivedOptions{Write: write, PageSize: pageSize})
	if err == nil {
		err = ix.closeFile()
		ix.file = next
		return err
	}
	if before != nil {
		if lost := before.Relock(context.WithoutCancel(ctx)); lost != nil {
			err = errors.Join(err, lost, ix.closeFile())
		}
	}
	return damage(err)
}

// openEmpty has a new file open for writing, in the place of the one that is there.
func (ix *Index) openEmpty(ctx context.Context) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if err := ix.closeFile(); err != nil {
		return err
	}
	// Two processes may do so at once. Both files are complete in the end, and the one
	// that is there then stays.
	if err := files.Remove(ix.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ix.cache.Lock()
	ix.damaged = false
	ix.cache.Unlock()
	var err error
	ix.file, err = storage.OpenDerived(ctx, ix.path, storage.DerivedOptions{Write: true, LockTimeout: ix.options.LockTimeout, PageSize: pageSize})
	return damage(err)
}

// closeFile is for who holds ix.mu.
func (ix *Index) closeFile() error {
	ix.cache.Lock()
	ix.last = nil
	ix.cache.Unlock()
	if ix.file == nil {
		return nil
	}
	file := ix.file
	ix.file = nil
	return file.Close()
}

// damage is ErrDamaged where storage found the file corrupt: the index is not.
func damage(err error) error {
	if errors.Is(err, storage.ErrCorrupt) {
		return fmt.Errorf("%w: %w", ErrDamaged, errors.New(err.Error()))
	}
	return err
}
