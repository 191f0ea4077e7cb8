package clustertest

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plaid-ir/plaid/storage/objects"
)

// state is the state of a valve.
type state int

const (
	open state = iota
	hung       // requests wait
	cut        // requests fail, also those that are running
)

// valve lets requests pass, delays them or fails them.
type valve struct {
	mu      sync.Mutex
	state   state
	changed chan struct{}   // closed when the state changes
	life    context.Context // ends when the valve is cut
	end     context.CancelCauseFunc
}

func newValve() *valve {
	v := &valve{changed: make(chan struct{})}
	v.life, v.end = context.WithCancelCause(context.Background())
	return v
}

// set changes the state. A valve that was cut stays cut.
func (v *valve) set(s state) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.state == cut { // for good
		return
	}
	if v.state = s; s == cut {
		v.end(ErrCut)
	}
	close(v.changed)
	v.changed = make(chan struct{})
}

// waitOpen waits until the valve is open. It returns an error when the valve is cut or the context ends.
func (v *valve) waitOpen(ctx context.Context) error {
	for {
		v.mu.Lock()
		s, changed := v.state, v.changed
		v.mu.Unlock()
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

// through calls perform when the valve is open, and returns when it is open again. A cut ends the context
// of perform.
func through[T any](
	ctx context.Context, v *valve, perform func(context.Context) (T, error),
) (answer T, err error) {
	if err := v.waitOpen(ctx); err != nil {
		return answer, err
	}
	within, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(v.life, func() { stop(ErrCut) })()
	answer, err = perform(within)
	if waitErr := v.waitOpen(ctx); waitErr != nil {
		err = waitErr
	}
	return answer, err
}

// gate is the connection of one node to the store.
type gate struct {
	*valve
	next objects.Store
}

func (g *gate) Put(ctx context.Context, name string, r io.Reader, size int64) (time.Time, error) {
	return through(ctx, g.valve, func(ctx context.Context) (time.Time, error) { return g.next.Put(ctx, name, r, size) })
}

func (g *gate) Replace(ctx context.Context, name string, body []byte) (time.Time, error) {
	return through(ctx, g.valve,
		func(ctx context.Context) (time.Time, error) { return g.next.Replace(ctx, name, body) })
}

func (g *gate) List(ctx context.Context, prefix, after string, limit int) ([]objects.Entry, error) {
	return through(ctx, g.valve, func(ctx context.Context) ([]objects.Entry, error) {
		return g.next.List(ctx, prefix, after, limit)
	})
}

func (g *gate) Delete(ctx context.Context, name string) error {
	_, err := through(ctx, g.valve, func(ctx context.Context) (any, error) { return nil, g.next.Delete(ctx, name) })
	return err
}

func (g *gate) RemoveLeftovers(ctx context.Context, before time.Time) (int, error) {
	return through(ctx, g.valve, func(ctx context.Context) (int, error) { return g.next.RemoveLeftovers(ctx, before) })
}

func (g *gate) Get(ctx context.Context, name string, from, length int64) (r io.ReadCloser, e objects.Entry, err error) {
	if err := g.waitOpen(ctx); err != nil { // not through: the body needs the context
		return nil, e, err
	}
	r, e, err = g.next.Get(ctx, name, from, length)
	if waitErr := g.waitOpen(ctx); waitErr != nil {
		if err == nil {
			_ = r.Close()
		}
		return nil, e, waitErr
	}
	if err == nil {
		r = &body{r, g.valve, ctx}
	}
	return r, e, err
}

// body is a body that is read through a valve.
type body struct {
	io.ReadCloser
	v   *valve
	ctx context.Context
}

func (b *body) Read(p []byte) (int, error) {
	if err := b.v.waitOpen(b.ctx); err != nil {
		return 0, err
	}
	return b.ReadCloser.Read(p)
}

// door is the connection of others to one node.
type door struct {
	*valve
	next atomic.Pointer[http.Handler] // nil until the node has started
}

// ServeHTTP implements http.Handler.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	next := d.next.Load()
	if d.waitOpen(r.Context()) != nil || next == nil {
		panic(http.ErrAbortHandler)
	}
	(*next).ServeHTTP(w, r)
}
