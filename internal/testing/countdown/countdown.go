// Package countdown is for tests of what ends with its context, at whatever place it looks
// at it.
package countdown

import (
	"context"
	"sync/atomic"
)

// Context ends when it has been asked for its error so many times. Its channel is never
// closed.
type Context struct {
	context.Context
	left atomic.Int64
	done chan struct{}
}

// New returns a context that goes on for so many looks at it.
func New(looks int) *Context {
	c := &Context{Context: context.Background(), done: make(chan struct{})}
	c.left.Store(int64(looks))
	return c
}

// Left is for how many looks it goes on; below 0: it was asked so often after its end.
func (c *Context) Left() int { return int(c.left.Load()) }

// Done returns a channel that is never closed.
func (c *Context) Done() <-chan struct{} { return c.done }

// Err takes one look away.
func (c *Context) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}
