package store

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/plaid-ir/plaid/index"
)

// Derived is data that is made from a collection and kept beside it, such as keywords.
// It is never the source of anything, and may be behind or missing when it is opened.
type Derived interface {
	// Sync brings it up to a snapshot.
	Sync(ctx context.Context, snap *index.Snapshot) error
	Close() error
}

// derived is that of one collection: nil until it is first asked for.
type derived struct {
	mu     sync.Mutex // held while it is brought up to date, so that it never goes back
	data   Derived
	making *making // nil: none runs
	closed bool
}

// making is the work of opening derived data, which may take long: everybody who asks
// meanwhile waits for the same.
type making struct {
	done chan struct{}
	err  error // once done
}

// Derived returns the data that [Options.Derive] has opened for the collection, up to
// date with every change that was answered when it was called. It is opened when it is
// first asked for; from then on each change brings it up to date before it is answered.
// It ends with the collection, and is not to be closed. Opening goes on beside searches
// and changes, and when ctx ends: who asks again waits for the rest only.
//
// Errors: [errors.ErrUnsupported] without Options.Derive, those of [Collection.View], and
// those of opening it and bringing it up to date.
func (c *Collection) Derived(ctx context.Context) (Derived, error) {
	if c.s.o.Derive == nil {
		return nil, fmt.Errorf("derived data: %w", errors.ErrUnsupported)
	}
	v, err := c.View(ctx) // says why there is none
	if err != nil {
		return nil, err
	}
	if err := v.Close(); err != nil {
		return nil, err
	}
	d := &c.derived
	for {
		d.mu.Lock()
		if d.closed {
			d.mu.Unlock()
			return nil, context.Cause(c.alive)
		}
		if d.data != nil {
			defer d.mu.Unlock()
			return d.data, nil
		}
		m := d.making
		if m == nil {
			within, done, err := c.aside(context.Background())
			if err != nil {
				d.mu.Unlock()
				return nil, err
			}
			m = &making{done: make(chan struct{})}
			d.making = m
			go func() {
				defer done()
				c.derive(within, m)
			}()
		}
		d.mu.Unlock()
		select {
		case <-m.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if m.err != nil {
			return nil, m.err
		}
	}
}

// derive opens the data. Only the changes that came meanwhile are left for when the
// writer has to wait.
func (c *Collection) derive(ctx context.Context, m *making) {
	d := &c.derived
	data, err := c.s.o.Derive(ctx, c.indexPath(), c.Config())
	if err == nil {
		err = c.syncDerived(ctx, data)
	}
	if err == nil {
		err = c.syncDerived(ctx, data) // the first may have taken long
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		err = c.syncDerived(ctx, data)
	}
	if err != nil && data != nil {
		err = errors.Join(err, data.Close())
	}
	if err == nil {
		d.data = data
	} else if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	m.err, d.making = err, nil
	close(m.done)
}

// syncDerived brings the data up to the collection as it is now.
func (c *Collection) syncDerived(ctx context.Context, data Derived) error {
	v, err := c.View(ctx)
	if err != nil {
		return err
	}
	return errors.Join(data.Sync(ctx, v.snap), v.Close())
}

// follow brings derived data up to a change. That it cannot be is no fault of the
// change: it is opened anew when it is next asked for.
func (d *derived) follow(ctx context.Context, c *Collection) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.data == nil {
		return
	}
	if err := c.syncDerived(ctx, d.data); err != nil {
		c.log.Error("derived data is behind the collection, and will be opened anew", "error", errors.Join(err, d.data.Close()))
		d.data = nil
	}
}

func (d *derived) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.data == nil {
		return nil
	}
	err := d.data.Close()
	d.data = nil
	return err
}
