package objects

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// transport tells callers when the service answered, by its clock, and ends requests that
// stand still: the client then tries them again.
type transport struct {
	next     http.RoundTripper
	patience time.Duration // without a byte
}

// heard has notes of the requests of one call.
type heard struct {
	requests atomic.Int32
	answered atomic.Pointer[time.Time] // by the clock of the service; nil before the first answer
}

type heardKey struct{}

// listen returns a context, and notes of its requests.
func listen(ctx context.Context) (*heard, context.Context) {
	h := &heard{}
	return h, context.WithValue(ctx, heardKey{}, h)
}

// date is that of the last answer; zero: there was none.
func (h *heard) date() (date time.Time) {
	if d := h.answered.Load(); d != nil {
		date = *d
	}
	return date
}

// slowest is the least rate at which a request is sent, in bytes a second.
const slowest = 256 << 10

var errStill = errors.New("the store stands still")

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	h, _ := r.Context().Value(heardKey{}).(*heard)
	if h != nil {
		h.requests.Add(1)
	}
	ctx, end := context.WithCancelCause(r.Context())
	sending := time.Duration(max(r.ContentLength, 0)/slowest) * time.Second
	wait := time.AfterFunc(t.patience+sending, func() { end(errStill) })
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
			h.answered.Store(&date)
		}
	}
	wait.Stop()
	if answer.StatusCode == http.StatusPreconditionFailed && r.Header.Get("If-None-Match") == "" {
		// The request has no condition that could have failed: the client tries again.
		answer.StatusCode = http.StatusServiceUnavailable
	}
	answer.Body = &body{answer.Body, ctx, wait, t.patience, end}
	return answer, nil
}

// body ends a read that stands still.
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
