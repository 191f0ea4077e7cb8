package clustertest

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/storage/objects"
)

// state is whether something lets through what wants to pass.
type state int

const (
	open state = iota
	hung       // everything waits
	cut        // everything fails, also what is under way
)

// valve is what a state is of.
type valve struct {
	mu      sync.Mutex
	state   state
	changed chan struct{} // closed when the state changes
}

func newValve() *valve { return &valve{changed: make(chan struct{})} }

func (v *valve) set(s state) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.state != cut { // which is for good
		v.state = s
		close(v.changed)
		v.changed = make(chan struct{})
	}
}

func (v *valve) now() (state, chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state, v.changed
}

// pass waits as long as the valve is hung.
func (v *valve) pass(ctx context.Context) error {
	for {
		s, changed := v.now()
		switch s {
		case open:
			return ctx.Err()
		case cut:
			return ErrCut
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// through does something that a cut ends, and whose answer waits while the valve is hung.
func (v *valve) through(ctx context.Context, do func(context.Context) error) error {
	if err := v.pass(ctx); err != nil {
		return err
	}
	within, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			s, changed := v.now()
			if s == cut {
				stop(ErrCut)
				return
			}
			select {
			case <-changed:
			case <-done:
				return
			}
		}
	}()
	err := do(within)
	if gone := v.pass(ctx); gone != nil {
		return gone
	}
	return err
}

// gate is the way of one node to the store.
type gate struct {
	*valve
	next objects.Store
}

func (g *gate) Put(ctx context.Context, name string, r io.Reader, size int64) (made time.Time, err error) {
	err = g.through(ctx, func(ctx context.Context) (err error) { made, err = g.next.Put(ctx, name, r, size); return err })
	return made, err
}

func (g *gate) Replace(ctx context.Context, name string, body []byte) (made time.Time, err error) {
	err = g.through(ctx, func(ctx context.Context) (err error) { made, err = g.next.Replace(ctx, name, body); return err })
	return made, err
}

func (g *gate) Get(ctx context.Context, name string, from, length int64) (r io.ReadCloser, e objects.Entry, err error) {
	if err := g.pass(ctx); err != nil { // the context is the body's too
		return nil, e, err
	}
	r, e, err = g.next.Get(ctx, name, from, length)
	if gone := g.pass(ctx); gone != nil {
		if err == nil {
			_ = r.Close()
		}
		return nil, e, gone
	}
	if err == nil {
		r = &body{r, g.valve, ctx}
	}
	return r, e, err
}

// body is one that is read through a valve.
type body struct {
	io.ReadCloser
	v   *valve
	ctx context.Context
}

func (b *body) Read(p []byte) (int, error) {
	if err := b.v.pass(b.ctx); err != nil {
		return 0, err
	}
	return b.ReadCloser.Read(p)
}

func (g *gate) List(ctx context.Context, prefix, after string, limit int) (entries []objects.Entry, err error) {
	err = g.through(ctx, func(ctx context.Context) (err error) {
		entries, err = g.next.List(ctx, prefix, after, limit)
		return err
	})
	return entries, err
}

func (g *gate) Delete(ctx context.Context, name string) error {
	return g.through(ctx, func(ctx context.Context) error { return g.next.Delete(ctx, name) })
}

func (g *gate) RemoveLeftovers(ctx context.Context, before time.Time) (n int, err error) {
	err = g.through(ctx, func(ctx context.Context) (err error) { n, err = g.next.RemoveLeftovers(ctx, before); return err })
	return n, err
}

// door is the way of others to one node.
type door struct {
	*valve
	mu   sync.Mutex
	next http.Handler // nil: it has not begun
}

func (d *door) lead(to http.Handler) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next = to
}

// ServeHTTP implements http.Handler.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	next := d.next
	d.mu.Unlock()
	if d.pass(r.Context()) != nil || next == nil {
		panic(http.ErrAbortHandler)
	}
	next.ServeHTTP(w, r)
}
