// Package countdown has a context for tests that code returns when its context ends, at any of the
// places where it checks.
package countdown

import (
	"context"
	"sync/atomic"
)

// Context ends after a number of calls of Err. Its channel is never
// closed.
type Context struct {
	context.Context
	remaining atomic.Int64
	done      chan struct{}
}

// New returns a context that ends after a number of calls of Err.
func New(calls int) *Context {
	c := &Context{Context: context.Background(), done: make(chan struct{})}
	c.remaining.Store(int64(calls))
	return c
}

// Remaining returns the number of calls until the end. A negative number counts the calls after it.
func (c *Context) Remaining() int { return int(c.remaining.Load()) }

// Done returns a channel that is never closed.
func (c *Context) Done() <-chan struct{} { return c.done }

// Err counts a call, and returns an error after the last one.
func (c *Context) Err() error {
	if c.remaining.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}
