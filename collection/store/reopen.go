package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/storage"
)

// viewsWait is how long views may go on before the searches of a file that is to be
// opened again are ended.
const viewsWait = 5 * time.Second

// reopen opens the index file again. It can be locked only when its views are closed,
// so new ones wait, what goes on for long (a training, a backup) is given up, the other
// views have a while, and then their searches end.
func (w *worker) reopen(ctx context.Context) error {
	c := w.c
	if c.given != nil {
		return fmt.Errorf("collection %q: its program has to close the index and open it again", c.name)
	}
	c.mu.Lock()
	o := c.opened
	again := make(chan struct{})
	c.opened, c.again = nil, again
	c.stale(collection.ErrReopened)
	c.fresh, c.stale = context.WithCancelCause(context.Background())
	c.mu.Unlock()
	c.stopTraining()
	defer func() {
		c.mu.Lock()
		c.again = nil
		c.mu.Unlock()
		close(again)
	}()
	gone := make(chan struct{})
	go func() {
		o.views.Wait()
		close(gone)
	}()
	select {
	case <-gone:
	case <-time.After(viewsWait):
	}
	err := o.close()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		next, oerr := c.openIndex(ctx)
		if oerr == nil && next == nil {
			oerr = fmt.Errorf("%s: %w", c.indexPath(), storage.ErrCorrupt)
		}
		if oerr == nil {
			c.mu.Lock()
			c.opened = next
			c.mu.Unlock()
			return nil
		}
		if !errors.Is(oerr, storage.ErrLocked) { // by a view of before
			err = errors.Join(err, oerr)
			break
		}
		select {
		case <-c.alive.Done():
			return errors.Join(err, oerr, context.Cause(c.alive))
		case <-time.After(wait):
		}
	}
	c.mu.Lock()
	c.fault = fmt.Errorf("%w: %q: %w", collection.ErrDamaged, c.name, err)
	c.mu.Unlock()
	c.log.Error("the collection cannot be opened again", "error", err)
	return err
}
