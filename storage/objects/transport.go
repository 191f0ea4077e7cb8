package objects

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// transport notes when the service answers, by its clock, and ends requests that stall, which the client then retries.
type transport struct {
	next     http.RoundTripper
	patience time.Duration // longest time without a byte
}

// requestNotes are notes about the requests of one call.
type requestNotes struct {
	requests atomic.Int32
	answered atomic.Pointer[time.Time] // last answer, by the clock of the service, nil before the first one
}

type notesKey struct{}

// withNotes returns a context, and the notes about requests with it.
func withNotes(ctx context.Context) (*requestNotes, context.Context) {
	h := &requestNotes{}
	return h, context.WithValue(ctx, notesKey{}, h)
}

// lastAnswer returns the time of the last answer; zero means that there was none.
func (h *requestNotes) lastAnswer() (date time.Time) {
	if d := h.answered.Load(); d != nil {
		date = *d
	}
	return date
}

// minSendRate is the lowest rate at which a request may be sent, in bytes per second.
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
		// The request has no condition that could have failed. Let the client retry it.
		answer.StatusCode = http.StatusServiceUnavailable
	}
	answer.Body = &watchedBody{answer.Body, ctx, wait, t.patience, end}
	return answer, nil
}

// watchedBody ends a read that stalls.
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
