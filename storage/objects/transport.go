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

// requestNotes has notes of the requests of one call.
type requestNotes struct {
	requests atomic.Int32
	answered atomic.Pointer[time.Time] // by the clock of the service; nil before the first answer
}

type notesKey struct{}

// withNotes returns a context, and notes of its requests.
func withNotes(ctx context.Context) (*requestNotes, context.Context) {
	h := &requestNotes{}
	return h, context.WithValue(ctx, notesKey{}, h)
}

// lastAnswer is that of the last answer; zero: there was none.
func (h *requestNotes) lastAnswer() (date time.Time) {
	if d := h.answered.Load(); d != nil {
		date = *d
	}
	return date
}

// minSendRate is the least rate at which a request is sent, in bytes a second.
const minSendRate = 256 << 10

var errStalled = errors.New("the store stands still")

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	h, _ := r.Context().Value(notesKey{}).(*requestNotes)
	if h != nil {
		h.requests.Add(1)
	}
	ctx, end := context.WithCancelCause(r.Context())
	sending := time.Duration(max(r.ContentLength, 0)/minSendRate) * time.Second
	wait := time.AfterFunc(t.patience+sending, func() { end(errStalled) })
	answer, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		wait.Stop()
		if context.Cause(ctx) == errStalled {
			err = errStalled
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
	answer.Body = &watchedBody{answer.Body, ctx, wait, t.patience, end}
	return answer, nil
}

// watchedBody ends a read that stands still.
type watchedBody struct {
	io.ReadCloser
	ctx      context.Context
	wait     *time.Timer
	patience time.Duration
	cancel   context.CancelCauseFunc
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.wait.Reset(b.patience)
	n, err := b.ReadCloser.Read(p)
	b.wait.Stop()
	if err != nil && err != io.EOF && context.Cause(b.ctx) == errStalled {
		err = errStalled
	}
	return n, err
}

func (b *watchedBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}
