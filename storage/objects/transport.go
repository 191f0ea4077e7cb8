package objects

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// transport tells callers when the service answered, by its clock, and ends requests that
// stand still: the client then tries them again.
type transport struct {
	next     http.RoundTripper
	patience time.Duration // without a byte
}

// heard is what the service answered during a call.
type heard struct {
	mu    sync.Mutex
	when  time.Time
	tries int
}

type heardKey struct{}

// listen returns a context whose requests are heard.
func listen(ctx context.Context) (*heard, context.Context) {
	h := &heard{}
	return h, context.WithValue(ctx, heardKey{}, h)
}

// date is that of the last answer.
func (h *heard) date() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.when
}

// count is how many requests there were.
func (h *heard) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tries
}

// slowest is how many bytes a second a request is sent with, at least.
const slowest = 256 << 10

var errStill = errors.New("the store stands still")

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	h, _ := r.Context().Value(heardKey{}).(*heard)
	if h != nil {
		h.mu.Lock()
		h.tries++
		h.mu.Unlock()
	}
	ctx, end := context.WithCancelCause(r.Context())
	wait := time.AfterFunc(t.patience+time.Duration(max(r.ContentLength, 0)/slowest)*time.Second, func() { end(errStill) })
	answer, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		wait.Stop()
		if context.Cause(ctx) == errStill {
			err = errStill
		}
		end(nil)
		return answer, err
	}
	if h != nil {
		if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
			h.mu.Lock()
			h.when = date
			h.mu.Unlock()
		}
	}
	wait.Stop()
	if answer.StatusCode == http.StatusPreconditionFailed && r.Header.Get("If-None-Match") == "" {
		answer.StatusCode = http.StatusServiceUnavailable // there is no condition that could have failed: the client tries again
	}
	answer.Body = &body{answer.Body, ctx, wait, t.patience, end}
	return answer, nil
}

// body ends if a read of it stands still.
type body struct {
	io.ReadCloser
	ctx      context.Context
	wait     *time.Timer
	patience time.Duration
	end      context.CancelCauseFunc
}

func (b *body) Read(p []byte) (int, error) {
	b.wait.Reset(b.patience)
	n, err := b.ReadCloser.Read(p)
	b.wait.Stop()
	if err != nil && err != io.EOF && context.Cause(b.ctx) == errStill {
		err = errStill
	}
	return n, err
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.end(nil)
	return err
}
