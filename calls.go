package plaid

import (
	"context"
	"errors"

	"github.com/plaid-ir/plaid/collection/store"
)

// beginCall counts a call that has the file open. Close waits until done is called. The error is [ErrClosed].
func (c *Collection) beginCall() (done func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	c.calls.Add(1)
	return c.calls.Done, nil
}

// read calls use with the newest snapshot. The context of use ends with the collection, and read then returns
// [ErrClosed].
func (c *Collection) read(ctx context.Context, use func(ctx context.Context, v *store.Snapshot) error) error {
	done, err := c.beginCall()
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.alive, func() { cancel(ErrClosed) })()
	v, err := c.docs.Snapshot(ctx)
	if err != nil {
		return err
	}
	err = errors.Join(use(ctx, v), v.Close())
	if err != nil && errors.Is(context.Cause(ctx), ErrClosed) {
		err = ErrClosed
	}
	return err
}
